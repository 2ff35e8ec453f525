"""Parquet and Arrow files as rows, decoded in another process with limits of memory and time."""

import contextlib
import io
import itertools
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from divprism.data.files import open_file
from divprism.data.readers import decoder
from divprism.data.readers.guards import shown
from divprism.data.wording import first_line
from divprism.errors import DataError, MissingExtraError

__all__ = ["columnar_batches", "columnar_rows"]

_PIPE = 1 << 20  # bytes that may wait between the processes

_REASONS = {
    "SIGXCPU": "takes longer to decode than its size allows",
    # The processor time beyond SIGXCPU, or the memory killer of the system.
    "SIGKILL": "takes more time or memory to decode than its size allows",
    "SIGBUS": "changed while it was read",
}
_CRASHED = "is not a readable table: its decoder crashed"


def columnar_rows(
    source: Path | bytes, kind: str, name: str
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the number and the fields of each row of a table.

    Parameters
    ----------
    source : Path or bytes
        The file, or its content.
    kind : str
        "parquet" or "arrow".
    name : str
        Its name in messages.

    Raises
    ------
    DataError
        If the file is damaged, or unpacks to more than its size allows.
    MissingExtraError
        If pyarrow is not installed.
    """
    number = itertools.count(1)
    with _opened(source, name) as (file, size):
        for batch in _batches(file, size, kind, name):
            for row in _python_rows(batch, name):
                yield next(number), row


def columnar_batches(source: Path, kind: str, name: str) -> Iterator[Any]:
    """Yield the rows of a table as record batches of pyarrow; arguments as in `columnar_rows`."""
    with _opened(source, name) as (file, size):
        yield from _batches(file, size, kind, name)


def _python_rows(batch: Any, name: str) -> list[dict[str, Any]]:
    """Return the rows of a batch; Python has no dates beyond the year 9999, for example."""
    columns = {}
    for column, values in zip(batch.schema.names, batch.columns, strict=True):
        try:
            columns[column] = values.to_pylist()
        except Exception as error:  # whatever pyarrow, or a module for time zones, lets through
            why = shown(first_line(error)[:200])
            raise DataError(
                f"{name} has a value in the column {shown(column[:60])} that Python cannot "
                f"represent: {why}. Remove that column, or store it as text."
            ) from None
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


@contextlib.contextmanager
def _opened(source: Path | bytes, name: str) -> Iterator[tuple[BinaryIO, int]]:
    """Yield an open file, which another process can read as well, and its size."""
    if isinstance(source, bytes):
        with tempfile.TemporaryFile() as file:
            file.write(source)
            file.seek(0)
            yield file, len(source)
        return
    with open_file(source, name) as opened:
        if isinstance(opened, io.BytesIO):
            raise DataError(f"{name} is empty.")
        yield opened, os.fstat(opened.fileno()).st_size


def _batches(file: BinaryIO, size: int, kind: str, name: str) -> Iterator[Any]:
    # A frozen program is its own interpreter: starting it would run the program again.
    if sys.executable and not getattr(sys, "frozen", False):
        yield from _isolated(file, size, kind, name)
        return
    with _pyarrow(name) as pyarrow:
        try:
            yield from decoder.batches(kind, pyarrow.PythonFile(file, mode="r"), size)
        except decoder.RefusedError as error:
            raise DataError(f"{name} {error}.") from None


def _isolated(file: BinaryIO, size: int, kind: str, name: str) -> Iterator[Any]:
    """Yield batches from the program in `decoder`, which reads the open file."""
    call = [sys.executable, "-I", "-W", "ignore", decoder.__file__, kind, str(size)]
    folders = [os.path.abspath(folder) for folder in sys.path if folder]
    # The default allocator reserves more address space than the limit leaves.
    environment = {**os.environ, "ARROW_DEFAULT_MEMORY_POOL": "system"}
    try:
        child = subprocess.Popen(  # noqa: S603 - our own program
            [*call, *folders],
            stdin=file,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment,
            pipesize=_PIPE,
        )
    except OSError as error:
        raise DataError(f"cannot decode {name}: {error.strerror}.") from None
    with child:
        try:
            # While the child starts, pyarrow is imported here.
            with _pyarrow(name) as pyarrow:
                yield from _received(child, pyarrow, name)
        finally:
            # Also if the reader stops after the first rows, or at an interrupt.
            child.kill()


def _received(child: Any, pyarrow: Any, name: str) -> Iterator[Any]:
    try:
        source = pyarrow.input_stream(child.stdout, buffer_size=_PIPE)
        with pyarrow.ipc.open_stream(source) as stream:
            yield from stream
    except (pyarrow.ArrowException, OSError):
        # A stream that breaks off; the exit code below says why.
        pass
    # Limited, as a decoder that was taken over could write without end.
    reason = child.stderr.read(1000).decode("ascii", "replace").splitlines()
    code = child.wait()
    if code == decoder.REFUSED and reason:
        raise DataError(f"{name} {shown(reason[0])}.")
    if code < 0:
        number = -code
        raise DataError(f"{name} {_REASONS.get(_signal_name(number), _CRASHED)}.")
    if code != 0:
        raise DataError(f"{name} {_CRASHED}.")


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time signal
        return ""


@contextlib.contextmanager
def _pyarrow(name: str) -> Iterator[Any]:
    """Yield pyarrow; its errors while reading become one sentence about the table."""
    try:
        import pyarrow
        import pyarrow.ipc
    except ImportError:
        raise MissingExtraError(
            "Reading Parquet and Arrow needs pyarrow, which is not installed: "
            "pip install 'divprism[parquet]'."
        ) from None
    errors = (
        pyarrow.ArrowException,
        OSError,
        ValueError,
        OverflowError,
        LookupError,  # of a time zone that does not exist
        MemoryError,
    )
    try:
        yield pyarrow
    except DataError:  # which is a ValueError, too
        raise
    except errors as error:
        raise DataError(f"{name} is not a readable table: {first_line(error)}.") from None
