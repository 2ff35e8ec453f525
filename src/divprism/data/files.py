"""Files that are there as a whole or not at all, their hashes, and archives of arrays that were written by us, perhaps."""

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

from divprism.errors import DataError

__all__ = ["TEMPORARY", "file_digest", "open_archive", "write_text", "write_whole"]

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


# NumPy's reader, zip and JSON raise whatever a damaged file makes them trip over.
_UNREADABLE = (
    ArithmeticError, AttributeError, EOFError, LookupError, MemoryError, NotImplementedError, OSError, RecursionError,
    RuntimeError, SyntaxError, TypeError, ValueError, tokenize.TokenError, zipfile.BadZipFile, zlib.error,
)  # fmt: skip


@contextmanager
def open_archive(path: str | Path, form: Any, what: str) -> Iterator[tuple[dict[str, Any], Any]]:
    """The JSON header and the arrays of a file that `np.savez` wrote; nothing in it is executed, nothing unpacked.

    Whatever goes wrong inside the `with` becomes one sentence: that the file is not `what` it should be, or in another format
    than `form`.
    """
    try:
        with open(path, "rb") as file, np.load(file, allow_pickle=False) as archive:
            if any(entry.compress_type != zipfile.ZIP_STORED for entry in archive.zip.infolist()):
                raise ValueError("its arrays are packed")
            header = json.loads(str(archive["header"]))
            if header["format"] != form:
                raise DataError(
                    f"{path} is in format {header['format']!r}, not {form}: written by another version."
                )
            yield header, archive
    except FileNotFoundError:
        raise DataError(f"cannot read {path}: no such file.") from None
    except _UNREADABLE as error:
        if isinstance(error, DataError):
            raise
        reason = (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")
        raise DataError(f"{path} is not {what}: {reason}.") from None


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
