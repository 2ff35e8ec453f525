"""Resources: memory, workers and progress reports of a computation. They never change a result."""

from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from divprism.engines.base import Engine
from divprism.engines.checkpoints import Checkpoints
from divprism.engines.dask import Dask, is_client
from divprism.engines.threads import Caller, Serial, Threads
from divprism.errors import ArgumentError

__all__ = [
    "RESOURCES",
    "TILE",
    "Progress",
    "Resources",
    "as_engine",
    "free_memory",
    "machine_memory",
    "spell_bytes",
    "spell_seconds",
]

TILE = 512
"""Rows of a tile. 512 x 512 entries stay in the cache between the passes over a kernel block."""

# Rows of a tile on a device: each call costs the time of many products of 512 rows.
_DEVICE_TILE = 4096

Progress = Callable[[str, float], None]
"""A function that is called with the current step and the completed share of it."""

# Share of the free memory to use when no budget is given.
_DEFAULT_SHARE = 0.5

# Bytes that every machine has: to ask for its memory, psutil has to be imported.
_SMALL = 1 << 28


@dataclass(frozen=True)
class Resources:
    """Memory, workers and progress reports of a computation. They never change a result.

    Attributes
    ----------
    memory : int or None
        Bytes that may be held beside the data; None for half of the free memory.
    engine : Engine, Client, Executor or None
        Where tiles are computed: None for one thread per core, each with one BLAS thread; a client
        of Dask, for the workers of its cluster; or a ThreadPoolExecutor of your own.
    progress : callable or None
        Called as progress(text, fraction) with the current step and the completed share of it.
        Before long work it is called once with the plan and fraction zero.
    tile : int or None
        Rows of a tile; None for 512 of NumPy, and 4,096 of a library with devices of its own.
    cache : Cache, path, bool or None
        Where embeddings are kept; None for the default folder, False for nowhere.
    num_workers : int or None
        Threads that read and decode files; None for one per core.
    resume : path or None
        Folder in which finished sweeps are kept: a computation that was interrupted and is started
        again continues there. The files stay until you delete them.
    """

    memory: int | None = None
    engine: Any = None
    progress: Progress | None = None
    tile: int | None = None
    cache: object = None
    num_workers: int | None = None
    resume: Path | None = None

    @property
    def budget(self) -> int:
        """Bytes that may be held."""
        if self.memory is None:
            return int(_DEFAULT_SHARE * free_memory())
        return self.memory

    def require(self, needed: float, subject: str, way_out: str) -> None:
        """Raise ArgumentError, before any work, if `subject` needs more than the given memory.

        Without a budget, the limit is the memory of the machine: what needs more cannot end well.
        """
        if self.memory is not None and needed > self.memory:
            raise ArgumentError(
                f"{subject} needs {spell_bytes(needed)}, above the memory budget of "
                f"{spell_bytes(self.memory)}. Allow more, or {way_out}."
            )
        if needed > _SMALL and needed > machine_memory():
            raise ArgumentError(
                f"{subject} needs {spell_bytes(needed)}, above the memory of this machine, "
                f"{spell_bytes(machine_memory())}; {way_out}."
            )

    def report_progress(self, text: str, fraction: float) -> None:
        """Call `progress`, if there is one."""
        if self.progress is not None:
            self.progress(text, fraction)

    def tile_for(self, like: object) -> int:
        """Rows of a tile of arrays such as `like`."""
        if self.tile is not None:
            return self.tile
        if isinstance(like, np.ndarray):
            return TILE
        return _DEVICE_TILE

    def engine_for(self, like: object) -> Engine:
        """The engine for arrays such as `like`."""
        engine = self._chosen
        if not isinstance(like, np.ndarray):
            engine = self._engine_of_library(like, engine)
        if self.resume is not None:
            return Checkpoints(engine, self.resume)
        return engine

    def _engine_of_library(self, like: object, engine: Engine) -> Engine:
        if isinstance(engine, Threads):
            # Other libraries have threads, or a device, of their own.
            return Serial()
        raise ArgumentError(
            f"a cluster computes with NumPy arrays only; got {type(like).__name__}. "
            "Move the data to NumPy, or leave out the engine."
        )

    @property
    def _chosen(self) -> Engine:
        return as_engine(self.engine)

    @contextmanager
    def workers(self, *, threads: bool = True) -> Iterator[Executor]:
        """Yield an executor in this process, for small work beside the tiles.

        Without `threads`, tasks run in the calling thread: pick that for array libraries that have
        threads of their own.
        """
        engine = self._chosen
        if not threads and self.engine is None:
            yield Caller()
            return
        if not isinstance(engine, Threads):
            engine = Threads()
        with engine.pool() as executor:
            yield executor


def as_engine(value: Any) -> Engine:
    """The engine that a user means, or an ArgumentError."""
    if value is None:
        return Threads()
    if isinstance(value, Engine):
        return value
    if is_client(value):
        return Dask(value)
    if isinstance(value, ThreadPoolExecutor | Caller):
        return Threads(value)
    raise ArgumentError(
        "`engine` must be a client of Dask, dp.Dask(...), or a "
        f"concurrent.futures.ThreadPoolExecutor; got {value!r}."
    )


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


def machine_memory() -> int:
    """Bytes of memory that the machine has, used or not, within the limit of its container."""
    import psutil

    total = int(psutil.virtual_memory().total)
    container = _container_number("memory.max")
    if container is None:
        return total
    return min(total, container)


def _container_memory() -> int | None:
    """Bytes left below the memory limit of the container; None without a limit."""
    limit, used = _container_number("memory.max"), _container_number("memory.current")
    if limit is None or used is None:
        return None
    return max(0, limit - used)


def _container_number(name: str) -> int | None:
    """A number of bytes that describes the container (cgroup v2); None without a limit."""
    # psutil reports the memory of the host, whatever the limit of the container.
    try:
        return int((Path("/sys/fs/cgroup") / name).read_text().strip())
    except (OSError, ValueError):  # no such files, or the text "max" for no limit
        return None


def spell_bytes(amount: float) -> str:
    """Format a number of bytes for people.

    >>> spell_bytes(2_100_000_000), spell_bytes(512)
    ('2.1 GB', '512 B')
    """
    for unit in ("B", "kB", "MB", "GB"):
        # From 999.5 on, three digits would be printed as 1e+03.
        if amount < 999.5:
            return f"{amount:.3g} {unit}"
        amount /= 1000
    amount *= 1000
    return f"{amount:,.0f} GB"


def spell_seconds(seconds: float) -> str:
    """Format a duration for people.

    >>> spell_seconds(42.3), spell_seconds(600)
    ('42 s', '10 min')
    """
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min"
