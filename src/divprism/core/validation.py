"""User input at the door: clean arrays and numbers, or one sentence that says what is wrong and what to do.

Below the door nothing is checked again.
"""

import math
import re
from typing import Any

import numpy as np

from divprism.core.arrays import (
    Array,
    array_namespace,
    device_of,
    is_array_api_obj,
    is_numpy_array,
    is_torch_array,
    to_numpy,
    upload,
)
from divprism.core.tiles import row_blocks
from divprism.errors import ArgumentError, DataError

__all__ = [
    "check_memory",
    "check_order",
    "check_pairing",
    "check_seed",
    "check_truncation",
    "check_weights",
    "clean_ids",
    "clean_rows",
    "holds_text",
    "like",
    "whole_number",
]

_CHUNK_ENTRIES = 1 << 23
_SUM_TOLERANCE = 1e-6


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def _as_array(x: Any, name: str) -> Array:
    """`x` as an array of its own library; lists, data frames and the like become NumPy."""
    if isinstance(x, np.ma.MaskedArray) and np.ma.is_masked(x):
        raise DataError(f"`{name}` is a masked array with masked entries. Fill or drop them first.")
    if is_torch_array(x):
        if str(x.layout) != "torch.strided":
            raise DataError(
                f"`{name}` is a sparse tensor; scores need a dense one: call to_dense() first."
            )
        return x.detach()
    if is_array_api_obj(x):
        return np.asarray(x) if is_numpy_array(x) else x
    try:
        return np.asarray(x)
    except ValueError as error:  # rows of different lengths
        raise DataError(f"`{name}` is not a rectangular array: {error}.") from None


def clean_rows(x: Any, name: str) -> Array:
    """`x` as a finite floating-point array of shape (n, d), in its own library, on its own device.

    Floats of 16, 32 and 64 bits keep their dtype; integers and booleans become float64.

    Raises
    ------
    DataError
        If `x` is empty, not two-dimensional, not made of real numbers, or holds NaN or infinity.
    """
    x = _as_array(x, name)
    xp = array_namespace(x)
    if is_numpy_array(x) and x.dtype.kind not in "fiub":
        raise DataError(f"`{name}` must hold real numbers; got dtype {x.dtype}.")
    if xp.isdtype(x.dtype, "complex floating"):
        raise DataError(f"`{name}` must hold real numbers; got dtype {x.dtype}.")
    if x.ndim != 2:
        hint = (
            f" For a single feature pass {name}[:, None]."
            if x.ndim == 1
            else " Flatten each item to one row."
        )
        raise DataError(
            f"`{name}` must have shape (n, d), a row per item; got shape {tuple(x.shape)}.{hint}"
        )
    n, d = x.shape
    if n == 0 or d == 0:
        raise DataError(
            f"`{name}` is empty: its shape is {tuple(x.shape)}. Scores need at least one row and one column."
        )
    if not xp.isdtype(x.dtype, "real floating"):
        _require_double(x, name)
        return xp.astype(x, xp.float64)
    if is_numpy_array(x) and (x.dtype.itemsize > 8 or not x.dtype.isnative):
        x = x.astype(np.float64 if x.dtype.itemsize > 8 else x.dtype.newbyteorder("="))
    _require_finite(x, name)
    _require_double(x, name)
    return x


def _require_double(x: Array, name: str) -> None:
    """Spectra are computed in double precision; a device without it (Apple's MPS) is refused with the way out."""
    xp = array_namespace(x)
    try:
        xp.zeros((1,), dtype=xp.float64, device=device_of(x))
    except (TypeError, RuntimeError):
        raise DataError(
            f"`{name}` is on device {device_of(x)}, which has no 64-bit floats; scores need them. Move it: {name}.cpu()."
        ) from None


def _require_finite(x: Array, name: str) -> None:
    """Look for NaN and infinity in pieces, so that a memory-mapped file is never held whole."""
    xp = array_namespace(x)
    n, d = x.shape
    step = max(1, _CHUNK_ENTRIES // d)
    bad: list[np.ndarray] = []
    for rows in row_blocks(n, step):
        fine = xp.isfinite(x[rows, :])
        if not bool(xp.all(fine)):
            bad.append(rows.start + np.flatnonzero(~to_numpy(xp.all(fine, axis=1))))
    if bad:
        places = np.concatenate(bad)
        verb = "contains" if places.size == 1 else "contain"
        raise DataError(
            f"{places.size:,} of {_count(n, 'row')} of `{name}` {verb} NaN or infinity (first: row {places[0]}). "
            "Scores need finite embeddings."
        )


def clean_ids(t: Any, name: str) -> np.ndarray | None:
    """Group ids as codes 0..m-1 in order of appearance, or None if `t` is not a flat collection of ids.

    Ids are integers, booleans or strings; equal ids mean the same prompt.

    >>> clean_ids(["dog", "cat", "dog"], "t").tolist()
    [0, 1, 0]
    """
    t = _as_array(t, name)
    if t.ndim != 1:
        return None
    ids = to_numpy(t)
    if ids.size == 0:
        raise DataError(f"`{name}` is empty. Scores need at least one item.")
    if ids.dtype == object and all(isinstance(value, str) for value in ids):
        ids = ids.astype(str)
    if ids.dtype.kind not in "iubU":
        raise DataError(
            f"`{name}` must hold group ids (integers or strings) when it is flat; got dtype {ids.dtype}. "
            f"For a single feature pass {name}[:, None]."
        )
    _, first, inverse = np.unique(ids, return_index=True, return_inverse=True)
    rank = np.empty(first.size, np.int64)
    rank[np.argsort(first)] = np.arange(first.size)
    return rank[inverse]


def holds_text(t: Any) -> bool:
    """Whether a collection of ids is made of strings."""
    return not is_torch_array(t) and np.asarray(t).dtype.kind in "UO"


def like(t: Array, x: Array, name: str) -> Array:
    """`t` in the library and on the device of `x`; a NumPy array is moved, any other mixture refused."""
    if is_numpy_array(t) and not is_numpy_array(x):
        return upload(t, x)
    if array_namespace(t) is not array_namespace(x) or device_of(t) != device_of(x):
        raise DataError(
            f"`x` and `{name}` must live in one array library and on one device; got "
            f"{type(x).__name__} on {device_of(x)} and {type(t).__name__} on {device_of(t)}."
        )
    return t


def check_pairing(n: int, m: int, name: str) -> None:
    """Refuse outputs and prompts of different number."""
    if n != m:
        way_out = (
            "Repeat a prompt once per output drawn under it."
            if name == "t"
            else f"Give one entry of `{name}` per output."
        )
        noun = {"t": "prompt", "labels": "label"}.get(name, name)
        raise DataError(
            f"`x` and `{name}` must pair up row by row; got {_count(n, 'output')} and {_count(m, noun)}. {way_out}"
        )


def check_order(order: Any) -> float:
    """The order of the entropy as a positive float; math.inf and "inf" alike.

    >>> check_order("inf"), check_order(2)
    (inf, 2.0)
    """
    try:
        value = float(order)
    except (TypeError, ValueError):
        raise ArgumentError(
            f"`order` must be a positive number (or math.inf); got {order!r}."
        ) from None
    if not value > 0:
        raise ArgumentError(f"`order` must be positive (or math.inf); got {value:g}.")
    return value


def check_truncation(truncation: Any) -> int | None:
    """The number of eigenvalues to keep, at least one; None keeps all."""
    if truncation is None:
        return None
    whole = isinstance(truncation, int | np.integer) or (
        isinstance(truncation, float) and truncation.is_integer()
    )
    if not whole or isinstance(truncation, bool) or truncation < 1:
        raise ArgumentError(
            f"`truncation` must be a whole number of at least 1, or None to keep all; got {truncation!r}."
        )
    return int(truncation)


_UNITS = {
    "": 1,
    "b": 1,
    "kb": 1e3,
    "mb": 1e6,
    "gb": 1e9,
    "tb": 1e12,
    "kib": 2**10,
    "mib": 2**20,
    "gib": 2**30,
    "tib": 2**40,
}


def check_memory(memory: Any) -> int | None:
    """A memory budget in bytes, from a number of bytes or a text such as "4 GB"; None for none."""
    if memory is None:
        return None
    if isinstance(memory, float) and memory.is_integer():
        memory = int(memory)
    match = re.fullmatch(
        r"\s*([0-9]*\.?[0-9]+(?:e[0-9]+)?)\s*([kmgt]?i?b?)\s*", str(memory).lower()
    )
    factor = (
        None
        if match is None
        else _UNITS.get(match[2] if match[2].endswith("b") or not match[2] else match[2] + "b")
    )
    if (
        isinstance(memory, bool)
        or match is None
        or factor is None
        or not 1 <= float(match[1]) * factor < math.inf
    ):
        raise ArgumentError(
            f"`memory` must be a number of bytes, or a text such as '4 GB'; got {memory!r}."
        )
    return int(float(match[1]) * factor)


def check_seed(rng: Any) -> int:
    """A seed that can be written down: an integer as it is, a Generator by one draw from it.

    >>> check_seed(7)
    7
    """
    if isinstance(rng, np.random.Generator):
        return int(rng.integers(2**63))
    if isinstance(rng, int | np.integer) and not isinstance(rng, bool) and rng >= 0:
        return int(rng)
    raise ArgumentError(
        f"`rng` must be a non-negative integer or a numpy.random.Generator; got {rng!r}."
    )


def check_weights(weights: Any, n: int) -> np.ndarray:
    """Sample weights as a float64 array of length n that sums to one; None means equal weights."""
    if weights is None:
        return np.full(n, 1.0 / n)
    values = to_numpy(_as_array(weights, "weights"))
    if values.dtype.kind not in "fiub":
        raise DataError(f"`weights` must hold real numbers; got dtype {values.dtype}.")
    values = values.astype(np.float64)
    if values.shape != (n,):
        raise DataError(
            f"`weights` must have one entry per output, shape ({n},); got shape {values.shape}."
        )
    if not np.isfinite(values).all() or (values < 0).any():
        first = int(np.flatnonzero(~(values >= 0) | np.isinf(values))[0])
        raise DataError(
            f"`weights` must be finite and not negative; entry {first} is {values[first]}."
        )
    total = math.fsum(values)
    if abs(total - 1) > _SUM_TOLERANCE:
        raise DataError(
            f"`weights` must sum to one; they sum to {total:.6g}. Divide them by their sum."
        )
    return values / total


def whole_number(value: Any, name: str, least: int) -> int:
    """A setting as an int of at least `least`, or a sentence."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise ArgumentError(f"`{name}` must be a whole number of at least {least}; got {value!r}.")
    return int(value)
