"""Arrays from .safetensors files: the package checks the header, plain reads fetch the values.

The package maps the file, and a mapped file that is cut while it is in use ends the process.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from divprism.data.files import open_file
from divprism.data.readers.guards import parse_json
from divprism.data.readers.npy import Header, read_values
from divprism.data.wording import first_line
from divprism.errors import DataError, MissingExtraError

__all__ = ["read_tensor", "tensor_names"]

_MAX_HEADER = 10 << 20  # bytes: a hundred thousand arrays
_LENGTH = 8  # bytes of the length of the header
_DTYPES = {
    "F64": "<f8",
    "F32": "<f4",
    "F16": "<f2",
    "BOOL": "|b1",
    "I64": "<i8",
    "I32": "<i4",
    "I16": "<i2",
    "I8": "|i1",
    "U64": "<u8",
    "U32": "<u4",
    "U16": "<u2",
    "U8": "|u1",
}


def tensor_names(path: Path, name: str) -> list[str]:
    """Return the names of the arrays in a file, after its header has been checked."""
    with _open_tensors(path, name) as tensors:
        return list(tensors.keys())


def read_tensor(path: Path, chosen: str, name: str) -> np.ndarray:
    """Return one array of a file whose header has been checked.

    Parameters
    ----------
    path : Path
        The file.
    chosen : str
        The name of the array.
    name : str
        The name of the file in messages.
    """
    try:
        with open_file(path, name) as file:
            content = file.read(_header_length(file, name))
            start = file.tell()
            entry = parse_json(content.decode("utf-8", "replace"), f"the header of {name}")[chosen]
            header = _header(entry, start, name)
            file.seek(header.offset)
            return read_values(file, header, name)
    except OSError as error:
        raise DataError(f"cannot read {name}: {error.strerror}.") from None
    except DataError:
        raise
    # Only if the file was replaced after its header was checked.
    except (LookupError, TypeError, ValueError, OverflowError, MemoryError) as error:
        raise DataError(_unreadable(name, first_line(error))) from None


def _unreadable(name: str, reason: str) -> str:
    return f"{name} is not a readable .safetensors file: {reason}."


def _header_length(file: BinaryIO, name: str) -> int:
    length = int.from_bytes(file.read(_LENGTH), "little")
    if length > _MAX_HEADER:
        raise DataError(_unreadable(name, f"its header has {length:,} bytes"))
    return length


def _header(entry: dict[str, Any], start: int, name: str) -> Header:
    kind = entry["dtype"]
    if kind == "BF16":
        raise DataError(
            f"{name} contains bfloat16, which NumPy does not support; save it as float32."
        )
    if kind not in _DTYPES:
        raise DataError(_unreadable(name, f"its values are of the type {str(kind)[:20]!r}"))
    first, last = entry["data_offsets"]
    header = Header(np.dtype(_DTYPES[kind]), tuple(entry["shape"]), False, start + first)
    if header.nbytes != last - first:
        raise DataError(_unreadable(name, "its header contradicts itself"))
    return header


@contextmanager
def _open_tensors(path: Path, name: str) -> Iterator[Any]:
    """Yield an open file; errors while reading become one sentence."""
    try:
        from safetensors import SafetensorError, safe_open
    except ImportError:
        raise MissingExtraError(
            "Reading .safetensors needs safetensors, which is not installed: "
            "pip install 'divprism[safetensors]'."
        ) from None
    errors = (
        SafetensorError,
        OSError,
        ValueError,
        TypeError,
        OverflowError,
        MemoryError,
        AttributeError,
    )
    try:
        # The package parses headers of any form and up to 100 MB.
        with open_file(path, name) as file:
            _header_length(file, name)
        with safe_open(path, framework="numpy") as tensors:
            yield tensors
    except DataError:
        raise
    except errors as error:
        raise DataError(_unreadable(name, first_line(error))) from None
