"""Zip files: refuse a directory of millions of entries before Python reads it."""

import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

__all__ = ["open_zip"]

# Bytes of the directory, about a hundred for each entry: weights of the largest models have some
# thousand entries.
_LARGEST_DIRECTORY = 4 << 20

# Where the record at the end of a zip file has the size of the directory.
_SIZE = 5


@contextmanager
def open_zip(source: Path | BinaryIO) -> Iterator[zipfile.ZipFile]:
    """Open a zip file for reading.

    Raises
    ------
    zipfile.BadZipFile
        If it is none, or if its directory is larger than that of any file of arrays. Python reads
        the directory as a whole, at 10 microseconds and 500 bytes for each entry.
    """
    if isinstance(source, Path):
        with source.open("rb") as file, open_zip(file) as archive:
            yield archive
        return
    # The record that `zipfile` goes by; a file has several places where one may be.
    record = zipfile._EndRecData(source)  # type: ignore[attr-defined]  # not public
    if record is not None and record[_SIZE] > _LARGEST_DIRECTORY:
        raise zipfile.BadZipFile(f"it has a directory of {record[_SIZE]:,} bytes")
    with zipfile.ZipFile(source) as archive:
        yield archive
