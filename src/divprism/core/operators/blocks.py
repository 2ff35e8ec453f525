"""Blocks of a kernel matrix, as functions of rows and columns that other processes can call."""

from dataclasses import dataclass

import numpy as np

from divprism.core.arrays import Array, array_namespace, upload
from divprism.core.kernels import Kernel, Points
from divprism.core.operators.base import with_unit_diagonal

__all__ = ["PairColumns", "PointBlocks", "PointColumns", "TableBlocks"]


@dataclass(frozen=True, eq=False)
class PointBlocks:
    """(rows, columns) -> a block of a kernel matrix between points."""

    kernel: Kernel
    points: Points

    def __call__(self, rows: slice, columns: slice) -> Array:
        """Kernel values, with exact ones on the diagonal."""
        block = self.kernel.block(self.points[rows], self.points[columns])
        return with_unit_diagonal(block, rows, columns)


@dataclass(frozen=True, eq=False)
class TableBlocks:
    """(rows, columns) -> a block of a kernel matrix between pairs, from that between points."""

    table: Array
    index: Array

    def __call__(self, rows: slice, columns: slice) -> Array:
        """Kernel values of the points of the pairs."""
        # The table has exact ones on its diagonal, so pairs with the same point have them too.
        xp = array_namespace(self.table)
        band = xp.take(self.table, self.index[rows], axis=0)
        return xp.take(band, self.index[columns], axis=1)


@dataclass(frozen=True, eq=False)
class PointColumns:
    """rows -> kernel values between points and some chosen ones.

    With `index`, row i is that of the point index[i].
    """

    kernel: Kernel
    points: Points
    chosen: Points
    index: np.ndarray | None = None

    def __call__(self, rows: slice) -> Array:
        """Kernel values, shape (len(rows), len(chosen))."""
        if self.index is None:
            return self.kernel.block(self.points[rows], self.chosen)
        taken = self.points.take(upload(self.index[rows], self.points.rows))
        return self.kernel.block(taken, self.chosen)


@dataclass(frozen=True, eq=False)
class PairColumns:
    """rows -> products of kernel values between pairs and some chosen ones."""

    left: PointColumns
    right: PointColumns

    def __call__(self, rows: slice) -> Array:
        """Products, shape (len(rows), number of chosen pairs)."""
        return self.left(rows) * self.right(rows)
