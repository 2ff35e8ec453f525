"""One kernel on weighted points."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import Any

import numpy as np

from divprism.core.arrays import Array, array_namespace, device_of, upload
from divprism.core.kernels import Categorical, Kernel, Points
from divprism.core.operators.base import Operator
from divprism.core.operators.blocks import PointBlocks, PointColumns
from divprism.core.tiles import row_blocks

__all__ = ["KernelOperator"]

# Rows computed at a time for a whole matrix: few enough to save half of a small matrix too.
_PANEL = 256


@dataclass(frozen=True, eq=False)
class KernelOperator(Operator):
    """One kernel on weighted points.

    Attributes
    ----------
    kernel, masses
        The kernel, and the masses of the distinct points.
    index : ndarray
        For each item of the data, the number of its point.
    name : str
        Name of the data in messages.
    width : int
        Columns of the data.
    dtype, single : data type
        Precision of the kernel values, and single precision in the array library of the data.
    prepare : callable
        dtype -> the points, ready for the kernel in that precision.
    """

    kernel: Kernel
    masses: np.ndarray
    index: np.ndarray
    name: str
    width: int
    dtype: Any
    single: Any
    prepare: Callable[[Any], Points]

    @classmethod
    def from_data(
        cls, kernel: Kernel, x: Array, weights: np.ndarray, *, dtype: Any, name: str
    ) -> "KernelOperator":
        """Merge equal items of validated data `x`; points are prepared when first needed."""
        distinct, index = kernel.merge(x)
        masses = np.bincount(index, weights=weights, minlength=distinct.shape[0])
        # Cached, because operators in another precision share the function.
        prepare = cache(lambda dtype: kernel.points(distinct, dtype, name))
        single = array_namespace(x).float32
        return cls(kernel, masses, index, name, x.shape[1], dtype, single, prepare)

    @classmethod
    def from_file(
        cls, kernel: Kernel, x: np.ndarray, weights: np.ndarray, *, dtype: Any, name: str
    ) -> "KernelOperator":
        """An operator on a memory-mapped array that stays on disk: blocks read the rows they need.

        Equal items are not merged, which would take a copy of the data.
        """
        prepare = cache(lambda dtype: kernel.stored_points(x, dtype, name))
        # Every row is a point of its own, with its weight as mass.
        index = np.arange(x.shape[0])
        return cls(kernel, weights, index, name, x.shape[1], dtype, np.float32, prepare)

    @cached_property
    def points(self) -> Points:
        """The points, in the precision of the operator."""
        return self.prepare(self.dtype)

    @property
    def blocks(self) -> PointBlocks:
        """`values`, as a function of the kernel and the points alone."""
        return PointBlocks(self.kernel, self.points)

    @property
    def factors(self) -> tuple["KernelOperator", ...]:
        """A tuple of this operator alone."""
        return (self,)

    def indexed_factors(self) -> Iterator[tuple["KernelOperator", np.ndarray]]:
        """The operator itself, with all of its points."""
        yield self, np.arange(self.size)

    @property
    def noise(self) -> float:
        """Rounding error of the kernel values."""
        return self.points.noise

    def values(self, rows: slice, columns: slice) -> Array:
        """A block of the kernel matrix, with exact ones on the diagonal."""
        return self.blocks(rows, columns)

    def table(self) -> Array:
        """The whole kernel matrix; half of it is computed and mirrored to the other half."""
        full: Array = None
        for rows in row_blocks(self.size, _PANEL):
            block = self.values(rows, slice(rows.start, self.size))
            if full is None:
                # A single panel is the whole matrix, and needs no copy.
                if rows.stop == self.size:
                    return block
                xp = array_namespace(block)
                full = xp.empty((self.size, self.size), dtype=block.dtype, device=device_of(block))
            full[rows, rows.start :] = block
            full[rows.start :, rows] = block.T
        return full

    def combine(self, tables: Sequence[Array]) -> Array:
        """The kernel matrix itself."""
        return tables[0]

    @property
    def is_diagonal(self) -> bool:
        """Whether distinct points have similarity zero, as under Categorical."""
        return self.size == 1 or isinstance(self.kernel, Categorical)

    def subset(self, index: np.ndarray, masses: np.ndarray) -> "KernelOperator":
        """The operator on some points, with new masses; its trace is their sum."""

        def prepare(dtype: Any) -> Points:
            points = self.prepare(dtype)
            return points.take(upload(index, points.rows))

        # Lazy like the original: a subset that is never solved prepares no points.
        return replace(self, masses=masses, index=np.arange(index.size), prepare=prepare)

    def points_at(self, index: np.ndarray) -> Points:
        """The points with the numbers `index`."""
        return self.points.take(upload(index, self.points.rows))

    def columns(self, index: np.ndarray) -> PointColumns:
        """A function rows -> kernel values with the points `index`."""
        return PointColumns(self.kernel, self.points, self.points_at(index))

    def sample(self, index: np.ndarray, *, double: bool) -> "KernelOperator":
        """The operator on some points, with their masses; `double` sets double precision."""
        points = self.points_at(index)
        if double:
            points = points.double()
        return replace(
            self,
            masses=self.masses[index],
            index=np.arange(index.size),
            # The sample keeps its precision, whatever later calls ask for.
            prepare=lambda dtype: points,
        )

    @property
    def feature_dimension(self) -> int | None:
        """Features of the kernel for the width of the data; None if there are infinitely many."""
        return self.kernel.feature_dimension(self.width)

    def features(self, rows: slice) -> Array:
        """Features of the kernel times the roots of the masses."""
        features = self.kernel.features(self.points[rows])
        return features * upload(np.sqrt(self.masses[rows]), features)[:, None]
