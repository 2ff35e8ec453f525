"""Two samples as states over the same points, and what their difference consists of.

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
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from divprism.analysis.differences.basis import Basis

__all__ = ["HeldOut", "Measured", "Modes", "States", "Total", "measure"]

_TESTED = 256  # widest directions in which exchanged samples are compared
_TESTED_ENTRIES = 1 << 25  # and their features: of many points, fewer directions
_SPECTRA = 5  # exchanges of which all eigenvalues are computed, for the mean of their sums
_ROUNDING = 1e-9  # eigenvalues of samples with the same items differ by no more


@dataclass(frozen=True, eq=False)
class States:
    """Rows of two samples as points of one basis.

    Attributes
    ----------
    basis : Basis
        Features of the points.
    index : ndarray of int
        The point of each row.
    side : ndarray of int
        1 for rows of the first sample, -1 for those of the second, 0 for others.
    ratio : float
        What the second state is multiplied by.
    strata : ndarray of int
        Rows of one stratum may be exchanged: those of one prompt.
    whole : bool
        Whether all rows of a stratum change places together: strata are then the units of errors.
    split_inside : bool
        Whether the halves of the data are halves of each stratum; else, of the strata.
    ranks : ndarray of int
        An order of the rows that depends on their content alone.
    stratum_ranks : ndarray of int
        An order of the strata, by number, that depends on their content alone.
    """

    basis: Basis
    index: np.ndarray
    side: np.ndarray
    ratio: float
    strata: np.ndarray
    whole: bool
    split_inside: bool
    ranks: np.ndarray
    stratum_ranks: np.ndarray

    def weights(self, side: np.ndarray, part: np.ndarray | None = None) -> np.ndarray:
        """The signed mass of each row; with `part`, of these rows alone."""
        weights = np.zeros(side.size)
        for sign, total in ((1, 1.0), (-1, -self.ratio)):
            rows = side == sign
            if part is not None:
                rows &= part
            weights[rows] = total / max(1, np.count_nonzero(rows))
        return weights

    def on_points(self, weights: np.ndarray) -> np.ndarray:
        """The mass of each point, from those of the rows."""
        return np.bincount(self.index, weights=weights, minlength=self.basis.size)

    def halves(self) -> np.ndarray:
        """Whether a row is in the second half: of the strata, or of the rows of each."""
        if not self.split_inside:
            return np.asarray(self.stratum_ranks[self.strata] % 2 == 1)
        second = np.zeros(self.side.size, dtype=bool)
        # Every other row of a stratum and sample, in the order of the content.
        order = np.lexsort((self.ranks, self.side, self.strata))
        second[order[1::2]] = True
        return second

    def exchanged(self, count: int, seed: int) -> Iterator[np.ndarray]:
        """Sides of rows after random exchanges inside of strata."""
        rng = np.random.default_rng(seed)
        if self.whole:
            for _ in range(count):
                signs = rng.choice(np.array([-1, 1]), self.stratum_ranks.size)
                yield self.side * signs[self.stratum_ranks][self.strata]
            return
        order = np.lexsort((self.ranks, self.strata))
        order = order[self.side[order] != 0]
        for _ in range(count):
            # Sorted by stratum and then at random: a random order inside of each stratum.
            shuffled = np.lexsort((rng.random(order.size), self.strata[order]))
            side = np.zeros_like(self.side)
            side[order] = self.side[order][shuffled]
            yield side


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
        Its interval, with the directions held; None with fewer than two prompts or rows of a
        sample.
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
    weights = states.weights(states.side)
    second = states.halves()
    found_on = [states.weights(states.side, half) for half in (second, ~second)]
    exchanges = list(states.exchanged(num_exchanges, seed))
    drawn = [states.weights(side) for side in exchanges[:_SPECTRA]]
    signed = [states.on_points(row_weights) for row_weights in (weights, *found_on, *drawn)]
    moments = states.basis.moments(signed)
    values, vectors = np.linalg.eigh(moments[0])
    modes = tuple(_leading(values, vectors, sign, num_modes) for sign in signs)
    loadings, held_out = {}, {}
    for side in modes:
        loadings[side.sign] = states.basis.loadings(side.directions)[states.index]
        held_out[side.sign] = _held_out(states, side, moments[1:3], second, level)
    sums = [float(np.maximum(np.linalg.eigvalsh(each), 0).sum()) for each in moments[3:]]
    chance = _Chance.of(states, weights, exchanges)
    positive = values[values > _ROUNDING][::-1]
    # Rounding may leave a sum of 1e-15 where the states are equal.
    value = min(1.0, float(positive.sum()))
    total = Total(value, *_mean(sums), chance.p_of_total())
    return Measured(
        states=states,
        modes=modes,
        loadings=loadings,
        held_out=held_out,
        p_values={side.sign: chance.p_of_modes(side, both=len(signs) > 1) for side in modes},
        total=total,
        positive=positive,
    )


def _leading(values: np.ndarray, vectors: np.ndarray, sign: int, count: int) -> Modes:
    """The eigenpairs of one sign, the largest first."""
    order = np.argsort(-sign * values, kind="stable")[:count]
    order = order[sign * values[order] > _ROUNDING]
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
        found = _leading(values, vectors, modes.sign, count)
        # By rank, and not by likeness to the modes of all data: the other half has taken part in
        # these, and choosing by them would make its difference larger as well.
        kept = found.values.size
        overlaps = np.einsum("ij,ij->j", modes.directions[:, :kept], found.directions) ** 2
        agreement[:kept] += overlaps / 2
        loadings = states.basis.loadings(found.directions)[states.index]
        parts[rows, :kept] = weights[rows, None] * loadings[rows] ** 2
    return [
        _with_interval(states, parts[:, mode], float(agreement[mode]), level)
        for mode in range(count)
    ]


def _with_interval(
    states: States, parts: np.ndarray, agreement: float, level: float | None
) -> HeldOut:
    """The sum of what rows contribute, with an interval by the jackknife over units."""
    from scipy.special import stdtrit

    value = float(parts.sum())
    variance, freedom = 0.0, 0
    if states.whole:
        # Each prompt holds rows of both samples, so what they share cancels in its sum.
        units = np.bincount(states.strata, weights=parts)
        shares = np.bincount(states.strata, weights=states.side != 0)
        freedom = units.size - 1
        centred = units - value * shares / shares.sum()
        variance = float(centred @ centred) * units.size / max(1, freedom)
    else:
        for sign in (1, -1):
            own = parts[states.side == sign]
            freedom += own.size - 1
            variance += own.size * float(own.var(ddof=min(1, own.size - 1)))
    if level is None or freedom < 1:
        return HeldOut(value, None, None, agreement)
    reach = float(stdtrit(freedom, (1 + level) / 2)) * math.sqrt(variance)
    return HeldOut(value, value - reach, value + reach, agreement)


@dataclass(frozen=True, eq=False)
class _Chance:
    """Eigenvalues of the difference, given and after exchanges, in the widest directions.

    Exchanges leave the points where they are, so the directions are the same for all of them, and
    what is compared in these has the same distribution if the samples come from one model.
    """

    given: np.ndarray
    exchanged: np.ndarray
    ratio: float

    @classmethod
    def of(cls, states: States, weights: np.ndarray, exchanges: list[np.ndarray]) -> "_Chance":
        """The eigenvalues, rising, of the given samples and of each exchange."""
        if not exchanges:
            return cls(np.zeros(0), np.zeros((0, 0)), states.ratio)
        features = states.basis.leading(min(_TESTED, 1 + _TESTED_ENTRIES // states.basis.size))
        rows = []
        for row_weights in (weights, *(states.weights(side) for side in exchanges)):
            masses = states.on_points(row_weights)
            rows.append(np.linalg.eigvalsh((features * masses[:, None]).T @ features))
        return cls(rows[0], np.array(rows[1:]), states.ratio)

    def _share(self, given: float, drawn: np.ndarray) -> float:
        at_least = np.count_nonzero(drawn >= given - _ROUNDING)
        return float(1 + at_least) / (1 + drawn.size)

    def p_of_total(self) -> float | None:
        """Share of exchanges with at least the given sum of positive eigenvalues."""
        if not len(self.exchanged):
            return None
        given = float(np.maximum(self.given, 0).sum())
        return self._share(given, np.maximum(self.exchanged, 0).sum(axis=1))

    def p_of_modes(self, modes: Modes, *, both: bool) -> list[float | None]:
        """For each mode the share of exchanges with any mode as large, on both sides if asked."""
        count = modes.values.size
        if not len(self.exchanged):
            return [None] * count
        ranked = np.sort(modes.sign * self.given)[::-1][:count]
        largest = (modes.sign * self.exchanged).max(axis=1)
        times = 1.0
        if both and self.ratio == 1:
            largest = np.abs(self.exchanged).max(axis=1)
        elif both:
            # The two sides have different scales, so each is compared with its own.
            times = 2.0
        values = [min(1.0, times * self._share(float(value), largest)) for value in ranked]
        # Fewer directions than modes.
        return values + [1.0] * (count - len(values))
