"""The spectral measure that batches of probes of one matrix estimate together, with its errors.

`_quadrature` explains what each batch contributes.
"""

import math
from collections.abc import Sequence

import numpy as np

from divprism.core.spectrum import Spectrum
from divprism.estimators._quadrature import Batch, Function

__all__ = ["measure"]

# How well the position of the true value between the Gauss and the Radau rule is known, as a share
# of the gap between them; and what order zero adds. The rules converge at the same rate on smooth
# spectra only, and the lower the order, the more the smallest eigenvalues count.
_POSITION_ERROR = 0.1
_LOW_ORDER_ERROR = 0.25

# With fewer steps than this the rules have changed once or twice, and the position is twice as
# uncertain.
_FEW_STEPS = 4

# Most that the predicted variance of the probes may exceed the one observed.
_MOST_WIDENING = 100.0

# Probes that the predicted variance counts as.
_PREDICTED_PROBES = 3.0

# Most leverage of a probe that is allowed for, and the fewest probes: the residual of a probe that
# decides almost alone shows little, and what the jackknife of few probes overstates is a margin.
_MOST_LEVERAGE = 0.5
_MANY_PROBES = 16

# Share of the eigenvalues represented by a node at the floor that may be on the other side of it.
_FLOOR_ERROR = 0.5

# Mean distance from zero under a semicircle distribution of radius one.
_MEAN_OF_SEMICIRCLE = 4 / (3 * np.pi)

# Singular values below this share of the largest count as zero.
_RANK = 1e-9


def measure(
    batches: Sequence[Batch],
    f: Function,
    *,
    size: int,
    squares: float,
    trace: float,
    lowest_order: float = 1.0,
) -> Spectrum:
    """The spectral measure that batches of probes of one matrix estimate together.

    Parameters
    ----------
    batches
        At least one batch.
    f
        Function whose trace matters most.
    size
        Rows of the matrix.
    squares, trace
        The known ||A||_F^2 and tr A.
    lowest_order
        The lowest order of an entropy that the measure is for.
    """
    atoms = [batch.atoms(f, size=size, known=(trace, squares)) for batch in batches]
    precision = np.concatenate([batch.precision for batch in atoms])
    surprise = np.concatenate([batch.surprise for batch in atoms])
    probes = [batch.probes for batch in atoms]
    shares = _balanced(precision, surprise)
    weights = _average(shares, probes)
    rules = _average(shares, [batch.by_rule for batch in atoms])
    left_out = np.empty((shares.size, weights.size))
    for probe in range(shares.size):
        others = np.arange(shares.size) != probe
        left_out[probe] = _average(_balanced(np.where(others, precision, 0.0), surprise), probes)
    nodes = np.concatenate([batch.values for batch in atoms])
    changes = _without_leverage(precision, surprise)[:, None] * (left_out - weights)
    left_out = weights + _widening(shares, precision, changes @ f(nodes)) * changes
    floor = max(batch.floor(size) for batch in batches)
    # One more value, for the eigenvalues that rounding hides: spread over a semicircle of the
    # radius of the noise.
    resolution = max(batch.resolution(size) for batch in batches)
    hidden = max(_MEAN_OF_SEMICIRCLE * resolution, np.finfo(np.float64).tiny)
    below_one = max(0.0, 1 - lowest_order)
    position_error = _POSITION_ERROR + _LOW_ORDER_ERROR * below_one
    if max(batch.krylov.steps for batch in batches) < _FEW_STEPS:
        position_error *= 2
    shifts = _shifts(
        nodes,
        weights,
        position_error * (rules[0] - rules[1]),
        size=size,
        floor=floor,
        resolution=resolution,
    )
    values = np.append(nodes, hidden)
    order = np.argsort(values)[::-1]
    return Spectrum(
        values[order] / trace,
        np.append(weights, 0.0)[order],
        "lanczos",
        replicates=np.pad(left_out, ((0, 0), (0, 1)))[:, order],
        shifts=shifts[:, order],
        alternatives=np.pad(rules, ((0, 0), (0, 1)))[:, order],
        squares=squares / trace**2,
        top_error=min(batch.top_error() for batch in batches) / trace,
        rounding=2 * batches[0].krylov.epsilon,
    )


def _without_leverage(precision: np.ndarray, surprise: np.ndarray) -> np.ndarray:
    """Factors of the changes that leaving out one probe at a time causes.

    Leaving out a probe changes a regression by its residual over 1 - h, with h its leverage. The
    variance of a residual is that of an error times 1 - h. The squares that the jackknife adds up
    are therefore too large by 1 / (1 - h), which counts where few probes have most precision.
    """
    count = precision.size
    if count < _MANY_PROBES:
        return np.ones(count)
    shares, centred, covariance = _moments(precision, surprise)
    distances = (centred @ np.linalg.pinv(covariance, rcond=_RANK, hermitian=True)) * centred
    leverage = np.minimum(shares * (1 + distances.sum(axis=1)), _MOST_LEVERAGE)
    # The jackknife allows for the leverage in a plain mean, one over the count, by itself.
    return np.sqrt((1 - leverage) * count / (count - 1))


def _widening(shares: np.ndarray, precision: np.ndarray, changes: np.ndarray) -> float:
    """Factor of the replicates, given the changes of tr f that they cause.

    The spread of few effective probes is itself uncertain, and errors exceed it more often: by
    Student's distribution, whose larger variance is one factor. The other counts the variance that
    deflation predicts as some more probes, if it is larger: a few may agree by chance.
    """
    effective = 1 / float(shares @ shares)
    freedom = max(3.0, effective - 2)
    student = freedom / (freedom - 2)
    count = shares.size
    observed = (count - 1) / count * float(changes @ changes)
    predicted = float(shares**2 @ (1 / precision))
    # Limited, since replicates far from the weights would no longer be measures.
    ratio = min(predicted, _MOST_WIDENING * observed) / max(observed, np.finfo(np.float64).tiny)
    weighted = _PREDICTED_PROBES * max(1.0, ratio) + effective
    return math.sqrt(student * weighted / (_PREDICTED_PROBES + effective))


def _average(shares: np.ndarray, measures: Sequence[np.ndarray]) -> np.ndarray:
    """Weighted mean over the probes of all batches, each on the values of its own batch."""
    start, pieces = 0, []
    for weights in measures:
        stop = start + weights.shape[-2]
        pieces.append(shares[start:stop] @ weights)
        start = stop
    return np.concatenate(pieces, axis=-1)


def _shifts(
    nodes: np.ndarray,
    weights: np.ndarray,
    between_rules: np.ndarray,
    *,
    size: int,
    floor: float,
    resolution: float,
) -> np.ndarray:
    """Changes of the weights as large as the systematic errors; the last column is hidden values.

    In order: the position of the true value between the two rules; half of the missing eigenvalues,
    which rounding may have hidden or put in place of zeros; and rounding in the products, which
    moves an eigenvalue by about a tenth of floor^2 over the eigenvalue (measured). If the floor is
    that of an exact solution, which leaves out the same eigenvalues, none are missing, but nodes
    near it stand for eigenvalues on either side.
    """
    missing = max(0.0, size - float(weights.sum()))
    near_floor = 0.1 * (floor / nodes) ** 2
    if floor > resolution:
        missing = 0.0
        near_floor = _FLOOR_ERROR * floor / nodes
    hidden = np.append(np.zeros(weights.size), missing / 2)
    return np.array([np.append(between_rules, 0.0), hidden, np.append(near_floor * weights, 0.0)])


def _balanced(precision: np.ndarray, surprise: np.ndarray) -> np.ndarray:
    """Shares of the probes, near their precisions, that average the surprises to zero.

    The shares sum to one. Among all such shares the change from the precisions is the smallest in
    sum(change^2 / share). Averaged over the probes, its effect on tr f is that of a regression of
    tr f on the surprises.
    """
    shares, centred, covariance = _moments(precision, surprise)
    # Least squares: with few probes the surprises may be linearly dependent.
    pull = np.linalg.lstsq(covariance, shares @ surprise, rcond=_RANK)[0]
    return shares * (1 - centred @ pull)


def _moments(
    precision: np.ndarray, surprise: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Shares of the probes by precision, their surprises less the mean, and the covariance."""
    # Divided by the largest first: the sum of reciprocals of tiny variances may overflow.
    shares = precision / precision.max()
    shares = shares / shares.sum()
    centred = surprise - shares @ surprise
    covariance = (centred * shares[:, None]).T @ centred
    return shares, centred, covariance
