"""Arrays of a ring buffer: growing them, moving them, and finding the rows that changed."""

from collections.abc import Callable
from typing import TypeVar

import numpy as np

from divprism.core.arrays import Array, array_namespace, device_of, to_numpy, upload
from divprism.core.tiles import row_blocks
from divprism.errors import DataError

__all__ = ["extended", "map_optional", "moved", "runs"]

_TABLE_ROWS = 256  # rows of a table that are computed together

_T = TypeVar("_T")


def map_optional(change: Callable[[Array], _T], a: Array) -> _T | None:
    """Apply a function to an array, and pass None through: not every bank has prompts."""
    if a is None:
        return None
    return change(a)


def extended(a: Array, more: int) -> Array:
    """Append `more` rows of zeros."""
    xp = array_namespace(a)
    return xp.concat([a, xp.zeros((more, *a.shape[1:]), dtype=a.dtype, device=device_of(a))])


def moved(a: Array, other: Array, dtype: str) -> Array:
    """Copy `a` to the library and the device of another array; floats in a dtype that it has."""
    xp = array_namespace(other)
    if array_namespace(a) is xp and device_of(a) == device_of(other):
        return a
    host = to_numpy(a)
    # The array API standard has no half precision, but merging converts to the bank's dtype anyway.
    if host.dtype.kind == "f" and not hasattr(xp, str(host.dtype)):
        host = host.astype(dtype)
    if not hasattr(xp, str(host.dtype)):
        raise DataError(f"{xp.__name__} has no {host.dtype}. Create the bank with dtype='float32'.")
    return upload(host, other)


def runs(indices: np.ndarray) -> list[slice]:
    """Group increasing indices into slices of neighbours, none longer than `_TABLE_ROWS`."""
    if not indices.size:
        return []
    breaks = np.flatnonzero(np.diff(indices) > 1) + 1
    slices = []
    for run in np.split(indices, breaks):
        start = int(run[0])
        for block in row_blocks(run.size, _TABLE_ROWS):
            slices.append(slice(start + block.start, start + block.stop))
    return slices
