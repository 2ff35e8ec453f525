"""Tables of records: JSONL, JSON, CSV, TSV, Parquet and Arrow, a dictionary per record."""

import csv
import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from divprism.data.readers.guards import MAX_LINE, parse_json, read_lines, read_whole, shown
from divprism.errors import DataError, MissingExtraError

__all__ = ["TABLE_SUFFIXES", "Record", "header", "kind_of", "read_table"]


@dataclass(frozen=True)
class Record:
    """The fields of one record, and the file and line that it stands on."""

    fields: dict[str, Any]
    where: str


_FREE_ROWS = 1_000_000  # so many rows may repeat each other; beyond them, a row for each byte of a packed file


def kind_of(path: Path) -> str:
    """The suffix that tells what a file is, without `.gz`.

    >>> kind_of(Path("a/outputs.jsonl.gz")), kind_of(Path("B.CSV"))
    ('.jsonl', '.csv')
    """
    name = path.name.lower().removesuffix(".gz")
    return Path(name).suffix


def read_table(source: Path | bytes, kind: str, name: str) -> Iterator[Record]:
    """The records of a table, one by one."""
    return _READERS[kind](source, name)


def header(source: Path | bytes, name: str) -> list[str]:
    """The cells of the first line of a CSV file."""
    with _csv_limit():
        rows = csv.reader(line for _, line in read_lines(source, name))
        try:
            return [cell.strip() for cell in next(rows, [])]
        except csv.Error as error:
            raise DataError(f"line 1 of {name} is not CSV: {error}.") from None


def _jsonl(source: Path | bytes, name: str) -> Iterator[Record]:
    for number, line in read_lines(source, name):
        if not line.strip():
            continue
        where = f"line {number:,} of {name}"
        value = parse_json(line, where)
        if not isinstance(value, dict):
            raise DataError(f"{where} holds a {_called(value)}, not a JSON object.")
        yield Record(value, where)


def _json(source: Path | bytes, name: str) -> Iterator[Record]:
    """A list of objects; or an object that maps files to prompts, or to objects with a prompt."""
    value = parse_json(read_whole(source, name), name)
    if isinstance(value, dict):
        value = _mapping(value, name)
    if not isinstance(value, list):
        raise DataError(
            f"{name} holds a {_called(value)}; expected a list of records, or an object from file to prompt."
        )
    for place, entry in enumerate(value, 1):
        if not isinstance(entry, dict):
            raise DataError(f"record {place:,} of {name} is a {_called(entry)}, not a JSON object.")
        yield Record(entry, f"record {place:,} of {name}")


def _mapping(content: dict[str, Any], name: str) -> list[dict[str, Any]]:
    """Records of a map: file -> prompt, file -> object, or prompt -> list of files."""
    if len(content) == 1:  # {"data": [...]}: a list under a name
        (only,) = content.values()
        if isinstance(only, list) and all(isinstance(entry, dict) for entry in only):
            return only
    records: list[dict[str, Any]] = []
    for key, value in content.items():
        if isinstance(value, str):
            records.append({"file_name": key, "prompt": value})
        elif isinstance(value, dict):
            records.append({**value, "file_name": key})
        elif isinstance(value, list) and all(isinstance(entry, str) for entry in value):
            records.append({"prompt": key, "file_name": value})
        else:
            raise DataError(
                f"{name} maps {key[:60]!r} to a {_called(value)}; expected file -> prompt or prompt -> files."
            )
    return records


def _called(value: Any) -> str:
    names = {
        dict: "JSON object",
        list: "list",
        str: "string",
        int: "number",
        float: "number",
        bool: "truth value",
    }
    return "null" if value is None else names.get(type(value), type(value).__name__)


def _separated(separator: str) -> Callable[[Path | bytes, str], Iterator[Record]]:
    def read(source: Path | bytes, name: str) -> Iterator[Record]:
        last = [0]  # the line that the parser has come to

        def lines() -> Iterator[str]:
            for last[0], line in read_lines(source, name):
                yield line

        with _csv_limit():
            rows = csv.reader(lines(), delimiter=separator, strict=True)
            try:
                names = [cell.strip() for cell in next(rows, [])]
                if len(set(names)) < len(names):
                    twice = next(cell for cell in names if names.count(cell) > 1)
                    raise DataError(
                        f"the header of {name} has the column {shown(twice[:60])} twice."
                    )
                for row in rows:
                    if not row:
                        continue
                    where = f"line {last[0]:,} of {name}"
                    if len(row) != len(names):
                        raise DataError(f"{where} has {len(row)} cells, the header {len(names)}.")
                    yield Record(dict(zip(names, row, strict=True)), where)
            except csv.Error as error:
                raise DataError(
                    f"line {last[0]:,} of {name} is not a row of cells: {error}."
                ) from None

    return read


@contextmanager
def _csv_limit() -> Iterator[None]:
    """Cells as long as lines may be, for the time of reading (the limit is one of the process)."""
    before = csv.field_size_limit(MAX_LINE)
    try:
        yield
    finally:
        csv.field_size_limit(before)


def _lines(source: Path | bytes, name: str) -> Iterator[Record]:
    """A text file: a prompt per line, an empty one for a blank line, unless nothing follows it."""
    blank: list[int] = []
    for number, line in read_lines(source, name):
        if not line.strip():
            blank.append(number)
            continue
        for skipped in blank:
            yield Record({"prompt": ""}, f"line {skipped:,} of {name}")
        blank = []
        yield Record({"prompt": line.strip()}, f"line {number:,} of {name}")


def _parquet(source: Path | bytes, name: str) -> Iterator[Record]:
    with _pyarrow(name) as pyarrow:
        from pyarrow import parquet

        with parquet.ParquetFile(
            pyarrow.BufferReader(source) if isinstance(source, bytes) else str(source)
        ) as file:
            size = len(source) if isinstance(source, bytes) else source.stat().st_size
            if file.metadata.num_rows > max(_FREE_ROWS, size):
                raise DataError(
                    f"{name} claims {file.metadata.num_rows:,} rows in {size:,} bytes, too many to be data."
                )
            yield from _rows(file.iter_batches(batch_size=256), name)


def _arrow(source: Path | bytes, name: str) -> Iterator[Record]:
    """The stream format that `datasets` writes."""
    with _pyarrow(name) as pyarrow:
        handle = (
            pyarrow.BufferReader(source)
            if isinstance(source, bytes)
            else pyarrow.memory_map(str(source))
        )
        with handle, pyarrow.ipc.open_stream(handle) as stream:
            yield from _rows(stream, name)


def _rows(batches: Any, name: str) -> Iterator[Record]:
    number = itertools.count(1)
    for batch in batches:
        batch.validate(full=True)
        for row in batch.to_pylist():
            yield Record(row, f"row {next(number):,} of {name}")


@contextmanager
def _pyarrow(name: str) -> Iterator[Any]:
    try:
        import pyarrow
        import pyarrow.ipc
    except ImportError:
        raise MissingExtraError(
            "Reading Parquet and Arrow needs pyarrow, which is not installed: pip install 'divprism[parquet]'."
        ) from None
    try:
        yield pyarrow
    except (
        pyarrow.ArrowException,
        OSError,
        UnicodeDecodeError,
        OverflowError,
        MemoryError,
    ) as error:
        lines = str(error).splitlines() or [type(error).__name__]
        raise DataError(
            f"{name} is not a readable table: {shown(lines[0][:200]).rstrip('.')}."
        ) from None


_READERS: dict[str, Callable[[Path | bytes, str], Iterator[Record]]] = {
    ".jsonl": _jsonl,
    ".ndjson": _jsonl,
    ".json": _json,
    ".csv": _separated(","),
    ".tsv": _separated("\t"),
    ".txt": _lines,
    ".parquet": _parquet,
    ".arrow": _arrow,
}
TABLE_SUFFIXES = frozenset(_READERS)
