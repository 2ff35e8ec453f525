"""Atomic writes, file hashes, and `.npz` archives with a JSON header."""

import hashlib
import json
import os
import tempfile
import tokenize
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from divprism.data.wording import first_line
from divprism.errors import DataError

__all__ = ["TEMPORARY", "file_digest", "open_archive", "write_text", "write_whole"]

TEMPORARY = ".partial"
"""Suffix of files that are still being written."""

_BLOCK = 1 << 20  # bytes hashed at a time

# NumPy's reader, zipfile and json raise whatever a damaged file triggers inside them.
_UNREADABLE = (
    ArithmeticError, AttributeError, EOFError, LookupError, MemoryError, NotImplementedError,
    OSError, RecursionError, RuntimeError, SyntaxError, TypeError, ValueError,
    tokenize.TokenError, zipfile.BadZipFile, zlib.error,
)  # fmt: skip


def write_whole(path: Path, write: Callable[[BinaryIO], object], *, sync: bool = False) -> None:
    """Write a file atomically: readers see the old content or the new, never a part of it.

    Parameters
    ----------
    path : Path
        The file to create or replace; its folder must exist.
    write : callable
        Writes the content to the binary file that it receives.
    sync : bool, optional
        Flush the content to disk before the file gets its name, so that even a power failure
        cannot leave a partial file.

    Raises
    ------
    OSError
        If the file cannot be written.
    """
    # In the same folder, because a rename is atomic only within one file system.
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".", suffix=TEMPORARY)
    try:
        with os.fdopen(handle, "wb") as file:
            write(file)
            # `flush` empties the buffer of Python, `fsync` that of the operating system.
            if sync:
                file.flush()
                os.fsync(file.fileno())
        # mkstemp creates private files; give this one the permissions of any other new file.
        Path(temporary).chmod(0o666 & ~_umask())
        Path(temporary).replace(path)
    finally:
        # After a successful rename there is nothing left under this name.
        Path(temporary).unlink(missing_ok=True)


def write_text(path: str | Path, text: str) -> None:
    """Write a text to a file in one step; a pipe or a device is written to, never replaced."""
    target = Path(path).resolve()  # a link stays a link
    try:
        if target.exists() and not target.is_file():
            target.write_text(text, encoding="utf-8")
        else:
            write_whole(target, lambda file: file.write(text.encode()))
    except OSError as error:
        raise DataError(f"cannot write {path}: {error.strerror}.") from None


@contextmanager
def open_archive(
    path: str | Path, version: object, description: str
) -> Iterator[tuple[dict[str, Any], Any]]:
    """Open a file that `np.savez` wrote, and yield its JSON header and its arrays.

    Pickles are never loaded, and compressed archives are refused: their arrays could expand to
    any size. Every error inside the `with` block becomes one sentence.

    Parameters
    ----------
    path : str or Path
        The archive.
    version : object
        The value that `format` in the header must have.
    description : str
        What the file should be, for the message ("a bank").

    Raises
    ------
    DataError
        If the file is missing, damaged, or of another version.
    """
    try:
        with open(path, "rb") as file, np.load(file, allow_pickle=False) as archive:
            # The `with` block of the caller runs here, so its errors are caught below, too.
            yield _archive_header(archive, path, version), archive
    except FileNotFoundError:
        raise DataError(f"cannot read {path}: no such file.") from None
    except DataError:
        raise
    except _UNREADABLE as error:
        raise DataError(f"{path} is not {description}: {first_line(error)}.") from None


def _archive_header(archive: Any, path: str | Path, version: object) -> dict[str, Any]:
    methods = {entry.compress_type for entry in archive.zip.infolist()}
    if methods - {zipfile.ZIP_STORED}:
        raise ValueError("its arrays are compressed")
    # Stored as an array of one string, because `np.savez` stores nothing but arrays.
    header = json.loads(str(archive["header"]))
    if header["format"] != version:
        raise DataError(
            f"{path} has format {header['format']!r}, but this version of divprism reads "
            f"{version}; use the version that wrote it."
        )
    return header


def file_digest(path: Path) -> bytes:
    """Return the SHA-256 of a file, read block by block; raises OSError if it cannot be read."""
    # In blocks: videos may be larger than memory.
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            digest.update(block)
    return digest.digest()


def _umask() -> int:
    # The mask can only be read by setting it.
    mask = os.umask(0)
    os.umask(mask)
    return mask
