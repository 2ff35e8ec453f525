"""Zip files: refuse a directory of millions of entries before Python reads it."""

import tokenize
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

__all__ = ["UNREADABLE", "open_zip"]

UNREADABLE = (
    ArithmeticError, AttributeError, EOFError, LookupError, MemoryError, NotImplementedError,
    OSError, RecursionError, RuntimeError, SyntaxError, TypeError, ValueError,
    tokenize.TokenError, zipfile.BadZipFile, zlib.error,
)  # fmt: skip
"""What NumPy's reader, zipfile and json raise: whatever a damaged file triggers inside them."""

# Bytes of the directory, about a hundred for each entry: weights of the largest models have some
# thousand entries.
_LARGEST_DIRECTORY = 4 << 20

# Where the record at the end of a zip file has the size of the directory.
_SIZE = 5


@contextmanager
def open_zip(
    source: Path | BinaryIO, largest_directory: int = _LARGEST_DIRECTORY, module: Any = zipfile
) -> Iterator[zipfile.ZipFile]:
    """Open a zip file for reading.

    Parameters
    ----------
    source : Path or binary file
        The zip file.
    largest_directory : int, optional
        Bytes that its directory may have.
    module : module, optional
        What reads it: `zipfile`, or one with its interface that knows more compressions.

    Raises
    ------
    zipfile.BadZipFile
        If it is none, or if its directory is larger than that of any file of arrays. Python reads
        the directory as a whole, at 10 microseconds and 500 bytes for each entry.
    """
    if isinstance(source, Path):
        with source.open("rb") as file, open_zip(file, largest_directory, module) as archive:
            yield archive
        return
    # The record that `zipfile` goes by; a file has several places where one may be.
    record = zipfile._EndRecData(source)  # type: ignore[attr-defined]  # not public
    if record is not None and record[_SIZE] > largest_directory:
        raise zipfile.BadZipFile(f"it has a directory of {record[_SIZE]:,} bytes")
    with module.ZipFile(source) as archive:
        yield archive
