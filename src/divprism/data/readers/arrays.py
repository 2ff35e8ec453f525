"""Files of numbers: .npy, .npz, .safetensors, .csv and standard input. Nothing in a file is ever executed."""

import io
import tokenize
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from divprism.data.readers.guards import shown, standard_input
from divprism.errors import ArgumentError, DataError, MissingExtraError

__all__ = ["ARRAY_SUFFIXES", "array_names", "from_bytes", "is_binary", "numbers_in", "read_array"]

_NPY, _ZIP = b"\x93NUMPY", b"PK\x03\x04"
# what NumPy lets through of a header that is cut, garbled or lies about the size
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
_FREE, _RATIO = (
    256 << 20,
    200,
)  # bytes that may unpack from anything; beyond them, at most so many for each packed one
_BFLOAT16 = "{} holds bfloat16, which NumPy does not know; save it as float32."
_NAMES = {"outputs": ("outputs", "x"), "prompts": ("prompts", "t")}


def read_array(source: str | Path, role: str) -> np.ndarray:
    """The array in a file; `-` reads standard input.

    `.npy` is mapped, not loaded; of an `.npz` with several arrays the one named after `role` is taken; `.csv` holds rows of
    numbers, with or without a header line of words. Labels in a `.csv` are one word or number per line, without a header.

    Parameters
    ----------
    source : str or Path
        File name, or `-`.
    role : str
        "outputs", "prompts", "labels" or "weights": what the array is for.

    Raises
    ------
    DataError
        If the file is empty, truncated, pickled, or not what its suffix says.
    """
    if str(source) == "-":
        return from_bytes(standard_input(), role)
    path = Path(source)
    reader = _READERS.get(path.suffix.lower())
    if reader is None:
        raise ArgumentError(
            f"cannot tell what {shown(path.name)} is by its suffix; {role} are read from {', '.join(_READERS)} or - for stdin."
        )
    try:
        with path.open("rb") as file:
            start = file.read(8)
    except OSError as error:
        raise DataError(f"cannot read {shown(path)}: {error.strerror}.") from None
    if not start:
        raise DataError(f"{shown(path)} is empty.")
    _require_content(path, start)
    return reader(path, shown(path), role)


def array_names(path: Path) -> list[str]:
    """The names of the arrays in an .npz or .safetensors file; none of other files, which hold one array without a name."""
    if path.suffix.lower() == ".safetensors":
        with _safetensors(path, shown(path)) as tensors:
            return sorted(tensors.keys())
    if path.suffix.lower() == ".npz":
        try:
            with zipfile.ZipFile(path) as archive:
                return [
                    entry.removesuffix(".npy")
                    for entry in archive.namelist()
                    if entry.endswith(".npy")
                ]
        except _ZIP_ERRORS as error:
            raise DataError(
                f"{shown(path)} is not a readable .npz archive: {str(error).rstrip('.')}."
            ) from None
    return []


def _require_content(path: Path, start: bytes) -> None:
    """The first bytes must agree with the suffix."""
    if path.suffix.lower() == ".safetensors":
        return  # has no signature; its header is checked when it is read
    found = ".npy" if start.startswith(_NPY[:6]) else ".npz" if start.startswith(_ZIP) else ".csv"
    if found != path.suffix.lower():
        what = {
            ".npy": "a NumPy array",
            ".npz": "a zip archive",
            ".csv": "neither a NumPy array nor an archive",
        }[found]
        raise DataError(f"{shown(path)} is {what}, not the {path.suffix} that its name says.")


def is_binary(content: bytes) -> bool:
    """Whether bytes are an .npy or .npz file."""
    return content.startswith((_NPY[:6], _ZIP))


def from_bytes(content: bytes, role: str) -> np.ndarray:
    """An array from standard input: the kind is told by the first bytes."""
    reader = (
        _read_npy
        if content.startswith(_NPY[:6])
        else _read_npz
        if content.startswith(_ZIP)
        else _read_csv
    )
    return reader(content, "standard input", role)


def _read_npy(source: Path | bytes, name: str, role: str) -> np.ndarray:
    try:
        if isinstance(source, Path):
            return np.load(source, mmap_mode="r", allow_pickle=False)
        return np.load(io.BytesIO(source), allow_pickle=False)
    except _NPY_ERRORS as error:
        raise DataError(_npy_problem(name, error)) from None


def _npy_problem(name: str, error: Exception) -> str:
    text = str(error)
    if "allow_pickle" in text or "Python objects" in text:
        return f"{name} holds pickled objects, which could run code when read. Save it as a plain array of numbers."
    if "mmap length" in text or isinstance(error, EOFError) or "reading array data" in text:
        return f"{name} is truncated: it ends before its array does."
    return f"{name} is not a readable NumPy array: {text.splitlines()[0].rstrip('.') if text else type(error).__name__}."


def _read_npz(source: Path | bytes, name: str, role: str) -> np.ndarray:
    try:
        with zipfile.ZipFile(
            io.BytesIO(source) if isinstance(source, bytes) else source
        ) as archive:
            members = [
                entry.removesuffix(".npy") for entry in archive.namelist() if entry.endswith(".npy")
            ]
            chosen = _choose(members, name, role)
            entry = archive.getinfo(f"{chosen}.npy")
            if entry.file_size > _FREE and entry.file_size > _RATIO * entry.compress_size:
                raise DataError(
                    f"{shown(chosen)} in {name} unpacks to over {_RATIO} times its size; unpack it yourself if you trust it."
                )
            with archive.open(entry) as member:
                return _read_npy(member.read(), f"{shown(chosen)} in {name}", role)
    except _ZIP_ERRORS as error:
        raise DataError(
            f"{name} is not a readable .npz archive: {str(error).rstrip('.')}."
        ) from None


@contextmanager
def _safetensors(path: Path, name: str) -> Iterator[Any]:
    try:
        from safetensors import SafetensorError, safe_open
    except ImportError:
        raise MissingExtraError(
            "Reading .safetensors needs safetensors, which is not installed: pip install 'divprism[safetensors]'."
        ) from None
    try:
        with safe_open(path, framework="numpy") as tensors:
            yield tensors
    except (
        SafetensorError,
        OSError,
        ValueError,
        TypeError,
        OverflowError,
        MemoryError,
        AttributeError,
    ) as error:
        if isinstance(error, DataError):
            raise
        if "bfloat16" in str(error):
            raise DataError(_BFLOAT16.format(name)) from None
        raise DataError(
            f"{name} is not a readable .safetensors file: {str(error).splitlines()[0].rstrip('.')}."
        ) from None


def _read_safetensors(source: Path | bytes, name: str, role: str) -> np.ndarray:
    assert isinstance(source, Path)  # standard input has no signature to know it by
    with _safetensors(source, name) as tensors:
        chosen = _choose(list(tensors.keys()), name, role)
        array = np.asarray(tensors.get_tensor(chosen))
        if (
            array.dtype.name == "bfloat16"
        ):  # known to NumPy only where some other package has told it
            raise DataError(_BFLOAT16.format(name))
        return array


def _choose(members: list[str], name: str, role: str) -> str:
    wanted = [
        member
        for candidate in _NAMES.get(role, (role,))
        for member in members
        if member == candidate
    ]
    if wanted:
        return wanted[0]
    if len(members) == 1:
        return members[0]
    if not members:
        raise DataError(f"{name} holds no array.")
    names = " or ".join(_NAMES.get(role, (role,)))
    there = ", ".join(shown(member[:60]) for member in sorted(members)[:5])
    raise DataError(f"{name} holds {len(members)} arrays ({there}), none of them named {names}.")


def _read_csv(source: Path | bytes, name: str, role: str) -> np.ndarray:
    try:
        text = (source if isinstance(source, bytes) else source.read_bytes()).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(
            f"{name} is not text in UTF-8: byte {error.start} cannot be read."
        ) from None
    lines = [(number, line) for number, line in enumerate(text.splitlines(), 1) if line.strip()]
    if role == "labels":
        return _labels(lines, name)
    if lines and _is_header(lines[0][1], name):
        lines = lines[1:]
    if not lines:
        raise DataError(f"{name} holds no rows of numbers.")
    rows = []
    width = lines[0][1].count(",") + 1
    for number, line in lines:
        row = numbers_in(line)
        if row is None:
            raise DataError(f"line {number} of {name} is not a row of numbers: {line[:60]!r}.")
        if len(row) != width:
            raise DataError(
                f"line {number} of {name} has {len(row)} numbers, the first row {width}."
            )
        rows.append(row)
    values = np.array(rows)
    return values[:, 0] if role == "weights" and width == 1 else values


def _labels(lines: list[tuple[int, str]], name: str) -> np.ndarray:
    for number, line in lines:
        if "," in line:
            raise DataError(
                f"line {number} of {name} holds several cells; labels are one per line."
            )
    return np.array([line.strip() for _, line in lines], dtype=str)


def _is_header(line: str, name: str) -> bool:
    """Words in every cell make a header; column numbers could be one or data, and are refused."""
    cells = [cell.strip() for cell in line.split(",")]
    if len(cells) > 1 and cells == [str(place) for place in range(len(cells))]:
        raise DataError(
            f"the first line of {name} counts 0, 1, ...: remove it if it is a header, or write 0.0 if it is data."
        )
    return all(cell and numbers_in(cell) is None for cell in cells)


def numbers_in(line: str) -> list[float] | None:
    """The numbers of a line, separated by commas; None if there is anything else in it."""
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
