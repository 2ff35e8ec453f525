"""Row blocks and tiles, and the means to visit them: a memory budget, an executor, someone to tell how far it is."""

import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from divprism.errors import ArgumentError

__all__ = [
    "RESOURCES",
    "TILE",
    "Resources",
    "cores",
    "in_order",
    "one_blas_thread",
    "row_blocks",
    "side_by_side",
    "spell_bytes",
    "spell_seconds",
]

TILE = 512
"""Rows of a tile: 512 x 512 entries stay in cache between the passes that a kernel block needs."""

_SHARE = 0.5  # of the free memory that may be used when nothing is said
_WINDOW = 8  # tasks handed to the executor ahead of the one whose result is awaited

T = TypeVar("T")
R = TypeVar("R")


def row_blocks(size: int, rows: int = TILE) -> Iterator[slice]:
    """Slices of at most `rows` that cover range(size).

    >>> list(row_blocks(5, 2))
    [slice(0, 2, None), slice(2, 4, None), slice(4, 5, None)]
    """
    return (slice(start, min(start + rows, size)) for start in range(0, size, rows))


@dataclass(frozen=True)
class Resources:
    """What work at scale may use. None of it changes an answer.

    Attributes
    ----------
    memory : int or None
        Bytes that may be held beside the data; None for half of what is free.
    executor : Executor or None
        Where blocks are computed; None for a thread per core, each with one BLAS thread.
    progress : callable or None
        Called as progress(text, fraction): what is being done, and how much of it is behind. Before long work once with the
        plan and fraction zero.
    tile : int
        Rows of a tile.
    """

    memory: int | None = None
    executor: Executor | None = None
    progress: Callable[[str, float], None] | None = None
    tile: int = TILE

    @property
    def budget(self) -> int:
        """Bytes that may be held."""
        return int(_SHARE * free_memory()) if self.memory is None else self.memory

    def require(self, needed: float, what: str, way_out: str) -> None:
        """Refuse, before any work, what a budget that was given cannot hold."""
        if self.memory is not None and needed > self.memory:
            raise ArgumentError(
                f"{what} holds {spell_bytes(needed)}, above the memory budget of {spell_bytes(self.memory)}. "
                f"Allow more, or {way_out}."
            )

    def tell(self, text: str, fraction: float) -> None:
        """Pass on how far the work is, if anyone listens."""
        if self.progress is not None:
            self.progress(text, fraction)

    @contextmanager
    def workers(self, *, threads: bool = True) -> Iterator[Executor]:
        """The executor to use. Without `threads`, tasks run in the caller: the array library has threads of its own.

        A thread per core with one BLAS thread each beats one thread with all BLAS threads, because the exponentials and
        sums between the products then run on all cores too; and the same bits come out for any number of threads.
        """
        if not threads and self.executor is None:
            yield _Caller()
            return
        with one_blas_thread():
            if self.executor is not None:
                yield self.executor
                return
            pool = ThreadPoolExecutor(cores())
            try:
                yield pool
            finally:
                pool.shutdown(wait=True, cancel_futures=True)


RESOURCES = Resources()
"""Half of the free memory, all cores, and nobody told."""


@cache
def _blas() -> Any:
    """The BLAS libraries of this process; NumPy's is there from the start."""
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


_entered, _limit, _lock = 0, None, threading.Lock()


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """BLAS with one thread, for as long as anyone is inside: the setting is global, so only the last to leave restores it."""
    global _entered, _limit
    with _lock:
        _entered += 1
        if _entered == 1:
            _limit = _blas().limit(limits=1, user_api="blas")
    try:
        yield
    finally:
        with _lock:
            _entered -= 1
            if _entered == 0 and _limit is not None:
                _limit.restore_original_limits()


class _Caller(Executor):
    """Runs tasks at once, in the thread that submits them."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future:
        future: Future = Future()
        future.set_result(fn(*args, **kwargs))
        return future


def cores() -> int:
    """Processors that this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on every system
        return os.cpu_count() or 1


def in_order(call: Callable[[T], R], items: Iterable[T], executor: Executor) -> Iterator[R]:
    """call(item) of each item, computed by the executor a few ahead, handed out in order.

    Sums over the results are then the same to the last bit for any number of workers. Whatever ends the loop early, an
    interrupt too, takes the tasks not yet begun with it.
    """
    pending: deque[Future[R]] = deque()
    try:
        for item in items:
            pending.append(executor.submit(call, item))
            if len(pending) >= _WINDOW:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
    finally:
        for future in pending:
            future.cancel()


def side_by_side(call: Callable[[T], R], items: Iterable[T], executor: Executor) -> list[R]:
    """call(item) of each item, by the executor if its threads share our memory, else here."""
    return list(in_order(call, items, executor) if isinstance(executor, ThreadPoolExecutor) else map(call, items))


def free_memory() -> int:
    """Bytes that this process could still take: what the system has available, within the limit of a container."""
    found = [amount for amount in (_available(), _container_room()) if amount is not None]
    return min(found, default=_UNKNOWN)


_UNKNOWN = 4 << 30  # assumed where the system does not tell


def _available() -> int | None:
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
    except (AttributeError, ValueError, OSError):
        return None


def _container_room() -> int | None:
    try:
        limit, used = (Path("/sys/fs/cgroup", name).read_text().strip() for name in ("memory.max", "memory.current"))
        return max(0, int(limit) - int(used))
    except (OSError, ValueError):  # no such files, or no limit
        return None


def spell_bytes(amount: float) -> str:
    """Bytes for a person.

    >>> spell_bytes(2_100_000_000), spell_bytes(512)
    ('2.1 GB', '512 B')
    """
    for unit in ("B", "kB", "MB", "GB"):
        if amount < 1000 or unit == "GB":
            return f"{amount:.3g} {unit}" if amount < 1000 else f"{amount:,.0f} {unit}"
        amount /= 1000
    raise AssertionError


def spell_seconds(seconds: float) -> str:
    """A duration for a person.

    >>> spell_seconds(42.3), spell_seconds(600)
    ('42 s', '10 min')
    """
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"
