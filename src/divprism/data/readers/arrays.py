"""Arrays from .npy, .npz, .safetensors and .csv files and from standard input.

Nothing in a file is ever executed: pickles are refused.
"""

import io
import itertools
import re
import struct
import zipfile
import zlib
from array import array
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from divprism.data.files import open_file
from divprism.data.readers.decoder import MAX_NAME
from divprism.data.readers.guards import (
    MAX_EXPANSION,
    STDIN,
    check_cells,
    read_lines,
    shown,
    standard_input,
)
from divprism.data.readers.npy import MAGIC, Header, read_header, read_npy, read_values
from divprism.data.readers.tensors import read_tensor, tensor_names
from divprism.data.wording import counted, first_line
from divprism.data.zip_files import open_zip
from divprism.errors import ArgumentError, DataError

__all__ = ["ARRAY_SUFFIXES", "array_names", "from_bytes", "is_binary", "numbers_in", "read_array"]

_ZIP = b"PK\x03\x04"  # the first bytes of .npz files
_SIGNATURE = 8  # bytes that are enough to recognise .npy and .npz files
_ENCRYPTED = 1  # bit of the flags of a zip member
_FREE_ARRAY = 256 << 20  # bytes of an array that may decompress from anything

_ZIP_ERRORS = (
    zipfile.BadZipFile,
    zlib.error,
    EOFError,
    NotImplementedError,
    RuntimeError,
    OSError,
    LookupError,
    ValueError,
    OverflowError,
    MemoryError,
    struct.error,
)
_NUMERIC = re.compile(r"[0-9eE+\-., \t\r\n]+")
_NAMES = {"outputs": ("outputs", "x"), "prompts": ("prompts", "t")}
_CONTENTS = {
    ".npy": "a NumPy array",
    ".npz": "a zip archive",
    ".csv": "neither a NumPy array nor an archive",
}


def read_array(source: str | Path, role: str) -> np.ndarray:
    """Return the array in a file or on standard input.

    An `.npy` file of over 1 GB is memory-mapped. From an `.npz` or `.safetensors` file with
    several arrays, the one named after `role` is read. A `.csv` file contains rows of numbers,
    with or without a header of words; labels in a `.csv` file are one word or number per line,
    without a header.

    Parameters
    ----------
    source : str or Path
        The file, or `-` for standard input.
    role : str
        What the array is for: "outputs", "prompts", "labels" or "weights".

    Raises
    ------
    ArgumentError
        If the suffix is not one of ARRAY_SUFFIXES.
    DataError
        If the file is empty, truncated or pickled, or if its content does not match its suffix.
    """
    if str(source) == "-":
        return from_bytes(standard_input(), role)
    path = Path(source)
    reader = _READERS.get(path.suffix.lower())
    if reader is None:
        known = ", ".join(_READERS)
        raise ArgumentError(
            f"the suffix of {shown(path.name)} is not supported; {role} are read from {known}, "
            "or from - for standard input."
        )
    with open_file(path, shown(path)) as file:
        start = file.read(_SIGNATURE)
    if not start:
        raise DataError(f"{shown(path)} is empty.")
    _check_signature(path, start)
    return _with_rows(reader(path, shown(path), role), shown(path), role)


def array_names(source: Path | bytes) -> list[str]:
    """Return the names of the arrays in an archive, .npz or .safetensors; [] for other files."""
    if isinstance(source, bytes):
        suffix, name = _kind_of_content(source), STDIN
    else:
        suffix, name = source.suffix.lower(), shown(source)
    if suffix == ".safetensors":
        assert isinstance(source, Path)  # standard input has no signature to recognise it by
        return sorted(tensor_names(source, name))
    if suffix == ".npz":
        with _zip_archive(source, name) as archive:
            return _members(archive)
    return []


def _kind_of_content(start: bytes) -> str:
    """Return the suffix that the first bytes of a file stand for; anything else may be CSV."""
    if start.startswith(MAGIC):
        return ".npy"
    if start.startswith(_ZIP):
        return ".npz"
    return ".csv"


def _check_signature(path: Path, start: bytes) -> None:
    """Refuse a file whose first bytes do not match its suffix."""
    if path.suffix.lower() == ".safetensors":
        return  # has no signature; its header is checked when it is read
    kind = _kind_of_content(start)
    if kind != path.suffix.lower():
        raise DataError(
            f"{shown(path)} is {_CONTENTS[kind]}, although its name ends in {path.suffix}."
        )


def is_binary(content: bytes) -> bool:
    """Whether bytes are an .npy or .npz file."""
    return _kind_of_content(content) != ".csv"


def from_bytes(content: bytes, role: str) -> np.ndarray:
    """Return the array on standard input; its first bytes identify the format."""
    reader = _READERS[_kind_of_content(content)]
    return _with_rows(reader(content, STDIN, role), STDIN, role)


def _with_rows(array: np.ndarray, name: str, role: str) -> np.ndarray:
    """Return an array that has rows; refuse a single number, which has not even a length."""
    if array.ndim == 0:
        raise DataError(f"{name} contains a single number; {role} need a row each.")
    return array


def _read_npy(source: Path | bytes, name: str, role: str) -> np.ndarray:
    if isinstance(source, Path):
        return read_npy(source, name)
    file = io.BytesIO(source)
    header = read_header(file, name)
    _check_length(header, len(source), name)
    return read_values(file, header, name)


def _check_length(header: Header, size: int, name: str) -> None:
    if header.nbytes > size - header.offset:
        raise DataError(f"{name} is truncated: it ends before its array does.")


def _read_npz(source: Path | bytes, name: str, role: str) -> np.ndarray:
    with _zip_archive(source, name) as archive:
        chosen = _choose(_members(archive), name, role)
        label = f"{shown(chosen[:60])} in {name}"
        entry = archive.getinfo(f"{chosen}.npy")
        _check_entry(entry, label)
        with archive.open(entry) as member:
            # Sizes in the directory may be wrong, so only bytes that arrive are kept.
            header = read_header(member, label)
            _check_length(header, entry.file_size, label)
            # A directory may state any size; no member is larger than its file.
            packed = min(entry.compress_size, _size(source))
            if header.nbytes > max(_FREE_ARRAY, MAX_EXPANSION * packed):
                raise DataError(
                    f"{label} decompresses to over {MAX_EXPANSION} times its size; "
                    "decompress it yourself if you trust it."
                )
            return read_values(member, header, label)


def _check_entry(entry: zipfile.ZipInfo, label: str) -> None:
    """Refuse what NumPy does not write; Python unpacks bzip2 and LZMA without a limit."""
    if entry.flag_bits & _ENCRYPTED:
        raise DataError(f"{label} is encrypted; save it without a password.")
    if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise DataError(
            f"{label} is compressed by a method that NumPy does not use; save it again with "
            "`np.savez_compressed`."
        )


def _size(source: Path | bytes) -> int:
    if isinstance(source, bytes):
        return len(source)
    return source.stat().st_size


@contextmanager
def _zip_archive(source: Path | bytes, name: str) -> Iterator[zipfile.ZipFile]:
    try:
        with open_zip(_handle(source)) as archive:
            yield archive
    except DataError:
        raise
    except _ZIP_ERRORS as error:
        raise DataError(f"{name} is not a readable .npz archive: {first_line(error)}.") from None


def _handle(source: Path | bytes) -> Path | io.BytesIO:
    if isinstance(source, bytes):
        return io.BytesIO(source)
    return source


def _members(archive: zipfile.ZipFile) -> list[str]:
    # Other members, such as scripts, are never opened.
    names = [name for name in archive.namelist() if name.endswith(".npy")]
    # One of the two would win, and which one depends on the program that reads the archive.
    if len(set(names)) < len(names):
        repeated, _ = Counter(names).most_common(1)[0]
        raise zipfile.BadZipFile(f"it contains {shown(repeated[:60])} twice")
    return [name.removesuffix(".npy") for name in names]


def _read_safetensors(source: Path | bytes, name: str, role: str) -> np.ndarray:
    assert isinstance(source, Path)  # standard input has no signature to recognise it by
    chosen = _choose(tensor_names(source, name), name, role)
    return read_tensor(source, chosen, name)


def _choose(members: list[str], name: str, role: str) -> str:
    """Return the array named after its role, or the only one."""
    candidates = _NAMES.get(role, (role,))
    # The long name first, in case an archive contains both.
    for candidate in candidates:
        if candidate in members:
            return candidate
    if len(members) == 1:
        return members[0]
    if not members:
        raise DataError(f"{name} contains no array.")
    present = ", ".join(shown(member[:60]) for member in sorted(members)[:5])
    raise DataError(
        f"{name} contains {len(members)} arrays ({present}), none of them named "
        f"{' or '.join(candidates)}."
    )


def _read_csv(source: Path | bytes, name: str, role: str) -> np.ndarray:
    lines = _filled_lines(source, name)
    if role == "labels":
        return _labels(lines, name)
    first = next(lines, None)
    if first is not None and not _is_header(first[1], name):
        lines = itertools.chain([first], lines)
    values = _numbers(lines, name)
    if role == "weights" and values.shape[1] == 1:
        return values[:, 0]
    return values


def _filled_lines(source: Path | bytes, name: str) -> Iterator[tuple[int, str]]:
    """Yield the number and the text of each line that is not blank."""
    number = 0
    for _, text in read_lines(source, name):
        # Old programs of the Mac end lines with a carriage return.
        for line in text.splitlines():
            number += 1
            check_cells(line, ",", f"line {number:,} of {name}")
            if line.strip():
                yield number, line


def _numbers(lines: Iterator[tuple[int, str]], name: str) -> np.ndarray:
    # Not lists, which take four times the memory.
    values = array("d")
    numbers = array("q")
    width = 0
    for number, line in lines:
        row = numbers_in(line)
        if row is None:
            raise DataError(f"line {number:,} of {name} is not a row of numbers: {line[:60]!r}.")
        # The first row sets the width; a later row that differs is the broken one.
        width = width or len(row)
        if len(row) != width:
            length = counted(len(row), "number", "numbers")
            raise DataError(
                f"line {number:,} of {name} has {length}, but the first row has {width}."
            )
        values.extend(row)
        numbers.append(number)
    if not numbers:
        raise DataError(f"{name} contains no rows of numbers.")
    rows = np.array(values).reshape(len(numbers), width)
    finite = np.isfinite(rows).all(axis=1)
    if not finite.all():
        number = numbers[int(np.argmin(finite))]
        raise DataError(f"line {number:,} of {name} contains a number too large for a float.")
    return rows


def _labels(lines: Iterator[tuple[int, str]], name: str) -> np.ndarray:
    labels = []
    for number, line in lines:
        # A label with a comma is more likely a column too many.
        if "," in line:
            raise DataError(
                f"line {number:,} of {name} has several cells; labels are one per line."
            )
        label = line.strip()
        # An array of strings gives every label the length of the longest.
        if len(label) > MAX_NAME:
            raise DataError(
                f"line {number:,} of {name} is a label of {len(label):,} characters; at most "
                f"{MAX_NAME:,} are read."
            )
        labels.append(label)
    return np.array(labels, dtype=str)


def _is_header(line: str, name: str) -> bool:
    """Whether every cell is a word; column numbers are refused, as they could be data."""
    cells = [cell.strip() for cell in line.split(",")]
    if len(cells) > 1 and cells == list(map(str, range(len(cells)))):
        # pandas writes such a header for unnamed columns.
        raise DataError(
            f"the first line of {name} counts 0, 1, ...: "
            "remove it if it is a header, or write 0.0 if it is data."
        )
    # An empty cell is a missing number, so a line with one is not a header.
    return all(cell and not _looks_numeric(cell) for cell in cells)


def _looks_numeric(cell: str) -> bool:
    """Whether Python reads a cell as a number: `nan` and `1_0` are not words of a header."""
    try:
        float(cell)
    except ValueError:
        return False
    return True


def numbers_in(line: str) -> list[float] | None:
    """Return the comma-separated numbers of a line; None if it contains anything else.

    Digits of other scripts, underscores and words such as `nan`, which Python's `float` accepts,
    are no numbers of CSV.

    >>> numbers_in("1, -2.5e3"), numbers_in("1_0"), numbers_in("nan")
    ([1.0, -2500.0], None, None)
    """
    if not _NUMERIC.fullmatch(line):
        return None
    try:
        return [float(cell) for cell in line.split(",")]
    except ValueError:
        return None


_READERS: dict[str, Callable[[Path | bytes, str, str], np.ndarray]] = {
    ".npy": _read_npy,
    ".npz": _read_npz,
    ".safetensors": _read_safetensors,
    ".csv": _read_csv,
}
ARRAY_SUFFIXES = frozenset(_READERS)
"""Suffixes of the files that `read_array` reads."""
