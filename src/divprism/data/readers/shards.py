"""Data sets in several files: patterns such as `shards/*.npy`, and folders of .npy shards."""

import glob
import itertools
import os
import re
from collections.abc import Sequence
from pathlib import Path

from divprism.data.readers.arrays import ARRAY_SUFFIXES
from divprism.data.readers.folders import MEDIA_SUFFIXES, name_without_numbers, natural
from divprism.data.readers.guards import Root, is_hidden, listing, shown
from divprism.data.readers.tables import TABLE_SUFFIXES, kind_of
from divprism.data.samples import Image, Side, Video
from divprism.errors import DataError

__all__ = ["array_shards", "common_kind", "matching", "require_one_folder"]

_WILDCARD = re.compile(r"[*?\[]")
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
        if isinstance(item, Image | Video) and not isinstance(item.source, bytes):
            raise DataError(
                f"{item.where} names a file, and its table is one of several in different folders; "
                "move these tables into one folder, with names relative to it."
            )


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
