"""Rules that read a Gaussian bandwidth off the data. A rule is called once, and the result records the rule and the number."""

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np

from divprism._arrays import Array, array_namespace, distinct_rows, to_numpy, upload
from divprism._validate import clean_rows
from divprism.errors import ArgumentError

__all__ = ["BandwidthRule", "MedianDistance"]


class BandwidthRule(ABC):
    """A way to choose the bandwidth of a Gaussian kernel from data."""

    @abstractmethod
    def bandwidth(self, x: Array, *, rng: int = 0, name: str = "x") -> float:
        """The bandwidth for the rows of `x`; `rng` seeds whatever the rule draws."""


@dataclass(frozen=True)
class MedianDistance(BandwidthRule):
    """The median distance between distinct rows: the common default, and the one used while nothing else is said.

    Copies count once, so repeating prompts, or the whole data set, leaves the bandwidth as it was. With more than `max_rows`
    distinct rows a seeded draw of that many stands for all. Data without two distinct rows get 1, where every bandwidth
    gives the same score. O(max_rows^2 d).

    >>> MedianDistance().bandwidth(np.array([[0.0], [1.0], [3.0], [3.0]]))
    2.0
    """

    max_rows: int = 2000

    def __post_init__(self) -> None:
        if not isinstance(self.max_rows, int) or self.max_rows < 2:
            raise ArgumentError(f"`max_rows` must be a whole number of at least 2; got {self.max_rows!r}.")

    def bandwidth(self, x: Array, *, rng: int = 0, name: str = "x") -> float:
        """Median of |x_i - x_j| over pairs of distinct rows."""
        x = clean_rows(x, name)
        xp = array_namespace(x)
        first, _ = distinct_rows(x)
        if first.size < 2:
            return 1.0
        if first.size > self.max_rows:
            first = np.sort(np.random.default_rng(rng).choice(first, self.max_rows, replace=False))
        rows = xp.astype(xp.take(x, upload(first, x), axis=0), xp.float64)
        rows = rows - xp.mean(rows, axis=0)
        scale = float(xp.max(xp.abs(rows)))  # so that squares neither overflow nor vanish
        rows = rows / scale
        squares = xp.sum(rows * rows, axis=1)
        gram = to_numpy(rows @ rows.T)
        norms = to_numpy(squares)
        upper = np.triu_indices(first.size, 1)
        median = float(np.median(norms[upper[0]] + norms[upper[1]] - 2 * gram[upper]))
        if median < _CANCELLED * norms.max():
            from scipy.spatial.distance import pdist

            median = float(np.median(pdist(to_numpy(rows), "sqeuclidean")))
        return float(scale * np.sqrt(median))


_CANCELLED = 1e-6  # squared distances this far below the squared norms are computed from differences
