"""The contract of an operator."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from divprism.core.arrays import Array, fill_diagonal, upload

if TYPE_CHECKING:
    from divprism.core.operators.kernel import KernelOperator

__all__ = ["Operator", "with_unit_diagonal"]


class Operator(ABC):
    """A trace-one positive semidefinite matrix W^(1/2) K W^(1/2): kernel values and point masses.

    `masses` (NumPy, one per point) sum to one, or for a part of an operator to its share.
    """

    masses: np.ndarray

    @property
    def size(self) -> int:
        """Number of distinct points."""
        return self.masses.size

    @property
    @abstractmethod
    def factors(self) -> tuple["KernelOperator", ...]:
        """The kernel operators whose values multiply to those of this operator."""

    @abstractmethod
    def indexed_factors(self) -> Iterator[tuple["KernelOperator", np.ndarray]]:
        """Each factor, and for every point of this operator the number of its point there."""

    @property
    @abstractmethod
    def noise(self) -> float:
        """Rounding error of the matrix: eigenvalues below it are treated as zero."""

    @abstractmethod
    def values(self, rows: slice, columns: slice) -> Array:
        """A block of K, without the masses."""

    @abstractmethod
    def combine(self, tables: Sequence[Array]) -> Array:
        """All of K, from the kernel matrices of `factors`."""

    def parts(self) -> Iterator["Operator"]:
        """Smaller operators whose direct sum this is; by default the operator as a whole."""
        yield self

    @property
    @abstractmethod
    def feature_dimension(self) -> int | None:
        """Columns of `features`, or None if the kernel has no finite feature map."""

    @abstractmethod
    def features(self, rows: slice) -> Array:
        """Rows of F with M = F F', shape (len(rows), feature_dimension)."""

    @abstractmethod
    def columns(self, index: np.ndarray) -> Callable[[slice], Array]:
        """A function rows -> K[rows][:, index], without the masses."""

    @abstractmethod
    def sample(self, index: np.ndarray, *, double: bool) -> "Operator":
        """The operator on some points, with their masses; `double` sets double precision."""

    @property
    def is_diagonal(self) -> bool:
        """Whether distinct points have similarity zero, so that the masses are the eigenvalues."""
        return self.size == 1

    def rows(self, rows: slice) -> Array:
        """A block of rows of M."""
        block = self.values(rows, slice(0, self.size))
        root = upload(np.sqrt(self.masses), block)
        return block * root[rows, None] * root[None, :]


def with_unit_diagonal(block: Array, rows: slice, columns: slice) -> Array:
    """A block of a kernel matrix with exact ones on the diagonal, which rounding may miss."""
    # Where the diagonal of the whole matrix crosses this block.
    start, stop = max(rows.start, columns.start), min(rows.stop, columns.stop)
    if start >= stop:
        return block
    return fill_diagonal(block, start - rows.start, start - columns.start, stop - start)
