"""Standard output and standard error, wherever they lead: closed, full, of any encoding.

Everything that the command line prints goes through `put` and `put_error`, where no text can
control the terminal. What cannot be written is one sentence, and a result is printed somewhere.
"""

import contextlib
import errno
import io
import os
import re
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn, TextIO

from divprism.data.files import ESCAPING, write_text
from divprism.data.wording import escaped, reason
from divprism.errors import DataError, DivprismError
from divprism.report.table import stdout_has_color

__all__ = [
    "BROKEN_PIPE",
    "attempt_all",
    "deliver",
    "flush",
    "leaving_on_signals",
    "prepare_streams",
    "put",
    "put_error",
]

BROKEN_PIPE = 128 + 13
"""Exit code where the reader of stdout has left, as that of a program that SIGPIPE ends."""
_ENDING = ("SIGTERM", "SIGHUP")  # signals that end a process; Windows has one of them
_COLORS = re.compile(r"(\x1b\[[0-9;]*m)")  # escape codes that change nothing but colours


class _Closed(io.TextIOBase):
    """Stands for standard output where that is closed: every write fails, as on a full disk."""

    def write(self, text: str) -> int:
        raise OSError(errno.EBADF, "it is closed")


def prepare_streams() -> None:
    """Make both streams accept every text, whatever their encoding and even if they are closed."""
    # Plots go to files, whatever a notebook has set for the programs that it starts.
    os.environ["MPLBACKEND"] = "agg"
    for descriptor in (0, 1, 2):
        try:
            os.fstat(descriptor)
        except OSError:
            # Else the next file that is opened would take the number, and get what is printed.
            os.open(os.devnull, os.O_RDWR)
    if sys.stdout is None:
        sys.stdout = _Closed()
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # For what other libraries print, such as the help. A stream whose number has been
            # given to a pipe after it was opened refuses.
            with contextlib.suppress(OSError):
                stream.reconfigure(errors=ESCAPING)


def put(text: str) -> None:
    """Write a text to stdout.

    Raises
    ------
    BrokenPipeError
        If nobody reads it any more.
    DataError
        If it cannot be written: stdout is closed, or a file on a full disk.
    """
    with _stdout_errors():
        sys.stdout.write(_encodable(_harmless(text), sys.stdout))
        sys.stdout.flush()


def flush() -> None:
    """Write what is left in the buffer of stdout; raises as `put`."""
    with _stdout_errors():
        sys.stdout.flush()


@contextmanager
def _stdout_errors() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        # The buffer still holds the text: at exit Python would try to write it, and fail again.
        _abandon(1)
        if isinstance(error, BrokenPipeError):
            raise
        raise DataError(f"cannot write to standard output: {reason(error)}.") from None


def _abandon(descriptor: int) -> None:
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, descriptor)
    os.close(null)


def put_error(text: str) -> None:
    """Write a text to stderr; where that fails there is nobody left to tell."""
    try:
        sys.stderr.write(_encodable(escaped(text, keep="\n\t"), sys.stderr))
        sys.stderr.flush()
    except (OSError, ValueError):
        with contextlib.suppress(OSError):
            _abandon(2)


def _encodable(text: str, stream: TextIO) -> str:
    """Return a text with the letters that the encoding of a stream lacks as JSON escapes them."""
    encoding = getattr(stream, "encoding", None) or "utf-8"
    return text.encode(encoding, ESCAPING).decode(encoding)


def _harmless(text: str) -> str:
    if not stdout_has_color():
        return escaped(text, keep="\n\t")
    # The pieces at odd positions are our own colours: `Table` has no escape codes from the data.
    pieces = _COLORS.split(text)
    pieces[::2] = [escaped(piece, keep="\n\t") for piece in pieces[::2]]
    return "".join(pieces)


def deliver(text: str, output: Path | None) -> None:
    """Write a result to a file or to stdout; if that fails, print it where that is possible.

    Raises
    ------
    DataError
        If it could not be written as asked; it has been printed nevertheless.
    """
    try:
        if output is None:
            put(text)
        else:
            write_text(output, text)
    except DataError as error:
        if output is None:
            put_error(text)
            raise
        # Hours of computing must not be lost to a folder that does not exist.
        with contextlib.suppress(DataError):
            deliver(text, None)
        raise error from None


def attempt_all(*steps: Callable[[], object]) -> None:
    """Run every step, even after one has failed, and raise the first error at the end."""
    first: DivprismError | None = None
    for step in steps:
        try:
            step()
        except DivprismError as error:
            first = first or error
    if first is not None:
        raise first


@contextmanager
def leaving_on_signals() -> Iterator[None]:
    """Let signals that end the process leave by SystemExit, so that temporary files are removed."""
    earlier = {}
    for name in _ENDING:
        number = getattr(signal, name, None)
        # A signal that somebody ignores, as `nohup` does, stays ignored.
        with contextlib.suppress(ValueError):  # not in the main thread
            if number is not None and signal.getsignal(number) is signal.SIG_DFL:
                earlier[number] = signal.signal(number, _leave)
    try:
        yield
    finally:
        for number, handler in earlier.items():
            signal.signal(number, handler)


def _leave(number: int, frame: object) -> NoReturn:
    # The second one ends the process at once.
    signal.signal(number, signal.SIG_DFL)
    raise SystemExit(128 + number)
