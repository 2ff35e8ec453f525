"""Rules that read a Gaussian bandwidth off the data. A rule is called once, and the result records the rule and the number."""

from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from divprism.core.arrays import Array, distinct_rows
from divprism.core.distances import condensed_squares
from divprism.core.validation import clean_rows, whole_number
from divprism.errors import ArgumentError

__all__ = ["BandwidthRule", "MedianDistance", "StableScore"]


class BandwidthRule(ABC):
    """A way to choose the bandwidth of a Gaussian kernel from data."""

    @abstractmethod
    def bandwidth(self, x: Array, *, rng: int = 0, name: str = "x") -> float:
        """The bandwidth for the rows of `x`; `rng` seeds whatever the rule draws."""


@dataclass(frozen=True)
class MedianDistance(BandwidthRule):
    """The median distance between distinct rows: the common default of kernel methods.

    Copies count once, so repeating prompts, or the whole data set, leaves the bandwidth as it was. With more than `max_rows`
    distinct rows a seeded draw of that many stands for all. Data without two distinct rows get 1, where every bandwidth
    gives the same score. O(max_rows^2 d).

    >>> MedianDistance().bandwidth(np.array([[0.0], [1.0], [3.0], [3.0]]))
    2.0
    """

    max_rows: int = 2000

    def __post_init__(self) -> None:
        object.__setattr__(self, "max_rows", whole_number(self.max_rows, "max_rows", 2))

    def bandwidth(self, x: Array, *, rng: int = 0, name: str = "x") -> float:
        """Median of |x_i - x_j| over pairs of distinct rows."""
        x = clean_rows(x, name)
        return self.between(x, distinct_rows(x)[0], rng)

    def between(self, x: Array, distinct: np.ndarray, rng: int) -> float:
        """The same, for clean rows of which the places of the distinct ones are known."""
        if distinct.size < 2:
            return 1.0
        if distinct.size > self.max_rows:
            distinct = np.sort(
                np.random.default_rng(rng).choice(distinct, self.max_rows, replace=False)
            )
        squares, scale = condensed_squares(x, distinct)
        return float(scale * np.sqrt(np.median(squares)))


@dataclass(frozen=True)
class StableScore(BandwidthRule):
    """The smallest bandwidth at which the score is stable: the rule of the papers, and the default.

    Conditional Vendi, App. D takes, for each kind of data, the smallest bandwidth at which the score varies by less than 0.01
    (variance) between independent evaluations. Here an evaluation is the RKE (order 2, as in the work that the rule comes from)
    of a seeded draw of `max_rows` rows, or of half of them if there are fewer, without replacement; the variance over
    `num_subsets` draws is corrected for the rows that draws share. Bandwidths are tried from four times the median distance
    down to an eighth of it, in steps of 2^(1/16); the last one before the variance first exceeds `threshold` is taken. Coming
    from above matters: at bandwidths so small that every row is a kind of its own the variance vanishes again.

    A few kinds of rows, such as ten prompts, never exceed it and get the smallest. The bandwidth falls as rows grow in number:
    sets that are to be compared should share it. O(num_subsets max_rows^2 d).

    Attributes
    ----------
    threshold : float
        Largest variance of the score.
    num_subsets : int
        Number of draws.
    max_rows : int
        Rows of a draw.
    """

    threshold: float = 0.01
    num_subsets: int = 20
    max_rows: int = 500

    def __post_init__(self) -> None:
        if not self.threshold > 0:
            raise ArgumentError(f"`threshold` must be positive; got {self.threshold!r}.")
        object.__setattr__(self, "threshold", float(self.threshold))
        for field in ("num_subsets", "max_rows"):
            object.__setattr__(self, field, whole_number(getattr(self, field), field, 2))

    def bandwidth(self, x: Array, *, rng: int = 0, name: str = "x") -> float:
        """The last bandwidth, from above, at which the variance is below the threshold."""
        x = clean_rows(x, name)
        n = int(x.shape[0])
        distinct, _ = distinct_rows(x)
        median = MedianDistance().between(x, distinct, rng)
        size = min(self.max_rows, n // 2)
        if size < 2 or distinct.size < 2:
            return median
        generator = np.random.default_rng(rng)
        draws = [
            condensed_squares(x, generator.choice(n, size, replace=False))
            for _ in range(self.num_subsets)
        ]
        squares = [draw * (scale / median) ** 2 for draw, scale in draws]  # in units of the median
        stable = _walk(
            lambda step: self._variance(squares, 2.0 ** (-step / _FINE), size / n) <= self.threshold
        )
        return float(median * 2.0 ** (-stable / _FINE))

    def _variance(self, squares: list[np.ndarray], bandwidth: float, part: float) -> float:
        """Variance of the RKE over draws that hold a part of all rows."""
        size = (1 + np.sqrt(1 + 8 * squares[0].size)) / 2
        scores = [size**2 / (size + 2 * np.exp(-draw / bandwidth**2).sum()) for draw in squares]
        return float(np.var(scores, ddof=1) / (1 - part))


_FINE = 16  # steps to halve a bandwidth
_TOP, _BOTTOM, _COARSE = (
    -2 * _FINE,
    3 * _FINE,
    8,
)  # steps below the median: tried first, last, and at a time


def _walk(holds: Callable[[int], bool]) -> int:
    """The last step, counted down from the top, at which something holds that holds up to some step and then no more."""
    last = _TOP
    for step in range(_TOP + _COARSE, _BOTTOM + 1, _COARSE):
        if not holds(step):
            return last + bisect_left(range(last + 1, step), True, key=lambda step: not holds(step))
        last = step
    return _BOTTOM
