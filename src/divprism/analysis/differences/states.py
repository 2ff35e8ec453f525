"""Two samples as states over the same points: masses of rows, halves of them, exchanges."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from divprism.analysis.differences.basis import Basis
from divprism.core.arrays import scrambled

__all__ = ["States"]


@dataclass(frozen=True, eq=False)
class States:
    """Rows of two samples as points of one basis.

    Attributes
    ----------
    basis : Basis
        Features of the points.
    index : ndarray of int
        The point of each row.
    side : ndarray of int
        1 for rows of the first sample, -1 for those of the second, 0 for others.
    ratio : float
        What the second state is multiplied by.
    strata : ndarray of int
        Rows of one stratum may be exchanged: those of one prompt.
    whole : bool
        Whether all rows of a stratum change places together: strata are then the units of errors.
    split_inside : bool
        Whether the halves of the data are halves of each stratum; else, of the strata.
    ranks : ndarray of int
        An order of the rows that depends on their content alone.
    stratum_ranks : ndarray of int
        An order of the strata, by number, that depends on their content alone.
    """

    basis: Basis
    index: np.ndarray
    side: np.ndarray
    ratio: float
    strata: np.ndarray
    whole: bool
    split_inside: bool
    ranks: np.ndarray
    stratum_ranks: np.ndarray

    def weights(self, side: np.ndarray, part: np.ndarray | None = None) -> np.ndarray:
        """The signed mass of each row; with `part`, of these rows alone."""
        weights = np.zeros(side.size)
        for sign, total in ((1, 1.0), (-1, -self.ratio)):
            rows = side == sign
            if part is not None:
                rows &= part
            weights[rows] = total / max(1, int(np.count_nonzero(rows)))
        return weights

    def on_points(self, weights: np.ndarray) -> np.ndarray:
        """The mass of each point, from those of the rows."""
        return np.bincount(self.index, weights=weights, minlength=self.basis.size)

    def halves(self) -> np.ndarray:
        """Whether a row is in the second half: of the strata, or of the rows of each."""
        if not self.split_inside:
            return np.asarray(self.stratum_ranks[self.strata] % 2 == 1)
        # Every other row of a stratum and sample, in an order that is as good as random.
        order = np.lexsort((self._random_keys(), self.side, self.strata))
        numbers = _numbers_within(self.strata[order], self.side[order])
        # Strata of one row, or of an odd number, begin with either half in turn: for both samples
        # alike, so that each half has rows of both.
        starts = self.stratum_ranks[self.strata[order]]
        second = np.zeros(self.side.size, dtype=bool)
        second[order] = (numbers + starts) % 2 == 1
        return second

    def _random_keys(self) -> np.ndarray:
        """A number for each row that depends on its content, and not on which sample is first.

        Equal rows of both samples have neighbouring ranks, in the order of the samples. So each
        takes the lowest of them, and its number among the equal rows of its own sample.
        """
        codes = np.unique(self.strata * self.basis.size + self.index, return_inverse=True)[1]
        lowest = np.full(int(codes.max()) + 1, np.iinfo(np.int64).max)
        np.minimum.at(lowest, codes, self.ranks)
        order = np.lexsort((self.ranks, self.side, codes))
        numbers = np.empty(order.size, np.uint64)
        numbers[order] = _numbers_within(codes[order], self.side[order])
        # Copies of an output must not alternate between the halves, which would be alike then.
        return scrambled(scrambled(lowest[codes].astype(np.uint64)) + numbers)

    def exchanged(self, count: int, seed: int) -> Iterator[np.ndarray]:
        """Sides of rows after random exchanges inside of strata."""
        rng = np.random.default_rng(seed)
        if self.whole:
            # Rows that take no part are the last stratum, and must not change what is drawn.
            number = np.unique(self.strata[self.side != 0]).size
            signs = np.ones(self.stratum_ranks.size, np.int8)
            for _ in range(count):
                signs[:number] = rng.choice(np.array([-1, 1], np.int8), number)
                yield self.side * signs[self.stratum_ranks][self.strata]
            return
        # By content, because the numbers of strata follow the order of rows.
        strata = self.stratum_ranks[self.strata]
        order = np.lexsort((self.ranks, strata))
        order = order[self.side[order] != 0]
        strata = strata[order]
        # Sorted, so that exchanges are the same whichever sample is called the first.
        sides = self.side[order][np.lexsort((self.side[order], strata))]
        for _ in range(count):
            # Sorted by stratum and then at random: a random order inside of each stratum.
            shuffled = np.lexsort((rng.random(order.size), strata))
            side = np.zeros_like(self.side)
            side[order] = sides[shuffled]
            yield side


def _numbers_within(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """The number of each row in its run of equal pairs of codes."""
    is_start = np.append(True, (np.diff(first) != 0) | (np.diff(second) != 0))
    starts = np.flatnonzero(is_start)
    return np.asarray(np.arange(first.size) - starts[np.cumsum(is_start) - 1])
