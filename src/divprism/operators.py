"""Lazy trace-one matrices: what the entropies are taken of, before anyone has computed them.

With point masses w (sum one) an operator is the matrix M = W^(1/2) K W^(1/2), W = diag(w). Equal items are merged beforehand
and their masses added: the non-zero spectrum stays the same (M = A A' and A' A share it) and the matrix shrinks to the number
of distinct items. So K_T costs the number of distinct prompts, not the number of pairs.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from divprism._arrays import Array, array_namespace, device_of, fill_diagonal, outer_take, to_numpy, upload
from divprism._blocks import row_blocks, upper_tiles
from divprism.errors import DataError
from divprism.kernels import Categorical, Kernel, Points, Precomputed

__all__ = [
    "HadamardOperator",
    "KernelOperator",
    "Operator",
    "dense",
    "require_definite",
    "require_positive",
    "second_moment",
    "squared_norms",
]


class Operator(ABC):
    """A trace-one positive semidefinite matrix W^(1/2) K W^(1/2), given by its kernel values and its point masses.

    `masses` (NumPy, one per point) sum to one, or to the share of the whole that a part of an operator holds.
    """

    masses: np.ndarray

    @property
    def size(self) -> int:
        """Number of distinct points."""
        return self.masses.size

    @property
    @abstractmethod
    def factors(self) -> tuple["KernelOperator", ...]:
        """The kernel operators whose values multiply to this one's."""

    @property
    @abstractmethod
    def noise(self) -> float:
        """Eigenvalues below this cannot be told from zero."""

    @abstractmethod
    def values(self, rows: slice, columns: slice) -> Array:
        """A block of K, without the masses."""

    @abstractmethod
    def combine(self, tables: Sequence[Array]) -> Array:
        """All of K, from the kernel matrices of `factors`."""

    def parts(self) -> Iterator["Operator"]:
        """Smaller operators whose direct sum this is; itself, unless a subclass knows better."""
        yield self

    @property
    @abstractmethod
    def feature_dimension(self) -> int | None:
        """Columns of `features`, or None where the kernel has no finite feature map."""

    @abstractmethod
    def features(self, rows: slice) -> Array:
        """Rows of F with M = F F', shape (len(rows), feature_dimension)."""

    @property
    def is_diagonal(self) -> bool:
        """Whether distinct points have nothing in common, so that the masses are the eigenvalues."""
        return self.size == 1

    def rows(self, rows: slice) -> Array:
        """A block of rows of M."""
        block = self.values(rows, slice(0, self.size))
        root = upload(np.sqrt(self.masses), block)
        return block * root[rows, None] * root[None, :]


@dataclass(frozen=True, eq=False)
class KernelOperator(Operator):
    """One kernel on weighted points.

    Attributes
    ----------
    kernel, points, masses
        The kernel, the distinct points and their masses.
    index : ndarray
        For each item of the data, the point that it is.
    name : str
        What messages call the data.
    """

    kernel: Kernel
    points: Points
    masses: np.ndarray
    index: np.ndarray
    name: str

    @classmethod
    def from_data(cls, kernel: Kernel, x: Array, weights: np.ndarray, *, dtype: Any, name: str) -> "KernelOperator":
        """Merge equal items of clean data `x` and make the rest ready for the kernel."""
        distinct, index = kernel.merge(x)
        masses = np.bincount(index, weights=weights, minlength=distinct.shape[0])
        return cls(kernel, kernel.points(distinct, dtype, name), masses, index, name)

    @property
    def factors(self) -> tuple["KernelOperator", ...]:
        """Itself."""
        return (self,)

    @property
    def noise(self) -> float:
        """The rounding error of its kernel values."""
        return self.points.noise

    def values(self, rows: slice, columns: slice) -> Array:
        """A block of the kernel matrix; ones, exactly, on the diagonal."""
        block = self.kernel.block(self.points[rows], self.points[columns])
        start, stop = max(rows.start, columns.start), min(rows.stop, columns.stop)
        if start < stop:
            block = fill_diagonal(block, start - rows.start, start - columns.start, stop - start)
        return block

    def table(self) -> Array:
        """The whole kernel matrix, half of it computed and half mirrored."""
        full: Array = None
        for rows in row_blocks(self.size, _PANEL):
            block = self.values(rows, slice(rows.start, self.size))
            if full is None:
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
        """Under Categorical, distinct points have nothing in common."""
        return self.size == 1 or isinstance(self.kernel, Categorical)

    def subset(self, places: np.ndarray, masses: np.ndarray) -> "KernelOperator":
        """The operator on some of the points, with masses of their own; its trace is their sum."""
        points = self.points.take(upload(places, self.points.rows))
        return KernelOperator(self.kernel, points, masses, np.arange(places.size), self.name)

    @property
    def feature_dimension(self) -> int | None:
        """That of the kernel."""
        return self.kernel.feature_dimension(self.points)

    def features(self, rows: slice) -> Array:
        """The kernel's features times the roots of the masses."""
        features = self.kernel.features(self.points[rows])
        return features * upload(np.sqrt(self.masses[rows]), features)[:, None]


_PANEL = 256  # rows computed at a time for a whole matrix: small enough that half of a small matrix is saved too


@dataclass(frozen=True, eq=False)
class HadamardOperator(Operator):
    """The entry-wise product of two kernel matrices over the same items: K_X o K_T (Conditional Vendi, eq. 5).

    Its points are the distinct pairs; `left_index` and `right_index` say which points of the factors each pair consists of.
    """

    left: KernelOperator
    right: KernelOperator
    masses: np.ndarray
    left_index: np.ndarray
    right_index: np.ndarray

    @classmethod
    def of(cls, left: KernelOperator, right: KernelOperator, weights: np.ndarray) -> "HadamardOperator":
        """Merge equal pairs of items of two operators over the same data."""
        codes = left.index * right.size + right.index
        pairs, index = np.unique(codes, return_inverse=True)
        masses = np.bincount(index, weights=weights, minlength=pairs.size)
        return cls(left, right, masses, pairs // right.size, pairs % right.size)

    @property
    def factors(self) -> tuple[KernelOperator, ...]:
        """Left and right."""
        return self.left, self.right

    @property
    def noise(self) -> float:
        """The rounding errors of both factors."""
        return self.left.noise + self.right.noise

    def values(self, rows: slice, columns: slice) -> Array:
        """A block of K_X o K_T."""
        return _on_pairs(self.left, self.left_index)(rows, columns) * _on_pairs(self.right, self.right_index)(rows, columns)

    def combine(self, tables: Sequence[Array]) -> Array:
        """Both matrices, repeated to the pairs, multiplied."""
        left, right = tables
        return _spread(left, self.left_index) * _spread(right, self.right_index)

    def groups(self) -> Iterator[KernelOperator]:
        """For a Categorical right factor: the left operator within each group, its trace the share of the group."""
        order = np.argsort(self.right_index, kind="stable")
        cuts = np.flatnonzero(np.diff(self.right_index[order])) + 1
        for members in np.split(order, cuts):
            yield self.left.subset(self.left_index[members], self.masses[members])

    def parts(self) -> Iterator[Operator]:
        """The groups, where a factor is Categorical: pairs of different groups have nothing in common."""
        if isinstance(self.right.kernel, Categorical):
            yield from self.groups()
        elif isinstance(self.left.kernel, Categorical):
            yield from HadamardOperator(self.right, self.left, self.masses, self.right_index, self.left_index).groups()
        else:
            yield self

    @property
    def feature_dimension(self) -> int | None:
        """The product of the factors' dimensions."""
        left, right = self.left.feature_dimension, self.right.feature_dimension
        return None if left is None or right is None else left * right

    def features(self, rows: slice) -> Array:
        """All products of a left with a right feature, times the roots of the masses.

        K_X o K_T is the kernel matrix of phi_X (x) phi_T (appendix of the first version of Conditional Vendi, Prop. 1).
        """
        left, right = (
            factor.kernel.features(factor.points.take(upload(index[rows], factor.points.rows)))
            for factor, index in ((self.left, self.left_index), (self.right, self.right_index))
        )
        left = left * upload(np.sqrt(self.masses[rows]), left)[:, None]
        product = left[:, :, None] * right[:, None, :]
        return array_namespace(left).reshape(product, (left.shape[0], left.shape[1] * right.shape[1]))


def _is_identity(index: np.ndarray, size: int) -> bool:
    return index.size == size and bool((index == np.arange(size)).all())


def _spread(table: Array, index: np.ndarray) -> Array:
    return outer_take(table, None if _is_identity(index, table.shape[0]) else upload(index, table))


def _on_pairs(factor: KernelOperator, index: np.ndarray, *, repeated: bool = False) -> Callable[[slice, slice], Array]:
    """Blocks of a factor's kernel matrix between pairs; with `repeated`, read off its small table rather than computed."""
    if _is_identity(index, factor.size):
        return factor.values
    if repeated and factor.size <= min(_MAX_TABLE, index.size // 2):
        table = factor.table()
        places = upload(index, table)
        take = array_namespace(table).take
        return lambda rows, columns: take(take(table, places[rows], axis=0), places[columns], axis=1)
    points = factor.points.take(upload(index, factor.points.rows))
    return lambda rows, columns: factor.kernel.block(points[rows], points[columns])


_MAX_TABLE = 4096  # points whose kernel matrix is kept while sweeping: at most 128 MB


def dense(operators: Sequence[Operator]) -> Iterator[Array]:
    """The matrices M of several operators, one after another; a kernel matrix that two of them need is computed once.

    A matrix may be overwritten by the caller: the factors of later operators are kept apart.
    """
    needed = [factor for operator in operators for factor in operator.factors]
    tables: dict[KernelOperator, Array] = {}
    for operator in operators:
        for factor in operator.factors:
            if factor not in tables:
                tables[factor] = factor.table()
        matrix = operator.combine([tables[factor] for factor in operator.factors])
        for factor in operator.factors:
            needed.remove(factor)
            if factor not in needed:
                del tables[factor]
        if any(matrix is table for table in tables.values()):
            matrix = array_namespace(matrix).asarray(matrix, copy=True)
        root = upload(np.sqrt(operator.masses), matrix)
        matrix *= root[:, None]
        matrix *= root[None, :]
        yield matrix


def squared_norms(operators: Sequence[Operator]) -> list[float]:
    """||M||_F^2 of each operator: all that order-2 entropies need (Conditional Vendi, eq. 4 and 11). No eigenvalue is computed.

    Summed in double precision over tiles of half the matrix. One sweep over pairs serves the product and both its factors,
    because sums over pairs, with the masses of pairs, are sums over points. O(n^2 d), or O(n d^2) where the kernel has d < n
    features; memory of a few tiles.
    """
    norms: dict[Operator, float] = {}
    for operator in operators:
        if isinstance(operator, HadamardOperator) and _must_sweep(operator):
            norms.update(_sweep_product(operator))
    for operator in operators:
        if operator not in norms:
            norms[operator] = sum(_part_norm(part) for part in operator.parts())
    return [norms[operator] for operator in operators]


def _must_sweep(operator: HadamardOperator) -> bool:
    split = any(isinstance(factor.kernel, Categorical) for factor in operator.factors)
    return not split and not _moment_is_cheaper(operator)


def _moment_is_cheaper(operator: Operator) -> bool:
    """Whether n D^2 products for F' F are fewer than the n^2 d / 2 for half of the kernel matrix."""
    dimension = operator.feature_dimension
    width = sum(factor.points.rows.shape[1] for factor in operator.factors if factor.points.rows.ndim == 2)
    return dimension is not None and 2 * dimension**2 < operator.size * width


def second_moment(operator: Operator) -> Array:
    """F' F, which shares its non-zero eigenvalues and its norm with F F'; F is made and used a block of rows at a time."""
    total: Array = None
    for rows in row_blocks(operator.size, max(1, _FEATURE_ENTRIES // (operator.feature_dimension or 1))):
        features = operator.features(rows)
        total = features.T @ features if total is None else total + features.T @ features
    return total


_FEATURE_ENTRIES = 1 << 22  # 32 MB of float64


def _part_norm(part: Operator) -> float:
    """||M||_F^2 of a connected operator, through its features if they are fewer than its points."""
    if part.is_diagonal:
        return float(part.masses @ part.masses)
    if _moment_is_cheaper(part):
        moment = second_moment(part)
        return float(array_namespace(moment).sum(moment * moment))
    total = 0.0
    for rows, columns in upper_tiles(part.size):
        block = part.values(rows, columns)
        total += (1 + (rows != columns)) * _weighted_sum(block * block, part.masses[rows], part.masses[columns])
    return total


def _sweep_product(operator: HadamardOperator) -> dict[Operator, float]:
    """Squared norms of a product and of its factors from the same tiles."""
    left_values = _on_pairs(operator.left, operator.left_index, repeated=True)
    right_values = _on_pairs(operator.right, operator.right_index, repeated=True)
    left_sum = right_sum = joint_sum = 0.0
    for rows, columns in upper_tiles(operator.size):
        twice = 1 + (rows != columns)
        masses = operator.masses[rows], operator.masses[columns]
        left, right = left_values(rows, columns), right_values(rows, columns)
        left, right = left * left, right * right
        left_sum += twice * _weighted_sum(left, *masses)
        right_sum += twice * _weighted_sum(right, *masses)
        joint_sum += twice * _weighted_sum(left * right, *masses)
    return {operator: joint_sum, operator.left: left_sum, operator.right: right_sum}


def _weighted_sum(block: Array, rows: np.ndarray, columns: np.ndarray) -> float:
    """rows' block columns; each row is added up in the precision of the block, the rows in double.

    Equal masses reach the block as exact ones: rounded to single precision, 1 / n would put all sums off by the same factor.
    """
    largest = columns.max()
    per_row = block @ array_namespace(block).astype(upload(columns / largest, block), block.dtype)
    return float(largest * (rows @ to_numpy(per_row).astype(np.float64)))


def require_definite(operator: KernelOperator) -> None:
    """Refuse a precomputed matrix with eigenvalues below zero, by a Cholesky factorisation: no eigenvalue is computed."""
    if not isinstance(operator.kernel, Precomputed):
        return
    assert operator.points.table is not None
    matrix = to_numpy(operator.points.table)
    largest = float(np.abs(matrix).sum(axis=0).max())  # an eigenvalue is at most the largest row sum
    slack = DEFINITE_TOLERANCE * largest + 2 * operator.noise * operator.size
    try:
        np.linalg.cholesky(matrix + slack * np.eye(operator.size))
    except np.linalg.LinAlgError:
        raise DataError(_indefinite(operator)) from None


def require_positive(operator: Operator, eigenvalues: np.ndarray) -> None:
    """Refuse a matrix of which an eigenvalue came out clearly below zero."""
    if eigenvalues.min() < -(DEFINITE_TOLERANCE * eigenvalues.max() + 2 * operator.noise * operator.masses.sum()):
        raise DataError(_indefinite(operator))


def _indefinite(operator: Operator) -> str:
    names = " o ".join(f"`{factor.name}`" for factor in operator.factors)
    return (
        f"{names} is not a kernel matrix: it has eigenvalues below zero (by more than {DEFINITE_TOLERANCE:g} of the largest). "
        "Was it made from a similarity that is not positive semidefinite?"
    )


DEFINITE_TOLERANCE = 1e-6
