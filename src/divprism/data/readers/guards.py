"""Limits that keep readers safe from untrusted files: paths, lines, JSON and compression."""

import gzip
import io
import json
import os
import re
import stat
import unicodedata
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, cast

from divprism.data.files import open_file, standard_input
from divprism.data.strict_json import RepeatedKeyError, unique_keys
from divprism.errors import DataError

__all__ = [
    "MAX_CELLS",
    "MAX_EXPANSION",
    "MAX_JSON",
    "MAX_LINE",
    "MAX_TEXT",
    "STDIN",
    "Root",
    "check_cells",
    "is_hidden",
    "is_url",
    "listing",
    "parse_json",
    "read_lines",
    "read_whole",
    "shown",
    "standard_input",
]

MAX_CELLS = 1_000_000
"""Delimiters in the longest row of a CSV or TSV file that is read."""
MAX_LINE = 32 << 20
"""Bytes of the longest line that is read."""
MAX_JSON = 512 << 20
"""Bytes of the largest file that is read as one JSON value."""
MAX_EXPANSION = 200
"""How many times its size a compressed file may decompress to."""

MAX_TEXT = 8 << 20
"""Bytes of text that may decompress from anything: too few to do harm."""

STDIN = "standard input"
"""The name of standard input in messages."""

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/{1,2}[^/]")  # a single slash where paths were tidied
_GZIP = b"\x1f\x8b"  # the first bytes of every gzip file


def shown(name: object) -> str:
    r"""Return a name for a message, quoted if it could break the line or control a terminal.

    >>> shown("a b.png"), shown("two\nlines.png")
    ('a b.png', "'two\\nlines.png'")
    """
    text = str(name)
    # Escape codes and right-to-left marks are not printable, so they end up quoted.
    if text.isprintable():
        return text
    return repr(text)


def is_url(name: object) -> bool:
    """Whether a name is that of something on the network.

    >>> is_url("https://example.org/a.png"), is_url("hf://datasets/a"), is_url("C:/a.png")
    (True, True, False)
    """
    return isinstance(name, str) and _URL.match(name) is not None


@dataclass(frozen=True)
class Root:
    """A folder that file names are relative to and must not leave.

    Attributes
    ----------
    folder : Path
        The folder.
    allow_outside : bool
        Whether absolute names, `../` and links may lead out of it.
    """

    folder: Path
    allow_outside: bool = False
    # Resolved folders: a table may name thousands of files in the same few folders.
    _resolved: dict[str, str] = field(default_factory=dict, repr=False, compare=False)

    def find(self, name: str, where: str) -> Path:
        """Return the regular file that a name refers to.

        Parameters
        ----------
        name : str
            Name relative to the folder.
        where : str
            The record that contains the name, for messages.

        Raises
        ------
        DataError
            If there is no such file, or if it is outside the folder.
        """
        # An empty name is the folder itself; a null byte makes system calls raise ValueError.
        if not name or "\0" in name:
            raise DataError(f"{where} names {name!r}, which is not the name of a file.")
        for spelling in _spellings(name):
            path = os.path.join(self.folder, spelling)
            try:
                mode = os.stat(path).st_mode
            # Another spelling may exist; only after the last one is the file missing.
            except FileNotFoundError:
                continue
            except (OSError, ValueError):
                raise DataError(
                    f"{where} names {shown(name[:80])}, which cannot be opened."
                ) from None
            self.require_inside(path, where)
            # A pipe would block forever, and a device could have any content.
            if not stat.S_ISREG(mode):
                raise DataError(f"{where} names {shown(name)}, which is not a regular file.")
            return Path(path)
        raise DataError(
            f"{where} names {shown(name[:200])}, but there is no such file in {shown(self.folder)}."
        )

    def require_inside(self, path: Path | str, where: str) -> None:
        """Raise DataError if a path leads out of the folder."""
        if self.allow_outside:
            return
        target = self.real(path)
        # With the separator at the end, so that /data-other is not taken to be inside /data.
        inside = os.path.join(self._real_folder(str(self.folder)), "")
        if not target.startswith(inside):
            raise DataError(
                f"{where} leads to {shown(target)}, outside {shown(self.folder)}; "
                "pass `allow_outside=True` to read it."
            )

    def leads_outside(self, path: Path | str) -> bool:
        """Whether a path leads out of the folder."""
        try:
            self.require_inside(path, "")
        except DataError:
            return True
        return False

    def real(self, path: Path | str) -> str:
        """Return the path with links and `..` resolved; each folder is resolved once."""
        head, tail = os.path.split(path)
        # `realpath` of each file would resolve every parent again, a system call for each.
        if tail in ("", ".", "..") or os.path.islink(path):
            return os.path.realpath(path)
        return os.path.join(self._real_folder(head), tail)

    def real_if_plain(self, path: Path) -> str:
        """Return the path with its folder resolved, without checking if it is a link itself.

        This saves a system call for each file of a large folder.
        """
        head, tail = os.path.split(path)
        return os.path.join(self._real_folder(head), tail)

    def _real_folder(self, folder: str) -> str:
        if folder not in self._resolved:
            self._resolved[folder] = os.path.realpath(folder)
        return self._resolved[folder]


def _spellings(name: str) -> list[str]:
    """Return the Unicode forms in which a file system may store a name."""
    if name.isascii():
        return [name]
    # macOS decomposes accents, Linux keeps what it was given; tables travel between both.
    return [name, unicodedata.normalize("NFC", name), unicodedata.normalize("NFD", name)]


def listing(folder: Path) -> list[Path]:
    """Return the content of a folder without hidden files, sorted by name.

    Sorting makes the order independent of the file system.
    """
    try:
        names = sorted(os.listdir(folder))
    except OSError as error:
        raise DataError(f"cannot list {shown(folder)}: {error.strerror}.") from None
    return [folder / name for name in names if not is_hidden(name)]


def is_hidden(name: str) -> bool:
    """Whether a file name is hidden, or a leftover of macOS in a zip archive."""
    return name.startswith((".", "__MACOSX"))


def read_lines(source: Path | bytes, name: str) -> Iterator[tuple[int, str]]:
    """Yield the number and the text of each line, line ends included.

    Parameters
    ----------
    source : Path or bytes
        A file in UTF-8, possibly compressed by gzip, or its content.
    name : str
        Its name in messages.
    """
    with _open_text(source, name) as (file, compressed):
        size = 0
        number = 0
        while line := _line(file, name, number + 1):
            number += 1
            size += len(line)
            if compressed is not None:
                # `tell` of the compressed file is how much of it has been consumed so far.
                limit = max(MAX_TEXT, MAX_EXPANSION * compressed.tell())
                if size > limit:
                    raise DataError(
                        f"{name} decompresses to over {MAX_EXPANSION} times its size "
                        f"(line {number:,}); decompress it yourself if you trust it."
                    )
            yield number, _decode(line, number, name)


def check_cells(line: str, delimiter: str, where: str) -> None:
    """Refuse a line of millions of cells, each of which takes many times its byte."""
    # Most lines are too short, and need not be counted.
    if len(line) > MAX_CELLS and line.count(delimiter) > MAX_CELLS:
        raise DataError(f"{where} has more than {MAX_CELLS:,} cells.")


def _decode(line: bytes, number: int, name: str) -> str:
    encoding = "utf-8"
    if number == 1:
        encoding = "utf-8-sig"  # Windows programs start a file with a byte order mark
    try:
        return line.decode(encoding)
    except UnicodeDecodeError as error:
        raise DataError(
            f"line {number:,} of {name} is not text in UTF-8: byte {error.start:,} is invalid."
        ) from None


def read_whole(source: Path | bytes, name: str) -> str:
    """Return a text file as one string; refuse files of more than MAX_JSON bytes."""
    lines = []
    size = 0
    for _, line in read_lines(source, name):
        size += len(line)
        # Checked while reading: the size of a compressed file is no measure of its content.
        if size > MAX_JSON:
            raise DataError(
                f"{name} is larger than {MAX_JSON >> 20} MB; "
                "store it as .jsonl, with one record per line."
            )
        lines.append(line)
    return "".join(lines)


def _line(file: BinaryIO, name: str, number: int) -> bytes:
    try:
        # One byte more than allowed is enough to see that a line is too long.
        line = file.readline(MAX_LINE + 1)
    except (OSError, EOFError, zlib.error) as error:
        reason = str(getattr(error, "strerror", None) or error).rstrip(".")
        raise DataError(
            f"{name} is corrupt or truncated after line {number - 1:,}: {reason}."
        ) from None
    if len(line) > MAX_LINE:
        raise DataError(f"line {number:,} of {name} is longer than {MAX_LINE >> 20} MB.")
    return line


@contextmanager
def _open_text(source: Path | bytes, name: str) -> Iterator[tuple[BinaryIO, BinaryIO | None]]:
    """Yield the file to read lines from, and the compressed file behind it if there is one."""
    with _open_raw(source, name) as raw:
        compressed = raw.read(len(_GZIP)) == _GZIP
        # By content and not by name, so that compressed standard input is read as well.
        raw.seek(0)
        if not compressed:
            if isinstance(source, Path) and source.suffix.lower() == ".gz":
                raise DataError(f"{name} is not a gzip file, although its name ends in .gz.")
            yield raw, None
            return
        with gzip.GzipFile(fileobj=raw) as file:
            yield cast(BinaryIO, file), raw


def _open_raw(source: Path | bytes, name: str) -> BinaryIO:
    if isinstance(source, bytes):
        return io.BytesIO(source)
    return open_file(source, name)


def parse_json(text: str, where: str) -> Any:
    """Return a JSON value; refuse repeated keys, which would drop outputs, and deep nesting."""
    try:
        return json.loads(text, object_pairs_hook=unique_keys)
    except RepeatedKeyError as error:
        raise DataError(f"{where} has the key {error.key!r} twice; remove one of them.") from None
    # "[[[[..." of a few kilobytes exhausts the stack of the parser.
    except RecursionError:
        raise DataError(f"{where} is nested too deeply.") from None
    except ValueError as error:
        reason = str(error).rstrip(".")
        # Python limits the digits of an integer, and its message is about Python.
        if "integer string conversion" in reason:
            raise DataError(f"{where} contains an integer with too many digits.") from None
        # `where` names the line of the file; the parser counts lines inside of the text.
        if isinstance(error, json.JSONDecodeError):
            reason = f"{error.msg} (character {error.pos + 1})"
        raise DataError(f"{where} is not JSON: {reason}.") from None
