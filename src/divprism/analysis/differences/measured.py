"""What the difference of two states consists of: its modes, their errors, and chance.

rho = sum_i mass_i phi_i phi_i' is the state of a sample. Eigenvectors of rho_1 - ratio rho_2 are
the modes that one sample has more of (Zhang et al., 2024, arXiv 2402.17287, for novelty; the
scalable version with features is arXiv 2404.02287). For a direction u, u' rho u is the mass of the
sample in it: the mean squared cosine of its items with u. So an eigenvalue is the share of the
first sample less `ratio` times that of the second.

A finite sample of the same model differs from itself in some directions, and the largest of many
eigenvalues is the one that chance has made largest. So shares are measured once more on the half
of the prompts that a direction was not found on, and the largest eigenvalue is compared with those
of random exchanges of the two samples.
"""

import math
from dataclasses import dataclass

import numpy as np

from divprism.analysis.differences.chance import Chance, total_of
from divprism.analysis.differences.states import States
from divprism.engines import blas_for

__all__ = ["HeldOut", "Measured", "Modes", "Total", "measure"]

_SPECTRA = 5  # exchanges of which all eigenvalues are computed, for the mean of their sums
_ROUNDING = 1e-9  # eigenvalues of samples with the same items differ by no more, of states of one


@dataclass(frozen=True, eq=False)
class Modes:
    """Eigenvectors of the difference on one side, the largest first.

    Attributes
    ----------
    sign : int
        1 for what the first sample has more of, -1 for the second.
    values : ndarray
        Signed eigenvalues.
    directions : ndarray, shape (rank, count)
        Unit eigenvectors.
    """

    sign: int
    values: np.ndarray
    directions: np.ndarray


@dataclass(frozen=True)
class HeldOut:
    """The difference of shares in directions of the same rank that were found on other prompts.

    Attributes
    ----------
    value : float
        Share of the first sample less `ratio` times that of the second.
    low, high : float or None
        Its interval, with the directions held; None with too few prompts or rows.
    agreement : float
        Mean squared cosine of the directions with the mode: 1 where half of the data find it again.
    """

    value: float
    low: float | None
    high: float | None
    agreement: float


@dataclass(frozen=True)
class Total:
    """Sum of the positive eigenvalues, with what chance makes of it.

    Attributes
    ----------
    value : float
        From 0, for equal states, to 1, for states with nothing in common.
    baseline, baseline_error : float or None
        Its mean over random exchanges of the samples, and the standard error of that mean.
    p_value : float or None
        Share of exchanges, the given samples included, with at least this sum.
    """

    value: float
    baseline: float | None
    baseline_error: float | None
    p_value: float | None


@dataclass(frozen=True, eq=False)
class Measured:
    """What the difference of two states consists of.

    `loadings` holds for each side, by its sign, the cosines of all rows with its modes; `p_values`
    and `held_out` follow the modes. `positive` are all positive eigenvalues.
    """

    states: States
    modes: tuple[Modes, ...]
    loadings: dict[int, np.ndarray]
    held_out: dict[int, list[HeldOut]]
    p_values: dict[int, list[float | None]]
    total: Total
    positive: np.ndarray


def measure(
    states: States,
    *,
    num_modes: int,
    num_exchanges: int,
    level: float | None,
    seed: int,
    signs: tuple[int, ...] = (1, -1),
) -> Measured:
    """The modes of the difference of two states, with errors and chance."""
    # Hundreds of small matrices, in which several threads would mostly wait for each other.
    with blas_for(states.basis.rank):
        return _measure(states, num_modes, num_exchanges, level, seed, signs)


def _measure(
    states: States,
    num_modes: int,
    num_exchanges: int,
    level: float | None,
    seed: int,
    signs: tuple[int, ...],
) -> Measured:
    weights = states.weights(states.side)
    second = states.halves()
    found_on = [states.weights(states.side, half) for half in (second, ~second)]
    exchanges = list(states.exchanged(num_exchanges, seed))
    drawn = [states.weights(side) for side in exchanges[:_SPECTRA]]
    signed = [states.on_points(row_weights) for row_weights in (weights, *found_on, *drawn)]
    moments = states.basis.moments(signed)
    values, vectors = np.linalg.eigh(moments[0])
    rounding = _ROUNDING * max(1.0, states.ratio)
    modes = tuple(_leading(values, vectors, sign, num_modes, rounding) for sign in signs)
    loadings, held_out = {}, {}
    for side in modes:
        loadings[side.sign] = states.basis.loadings(side.directions)[states.index]
        held_out[side.sign] = _held_out(states, side, moments[1:3], second, level)
    # Of novelty, the side of the reference is not asked for, and totals are those of the outputs.
    is_symmetric = states.ratio == 1 and len(signs) > 1
    spectra = [np.linalg.eigvalsh(moment) for moment in moments[3:]]
    sums = [float(total_of(each, is_symmetric=is_symmetric)) for each in spectra]
    chance = Chance.of(states, weights, exchanges)
    p_values = chance.p_of_modes(signs, num_modes, is_symmetric=states.ratio == 1)
    positive = values[values > rounding][::-1]
    # Rounding may leave a sum of 1e-15 where the states are equal.
    clean = np.where(np.abs(values) > rounding, values, 0.0)
    value = min(1.0, float(total_of(clean, is_symmetric=is_symmetric)))
    total = Total(value, *_mean(sums), chance.p_of_total(is_symmetric=is_symmetric))
    return Measured(
        states=states,
        modes=modes,
        loadings=loadings,
        held_out=held_out,
        p_values=p_values,
        total=total,
        positive=positive,
    )


def _leading(
    values: np.ndarray, vectors: np.ndarray, sign: int, count: int, rounding: float
) -> Modes:
    """The eigenpairs of one sign above rounding errors, the largest first."""
    order = np.argsort(-sign * values, kind="stable")[:count]
    order = order[sign * values[order] > rounding]
    return Modes(sign, values[order], vectors[:, order])


def _mean(sums: list[float]) -> tuple[float | None, float | None]:
    if not sums:
        return None, None
    error = None
    if len(sums) > 1:
        error = float(np.std(sums, ddof=1)) / math.sqrt(len(sums))
    return float(np.mean(sums)), error


def _held_out(
    states: States, modes: Modes, moments: list[np.ndarray], second: np.ndarray, level: float | None
) -> list[HeldOut]:
    """For each rank the difference of shares in the direction of that rank in the other half."""
    count = modes.values.size
    if not count:
        return []
    weights = states.weights(states.side)
    # The moments are those of the second and of the first half: each is measured on the other one.
    measured_on = (~second, second)
    parts = np.zeros((states.side.size, count))
    agreement = np.zeros(count)
    for moment, rows in zip(moments, measured_on, strict=True):
        values, vectors = np.linalg.eigh(moment)
        found = _leading(values, vectors, modes.sign, count, _ROUNDING * max(1.0, states.ratio))
        # By rank, and not by likeness to the modes of all data: the other half has taken part in
        # these, and choosing by them would make its difference larger as well.
        kept = found.values.size
        overlaps = np.einsum("ij,ij->j", modes.directions[:, :kept], found.directions) ** 2
        agreement[:kept] += overlaps / 2
        loadings = states.basis.loadings(found.directions)[states.index]
        parts[rows, :kept] = weights[rows, None] * loadings[rows] ** 2
    return [
        _with_interval(states, parts[:, mode], second, float(agreement[mode]), level)
        for mode in range(count)
    ]


def _with_interval(
    states: States, parts: np.ndarray, second: np.ndarray, agreement: float, level: float | None
) -> HeldOut:
    """The sum of what rows contribute, with an interval by the jackknife over units."""
    from scipy.special import stdtrit

    value = float(parts.sum())
    # Each half has chosen the direction that the other one is measured in, so the two measurements
    # depend on each other. Their errors add up at most; as independent ones they would be 1.4 times
    # smaller, and the intervals of samples of one model would miss zero too often.
    error, freedom = 0.0, 0
    for half in (~second, second):
        variance, number = _variance(states, parts, half)
        error += math.sqrt(variance)
        freedom += number
    if level is None or freedom < 1:
        return HeldOut(value, None, None, agreement)
    reach = float(stdtrit(freedom, (1 + level) / 2)) * error
    return HeldOut(value, value - reach, value + reach, agreement)


def _variance(states: States, parts: np.ndarray, half: np.ndarray) -> tuple[float, int]:
    """Variance of the sum over the rows of a half, and its degrees of freedom."""
    rows = np.flatnonzero(half & (states.side != 0))
    if states.whole:
        # Each prompt holds rows of both samples, so what they share cancels in its sum.
        strata, codes = np.unique(states.strata[rows], return_inverse=True)
        units = np.bincount(codes, weights=parts[rows])
        shares = np.bincount(codes) / rows.size
        centred = units - units.sum() * shares
        freedom = strata.size - 1
        return float(centred @ centred) * strata.size / max(1, freedom), freedom
    variance, freedom = 0.0, 0
    for sign in (1, -1):
        own = parts[rows[states.side[rows] == sign]]
        if own.size < 2:
            return 0.0, 0
        variance += own.size * float(own.var(ddof=1))
        freedom += own.size - 1
    return variance, freedom
