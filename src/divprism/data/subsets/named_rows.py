"""Rows of a source that a file names: by number, by an earlier selection, or by the output."""

from pathlib import Path

from divprism.data.files import read_file
from divprism.data.items import Item, Media
from divprism.data.readers.guards import parse_json, shown
from divprism.data.samples import Samples
from divprism.errors import DataError

__all__ = ["rows_in"]

_MOST = 64 << 20  # bytes of a file that names rows


def rows_in(path: str | Path, name: str, samples: Samples) -> list[int]:
    """The rows of the source that a file names: by number, or by the output itself.

    A file is a result of `divprism select`, or lines. If all lines are whole numbers, they are rows
    counted from 0; else each is the text of an output, or the name of its file. `name` is the
    argument that names the file, for messages.
    """
    content = read_file(path, _MOST).decode("utf-8-sig", "replace")
    if Path(path).suffix.lower() == ".json":
        document = parse_json(content, shown(path))
        if not isinstance(document, dict) or not isinstance(document.get("indices"), list):
            raise DataError(f"{shown(path)} is not a result of divprism select.")
        return list(document["indices"])
    lines = [line.strip() for line in content.splitlines() if line.strip()]
    if all(line.isascii() and line.isdigit() for line in lines):
        return [int(line) for line in lines]
    rows_of = _rows_by_name(samples)
    rows: list[int] = []
    for line in lines:
        if line not in rows_of:
            raise DataError(
                f"`{name}` is {shown(path)}, and no output is {shown(line[:80])}; a line is a row, "
                "counted from 0, the text of an output, or the name of its file."
            )
        rows += rows_of[line]
    return rows


def _rows_by_name(samples: Samples) -> dict[str, list[int]]:
    """The rows of the source with each text, or with each file by its name or path."""
    rows_of: dict[str, list[int]] = {}
    numbers = samples.rows or range(len(samples))
    if not isinstance(samples.outputs, tuple):
        return rows_of
    for row, item in zip(numbers, samples.outputs, strict=True):
        for name in _names_of(item):
            rows_of.setdefault(name, []).append(row)
    return rows_of


def _names_of(item: Item) -> set[str]:
    names = {item.label.strip()}
    if isinstance(item, Media):
        names.add(Path(item.label).name)
    return names
