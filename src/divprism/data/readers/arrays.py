"""Arrays from .npy, .npz, .safetensors and .csv files and from standard input.

Nothing in a file is ever executed: pickles are refused.
"""

import io
import tokenize
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from divprism.data.files import open_file
from divprism.data.readers.guards import MAX_EXPANSION, shown, standard_input
from divprism.data.wording import counted, first_line
from divprism.errors import ArgumentError, DataError, MissingExtraError

__all__ = ["ARRAY_SUFFIXES", "array_names", "from_bytes", "is_binary", "numbers_in", "read_array"]

_NPY, _ZIP = b"\x93NUMPY", b"PK\x03\x04"  # the first bytes of .npy and .npz files
_SIGNATURE = 8  # bytes that are enough to recognise both
_FREE_ARRAY = 256 << 20  # bytes of an array that may decompress from anything

# What NumPy raises for headers that are truncated, garbled, or wrong about the size.
_NPY_ERRORS = (
    ValueError,
    EOFError,
    OSError,
    SyntaxError,
    OverflowError,
    MemoryError,
    TypeError,
    KeyError,
    tokenize.TokenError,
)
_ZIP_ERRORS = (
    zipfile.BadZipFile,
    zlib.error,
    EOFError,
    NotImplementedError,
    RuntimeError,
    OSError,
    UnicodeDecodeError,
)
_NAMES = {"outputs": ("outputs", "x"), "prompts": ("prompts", "t")}
_CONTENTS = {
    ".npy": "a NumPy array",
    ".npz": "a zip archive",
    ".csv": "neither a NumPy array nor an archive",
}


def read_array(source: str | Path, role: str) -> np.ndarray:
    """Return the array in a file or on standard input.

    An `.npy` file is memory-mapped. From an `.npz` or `.safetensors` file with several arrays,
    the one named after `role` is read. A `.csv` file contains rows of numbers, with or without a
    header of words; labels in a `.csv` file are one word or number per line, without a header.

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
    return reader(path, shown(path), role)


def array_names(path: Path) -> list[str]:
    """Return the names of the arrays in an .npz or .safetensors file; [] for other files."""
    suffix = path.suffix.lower()
    if suffix == ".safetensors":
        with _safetensors(path, shown(path)) as tensors:
            return sorted(tensors.keys())
    if suffix == ".npz":
        with _zip_archive(path, shown(path)) as archive:
            return _members(archive)
    return []


def _kind_of_content(start: bytes) -> str:
    """Return the suffix that the first bytes of a file stand for; anything else may be CSV."""
    if start.startswith(_NPY):
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
    return reader(content, "standard input", role)


def _read_npy(source: Path | bytes, name: str, role: str) -> np.ndarray:
    try:
        if isinstance(source, Path):
            # Mapped: embeddings may exceed memory, and readers of a part touch only that.
            return np.load(source, mmap_mode="r", allow_pickle=False)
        return np.load(io.BytesIO(source), allow_pickle=False)
    except _NPY_ERRORS as error:
        raise DataError(_npy_problem(name, error)) from None


def _npy_problem(name: str, error: Exception) -> str:
    """Return one sentence for an error of NumPy, whose text is the only clue to its cause."""
    text = str(error)
    # NumPy has no exception of its own for this; the wording differs between versions.
    if "allow_pickle" in text or "Python objects" in text:
        return (
            f"{name} contains pickled objects, which could run code when loaded; "
            "save it as a plain array of numbers."
        )
    if "mmap length" in text or isinstance(error, EOFError) or "reading array data" in text:
        return f"{name} is truncated: it ends before its array does."
    return f"{name} is not a readable NumPy array: {first_line(error)}."


def _read_npz(source: Path | bytes, name: str, role: str) -> np.ndarray:
    with _zip_archive(source, name) as archive:
        chosen = _choose(_members(archive), name, role)
        # Sizes from the directory of the archive, before anything is decompressed.
        entry = archive.getinfo(f"{chosen}.npy")
        limit = max(_FREE_ARRAY, MAX_EXPANSION * entry.compress_size)
        if entry.file_size > limit:
            raise DataError(
                f"{shown(chosen)} in {name} decompresses to over {MAX_EXPANSION} times its size; "
                "decompress it yourself if you trust it."
            )
        with archive.open(entry) as member:
            return _read_npy(member.read(), f"{shown(chosen)} in {name}", role)


@contextmanager
def _zip_archive(source: Path | bytes, name: str) -> Iterator[zipfile.ZipFile]:
    try:
        with zipfile.ZipFile(_handle(source)) as archive:
            yield archive
    except _ZIP_ERRORS as error:
        raise DataError(f"{name} is not a readable .npz archive: {first_line(error)}.") from None


def _handle(source: Path | bytes) -> Path | io.BytesIO:
    if isinstance(source, bytes):
        return io.BytesIO(source)
    return source


def _members(archive: zipfile.ZipFile) -> list[str]:
    # Other members, such as scripts, are never opened.
    names = archive.namelist()
    return [name.removesuffix(".npy") for name in names if name.endswith(".npy")]


@contextmanager
def _safetensors(path: Path, name: str) -> Iterator[Any]:
    """Yield an open .safetensors file; errors while reading become one sentence."""
    try:
        from safetensors import SafetensorError, safe_open
    except ImportError:
        raise MissingExtraError(
            "Reading .safetensors needs safetensors, which is not installed: "
            "pip install 'divprism[safetensors]'."
        ) from None
    errors = (
        SafetensorError,
        OSError,
        ValueError,
        TypeError,
        OverflowError,
        MemoryError,
        AttributeError,
    )
    try:
        with safe_open(path, framework="numpy") as tensors:
            yield tensors
    except DataError:
        raise
    except errors as error:
        if "bfloat16" in str(error):
            raise DataError(_bfloat16_problem(name)) from None
        raise DataError(
            f"{name} is not a readable .safetensors file: {first_line(error)}."
        ) from None


def _bfloat16_problem(name: str) -> str:
    return f"{name} contains bfloat16, which NumPy does not support; save it as float32."


def _read_safetensors(source: Path | bytes, name: str, role: str) -> np.ndarray:
    assert isinstance(source, Path)  # standard input has no signature to recognise it by
    with _safetensors(source, name) as tensors:
        chosen = _choose(list(tensors.keys()), name, role)
        array = np.asarray(tensors.get_tensor(chosen))
        # NumPy has this type only if another package (ml_dtypes) has registered it.
        if array.dtype.name == "bfloat16":
            raise DataError(_bfloat16_problem(name))
        return array


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
    content = source
    if isinstance(content, Path):
        content = content.read_bytes()
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(f"{name} is not text in UTF-8: byte {error.start:,} is invalid.") from None
    # Numbered before blank lines are dropped, so that messages name the line of the file.
    lines = [(number, line) for number, line in enumerate(text.splitlines(), 1) if line.strip()]
    if role == "labels":
        return _labels(lines, name)
    if lines and _is_header(lines[0][1], name):
        lines = lines[1:]
    if not lines:
        raise DataError(f"{name} contains no rows of numbers.")
    values = _numbers(lines, name)
    if role == "weights" and values.shape[1] == 1:
        return values[:, 0]
    return values


def _numbers(lines: list[tuple[int, str]], name: str) -> np.ndarray:
    rows = []
    # The first row sets the width; a later row that differs is the broken one.
    width = lines[0][1].count(",") + 1
    for number, line in lines:
        row = numbers_in(line)
        if row is None:
            raise DataError(f"line {number:,} of {name} is not a row of numbers: {line[:60]!r}.")
        if len(row) != width:
            length = counted(len(row), "number", "numbers")
            raise DataError(
                f"line {number:,} of {name} has {length}, but the first row has {width}."
            )
        rows.append(row)
    return np.array(rows)


def _labels(lines: list[tuple[int, str]], name: str) -> np.ndarray:
    for number, line in lines:
        # A label with a comma is more likely a column too many.
        if "," in line:
            raise DataError(
                f"line {number:,} of {name} has several cells; labels are one per line."
            )
    return np.array([line.strip() for _, line in lines], dtype=str)


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
    return all(cell and numbers_in(cell) is None for cell in cells)


def numbers_in(line: str) -> list[float] | None:
    """Return the comma-separated numbers of a line; None if it contains anything else."""
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
