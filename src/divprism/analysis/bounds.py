"""The papers' concentration bounds: how far a score of n samples can be from the population's.

They hold for every distribution, so they are wide: an interval computed from the data
(`evaluate(interval=...)`) is many times narrower, and results carry the bound next to it
(`bounds_of`). Each function returns the range that contains the population score with probability
1 - delta, and refuses arguments that its theorem does not cover. Truncated Vendi, Thm 3 (b), on
Nystrom, states no constant and has no function.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from divprism.core.validation import check_order, whole_number
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

# exp overflows at 709. The margin leaves room for the score that it is multiplied by.
_LARGEST_LOG = 600.0  # exp of a larger logarithm is reported as infinity
_SMALLEST_NORM = 1e-100  # dividing by a smaller norm is reported as infinity
_EQUAL_MASSES = 1e-12
_ROUNDING = 1e-9


@dataclass(frozen=True)
class Bound:
    """A range that contains the population score, whatever the distribution.

    Attributes
    ----------
    low, high : float
        The ends of the range; `high` may be infinite.
    theorem : str
        The theorem that it follows from.
    """

    low: float
    high: float
    theorem: str

    def to_dict(self) -> dict[str, float | str | None]:
        """Return plain values, every number finite: None stands for no upper end."""
        high = None
        if math.isfinite(self.high):
            high = self.high
        return {"low": self.low, "high": high, "theorem": self.theorem}


def bounds_of(
    problem: Problem, scores: Mapping[str, Score | None], norms: Mapping[str, float], level: float
) -> dict[str, Bound]:
    """Return the bounds of those scores that a theorem covers, each with probability `level`.

    The theorems are for independent pairs of equal weight and for exact scores. Kernels count as
    given in advance, also where a rule chose the bandwidth from the data. Scores without a theorem,
    or with too few samples for it, are left out.

    Parameters
    ----------
    problem, scores
        The data and settings, and the scores by name.
    norms : mapping of float
        Hilbert-Schmidt norms of the operators "t" and "joint"; without them there is no bound for
        Conditional-RKE.
    level : float
        Probability, such as 0.95.
    """
    # Equal items were merged, so the weight of a pair is the mass of an item over its count.
    weights = problem.x.masses / np.bincount(problem.x.index)
    if np.ptp(weights) > _EQUAL_MASSES:
        return {}
    bounds = {}
    for name, score in scores.items():
        if name not in _THEOREMS or score is None or score.standard_error > 0:
            continue
        try:
            bound = _THEOREMS[name](score, problem, norms, 1 - level)
        except ArgumentError:  # the theorem asks for more samples, another kernel or another order
            continue
        if bound is not None:
            bounds[name] = bound
    return bounds


def _bound_of_vendi(
    score: Score, problem: Problem, norms: Mapping[str, float], delta: float
) -> Bound:
    order, truncation = score.order, problem.truncation
    # The size of the index, not `problem.n`: pairs of weight zero are no samples.
    low, high = vendi_bound(
        score.value,
        problem.x.index.size,
        order,
        dimension=problem.x.feature_dimension,
        truncation=truncation,
        delta=delta,
    )
    # At order 1 Thm 2 says nothing, and `vendi_bound` uses Cor. 2 also under truncation.
    theorem = "Thm 2"
    if order == 1 or (order < 2 and truncation is None):
        theorem = "Cor. 2"
    elif truncation is None:
        theorem = "Cor. 1"
    return Bound(low, high, f"Truncated Vendi, {theorem}")


def _bound_of_conditional_vendi(
    score: Score, problem: Problem, norms: Mapping[str, float], delta: float
) -> Bound | None:
    if score.order != 1 or problem.t is None:
        return None
    low, high = conditional_vendi_bound(
        score.value,
        problem.x.index.size,
        dimension_x=problem.x.feature_dimension,
        dimension_t=problem.t.feature_dimension,
        truncation=problem.truncation,
        delta=delta,
    )
    theorem = "Thm 2"
    if problem.truncation is None:
        theorem = "Thm 1"
    return Bound(low, high, f"Conditional Vendi, {theorem}")


def _bound_of_conditional_rke(
    score: Score, problem: Problem, norms: Mapping[str, float], delta: float
) -> Bound | None:
    # Norms are computed only without truncation.
    if not norms:
        return None
    return _ratio(problem.x.index.size, norms, delta)


_THEOREMS: dict[str, Callable[[Score, Problem, Mapping[str, float], float], Bound | None]] = {
    "vendi": _bound_of_vendi,
    "rke": _bound_of_vendi,
    "conditional_vendi": _bound_of_conditional_vendi,
    "conditional_rke": _bound_of_conditional_rke,
}
"""The scores that a theorem covers: name -> (score, problem, norms, delta) -> bound."""


def _ratio(n: int, norms: Mapping[str, float], delta: float) -> Bound:
    """Bound Conditional-RKE as the squared ratio of two norms.

    Truncated Vendi, Thm 1 holds for each norm with probability 1 - delta / 2. Conditional Vendi,
    Thm 3 (`conditional_rke_bound`) is about the ratio itself, and many times as wide.
    """
    # Both norms are within reach with probability 1 - delta by the union bound. That sorted spectra
    # are close bounds the difference of their norms by the reverse triangle inequality.
    reach = eigenvalue_bound(n, delta / 2)
    # The norm of a trace-one operator is between 0 and 1.
    low_t = max(0.0, norms["t"] - reach)
    high_t = min(1.0, norms["t"] + reach)
    low_joint = norms["joint"] - reach
    high_joint = min(1.0, norms["joint"] + reach)
    # Conditional-RKE is at least 1 for populations, too (see `_limits_of_conditional`).
    low = max(1.0, (low_t / high_joint) ** 2)
    high = math.inf
    if low_joint > _SMALLEST_NORM:
        high = (high_t / low_joint) ** 2
    return Bound(low, high, "Truncated Vendi, Thm 1 on both norms")


def eigenvalue_bound(n: int, delta: float = 0.05) -> float:
    """Return the distance between the eigenvalues of K / n and those of the population.

    It is sqrt(32 log(2 / delta) / n), the Euclidean distance of sorted spectra, the shorter padded
    with zeros, for n >= 2 + 8 log(1 / delta) (Truncated Vendi, Thm 1).

    >>> round(eigenvalue_bound(10_000), 3)
    0.109
    """
    _check_delta(delta)
    _check_size(n, 2 + 8 * math.log(1 / delta), "Truncated Vendi, Thm 1")
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
    """Return the range of the population score, given the Vendi score of n independent samples.

    From order 2 on for any kernel (Truncated Vendi, Cor. 1). For orders from 1 to 2 for kernels
    with a feature map of `dimension` (Cor. 2), or for the truncated score (Thm 2). At order 1
    Thm 2 has the exponent 0 and says nothing; there Cor. 2 applies with the truncation as the
    dimension, as in the proof of Thm 2 (App. A.4).

    Examples
    --------
    >>> [round(end, 2) for end in vendi_bound(4.0, 100_000)]
    [3.5, 4.61]
    """
    order = check_order(order)
    _check_value(value)
    _check_ranks(dimension=dimension, truncation=truncation)
    _check_delta(delta)
    # A truncated spectrum has rank t, which takes the role of the dimension.
    size = truncation
    if size is None:
        size = dimension
    if order < 1 or math.isinf(order):
        raise ArgumentError(f"`order` must be finite and at least 1 for a bound; got {order:g}.")
    if order < 2 and size is None:
        raise ArgumentError(
            "below order 2 a bound needs the `dimension` of the kernel's features, "
            "or a `truncation`; got neither."
        )
    if order == 1:
        assert size is not None
        log_term = math.log(2 / delta)
        # With eps the `eigenvalue_bound`, the reach is sqrt(size) eps log(sqrt(size) / eps): the
        # continuity of -x log x, summed over `size` eigenvalues. The condition on n is eps <=
        # 1 / e, up to which x log(1 / x) increases.
        _check_size(n, 32 * math.e**2 * log_term, "Truncated Vendi, Cor. 2 (a)")
        reach = math.sqrt(8 * size * log_term / n) * math.log(n * size / (32 * log_term))
        return _around(value, reach)
    # Norms of order below 2 exceed the Euclidean norm by at most this power of the rank.
    # Hoelder's inequality allows the smaller power (2 - order) / order; the one of the theorem is
    # kept, so that the result is the bound that the paper states.
    factor = 1.0
    if size is not None:
        factor = max(1.0, float(size) ** (2 - order))
    return _by_norm(value, order, math.sqrt(factor) * eigenvalue_bound(n, delta))


def fourier_vendi_bound(
    value: float, n: int, num_features: int, order: float = 2.0, *, delta: float = 0.05
) -> tuple[float, float]:
    """Return the range of the truncated population score, given one from random Fourier features.

    The truncation is t = `num_features` (Truncated Vendi, Thm 3 (a)); orders above 1.
    """
    order = check_order(order)
    _check_value(value)
    _check_ranks(num_features=num_features)
    _check_delta(delta)
    if order <= 1 or math.isinf(order):
        raise ArgumentError(f"`order` must be finite and above 1 for this bound; got {order:g}.")
    _check_size(n, 2 + 8 * math.log(1 / delta), "Truncated Vendi, Thm 3")
    factor = max(1.0, float(num_features) ** (2 - order))
    # Samples and random features both cause errors; the smaller number of the two decides.
    reach = math.sqrt(128 * factor * math.log(3 / delta) / min(n, num_features))
    return _by_norm(value, order, reach)


def conditional_vendi_bound(
    value: float,
    n: int,
    *,
    dimension_x: int | None = None,
    dimension_t: int | None = None,
    truncation: int | None = None,
    delta: float = 0.05,
) -> tuple[float, float]:
    """Return the range of the population Conditional-Vendi (order 1), given that of n pairs.

    Needs the dimensions of both kernels' features (Conditional Vendi, Thm 1 in the form of
    App. A.1), or the truncation of the score (Thm 2). Pairs are independent.

    >>> ends = conditional_vendi_bound(5.0, 10**8, dimension_x=10, dimension_t=10)
    >>> [round(end, 2) for end in ends]
    [4.45, 5.62]
    """
    _check_value(value)
    _check_ranks(dimension_x=dimension_x, dimension_t=dimension_t, truncation=truncation)
    _check_delta(delta)
    spread = 1 + math.sqrt(2 * math.log(4 / delta))
    # As for Vendi, the distance of either spectrum, 2 spread / sqrt(n), must be at most 1 / e, up
    # to which x log(1 / x) increases.
    _check_size(n, 4 * math.e**2 * spread**2, "Conditional Vendi, Thm 1 and 2")
    if truncation is not None:
        # The factor 2 is for the two entropies of the score, both of rank `truncation`.
        reach = math.sqrt(truncation / n) * 2 * spread * math.log(n * truncation)
        return _around(value, reach)
    if dimension_x is None or dimension_t is None:
        raise ArgumentError("the bound needs `dimension_x` and `dimension_t`, or a `truncation`.")
    joint = dimension_x * dimension_t
    # One term for each of the two entropies of the score.
    joint_term = math.sqrt(joint) * math.log(n * joint)
    prompt_term = math.sqrt(dimension_t) * math.log(n * dimension_t)
    return _around(value, spread * (joint_term + prompt_term) / math.sqrt(n))


def conditional_rke_bound(
    value: float,
    n: int,
    *,
    prompts: tuple[float, float],
    joint: tuple[float, float],
    delta: float = 0.05,
) -> tuple[float, float]:
    """Return the range of the population Conditional-RKE, given that of n independent pairs.

    Conditional Vendi, Thm 3 in the form of App. A.1, which states the n that it needs.

    Parameters
    ----------
    prompts, joint : (float, float)
        Bounds m and M of the Hilbert-Schmidt norms of the population operators of prompts and of
        pairs: 1 / sqrt(RKE). The theorem takes them as given; to derive them from data, add
        `eigenvalue_bound` on either side of the norms of the sample.
    """
    _check_value(value)
    (low_t, high_t), (low_joint, high_joint) = prompts, joint
    if not (0 < low_t <= high_t <= 1 and 0 < low_joint <= high_joint <= 1):
        raise ArgumentError(
            "`prompts` and `joint` must be pairs of norms (low, high) with 0 < low <= high <= 1; "
            f"got {prompts} and {joint}."
        )
    _check_delta(delta)
    spread = 1 + math.sqrt(2 * math.log(4 / delta))
    condition = low_joint / high_t
    constant = 2 / low_t + 2 * high_joint / low_t**2
    fewest = 16 * spread**2 * max(1 / low_t**2, 4 * constant**2 / condition**2)
    _check_size(n, fewest, "Conditional Vendi, Thm 3")
    reach = 32 * constant * spread / (condition**3 * math.sqrt(n))
    return max(1.0, value - reach), value + reach


def _check_value(value: float) -> None:
    """Refuse a number that no score is, before a power of it is taken."""
    # A score of exactly 1 may be less by rounding. NaN fails the comparison.
    if not 1 - _ROUNDING <= value < math.inf:
        raise ArgumentError(
            f"`value` must be a score, which is finite and at least 1; got {value!r}."
        )


def _check_ranks(**ranks: int | None) -> None:
    """Refuse numbers of eigenvalues below one, before a logarithm is taken."""
    for name, rank in ranks.items():
        if rank is not None:
            whole_number(rank, name, 1)


def _check_delta(delta: float) -> None:
    """Refuse what is not a probability, before its logarithm is taken."""
    if not 0 < delta < 1:
        raise ArgumentError(f"`delta` must be between 0 and 1; got {delta!r}.")


def _check_size(n: int, fewest: float, theorem: str) -> None:
    if n < fewest:
        raise ArgumentError(f"{theorem} needs `n` of at least {math.ceil(fewest):,}; got {n:,}.")


def _around(value: float, reach: float) -> tuple[float, float]:
    """exp(log value +- reach); no score is below 1."""
    high = math.inf
    if reach < _LARGEST_LOG:
        high = value * math.exp(reach)
    return max(1.0, value * math.exp(-reach)), high


def _by_norm(value: float, order: float, reach: float) -> tuple[float, float]:
    """Scores whose norm of the eigenvalues is within `reach` of that of `value`.

    The norm of order `order` is the score to the power (1 - order) / order, which is negative: the
    larger norm belongs to the smaller score.
    """
    power = (1 - order) / order
    norm = value**power
    low = max(1.0, (norm + reach) ** (1 / power))
    # The norm of the population may be arbitrarily small, so the score has no upper limit.
    if norm <= reach:
        return low, math.inf
    # In logarithms: near order 1 the exponent 1 / power is huge, and the power overflows.
    log_high = math.log(norm - reach) / power
    if log_high >= _LARGEST_LOG:
        return low, math.inf
    return low, math.exp(log_high)
