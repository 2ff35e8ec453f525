"""The entry-wise product of two kernel matrices over the same items."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from divprism.core.arrays import Array, array_namespace, upload
from divprism.core.kernels import Categorical
from divprism.core.operators.base import Operator
from divprism.core.operators.blocks import PairColumns, PointColumns
from divprism.core.operators.kernel import KernelOperator
from divprism.core.operators.pairs import on_pairs, spread

__all__ = ["HadamardOperator"]


@dataclass(frozen=True, eq=False)
class HadamardOperator(Operator):
    """The entry-wise product of two kernel matrices over the same items (Conditional Vendi, eq. 5).

    Its points are the distinct pairs; `left_index` and `right_index` hold the points of the factors
    that each pair consists of.
    """

    left: KernelOperator
    right: KernelOperator
    masses: np.ndarray
    left_index: np.ndarray
    right_index: np.ndarray

    @classmethod
    def of(
        cls, left: KernelOperator, right: KernelOperator, weights: np.ndarray
    ) -> "HadamardOperator":
        """Merge equal pairs of items of two operators over the same data."""
        # One integer for each pair of points, so that equal pairs are equal numbers.
        codes = left.index * right.size + right.index
        pairs, index = np.unique(codes, return_inverse=True)
        masses = np.bincount(index, weights=weights, minlength=pairs.size)
        return cls(left, right, masses, pairs // right.size, pairs % right.size)

    @property
    def factors(self) -> tuple[KernelOperator, ...]:
        """The left and the right operator."""
        return self.left, self.right

    def indexed_factors(self) -> Iterator[tuple[KernelOperator, np.ndarray]]:
        """The left operator with the points of the pairs in it, then the right one."""
        yield self.left, self.left_index
        yield self.right, self.right_index

    @property
    def noise(self) -> float:
        """Sum of the rounding errors of both factors."""
        return self.left.noise + self.right.noise

    def index_of(self, factor: Operator) -> np.ndarray:
        """The points of a factor that the pairs consist of."""
        if factor is self.left:
            return self.left_index
        return self.right_index

    def values(self, rows: slice, columns: slice) -> Array:
        """A block of K_X o K_T."""
        left = on_pairs(self.left, self.left_index)
        right = on_pairs(self.right, self.right_index)
        return left(rows, columns) * right(rows, columns)

    def combine(self, tables: Sequence[Array]) -> Array:
        """The product of both matrices, spread from points to pairs."""
        left, right = tables
        return spread(left, self.left_index) * spread(right, self.right_index)

    def groups(self) -> Iterator[KernelOperator]:
        """For a Categorical right factor: the left operator in each group, with its share."""
        # Stable, so that the members of a group keep the order of the data.
        order = np.argsort(self.right_index, kind="stable")
        cuts = np.flatnonzero(np.diff(self.right_index[order])) + 1
        for members in np.split(order, cuts):
            yield self.left.subset(self.left_index[members], self.masses[members])

    def parts(self) -> Iterator[Operator]:
        """The groups, if a factor is Categorical, since pairs of different groups are unlike."""
        if isinstance(self.right.kernel, Categorical):
            yield from self.groups()
        elif isinstance(self.left.kernel, Categorical):
            yield from self._swapped().groups()
        else:
            yield self

    def _swapped(self) -> "HadamardOperator":
        return HadamardOperator(
            self.right, self.left, self.masses, self.right_index, self.left_index
        )

    def columns(self, index: np.ndarray) -> PairColumns:
        """A function rows -> products of kernel values with the pairs `index`."""
        sides = []
        for factor, of_pairs in self.indexed_factors():
            chosen = factor.points_at(of_pairs[index])
            sides.append(PointColumns(factor.kernel, factor.points, chosen, of_pairs))
        return PairColumns(*sides)

    def sample(self, index: np.ndarray, *, double: bool) -> "HadamardOperator":
        """The operator on some pairs, with their masses; `double` sets double precision."""
        # Each factor gets a point for each pair, so that point i of both is that of pair i.
        left = self.left.sample(self.left_index[index], double=double)
        right = self.right.sample(self.right_index[index], double=double)
        return HadamardOperator(left, right, self.masses[index], left.index, right.index)

    @property
    def feature_dimension(self) -> int | None:
        """The product of the dimensions of both factors; None if one of them is infinite."""
        left, right = self.left.feature_dimension, self.right.feature_dimension
        if left is None or right is None:
            return None
        return left * right

    def features(self, rows: slice) -> Array:
        """All products of a left with a right feature, times the roots of the masses.

        K_X o K_T is the kernel matrix of phi_X (x) phi_T (Conditional Vendi, App. A.2, Prop. 1).
        """
        left = self.left.kernel.features(self.left.points_at(self.left_index[rows]))
        right = self.right.kernel.features(self.right.points_at(self.right_index[rows]))
        # The mass of a pair enters once, on the left.
        left = left * upload(np.sqrt(self.masses[rows]), left)[:, None]
        # Row by row the Kronecker product of both features.
        product = left[:, :, None] * right[:, None, :]
        shape = (left.shape[0], left.shape[1] * right.shape[1])
        return array_namespace(left).reshape(product, shape)
