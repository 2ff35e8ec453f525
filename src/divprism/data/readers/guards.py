"""What keeps a reader safe from the files that it reads: paths, lines, JSON and archives within limits."""

import gzip
import io
import json
import os
import stat
import sys
import unicodedata
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, cast

from divprism.errors import DataError

__all__ = [
    "MAX_JSON",
    "MAX_LINE",
    "Root",
    "listing",
    "parse_json",
    "read_lines",
    "read_whole",
    "shown",
    "standard_input",
]

MAX_LINE = 32 << 20
"""Bytes of the longest line that is read."""
MAX_JSON = 512 << 20
"""Bytes of the largest file that is read as one JSON value."""
_FREE, _RATIO = (
    8 << 20,
    200,
)  # so much may unpack to anything; beyond it, at most so many bytes for each packed one


def shown(name: Any) -> str:
    r"""A name for a message: as it is, or quoted where it could break the line or drive a terminal.

    >>> shown("a b.png"), shown("two\nlines.png")
    ('a b.png', "'two\\nlines.png'")
    """
    text = str(name)
    return text if text.isprintable() else repr(text)


@dataclass(frozen=True)
class Root:
    """A folder that names in its files are relative to, and must not leave.

    Attributes
    ----------
    folder : Path
        Where names start.
    allow_outside : bool
        Whether absolute names, `../` and links may lead out of it.
    """

    folder: Path
    allow_outside: bool = False
    _parents: dict[str, str] = field(
        default_factory=dict, repr=False, compare=False
    )  # folders resolved so far

    def find(self, name: str, where: str) -> Path:
        """The regular file that a name stands for, or a sentence on why not; `where` says who named it."""
        if not name or "\0" in name:
            raise DataError(f"{where} names {name!r}, which is not the name of a file.")
        forms = (
            [name]
            if name.isascii()
            else [name, *(unicodedata.normalize(form, name) for form in ("NFC", "NFD"))]
        )
        for form in forms:  # as the file system spells it
            path = os.path.join(self.folder, form)
            try:
                mode = os.stat(path).st_mode
            except FileNotFoundError:
                continue
            except (OSError, ValueError):
                raise DataError(
                    f"{where} names {shown(name[:80])}, which cannot be opened."
                ) from None
            self.require_inside(path, where)
            if not stat.S_ISREG(mode):
                raise DataError(f"{where} names {shown(name)}, which is not a regular file.")
            return Path(path)
        raise DataError(
            f"{where} names {shown(name[:200])}, but there is no such file in {shown(self.folder)}."
        )

    def require_inside(self, path: Path | str, where: str) -> None:
        """Refuse a path that leads out of the folder."""
        if self.allow_outside:
            return
        target = self.real(path)
        if not target.startswith(os.path.join(self._real_folder(str(self.folder)), "")):
            raise DataError(
                f"{where} leads to {shown(target)}, outside {shown(self.folder)}; --allow-outside reads it anyway."
            )

    def real(self, path: Path | str) -> str:
        """Where a path leads once links and `..` are followed; each folder is looked up once."""
        head, tail = os.path.split(path)
        if tail in ("", ".", "..") or os.path.islink(path):
            return os.path.realpath(path)
        return os.path.join(self._real_folder(head), tail)

    def real_if_plain(self, path: Path) -> str:
        """Where a path leads unless it is a link itself, which is not looked up."""
        head, tail = os.path.split(path)
        return os.path.join(self._real_folder(head), tail)

    def _real_folder(self, folder: str) -> str:
        if folder not in self._parents:
            self._parents[folder] = os.path.realpath(folder)
        return self._parents[folder]


def listing(folder: Path) -> list[Path]:
    """What is in a folder, hidden files left out, in an order that does not depend on the file system."""
    try:
        names = sorted(os.listdir(folder))
    except OSError as error:
        raise DataError(f"cannot list {shown(folder)}: {error.strerror}.") from None
    return [folder / name for name in names if not name.startswith((".", "__MACOSX"))]


def standard_input() -> bytes:
    """All of it, piece by piece: within one long read an interruption could go unnoticed until the input ends."""
    stream = cast(io.BufferedReader, sys.stdin.buffer)
    content = b"".join(iter(lambda: stream.read1(1 << 20), b""))
    if not content:
        raise DataError("standard input is empty.")
    return content


def read_lines(source: Path | bytes, name: str) -> Iterator[tuple[int, str]]:
    """Number and text of each line, line ends kept, of a file in UTF-8 (also packed by gzip) or of its bytes."""
    with _opened(source, name) as (file, packed):
        done = 0
        number = 0
        while line := _line(file, name, number + 1):
            number += 1
            done += len(line)
            if packed is not None and done > _FREE and done > _RATIO * packed.tell():
                raise DataError(
                    f"{name} unpacks to over {_RATIO} times its size (line {number:,}); unpack it yourself if you trust it."
                )
            try:
                text = line.decode("utf-8-sig" if number == 1 else "utf-8")
            except UnicodeDecodeError as error:
                raise DataError(
                    f"line {number:,} of {name} is not text in UTF-8: byte {error.start:,} cannot be read."
                ) from None
            yield number, text


def read_whole(source: Path | bytes, name: str) -> str:
    """A text file as one string, at most MAX_JSON bytes of it."""
    parts = []
    size = 0
    for _, line in read_lines(source, name):
        size += len(line)
        if size > MAX_JSON:
            raise DataError(
                f"{name} is larger than {MAX_JSON >> 20} MB; store its records a line each, as .jsonl."
            )
        parts.append(line)
    return "".join(parts)


def _line(file: BinaryIO, name: str, number: int) -> bytes:
    try:
        line = file.readline(MAX_LINE + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(
            f"{name} is broken or truncated after line {number - 1:,}: {_reason(error)}."
        ) from None
    if len(line) > MAX_LINE:
        raise DataError(f"line {number:,} of {name} is longer than {MAX_LINE >> 20} MB.")
    return line


def _reason(error: BaseException) -> str:
    return str(getattr(error, "strerror", None) or error).rstrip(".")


@contextmanager
def _opened(source: Path | bytes, name: str) -> Iterator[tuple[BinaryIO, BinaryIO | None]]:
    """The file to read lines from, and the packed file behind it if there is one."""
    try:
        raw: BinaryIO = io.BytesIO(source) if isinstance(source, bytes) else source.open("rb")
    except OSError as error:
        raise DataError(f"cannot read {name}: {error.strerror}.") from None
    with raw:
        packed = raw.read(2) == b"\x1f\x8b"
        raw.seek(0)
        named = isinstance(source, Path) and source.suffix.lower() == ".gz"
        if named and not packed:
            raise DataError(f"{name} is not packed by gzip, as its name says.")
        if packed:
            with gzip.GzipFile(fileobj=raw) as file:
                yield cast(BinaryIO, file), raw
        else:
            yield raw, None


def parse_json(text: str, where: str) -> Any:
    """A JSON value; keys that occur twice, and nesting without end, are refused."""

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            seen: set[str] = set()
            twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
            raise DataError(
                f"{where} has the key {twice[:60]!r} twice; only one of its values can be meant."
            )
        return found

    try:
        return json.loads(text, object_pairs_hook=unique)
    except DataError:
        raise
    except RecursionError:
        raise DataError(f"{where} is nested too deeply to be read.") from None
    except ValueError as error:
        raise DataError(f"{where} is not JSON: {str(error).rstrip('.')}.") from None
