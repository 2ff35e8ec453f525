"""Measures between two sets of rows, which kernels are functions of, and weighted sums of rows.

Rows are converted to the working precision a block at a time, so that half-precision storage never
exists whole in a second precision. Results are double whatever the working precision is.
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
    "DType",
    "Measure",
    "cosines",
    "inequalities",
    "measure_of",
    "similarities",
    "squared_distances",
    "weighted_sums",
]

DType: TypeAlias = Any
"""A dtype of the array library at hand."""

Measure: TypeAlias = Callable[[Array, Array, DType], Array]
"""(a, b, dtype) -> an array of shape (len(a), len(b)); `dtype` is the working precision."""

_BLOCK_ENTRIES = 1 << 22  # numbers in the rows converted together: 16 MB in single precision


def _blocks(rows: Array) -> Iterator[slice]:
    return row_blocks(rows.shape[0], max(1, _BLOCK_ENTRIES // rows.shape[1]))


def squared_distances(a: Array, b: Array, dtype: DType) -> Array:
    """|a_i - b_j|^2, exactly zero for equal rows; O(len(a) len(b) d)."""
    xp = array_namespace(b)
    left = xp.astype(a, dtype, copy=False)
    blocks = []
    # Overflow leaves infinities or NaN, which are reported below with a way out.
    with np.errstate(over="ignore", invalid="ignore"):
        for rows in _blocks(b):
            right = xp.astype(b[rows, :], dtype, copy=False)
            block, _ = distances.squared_distances(left, right)
            blocks.append(xp.astype(block, xp.float64))
    squares = xp.concat(blocks, axis=1)
    if not bool(xp.all(xp.isfinite(squares))):
        dtype_name = str(left.dtype).split(".")[-1]
        raise DataError(
            f"squared distances between samples overflow {dtype_name}. Rescale the samples."
        )
    return squares


def cosines(a: Array, b: Array, dtype: DType) -> Array:
    """Cosine of the angle between a_i and b_j; rows of zeros have none."""
    xp = array_namespace(b)
    left = Cosine().points(a, dtype, "x").rows
    blocks = []
    for rows in _blocks(b):
        right = Cosine().points(b[rows, :], dtype, "x").rows
        blocks.append(left @ right.T)
    return xp.astype(xp.concat(blocks, axis=1), xp.float64)


def inequalities(a: Array, b: Array, dtype: DType) -> Array:
    """Zero where flat ids are equal and one elsewhere: the discrete metric."""
    xp = array_namespace(b)
    return xp.astype(a[:, None] != b[None, :], xp.float64)


def measure_of(kernel: Kernel, rows: Array, name: str) -> Measure:
    """Return the measure of which a kernel is a function, for rows of vectors or for flat ids."""
    accepted: tuple[type[Kernel], ...] = (Gaussian, Cosine, Categorical)
    if name == "kernel_x":
        # The gradient in the samples needs a differentiable kernel.
        accepted = (Gaussian, Cosine)
    if not isinstance(kernel, accepted):
        names = " or ".join(kind.__name__ for kind in accepted)
        raise ArgumentError(f"`{name}` must be {names} in guidance; got {kernel!r}.")
    is_flat = rows.ndim == 1
    if isinstance(kernel, Categorical):
        if is_flat:
            return inequalities
        # Equal embeddings are exactly zero apart, so distances find equal prompts too.
        return squared_distances
    if is_flat:
        raise ArgumentError(f"`{name}` must be Categorical where prompts are ids; got {kernel!r}.")
    if isinstance(kernel, Gaussian):
        return squared_distances
    return cosines


def similarities(kernel: Kernel, measured: Array) -> Array:
    """Return kernel values from the values of the kernel's measure."""
    xp = array_namespace(measured)
    if isinstance(kernel, Gaussian):
        # The bandwidth divides twice because its square may underflow or overflow. A quotient that
        # overflows gives a kernel value of zero, as it should.
        with np.errstate(over="ignore"):
            return xp.exp(-0.5 * (measured / kernel.bandwidth / kernel.bandwidth))
    if isinstance(kernel, Categorical):
        return xp.astype(measured == 0, xp.float64)
    return measured


def weighted_sums(weights: Array, rows: Array, prepared: Callable[[Array], Array]) -> Array:
    """sum_j weights_ij prepared(row_j), shape (len(weights), d), in O(len(weights) n d).

    Rows are prepared a block at a time.
    """
    sums: Array = 0
    for block in _blocks(rows):
        sums = sums + weights[:, block] @ prepared(rows[block, :])
    return sums
