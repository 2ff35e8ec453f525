"""Folders that `save_to_disk` of Hugging Face datasets writes."""

from collections.abc import Iterator
from pathlib import Path

from divprism.data.readers.fields import Fields, Findings
from divprism.data.readers.guards import Root, listing, parse_json, read_whole, shown
from divprism.data.readers.records import samples_from_records
from divprism.data.readers.tables import Record, read_table
from divprism.data.samples import Samples
from divprism.errors import DataError

__all__ = ["is_datasets_folder", "read_datasets_folder"]

_SPLITS, _STATE = "dataset_dict.json", "state.json"


def is_datasets_folder(folder: Path) -> bool:
    """Whether a folder contains a data set, or the splits of one."""
    return (folder / _SPLITS).is_file() or (folder / _STATE).is_file()


def read_datasets_folder(folder: Path, fields: Fields, root: Root, findings: Findings) -> Samples:
    """Return the pairs of a data set.

    Parameters
    ----------
    folder : Path
        A folder of a data set, or of a dictionary with a single split.
    fields : Fields
        The fields to read.
    root : Root
        The folder that files must be in.
    findings : Findings
        Receives notes and warnings.
    """
    if (folder / _SPLITS).is_file():
        folder = _only_split(folder)
        root.require_inside(folder, shown(folder))
    files = _arrow_files(folder, root)
    if not files:
        raise DataError(f"{shown(folder)} is a datasets folder without any .arrow file.")

    def records() -> Iterator[Record]:
        for path in files:
            yield from read_table(path, ".arrow", shown(path))

    samples, _ = samples_from_records(records(), fields, root, findings, shown(folder))
    return samples


def _only_split(folder: Path) -> Path:
    # The names in dataset_dict.json are not trusted; what is on disk counts.
    splits = [path for path in listing(folder) if (path / _STATE).is_file()]
    if len(splits) != 1:
        names = ", ".join(shown(path.name) for path in splits)
        raise DataError(
            f"{shown(folder)} contains the splits {names}; name one of them, "
            f"as {shown(folder)}/SPLIT."
        )
    return splits[0]


def _arrow_files(folder: Path, root: Root) -> list[Path]:
    """Return the files that state.json lists; others are caches of `map` and the like."""
    state = folder / _STATE
    root.require_inside(state, shown(state))
    content = parse_json(read_whole(state, shown(state)), shown(state))
    entries = None
    if isinstance(content, dict):
        entries = content.get("_data_files")
    if not isinstance(entries, list):
        raise DataError(_no_files(state))
    # Names in the state are relative to the split, not to the folder of all splits.
    inside = Root(folder, root.allow_outside)
    files = []
    for entry in entries:
        if not isinstance(entry, dict) or not isinstance(entry.get("filename"), str):
            raise DataError(_no_files(state))
        files.append(inside.find(entry["filename"], shown(state)))
    return files


def _no_files(state: Path) -> str:
    return (
        f"{shown(state)} does not list its files under '_data_files', as `save_to_disk` writes "
        "them."
    )
