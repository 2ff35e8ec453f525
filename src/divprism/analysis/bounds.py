"""The papers' concentration bounds: how far a score of n samples can be from that of infinitely many, whatever the law.

They hold for every distribution, so they are wide: an interval from the data (`evaluate(interval=...)`) is many times narrower,
and has the bound beside it (`bounds_of`).
Each function returns the range of the population score that is left with probability 1 - delta, and refuses where its theorem
does not apply. Theorem 3 (b) of Truncated Vendi, on Nystrom, states no constant and has no function.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from divprism.core.validation import check_order
from divprism.errors import ArgumentError
from divprism.scores.problem import Problem
from divprism.scores.score import Score

__all__ = [
    "Bound",
    "bounds_of",
    "conditional_rke_bound",
    "conditional_vendi_bound",
    "eigenvalue_bound",
    "fourier_vendi_bound",
    "vendi_bound",
]


@dataclass(frozen=True)
class Bound:
    """Where the score of infinitely many samples lies, whatever their law.

    Attributes
    ----------
    low, high : float
        Its ends; `high` may be infinite.
    theorem : str
        What says so.
    """

    low: float
    high: float
    theorem: str

    def to_dict(self) -> dict[str, Any]:
        """Plain values, every number finite: None stands for no upper end."""
        return {
            "low": self.low,
            "high": self.high if math.isfinite(self.high) else None,
            "theorem": self.theorem,
        }


def bounds_of(
    problem: Problem, scores: Mapping[str, Score | None], norms: Mapping[str, float], level: float
) -> dict[str, Bound]:
    """The bounds of those scores that a theorem covers, each with probability `level`.

    For independent pairs that count alike, exact scores, and kernels taken as given, also where a rule read the bandwidth off
    the data. Scores without a theorem, or with too few samples for it, are left out.

    Parameters
    ----------
    problem, scores
        What was scored, and the scores by name.
    norms : mapping of float
        Hilbert-Schmidt norms of the operators "t" and "joint"; empty: no bound for Conditional-RKE.
    level : float
        Probability, such as 0.95.
    """
    if np.ptp(problem.x.masses / np.bincount(problem.x.index)) > 1e-12:
        return {}
    found = {}
    for name, score in scores.items():
        if score is None or score.standard_error > 0:
            continue
        try:
            bound = _bound(name, score, problem, norms, 1 - level)
        except ArgumentError:  # the theorem asks for more samples, or for another kernel or order
            continue
        if bound is not None:
            found[name] = bound
    return found


def _bound(
    name: str, score: Score, problem: Problem, norms: Mapping[str, float], delta: float
) -> Bound | None:
    n, order, cut = problem.x.index.size, score.order, score.truncation
    if name in ("vendi", "rke"):
        width = problem.x.feature_dimension
        theorem = (
            "Cor. 2"
            if order == 1 or (order < 2 and cut is None)
            else "Cor. 1"
            if cut is None
            else "Thm 2"
        )
        ends = vendi_bound(score.value, n, order, dimension=width, truncation=cut, delta=delta)
        return Bound(*ends, f"Truncated Vendi, {theorem}")
    if name == "conditional_vendi" and order == 1 and problem.t is not None:
        widths = {
            "dimension_x": problem.x.feature_dimension,
            "dimension_t": problem.t.feature_dimension,
        }
        ends = conditional_vendi_bound(score.value, n, **widths, truncation=cut, delta=delta)
        return Bound(*ends, f"Conditional Vendi, Thm {1 if cut is None else 2}")
    if name == "conditional_rke" and norms:
        return _ratio(n, norms, delta)
    return None


def _ratio(n: int, norms: Mapping[str, float], delta: float) -> Bound:
    """Conditional-RKE is the squared ratio of two norms, each of which Theorem 1 of Truncated Vendi holds for with delta / 2.

    Theorem 3 of Conditional Vendi (`conditional_rke_bound`) is on the ratio itself, and many times as wide.
    """
    reach = eigenvalue_bound(n, delta / 2)
    (low_t, high_t), (low_joint, high_joint) = (
        (norms[side] - reach, norms[side] + reach) for side in ("t", "joint")
    )
    high = (min(1.0, high_t) / low_joint) ** 2 if low_joint > 1e-100 else math.inf
    return Bound(
        max(1.0, (max(0.0, low_t) / min(1.0, high_joint)) ** 2),
        high,
        "Truncated Vendi, Thm 1 on both norms",
    )


def eigenvalue_bound(n: int, delta: float = 0.05) -> float:
    """Distance between the sorted eigenvalues of K / n and those of the population: sqrt(32 log(2 / delta) / n).

    Euclidean, shorter spectra padded by zeros; for n >= 2 + 8 log(1 / delta) (Truncated Vendi, Thm 1).

    >>> round(eigenvalue_bound(10_000), 3)
    0.109
    """
    _check(n, delta, 2 + 8 * math.log(1 / delta), "Truncated Vendi, Thm 1")
    return math.sqrt(32 * math.log(2 / delta) / n)


def vendi_bound(
    value: float,
    n: int,
    order: float = 2.0,
    *,
    dimension: int | None = None,
    truncation: int | None = None,
    delta: float = 0.05,
) -> tuple[float, float]:
    """Range of the population score, given the Vendi score of n independent samples.

    Order 2 and above: of any kernel (Truncated Vendi, Cor. 1). Orders from 1 to 2: of kernels with a feature map of `dimension`
    (Cor. 2), or of the truncated score (Thm 2; at order 1, where that says nothing since the exponent is 0, Cor. 2 with t for
    the dimension, as its proof does).

    Examples
    --------
    >>> [round(end, 2) for end in vendi_bound(4.0, 100_000)]
    [3.5, 4.61]
    """
    order = check_order(order)
    size = truncation if truncation is not None else dimension
    if order < 1 or math.isinf(order):
        raise ArgumentError(f"the bounds are for orders from 1 on, not {order:g}.")
    if order < 2 and size is None:
        raise ArgumentError(
            "below order 2 the bounds need the `dimension` of the kernel's features, or a `truncation`."
        )
    if order == 1:
        assert size is not None
        _check(n, delta, 32 * math.e**2 * math.log(2 / delta), "Truncated Vendi, Cor. 2 (a)")
        reach = math.sqrt(8 * size * math.log(2 / delta) / n) * math.log(
            n * size / (32 * math.log(2 / delta))
        )
        return _around(value, reach)
    factor = max(1.0, float(size) ** (2 - order)) if size is not None else 1.0
    return _by_norm(value, order, math.sqrt(factor) * eigenvalue_bound(n, delta))


def fourier_vendi_bound(
    value: float, n: int, num_features: int, order: float = 2.0, *, delta: float = 0.05
) -> tuple[float, float]:
    """Range of the population score truncated at t = `num_features`, given the score from so many random Fourier features.

    Truncated Vendi, Thm 3 (a); orders above 1.
    """
    order = check_order(order)
    if order <= 1 or math.isinf(order):
        raise ArgumentError(f"the bound is for orders above 1, not {order:g}.")
    _check(n, delta, 2 + 8 * math.log(1 / delta), "Truncated Vendi, Thm 3")
    factor = max(1.0, float(num_features) ** (2 - order))
    return _by_norm(
        value, order, math.sqrt(128 * factor * math.log(3 / delta) / min(n, num_features))
    )


def conditional_vendi_bound(
    value: float,
    n: int,
    *,
    dimension_x: int | None = None,
    dimension_t: int | None = None,
    truncation: int | None = None,
    delta: float = 0.05,
) -> tuple[float, float]:
    """Range of the population Conditional-Vendi (order 1), given that of n independent pairs.

    With the dimensions of both kernels' features (Conditional Vendi, Thm 1 in the form of its appendix), or of the truncated
    score (Thm 2).

    >>> [round(end, 2) for end in conditional_vendi_bound(5.0, 10**8, dimension_x=10, dimension_t=10)]
    [4.45, 5.62]
    """
    spread = 1 + math.sqrt(2 * math.log(4 / delta))
    _check(n, delta, 4 * math.e**2 * spread**2, "Conditional Vendi, Thm 1 and 2")
    if truncation is not None:
        return _around(value, math.sqrt(truncation / n) * 2 * spread * math.log(n * truncation))
    if dimension_x is None or dimension_t is None:
        raise ArgumentError("the bound needs `dimension_x` and `dimension_t`, or a `truncation`.")
    joint = dimension_x * dimension_t
    terms = math.sqrt(joint) * math.log(n * joint) + math.sqrt(dimension_t) * math.log(
        n * dimension_t
    )
    return _around(value, spread * terms / math.sqrt(n))


def conditional_rke_bound(
    value: float,
    n: int,
    *,
    prompts: tuple[float, float],
    joint: tuple[float, float],
    delta: float = 0.05,
) -> tuple[float, float]:
    """Range of the population Conditional-RKE, given that of n independent pairs (Conditional Vendi, Thm 3).

    Parameters
    ----------
    prompts, joint : (float, float)
        Bounds m and M of the Hilbert-Schmidt norms of the population operators of prompts and of pairs: 1 / sqrt(RKE). The
        theorem takes them as given; `eigenvalue_bound` on either side of the sample's norms makes them from data.
    """
    (low_t, high_t), (low_joint, high_joint) = prompts, joint
    if not (0 < low_t <= high_t <= 1 and 0 < low_joint <= high_joint <= 1):
        raise ArgumentError(
            "`prompts` and `joint` must be rising pairs of norms above 0 and up to 1."
        )
    spread = 1 + math.sqrt(2 * math.log(4 / delta))
    condition = low_joint / high_t
    constant = 2 / low_t + 2 * high_joint / low_t**2
    least = 16 * spread**2 * max(1 / low_t**2, 4 * constant**2 / condition**2)
    _check(n, delta, least, "Conditional Vendi, Thm 3")
    reach = 32 * constant * spread / (condition**3 * math.sqrt(n))
    return max(1.0, value - reach), value + reach


def _check(n: int, delta: float, least: float, theorem: str) -> None:
    if not 0 < delta < 1:
        raise ArgumentError(f"`delta` must be between 0 and 1; got {delta!r}.")
    if n < least:
        raise ArgumentError(f"{theorem} asks for n of at least {math.ceil(least):,}; got {n:,}.")


def _around(value: float, reach: float) -> tuple[float, float]:
    """exp(log value +- reach), and no score is below 1."""
    return max(1.0, value * math.exp(-reach)), value * math.exp(
        reach
    ) if reach < _LARGEST else math.inf


def _by_norm(value: float, order: float, reach: float) -> tuple[float, float]:
    """Scores whose power (1 - order) / order, the norm of the eigenvalues, is within reach of that of `value`."""
    power = (1 - order) / order
    norm = value**power
    log_high = math.inf if norm <= reach else math.log(norm - reach) / power
    return max(1.0, (norm + reach) ** (1 / power)), math.exp(
        log_high
    ) if log_high < _LARGEST else math.inf


_LARGEST = 600.0  # logarithms beyond are as good as infinite
