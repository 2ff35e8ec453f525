"""The other process that runs an ONNX model: started, watched, and asked for vectors."""

import contextlib
import json
import os
import subprocess
import sys
import threading
import weakref
from collections.abc import Iterator, Sequence
from typing import IO

import numpy as np
import psutil

from divprism.data.wording import escaped
from divprism.embedders import _onnx_program as program
from divprism.embedders._model_files import UnsafeModelError

__all__ = ["Runner"]

LOAD_SECONDS = 20.0
"""Time until a model is loaded, plus one second for each 10 MB of its file."""
ITEM_SECONDS = {"text": 60.0, "image": 60.0, "video": 300.0, "audio": 60.0}
"""Time from one vector to the next; a video of 64 frames takes I3D some ten seconds."""

_FILE_FACTOR = 6  # the bytes, the parsed graph, and what onnxruntime makes of them
_MEMORY_PER_THREAD = 512 << 20  # I3D takes 200 MB for a video of 64 frames
_MAX_ANSWER = 8 << 20  # bytes
# All that a library may need of the environment; keys of servers are no business of a model.
_ENVIRONMENT = ("PATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "SYSTEMROOT", "TMPDIR", "TEMP")


class Runner:
    """A process that holds one model; it ends when this object is no longer used.

    Parameters
    ----------
    task : dict
        See `_onnx_program.Task`; the limit of memory is added here.
    size : int
        Bytes of the model file.

    Raises
    ------
    UnsafeModelError
        If the model is refused or cannot be loaded.
    """

    def __init__(self, task: program.Task, size: int) -> None:
        limit = program.FREE_MEMORY + _FILE_FACTOR * size + _MEMORY_PER_THREAD * task["threads"]
        memory = min(limit, psutil.virtual_memory().available)
        self._lock = threading.Lock()
        self._child = _started({**task, "memory": memory})
        self._end = weakref.finalize(self, _ended, self._child)
        self._item_seconds = ITEM_SECONDS[task["modality"]]
        try:
            with self._watched(LOAD_SECONDS + size / 1e7):
                letter, _ = self._answer()
            if letter != program.READY:
                raise self._broken()
        except BaseException:
            self._end()
            raise

    def vectors(self, items: Sequence[bytes]) -> np.ndarray:
        """Return one row per item: pixels, tokens of four bytes, or a window of sound."""
        with self._lock:
            try:
                rows = self._rows(items)
            except BaseException:
                # Also at Ctrl-C: answers that are still to come must not be those of other items.
                self._end()
                raise
        if len({len(row) for row in rows}) > 1:
            raise UnsafeModelError("it returns vectors of different widths")
        return np.stack(rows).astype(np.float32)

    def _rows(self, items: Sequence[bytes]) -> list[np.ndarray]:
        # Written on a thread of its own: both sides would wait for each other otherwise.
        writer = threading.Thread(target=self._write, args=(items,), daemon=True)
        writer.start()
        rows = []
        for _ in items:
            with self._watched(self._item_seconds):
                letter, content = self._answer()
            if letter != program.VECTOR or len(content) % 4:
                raise self._broken()
            rows.append(np.frombuffer(content, "<f4"))
        writer.join()
        return rows

    def _write(self, items: Sequence[bytes]) -> None:
        # A child that has ended says why in its last answer; its pipe may be closed by then.
        with contextlib.suppress(OSError, ValueError):
            for item in items:
                _pipe(self._child.stdin).write(len(item).to_bytes(4, "little") + item)
            _pipe(self._child.stdin).flush()

    def _answer(self) -> tuple[bytes, bytes]:
        stream = _pipe(self._child.stdout)
        header = stream.read(program.HEADER.size)
        if len(header) < program.HEADER.size:
            raise self._broken()
        letter, length = program.HEADER.unpack(header)
        if length > _MAX_ANSWER:
            raise self._broken()
        content = stream.read(length)
        if len(content) < length:
            raise self._broken()
        if letter == program.REFUSED:
            raise UnsafeModelError(escaped(content[:600].decode("ascii", "replace")))
        return letter, content

    @contextlib.contextmanager
    def _watched(self, seconds: float) -> Iterator[None]:
        """End the process, and with it the wait for its answer, after some time."""
        late = threading.Event()
        # Not of `self`: a timer that still ends must not keep this object alive.
        child = self._child

        def end() -> None:
            late.set()
            child.kill()

        watch = threading.Timer(seconds, end)
        watch.daemon = True
        watch.start()
        try:
            yield
        except UnsafeModelError:
            if late.is_set():
                raise UnsafeModelError(f"it takes more than {seconds:.0f} s") from None
            raise
        finally:
            watch.cancel()

    def _broken(self) -> UnsafeModelError:
        """Return the error for a process that ended without a word."""
        return UnsafeModelError("onnxruntime crashed, or took all memory, while it ran the model")


def _pipe(stream: IO[bytes] | None) -> IO[bytes]:
    assert stream is not None
    return stream


def _started(task: program.Task) -> "subprocess.Popen[bytes]":
    # A frozen program is its own interpreter: starting it would run the program again.
    if not sys.executable or getattr(sys, "frozen", False):
        raise UnsafeModelError("ONNX models run in a process of their own, which needs Python")
    environment = {name: os.environ[name] for name in _ENVIRONMENT if name in os.environ}
    # Each thread would reserve address space that counts as memory.
    environment["MALLOC_ARENA_MAX"] = "2"
    environment["OMP_NUM_THREADS"] = environment["OPENBLAS_NUM_THREADS"] = "1"
    call = [sys.executable, "-I", "-W", "ignore", program.__file__, json.dumps(task)]
    folders = [os.path.abspath(folder) for folder in sys.path if folder]
    try:
        return subprocess.Popen(  # noqa: S603 - our own program
            [*call, *folders],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment,
        )
    except OSError as error:
        raise UnsafeModelError(f"no process could be started for it ({error.strerror})") from None


def _ended(child: "subprocess.Popen[bytes]") -> None:
    child.kill()
    child.wait()
    for stream in (child.stdin, child.stdout):
        # What was not written to a process that has ended cannot be flushed.
        with contextlib.suppress(OSError):
            _pipe(stream).close()
