"""Dask: the parts of a job on the workers of a cluster, which may come, go and die."""

import logging
import re
import socket
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from divprism.engines._interrupts import (
    interrupts_ignored,
    interrupts_remembered,
    raise_interrupt,
)
from divprism.engines._packing import Packed, bytes_of
from divprism.engines.base import Engine, Job, Report, Shared, Total, sum_of
from divprism.engines.threads import cores, one_blas_thread
from divprism.errors import ArgumentError, EngineError, MissingExtraError

if TYPE_CHECKING:
    from distributed import Client, Future

__all__ = ["Dask", "cluster", "is_client"]

T = TypeVar("T")
R = TypeVar("R")

# Times that a pass is started again because the only copy of its data was lost with a worker.
_ATTEMPTS = 5

# Share of a worker's memory limit that what we keep may fill: from 0.6 on Dask moves data to disk,
# at 0.8 it pauses a worker and at 0.95 it ends it.
_MEMORY_SHARE = 0.5

# Bytes of a worker before it has done anything: Python, NumPy, SciPy and Dask.
_WORKER_BYTES = 200 * 2**20

# Largest number of processes on this machine: per core, and on a machine of few cores.
_MOST_PER_CORE = 4
_FEWEST_ALLOWED = 16

# Dask has workers return freed memory at once. Tiles are freed all the time, and asking the system
# for new memory each time takes up to half of the time of a sweep.
_ENVIRONMENT = "distributed.nanny.pre-spawn-environ"
_MALLOC = {
    f"{_ENVIRONMENT}.MALLOC_TRIM_THRESHOLD_": 1 << 27,
    # With the other one set, it no longer adapts to what is asked for.
    f"{_ENVIRONMENT}.MALLOC_MMAP_THRESHOLD_": 1 << 25,
}

# Seconds to wait for the answer of a scheduler, and for a worker where there is none.
_CONNECT_SECONDS = 10
_PATIENCE = 60


# The address of a scheduler, and the bytes of its first message.
_ADDRESS = re.compile(r"(tcp://)?(?P<host>[\w.-]+|\[[\da-fA-F:.]+\]):(?P<port>\d{1,5})", re.ASCII)
_LAST_PORT = 65535
_LONGEST_GREETING = 1 << 16


class Dask(Engine):
    """The workers of a Dask cluster.

    What all parts share is sent to the workers once. The vectors of a pass are sent once each, the
    sums are merged on the workers, and one sum for each matrix returns. Of a worker that dies only
    the running parts are computed again.

    Parameters
    ----------
    client : distributed.Client or str
        The client of a cluster, or the address of its scheduler.
    """

    def __init__(self, client: "Client | str") -> None:
        _require_dask()
        import distributed

        if isinstance(client, str):
            client = _connect(client)
        if not isinstance(client, distributed.Client):
            raise ArgumentError(
                f"`client` must be a distributed.Client or the address of a scheduler; "
                f"got {client!r}."
            )
        if client.asynchronous:
            raise ArgumentError(
                "`client` is asynchronous: a computation waits for its results, so pass a client "
                "that was made without `asynchronous=True`."
            )
        self.client = client

    def __repr__(self) -> str:
        return f"Dask({self.client.scheduler.address!r})"

    @property
    def num_workers(self) -> int:
        """Threads of all workers."""
        return max(1, sum(self._workers().values()))

    @property
    def num_processes(self) -> int:
        """Number of workers."""
        return max(1, len(self._workers()))

    def _workers(self) -> dict[str, int]:
        """Addresses of the workers, and the number of threads of each."""
        workers = self._info()
        return {address: workers[address]["nthreads"] for address in sorted(workers)}

    def _info(self) -> dict[str, Any]:
        with _in_sentences():
            return dict(self.client.scheduler_info()["workers"])

    def share(self, value: T) -> "_Scattered[T]":
        """Send a value to the workers."""
        return _Scattered(self, value)

    def total(
        self,
        job: Shared[Job],
        inputs: Any,
        bundles: Sequence[Sequence[Any]],
        report: Report,
    ) -> Any:
        """The sum of the parts of all items; the sums are merged on the workers."""
        assert isinstance(job, _Scattered)
        with _in_sentences():
            return self._repeated(
                lambda given: self._total(job, given, bundles, report), inputs, job
            )

    def _repeated(
        self, run: "Callable[[_Scattered[Any]], R]", inputs: Any, job: "_Scattered[Any]"
    ) -> R:
        """Run, again if the only worker that had the data is gone."""
        given = self.share(inputs)
        for _ in range(_ATTEMPTS):
            try:
                return run(given)
            except CancelledError as error:
                if not _is_loss(error):
                    raise
                job.send_again()
                given.send_again()
        raise EngineError(_workers_end(_ATTEMPTS))

    def _total(
        self,
        job: "_Scattered[Job]",
        inputs: "_Scattered[Any]",
        bundles: Sequence[Sequence[Any]],
        report: Report,
    ) -> Any:
        from distributed import as_completed

        sums = self._submit_bundles(job, inputs, bundles)
        merges = self._submit_merges(sums)
        # The root of the tree; a single bundle needs no merge.
        last = (sums + merges)[-1]
        try:
            for number, future in enumerate(as_completed(sums), 1):
                raise_interrupt()
                # Raises what a part raised.
                if future.status != "finished":
                    future.result()
                report(number / len(sums))
            result = last.result()
        finally:
            _release(sums + merges)
        job.homes.update(result.homes)
        return result.total

    def _submit_bundles(
        self, job: "_Scattered[Job]", inputs: "_Scattered[Any]", bundles: Sequence[Sequence[Any]]
    ) -> "list[Future]":
        workers = self._present_workers()
        homes = _homes(workers, len(bundles))
        for number, home in job.homes.items():
            if home in workers:
                homes[number] = home
        sums: dict[int, Future] = {}
        # Dealt in turns: a worker without work would take that of another, and its tiles with it.
        for number in _dealt(homes):
            sums[number] = self.client.submit(
                _sum_on_worker,
                job.copy_of(homes[number]),
                inputs.future,
                number,
                bundles[number],
                # The same bundle goes to the same worker in each pass, which may have kept its
                # tiles; any other takes it if that one is busy.
                workers=homes[number],
                allow_other_workers=True,
                pure=False,
            )
        return [sums[number] for number in range(len(bundles))]

    def _present_workers(self) -> dict[str, int]:
        """The workers, at least one: a new one may be on its way in place of the last."""
        workers: dict[str, int] = {}
        # The one that was waited for may be gone again before it is asked for.
        while not workers:
            try:
                self.client.wait_for_workers(1, timeout=_PATIENCE)
            except TimeoutError:
                raise EngineError(
                    f"the cluster has no worker, and none has come within {_PATIENCE} seconds: "
                    "start one."
                ) from None
            workers = self._workers()
        return workers

    def _submit_merges(self, sums: "Sequence[Future]") -> "list[Future]":
        """Merge neighbours until one is left, the last: the tree of `Tree`."""
        level, merges = list(sums), []
        while len(level) > 1:
            above = []
            for first in range(0, len(level) - 1, 2):
                pair = level[first : first + 2]
                # First of all tasks, because it frees memory.
                above.append(self.client.submit(_merge_on_worker, *pair, pure=False, priority=10))
            merges += above
            # The odd one moves up as it is, which gives the shape of `Tree`.
            if len(level) % 2:
                above.append(level[-1])
            level = above
        return merges

    def kept_bytes(self, room: int, needed: int) -> int:
        """Half of the memory limit of the smallest worker, without what it needs anyway."""
        limits = [worker["memory_limit"] for worker in self._info().values()]
        limits = [limit for limit in limits if limit]
        if not limits:
            # Workers without a limit share this machine as far as we know.
            return max(0, (room + needed) // self.num_workers - needed)
        return max(0, int(_MEMORY_SHARE * min(limits)) - _WORKER_BYTES - needed)


class _Scattered(Shared[T]):
    """A value on the workers, and the copy here from which it is sent again if they lose it."""

    def __init__(self, engine: Dask, value: T) -> None:
        super().__init__(value)
        self._engine = engine
        # Who computed each bundle of the last pass, and has kept its tiles if anybody has.
        self.homes: dict[int, str] = {}
        self.send_again()

    def send_again(self) -> None:
        """Send the value to one worker; the others fetch it from there."""
        self._copies: dict[str, Future] = {}
        with _in_sentences():
            # Under a random name, for which Dask need not hash gigabytes.
            [self.future] = self._engine.client.scatter([Packed(self.value)], hash=False)

    def copy_of(self, worker: str) -> "Future":
        """The copy of one worker, which stays there until this object is gone.

        Dask drops what several workers have but one, and would send it again in each pass.
        """
        if worker not in self._copies:
            self._copies[worker] = self._engine.client.submit(
                _keep, self.future, workers=worker, allow_other_workers=True, pure=False
            )
        return self._copies[worker]


def _keep(packed: "Packed") -> "Packed":
    return packed


@contextmanager
def cluster(scheduler: str | None = None, workers: int | None = None) -> Iterator[Dask | None]:
    """Yield an engine: the cluster of a scheduler, or processes on this machine; None for neither.

    Processes end with the block, whatever happens in it.
    """
    if scheduler is not None and workers is not None:
        raise ArgumentError("name a `scheduler` or a number of `workers`, not both.")
    if scheduler is not None:
        engine = Dask(scheduler)
        try:
            yield engine
        finally:
            engine.client.close(timeout=2)
        return
    if workers is None:
        yield None
        return
    _check_number(workers)
    _require_dask()
    import dask
    from distributed import Client, LocalCluster

    # Any free port: Dask warns where its usual one is taken.
    # Errors of tasks are raised here anyway; a log in between would hide the sentence.
    options = {"dashboard_address": ":0", "silence_logs": logging.CRITICAL}
    with ExitStack() as stack:
        with interrupts_ignored(), dask.config.set(_MALLOC):
            local = LocalCluster(n_workers=workers, threads_per_worker=1, **options)
            stack.enter_context(local)
        with interrupts_remembered(), Client(local) as client:
            yield Dask(client)


def _check_number(workers: int) -> None:
    """Refuse to start far more processes than there are cores."""
    most = max(_FEWEST_ALLOWED, _MOST_PER_CORE * cores())
    if workers > most:
        raise ArgumentError(
            f"`workers` must be at most {most} on this machine, which has {cores()} cores; "
            f"got {workers:,}. Name a `scheduler` to use more machines."
        )


def is_client(value: object) -> bool:
    """Whether `value` is a client of Dask, without importing it."""
    return type(value).__module__.startswith("distributed.") and hasattr(value, "scheduler_info")


def _require_dask() -> None:
    try:
        # An interrupt during the import may be dropped, too.
        with interrupts_ignored():
            import distributed  # noqa: F401
    except ImportError:
        raise MissingExtraError(
            "a cluster needs Dask, which is not installed: pip install 'divprism[dask]'."
        ) from None


def _connect(address: str) -> "Client":
    from distributed import Client

    _check_scheduler(address)
    try:
        return Client(address, timeout=_CONNECT_SECONDS)
    # What answers may be anything, and so is what Dask raises about it.
    except Exception as error:
        raise EngineError(_no_scheduler(address, error)) from None


def _check_scheduler(address: str) -> None:
    """Raise EngineError unless something like a scheduler answers soon."""
    # Dask itself waits for minutes for a server that accepts connections and says nothing.
    match = _ADDRESS.fullmatch(address)
    if match is None or int(match["port"]) > _LAST_PORT:
        raise ArgumentError(
            f"the address of a scheduler must be like tcp://HOST:PORT; got {address!r}. "
            "In Python a `client` with other protocols can be passed."
        )
    try:
        place = match["host"].strip("[]"), int(match["port"])
        with socket.create_connection(place, timeout=_CONNECT_SECONDS) as connection:
            # A scheduler greets first, with the number of bytes that follow.
            greeting = connection.recv(8, socket.MSG_WAITALL)
    except (OSError, UnicodeError) as error:
        raise EngineError(_no_scheduler(address, error)) from None
    if not 0 < int.from_bytes(greeting, "little") < _LONGEST_GREETING:
        raise EngineError(f"no scheduler of Dask answers at {address}, but something else does.")


def _no_scheduler(address: str, error: Exception) -> str:
    lines = str(error).splitlines() or [type(error).__name__]
    return f"no scheduler of Dask answers at {address}: {lines[0]}"


def _homes(workers: dict[str, int], count: int) -> list[str]:
    """A worker for each of the bundles: neighbours to the same one, in proportion to threads."""
    slots = [address for address, threads in workers.items() for _ in range(threads)]
    return [slots[number * len(slots) // count] for number in range(count)]


def _dealt(homes: Sequence[str]) -> list[int]:
    """The numbers of all bundles: the first one of each home, then the second of each, and on."""
    seen: Counter[str] = Counter()
    turns = []
    for number, home in enumerate(homes):
        turns.append((seen[home], number))
        seen[home] += 1
    return [number for _, number in sorted(turns)]


def _release(futures: "Iterable[Future]") -> None:
    """Let the cluster forget tasks: those that have not started never will."""
    # Not `Client.cancel`, which fails for a task that another cancelled task has taken along.
    for future in futures:
        future.release()


@dataclass
class _Sum:
    """A total on a worker, and who has computed each bundle of it."""

    total: Total
    homes: dict[int, str]

    def __sizeof__(self) -> int:
        return bytes_of(self.total)


def _sum_on_worker(job: Packed, inputs: Packed, number: int, items: Sequence[Any]) -> _Sum:
    from distributed import get_worker

    # As in threads, so that sums have the same bits.
    with one_blas_thread():
        total = sum_of(job.value, inputs.value, items)
    return _Sum(total, {number: get_worker().address})


def _merge_on_worker(first: _Sum, second: _Sum) -> _Sum:
    return _Sum(first.total.merged(second.total), first.homes | second.homes)


def _is_loss(error: CancelledError) -> bool:
    """Whether tasks were cancelled because a worker took the only copy of their data with it."""
    return getattr(error, "reason", "") not in ("scheduler-connection-lost", "scheduler-restart")


def _workers_end(times: int) -> str:
    return (
        f"workers of the cluster ended {times} times while they computed the same parts, most "
        "often for lack of memory: give each worker more of it, or start fewer on a machine."
    )


@contextmanager
def _in_sentences() -> Iterator[None]:
    """Turn what Dask raises about its cluster into one sentence."""
    from distributed import KilledWorker
    from distributed.comm import CommClosedError

    try:
        yield
    except KilledWorker as error:
        raise EngineError(_workers_end(error.allowed_failures + 1)) from None
    except (CancelledError, CommClosedError, TimeoutError, ConnectionError) as error:
        raise EngineError(
            f"the cluster was lost ({type(error).__name__}): its scheduler no longer answers, or "
            "all workers are gone. What was embedded is in the cache."
        ) from None
