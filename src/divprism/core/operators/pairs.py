"""Blocks of a factor's kernel matrix between pairs of items, which repeat its points."""

import numpy as np

from divprism.core.arrays import Array, outer_take, upload
from divprism.core.operators.blocks import PointBlocks, TableBlocks
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
) -> PointBlocks | TableBlocks:
    """Blocks of a factor's kernel matrix between pairs.

    With `repeated`, for many calls, the kernel matrix of a factor with few points is computed once
    and blocks are read from it.
    """
    if is_identity(index, factor.size):
        return factor.blocks
    # Worthwhile only if a point occurs in two pairs or more on average.
    if repeated and factor.size <= min(_MAX_TABLE, index.size // 2):
        table = factor.table()
        return TableBlocks(table, upload(index, table))
    return PointBlocks(factor.kernel, factor.points_at(index))
