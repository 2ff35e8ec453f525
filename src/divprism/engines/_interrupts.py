"""Ctrl-C beside a cluster: neither lost in Dask nor answered by each of its processes."""

import signal
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

__all__ = ["interrupts_ignored", "interrupts_remembered", "raise_interrupt"]


def interrupts_ignored() -> AbstractContextManager[None]:
    """Ignore Ctrl-C, and have it ignored by the processes that start meanwhile.

    A terminal sends it to all of them. Theirs are ended by this process, in order.
    """
    return _interrupts_handled(signal.SIG_IGN)


_interrupted = threading.Event()
_GC_HOOK = str(Path("distributed", "gc.py"))


@contextmanager
def interrupts_remembered() -> Iterator[None]:
    """Raise KeyboardInterrupt as usual, or at the next `raise_interrupt`.

    Dask hooks into the garbage collector, where Python would print and drop the exception.
    """

    def interrupt(number: int, frame: FrameType | None) -> None:
        _interrupted.set()
        if not _is_in_hook(frame):
            raise KeyboardInterrupt

    _interrupted.clear()
    try:
        with _interrupts_handled(interrupt):
            yield
    finally:
        # It was meant for this computation: the next one in the same session starts without it.
        _interrupted.clear()


def _is_in_hook(frame: FrameType | None) -> bool:
    """Whether a frame is one of the hook, or was called from it: its clock is in another file."""
    while frame is not None:
        if frame.f_code.co_filename.endswith(_GC_HOOK):
            return True
        frame = frame.f_back
    return False


def raise_interrupt() -> None:
    """Raise an interrupt that Dask has dropped."""
    if _interrupted.is_set():
        raise KeyboardInterrupt


@contextmanager
def _interrupts_handled(handler: Any) -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread may change how signals are handled
        return
    before = signal.signal(signal.SIGINT, handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
