"""Renyi entropies of a spectrum, of any order, truncated or not, with their errors."""

import math
from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from divprism.core.arrays import eigvalsh
from divprism.core.spectrum import Estimate, Spectrum
from divprism.engines import one_blas_thread

__all__ = ["entropy_estimate", "entropy_slopes", "matrix_entropy", "renyi_entropy", "truncated"]

_NEAR_ONE = 0.05
_TINY = 1e-16
_CUSP = 0.5  # orders up to this one have no slope where an eigenvalue is zero


def renyi_entropy(spectrum: Spectrum, order: float, truncation: int | None = None) -> float:
    """Entropy in nats of the eigenvalues: H = log(sum lambda^order) / (1 - order) (Truncated Vendi, eq. 6).

    Order 1 is its limit -sum lambda log lambda (Conditional Vendi, eq. 2), order infinity the limit -log(largest). With
    `truncation` t the spectrum is first cut to its top t eigenvalues (Conditional Vendi, eq. 13). Between 0 and the log of
    the rank.

    >>> half = Spectrum(np.array([0.5]), np.array([2.0]), "by hand")
    >>> [round(math.exp(renyi_entropy(half, order)), 12) for order in (0.1, 1, 2, math.inf)]
    [2.0, 2.0, 2.0, 2.0]
    """
    if truncation is not None:
        spectrum = truncated(spectrum, truncation)
    values, weights = spectrum.values, spectrum.weights
    if order == 1:
        return float(-(weights * values) @ np.log(values)) + 0.0
    if math.isinf(order):
        return -math.log(values[np.flatnonzero(weights)[0]]) + 0.0
    if order == 2 and spectrum.squares is not None:
        return -math.log(spectrum.squares)
    if abs(order - 1) < _NEAR_ONE:
        # sum lambda^order - 1 = sum lambda (lambda^(order - 1) - 1): no cancellation for the division by 1 - order to blow up
        excess = float((weights * values) @ np.expm1((order - 1) * np.log(values)))
        return math.log1p(max(excess, -1 + _TINY)) / (1 - order) + 0.0
    # divided by the largest eigenvalue, so that order 1e6 does not underflow
    largest = values[0]
    # weights of either sign can add up to nothing where an error is told: then it is told to be large
    tail = math.log(max(float(weights @ (values / largest) ** order), _TINY))
    return order / (1 - order) * math.log(largest) + tail / (1 - order) + 0.0


def matrix_entropy(
    kernel: np.ndarray, masses: np.ndarray, order: float, truncation: int | None = None
) -> float:
    """Entropy of W^(1/2) K W^(1/2), W the masses divided by their sum; points of mass zero are left out.

    For matrices small enough to be solved again and again, under other masses or bandwidths, on one thread (see `eigvalsh`).

    >>> round(matrix_entropy(np.eye(3), np.array([1.0, 1.0, 0.0]), 1.0) / math.log(2), 12)
    1.0
    """
    there = np.flatnonzero(masses)
    roots = np.sqrt(masses[there] / masses.sum())
    matrix = (kernel if there.size == masses.size else kernel[np.ix_(there, there)]) * np.outer(
        roots, roots
    )
    if order == 2 and truncation is None:
        return -math.log(float(np.vdot(matrix, matrix)))
    with one_blas_thread():
        values = eigvalsh(matrix)
    return renyi_entropy(
        Spectrum.from_eigenvalues(values, noise=0.0, method="exact"), order, truncation
    )


def truncated(spectrum: Spectrum, truncation: int) -> Spectrum:
    """The top t eigenvalues, each raised by (1 - S_t) / t with S_t their sum, so that they sum to one.

    Truncated Vendi, Def. 2. Unchanged if there are no more than t. A node of the measure that straddles the cut is split;
    where weights are of either sign, and a node is followed by others that take back some of it, the cut is where their sum
    leaves t behind for good.

    >>> three = Spectrum(np.array([0.5, 0.3, 0.2]), np.ones(3), "by hand")
    >>> truncated(three, 2).values
    array([0.6, 0.4])
    """
    t = float(truncation)
    reach = np.cumsum(spectrum.weights)
    below = np.flatnonzero(reach <= t)
    last = below[-1] + 1 if below.size else 0
    if last == reach.size:
        return spectrum
    split = t - (
        reach[last - 1] if last else 0.0
    )  # what is left for the node that straddles the cut
    weights = np.append(spectrum.weights[:last], split) if split else spectrum.weights[:last]
    values = spectrum.values[: weights.size]
    shift = max(0.0, 1.0 - float(weights @ values)) / t
    return Spectrum(values + shift, weights, spectrum.method, top_error=spectrum.top_error)


def entropy_slopes(
    eigenvalues: np.ndarray, order: float, truncation: int | None = None
) -> tuple[float, np.ndarray]:
    """Entropy of the eigenvalues of a trace-one matrix M, and its derivative in each of them, but for a common constant.

    With V the eigenvectors, V diag(slopes) V^T is the gradient in M, up to a multiple of the identity that is lost on every
    change of M that keeps its trace. Truncated at order 1 it is Conditional Vendi, eq. 24; otherwise the same with the
    derivative of the entropy of that order in the place of -log.

    Zero eigenvalues have an infinite slope at orders up to 1. But where M is a smooth function of samples it stays positive
    semidefinite on either side, so they move by the square of a step, and whatever finite slope they are given is multiplied
    by zero: they get that of the rounding floor, which joins on to the smallest ones above it. The gradient in the samples is
    then the true one at orders above 1/2. Up to 1/2 the entropy has a cusp there, and the slope is that of the range alone.

    At a tie across the cut of a truncation every split is a subgradient (the entropy is the largest over all splits); equal
    shares are taken, which do not depend on the basis that was found.

    >>> entropy, slopes = entropy_slopes(np.array([0.25, 0.25, 0.5]), 1.0)
    >>> bool(np.allclose(slopes - slopes[2], -np.log([0.5, 0.5, 1.0])))
    True
    >>> entropy_slopes(np.array([0.5, 0.25, 0.25, 0.0]), 1.0, truncation=2)[1] / np.log(5 / 3) * 4
    array([-2.,  1.,  1.,  0.])
    """
    spectrum = Spectrum.from_eigenvalues(eigenvalues, noise=0.0, method="exact")
    entropy = renyi_entropy(spectrum, order, truncation)
    rounding = eigenvalues.size * np.finfo(np.float64).eps * eigenvalues.max()
    if truncation is None or spectrum.values.size <= truncation:
        slopes = _slopes(np.maximum(eigenvalues, rounding), order, rounding)
        return entropy, slopes if order > _CUSP else np.where(eigenvalues > rounding, slopes, 0.0)
    kept = np.sort(eigenvalues)[::-1][:truncation]
    above, tied = (
        eigenvalues > kept[-1] + 8 * rounding,
        np.abs(eigenvalues - kept[-1]) <= 8 * rounding,
    )
    shift = max(0.0, 1 - float(kept.sum())) / truncation
    slopes = _slopes(np.maximum(eigenvalues, kept[-1]) + shift, order, rounding, kept + shift)
    share = above + tied * ((truncation - above.sum()) / tied.sum())
    return entropy, share * (slopes - (share @ slopes) / truncation)


def _slopes(
    values: np.ndarray, order: float, rounding: float, among: np.ndarray | None = None
) -> np.ndarray:
    """Derivative of the entropy of `among` (default: the values themselves) in each of the values, zero at the largest."""
    among = values if among is None else among
    largest = among.max()
    logs = np.minimum(np.log(values / largest), 0.0)
    if math.isinf(order):
        top = 8 * rounding / largest
        return np.where(logs < -top, 1.0, 0.0) / (
            largest * np.count_nonzero(np.log(among / largest) >= -top)
        )
    powers = float(np.exp(order * np.log(among / largest)).sum())
    # (r^(order - 1) - 1) / (1 - order), which is -log r at order 1
    bend = -logs if order == 1 else np.expm1((order - 1) * logs) / (1 - order)
    return order / (largest * powers) * bend


def entropy_estimate(spectrum: Spectrum, order: float, truncation: int | None = None) -> Estimate:
    """The entropy with its error: zero for an exact spectrum.

    The random error is the jackknife's over the replicates; each shift adds the change that it makes; under truncation the
    alternatives add theirs, by the root of the mean square. Where `coarse` spectra are there, the value is extrapolated to
    infinite effort. Sums of squares known exactly have no error.
    """
    if spectrum.coarse:
        return _extrapolated(spectrum, order, truncation)
    value = renyi_entropy(spectrum, order, truncation)
    if order == 2 and truncation is None and spectrum.squares is not None:
        return Estimate(value)

    def at(weights: np.ndarray) -> float:
        return renyi_entropy(replace(spectrum, weights=weights), order, truncation)

    left_out = np.array([at(weights) for weights in spectrum.replicates])
    count = max(1, left_out.size)
    deviations = math.sqrt((count - 1) / count) * (left_out - value)
    systematic = [
        spectrum.rounding,
        *(at(spectrum.weights + shift) - value for shift in spectrum.shifts),
    ]
    if truncation is not None and len(spectrum.alternatives):
        systematic.append(
            math.hypot(*(at(weights) - value for weights in spectrum.alternatives))
            / len(spectrum.alternatives) ** 0.5
        )
    if math.isinf(order):
        systematic.append(spectrum.top_error / spectrum.values[0])
    return Estimate(value, deviations, math.hypot(*systematic))


def _extrapolated(spectrum: Spectrum, order: float, truncation: int | None) -> Estimate:
    """The entropy at infinite effort, if what it is a logarithm of errs by a term of one over the effort, with its error.

    That is sum lambda^order (for order 2 the law is exact), the largest eigenvalue for order infinity, the entropy itself for
    order 1. With P at full effort, at half and at a quarter: P + (P - P_half). The law wants P_half - P_quarter to be twice
    P - P_half; what it is off by, and a quarter of the step taken, are systematic errors. The random one is a jackknife.
    """
    slope = 0.0 if order == 1 else -1.0 if math.isinf(order) else 1 - order

    def powers(spectra: Iterable[Spectrum]) -> np.ndarray:
        entropies = np.array([renyi_entropy(one, order, truncation) for one in spectra])
        return entropies if slope == 0 else np.exp(slope * entropies)

    full, halves = float(powers([spectrum])[0]), powers(spectrum.coarse)
    quarters = powers(quarter for one in spectrum.coarse for quarter in one.coarse)
    step, before = full - halves.mean(), halves.mean() - quarters.mean()
    left_out = powers(spectrum.left_out)
    deviations = math.sqrt(1 - 1 / left_out.size) * (left_out - left_out.mean())
    systematic = math.hypot(2 * step - before, step / 4)
    if slope == 0:
        return Estimate(full + step, deviations, systematic)
    power = max(
        full + step, full / 10
    )  # an extrapolation by more than that is none, and its error says so
    scale = 1 / (abs(slope) * power)
    return Estimate(math.log(power) / slope, scale * deviations, scale * systematic)
