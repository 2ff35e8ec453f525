"""Renyi entropies of a spectrum, of any order, truncated or not."""

import math

import numpy as np

from divprism.core.arrays import eigvalsh
from divprism.core.spectrum import Spectrum
from divprism.engines import one_blas_thread

__all__ = [
    "entropy_slopes",
    "matrix_entropy",
    "renyi_entropy",
    "truncated",
    "truncation_of",
]

# Orders this close to one use a formula that does not cancel.
_NEAR_ONE = 0.05

# Smallest sum of powers: weights of either sign may add up to zero, whose logarithm is undefined.
_TINY = 1e-16

# Orders up to this one have no derivative where an eigenvalue is zero.
_CUSP = 0.5


def renyi_entropy(spectrum: Spectrum, order: float, truncation: int | None = None) -> float:
    """Entropy in nats: H = log(sum lambda^order) / (1 - order) (Truncated Vendi, eq. 6).

    Order 1 is the limit -sum lambda log lambda (Conditional Vendi, eq. 2), order infinity the limit
    -log(largest). With `truncation` t the spectrum is first cut to its top t eigenvalues
    (Conditional Vendi, eq. 23). Between 0 and the log of the rank. Orders below one leave out what
    rounding of the data may explain (`Spectrum.floor`).

    >>> half = Spectrum(np.array([0.5]), np.array([2.0]), "by hand")
    >>> [round(math.exp(renyi_entropy(half, order)), 12) for order in (0.1, 1, 2, math.inf)]
    [2.0, 2.0, 2.0, 2.0]
    """
    if order < 1:
        spectrum = spectrum.above_floor()
    if truncation is not None:
        spectrum = truncated(spectrum, truncation)
    values, weights = spectrum.values, spectrum.weights
    # "+ 0.0" turns the -0.0 of a single eigenvalue into 0.0.
    if order == 1:
        return float(-(weights * values) @ np.log(values)) + 0.0
    if math.isinf(order):
        # Values that only an alternative measure uses have weight zero.
        return -math.log(values[np.flatnonzero(weights)[0]]) + 0.0
    if order == 2 and spectrum.squares is not None:
        return -math.log(spectrum.squares) + 0.0
    if abs(order - 1) < _NEAR_ONE:
        # sum lambda^order - 1 = sum lambda (lambda^(order - 1) - 1): the right-hand side does not
        # cancel, so that dividing by 1 - order does not magnify rounding errors.
        excess = float((weights * values) @ np.expm1((order - 1) * np.log(values)))
        return math.log1p(max(excess, -1 + _TINY)) / (1 - order) + 0.0
    # Divided by the largest eigenvalue, so that powers of order 1e6 do not underflow.
    largest = values[0]
    powers = max(float(weights @ (values / largest) ** order), _TINY)
    return order / (1 - order) * math.log(largest) + math.log(powers) / (1 - order) + 0.0


def matrix_entropy(
    kernel: np.ndarray, masses: np.ndarray, order: float, truncation: int | None = None
) -> float:
    """Entropy of W^(1/2) K W^(1/2), with W the masses over their sum; zero masses are left out.

    For small matrices that are solved many times, under other masses or bandwidths. Runs on one
    thread (see `eigvalsh`).

    >>> round(matrix_entropy(np.eye(3), np.array([1.0, 1.0, 0.0]), 1.0) / math.log(2), 12)
    1.0
    """
    present = np.flatnonzero(masses)
    # Zeros would add zero eigenvalues, which cost time and change nothing.
    roots = np.sqrt(masses[present] / masses.sum())
    if present.size < masses.size:
        kernel = kernel[np.ix_(present, present)]
    matrix = kernel * np.outer(roots, roots)
    if order == 2 and truncation is None:
        return -math.log(float(np.vdot(matrix, matrix))) + 0.0
    with one_blas_thread():
        eigenvalues = eigvalsh(matrix)
    spectrum = Spectrum.from_eigenvalues(eigenvalues, noise=0.0, method="exact")
    return renyi_entropy(spectrum, order, truncation)


def truncation_of(given: int | None, n: int) -> int | None:
    """The truncation of a matrix of n items: None if it would keep every eigenvalue.

    >>> truncation_of(10_000, 15_000), truncation_of(10_000, 10_000)
    (10000, None)
    """
    if given is not None and given >= n:
        return None
    return given


def truncated(spectrum: Spectrum, truncation: int) -> Spectrum:
    """The top t eigenvalues, each raised by (1 - S_t) / t with S_t their sum, so they sum to one.

    Truncated Vendi, Def. 2. A spectrum of at most t eigenvalues is returned unchanged. A node of
    the measure that straddles the cut is split.

    >>> three = Spectrum(np.array([0.5, 0.3, 0.2]), np.ones(3), "by hand")
    >>> truncated(three, 2).values
    array([0.6, 0.4])
    """
    t = float(truncation)
    reach = np.cumsum(spectrum.weights)
    whole = _nodes_above_cut(spectrum, reach, t)
    if whole == reach.size:
        return spectrum
    weights = spectrum.weights[:whole]
    remainder = t
    if whole:
        remainder = t - reach[whole - 1]
    if remainder:
        weights = np.append(weights, remainder)
    values = spectrum.values[: weights.size]
    shift = max(0.0, 1.0 - float(weights @ values)) / t
    return Spectrum(values + shift, weights, spectrum.method, top_error=spectrum.top_error)


def _nodes_above_cut(spectrum: Spectrum, reach: np.ndarray, t: float) -> int:
    """Number of nodes that count in full; the next one straddles the cut at t.

    The sum of the top t eigenvalues is the least value over x of t x + sum max(lambda - x, 0), and
    the x that attains it is the cut (Ky Fan). With weights of either sign their running sum may
    pass t several times, and most crossings are noise: several nodes stand for one eigenvalue,
    large weights of opposite signs cancel within it, and the sum is far off for a moment. Nodes so
    close together hardly move the sum above, whose least value is therefore a safe guide.
    """
    if spectrum.weights.min() >= 0:
        return int(np.searchsorted(reach, t, side="right"))
    widths = spectrum.values - np.append(spectrum.values[1:], 0.0)
    # From the smallest node upwards, so that rounding is relative to the nodes so far.
    objective = np.cumsum(((t - reach) * widths)[::-1])[::-1]
    # Entry i: the cut at node i; the last one: the cut at zero, which keeps all nodes.
    return int(np.argmin(np.append(objective, 0.0)))


def entropy_slopes(
    eigenvalues: np.ndarray, order: float, truncation: int | None = None
) -> tuple[float, np.ndarray]:
    """Entropy of a trace-one matrix M, and its derivatives in the eigenvalues up to a constant.

    With V the eigenvectors, V diag(slopes) V' is the gradient in M, up to a multiple of the
    identity that vanishes for every change of M that keeps its trace. Truncated at order 1 this is
    Conditional Vendi, eq. 24; at other orders the derivative of that entropy replaces -log.

    At orders up to 1, zero eigenvalues have an infinite slope. But if M is a smooth function of
    samples it stays positive semidefinite on either side, so its zero eigenvalues move by the
    square of a step, and any finite slope is multiplied by zero. They get the slope of the rounding
    floor, which continues that of the smallest eigenvalues above it. The gradient in the samples is
    then exact at orders above 1/2. Up to 1/2 the entropy has a cusp there, and only the slopes of
    the non-zero eigenvalues are returned.

    With a tie across the cut of a truncation every split is a subgradient (the entropy is the
    largest over all splits). Equal shares are returned, which do not depend on the basis.

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
        raised = np.maximum(eigenvalues, rounding)
        slopes = _slopes(raised, raised, order, rounding)
        if order <= _CUSP:
            slopes = np.where(eigenvalues > rounding, slopes, 0.0)
        return entropy, slopes
    kept = np.sort(eigenvalues)[::-1][:truncation]
    smallest = kept[-1]
    # Eigenvalues within rounding of the smallest kept one are tied with it.
    above = eigenvalues > smallest + 8 * rounding
    tied = np.abs(eigenvalues - smallest) <= 8 * rounding
    shift = max(0.0, 1 - float(kept.sum())) / truncation
    raised = np.maximum(eigenvalues, smallest) + shift
    slopes = _slopes(raised, kept + shift, order, rounding)
    # Raising one eigenvalue lowers the common shift of all kept ones: hence the mean.
    share = above + tied * ((truncation - above.sum()) / tied.sum())
    return entropy, share * (slopes - (share @ slopes) / truncation)


def _slopes(values: np.ndarray, among: np.ndarray, order: float, rounding: float) -> np.ndarray:
    """Derivative of the entropy of `among` in each of the values, less that of the largest."""
    largest = among.max()
    # Rounding may put the ratio of the largest eigenvalue to itself above one.
    logs = np.minimum(np.log(values / largest), 0.0)
    if math.isinf(order):
        # Eigenvalues that tie for the largest share its slope.
        top = 8 * rounding / largest
        ties = np.count_nonzero(np.log(among / largest) >= -top)
        return np.where(logs < -top, 1.0, 0.0) / (largest * ties)
    powers = float(np.exp(order * np.log(among / largest)).sum())
    # (r^(order - 1) - 1) / (1 - order) with r = value / largest; -log r in the limit of order 1.
    bend = -logs
    if order != 1:
        bend = np.expm1((order - 1) * logs) / (1 - order)
    return order / (largest * powers) * bend
