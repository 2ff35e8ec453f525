"""Data sets in several files: patterns such as `shards/*.npy`, and folders of .npy shards."""

import contextlib
import glob
import itertools
import os
import re
from collections.abc import Sequence
from pathlib import Path

from divprism.data.items import Media
from divprism.data.readers.arrays import ARRAY_SUFFIXES
from divprism.data.readers.folders import MEDIA_SUFFIXES, name_without_numbers
from divprism.data.readers.guards import Root, is_hidden, listing, shown
from divprism.data.readers.natural_order import natural
from divprism.data.readers.tables import TABLE_SUFFIXES, kind_of
from divprism.data.samples import Side
from divprism.errors import DataError

__all__ = [
    "array_shards",
    "common_kind",
    "matching",
    "output_shards",
    "require_one_folder",
    "require_same_parts",
]

_WILDCARD = re.compile(r"[*?\[]")
_TOKENS = re.compile(r"[0-9]+|[^\W\d_]+|.", re.DOTALL)  # numbers, words and single marks
_FIRST_WORD = re.compile(r"[a-z]*")
_ROLES = {"outputs": "outputs", "x": "outputs", "prompts": "prompts", "t": "prompts"}


def matching(source: str | Path, *, allow_outside: bool = False) -> list[Path] | None:
    """Return what a pattern matches, in natural order (2 before 10); None if it is no pattern.

    What exists under the name itself, brackets and all, is no pattern. Hidden files never match.

    Raises
    ------
    DataError
        If nothing matches, or if a link leads out of the folder before the first wildcard.
    """
    text = str(source)
    if not _WILDCARD.search(text) or os.path.lexists(text):
        return None
    try:
        names = glob.glob(text)
    except (OSError, ValueError):  # a null character, for example
        names = []
    paths = [Path(name) for name in names]
    paths = [path for path in paths if not is_hidden(path.name)]
    if not paths:
        raise DataError(f"no file matches {shown(text[:200])}.")
    parts = Path(text).parts[:-1]
    fixed = itertools.takewhile(lambda part: not _WILDCARD.search(part), parts)
    root = Root(Path(*fixed), allow_outside)
    for path in paths:
        root.require_inside(path, shown(path))
    return sorted(paths, key=_natural_path)


def _natural_path(path: Path) -> list[object]:
    """Return a sort key for paths: folder by folder, because names may be equal in each."""
    return [natural(Path(part)) for part in path.parts]


def common_kind(paths: Sequence[Path]) -> str:
    """Return the suffix that all files have; refuse several."""
    first = paths[0]
    kind = kind_of(first)
    for path in paths:
        if kind_of(path) != kind:
            raise DataError(
                f"{shown(first)} and {shown(path)} have different formats; shards of one data set "
                "have the same."
            )
    return kind


def require_one_folder(tables: Sequence[Path], side: Side | None) -> None:
    """Refuse files that are named by tables in several folders.

    Names are relative to the folder of a table, and here only that of the first was searched.
    """
    if len({path.parent for path in tables}) == 1 or not isinstance(side, tuple):
        return
    for item in side:
        if isinstance(item, Media) and not isinstance(item.source, bytes):
            raise DataError(
                f"{item.where} names a file, and its table is one of several in different folders; "
                "move these tables into one folder, with names relative to it."
            )


def output_shards(source: str | Path) -> list[Path]:
    """Return the shards of a source that has been read: a pattern, or a folder of arrays."""
    paths = matching(source, allow_outside=True)
    folder = Path(source)
    if paths is None and folder.is_dir():
        # A table may describe a folder whose arrays have any names.
        with contextlib.suppress(DataError):
            paths = array_shards(folder, Root(folder, allow_outside=True)).get("outputs")
    return paths or []


def require_same_parts(outputs: Sequence[Path], others: Sequence[Path], noun: str) -> None:
    """Refuse shards that are paired by position, but whose names say that they do not belong.

    If outputs-2.npy and prompts-3.npy are missing, outputs-3.npy would get prompts-2.npy. Rows
    may be cut differently: 0 to 3 beside 0 to 1, without gaps, are accepted.
    """
    if len(outputs) < 2 or len(others) < 2:
        return  # a single file may have any name
    own, other = _varying_parts(outputs), _varying_parts(others)
    if own == other:
        return
    if len(own) != len(other) and _are_consecutive(own) and _are_consecutive(other):
        return
    index = 0
    while index < min(len(own), len(other)) and own[index] == other[index]:
        index += 1
    first, second = ((*map(shown, paths), "none")[index] for paths in (outputs, others))
    raise DataError(
        f"shards pair up in their order, but number {index + 1:,} of the outputs is {first} and "
        f"that of the {noun} is {second}; their names must have the same numbers."
    )


def _varying_parts(paths: Sequence[Path]) -> list[tuple[str, ...]]:
    """Return what is left of each path without the words that all begin and end with.

    >>> _varying_parts([Path("x-09.npy"), Path("x-10.npy")])
    [('9',), ('10',)]
    """
    tokens = [_TOKENS.findall(str(path)) for path in paths]
    start = _num_common(tokens)
    ends = [words[start:][::-1] for words in tokens]
    stop = _num_common(ends)
    return [tuple(map(_without_zeros, words[stop:][::-1])) for words in ends]


def _num_common(lists: Sequence[list[str]]) -> int:
    """Return how many items all lists begin with."""
    same = itertools.takewhile(lambda items: len(set(items)) == 1, zip(*lists, strict=False))
    return sum(1 for _ in same)


def _without_zeros(word: str) -> str:
    if word.isascii() and word.isdigit():
        return word.lstrip("0") or "0"
    return word.casefold()


def _are_consecutive(parts: Sequence[tuple[str, ...]]) -> bool:
    """Whether parts are numbers without a gap."""
    if not all(len(part) == 1 and part[0].isascii() and part[0].isdigit() for part in parts):
        return False
    numbers = [int(part[0]) for part in parts]
    return numbers == list(range(numbers[0], numbers[0] + len(numbers)))


def array_shards(folder: Path, root: Root) -> dict[str, list[Path]]:
    """Return the .npy files of a folder in natural order, by role: outputs, and maybe prompts.

    Their names may differ by numbers alone (part-0.npy, part-1.npy), or begin with the role
    (outputs-0.npy, prompts-0.npy). The result is empty if the folder contains no .npy file, or
    other things to read beside them.

    Raises
    ------
    DataError
        If the names leave open what the files are: x.npy and y.npy are hardly shards.
    """
    entries = listing(folder)
    files = [path for path in entries if path.suffix.lower() == ".npy"]
    readable = (TABLE_SUFFIXES | MEDIA_SUFFIXES | ARRAY_SUFFIXES) - {".npy", ".txt", ".json"}
    if any(path.is_dir() or kind_of(path) in readable for path in entries):
        return {}
    groups: dict[str, list[Path]] = {}
    for path in sorted(files, key=natural):
        # Before the file is opened, which would follow a link.
        root.require_inside(path, shown(path))
        groups.setdefault(name_without_numbers(path), []).append(path)
    if len(groups) == 1:
        (only,) = groups.values()
        return {"outputs": only}
    roles = {_role(name): paths for name, paths in groups.items()}
    if len(roles) < len(groups) or not set(roles) <= {"outputs", "prompts"}:
        names = " and ".join(shown(paths[0].name) for paths in list(groups.values())[:2])
        raise DataError(
            f"{shown(folder)} contains arrays with different names ({names}); name the one to "
            f"read, or a pattern for its shards, such as '{shown(folder / 'x-*.npy')}'."
        )
    return roles


def _role(name: str) -> str:
    """Return what the first word of a name says that an array is; else the name."""
    first_word = _FIRST_WORD.match(name.lower())
    assert first_word is not None  # which may be empty
    return _ROLES.get(first_word[0], name)
