"""NumPy's .npy format, read with limits: the header is matched, and sizes are checked first.

`np.load` evaluates the header as Python, allocates what it claims, and maps files. A header may
be nested beyond the stack of the parser, claim any size, and a mapped file that is cut while it is
in use ends the process.
"""

import math
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Literal, cast

import numpy as np

from divprism.data.files import open_file
from divprism.data.readers.guards import shown
from divprism.data.wording import first_line
from divprism.errors import DataError

__all__ = ["MAGIC", "MAX_READ", "Header", "read_header", "read_npy", "read_values"]

MAGIC = b"\x93NUMPY"
"""The first bytes of every .npy file."""
MAX_READ = 1 << 30
"""Bytes of the largest array that is read into memory; larger ones are mapped."""

_MAX_HEADER = 10_000  # bytes, the limit of NumPy as well
_MAX_DIMENSIONS = 32
_MAX_EMPTY = 1_000_000  # rows without content: more of them only cost time
_BLOCK = 1 << 20  # bytes read at a time
_LAST_CHARACTER = 0x10FFFF
_KINDS = "biufcSUmM"

_DESCR = re.compile(r"""(['"])descr\1\s*:\s*(['"])([<>|=]?[A-Za-z?][0-9]{0,9}(?:\[\w+\])?)\2""")
_ORDER = re.compile(r"""(['"])fortran_order\1\s*:\s*(True|False)""")
# Python 2 wrote an L behind long integers.
_SHAPE = re.compile(r"""(['"])shape\1\s*:\s*\(((?:\s*[0-9]{1,20}L?\s*,?)*\s*)\)""")
_REST = re.compile(r"\{[\s,]*\}\s*")
_RECORDS = re.compile(r"""['"]descr['"]\s*:\s*\[""")


@dataclass(frozen=True)
class Header:
    """What the header of an array says, and the length of the header itself.

    Attributes
    ----------
    dtype : np.dtype
        Type of the values; never one of Python objects.
    shape : tuple of int
        Shape of the array.
    is_fortran : bool
        Whether the first index varies fastest.
    offset : int
        Bytes before the values.
    """

    dtype: np.dtype
    shape: tuple[int, ...]
    is_fortran: bool
    offset: int

    @property
    def nbytes(self) -> int:
        """Bytes of the values, computed without overflow."""
        return math.prod(self.shape) * self.dtype.itemsize


def read_npy(path: Path, name: str) -> np.ndarray:
    """Return the array in a file: a copy, or a map of the file if it is larger than MAX_READ.

    Parameters
    ----------
    path : Path
        The file.
    name : str
        Its name in messages.
    """
    try:
        with open_file(path, name) as file:
            header = read_header(file, name)
            size = os.fstat(file.fileno()).st_size
            if header.nbytes > size - header.offset:
                raise DataError(_truncated(name))
            if header.nbytes <= MAX_READ:
                return read_values(file, header, name)
            order: Literal["C", "F"] = "C"
            if header.is_fortran:
                order = "F"
            # The open file, not its name: another file may have taken the name.
            opened = cast(Any, file)
            return np.memmap(opened, header.dtype, "r", header.offset, header.shape, order)
    except OSError as error:
        raise DataError(f"cannot read {name}: {error.strerror}.") from None


def _truncated(name: str) -> str:
    return f"{name} is truncated: it ends before its array does."


def read_header(file: IO[bytes], name: str) -> Header:
    """Return the header at the start of a binary file; refuse what NumPy does not write."""
    start = file.read(len(MAGIC) + 2)
    if not start.startswith(MAGIC) or len(start) < len(MAGIC) + 2:
        raise DataError(_unreadable(name, "it does not start as one"))
    version = start[len(MAGIC)]
    if version not in (1, 2, 3):
        raise DataError(_unreadable(name, f"its format has the version {version}"))
    # Version 1 has a length of two bytes, versions 2 and 3 of four.
    field = file.read(2 + 2 * (version > 1))
    length = int.from_bytes(field, "little")
    if length > _MAX_HEADER:
        raise DataError(_unreadable(name, f"its header has {length:,} bytes"))
    content = file.read(length)
    if len(content) < length or not field:
        raise DataError(_truncated(name))
    offset = len(start) + len(field) + length
    dtype, shape, is_fortran = _parsed(content.decode("utf-8", "replace"), name)
    _check_shape(shape, dtype, name)
    return Header(dtype, shape, is_fortran, offset)


def _unreadable(name: str, reason: str) -> str:
    return f"{name} is not a readable NumPy array: {reason}."


def _parsed(text: str, name: str) -> tuple[np.dtype, tuple[int, ...], bool]:
    """Return type, shape and order in a header, a Python dictionary of a fixed form."""
    if _RECORDS.search(text):
        raise DataError(
            f"{name} contains records with named fields; save one array of plain numbers."
        )
    matches = [pattern.search(text) for pattern in (_DESCR, _ORDER, _SHAPE)]
    rest = text
    for match in matches:
        if match is not None:
            rest = rest.replace(match[0], "", 1)
    descr, order, shape = matches
    if descr is None or order is None or shape is None or not _REST.fullmatch(rest):
        raise DataError(_unreadable(name, f"its header is {shown(repr(text.strip()[:60]))}"))
    lengths = re.findall("[0-9]+", shape[2])
    return _dtype(descr[3], name), tuple(map(int, lengths)), order[2] == "True"


def _dtype(descr: str, name: str) -> np.dtype:
    try:
        dtype = np.dtype(descr)
    except (TypeError, ValueError, OverflowError) as error:
        raise DataError(_unreadable(name, first_line(error))) from None
    if dtype.hasobject:
        raise DataError(
            f"{name} contains pickled objects, which could run code when loaded; "
            "save it as a plain array of numbers."
        )
    if dtype.kind not in _KINDS:
        raise DataError(_unreadable(name, f"its values are of the type {descr!r}"))
    return dtype


def _check_shape(shape: tuple[int, ...], dtype: np.dtype, name: str) -> None:
    if len(shape) > _MAX_DIMENSIONS:
        raise DataError(_unreadable(name, f"it has {len(shape):,} dimensions"))
    # Rows of no columns, or of no characters, take no space: a header can claim any number.
    is_empty = math.prod(shape) * dtype.itemsize == 0
    if is_empty and max(shape, default=0) > _MAX_EMPTY:
        raise DataError(f"{name} claims an array of the shape {shape} without any content.")


def read_values(file: IO[bytes], header: Header, name: str) -> np.ndarray:
    """Return the array that follows a header; sizes must have been compared with the file."""
    content = np.empty(header.nbytes, np.uint8)
    view = content.data
    position = 0
    while position < header.nbytes:
        block = file.read(min(_BLOCK, header.nbytes - position))
        # The file may be cut while it is read.
        if not block:
            raise DataError(_truncated(name))
        view[position : position + len(block)] = block
        position += len(block)
    shape = header.shape
    if header.dtype.itemsize == 0:
        array = np.zeros(shape, header.dtype)
    elif header.is_fortran:
        array = content.view(header.dtype).reshape(shape[::-1]).T
    else:
        array = content.view(header.dtype).reshape(shape)
    _check_characters(array, name)
    # As a mapped file is; nothing may write to what was read.
    array.flags.writeable = False
    return array


def _check_characters(array: np.ndarray, name: str) -> None:
    """Refuse strings with numbers that are not characters: Python cannot represent them."""
    if array.dtype.kind != "U" or array.size == 0:
        return
    order = array.dtype.byteorder.replace("|", "=")
    codes = np.ascontiguousarray(array).reshape(-1).view(f"{order}u4")
    if codes.max() > _LAST_CHARACTER:
        raise DataError(_unreadable(name, "its strings contain invalid characters"))
