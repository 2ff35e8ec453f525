"""Renyi entropies of a spectrum, of any order, truncated or not, with their errors."""

import math
from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from divprism.core.arrays import eigvalsh
from divprism.core.spectrum import Estimate, Spectrum, spectral_floor
from divprism.engines import one_blas_thread

__all__ = [
    "entropy_estimate",
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

# Error of an extrapolation as a share of the step taken, without and with truncation; and what
# orders below one, which give weight to eigenvalues that few features cannot resolve, add to it at
# order zero.
_LAW_ERROR = 0.25
_CUT_LAW_ERROR = 0.5
_TAIL_ERROR = 1.5
# Order above which all entropies agree to the last digit.
_LARGEST_ORDER = 1e15

# Frequencies that matter most to the smallest eigenvalues are rare, and a sample without them looks
# more certain than it is: what order zero adds to the random error, as a share of it.
_TAIL_SPREAD = 2.0

# Below this order all errors of random features are widened, and by how much for each unit below:
# where no frequency of a sample shows the smallest eigenvalues, nothing else tells that they exist.
_UNSEEN_ORDER, _UNSEEN_WIDENING = 0.5, 5.0

# Errors of a value between two bounds, as shares of the gap between them, by
# experiments/odd_spectra.py: of every position, in the middle, and at order zero without and with
# truncation. Then shares of the change that half of the effort makes, and of what is unseen.
_POSITION_ERROR = 0.05
_MIDDLE_ERROR = 0.25
_LOW_ORDER_ERROR = 0.2
_CUT_LOW_ORDER_ERROR = 0.08
_CHANGE_ERROR = 0.2
_UNSEEN_ERROR = 0.12

# What truncation adds, as shares: of the gap if no more eigenvalues are found than are kept, and of
# the distance to the most even spectrum that is possible.
_CUT_POSITION_ERROR = 0.05
_FILLED_ERROR = 0.1

# Singular values of the controls below this share of the largest count as zero.
_SAME_CONTROL = 1e-8

# Beyond this order only the largest eigenvalues matter.
_HIGH_ORDER = 8.0

# Changes of an entropy up to this size are not reported as errors of an exact solution.
_NEGLIGIBLE = 1e-4

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
        return -math.log(spectrum.squares)
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
        return -math.log(float(np.vdot(matrix, matrix)))
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


def entropy_estimate(spectrum: Spectrum, order: float, truncation: int | None = None) -> Estimate:
    """The entropy with its error, which is zero for an exact spectrum.

    The random error is that of the jackknife over the replicates. Each shift adds the change that
    it causes; under truncation the alternatives add the root of their mean squared change. Sums of
    squares known exactly have no error. If the spectrum has `bounds`, the value lies between
    theirs; otherwise, if it has `coarse` ones, it is extrapolated to infinite effort.
    """
    if spectrum.bounds:
        return _between_bounds(spectrum, order, truncation)
    if spectrum.coarse:
        return _extrapolated(spectrum, order, truncation)
    value = renyi_entropy(spectrum, order, truncation)
    if order == 2 and truncation is None and spectrum.squares is not None:
        return Estimate(value)

    def change(weights: np.ndarray) -> float:
        return renyi_entropy(replace(spectrum, weights=weights), order, truncation) - value

    changes = np.array([change(weights) for weights in spectrum.replicates])
    count = max(1, changes.size)
    # The jackknife: k - 1 over k times the sum of squared changes is the variance.
    deviations = math.sqrt((count - 1) / count) * changes
    systematic = [spectrum.rounding, _unresolved(spectrum, order, truncation, value)]
    systematic += [change(spectrum.weights + shift) for shift in spectrum.shifts]
    if truncation is not None and len(spectrum.alternatives):
        # A rule that fails may give what no spectrum has: t values have an entropy up to log t.
        others = value + np.array([change(weights) for weights in spectrum.alternatives])
        possible = np.clip(others, min(value, 0.0), max(value, math.log(truncation)))
        disagreement = float(np.linalg.norm(possible - value))
        systematic.append(disagreement / len(spectrum.alternatives) ** 0.5)
    if math.isinf(order):
        systematic.append(spectrum.top_error / spectrum.values[0])
    return Estimate(value, deviations, math.hypot(*systematic))


def _unresolved(spectrum: Spectrum, order: float, truncation: int | None, value: float) -> float:
    """What eigenvalues below the floor would change, if they are no rounding of the data."""
    if order >= 1:
        return 0.0
    change = _hidden_change(spectrum, order, truncation)
    if spectrum.values[-1] <= spectrum.floor:
        change += renyi_entropy(replace(spectrum, floor=0.0), order, truncation) - value
    return change


def _hidden_change(spectrum: Spectrum, order: float, truncation: int | None) -> float:
    """What eigenvalues would change that double precision hides, if they were as large as can be.

    Orders near zero count each of them almost as one. What would change hardly anything is zero.
    """
    count = spectrum.hidden
    if truncation is not None:
        # What a truncation cuts off does not count.
        count = min(count, truncation - spectrum.values.size)
    if count <= 0:
        return 0.0
    size = spectrum.values.size + spectrum.hidden
    largest = spectral_floor(spectrum.values[0], size, 0.0)
    powers = float(spectrum.weights @ spectrum.values**order)
    change = math.log1p(count * largest**order / powers) / (1 - order)
    if change < _NEGLIGIBLE:
        return 0.0
    return change


def _between_bounds(spectrum: Spectrum, order: float, truncation: int | None) -> Estimate:
    """An entropy between that of the two bounds, with its error.

    With more effort the lower bound rises and the upper one falls. Each is as far from the true
    value as its last change is large, in proportion. That position is uncertain by a share of the
    gap: most in the middle of it, and at orders below one, where the change says little about the
    smallest eigenvalues. Part of the change itself is an error too, because eigenvalues that have
    not converged move both bounds.
    """

    def bounds(each: Spectrum) -> np.ndarray:
        return np.array([renyi_entropy(bound, order, truncation) for bound in each.bounds])

    lower, upper = bounds(spectrum)
    coarse = np.array([bounds(each) for each in spectrum.coarse])
    changes = np.abs(coarse.mean(axis=0) - (lower, upper))
    position = 0.5
    if changes.sum() > 0:
        position = changes[0] / changes.sum()
    gap = upper - lower
    value = lower + position * gap
    before = coarse @ (1 - position, position)
    share = _POSITION_ERROR + _MIDDLE_ERROR * position * (1 - position)
    low_order = _LOW_ORDER_ERROR
    if truncation is not None:
        # The eigenvalues that low orders give most weight are cut off.
        low_order = _CUT_LOW_ORDER_ERROR
        # The halves find too few eigenvalues to predict the position.
        share += _CUT_POSITION_ERROR * min(1.0, truncation / spectrum.values.size)
    share += low_order * max(0.0, 1 - order)
    unconverged = _CHANGE_ERROR * math.sqrt(((before - value) ** 2).mean())
    errors = [share * gap, unconverged, spectrum.rounding]
    if truncation is not None:
        # No more eigenvalues than there can be, however large t is.
        count = min(truncation, round(float(spectrum.bounds[1].weights.sum())))
        filled = renyi_entropy(_filled(spectrum, count), order)
        errors.append(_FILLED_ERROR * (filled - upper))
        # Pairs of similar items that no landmark has seen may all be among the top t. A variance V
        # of t values with mean 1 / t lowers the entropy by about order t^2 V / 2; a part of that.
        unseen = min(order, _HIGH_ORDER) * count * spectrum.unseen
        errors.append(_UNSEEN_ERROR * unseen)
    return Estimate(value, systematic=math.hypot(*errors))


def _filled(spectrum: Spectrum, truncation: int) -> Spectrum:
    """The most even spectrum of t eigenvalues, each at least as large as the one found.

    Mass that is missing raises the smallest eigenvalues to a common level.
    """
    found = spectrum.seen * spectrum.values[:truncation]
    values = np.append(found, np.zeros(truncation - found.size))
    # The level if all but the first 0, 1, 2, ... values share what those leave.
    above = np.append(0.0, np.cumsum(values)[:-1])
    levels = np.maximum(1 - above, 0.0) / np.arange(truncation, 0, -1)
    first = int(np.argmax(levels >= values))
    nodes = np.append(values[:first], levels[first])
    weights = np.append(np.ones(first), float(truncation - first))
    # No mass is missing if the rank is below t.
    positive = nodes > 0
    return Spectrum(nodes[positive], weights[positive], spectrum.method)


def _extrapolated(spectrum: Spectrum, order: float, truncation: int | None) -> Estimate:
    """The entropy at infinite effort, with its error.

    Assumes that P, the quantity inside the logarithm, errs by a term of one over the effort. P is
    sum lambda^order (for order 2 the law is exact), the largest eigenvalue for order infinity, and
    the entropy itself for order 1. With P at full effort, at half and at a quarter, the result is
    P + (P - P_half). If the law holds, P_half - P_quarter is twice P - P_half: the deviation from
    that, and a share of the step taken, are systematic errors. The random error is that of the
    random features, to first order. A spectrum that is `raw` keeps the value at full effort, and
    what the extrapolation would have changed is one more error.
    """
    # The two entropies agree to the last digit, and slopes at such orders would overflow.
    if order > _LARGEST_ORDER:
        order = math.inf
    slope = _log_slope(order)

    def powers(spectra: Iterable[Spectrum]) -> np.ndarray:
        entropies = np.array([renyi_entropy(each, order, truncation) for each in spectra])
        if slope == 0:
            return entropies
        return np.exp(slope * entropies)

    full = float(powers([spectrum])[0])
    halves = powers(spectrum.coarse)
    quarters = powers(quarter for half in spectrum.coarse for quarter in half.coarse)
    step = full - halves.mean()
    step_before = halves.mean() - quarters.mean()
    deviations = _influence(spectrum, order, truncation)
    systematic = [2 * step - step_before]
    share = _LAW_ERROR
    if truncation is not None and order >= 1:
        # At the cut the law of one over the effort is an assumption only. Two halves of the
        # features differ by twice the random error of the whole.
        share = _CUT_LAW_ERROR
        systematic.append(0.5 * float(np.ptp(halves)))
    if order < 1 and not _hides_tail(spectrum, truncation):
        share += _TAIL_ERROR * (1 - order)
        widening = 1 + _UNSEEN_WIDENING * max(0.0, _UNSEEN_ORDER - order)
        deviations = deviations * (1 + _TAIL_SPREAD * (1 - order) ** 2) * widening
        share *= widening
    error = math.hypot(share * step, *systematic)
    value = full + step
    imbalance = _imbalance(spectrum.controls, deviations)
    if slope:
        # Falling below a tenth of P is no extrapolation any more; the stated error is then large.
        power = max(value, full / 10)
        value = math.log(power) / slope
        deviations = slope * full * deviations
        deviations, error = deviations / (slope * power), error / (abs(slope) * power)
        imbalance *= full / power
    if truncation is not None:
        # The entropy of t eigenvalues.
        value = min(value, math.log(truncation))
    if spectrum.raw:
        at_full_effort = renyi_entropy(spectrum, order, truncation)
        change = value - at_full_effort
        return Estimate(at_full_effort, deviations, math.hypot(error, imbalance, change))
    return Estimate(value, deviations, math.hypot(error, imbalance))


def _hides_tail(spectrum: Spectrum, truncation: int | None) -> bool:
    """Whether a truncation adds more to the smallest eigenvalue that it keeps than that has."""
    if truncation is None or truncation >= spectrum.values.size:
        return False
    kept = spectrum.values[:truncation]
    return 1 - float(kept.sum()) > truncation * float(kept[-1])


def _imbalance(controls: np.ndarray, deviations: np.ndarray) -> float:
    """Error of the entropy by random features that are, as a whole, not typical.

    A sample without long frequencies gives too small an entropy, and too small a spread as well.
    The means of the controls are known to be zero. A regression of the deviations on the controls
    predicts what their means in the sample have changed.
    """
    if not controls.size:
        return 0.0
    scaled = controls / np.maximum(np.abs(controls).max(axis=0), np.finfo(np.float64).tiny)
    centred = scaled - scaled.mean(axis=0)
    # Least squares: of points in one dimension both controls are the same.
    slopes = np.linalg.lstsq(centred, deviations, rcond=_SAME_CONTROL)[0]
    return abs(float(scaled.sum(axis=0) @ slopes))


def _influence(spectrum: Spectrum, order: float, truncation: int | None) -> np.ndarray:
    """Contribution of each random feature to the error of the entropy, to first order.

    The matrix is the mean of one matrix k_j for each feature j. With S the gradient of the entropy,
    feature j adds tr S (k_j - mean) / r, which its shares in the eigenvectors give.
    """
    _, slopes = entropy_slopes(spectrum.values, order, truncation)
    parts = spectrum.shares @ (slopes * spectrum.values)
    count = parts.size
    return math.sqrt(count / (count - 1)) * (parts - parts.mean())


def _log_slope(order: float) -> float:
    """The factor c with exp(c H) = sum lambda^order or the largest eigenvalue; 0 for order 1."""
    if order == 1:
        return 0.0
    # The sum of high powers is almost that of the largest eigenvalue alone, and it underflows.
    if order > _HIGH_ORDER:
        return -1.0
    return 1 - order
