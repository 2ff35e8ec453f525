"""The program that decodes Parquet and Arrow files in a process of its own.

A kilobyte of either format can unpack to gigabytes, and pyarrow has no limit of its own. This
program reads the file on its standard input within limits of memory and time, and writes the rows
to its standard output as an Arrow stream of small, plain batches. It is started by its path, so it
imports nothing but pyarrow and the standard library; NumPy would double the time to start.

Arguments: the format ("parquet" or "arrow"), the size of the file in bytes, and the module path.
"""

import contextlib
import importlib
import os
import sys
from collections.abc import Iterable, Iterator
from typing import Any

__all__ = ["MAX_FIELDS", "MAX_NAME", "REFUSED", "RefusedError", "batches", "plain_type"]

REFUSED = 3
"""Exit code after a refusal, whose reason is on standard error."""
MAX_FIELDS = 10_000
"""Fields that a record may have; more of them are a matrix, not a table."""
MAX_NAME = 1_000
"""Characters that the name of a field or a model may have."""

# Rows, values and bytes that are read from a file of any size. Beyond them, a row needs a byte of
# the file, a value a quarter of one, and a byte a fiftieth: prompts that repeat take no space.
_FREE_ROWS = 100_000
_FREE_VALUES = 4_000_000
_FREE_BYTES = 128 << 20
_VALUES_PER_BYTE = 4
_MAX_EXPANSION = 50
_VIEWS = ("string_view", "binary_view")
_SHARED = (*_VIEWS, "dictionary")
# Rows of these may share whole lists, and pyarrow 26 has no correct conversion of their parts.
_UNREAD = ("union", "list_view", "large_list_view", "run_end_encoded")
_MAX_DEPTH = 64  # levels of a type: lists of structs of lists

_ROWS = 1024  # rows decoded at a time, unless they are large
_MIN_ROWS = 16
_BATCH_BYTES = 16 << 20  # bytes sent at a time, unless a single row has more

_MEMORY = 640 << 20  # bytes of address space beyond those of the interpreter and the file
_SECONDS = 5  # processor time, plus one second for each megabyte


class RefusedError(Exception):
    """A table that is refused; the text completes a sentence that starts with its name."""


def batches(kind: str, handle: Any, size: int) -> Iterator[Any]:
    """Yield the rows of a Parquet file or an Arrow stream as record batches of plain types.

    Parameters
    ----------
    kind : str
        "parquet" or "arrow".
    handle : file object of pyarrow
        The file.
    size : int
        Its size in bytes, which the limits depend on.
    """
    limits = _Limits(size)
    for batch in _decoded(kind, handle, limits):
        limits.add_rows(batch.num_rows)
        # Without the full check, offsets in a damaged file could read beyond its buffers. Views
        # are checked in parts: each of a million rows may show the same megabyte.
        has_views = any(_contains(column.type, _VIEWS) for column in batch.columns)
        if not has_views:
            batch.validate(full=True)
        for start in range(0, batch.num_rows, _ROWS):
            part = batch.slice(start, _ROWS)
            if has_views:
                part.validate(full=True)
            part = _plain(part)
            limits.add(part)
            yield from _small(part)


def _decoded(kind: str, handle: Any, limits: "_Limits") -> Iterator[Any]:
    if kind == "parquet":
        from pyarrow import parquet

        # Column by column and without reading ahead: memory stays that of a few pages.
        with parquet.ParquetFile(handle, pre_buffer=False) as file:
            _check_schema(file.schema_arrow)
            # From the footer, before any row is decoded; the rows are counted again later.
            limits.check_rows(file.metadata.num_rows)
            yield from file.iter_batches(_rows_at_a_time(file.metadata), use_threads=False)
        return
    import pyarrow.ipc

    _check_start(handle, limits.size)
    with pyarrow.ipc.open_stream(handle) as stream:
        _check_schema(stream.schema)
        yield from stream


def _rows_at_a_time(metadata: Any) -> int:
    """Return how many rows to decode at a time: fewer of those that the footer says are large."""
    groups = [metadata.row_group(index) for index in range(metadata.num_row_groups)]
    size = sum(max(0, group.total_byte_size) for group in groups)
    rows = _BATCH_BYTES * metadata.num_rows // max(1, size)
    return min(_ROWS, max(_MIN_ROWS, rows))


def _check_start(handle: Any, size: int) -> None:
    """Refuse a file that starts with a message longer than itself: it is of another format."""
    start = handle.read(4)
    handle.seek(0)
    # Since version 0.15 of the format, a mark comes before the length of the message.
    if start != b"\xff" * 4 and int.from_bytes(start, "little") > size:
        raise RefusedError(
            "is not a readable table: it does not start as an Arrow stream; write Feather and "
            "other Arrow files as a stream, or as .parquet"
        )


class _Limits:
    """What has been read of a file so far, compared with what its size allows."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.rows = self.values = self.bytes = 0

    def check_rows(self, count: int) -> None:
        """Refuse a number of rows that the file cannot really contain."""
        if count > max(_FREE_ROWS, self.size):
            raise RefusedError(
                f"claims {count:,} rows in {self.size:,} bytes, too many to be real data"
            )

    def add_rows(self, count: int) -> None:
        """Count rows before they are looked at."""
        self.rows += count
        self.check_rows(self.rows)

    def add(self, batch: Any) -> None:
        """Count the values and bytes of a batch."""
        self.values += sum(map(_num_values, batch.columns))
        if self.values > max(_FREE_VALUES, _VALUES_PER_BYTE * self.size):
            raise RefusedError(
                f"unpacks to over {self.values:,} values from {self.size:,} bytes, too many to be "
                "real data"
            )
        self.bytes += batch.nbytes
        if self.bytes > max(_FREE_BYTES, _MAX_EXPANSION * self.size):
            raise RefusedError(
                f"unpacks to over {self.bytes >> 20:,} MB from {self.size:,} bytes, too many to be "
                "real data"
            )


def _num_values(array: Any) -> int:
    """Count the values of an array, those inside of lists and structs included."""
    import pyarrow

    kind = array.type
    if isinstance(kind, pyarrow.BaseExtensionType):
        return _num_values(array.storage)
    if pyarrow.types.is_struct(kind):
        children = [array.field(index) for index in range(kind.num_fields)]
        return len(array) + sum(map(_num_values, children))
    if pyarrow.types.is_map(kind):
        return len(array) + 2 * len(array.keys)
    if pyarrow.types.is_nested(kind):
        return len(array) + _num_values(array.flatten())
    return len(array)


def _small(batch: Any) -> Iterator[Any]:
    """Yield a batch in parts of limited size: its reader makes Python objects of all its rows."""
    if batch.num_rows < 2 or batch.nbytes <= _BATCH_BYTES:
        yield batch
        return
    half = batch.num_rows // 2
    yield from _small(batch.slice(0, half))
    yield from _small(batch.slice(half))


def _check_schema(schema: Any) -> None:
    if len(schema) > MAX_FIELDS:
        raise RefusedError(f"has {len(schema):,} columns; at most {MAX_FIELDS:,} are read")
    _check_names(schema.names, "column")
    for field in schema:
        plain_type(field.type)


def _check_names(names: Iterable[str], noun: str) -> None:
    seen = set()
    for name in names:
        if len(name) > MAX_NAME:
            raise RefusedError(f"has a {noun} with a name of {len(name):,} characters")
        # Records are dictionaries: one of two equal names would silently win.
        if name in seen:
            raise RefusedError(f"has the {noun} {name[:60]!r} twice")
        seen.add(name)


def plain_type(kind: Any, depth: int = 0) -> Any:
    """Return a type of the same values in which every value is stored on its own.

    Dictionaries and views share one value among many rows; only after a conversion
    does the size of an array say how large its values are.
    """
    import pyarrow

    types = pyarrow.types
    if depth > _MAX_DEPTH:
        raise RefusedError(f"has a column of a type that is nested more than {_MAX_DEPTH} deep")
    if types.is_dictionary(kind):
        return plain_type(kind.value_type, depth + 1)
    if _is(kind, "string_view"):
        return pyarrow.large_string()
    if _is(kind, "binary_view"):
        return pyarrow.large_binary()
    if any(_is(kind, name) for name in _UNREAD):
        raise RefusedError(f"has a column of the type {str(kind)[:60]}, which is not read")
    if isinstance(kind, pyarrow.BaseExtensionType):
        if _contains(kind.storage_type, _SHARED):
            raise RefusedError(f"has a column of the type {str(kind)[:60]}, which is not read")
        plain_type(kind.storage_type, depth + 1)
        return kind
    if types.is_nested(kind):
        return _plain_nested(kind, depth + 1)
    return kind


def _plain_nested(kind: Any, depth: int) -> Any:
    import pyarrow

    types = pyarrow.types
    if types.is_struct(kind):
        fields = [kind.field(index) for index in range(kind.num_fields)]
        if len(fields) > MAX_FIELDS:
            raise RefusedError(
                f"has a struct of {len(fields):,} fields; at most {MAX_FIELDS:,} are read"
            )
        _check_names([field.name for field in fields], "struct field")
        return pyarrow.struct([(field.name, plain_type(field.type, depth)) for field in fields])
    if types.is_map(kind):
        key, item = plain_type(kind.key_type, depth), plain_type(kind.item_type, depth)
        return pyarrow.map_(key, item)
    value = plain_type(kind.value_type, depth)
    if types.is_fixed_size_list(kind):
        return pyarrow.list_(value, kind.list_size)
    if types.is_large_list(kind):
        return pyarrow.large_list(value)
    return pyarrow.list_(value)


def _is(kind: Any, name: str) -> bool:
    """Whether a type is of a kind that older versions of pyarrow do not know."""
    import pyarrow

    test = getattr(pyarrow.types, f"is_{name}", None)
    return test is not None and test(kind)


def _plain(batch: Any) -> Any:
    """Return a batch whose types share no values, without metadata."""
    import pyarrow

    columns = []
    for column in batch.columns:
        kind = plain_type(column.type)
        # Names of list items may differ between equal types, so only a real change converts.
        if _contains(column.type, _SHARED):
            column = column.cast(kind)
        columns.append(column)
    fields = []
    for name, column in zip(batch.schema.names, columns, strict=True):
        fields.append(pyarrow.field(name, column.type))
    return pyarrow.RecordBatch.from_arrays(columns, schema=pyarrow.schema(fields))


def _contains(kind: Any, names: tuple[str, ...]) -> bool:
    """Whether a type, or a type inside of it, is of one of some kinds."""
    if any(_is(kind, name) for name in names):
        return True
    return any(_contains(kind.field(index).type, names) for index in range(kind.num_fields))


def _limit(size: int) -> None:
    """Limit the memory and the time of this process, where the system can."""
    try:
        import resource
    except ImportError:  # Windows
        return
    # No core file of a decoder that a damaged file brings down.
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    seconds = _SECONDS + (size >> 20)
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))
    # macOS has no limit of address space.
    with contextlib.suppress(ValueError, OSError):
        memory = _address_space() + _MEMORY + 3 * size
        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))


def _address_space() -> int:
    """Return the bytes of address space that the interpreter and pyarrow take themselves."""
    try:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError):
        return 512 << 20


def _import_pyarrow() -> Any:
    # None makes an import fail: pyarrow 18 and later work without NumPy, and start faster.
    sys.modules["numpy"] = None  # type: ignore[assignment]
    try:
        import pyarrow
    except ImportError:
        del sys.modules["numpy"]
        import pyarrow
    return pyarrow


def _main() -> None:
    kind, size = sys.argv[1], int(sys.argv[2])
    # Started isolated from the folder and the user's settings; packages are where they were.
    sys.path += [folder for folder in sys.argv[3:] if folder not in sys.path]
    pyarrow = _import_pyarrow()
    if kind == "parquet":
        importlib.import_module("pyarrow.parquet")
    importlib.import_module("pyarrow.ipc")
    pyarrow.set_cpu_count(1)
    _limit(size)
    writer = None
    with open(0, "rb") as source, open(1, "wb") as sink:
        for batch in batches(kind, pyarrow.PythonFile(source, mode="r"), size):
            if writer is None:
                writer = pyarrow.ipc.new_stream(sink, batch.schema)
            writer.write_batch(batch)
            # At once: a reader of the first rows must not wait for the others.
            sink.flush()
        if writer is not None:
            writer.close()


if __name__ == "__main__":
    try:
        _main()
    except BrokenPipeError:
        os._exit(0)  # the reader has enough
    except MemoryError:
        sys.stderr.write("unpacks to more memory than its size allows, too much to be real data")
        sys.stderr.flush()
        os._exit(REFUSED)
    except Exception as error:  # whatever pyarrow raises becomes one sentence
        lines = str(error).splitlines() or [type(error).__name__]
        reason = lines[0].rstrip(".")[:200]
        if not isinstance(error, RefusedError):
            reason = f"is not a readable table: {ascii(reason)[1:-1]}"
        sys.stderr.write(reason.encode("ascii", "backslashreplace").decode())
        sys.stderr.flush()
        os._exit(REFUSED)
