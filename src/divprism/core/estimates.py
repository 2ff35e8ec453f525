"""Entropies of a spectrum with their errors, whatever the method that computed it."""

import math
from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from divprism.core.entropy import entropy_slopes, renyi_entropy
from divprism.core.spectrum import Estimate, Spectrum, spectral_floor

__all__ = ["entropy_estimate"]

# Error of an extrapolation as a share of the step taken, without and with truncation; and what
# orders below one, which give weight to eigenvalues that few features cannot resolve, add to it at
# order zero.
_LAW_ERROR = 0.25
_CUT_LAW_ERROR = 0.5
_TAIL_ERROR = 1.5
# Order above which all entropies agree to the last digit.
_LARGEST_ORDER = 1e15

# Error of a truncated entropy, as a share of the change if eigenvalues converge by the root of the
# effort; and the change by half of the effort below which an eigenvalue counts as separate.
_EDGE_ERROR = 0.5
_SEPARATE = 0.05

# Frequencies that matter most to the smallest eigenvalues are rare, and a sample without them looks
# more certain than it is: what order zero adds to the random error, as a share of it.
_TAIL_SPREAD = 2.0

# Below this order all errors of random features are widened, and by how much for each unit below:
# where no frequency of a sample shows the smallest eigenvalues, nothing else shows that they exist.
_UNSEEN_ORDER, _UNSEEN_WIDENING = 0.5, 5.0

# Errors of a value between two bounds, as shares of the gap between them, by
# experiments/odd_spectra.py: of every position, in the middle, at order zero without and with
# truncation, and at order infinity. Then shares of the change that half of the effort makes, and of
# what is unseen: with truncation, and at order infinity without.
_POSITION_ERROR = 0.05
_MIDDLE_ERROR = 0.25
_LOW_ORDER_ERROR = 0.2
_CUT_LOW_ORDER_ERROR = 0.08
_HIGH_ORDER_ERROR = 0.15
_CHANGE_ERROR = 0.2
_UNSEEN_ERROR = 0.18
_TOP_ERROR = 0.4

# What truncation adds, as shares: of the gap if no more eigenvalues are found than are kept, and of
# the distance to the most even spectrum that is possible.
_CUT_POSITION_ERROR = 0.05
_FILLED_ERROR = 0.1

# Error of a truncated quadrature: eigenvectors near the cut that no probe shows.
_UNRESOLVED_ERROR = 5e-5

# Singular values of the controls below this share of the largest count as zero.
_SAME_CONTROL = 1e-8

# Beyond this order only the largest eigenvalues matter.
_HIGH_ORDER = 8.0

# Changes of an entropy up to this size are not reported as errors of an exact solution.
_NEGLIGIBLE = 1e-4


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
        systematic += [disagreement / len(spectrum.alternatives) ** 0.5, _UNRESOLVED_ERROR]
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
    # Of each half alone: changes of opposite signs would cancel in their mean.
    changes = np.abs(coarse - (lower, upper)).mean(axis=0)
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
    # Of high orders the bounds converge at different rates: the upper one follows the largest
    # eigenvalue, the lower one the mass that is found.
    above_two = 1 - 2 / max(2.0, order)
    share += _HIGH_ORDER_ERROR * above_two
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
    elif order > 2:
        errors.append(_TOP_ERROR * above_two * _change_by_larger_top(spectrum, order))
    return Estimate(value, systematic=math.hypot(*errors))


def _change_by_larger_top(spectrum: Spectrum, order: float) -> float:
    """How much lower the entropy is if all squares that are unseen belong to the first eigenvalue.

    Orders above two depend on it most, and the halves of the landmarks do not show what both miss.
    """
    most = spectrum.bounds[1]
    values = most.values.copy()
    values[0] = math.hypot(values[0], math.sqrt(spectrum.unseen))
    return renyi_entropy(most, order) - renyi_entropy(replace(most, values=values), order)


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
    at_edge = 0.0
    if truncation is not None:
        # The entropy of t eigenvalues.
        value = min(value, math.log(truncation))
        slow = renyi_entropy(_slowly_converging(spectrum, truncation), order)
        at_edge = _EDGE_ERROR * min(1.0, order) * (slow - value)
    if spectrum.raw:
        at_full_effort = renyi_entropy(spectrum, order, truncation)
        change = value - at_full_effort
        return Estimate(at_full_effort, deviations, math.hypot(error, imbalance, at_edge, change))
    return Estimate(value, deviations, math.hypot(error, imbalance, at_edge))


def _slowly_converging(spectrum: Spectrum, truncation: int) -> Spectrum:
    """The top t eigenvalues at infinite effort, if most converge by the root of the effort.

    Random features spread equal eigenvalues, such as those of isolated points, over an interval
    with edges (1 +- sqrt(c / r))^2, by the law of Marchenko and Pastur. A truncation keeps those at
    the upper edge. Eigenvalues that hardly change are far above the others, and err by 1 / r.
    """
    count = min(truncation, spectrum.values.size, *(half.values.size for half in spectrum.coarse))
    full = spectrum.values[:count]
    halves = np.mean([half.values[:count] for half in spectrum.coarse], axis=0)
    steps = np.maximum(halves - full, 0.0)
    roots = np.sqrt(full) - (np.sqrt(full + steps) - np.sqrt(full)) / (math.sqrt(2) - 1)
    found = np.where(steps < _SEPARATE * full, full - steps, np.maximum(roots, 0.0) ** 2)
    kept = np.zeros(truncation)
    kept[:count] = np.sort(found)[::-1]
    values = kept + max(0.0, 1 - float(kept.sum())) / truncation
    values = values[values > 0]
    return Spectrum(values, np.ones(values.size), spectrum.method)


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
