"""The rows of several files as one array: in memory, or in a temporary file if they are many."""

import errno
import math
import os
import shutil
import tempfile
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import BinaryIO

import numpy as np

from divprism.data.files import open_file
from divprism.data.readers import npy
from divprism.data.readers.arrays import read_array
from divprism.data.readers.guards import shown
from divprism.data.readers.npy import Header, read_header, read_npy
from divprism.data.readers.shards import (
    common_kind,
    matching,
    output_shards,
    require_same_parts,
)
from divprism.data.wording import reason
from divprism.errors import DataError

__all__ = ["read_arrays", "read_shards", "stored_rows"]

_BLOCK = 8 << 20  # bytes that are copied at a time


def read_arrays(source: str | Path, role: str, outputs: str | Path | None = None) -> np.ndarray:
    """Return the array in a file, on standard input, or in the files that a pattern matches.

    `outputs` is the source of the outputs that its rows belong to: shards of both must match.
    """
    paths = matching(source)
    if paths is None:
        return read_array(source, role)
    common_kind(paths)
    if outputs is not None:
        require_same_parts(output_shards(outputs), paths, role)
    return read_shards(paths, role)


def read_shards(paths: Sequence[Path], role: str) -> np.ndarray:
    """Return the rows of several files, one after the other, as one array.

    Rows of .npy files that take more than 1 GB together are copied to a temporary file and mapped
    from there, as a single file of that size would be; `TMPDIR` names the folder. The file is
    removed with the array.

    Parameters
    ----------
    paths : sequence of Path
        The files, all of one format.
    role : str
        What the array is for, as in `read_array`.

    Raises
    ------
    DataError
        If the rows of a file have another shape or type than those of the first.
    """
    if len(paths) == 1:
        return read_array(paths[0], role)
    if paths[0].suffix.lower() != ".npy":
        arrays = [read_array(path, role) for path in paths]
        for path, array in zip(paths, arrays, strict=True):
            _check_fit(path, array, paths[0], arrays[0])
        return np.concatenate(arrays)
    headers = [_header(path) for path in paths]
    for path, header in zip(paths, headers, strict=True):
        _check_fit(path, header, paths[0], headers[0])
    num_bytes = sum(header.nbytes for header in headers)
    # Strings are never mapped: shards may differ in the length of the longest.
    if num_bytes > npy.MAX_READ and headers[0].dtype.kind not in "US":
        return _copied(paths, headers)
    joined = np.empty(_shape(headers), np.result_type(*(header.dtype for header in headers)))
    start = 0
    for path, header in zip(paths, headers, strict=True):
        rows = read_npy(path, shown(path))
        _check_unchanged(path, rows.shape == header.shape)
        joined[start : start + len(rows)] = rows
        start += len(rows)
    # As a file that is read alone: nothing may write to what was read.
    joined.flags.writeable = False
    return joined


def _header(path: Path) -> Header:
    name = shown(path)
    with open_file(path, name) as file:
        header = read_header(file, name)
        size = file.seek(0, os.SEEK_END)
    if header.nbytes > size - header.offset:
        raise DataError(f"{name} is truncated: it ends before its array does.")
    if not header.shape:
        raise DataError(f"{name} contains a single number; shards need a row for each sample.")
    return header


def _shape(headers: Sequence[Header]) -> tuple[int, ...]:
    return (sum(header.shape[0] for header in headers), *headers[0].shape[1:])


def _check_fit(
    path: Path, array: Header | np.ndarray, first: Path, expected: Header | np.ndarray
) -> None:
    """Refuse rows of another shape or type than those of the first file."""
    # Strings have types of any length, which NumPy unites.
    are_strings = array.dtype.kind == expected.dtype.kind in "US"
    if array.shape[1:] == expected.shape[1:] and (are_strings or array.dtype == expected.dtype):
        return
    raise DataError(
        f"{shown(path)} has {_spelled(array)}, but {shown(first)} has {_spelled(expected)}; "
        "shards of one array have the same."
    )


def _spelled(array: Header | np.ndarray) -> str:
    """Return the shape and the type of a row in words."""
    lengths = " x ".join(f"{length:,}" for length in array.shape[1:])
    if not lengths:
        return f"single values of {array.dtype} per row"
    return f"{lengths} values of {array.dtype} per row"


def _check_unchanged(path: Path, is_unchanged: bool) -> None:
    if not is_unchanged:
        raise DataError(f"{shown(path)} changed while it was read.")


def _copied(paths: Sequence[Path], headers: Sequence[Header]) -> np.ndarray:
    """Return the rows as a map of a temporary file."""

    def write(file: BinaryIO) -> None:
        for path, header in zip(paths, headers, strict=True):
            _copy_rows(path, header, file)

    return stored_rows(_shape(headers), headers[0].dtype, write)


def _copy_rows(path: Path, header: Header, target: BinaryIO) -> None:
    """Append the rows of a file to another in the order of C."""
    name = shown(path)
    if header.is_fortran:
        rows = read_npy(path, name)
        _check_unchanged(path, rows.shape == header.shape)
        # Rows of a block; neither no rows nor rows without columns may divide by zero.
        step = max(1, _BLOCK // max(1, header.nbytes // max(1, len(rows))))
        for start in range(0, len(rows), step):
            target.write(np.ascontiguousarray(rows[start : start + step]).data)
        return
    with open_file(path, name) as source:
        _check_unchanged(path, read_header(source, name) == header)
        left = header.nbytes
        while left > 0:
            block = source.read(min(_BLOCK, left))
            _check_unchanged(path, bool(block))
            target.write(block)
            left -= len(block)


def stored_rows(
    shape: tuple[int, ...], dtype: np.dtype, write: Callable[[BinaryIO], object]
) -> np.memmap:
    """Return a map of a temporary file, which is removed when nothing refers to the map.

    Parameters
    ----------
    shape, dtype
        Of the array.
    write : callable
        Writes its values, in the order of C, to the file that it receives.

    Raises
    ------
    DataError
        If the file cannot be written.
    """
    num_bytes = math.prod(shape) * dtype.itemsize
    try:
        folder = tempfile.gettempdir()
        # Before anything is written: a sparse file takes no room, but its copy does.
        if num_bytes > shutil.disk_usage(folder).free:
            raise OSError(errno.ENOSPC, f"{num_bytes:,} bytes do not fit into {shown(folder)}")
        # It keeps its name while it is in use, because workers of a cluster open it by name.
        handle, name = tempfile.mkstemp(prefix="divprism-", suffix=".rows", dir=folder)
        try:
            with os.fdopen(handle, "wb") as file:
                write(file)
            rows = np.memmap(name, dtype, "r", shape=shape)
        except BaseException:
            os.unlink(name)
            raise
    except OSError as error:
        raise DataError(
            f"cannot store rows in a temporary file: {reason(error)}; set TMPDIR to a folder with "
            "enough room."
        ) from None
    weakref.finalize(rows, _remove, name, os.getpid())
    return rows


def _remove(name: str, owner: int) -> None:
    # A forked process shares the file with its parent, which still needs it.
    if os.getpid() == owner:
        Path(name).unlink(missing_ok=True)
