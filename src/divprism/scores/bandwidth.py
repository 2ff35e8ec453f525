"""Rules that choose the bandwidth of a Gaussian kernel from data.

A rule is called once per side. The result records the rule and the number that it chose.
"""

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


# Bandwidths are tried in steps of 2^(1/16), counted from the median distance downwards: from four
# times the median to an eighth of it, first eight steps at a time.
_STEPS_PER_HALVING = 16
_FIRST_STEP = -2 * _STEPS_PER_HALVING
_LAST_STEP = 3 * _STEPS_PER_HALVING
_COARSE_STEP = 8


class BandwidthRule(ABC):
    """A way to choose the bandwidth of a Gaussian kernel from data."""

    @abstractmethod
    def bandwidth(self, x: Array, *, rng: int = 0, name: str = "x") -> float:
        """The bandwidth for the rows of `x`; `rng` is the seed of random subsets."""


@dataclass(frozen=True)
class MedianDistance(BandwidthRule):
    """The median distance between distinct rows: the common default of kernel methods.

    Copies count once, so repeating prompts, or the whole data set, does not change the bandwidth.
    With more than `max_rows` distinct rows a seeded random subset of that size is used. Data
    without two distinct rows get 1, where every bandwidth gives the same score. O(max_rows^2 d).

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
        """The bandwidth of clean rows; `distinct` holds the first row of each set of copies."""
        if distinct.size < 2:
            return 1.0
        if distinct.size > self.max_rows:
            generator = np.random.default_rng(rng)
            distinct = np.sort(generator.choice(distinct, self.max_rows, replace=False))
        squares, scale = condensed_squares(x, distinct)
        return float(scale * np.sqrt(np.median(squares)))


@dataclass(frozen=True)
class StableScore(BandwidthRule):
    """The smallest bandwidth at which the score is stable: the rule of the papers, and the default.

    Conditional Vendi, App. D takes, for each kind of data, the smallest bandwidth at which the
    score varies by less than 0.01 (variance) between independent evaluations. Here an evaluation
    is the RKE (order 2, as in the work that the rule comes from) of a seeded random subset of
    `max_rows` rows without replacement, or of half of the rows if there are fewer. The variance
    over `num_subsets` subsets is corrected for the rows that they share.

    Bandwidths are tried from four times the median distance down to an eighth of it, in steps of
    2^(1/16); the last one before the variance first exceeds `threshold` is chosen. The direction
    matters: at bandwidths so small that every row is a kind of its own the variance vanishes again.

    Data of few kinds, such as ten prompts, never exceed the threshold and get the smallest
    bandwidth. The bandwidth falls as the number of rows grows, so sets that are compared should
    share it. O(num_subsets max_rows^2 d).

    Attributes
    ----------
    threshold : float
        Largest variance of the score.
    num_subsets : int
        Number of random subsets.
    max_rows : int
        Largest number of rows of a subset.
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
        # The RKE of one row, or of equal rows, is 1 at every bandwidth, so no variance can decide.
        if size < 2 or distinct.size < 2:
            return median
        generator = np.random.default_rng(rng)
        subsets = []
        for _ in range(self.num_subsets):
            # From all rows, unlike the median: copies are part of what an evaluation scores.
            squares, scale = condensed_squares(x, generator.choice(n, size, replace=False))
            # In units of the median distance, whatever the scale of the data.
            subsets.append(squares * (scale / median) ** 2)

        def is_stable(step: int) -> bool:
            relative = 2.0 ** (-step / _STEPS_PER_HALVING)
            return _variance_of_rke(subsets, relative, size / n) <= self.threshold

        return float(median * 2.0 ** (-_last_stable_step(is_stable) / _STEPS_PER_HALVING))


def _variance_of_rke(subsets: list[np.ndarray], bandwidth: float, share: float) -> float:
    """Variance of the RKE over random subsets that hold a share of all rows.

    `subsets` holds the squared distances between all pairs of rows of each, s (s - 1) / 2 of them.
    The kernel is squared in RKE, which cancels the 2 of the Gaussian kernel.
    """
    # The solution of s (s - 1) / 2 = number of distances.
    size = (1 + np.sqrt(1 + 8 * subsets[0].size)) / 2
    scores = []
    for squares in subsets:
        # s^2 / ||K||_F^2: the diagonal adds s, and every pair counts twice.
        scores.append(size**2 / (size + 2 * np.exp(-squares / bandwidth**2).sum()))
    # Subsets without replacement vary less than independent samples.
    return float(np.var(scores, ddof=1) / (1 - share))


def _last_stable_step(is_stable: Callable[[int], bool]) -> int:
    """The last step before the score first becomes unstable.

    Coarse steps find the interval in which that happens, bisection the step in it.
    """
    # The first instability from above counts: far below it the score is stable again, because every
    # row is a kind of its own, and a search from below would end there. Within a coarse step
    # stability is taken to end once, as bisection requires.
    last = _FIRST_STEP
    for step in range(_FIRST_STEP + _COARSE_STEP, _LAST_STEP + 1, _COARSE_STEP):
        if not is_stable(step):
            between = range(last + 1, step)
            return last + bisect_left(between, True, key=lambda step: not is_stable(step))
        last = step
    return _LAST_STEP
