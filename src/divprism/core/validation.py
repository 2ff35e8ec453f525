"""Input validation: clean arrays and numbers from user input, or an error with a way out.

Each public function validates its arguments once; the functions below it trust them.
"""

import math
import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from array_api_compat import is_dask_array

from divprism.core.arrays import (
    Array,
    array_namespace,
    device_of,
    in_row_order,
    is_array_api_obj,
    is_numpy_array,
    is_torch_array,
    to_numpy,
    upload,
)
from divprism.core.tiles import row_blocks
from divprism.errors import ArgumentError, DataError

__all__ = [
    "MAX_QUALITY",
    "as_float",
    "as_numpy",
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
    "require_dense",
    "require_one_type",
    "text_ids",
    "whole_number",
]

MAX_QUALITY = 1e9
"""Larger qualities are refused: no product with a score, and no interval of it, may overflow."""

# Entries that are searched for NaN together.
_CHUNK_ENTRIES = 1 << 23
# The largest number of an embedding: a sum over a billion entries is still finite.
_LARGEST = 1e299

# How far the sum of weights may be from one: rounding in single precision.
_SUM_TOLERANCE = 1e-6

# Dtypes of torch with eight bits or fewer, quantized or not, that have next to no operations.
_NARROW_DTYPES = ("torch.float8", "torch.float4", "torch.q", "torch.bits")

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
_AMOUNT = re.compile(r"\s*([0-9]*\.?[0-9]+(?:e[0-9]+)?)\s*([kmgt]?i?b?)\s*")


def _count(number: int, noun: str) -> str:
    if number == 1:
        return f"{number:,} {noun}"
    return f"{number:,} {noun}s"


def _as_array(x: Any, name: str) -> Array:
    """`x` as an array of its own library; lists, data frames and the like become NumPy."""
    if isinstance(x, np.ma.MaskedArray) and np.ma.is_masked(x):
        raise DataError(f"`{name}` is a masked array with masked entries. Fill or drop them first.")
    if is_torch_array(x):
        require_dense(x, name)
        return x.detach()
    if is_array_api_obj(x) and not is_numpy_array(x):
        return x
    return as_numpy(x, name)


def as_numpy(x: Any, name: str) -> np.ndarray:
    """`x` as a plain NumPy array; a DataError for rows of different lengths."""
    try:
        # Subclasses of ndarray, such as matrices and memory maps, become plain arrays.
        return np.asarray(x)
    except ValueError as error:
        raise DataError(f"`{name}` is not a rectangular array: {_unevenness(x, error)}.") from None
    # Lists of tensors on a device, or of tensors that require gradients.
    except (TypeError, RuntimeError) as error:
        raise DataError(f"`{name}` cannot be converted to an array: {error}.") from None


def _unevenness(rows: Any, error: ValueError) -> str:
    """Why rows do not make an array: which is missing, or how their lengths differ."""
    lengths: dict[int, int] = {}
    for row, entries in enumerate(rows):
        if entries is None:
            return f"row {row} is missing"
        try:
            lengths.setdefault(len(entries), row)
        except TypeError:
            return f"row {row} is a {type(entries).__name__} beside rows of numbers"
    if len(lengths) < 2:
        return str(error).rstrip(".")
    (one, first), (other, second) = list(lengths.items())[:2]
    return f"row {first} has {_count(one, 'number')} and row {second} has {other:,}"


def require_dense(x: Any, name: str) -> None:
    """Raise DataError for a tensor of torch that is not a block of ordinary numbers."""
    if not is_torch_array(x):
        return
    # Most operations of torch fail on these, each with an error of its own.
    if x.is_nested:
        raise DataError(f"`{name}` is a nested tensor; items must all have the same shape.")
    if str(x.layout) != "torch.strided":
        raise DataError(
            f"`{name}` is a sparse tensor; scores need a dense one: call to_dense() first."
        )
    if x.is_meta:
        raise DataError(f"`{name}` is a meta tensor, which has a shape but no values.")
    if str(x.dtype).startswith(_NARROW_DTYPES):
        raise DataError(f"`{name}` has dtype {x.dtype}; convert it first: {name}.float().")


def clean_rows(x: Any, name: str) -> Array:
    """`x` as a finite floating-point array of shape (n, d), in its own library, on its own device.

    Floats of 16, 32 and 64 bits keep their dtype; integers and booleans become float64.

    Raises
    ------
    DataError
        If `x` is empty, not two-dimensional, not made of real numbers, or holds NaN or infinity.
    """
    if is_dask_array(x):
        raise DataError(
            f"`{name}` is a Dask array, which `evaluate` computes chunk by chunk; single scores "
            f"need `{name}.compute()`."
        )
    x = _as_array(x, name)
    xp = array_namespace(x)
    if is_numpy_array(x) and x.ndim == 1 and x.size and all(isinstance(v, str) for v in x.flat):
        raise DataError(
            f"`{name}` holds texts, and single scores are computed on vectors: call `evaluate`, "
            "which embeds them."
        )
    # NumPy has dtypes that the standard does not know: objects, text, dates.
    if is_numpy_array(x) and x.dtype.kind not in "fiub":
        hint = ""
        if x.dtype.kind in "OU":  # such as a list of texts with a None in it
            hint = " Texts must be a list of strings and nothing else."
        raise DataError(f"`{name}` must hold real numbers; got dtype {x.dtype}.{hint}")
    if xp.isdtype(x.dtype, "complex floating"):
        raise DataError(f"`{name}` must hold real numbers; got dtype {x.dtype}.")
    _require_matrix(x, name)
    if not xp.isdtype(x.dtype, "real floating"):
        # Integers are always finite.
        _require_double(x, name)
        return in_row_order(_exact_floats(x, name))
    if is_numpy_array(x):
        x = _native_floats(x)
    _require_finite(x, name)
    _require_double(x, name)
    return in_row_order(x)


def _exact_floats(x: Array, name: str) -> Array:
    """Integers or booleans as float64, or a DataError if some would be rounded: ids would merge."""
    xp = array_namespace(x)
    floats = xp.astype(x, xp.float64)
    # The largest integers have no float of their size, and come back as something else.
    with np.errstate(invalid="ignore"):
        rounded = np.flatnonzero(to_numpy(xp.any(xp.astype(floats, x.dtype) != x, axis=1)))
    if rounded.size:
        raise DataError(
            f"row {rounded[0]} of `{name}` holds a whole number beyond 2^53, which floating point "
            "rounds. Pass ids as a flat collection, or subtract a common number."
        )
    return floats


def _native_floats(x: np.ndarray) -> np.ndarray:
    """`x` in the byte order of this machine and at most 64 bits: libraries support no others."""
    if x.dtype.itemsize > 8:
        # What does not fit becomes infinite, and is reported as such.
        with np.errstate(over="ignore", invalid="ignore"):
            return x.astype(np.float64)
    if not x.dtype.isnative:
        return x.astype(x.dtype.newbyteorder("="))
    return x


def _require_matrix(x: Array, name: str) -> None:
    """Raise DataError unless `x` has two dimensions and is not empty."""
    if 0 in x.shape:
        raise DataError(
            f"`{name}` must have at least one row and one column; got shape {tuple(x.shape)}."
        )
    if x.ndim != 2:
        hint = "Flatten each item to one row."
        if x.ndim == 1:
            hint = f"For a single feature pass {name}[:, None]."
        raise DataError(
            f"`{name}` must have shape (n, d), a row per item; got shape {tuple(x.shape)}. {hint}"
        )


def _require_double(x: Array, name: str) -> None:
    """Raise DataError for a device without double precision (Apple's MPS), which spectra need."""
    xp = array_namespace(x)
    try:
        xp.zeros((1,), dtype=xp.float64, device=device_of(x))
    except (TypeError, RuntimeError):
        raise DataError(
            f"`{name}` is on device {device_of(x)}, which has no 64-bit floats; scores need them. "
            f"Move it: {name}.cpu()."
        ) from None


def _require_finite(x: Array, name: str) -> None:
    """Raise DataError if a row contains NaN, infinity or a number whose distances overflow."""
    xp = array_namespace(x)
    _require_rows(x, name, xp.isfinite, "NaN or infinity", "Scores need finite embeddings.")
    # Single precision is computed in double where it could overflow.
    if x.dtype == xp.float64:
        _require_rows(
            x,
            name,
            lambda block: xp.abs(block) <= _LARGEST,
            f"numbers beyond {_LARGEST:g}",
            "Distances between them overflow: divide all embeddings by the same large number.",
        )


def _require_rows(
    x: Array, name: str, test: Callable[[Array], Array], what: str, way_out: str
) -> None:
    """Raise DataError, with the number of the first, if some rows have entries that fail a test."""
    xp = array_namespace(x)
    n, d = x.shape
    bad: list[np.ndarray] = []
    # In pieces, so that a memory-mapped file is never loaded as a whole.
    for rows in row_blocks(n, max(1, _CHUNK_ENTRIES // d)):
        passed = test(x[rows, :])
        if not bool(xp.all(passed)):
            bad.append(rows.start + np.flatnonzero(~to_numpy(xp.all(passed, axis=1))))
    if bad:
        numbers = np.concatenate(bad)
        verb = "contain"
        if numbers.size == 1:
            verb = "contains"
        raise DataError(
            f"{numbers.size:,} of {_count(n, 'row')} of `{name}` {verb} {what} "
            f"(first: row {numbers[0]}). {way_out}"
        )


def clean_ids(t: Any, name: str) -> np.ndarray | None:
    """Group ids as codes 0..m-1 in order of appearance; None if `t` is not one-dimensional.

    Ids are integers, booleans or strings; equal ids mean the same prompt.

    >>> clean_ids(["dog", "cat", "dog"], "t").tolist()
    [0, 1, 0]
    """
    given = t
    t = _as_array(t, name)
    if t.ndim != 1:
        return None
    ids = to_numpy(t)
    if ids.size == 0:
        raise DataError(f"`{name}` is empty. Scores need at least one item.")
    texts = text_ids(given, ids, name)
    if texts is not None:
        numbers: dict[str, int] = {}
        return np.array([numbers.setdefault(text, len(numbers)) for text in texts])
    if ids.dtype.kind not in "iubU":
        raise DataError(
            f"`{name}` must hold group ids (integers or strings) when it is flat; "
            f"got dtype {ids.dtype}. For a single feature pass {name}[:, None]."
        )
    # np.unique sorts; codes follow the order of appearance instead.
    _, first, inverse = np.unique(ids, return_index=True, return_inverse=True)
    rank = np.empty(first.size, np.int64)
    rank[np.argsort(first)] = np.arange(first.size)
    return rank[inverse]


def text_ids(given: Any, ids: np.ndarray, name: str) -> list[str] | None:
    """Ids that are texts, as they were given; None for others. `ids` are the same as an array."""
    values: Sequence[Any] | np.ndarray = ids
    if isinstance(given, list | tuple):
        values = given
        require_one_type(given, ids, name)
    elif ids.dtype != object:
        return None
    # As they were given, because NumPy drops null characters at the end of a text.
    if all(isinstance(value, str) for value in values):
        return list(values)
    return None


def require_one_type(values: Any, array: Any, name: str) -> None:
    """Raise DataError if NumPy has turned numbers beside texts into texts: 1 would equal "1"."""
    if array.ndim != 1 or array.dtype.kind != "U":
        return
    is_text = [isinstance(value, str) for value in values]
    if not all(is_text):
        raise DataError(
            f"`{name}` mixes texts with other values (first: entry {is_text.index(False)}). Ids "
            "must all be texts, or all be whole numbers."
        )


def holds_text(t: Any) -> bool:
    """Whether a collection of ids is made of strings."""
    # Tensors hold no text, and one on a GPU does not convert to NumPy.
    return not is_torch_array(t) and np.asarray(t).dtype.kind in "UO"


def like(t: Array, x: Array, name: str) -> Array:
    """`t` in the library and on the device of `x`.

    A NumPy array is moved; any other mixture raises DataError, because a silent copy between
    devices is slow.
    """
    if is_numpy_array(t) and not is_numpy_array(x):
        return upload(t, x)
    if array_namespace(t) is not array_namespace(x) or device_of(t) != device_of(x):
        raise DataError(
            f"`x` and `{name}` must be in one array library and on one device; got "
            f"{type(x).__name__} on {device_of(x)} and {type(t).__name__} on {device_of(t)}."
        )
    return t


def check_pairing(n: int, m: int, name: str) -> None:
    """Raise DataError unless there are as many entries of `name` as outputs."""
    if n == m:
        return
    way_out = f"Give one entry of `{name}` per output."
    if name == "t":
        way_out = "Repeat a prompt once per output generated from it."
    noun = {"t": "prompt", "labels": "label"}.get(name, name)
    raise DataError(
        f"`x` and `{name}` must pair up row by row; "
        f"got {_count(n, 'output')} and {_count(m, noun)}. {way_out}"
    )


def as_float(value: Any) -> float:
    """`value` as a float; a TypeError for booleans and bytes, which float() takes."""
    if isinstance(value, bool | np.bool_ | bytes | bytearray):
        raise TypeError("not a number")
    return float(value)


def check_order(order: Any) -> float:
    """The order of the entropy as a positive float; math.inf and "inf" are equivalent.

    >>> check_order("inf"), check_order(2)
    (inf, 2.0)
    """
    try:
        value = as_float(order)
    except (OverflowError, TypeError, ValueError):
        raise ArgumentError(
            f"`order` must be a positive number (or math.inf); got {order!r}."
        ) from None
    # "not > 0" rather than "<= 0", so that NaN is rejected too.
    if not value > 0:
        raise ArgumentError(f"`order` must be positive (or math.inf); got {value:g}.")
    return value


def check_truncation(truncation: Any) -> int | None:
    """The number of eigenvalues to keep, at least one; None keeps all."""
    if truncation is None:
        return None
    is_whole = isinstance(truncation, int | np.integer)
    if isinstance(truncation, float):
        is_whole = truncation.is_integer()
    # A bool is an int in Python, but hardly ever meant as a number.
    if not is_whole or isinstance(truncation, bool) or truncation < 1:
        raise ArgumentError(
            "`truncation` must be a whole number of at least 1 (leave it out to keep all); "
            f"got {truncation!r}."
        )
    # No float holds an integer of 400 digits.
    if truncation >= 2**63:
        raise ArgumentError("`truncation` must be below 2^63; leave it out to keep all.")
    return int(truncation)


def check_memory(memory: Any) -> int | None:
    """A memory budget in bytes, from a number or a text such as "4 GB"; None for no budget."""
    if memory is None:
        return None
    amount = math.nan
    if not isinstance(memory, bool):
        amount = _parse_bytes(memory)
    if not 1 <= amount < math.inf:
        raise ArgumentError(
            f"`memory` must be a number of bytes, or a text such as '4 GB'; got {memory!r}."
        )
    return int(amount)


def _parse_bytes(memory: Any) -> float:
    """Bytes that a number or a text stands for; NaN if it is neither."""
    # Whole floats lose their ".0"; numbers and texts are then parsed alike.
    if isinstance(memory, float) and memory.is_integer():
        memory = int(memory)
    match = _AMOUNT.fullmatch(str(memory).lower())
    if match is None:
        return math.nan
    amount, unit = match.groups()
    # "4 G" means "4 GB".
    if unit and not unit.endswith("b"):
        unit += "b"
    return float(amount) * _UNITS.get(unit, math.nan)


def check_seed(rng: Any) -> int:
    """A seed that can be recorded: an integer as it is, or a number drawn from a Generator.

    >>> check_seed(7)
    7
    """
    # A result records its seed and can be repeated from it, which a Generator does not allow.
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
    bad = np.flatnonzero(~(values >= 0) | np.isinf(values))
    if bad.size:
        raise DataError(
            f"`weights` must be finite and not negative; entry {bad[0]} is {values[bad[0]]}."
        )
    total = math.fsum(values)
    if abs(total - 1) > _SUM_TOLERANCE:
        raise DataError(
            f"`weights` must sum to one; they sum to {total:.6g}. Divide them by their sum."
        )
    # Exactly one from here on: entropies assume a trace of one.
    return values / total


def check_quality(quality: Any, n: int) -> np.ndarray:
    """The quality of each of n outputs as a float64 array: from 0 to `MAX_QUALITY`."""
    values = to_numpy(_as_array(quality, "quality"))
    if values.dtype.kind not in "fiub":
        missing = [row for row, value in enumerate(values.flat) if value is None]
        problem = f"got dtype {values.dtype}"
        if missing:
            problem = f"entry {missing[0]} is missing"
        raise DataError(f"`quality` must hold a real number for each output; {problem}.")
    values = values.astype(np.float64)
    if values.shape != (n,):
        raise DataError(
            f"`quality` must have one number per output, shape ({n},); got shape {values.shape}."
        )
    bad = np.flatnonzero(~(values >= 0) | np.isinf(values))
    if bad.size:
        raise DataError(
            f"`quality` must be finite and not negative; entry {bad[0]} is {values[bad[0]]}. "
            "Shift or clip the numbers, or leave these outputs out."
        )
    large = np.flatnonzero(values > MAX_QUALITY)
    if large.size:
        raise DataError(
            f"`quality` must be at most {MAX_QUALITY:g}; entry {large[0]} is {values[large[0]]:g}. "
            "Divide all qualities by the same number."
        )
    return values


def whole_number(value: Any, name: str, least: int) -> int:
    """`value` as an int of at least `least`, or an ArgumentError that states the requirement."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise ArgumentError(f"`{name}` must be a whole number of at least {least}; got {value!r}.")
    return int(value)
