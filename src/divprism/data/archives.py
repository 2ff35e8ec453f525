"""Archives of plain arrays with a JSON header: the files of `Metric.save` and `Bank.save`.

They travel between machines, so nothing in one is trusted: its parts are measured before memory is
allocated for them, nothing in it is executed, and a digest finds what changed on the way.
"""

import hashlib
import json
import math
import os
import stat
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from divprism.data.files import write_whole
from divprism.data.readers.guards import parse_json, shown
from divprism.data.wording import first_line, reason
from divprism.data.zip_files import UNREADABLE, open_zip
from divprism.errors import DataError

__all__ = ["UNREADABLE", "open_archive", "require_keys", "write_archive"]

_HEADER, _DIGEST = "header", "digest"
_MOST_MEMBERS = 16  # arrays of an archive; ours have at most four
_LONGEST_HEADER = 1 << 16  # letters of the JSON; ours have a few hundred
_LONGEST_NAME = 200  # letters of a path in a message

_HEADER_READERS: Mapping[tuple[int, int], Callable[..., tuple[Any, bool, Any]]] = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}


def write_archive(
    path: str | Path, header: Mapping[str, Any], arrays: Mapping[str, np.ndarray]
) -> None:
    """Write arrays and their header to a file, which appears complete or not at all.

    Raises
    ------
    DataError
        If the file cannot be written.
    """
    target = Path(path)
    signed = {**header, _DIGEST: _digest(header, arrays)}
    members = {**arrays, _HEADER: np.array(json.dumps(signed))}
    try:
        write_whole(target, lambda file: np.savez(file, allow_pickle=False, **members))
    except OSError as error:
        raise DataError(f"cannot write {_named(target)}: {reason(error)}.") from None
    except ValueError as error:  # a null byte in the name
        raise DataError(f"cannot write {_named(target)}: {first_line(error)}.") from None


def _digest(header: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> str:
    """Hash of everything in an archive, the same on every platform."""
    digest = hashlib.sha256(json.dumps(header, sort_keys=True).encode())
    for name in sorted(arrays):
        # In one byte order, so that a file from another platform has the same digest.
        array = np.ascontiguousarray(arrays[name])
        array = array.astype(array.dtype.newbyteorder("<"), copy=False)
        digest.update(f"{name} {array.dtype.str} {array.shape}".encode())
        # As bytes, because dates have no buffer of their own.
        digest.update(array.reshape(-1).view(np.uint8).data)
    return digest.hexdigest()


@contextmanager
def open_archive(
    path: str | Path, version: int, description: str
) -> Iterator[tuple[dict[str, Any], dict[str, np.ndarray]]]:
    """Read a file of `write_archive`, and yield its header and its arrays.

    Pickles are never loaded, and compressed archives are refused: their arrays could expand to
    any size. Reading takes no more memory than the file is large. Every error inside the `with`
    block becomes one sentence.

    Parameters
    ----------
    path : str or Path
        The archive.
    version : int
        The value that `format` in the header must have.
    description : str
        What the file should be, for the message ("a bank").

    Raises
    ------
    DataError
        If the file is missing, damaged, or of another version.
    """
    name = _named(path)
    try:
        with _open_regular(path) as file:
            arrays = _read_members(file)
        header = _parsed_header(arrays.pop(_HEADER), name, version)
        # Files of earlier versions have no digest.
        digest = header.pop(_DIGEST, None)
        # The `with` block of the caller runs here, so its errors are caught below, too.
        yield header, arrays
        # Last, because the checks of the caller name the part that does not fit.
        if digest is not None and digest != _digest(header, arrays):
            raise ValueError("its content does not match its digest")
    except FileNotFoundError:
        raise DataError(f"cannot read {name}: no such file.") from None
    except DataError:
        raise
    except UNREADABLE as error:
        raise DataError(f"{name} is not {description}: {first_line(error)}.") from None


def _named(path: str | Path) -> str:
    """Return a path for a message: printable, and not longer than file names are."""
    return shown(str(path)[:_LONGEST_NAME])


def _open_regular(path: str | Path) -> BinaryIO:
    """Open a file; refuse folders, devices and pipes, of which the last would wait forever."""
    # Without waiting for the other end of a pipe; Windows has neither the flag nor such pipes.
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    handle = os.open(path, flags)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise ValueError("it is not a regular file")
    return os.fdopen(handle, "rb")


def _read_members(file: BinaryIO) -> dict[str, np.ndarray]:
    """Return all arrays of an archive, each measured before it is read."""
    size = os.fstat(file.fileno()).st_size
    arrays: dict[str, np.ndarray] = {}
    with open_zip(file) as archive:
        entries = archive.infolist()
        if len(entries) > _MOST_MEMBERS:
            raise ValueError(f"it contains {len(entries):,} arrays")
        if {entry.compress_type for entry in entries} - {zipfile.ZIP_STORED}:
            raise ValueError("its arrays are compressed")
        # Members that overlap would be read several times each.
        if sum(entry.file_size for entry in entries) > size:
            raise ValueError("its arrays are larger than the file")
        for entry in entries:
            name, dot, suffix = entry.filename.partition(".")
            if dot + suffix != ".npy" or name in arrays:
                raise ValueError(f"it contains {entry.filename[:40]!r}, which is not expected")
            arrays[name] = _read_member(archive, entry)
    return arrays


def _read_member(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> np.ndarray:
    """Return an array whose shape and dtype account for every byte of its member."""
    with archive.open(entry) as member:
        version = np.lib.format.read_magic(member)
        if version not in _HEADER_READERS:
            raise ValueError(f"its arrays have the unknown version {version}")
        shape, _, dtype = _HEADER_READERS[version](member)
        # In Python's integers, which do not overflow.
        claimed = math.prod(shape) * dtype.itemsize
        is_whole = 0 < claimed == entry.file_size - member.tell()
        # Objects have no size of their own; NumPy refuses them below.
        if not dtype.hasobject and not is_whole:
            raise ValueError(f"the array {entry.filename[:40]!r} is not as large as it claims")
    with archive.open(entry) as member:
        array = np.lib.format.read_array(member, allow_pickle=False)
    # Files of platforms with the other byte order.
    return array.astype(dtype.newbyteorder("="), copy=False)


def _parsed_header(array: np.ndarray, name: str, version: int) -> dict[str, Any]:
    # Stored as an array of one text, because `np.savez` stores nothing but arrays.
    if array.shape != () or array.dtype.kind != "U" or array.itemsize > 4 * _LONGEST_HEADER:
        raise ValueError("its header is not a text")
    header = parse_json(str(array), f"the header of {name}")
    if not isinstance(header, dict):
        raise ValueError("its header is not an object")
    # bool is an int, so the type is compared exactly.
    if type(header["format"]) is not int or header["format"] != version:
        stated = shown(repr(header["format"])[:40])
        raise DataError(
            f"{name} has format {stated}, but this version of divprism reads "
            f"{version}; use the version that wrote it."
        )
    return header


def require_keys(content: object, keys: set[str], what: str) -> None:
    """Raise ValueError unless `content` is a mapping with exactly these keys."""
    if not isinstance(content, Mapping) or set(content) != keys:
        expected = ", ".join(sorted(keys)) or "nothing"
        raise ValueError(f"{what} must contain exactly {expected}")
