"""Kernel values between the distinct items of some rows, a column or a block at a time."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from divprism.core.arrays import to_numpy, upload
from divprism.core.kernels import Kernel, Points
from divprism.core.operators import HadamardOperator, KernelOperator, Operator
from divprism.core.tiles import row_blocks

__all__ = ["Similarities"]

# Points that are compared with others at a time: few enough to be read from a file in blocks.
_BLOCK = 1 << 15


@dataclass(frozen=True, eq=False)
class _Factor:
    """One kernel on some points, and the point of each item."""

    kernel: Kernel
    points: Points
    index: np.ndarray

    @classmethod
    def of(cls, operator: KernelOperator, of_items: np.ndarray) -> "_Factor":
        """The factor of items that are the points `of_items` of an operator."""
        distinct, index = np.unique(of_items, return_inverse=True)
        points = operator.points
        if distinct.size < operator.size:
            points = operator.points_at(distinct)
        return cls(operator.kernel, points, index)

    def column(self, item: int) -> np.ndarray:
        """The kernel values of all items with one."""
        one = self.points.take(self._at(np.array([self.index[item]])))
        values = np.empty(len(self.points))
        for rows in row_blocks(len(self.points), _BLOCK):
            values[rows] = to_numpy(self.kernel.block(self.points[rows], one))[:, 0]
        return self._spread(values)

    def block(self, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
        """The kernel values of some items with others."""
        left, right = (self.points.take(self._at(self.index[items])) for items in (rows, columns))
        return to_numpy(self.kernel.block(left, right))

    def _at(self, positions: np.ndarray) -> np.ndarray:
        return upload(positions, self.points.rows)

    def _spread(self, values: np.ndarray) -> np.ndarray:
        if self.index.size == values.size:
            # `index` numbers distinct points in order, so equal sizes mean that it changes nothing.
            return values
        return values[self.index]


@dataclass(frozen=True, eq=False)
class Similarities:
    """The kernel of an operator between the distinct items of some rows.

    Attributes
    ----------
    factors : tuple
        The kernel of the items; two for the product of the kernels of outputs and prompts.
    item_of_row : ndarray of int
        For each of the rows, the number of its item.
    """

    factors: tuple[_Factor, ...]
    item_of_row: np.ndarray

    @classmethod
    def of(cls, operator: Operator, rows: np.ndarray) -> "Similarities":
        """The similarities under an operator of some rows of its data."""
        if isinstance(operator, HadamardOperator):
            left, right = operator.left, operator.right
            codes = left.index[rows] * right.size + right.index[rows]
            pairs, items = np.unique(codes, return_inverse=True)
            sides = (_Factor.of(left, pairs // right.size), _Factor.of(right, pairs % right.size))
            return cls(sides, items)
        assert isinstance(operator, KernelOperator)
        distinct, items = np.unique(operator.index[rows], return_inverse=True)
        return cls((_Factor.of(operator, distinct),), items)

    @property
    def size(self) -> int:
        """The number of distinct items."""
        return int(self.factors[0].index.size)

    @property
    def is_single(self) -> bool:
        """Whether similarities are computed in single precision."""
        one = np.zeros(1, int)
        return self.block(one, one).dtype == np.float32

    def column(self, item: int) -> np.ndarray:
        """The similarity of all items with one, in double precision."""
        values = self.factors[0].column(item)
        for factor in self.factors[1:]:
            values = values * factor.column(item)
        values[item] = 1.0
        return values

    def block(self, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
        """The similarities of some items with others, in the precision of the operator."""
        values = self.factors[0].block(rows, columns)
        for factor in self.factors[1:]:
            values = values * factor.block(rows, columns)
        return values

    def matrix(self, items: np.ndarray) -> np.ndarray:
        """The kernel matrix of some items, in double precision, ones where items are equal."""
        matrix = self.block(items, items).astype(np.float64)
        matrix = 0.5 * (matrix + matrix.T)
        matrix[items[:, None] == items[None, :]] = 1.0
        return matrix

    @cached_property
    def num_features(self) -> int | None:
        """The number of features of the kernel; None if it has infinitely many, or no rows."""
        total = 1
        for factor in self.factors:
            if factor.points.rows.ndim != 2:
                return None
            number = factor.kernel.feature_dimension(factor.points.rows.shape[1])
            if number is None:
                return None
            total *= number
        return total

    def features(self, items: np.ndarray) -> np.ndarray:
        """The features of some items, whose inner products are the similarities."""
        product = np.ones((items.size, 1))
        for factor in self.factors:
            points = factor.points.take(factor._at(factor.index[items]))
            own = to_numpy(factor.kernel.features(points)).astype(np.float64)
            product = (product[:, :, None] * own[:, None, :]).reshape(items.size, -1)
        return product
