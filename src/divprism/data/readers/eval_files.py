"""Logs of inspect-ai in its format .eval: a zip file with a JSON member for each sample.

The layout is that of version 0.3.285: `header.json` when the run has ended, `_journal/start.json`
from its start, `samples/<id>_epoch_<n>.json`; compressed by zstd, by deflate in older versions.
"""

import importlib
import io
import os
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from divprism.data.files import open_file
from divprism.data.readers.guards import MAX_EXPANSION, MAX_LINE, MAX_TEXT, parse_json, shown
from divprism.data.readers.natural_order import natural
from divprism.data.wording import first_line
from divprism.data.zip_files import UNREADABLE, open_zip
from divprism.errors import DataError, MissingExtraError

__all__ = ["RUN_STATUS", "eval_samples", "member_of", "named_run", "run_of"]

RUN_STATUS = "divprism_run_status"
"""The field of a sample that holds the status of its log; samples have none of this name."""

_HEADERS = ("header.json", "_journal/start.json")  # the first there is
_SAMPLES = "samples/"
_UNUSED = ("events", "store", "model_usage")  # what happened; as large as all else together
_ZSTD = 93  # the number of this compression in zip files
_PIECE = 4096  # bytes read at a time: a piece of zstd may unpack to 128 MB, a whole member to more
_LARGEST_DIRECTORY = 16 << 20  # bytes of the directory, for some 200,000 samples
_LONGEST_NAME = 200  # characters of a member in messages


def eval_samples(source: Path | bytes, name: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the place and the fields of each sample, by its number and epoch.

    The model, the task and the status of the log are among the fields.

    Parameters
    ----------
    source : Path or bytes
        The log, or its content.
    name : str
        Its name in messages.
    """
    with _Log.open(source, name) as log:
        run = log.run() | {RUN_STATUS: log.status()}
        for entry in log.samples():
            where = f"{shown(entry.filename[:_LONGEST_NAME])} of {name}"
            sample = log.read(entry)
            fields = {key: value for key, value in sample.items() if key not in _UNUSED}
            yield where, fields | run


def member_of(sample: Mapping[str, Any]) -> str:
    """Return the name that the member of a sample has in a log."""
    return f"{_SAMPLES}{sample.get('id')}_epoch_{sample.get('epoch')}.json"


def named_run(about: object) -> dict[str, str]:
    """Return the task and the model in the header of a log, as far as it names them."""
    if not isinstance(about, dict):
        return {}
    return {key: about[key] for key in ("task", "model") if isinstance(about.get(key), str)}


def run_of(path: Path, name: str) -> tuple[dict[str, str], str]:
    """Return the task and the model of a log, and its status."""
    with _Log.open(path, name) as log:
        return log.run(), log.status()


class _Log:
    """An open log, of which members are measured before they are parsed."""

    def __init__(self, archive: Any, size: int, name: str) -> None:
        self._archive = archive
        self._name = name
        # By name: of members that are called alike, the last one counts, as in any zip file.
        self._entries = {entry.filename: entry for entry in archive.infolist()}
        self._left = max(MAX_TEXT, MAX_EXPANSION * size)
        packed = sum(entry.compress_size for entry in self._entries.values())
        # Members that overlap would be read several times each.
        if packed > size:
            raise DataError(f"{name} has members that are larger than the file.")

    @classmethod
    @contextmanager
    def open(cls, source: Path | bytes, name: str) -> Iterator["_Log"]:
        """Open a log; whatever a damaged one triggers becomes one sentence."""
        module, errors = _zip_module()
        try:
            with (
                _opened(source, name) as (file, size),
                open_zip(file, _LARGEST_DIRECTORY, module) as archive,
            ):
                yield cls(archive, size, name)
        except DataError:  # which is a ValueError, too
            raise
        except errors as error:
            raise DataError(f"{name} is not a readable log: {first_line(error)}.") from None

    def run(self) -> dict[str, str]:
        """Return the task and the model; each is left out where the header does not name it."""
        return named_run(self._header().get("eval"))

    def status(self) -> str:
        """Return how the run ended: "success", or something else."""
        return str(self._header().get("status", "started"))

    def samples(self) -> list[Any]:
        """Return the members of samples in natural order."""
        names = [name for name in self._entries if name.startswith(_SAMPLES)]
        names = [name for name in names if name.endswith(".json")]
        names.sort(key=lambda name: natural(Path(name)))
        return [self._entries[name] for name in names]

    def _header(self) -> dict[str, Any]:
        for header in _HEADERS:
            if header in self._entries:
                return self.read(self._entries[header])
        raise DataError(f"{self._name} has no header.json: it is not a log of inspect.")

    def read(self, entry: Any) -> dict[str, Any]:
        """Return the JSON object in a member."""
        where = f"{shown(entry.filename[:_LONGEST_NAME])} of {self._name}"
        text = self._bytes_of(entry, where).decode("utf-8", "replace")
        content = parse_json(text, where)
        if not isinstance(content, dict):
            raise DataError(f"{where} is not a JSON object.")
        return content

    def _bytes_of(self, entry: Any, where: str) -> bytes:
        known = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, _ZSTD)
        if entry.compress_type not in known:
            raise DataError(f"{where} is compressed by a method that logs do not use.")
        if entry.compress_type == _ZSTD and not _knows_zstd(_zip_module()[0]):
            raise MissingExtraError(
                f"Reading {self._name} needs backports.zstd, which is not installed: "
                "pip install 'divprism[inspect]'."
            )
        pieces: list[bytes] = []
        length = 0
        with self._archive.open(entry) as member:
            while piece := member.read(_PIECE):
                pieces.append(piece)
                length += len(piece)
                # What the directory says about sizes may be wrong, so they are counted.
                if length > MAX_LINE:
                    raise DataError(f"{where} is larger than {MAX_LINE >> 20} MB.")
                if length > self._left:
                    raise DataError(
                        f"{self._name} decompresses to over {MAX_EXPANSION} times its size."
                    )
        self._left -= length
        return b"".join(pieces)


@contextmanager
def _opened(source: Path | bytes, name: str) -> Iterator[tuple[BinaryIO, int]]:
    if isinstance(source, bytes):
        yield io.BytesIO(source), len(source)
        return
    with open_file(source, name) as file:
        yield file, os.fstat(file.fileno()).st_size


def _knows_zstd(module: Any) -> bool:
    return hasattr(module, "ZIP_ZSTANDARD")


def _zip_module() -> tuple[Any, tuple[type[BaseException], ...]]:
    """Return the module that reads zip files, with zstd if possible, and what it raises."""
    # Python knows zstd from version 3.14 on; the backport is the same code for older ones.
    if _knows_zstd(zipfile):
        errors = importlib.import_module("compression.zstd").ZstdError
        return zipfile, (*UNREADABLE, errors)
    try:
        module = importlib.import_module("backports.zstd.zipfile")
        errors = importlib.import_module("backports.zstd").ZstdError
    except ImportError:
        return zipfile, UNREADABLE
    return module, (*UNREADABLE, errors, module.BadZipFile)
