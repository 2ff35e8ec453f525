"""What a file or standard input contains, judged by its name and its first lines."""

import itertools
from collections.abc import Iterator
from pathlib import Path

from divprism.data.readers.arrays import ARRAY_SUFFIXES, is_binary, numbers_in
from divprism.data.readers.fields import FIELD_NAMES, Fields
from divprism.data.readers.guards import STDIN, read_lines, shown
from divprism.data.readers.tables import header
from divprism.errors import DataError

__all__ = ["is_array", "starts_with_numbers", "table_kind"]


def is_array(path: Path, kind: str, fields: Fields) -> bool:
    """Whether a file contains an array; a .csv file may contain a table as well."""
    if kind != ".csv":
        return kind in ARRAY_SUFFIXES
    cells = header(path, shown(path))
    _refuse_semicolons(cells, path)
    # Only a table has fields to name.
    if fields.output or fields.prompt or fields.model:
        return False
    return not {cell.lower() for cell in cells} & FIELD_NAMES


def _refuse_semicolons(cells: list[str], path: Path) -> None:
    """Refuse a table that other settings of the language separate by semicolons."""
    if len(cells) != 1 or ";" not in cells[0]:
        return
    names = {name.strip().lower() for name in cells[0].split(";")}
    if names & FIELD_NAMES:
        raise DataError(
            f"the columns of {shown(path)} are separated by semicolons; save it with commas, or "
            "with tabs as .tsv."
        )


def table_kind(content: bytes) -> str | None:
    """Return the format of bytes that contain records, compressed or not; else None."""
    if is_binary(content):
        return None
    for line in _filled_lines(content):
        # The first character is enough: an object per line, or a list of objects.
        return {"{": ".jsonl", "[": ".json"}.get(line[0])
    return None


def starts_with_numbers(content: bytes) -> bool:
    """Whether the first line, or the second below a header, is a row of numbers."""
    # Two lines decide; reading on would decompress all of a large input.
    lines = itertools.islice(_filled_lines(content), 2)
    return any(numbers_in(line) is not None for line in lines)


def _filled_lines(content: bytes) -> Iterator[str]:
    for _, line in read_lines(content, STDIN):
        if line.strip():
            yield line.strip()
