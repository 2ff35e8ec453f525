"""Blocks of a factor's kernel matrix between pairs of items, which repeat its points."""

from collections.abc import Callable

import numpy as np

from divprism.core.arrays import Array, array_namespace, outer_take, upload
from divprism.core.operators.base import with_unit_diagonal
from divprism.core.operators.kernel import KernelOperator

__all__ = ["is_identity", "on_pairs", "spread"]

# Points whose kernel matrix is kept during a sweep: at most 128 MB.
_MAX_TABLE = 4096


def is_identity(index: np.ndarray, size: int) -> bool:
    """Whether `index` names each of `size` points once, in order."""
    return index.size == size and bool((index == np.arange(size)).all())


def spread(table: Array, index: np.ndarray) -> Array:
    """The kernel matrix between pairs, from that between points; not copied if they are equal."""
    if is_identity(index, table.shape[0]):
        return table
    return outer_take(table, upload(index, table))


def on_pairs(
    factor: KernelOperator, index: np.ndarray, *, repeated: bool = False
) -> Callable[[slice, slice], Array]:
    """A function (rows, columns) -> block of a factor's kernel matrix between pairs.

    With `repeated`, for many calls, the kernel matrix of a factor with few points is computed once
    and blocks are read from it.
    """
    if is_identity(index, factor.size):
        return factor.values
    # Worthwhile only if a point occurs in two pairs or more on average.
    if repeated and factor.size <= min(_MAX_TABLE, index.size // 2):
        return _from_table(factor.table(), index)
    points = factor.points_at(index)

    def values(rows: slice, columns: slice) -> Array:
        block = factor.kernel.block(points[rows], points[columns])
        return with_unit_diagonal(block, rows, columns)

    return values


def _from_table(table: Array, index: np.ndarray) -> Callable[[slice, slice], Array]:
    xp = array_namespace(table)
    positions = upload(index, table)

    def values(rows: slice, columns: slice) -> Array:
        band = xp.take(table, positions[rows], axis=0)
        return xp.take(band, positions[columns], axis=1)

    return values
