"""Which layout a subset is written in: that of its source where it has one that is copied.

Nothing is replaced: a target must not exist, nor be inside the source. Folders are written under a
temporary name and then renamed, so that there is all of a subset or nothing.
"""

import os
import shutil
import tempfile
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, ClassVar

import numpy as np

from divprism.core.arrays import to_numpy
from divprism.data.files import TEMPORARY, open_file, umask, write_whole
from divprism.data.items import Item, Text
from divprism.data.readers.embedded import EMBEDDING
from divprism.data.readers.folders import find_table
from divprism.data.readers.guards import Root, shown
from divprism.data.readers.tables import kind_of
from divprism.data.samples import Samples, files_of
from divprism.data.subsets.tables import is_copied, json_bytes, record_writer
from divprism.data.wording import counted, escaped, reason
from divprism.errors import ArgumentError, DataError, Notice

__all__ = ["Layout", "layout_of", "write_subset"]

# Ends of names that people give to files: a folder is not what they expect.
_FILES = (".jsonl", ".ndjson", ".json", ".csv", ".tsv", ".parquet", ".arrow", ".npy", ".npz", ".gz")

_BLOCK = 1 << 20  # bytes of a file that are copied at a time


@dataclass(frozen=True, eq=False)
class Layout(ABC):
    """How a subset of some samples is written.

    Attributes
    ----------
    samples : Samples
        All outputs of the source.
    origin : Path or None
        The file or folder that they were read from; None for samples in memory.
    """

    samples: Samples
    origin: Path | None

    @abstractmethod
    def check(self, target: Path) -> None:
        """Refuse a target that cannot be written, before anything is computed."""

    @abstractmethod
    def write(self, positions: Sequence[int], target: Path) -> list[str]:
        """Write the outputs at some positions, in this order; return notes on what was written."""

    def _require_new(self, target: Path, suffixes: tuple[str, ...] = ()) -> None:
        """Refuse a target that exists, has another suffix, or is inside the source."""
        named = escaped(target)[:200]
        if suffixes and not target.name.lower().endswith(suffixes):
            ends = " or ".join(suffixes)
            raise ArgumentError(
                f"a subset of this source is written as {ends}, so that is how its name must end; "
                f"got {named}."
            )
        if os.path.lexists(target):
            raise ArgumentError(
                f"{named} exists, and nothing is replaced: remove it, or name another target."
            )
        if not target.parent.is_dir():
            raise DataError(f"cannot write {named}: there is no folder {escaped(target.parent)}.")
        if self.origin is not None and self.origin.is_dir():
            _require_outside(target, self.origin)


@dataclass(frozen=True, eq=False)
class _Records(Layout):
    """JSONL with output, prompt, model and quality: what every source of texts can become."""

    why: str = ""

    def check(self, target: Path) -> None:
        """Refuse what is not a new .jsonl file."""
        self._require_new(target, (".jsonl",))

    def write(self, positions: Sequence[int], target: Path) -> list[str]:
        """Write a line for each output."""
        rows = self.samples.select(positions)
        _write(target, lambda file: file.writelines(_record_lines(rows)))
        return [f"{target}: lines of {_fields_of(rows)}, because {self.why}"]


@dataclass(frozen=True, eq=False)
class _Vectors(Layout):
    """Vectors: an .npy file like that of the source, or .npz with outputs and prompts."""

    def check(self, target: Path) -> None:
        """Refuse what is not a new file of the right suffix."""
        self._require_new(target, (self._suffix,))
        if self._has_prompts_beside:
            self._require_new(_beside(target))

    @property
    def _suffix(self) -> str:
        if self.origin is not None and self.origin.suffix.lower() == ".npy":
            return ".npy"
        return ".npz"

    @property
    def _has_prompts_beside(self) -> bool:
        return self._suffix == ".npy" and self.samples.prompts is not None

    def write(self, positions: Sequence[int], target: Path) -> list[str]:
        """Write the rows of outputs, and of prompts where there are any."""
        rows = self.samples.select(positions)
        outputs = to_numpy(rows.outputs)
        arrays = {"outputs": outputs}
        if rows.prompts is not None:
            arrays["prompts"] = _plain(rows.prompts)
        if self._suffix == ".npz":
            _write(target, lambda file: np.savez(file, **arrays))  # type: ignore[arg-type]
            return [f"{target}: {', '.join(arrays)}"]
        _write(target, partial(np.save, arr=outputs, allow_pickle=False))
        if not self._has_prompts_beside:
            return [f"{target}: outputs"]
        beside = _beside(target)
        _write(beside, partial(np.save, arr=arrays["prompts"], allow_pickle=False))
        return [f"{target}: outputs; {beside}: their prompts"]


@dataclass(frozen=True, eq=False)
class _Table(Layout):
    """The records of one table, as they are in it."""

    def check(self, target: Path) -> None:
        """Refuse what is not a new file of the kind of the table."""
        kind = kind_of(self._table)
        ends: tuple[str, ...] = (kind,)
        if kind not in (".parquet", ".arrow"):
            ends = (kind, f"{kind}.gz")
        self._require_new(target, ends)

    @property
    def _table(self) -> Path:
        return _table_of(self.origin)

    def write(self, positions: Sequence[int], target: Path) -> list[str]:
        """Copy the records of the outputs."""
        _write(target, record_writer(self._table, self._numbers(positions), target))
        return [f"{target}: {counted(len(positions), 'record', 'records')} of {self._table}"]

    def _numbers(self, positions: Sequence[int]) -> list[int]:
        assert self.samples.records is not None
        return [self.samples.records[position][1] for position in positions]


@dataclass(frozen=True, eq=False)
class _Folder(Layout):
    """Images or videos with the names that they have in their folder, and records of its table.

    `joined` is whether their prompts were read from elsewhere.
    """

    joined: bool = False

    _METADATA: ClassVar[str] = "metadata.jsonl"

    def check(self, target: Path) -> None:
        """Refuse what is not a new folder outside of the source."""
        if target.suffix.lower() in _FILES:
            raise ArgumentError(
                "a subset of images, videos or sounds is written as a folder, so its name must not "
                f"end in {target.suffix}; got {escaped(target)[:200]}."
            )
        self._require_new(target)
        _require_outside(target, self._root)
        root = Root(self._root)
        for path in files_of(self.samples):
            _relative(path, self._root)
            if root.leads_outside(path):
                raise DataError(f"{shown(path)} is a link out of the source, which is not copied.")

    @property
    def _root(self) -> Path:
        assert self.origin is not None
        if self.origin.is_dir():
            return self.origin
        return self.origin.parent

    def write(self, positions: Sequence[int], target: Path) -> list[str]:
        """Copy the files, and write the records that belong to them."""
        self.check(target)
        rows = self.samples.select(positions)
        files = {_relative(path, self._root): path for path in files_of(rows)}
        temporary = Path(tempfile.mkdtemp(dir=target.parent, prefix=".", suffix=TEMPORARY))
        try:
            for name, path in files.items():
                _copy(path, temporary / name)
            described = self._describe(rows, temporary)
            temporary.chmod(0o777 & ~umask())
            temporary.rename(target)
        except OSError as error:
            named = escaped(target)[:200]
            raise DataError(f"cannot write {named}: {reason(error)}.") from None
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
        return [f"{target}: {counted(len(files), 'file', 'files')}{described}"]

    def _describe(self, rows: Samples, folder: Path) -> str:
        """Write what describes the files: records of the table, or of GenEval, or a new table."""
        if rows.records is not None:
            table = _table_of(self.origin)
            numbers = [number for _, number in rows.records]
            _write(folder / table.name, record_writer(table, numbers, Path(table.name)))
            return f", and their records of {table.name}"
        for path in files_of(rows):
            beside = path.parent.parent / self._METADATA
            if path.parent.name == "samples" and beside.is_file():
                _copy(beside, folder / _relative(beside, self._root))
        in_folder = [path for path in files_of(rows) if path.parent == self._root]
        # Which part of a name is the prompt is inferred from all names, and these are fewer.
        if rows.prompts is not None and (self.joined or in_folder):
            lines = _record_lines(rows, self._root)
            _write(folder / self._METADATA, lambda file: file.writelines(lines))
            return f", and {self._METADATA} with their prompts"
        return ""


def write_subset(
    origin: str | Path | None,
    samples: Samples,
    positions: Sequence[int],
    path: str | Path,
    *,
    joined: bool = False,
) -> tuple[Notice, ...]:
    """Write the outputs at some positions in the layout of their source; return notes on it.

    Parameters
    ----------
    origin : str, Path or None
        The file or folder that was read; None for samples in memory.
    samples : Samples
        All outputs, as they were read.
    positions : sequence of int
        Which of them to write.
    path : str or Path
        A new file or folder.
    joined : bool, optional
        Whether the prompts were read from elsewhere.
    """
    layout = layout_of(origin, samples, joined=joined)
    target = Path(path)
    layout.check(target)
    notes = layout.write(positions, target)
    return tuple(Notice("subset-written", note, "note") for note in notes)


def layout_of(origin: str | Path | None, samples: Samples, *, joined: bool = False) -> Layout:
    """The layout that a subset of some samples is written in.

    `joined` is whether prompts were read from elsewhere: records alone would leave them behind.
    """
    path = None
    if origin is not None and str(origin) != "-" and os.path.exists(origin):
        path = Path(origin)
    if joined:
        samples = replace(samples, records=None)
    if path is not None and not _is_embedded(path):
        if samples.records is None and path.is_dir() and _are_files(samples):
            return _Folder(samples, path, joined)
        if _has_own_records(path, samples):
            if _are_files(samples):
                return _Folder(samples, path)
            return _Table(samples, path)
    if not isinstance(samples.outputs, tuple):
        return _Vectors(samples, path)
    why = "the records of the source cannot be copied one by one"
    if path is None:
        why = "the source is not one file or folder"
    elif joined:
        why = "prompts and outputs are in different files"
    return _Records(samples, path, why)


def _is_embedded(path: Path) -> bool:
    """Whether `divprism embed` wrote a folder, whose files belong together."""
    return path.is_dir() and (path / EMBEDDING).is_file()


def _are_files(samples: Samples) -> bool:
    """Whether all outputs are files, or frames in files."""
    if not isinstance(samples.outputs, tuple):
        return False
    return all(isinstance(getattr(item, "source", None), Path | tuple) for item in samples.outputs)


def _has_own_records(path: Path, samples: Samples) -> bool:
    """Whether each output has a record of its own, in one table whose records are copied."""
    if not samples.records or len({name for name, _ in samples.records}) > 1:
        return False
    if max(Counter(samples.records).values()) > 1:
        return False
    try:
        table = _table_of(path)
    except DataError:
        return False
    return shown(table) == samples.records[0][0] and is_copied(table)


def _table_of(origin: Path | None) -> Path:
    """The table that a source is, or that describes a folder."""
    assert origin is not None
    if not origin.is_dir():
        return origin
    tables = find_table(origin)
    if len(tables) != 1:
        raise DataError(f"{shown(origin)} is not described by one table.")
    return tables[0]


def _require_outside(target: Path, folder: Path) -> None:
    # With the separator at the end, so that /data-other is not taken to be inside /data.
    inside = os.path.join(os.path.realpath(folder), "")
    if os.path.join(os.path.realpath(target), "").startswith(inside):
        raise ArgumentError(
            f"{escaped(target)[:200]} is inside of the source, which is not changed; name another "
            "target."
        )


def _relative(path: Path, root: Path) -> Path:
    """The name of a file in its folder; refused where it leads out of it."""
    relative = os.path.relpath(path, root)
    if os.path.isabs(relative) or relative.split(os.sep)[0] == os.pardir:
        raise DataError(
            f"{shown(path)} is outside of {shown(root)}, so the subset cannot have its layout."
        )
    return Path(relative)


def _copy(path: Path, target: Path) -> None:
    """Copy a regular file block by block; what a link inside the source leads to, not the link."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with open_file(path, shown(path)) as source, target.open("xb") as copy:
        shutil.copyfileobj(source, copy, _BLOCK)


def _write(target: Path, write: Callable[[BinaryIO], object]) -> None:
    try:
        write_whole(target, write)
    except OSError as error:
        raise DataError(f"cannot write {escaped(target)[:200]}: {reason(error)}.") from None


def _record_lines(rows: Samples, root: Path | None = None) -> Iterator[bytes]:
    """Lines of JSON with the model, the prompt, the output and its quality, as far as given."""
    for position in range(len(rows)):
        record: dict[str, Any] = {}
        if rows.models is not None:
            record["model"] = rows.models[position]
        if rows.prompts is not None:
            record["prompt"] = _value(rows.prompts[position], root)
        name = "output"
        if root is not None:
            name = "file_name"
        record[name] = _value(rows.outputs[position], root)
        if rows.quality is not None:
            record["quality"] = float(rows.quality[position])
        yield json_bytes(record) + b"\n"


def _fields_of(rows: Samples) -> str:
    """The fields of `_record_lines` in words."""
    columns = {"model": rows.models, "prompt": rows.prompts, "output": rows.outputs}
    columns["quality"] = rows.quality
    *names, last = [name for name, values in columns.items() if values is not None]
    if not names:
        return last
    return f"{', '.join(names)} and {last}"


def _value(item: Any, root: Path | None) -> Any:
    """An item as a value of JSON: its text, the name of its file, a vector or an id."""
    if isinstance(item, Text):
        return item.text
    if isinstance(item, Item):
        label = item.label
        if root is not None:
            return str(_relative(Path(label), root))
        return os.path.abspath(label)
    return np.asarray(item).tolist()


def _plain(side: Any) -> np.ndarray:
    """Prompts as an array without objects: vectors, ids, or texts."""
    if isinstance(side, tuple):
        return np.array([str(_value(item, None)) for item in side])
    values = to_numpy(side)
    if values.dtype == object:
        return values.astype(str)
    return values


def _beside(target: Path) -> Path:
    return target.with_name(f"{target.stem}-prompts{target.suffix}")
