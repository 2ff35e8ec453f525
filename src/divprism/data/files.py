"""Atomic writes and file hashes."""

import hashlib
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from divprism.errors import DataError

__all__ = ["TEMPORARY", "file_digest", "write_text", "write_whole"]

TEMPORARY = ".partial"
"""Suffix of files that are still being written."""

_BLOCK = 1 << 20  # bytes hashed at a time


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
