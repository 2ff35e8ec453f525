"""Files that are there as a whole or not at all, and their hashes."""

import hashlib
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

__all__ = ["TEMPORARY", "file_digest", "write_whole"]

TEMPORARY = ".partial"
"""How names of files end while they are being written."""


def write_whole(path: Path, write: Callable[[BinaryIO], Any], *, sync: bool = False) -> None:
    """Write a file aside and rename it into place, so that a reader never sees half of it; OSError is the caller's.

    With `sync` its bytes are on the disk before it has the name, so that not even a loss of power leaves half of it.
    """
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".", suffix=TEMPORARY)
    try:
        with os.fdopen(handle, "wb") as file:
            write(file)
            if sync:
                file.flush()
                os.fsync(file.fileno())
        Path(temporary).chmod(0o666 & ~_umask())
        Path(temporary).replace(path)
    finally:
        Path(temporary).unlink(missing_ok=True)


def file_digest(path: Path) -> bytes:
    """SHA-256 of a file, read piece by piece; OSError is the caller's."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        for block in iter(lambda: file.read(1 << 20), b""):
            digest.update(block)
    return digest.digest()


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
