"""The papers' concentration bounds: how far a score of n samples can be from that of infinitely many, whatever the law.

They hold for every distribution, so they are wide: an interval from the data (`evaluate(interval=...)`) is many times narrower.
Each function returns the range of the population score that is left with probability 1 - delta, and refuses where its theorem
does not apply. Theorem 3 (b) of Truncated Vendi, on Nystrom, states no constant and has no function.
"""

import math

from divprism._validate import check_order
from divprism.errors import ArgumentError

__all__ = [
    "conditional_rke_bound",
    "conditional_vendi_bound",
    "eigenvalue_bound",
    "fourier_vendi_bound",
    "vendi_bound",
]


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
        raise ArgumentError("below order 2 the bounds need the `dimension` of the kernel's features, or a `truncation`.")
    if order == 1:
        assert size is not None
        _check(n, delta, 32 * math.e**2 * math.log(2 / delta), "Truncated Vendi, Cor. 2 (a)")
        reach = math.sqrt(8 * size * math.log(2 / delta) / n) * math.log(n * size / (32 * math.log(2 / delta)))
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
    return _by_norm(value, order, math.sqrt(128 * factor * math.log(3 / delta) / min(n, num_features)))


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
    terms = math.sqrt(joint) * math.log(n * joint) + math.sqrt(dimension_t) * math.log(n * dimension_t)
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
        raise ArgumentError("`prompts` and `joint` must be rising pairs of norms above 0 and up to 1.")
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
    return max(1.0, value * math.exp(-reach)), value * math.exp(min(reach, 700.0))


def _by_norm(value: float, order: float, reach: float) -> tuple[float, float]:
    """Scores whose power (1 - order) / order, the norm of the eigenvalues, is within reach of that of `value`."""
    power = (1 - order) / order
    norm = value**power
    high = math.inf if norm <= reach else (norm - reach) ** (1 / power)
    return max(1.0, (norm + reach) ** (1 / power)), high
