"""Some records of a table: its lines, its rows or its entries, as they are in the source."""

import gzip
import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

from divprism.data.readers.columnar import columnar_batches
from divprism.data.readers.guards import parse_json, read_lines, read_whole, shown
from divprism.data.readers.tables import has_objects_on_lines, kind_of, last_lines

__all__ = ["is_copied", "json_bytes", "record_writer"]

_LINES = (".jsonl", ".ndjson", ".csv", ".tsv")
_COLUMNAR = (".parquet", ".arrow")


def is_copied(table: Path) -> bool:
    """Whether records of a table can be written as they are in it."""
    kind = kind_of(table)
    if kind == ".json":
        return has_objects_on_lines(table, shown(table)) or _entries_of(table) is not None
    return kind in (*_LINES, *_COLUMNAR)


def record_writer(
    table: Path, numbers: Iterable[int], target: Path
) -> Callable[[BinaryIO], object]:
    """What writes some records of a table, by their numbers from 0, in the order of the table.

    Lines are copied byte by byte, without a byte order mark; a last line without an end gets one.
    A target whose name ends in .gz is compressed.
    """
    wanted = set(numbers)
    kind = kind_of(table)
    if kind in _COLUMNAR:
        return lambda file: _write_columnar(table, kind, wanted, file)
    chunks: Callable[[], Iterator[bytes]] = lambda: _lines(table, kind, wanted)  # noqa: E731
    if kind == ".json" and not has_objects_on_lines(table, shown(table)):
        chunks = lambda: _entries(table, wanted)  # noqa: E731
    if target.suffix.lower() == ".gz":
        return lambda file: _compress(chunks(), file)
    return lambda file: file.writelines(chunks())


def _compress(chunks: Iterable[bytes], file: BinaryIO) -> None:
    # Without a time and a name, so that equal subsets are equal files.
    with gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=0) as packed:
        for chunk in chunks:
            packed.write(chunk)


def _lines(table: Path, kind: str, wanted: set[int]) -> Iterator[bytes]:
    name = shown(table)
    lines = read_lines(table, name)
    first = 0
    if kind in (".csv", ".tsv"):
        first = -1  # the header
    for record, last in enumerate(last_lines(table, kind, name), first):
        text = ""
        for number, line in lines:
            # Blank lines before a record are left out, those inside a quoted cell are kept.
            if line.strip() or text:
                text += line
            if number >= last:
                break
        if record == -1 or record in wanted:
            if not text.endswith(("\n", "\r")):
                text += "\n"
            yield text.encode()


def _entries_of(table: Path) -> list[Any] | None:
    """The entries of a JSON file that is a list of objects, or has one under a single name."""
    content = parse_json(read_whole(table, shown(table)), shown(table))
    if isinstance(content, dict) and len(content) == 1:
        (content,) = content.values()
    if isinstance(content, list) and all(isinstance(entry, dict) for entry in content):
        return content
    return None


def _entries(table: Path, wanted: set[int]) -> Iterator[bytes]:
    entries = _entries_of(table) or []
    kept = [entry for number, entry in enumerate(entries) if number in wanted]
    yield json_bytes(kept, indent=1) + b"\n"


def json_bytes(value: Any, indent: int | None = None) -> bytes:
    """JSON in UTF-8, with escapes where a text holds half a surrogate pair, which has no bytes."""
    try:
        return json.dumps(value, ensure_ascii=False, indent=indent).encode()
    except UnicodeEncodeError:
        return json.dumps(value, indent=indent).encode()


def _write_columnar(table: Path, kind: str, wanted: set[int], file: BinaryIO) -> None:
    import pyarrow
    import pyarrow.parquet

    start = 0
    kept = []
    for batch in columnar_batches(table, kind.removeprefix("."), shown(table)):
        inside = [number - start for number in range(start, start + len(batch)) if number in wanted]
        start += len(batch)
        kept.append(batch.take(pyarrow.array(inside, pyarrow.int64())))
    rows = pyarrow.Table.from_batches(kept)
    if kind == ".parquet":
        pyarrow.parquet.write_table(rows, file)
        return
    with pyarrow.ipc.new_stream(file, rows.schema) as stream:
        stream.write_table(rows)
