"""Lazy trace-one matrices: what the entropies are taken of, before anyone has computed them.

With point masses w (sum one) an operator is the matrix M = W^(1/2) K W^(1/2), W = diag(w). Equal items are merged beforehand
and their masses added: the non-zero spectrum stays the same (M = A A' and A' A share it) and the matrix shrinks to the number
of distinct items. So K_T costs the number of distinct prompts, not the number of pairs.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import Any

import numpy as np

from divprism.core.arrays import (
    Array,
    array_namespace,
    device_of,
    fill_diagonal,
    outer_take,
    to_numpy,
    upload,
)
from divprism.core.kernels import Categorical, Kernel, Points, Precomputed
from divprism.core.tiles import row_blocks
from divprism.errors import DataError

__all__ = [
    "HadamardOperator",
    "KernelOperator",
    "Operator",
    "dense",
    "in_single",
    "is_identity",
    "on_pairs",
    "require_definite",
    "require_positive",
    "second_moment",
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

    @abstractmethod
    def columns(self, places: np.ndarray) -> Callable[[slice], Array]:
        """rows -> K[rows][:, places], without the masses."""

    @abstractmethod
    def sample(self, places: np.ndarray, *, double: bool) -> "Operator":
        """The operator on some of the points, with the masses they have; `double` computes on them in double precision."""

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
    kernel, masses
        The kernel, and the masses of the distinct points.
    index : ndarray
        For each item of the data, the point that it is.
    name : str
        What messages call the data.
    width : int
        Columns of the data.
    dtype, single : data type
        Precision of the kernel values, and what the array library calls single precision.
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
        """Merge equal items of clean data `x`; the rest is made ready for the kernel when a block is first asked for."""
        distinct, index = kernel.merge(x)
        masses = np.bincount(index, weights=weights, minlength=distinct.shape[0])
        prepare = cache(lambda dtype: kernel.points(distinct, dtype, name))
        return cls(
            kernel, masses, index, name, x.shape[1], dtype, array_namespace(x).float32, prepare
        )

    @classmethod
    def from_file(
        cls, kernel: Kernel, x: np.ndarray, weights: np.ndarray, *, dtype: Any, name: str
    ) -> "KernelOperator":
        """The same for a memory-mapped array that is not to be loaded: rows are read as blocks ask for them.

        Equal items are not merged: that would take a copy.
        """
        prepare = cache(lambda dtype: kernel.stored_points(x, dtype, name))
        return cls(
            kernel, weights, np.arange(x.shape[0]), name, x.shape[1], dtype, np.float32, prepare
        )

    @cached_property
    def points(self) -> Points:
        """The points, in the precision of the operator."""
        return self.prepare(self.dtype)

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
        return _pinned(self.kernel.block(self.points[rows], self.points[columns]), rows, columns)

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

        def prepare(dtype: Any) -> Points:
            points = self.prepare(dtype)
            return points.take(upload(places, points.rows))

        return replace(self, masses=masses, index=np.arange(places.size), prepare=prepare)

    def columns(self, places: np.ndarray) -> Callable[[slice], Array]:
        """Kernel values with some of the points."""
        chosen = self.points.take(upload(places, self.points.rows))
        return lambda rows: self.kernel.block(self.points[rows], chosen)

    def sample(self, places: np.ndarray, *, double: bool) -> "KernelOperator":
        """The operator on some of the points."""
        points = self.points.take(upload(places, self.points.rows))
        points = points.double() if double else points
        return replace(
            self,
            masses=self.masses[places],
            index=np.arange(places.size),
            prepare=lambda dtype: points,
        )

    @property
    def feature_dimension(self) -> int | None:
        """That of the kernel."""
        return self.kernel.feature_dimension(self.width)

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
    def of(
        cls, left: KernelOperator, right: KernelOperator, weights: np.ndarray
    ) -> "HadamardOperator":
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
        return on_pairs(self.left, self.left_index)(rows, columns) * on_pairs(
            self.right, self.right_index
        )(rows, columns)

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
            yield from HadamardOperator(
                self.right, self.left, self.masses, self.right_index, self.left_index
            ).groups()
        else:
            yield self

    def columns(self, places: np.ndarray) -> Callable[[slice], Array]:
        """Products of kernel values with some of the pairs."""

        def side(factor: KernelOperator, index: np.ndarray) -> Callable[[slice], Array]:
            chosen = factor.points.take(upload(index[places], factor.points.rows))
            return lambda rows: factor.kernel.block(
                factor.points.take(upload(index[rows], factor.points.rows)), chosen
            )

        left, right = side(self.left, self.left_index), side(self.right, self.right_index)
        return lambda rows: left(rows) * right(rows)

    def sample(self, places: np.ndarray, *, double: bool) -> "HadamardOperator":
        """The operator on some of the pairs."""
        left = self.left.sample(self.left_index[places], double=double)
        right = self.right.sample(self.right_index[places], double=double)
        return HadamardOperator(left, right, self.masses[places], left.index, right.index)

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
        return array_namespace(left).reshape(
            product, (left.shape[0], left.shape[1] * right.shape[1])
        )


def in_single(operators: Sequence[Operator]) -> list[Operator]:
    """The same operators with kernel values in single precision; factors that they share stay shared."""
    factors: dict[KernelOperator, KernelOperator] = {}

    def single(factor: KernelOperator) -> KernelOperator:
        if factor not in factors:
            factors[factor] = replace(factor, dtype=factor.single)
        return factors[factor]

    return [
        replace(o, left=single(o.left), right=single(o.right))
        if isinstance(o, HadamardOperator)
        else single(o.factors[0])
        for o in operators
    ]


def is_identity(index: np.ndarray, size: int) -> bool:
    """Whether `index` names all of `size` points once, in order."""
    return index.size == size and bool((index == np.arange(size)).all())


def _spread(table: Array, index: np.ndarray) -> Array:
    return outer_take(table, None if is_identity(index, table.shape[0]) else upload(index, table))


def on_pairs(
    factor: KernelOperator, index: np.ndarray, *, repeated: bool = False
) -> Callable[[slice, slice], Array]:
    """Blocks of a factor's kernel matrix between pairs; with `repeated`, read off its small table rather than computed."""
    if is_identity(index, factor.size):
        return factor.values
    if repeated and factor.size <= min(_MAX_TABLE, index.size // 2):
        table = factor.table()
        places = upload(index, table)
        take = array_namespace(table).take
        return lambda rows, columns: take(
            take(table, places[rows], axis=0), places[columns], axis=1
        )
    points = factor.points.take(upload(index, factor.points.rows))

    def values(rows: slice, columns: slice) -> Array:
        return _pinned(factor.kernel.block(points[rows], points[columns]), rows, columns)

    return values


def _pinned(block: Array, rows: slice, columns: slice) -> Array:
    """A block of a kernel matrix with ones, exactly, on the diagonal."""
    start, stop = max(rows.start, columns.start), min(rows.stop, columns.stop)
    return (
        fill_diagonal(block, start - rows.start, start - columns.start, stop - start)
        if start < stop
        else block
    )


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


def second_moment(operator: Operator) -> Array:
    """F' F, which shares its non-zero eigenvalues and its norm with F F'; F is made and used a block of rows at a time."""
    total: Array = None
    for rows in row_blocks(
        operator.size, max(1, _FEATURE_ENTRIES // (operator.feature_dimension or 1))
    ):
        features = operator.features(rows)
        total = features.T @ features if total is None else total + features.T @ features
    return total


_FEATURE_ENTRIES = 1 << 22  # 32 MB of float64


def require_definite(operator: KernelOperator) -> None:
    """Refuse a precomputed matrix with eigenvalues below zero, by a Cholesky factorisation: no eigenvalue is computed."""
    if not isinstance(operator.kernel, Precomputed):
        return
    assert operator.points.table is not None
    matrix = to_numpy(operator.points.table)
    largest = float(
        np.abs(matrix).sum(axis=0).max()
    )  # an eigenvalue is at most the largest row sum
    slack = DEFINITE_TOLERANCE * largest + 2 * operator.noise * operator.size
    try:
        np.linalg.cholesky(matrix + slack * np.eye(operator.size))
    except np.linalg.LinAlgError:
        raise DataError(_indefinite(operator)) from None


def require_positive(operator: Operator, eigenvalues: np.ndarray) -> None:
    """Refuse a matrix of which an eigenvalue came out clearly below zero."""
    if eigenvalues.min() < -(
        DEFINITE_TOLERANCE * eigenvalues.max() + 2 * operator.noise * operator.masses.sum()
    ):
        raise DataError(_indefinite(operator))


def _indefinite(operator: Operator) -> str:
    names = " o ".join(f"`{factor.name}`" for factor in operator.factors)
    return (
        f"{names} is not a kernel matrix: it has eigenvalues below zero (by more than {DEFINITE_TOLERANCE:g} of the largest). "
        "Was it made from a similarity that is not positive semidefinite?"
    )


DEFINITE_TOLERANCE = 1e-6
