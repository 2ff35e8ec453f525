"""Blocks of a kernel matrix, as functions of rows and columns that other processes can call."""

from dataclasses import dataclass

from divprism.core.arrays import Array, array_namespace
from divprism.core.kernels import Kernel, Points
from divprism.core.operators.base import with_unit_diagonal

__all__ = ["PointBlocks", "TableBlocks"]


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
        xp = array_namespace(self.table)
        band = xp.take(self.table, self.index[rows], axis=0)
        return xp.take(band, self.index[columns], axis=1)
