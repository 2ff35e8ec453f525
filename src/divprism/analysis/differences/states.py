"""Two samples as states over the same points: masses of rows, halves of them, exchanges."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from divprism.analysis.differences.basis import Basis

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
        second = np.zeros(self.side.size, dtype=bool)
        # Every other row of a stratum and sample, in the order of the content.
        order = np.lexsort((self.ranks, self.side, self.strata))
        second[order[1::2]] = True
        return second

    def exchanged(self, count: int, seed: int) -> Iterator[np.ndarray]:
        """Sides of rows after random exchanges inside of strata."""
        rng = np.random.default_rng(seed)
        if self.whole:
            for _ in range(count):
                signs = rng.choice(np.array([-1, 1]), self.stratum_ranks.size)
                yield self.side * signs[self.stratum_ranks][self.strata]
            return
        order = np.lexsort((self.ranks, self.strata))
        order = order[self.side[order] != 0]
        for _ in range(count):
            # Sorted by stratum and then at random: a random order inside of each stratum.
            shuffled = np.lexsort((rng.random(order.size), self.strata[order]))
            side = np.zeros_like(self.side)
            side[order] = self.side[order][shuffled]
            yield side
