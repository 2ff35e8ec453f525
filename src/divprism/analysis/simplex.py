"""Weights that sum to one: the smallest square, and the largest entropy, of a mixture of states.

Both come with a certificate. The objective is concave, so no weights are better than the current
ones by more than the largest slope towards a single model: max_m g_m - sum_m a_m g_m, the duality
gap of Frank and Wolfe.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

__all__ = [
    "EntropyAndSlopes",
    "Optimum",
    "allowed_mixtures",
    "guided_entropy",
    "least_square",
    "most_entropy",
]

_SQUARE_GAP = 1e-9  # relative to the square
_ENTROPY_GAP = 1e-6  # nats
_MOST_STEPS = 300
_MOST_SPECTRA = 12  # exact entropies of a guided search, which usually takes three

# Added to the diagonal, relative to the largest entry: of equally good weights the most even ones
# are chosen, such as equal weights of equal models, whatever their order.
_EVEN = 1e-11

_LEAST = 1e-9  # weight that every model keeps inside the search, where slopes may be infinite
_NONE = 1e-7  # weights up to this are reported as zero

EntropyAndSlopes = Callable[[np.ndarray], tuple[float, np.ndarray]]
Curvature = Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True, eq=False)
class Optimum:
    """Weights with their certificate.

    Attributes
    ----------
    weights : ndarray
        Not negative, and of sum one.
    gap : float
        By how much the best weights can be better at most: of the square relative to it, and of
        the entropy in nats.
    num_iterations : int
        Number of steps.
    """

    weights: np.ndarray
    gap: float
    num_iterations: int


def allowed_mixtures(values: np.ndarray, least: float) -> np.ndarray:
    """The corners of the weights under which the mean of `values` is at least `least`, as rows.

    A corner is a model of at least that value, or the mixture of a better and a worse one that has
    exactly that value.

    >>> allowed_mixtures(np.array([3.0, 1.0]), 1.5)
    array([[1.  , 0.  ],
           [0.25, 0.75]])
    """
    eye = np.eye(values.size)
    corners = [eye[model] for model in np.flatnonzero(values >= least)]
    for better in np.flatnonzero(values > least):
        for worse in np.flatnonzero(values < least):
            share = (least - values[worse]) / (values[better] - values[worse])
            corners.append(share * eye[better] + (1 - share) * eye[worse])
    return np.array(corners)


def least_square(gram: np.ndarray) -> Optimum:
    """Weights a that minimise a' G a for a matrix of inner products G.

    The point of least norm in the hull of the states, by the method of Wolfe (1976): the least norm
    on the hull of an active set is a linear system; a state that would lower the norm joins, and
    those whose weight becomes negative leave. It ends after finitely many steps.

    >>> least_square(np.array([[1.0, 0.0], [0.0, 3.0]])).weights.round(9)
    array([0.75, 0.25])
    """
    scale = float(np.abs(gram).max())
    even = gram / scale + _EVEN * np.eye(len(gram))
    weights = np.zeros(len(gram))
    weights[np.argmin(np.diagonal(even))] = 1.0
    steps = 0
    while steps < _MOST_STEPS:
        steps += 1
        slopes = even @ weights
        entering = int(np.argmin(slopes))
        if weights[entering] > 0 or weights @ slopes - slopes[entering] <= _EVEN * 1e-3:
            break
        active = np.union1d(np.flatnonzero(weights), entering)
        weights = _least_on(even, weights, active)
    plain = gram @ weights
    square = float(weights @ plain)
    return Optimum(weights, (square - float(plain.min())) / square, steps)


def _least_on(gram: np.ndarray, weights: np.ndarray, active: np.ndarray) -> np.ndarray:
    """The least square on the hull of the active states, or the best on the way to it."""
    while True:
        solved = np.linalg.solve(gram[np.ix_(active, active)], np.ones(active.size))
        target = np.zeros(weights.size)
        target[active] = solved / solved.sum()
        negative = active[target[active] <= 0]
        if not negative.size:
            return target
        # As far towards the target as all weights stay positive; one of them becomes zero.
        steps = weights[negative] / (weights[negative] - target[negative])
        first = int(np.argmin(steps))
        weights = weights + steps[first] * (target - weights)
        weights[negative[first]] = 0.0
        active = active[active != negative[first]]


def most_entropy(
    entropy_and_slopes: EntropyAndSlopes,
    num_models: int,
    *,
    least_gap: float = _ENTROPY_GAP,
    start: np.ndarray | None = None,
) -> Optimum:
    """Weights that maximise a concave entropy of the mixture.

    A quasi-Newton search (SLSQP) from equal weights, then steps that multiply each weight by
    exp(step x slope). Under a step of one these never lower the entropy: relative entropy of
    mixtures is at most that of their weights, so the entropy is smooth relative to it.

    Parameters
    ----------
    entropy_and_slopes : callable
        Positive weights -> the entropy of their mixture, and its derivatives in the weights.
    num_models : int
        Number of weights.
    least_gap : float, optional
        The search ends below this gap, in nats.
    start : ndarray, optional
        Weights to begin with, in place of equal ones.
    """
    from scipy.optimize import minimize

    calls = 0

    def negative(weights: np.ndarray) -> tuple[float, np.ndarray]:
        nonlocal calls
        calls += 1
        entropy, slopes = entropy_and_slopes(_inside(weights))
        return -entropy, -slopes

    if start is None:
        start = np.full(num_models, 1 / num_models)
    searched = minimize(
        negative,
        start,
        jac=True,
        method="SLSQP",
        bounds=[(_LEAST, 1.0)] * num_models,
        constraints=[{"type": "eq", "fun": lambda a: a.sum() - 1, "jac": np.ones_like}],
        options={"maxiter": _MOST_STEPS, "ftol": 1e-12},
    )
    weights, step = _inside(searched.x), 1.0
    value, slopes = negative(weights)
    while _gap(weights, -slopes) > least_gap and calls < _MOST_STEPS:
        raised = weights * np.exp(step * (slopes.min() - slopes))
        raised = _inside(raised)
        new_value, new_slopes = negative(raised)
        if new_value <= value + 1e-15:
            weights, value, slopes, step = raised, new_value, new_slopes, 1.5 * step
        else:
            step = step / 2
            if step < 1e-6:
                break
    weights = np.where(weights > _NONE, weights, 0.0)
    weights /= weights.sum()
    _, slopes = entropy_and_slopes(_inside(weights))
    return Optimum(weights, max(0.0, _gap(weights, slopes)), calls)


def guided_entropy(
    exact: EntropyAndSlopes,
    exact_curvature: Callable[[], np.ndarray],
    guide: EntropyAndSlopes,
    guide_curvature: Curvature,
    num_models: int,
) -> Optimum:
    """Weights that maximise a concave entropy which is expensive, by means of one that is not.

    Each step maximises the guide plus a quadratic function, after which it agrees with the exact
    entropy in slopes and curvature at the last weights: a Newton step that keeps the shape of an
    entropy, which no quadratic function has near the border. The weights and the gap are those of
    the exact entropy, so the guide decides only how many steps it takes, usually three.

    Parameters
    ----------
    exact, guide : callable
        As in `most_entropy`.
    exact_curvature : callable
        The second derivatives of `exact` at the weights of its last call.
    guide_curvature : callable
        Weights -> the second derivatives of `guide`.
    num_models : int
        Number of weights.
    """
    base = np.full(num_models, 1 / num_models)
    linear, bend = np.zeros(num_models), np.zeros((num_models, num_models))

    def corrected(weights: np.ndarray) -> tuple[float, np.ndarray]:
        moved = weights - base
        value, slopes = guide(weights)
        bent = bend @ moved
        return value + float((linear + bent / 2) @ moved), slopes + linear + bent

    best, highest = Optimum(base, np.inf, 0), -np.inf
    weights = most_entropy(corrected, num_models, least_gap=_ENTROPY_GAP / 10).weights
    for step in range(1, _MOST_SPECTRA + 1):
        inside = _inside(weights)
        value, slopes = exact(inside)
        gap = max(0.0, _gap(inside, slopes))
        if gap < best.gap:
            best = Optimum(weights, gap, step)
        if gap <= _ENTROPY_GAP:
            break
        if value < highest:
            # Too far: the exact entropy is concave, so between the two it is not lower.
            weights = (base + weights) / 2
            continue
        highest, base = value, inside
        linear = slopes - guide(inside)[1]
        bend = exact_curvature() - guide_curvature(inside)
        # From the last weights: far from them the two need not be concave together.
        weights = most_entropy(
            corrected, num_models, least_gap=_ENTROPY_GAP / 10, start=base
        ).weights
    return replace(best, num_iterations=step)


def _gap(weights: np.ndarray, slopes: np.ndarray) -> float:
    return float(slopes.max() - weights @ slopes)


def _inside(weights: np.ndarray) -> np.ndarray:
    raised = np.maximum(weights, _LEAST)
    return np.asarray(raised / raised.sum())
