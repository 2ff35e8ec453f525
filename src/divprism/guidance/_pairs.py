"""What kernels are functions of, between two sets of rows: squared distances, cosines, unequal ids. And sums of rows.

Rows are read a block at a time and made ready in the precision that is asked for, so that half precision storage is never held
whole in another one. Results are in double precision whatever the rows are multiplied in.
"""

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import numpy as np

from divprism.core import distances
from divprism.core.arrays import Array, array_namespace
from divprism.core.kernels import Categorical, Cosine, Gaussian, Kernel
from divprism.core.tiles import row_blocks
from divprism.errors import ArgumentError, DataError

__all__ = [
    "Measure",
    "cosines",
    "inequalities",
    "measure_of",
    "similarities",
    "squared_distances",
    "weighted_sums",
]

Measure: TypeAlias = Callable[[Array, Array, Any], Array]
"""(a, b, dtype) -> an array of shape (len(a), len(b)), which a kernel is a function of."""

_BLOCK_ENTRIES = 1 << 22  # rows that are made ready together: 16 MB in single precision


def _blocks(rows: Array) -> Iterator[slice]:
    return row_blocks(rows.shape[0], max(1, _BLOCK_ENTRIES // rows.shape[1]))


def squared_distances(a: Array, b: Array, dtype: Any) -> Array:
    """|a_i - b_j|^2, exactly zero for equal rows; O(len(a) len(b) d)."""
    xp = array_namespace(b)
    left = xp.astype(a, dtype, copy=False)
    found = []
    with np.errstate(over="ignore", invalid="ignore"):  # what overflows is looked for below
        for rows in _blocks(b):
            right = xp.astype(b[rows, :], dtype, copy=False)
            squares, _ = distances.squared_distances(left, right)
            found.append(xp.astype(squares, xp.float64))
    squares = xp.concat(found, axis=1)
    if not bool(xp.all(xp.isfinite(squares))):
        raise DataError(
            f"squared distances between samples overflow {str(left.dtype).split('.')[-1]}. Rescale the samples."
        )
    return squares


def cosines(a: Array, b: Array, dtype: Any) -> Array:
    """Cosine of the angle between a_i and b_j; no row may be all zeros."""
    xp = array_namespace(b)
    left = Cosine().points(a, dtype, "x").rows
    found = [left @ Cosine().points(b[rows, :], dtype, "x").rows.T for rows in _blocks(b)]
    return xp.astype(xp.concat(found, axis=1), xp.float64)


def inequalities(a: Array, b: Array, dtype: Any) -> Array:
    """Zero where ids agree, one elsewhere: a distance of a kind. Ids are flat."""
    xp = array_namespace(b)
    return xp.astype(a[:, None] != b[None, :], xp.float64)


def measure_of(kernel: Any, rows: Array, name: str) -> Measure:
    """What a kernel is a function of, for rows of vectors or for flat ids."""
    known = (Gaussian, Cosine) if name == "kernel_x" else (Gaussian, Cosine, Categorical)
    if not isinstance(kernel, known):
        raise ArgumentError(
            f"`{name}` must be {' or '.join(kind.__name__ for kind in known)} in guidance; got {kernel!r}."
        )
    if isinstance(kernel, Categorical):
        return inequalities if rows.ndim == 1 else squared_distances
    if rows.ndim == 1:
        raise ArgumentError(f"`{name}` must be Categorical where prompts are ids; got {kernel!r}.")
    return squared_distances if isinstance(kernel, Gaussian) else cosines


def similarities(kernel: Kernel, measured: Array) -> Array:
    """Kernel values, from what the measure of the kernel gave."""
    xp = array_namespace(measured)
    if isinstance(kernel, Gaussian):
        with np.errstate(
            over="ignore"
        ):  # the square of a bandwidth may be none, and what is too far apart has no likeness
            return xp.exp(-0.5 * (measured / kernel.bandwidth / kernel.bandwidth))
    if isinstance(kernel, Categorical):
        return xp.astype(measured == 0, xp.float64)
    return measured


def weighted_sums(weights: Array, rows: Array, ready: Callable[[Array], Array]) -> Array:
    """sum_j weights_ij ready(row_j), shape (len(weights), d), with rows made ready a block at a time; O(len(weights) n d)."""
    found: Any = 0
    for block in _blocks(rows):
        found = found + weights[:, block] @ ready(rows[block, :])
    return found
