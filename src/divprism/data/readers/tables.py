"""Tables of records: JSONL, JSON, CSV, TSV, text, Parquet and Arrow."""

import csv
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from divprism.data.readers.columnar import columnar_rows
from divprism.data.readers.decoder import MAX_FIELDS
from divprism.data.readers.eval_files import RUN_STATUS, eval_samples, member_of, named_run
from divprism.data.readers.guards import (
    MAX_LINE,
    check_cells,
    parse_json,
    read_lines,
    read_whole,
    shown,
)
from divprism.data.readers.natural_order import natural
from divprism.data.wording import counted
from divprism.errors import DataError

__all__ = [
    "TABLE_SUFFIXES",
    "Record",
    "has_objects_on_lines",
    "header",
    "kind_of",
    "last_lines",
    "read_table",
]

_SHOWN_COLUMNS = 5  # of those with different lengths
_CSV_ROWS = 256  # rows of a CSV file that are parsed at a time
_CSV_CHARACTERS = 1 << 20  # characters after which no further row is parsed
_CSV_LOCK = threading.Lock()

_JSON_NAMES: dict[type, str] = {
    type(None): "null",
    dict: "JSON object",
    list: "list",
    str: "string",
    int: "number",
    float: "number",
    bool: "truth value",
}


@dataclass(frozen=True)
class Record:
    """The fields of one record, and its file and line.

    Attributes
    ----------
    fields : dict
        Values by field name.
    where : str
        File and line, for messages.
    source : str
        The file alone.
    number : int or None
        Its number among the records of the file, counted from 0; None where a record is not what
        the file holds, such as one that was put together from several.
    """

    fields: dict[str, Any]
    where: str
    source: str = ""
    number: int | None = None


def kind_of(path: Path) -> str:
    """Return the suffix that identifies the format of a file, without `.gz`.

    >>> kind_of(Path("a/outputs.jsonl.gz")), kind_of(Path("B.CSV"))
    ('.jsonl', '.csv')
    """
    # Before `suffix`, which would return ".gz" for "a.jsonl.gz".
    name = path.name.lower().removesuffix(".gz")
    return Path(name).suffix


def read_table(source: Path | bytes, kind: str, name: str) -> Iterator[Record]:
    """Yield the records of a table.

    Parameters
    ----------
    source : Path or bytes
        The file, or its content.
    kind : str
        Its format, one of TABLE_SUFFIXES.
    name : str
        Its name in messages.
    """
    for number, record in enumerate(_READERS[kind](source, name)):
        yield Record(record.fields, record.where, record.source, number)


def header(source: Path | bytes, name: str) -> list[str]:
    """Return the cells of the first line of a CSV file."""
    for _, cells in _cells(source, name, ",", is_strict=False):
        return [cell.strip() for cell in cells]
    return []


def last_lines(path: Path, kind: str, name: str) -> Iterator[int]:
    """Yield the number of the last line of each record of a file with lines.

    Of CSV and TSV the header comes first; a quoted cell may span lines. Blank lines belong to no
    record.
    """
    if kind in (".csv", ".tsv"):
        delimiter = "\t" if kind == ".tsv" else ","
        for number, cells in _cells(path, name, delimiter, is_strict=True):
            if cells:
                yield number
        return
    for number, line in read_lines(path, name):
        if line.strip():
            yield number


def _jsonl(source: Path | bytes, name: str) -> Iterator[Record]:
    for number, line in read_lines(source, name):
        # Many programs end a file with a blank line.
        if not line.strip():
            continue
        where = f"line {number:,} of {name}"
        value = parse_json(line, where)
        if not isinstance(value, dict):
            raise DataError(f"{where} is a {_json_name(value)}, not a JSON object.")
        _check_width(len(value), where)
        yield Record(value, where, name)


def _json(source: Path | bytes, name: str) -> Iterator[Record]:
    """Yield the objects of a list, or the entries of an object that maps files and prompts."""
    # `Dataset.to_json("a.json")` writes an object per line, whatever the suffix.
    if has_objects_on_lines(source, name):
        yield from _jsonl(source, name)
        return
    value = parse_json(read_whole(source, name), name)
    if isinstance(value, dict) and {"eval", "samples"} <= value.keys():
        value = _samples_of_log(value)
    if isinstance(value, dict):
        value = _records_of_map(value, name)
    if not isinstance(value, list):
        raise DataError(
            f"{name} is a {_json_name(value)}; expected a list of records, or an object that maps "
            "files to prompts."
        )
    for number, record in enumerate(value, 1):
        where = f"record {number:,} of {name}"
        if not isinstance(record, dict):
            raise DataError(f"{where} is a {_json_name(record)}, not a JSON object.")
        _check_width(len(record), where)
        yield Record(record, where, name)


def has_objects_on_lines(source: Path | bytes, name: str) -> bool:
    """Whether the first line is an object by itself, and the second one begins another."""
    filled = (line for _, line in read_lines(source, name) if line.strip())
    first, second = next(filled, ""), next(filled, "")
    if not (first.lstrip().startswith("{") and second.lstrip().startswith("{")):
        return False
    try:
        parse_json(first, name)
    except DataError:
        return False
    return True


def _samples_of_log(log: dict[str, Any]) -> Any:
    """Return the samples of a log that inspect wrote as JSON, each with its task and model."""
    samples = log["samples"]
    if not isinstance(samples, list):
        return log
    if not all(isinstance(sample, dict) for sample in samples):
        return samples
    run = named_run(log["eval"])
    if isinstance(log.get("status"), str):
        run[RUN_STATUS] = log["status"]
    # In the order of the members of an .eval log, so that both give the same score to the bit.
    ordered = sorted(samples, key=lambda sample: natural(Path(member_of(sample))))
    return [sample | run for sample in ordered]


def _records_of_map(content: dict[str, Any], name: str) -> list[dict[str, Any]]:
    """Return the records of a map: file -> prompt, file -> object, or prompt -> files."""
    if len(content) == 1:
        # {"data": [...]} is a list of records under a name.
        (only,) = content.values()
        if isinstance(only, list) and all(isinstance(record, dict) for record in only):
            return only
    columns = _columns_of(content, name)
    if columns:
        rows = zip(*columns.values(), strict=True)
        return [dict(zip(columns, row, strict=True)) for row in rows]
    records: list[dict[str, Any]] = []
    # Decided entry by entry: a map may mix prompts and objects with a prompt.
    for key, value in content.items():
        if isinstance(value, str):
            records.append({"file_name": key, "prompt": value})
        elif isinstance(value, dict):
            # The key wins over a file name inside the object: it is what the map is about.
            records.append({**value, "file_name": key})
        elif isinstance(value, list) and all(isinstance(file, str) for file in value):
            records.append({"prompt": key, "file_name": value})
        else:
            raise DataError(
                f"{name} maps {key[:60]!r} to a {_json_name(value)}; "
                "expected file -> prompt or prompt -> files."
            )
    return records


def _columns_of(content: dict[str, Any], name: str) -> dict[str, list[Any]]:
    """Return the columns of an object that holds a table by columns; {} for any other.

    Columns are lists, or objects with the same keys, as `DataFrame.to_json` writes them; one of
    them has the name of outputs.
    """
    # Imported here, because `fields` imports this module.
    from divprism.data.readers.fields import known_output, known_prompt

    if known_output(content) is None:
        return {}
    values = list(content.values())
    if all(isinstance(value, list) for value in values):
        if len({len(value) for value in values}) == 1:
            return content
        # Without a name of prompts, it may be a map from prompts to files, one of them "output".
        if known_prompt(content) is not None:
            raise DataError(
                f"{name} has columns of different lengths: {_lengths_of(content)}. Repeat a prompt "
                "once for each of its outputs."
            )
    elif all(isinstance(value, dict) and value.keys() == values[0].keys() for value in values):
        index = list(values[0])
        return {key: _in_order(column, index) for key, column in content.items()}
    return {}


def _lengths_of(columns: dict[str, list[Any]]) -> str:
    lengths = [f"{shown(key[:60])} {len(column):,}" for key, column in columns.items()]
    if len(lengths) > _SHOWN_COLUMNS:
        lengths[_SHOWN_COLUMNS:] = ["..."]
    return ", ".join(lengths)


def _in_order(column: dict[str, Any], index: list[str]) -> list[Any]:
    return [column[key] for key in index]


def _json_name(value: object) -> str:
    return _JSON_NAMES.get(type(value), type(value).__name__)


def _check_width(num_fields: int, where: str) -> None:
    if num_fields > MAX_FIELDS:
        raise DataError(f"{where} has {num_fields:,} fields; at most {MAX_FIELDS:,} are read.")


def _csv(source: Path | bytes, name: str) -> Iterator[Record]:
    return _delimited(source, name, ",")


def _tsv(source: Path | bytes, name: str) -> Iterator[Record]:
    return _delimited(source, name, "\t")


def _delimited(source: Path | bytes, name: str, delimiter: str) -> Iterator[Record]:
    rows = _cells(source, name, delimiter, is_strict=True)
    _, first = next(rows, (0, []))
    columns = _column_names(first, name)
    for number, row in rows:
        # The csv module returns [] for a blank line.
        if not row:
            continue
        where = f"line {number:,} of {name}"
        if len(row) != len(columns):
            cells = counted(len(row), "cell", "cells")
            raise DataError(f"{where} has {cells}, but the header has {len(columns)}.")
        yield Record(dict(zip(columns, row, strict=True)), where, name)


def _cells(
    source: Path | bytes, name: str, delimiter: str, *, is_strict: bool
) -> Iterator[tuple[int, list[str]]]:
    """Yield the cells of each row, and the number of its last line.

    A quoted cell may span lines, so the number of rows does not give the line. The limit for the
    length of a cell belongs to the process, so rows are parsed some at a time: between them, and
    while other code runs, the limit is what it was.
    """
    lines = _NumberedLines(source, name, delimiter)
    # Strict: an open quote is an error instead of one cell with the rest of the file.
    reader = csv.reader(lines, delimiter=delimiter, strict=is_strict)
    # Anything but empty, so that the loop begins; it ends after a round without rows.
    rows: list[tuple[int, list[str]]] = [(0, [])]
    while rows:
        rows = []
        problem: Exception | None = None
        with _csv_limit():
            try:
                lines.size = 0
                while len(rows) < _CSV_ROWS and lines.size < _CSV_CHARACTERS:
                    cells = next(reader, None)
                    if cells is None:
                        break
                    rows.append((lines.number, cells))
            except (csv.Error, DataError) as error:
                problem = error
        # The rows before a broken one come first: a reader of those may not reach it.
        yield from rows
        if isinstance(problem, csv.Error):
            raise DataError(f"line {lines.number:,} of {name} is not a row of cells: {problem}.")
        if problem is not None:
            raise problem


class _NumberedLines:
    """Lines for `csv.reader`, the number of the last one that it consumed, and their size."""

    def __init__(self, source: Path | bytes, name: str, delimiter: str) -> None:
        self._lines = read_lines(source, name)
        self._name = name
        self._delimiter = delimiter
        self.number = 0
        self.size = 0

    def __iter__(self) -> Iterator[str]:
        for number, line in self._lines:
            self.number = number
            self.size += len(line)
            check_cells(line, self._delimiter, f"line {number:,} of {self._name}")
            yield line


def _column_names(cells: list[str], name: str) -> list[str]:
    columns = [cell.strip() for cell in cells]
    _check_width(len(columns), f"the header of {name}")
    if len(set(columns)) < len(columns):
        # Counted in one pass: a hostile header may have millions of cells.
        column, _ = Counter(columns).most_common(1)[0]
        raise DataError(f"the header of {name} has the column {shown(column[:60])} twice.")
    return columns


@contextmanager
def _csv_limit() -> Iterator[None]:
    """Allow cells as long as lines, one thread at a time; nothing else may run inside."""
    with _CSV_LOCK:
        before = csv.field_size_limit(MAX_LINE)
        try:
            yield
        finally:
            csv.field_size_limit(before)


def _lines(source: Path | bytes, name: str) -> Iterator[Record]:
    """Yield a prompt per line; a blank line is an empty prompt, except at the end of the file."""
    blank: list[int] = []
    for number, line in read_lines(source, name):
        if not line.strip():
            # Held back until another line follows: files often end in blank lines.
            blank.append(number)
            continue
        for skipped in blank:
            yield Record({"prompt": ""}, f"line {skipped:,} of {name}", name)
        blank = []
        yield Record({"prompt": line.strip()}, f"line {number:,} of {name}", name)


def _parquet(source: Path | bytes, name: str) -> Iterator[Record]:
    return _columnar(source, "parquet", name)


def _arrow(source: Path | bytes, name: str) -> Iterator[Record]:
    """Yield the rows of a file in the stream format that Hugging Face datasets writes."""
    return _columnar(source, "arrow", name)


def _eval(source: Path | bytes, name: str) -> Iterator[Record]:
    """Yield the samples of a log of inspect."""
    for where, fields in eval_samples(source, name):
        yield Record(fields, where, name)


def _columnar(source: Path | bytes, kind: str, name: str) -> Iterator[Record]:
    for number, row in columnar_rows(source, kind, name):
        yield Record(row, f"row {number:,} of {name}", name)


_READERS: dict[str, Callable[[Path | bytes, str], Iterator[Record]]] = {
    ".jsonl": _jsonl,
    ".ndjson": _jsonl,
    ".json": _json,
    ".csv": _csv,
    ".tsv": _tsv,
    ".txt": _lines,
    ".parquet": _parquet,
    ".arrow": _arrow,
    ".eval": _eval,
}
TABLE_SUFFIXES = frozenset(_READERS)
"""Suffixes of the formats that `read_table` reads."""
