"""Resources: memory, workers and progress reports of a computation. They never change a result."""

from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from divprism.engines.threads import Caller, cores, one_blas_thread
from divprism.errors import ArgumentError

__all__ = [
    "RESOURCES",
    "TILE",
    "Progress",
    "Resources",
    "free_memory",
    "spell_bytes",
    "spell_seconds",
]

TILE = 512
"""Rows of a tile. 512 x 512 entries stay in the cache between the passes over a kernel block."""

Progress = Callable[[str, float], None]
"""A function that is called with the current step and the completed share of it."""

# Share of the free memory to use when no budget is given.
_DEFAULT_SHARE = 0.5


@dataclass(frozen=True)
class Resources:
    """Memory, workers and progress reports of a computation. They never change a result.

    Attributes
    ----------
    memory : int or None
        Bytes that may be held beside the data; None for half of the free memory.
    executor : Executor or None
        Where blocks are computed; None for one thread per core, each with one BLAS thread.
    progress : callable or None
        Called as progress(text, fraction) with the current step and the completed share of it.
        Before long work it is called once with the plan and fraction zero.
    tile : int
        Rows of a tile.
    cache : Cache, path, bool or None
        Where embeddings are kept; None for the default folder, False for nowhere.
    num_workers : int or None
        Threads that read and decode files; None for one per core.
    """

    memory: int | None = None
    executor: Executor | None = None
    progress: Progress | None = None
    tile: int = TILE
    cache: object = None
    num_workers: int | None = None

    @property
    def budget(self) -> int:
        """Bytes that may be held."""
        if self.memory is None:
            return int(_DEFAULT_SHARE * free_memory())
        return self.memory

    def require(self, needed: float, subject: str, way_out: str) -> None:
        """Raise ArgumentError, before any work, if `subject` needs more than the given memory."""
        if self.memory is not None and needed > self.memory:
            raise ArgumentError(
                f"{subject} needs {spell_bytes(needed)}, above the memory budget of "
                f"{spell_bytes(self.memory)}. Allow more, or {way_out}."
            )

    def report_progress(self, text: str, fraction: float) -> None:
        """Call `progress`, if there is one."""
        if self.progress is not None:
            self.progress(text, fraction)

    @contextmanager
    def workers(self, *, threads: bool = True) -> Iterator[Executor]:
        """Yield the executor to use.

        Without `threads`, tasks run in the calling thread: pick that for array libraries that have
        threads of their own.
        """
        if not threads and self.executor is None:
            yield Caller()
            return
        # One thread per core with one BLAS thread each is faster than one thread with all BLAS
        # threads: the exponentials and sums between the matrix products then use all cores too.
        # It also makes the result independent of the number of threads, to the last bit.
        with one_blas_thread():
            if self.executor is not None:
                yield self.executor
                return
            # No with statement: on an interrupt it would first run all tasks in the queue.
            pool = ThreadPoolExecutor(cores())
            try:
                yield pool
            finally:
                pool.shutdown(wait=True, cancel_futures=True)


RESOURCES = Resources()
"""The default: half of the free memory, all cores, no progress reports."""


def free_memory() -> int:
    """Bytes that this process can still allocate, within the limit of its container."""
    import psutil

    available = int(psutil.virtual_memory().available)
    container = _container_memory()
    if container is None:
        return available
    return min(available, container)


def _container_memory() -> int | None:
    """Bytes left below the memory limit of the container (cgroup v2); None without a limit."""
    # psutil reports the memory of the host, whatever the limit of the container.
    try:
        limit = Path("/sys/fs/cgroup/memory.max").read_text().strip()
        used = Path("/sys/fs/cgroup/memory.current").read_text().strip()
        return max(0, int(limit) - int(used))
    except (OSError, ValueError):  # no such files, or the text "max" for no limit
        return None


def spell_bytes(amount: float) -> str:
    """Format a number of bytes for people.

    >>> spell_bytes(2_100_000_000), spell_bytes(512)
    ('2.1 GB', '512 B')
    """
    for unit in ("B", "kB", "MB"):
        if amount < 1000:
            return f"{amount:.3g} {unit}"
        amount /= 1000
    if amount < 1000:
        return f"{amount:.3g} GB"
    return f"{amount:,.0f} GB"


def spell_seconds(seconds: float) -> str:
    """Format a duration for people.

    >>> spell_seconds(42.3), spell_seconds(600)
    ('42 s', '10 min')
    """
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min"
