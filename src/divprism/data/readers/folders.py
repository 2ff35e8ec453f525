"""The content of a folder: its media files in natural order, and the table that describes it."""

import os
import re
from collections import Counter
from pathlib import Path

from divprism.data.media import AUDIO_SUFFIXES, IMAGE_SUFFIXES, VIDEO_SUFFIXES
from divprism.data.readers.fields import Findings
from divprism.data.readers.guards import Root, listing, parse_json, read_whole, shown
from divprism.data.readers.natural_order import natural
from divprism.data.readers.tables import TABLE_SUFFIXES, kind_of
from divprism.errors import DataError

__all__ = [
    "MEDIA_SUFFIXES",
    "find_table",
    "folders_of_models",
    "media_files",
    "name_without_numbers",
    "note_strays",
    "subfolders",
    "suffixes_of",
]

MEDIA_SUFFIXES = IMAGE_SUFFIXES | VIDEO_SUFFIXES | AUDIO_SUFFIXES
"""Suffixes of the images, videos and sounds that are read."""

_LM_EVAL = re.compile(r"samples_.+\.jsonl(\.gz)?")
_LM_EVAL_DATE = re.compile(r"_\d{4}-\d\d-\d\dT.*|\.jsonl(\.gz)?$")


def name_without_numbers(path: Path) -> str:
    """Return the name of a file with a mark in place of each number: shards then have the same.

    >>> name_without_numbers(Path("train-00000-of-00002.parquet"))
    'train-#-of-#.parquet'
    """
    return re.sub(r"[0-9]+", "#", path.name)


def suffixes_of(kind: str | None) -> frozenset[str]:
    """Return the suffixes of the files that are outputs of a declared kind; None declares none.

    Images and videos stay together, because images may be the frames of videos.
    """
    if kind == "audio":
        return AUDIO_SUFFIXES
    if kind in ("image", "video"):
        return MEDIA_SUFFIXES - AUDIO_SUFFIXES
    return MEDIA_SUFFIXES


def media_files(folder: Path, root: Root, kind: str | None = None) -> list[Path]:
    """Return the images, videos and sounds directly in a folder, in natural order.

    With a kind, those that `suffixes_of` names. Links that lead out of the root are refused.
    """
    suffixes = suffixes_of(kind)
    candidates = [path for path in listing(folder) if path.suffix.lower() in suffixes]
    # Before `is_file`, which would already follow the link.
    for path in candidates:
        root.require_inside(path, shown(path))
    return sorted((path for path in candidates if path.is_file()), key=natural)


def subfolders(folder: Path, root: Root) -> list[Path]:
    """Return the folders directly in a folder, in natural order.

    Links that lead out of the root are refused.
    """
    folders = sorted((path for path in listing(folder) if path.is_dir()), key=natural)
    for path in folders:
        root.require_inside(path, shown(path))
    return folders


def find_table(folder: Path) -> list[Path]:
    """Return the table that describes a folder, or [] without one.

    It is metadata.* if there is one, else the logs of inspect, else the samples of lm-eval (a file
    per task), else the only table of the folder. Parquet files whose names differ by numbers alone
    are shards of one table.
    """
    # A text file beside images is a readme or a list of prompts, not their table.
    suffixes = TABLE_SUFFIXES - {".txt"}
    tables = [path for path in listing(folder) if kind_of(path) in suffixes and path.is_file()]
    metadata = [path for path in tables if path.name.split(".")[0] == "metadata"]
    described = _without_strays(metadata)
    samples = [path for path in tables if _LM_EVAL.fullmatch(path.name)]
    logs = [path for path in tables if kind_of(path) == ".eval"]
    if described:
        tables = described
    elif logs:
        return logs
    elif samples:
        return _distinct_tasks(samples, folder)
    else:
        tables = _without_strays(tables)
    if _are_shards(tables):
        return sorted(tables, key=natural)
    # Reading both would mix, say, the training and the test captions.
    if len(tables) > 1:
        names = ", ".join(shown(path.name) for path in tables[:5])
        raise DataError(
            f"{shown(folder)} contains {len(tables)} tables ({names}); name the one to read."
        )
    return tables


def folders_of_models(folder: Path, root: Root) -> dict[str, list[Path]]:
    """Return the samples of lm-eval in the folders of a folder, by the names of these folders.

    lm-eval makes a folder for each model that it evaluates.
    """
    models = {}
    for path in listing(folder):
        # Links that lead out of the root belong to no model; reading media refuses them.
        if not path.is_dir() or root.leads_outside(path):
            continue
        samples = [file for file in listing(path) if _LM_EVAL.fullmatch(file.name)]
        if samples:
            models[path.name] = _distinct_tasks(samples, path)
    return models


def _are_shards(tables: list[Path]) -> bool:
    # Parquet alone: answers1.jsonl and answers2.jsonl are more likely two models.
    if any(kind_of(path) != ".parquet" for path in tables):
        return False
    return len({name_without_numbers(path) for path in tables}) == 1


def _without_strays(tables: list[Path]) -> list[Path]:
    return [path for path in tables if not _is_stray(path)]


def _distinct_tasks(samples: list[Path], folder: Path) -> list[Path]:
    """Return the samples of lm-eval if each task, samples_<task>_<date>.jsonl, has one run."""
    tasks = Counter(_LM_EVAL_DATE.sub("", path.name) for path in samples)
    task, count = tasks.most_common(1)[0]
    # Two runs of a task have the same prompts; together they would look like more outputs.
    if count > 1:
        raise DataError(
            f"{shown(folder)} contains {count} runs of {shown(task)}; name the file to read."
        )
    return samples


def _is_stray(path: Path) -> bool:
    """Whether a .json file names no file, such as the settings of a run.

    Only beside media, arrays or folders: else it may be the table itself.
    """
    if kind_of(path) != ".json":
        return False
    # The reader checks where a link leads; opening it here would bypass that.
    if path.is_symlink():
        return False
    siblings = listing(path.parent)
    if not any(_is_described(other) for other in siblings):
        return False
    try:
        content = parse_json(read_whole(path, shown(path)), shown(path))
    except DataError:
        return False  # the reader reports the problem
    if not isinstance(content, dict) or _is_list_under_a_name(content):
        return False
    return not _names_files(content, path.parent)


def _is_described(path: Path) -> bool:
    """Whether a path is something that a table beside it could describe."""
    return _is_media(path.name) or path.suffix.lower() == ".npy" or path.is_dir()


def _is_list_under_a_name(content: dict[str, object]) -> bool:
    """Whether an object is {"data": [records]}."""
    if len(content) != 1:
        return False
    (only,) = content.values()
    return isinstance(only, list) and all(isinstance(record, dict) for record in only)


def _names_files(content: dict[str, object], folder: Path) -> bool:
    """Whether an object names media files, or any files that exist in the folder."""
    names = list(content)
    for value in content.values():
        names += _strings_in(value)
    if any(_is_media(name) for name in names):
        return True
    # prompt -> file is not a layout that is read, but the object is a table all the same: the
    # reader refuses it with a reason. Other strings, such as a model's name, prove nothing.
    values = [value for value in content.values() if isinstance(value, str) and _is_media(value)]
    return any(_exists(folder, name) for name in (*names, *values))


def _strings_in(value: object) -> list[str]:
    entries: list[object] = []
    if isinstance(value, dict):
        entries = list(value.values())
    elif isinstance(value, list):
        entries = value
    return [entry for entry in entries if isinstance(entry, str)]


def _is_media(name: str) -> bool:
    return os.path.splitext(name)[1].lower() in MEDIA_SUFFIXES


def _exists(folder: Path, name: str) -> bool:
    # Only inside the folder: whether a file exists elsewhere must not change the answer.
    if os.path.isabs(name) or ".." in Path(name).parts:
        return False
    try:
        return (folder / name).is_file()
    except (OSError, ValueError):  # a name that no file system takes
        return False


def note_strays(folder: Path, table: str, findings: Findings) -> None:
    """Add a note for each .json file of a folder that names no file and is not its table."""
    for path in listing(folder):
        if kind_of(path) != ".json" or shown(path) == table:
            continue
        if path.is_file() and _is_stray(path):
            findings.note(f"{shown(path)}: not read, because it names no file of the folder")
