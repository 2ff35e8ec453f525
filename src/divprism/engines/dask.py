"""Dask: the parts of a job on the workers of a cluster, which may come, go and die."""

import logging
import pickle
import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from divprism.engines.base import Engine, Job, Report, Shared, Total, sum_of
from divprism.engines.threads import one_blas_thread
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

# Seconds to wait for the answer of a scheduler, and for a worker where there is none.
_CONNECT_SECONDS = 10
_PATIENCE = 60


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
        last = (sums + merges)[-1]
        try:
            for number, future in enumerate(as_completed(sums), 1):
                _raise_interrupt()
                # Raises what a part raised.
                if future.status != "finished":
                    future.result()
                report(number / len(sums))
            return last.result()
        finally:
            _release(sums + merges)

    def _submit_bundles(
        self, job: "_Scattered[Job]", inputs: "_Scattered[Any]", bundles: Sequence[Sequence[Any]]
    ) -> "list[Future]":
        self._wait_for_a_worker()
        homes = _homes(self._workers(), len(bundles))
        sums = []
        for bundle, home in zip(bundles, homes, strict=True):
            future = self.client.submit(
                _sum_on_worker,
                job.future,
                inputs.future,
                bundle,
                # The same bundle goes to the same worker in each pass, which may have kept its
                # tiles; any other takes it if that one is busy.
                workers=home,
                allow_other_workers=True,
                pure=False,
            )
            sums.append(future)
        return sums

    def _wait_for_a_worker(self) -> None:
        """Wait if there is none: a new one may be on its way in place of the last."""
        try:
            self.client.wait_for_workers(1, timeout=_PATIENCE)
        except TimeoutError:
            raise EngineError(
                f"the cluster has no worker, and none has come within {_PATIENCE} seconds: "
                "start one."
            ) from None

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
            if len(level) % 2:
                above.append(level[-1])
            level = above
        return merges

    def kept_bytes(self, budget: int, needed: int) -> int:
        """Half of the memory limit of the smallest worker, without what it needs anyway."""
        limits = [worker["memory_limit"] for worker in self._info().values()]
        limits = [limit for limit in limits if limit]
        if not limits:
            # Workers without a limit share this machine as far as we know.
            return max(0, budget // self.num_workers - needed)
        return max(0, int(_MEMORY_SHARE * min(limits)) - _WORKER_BYTES - needed)


class _Scattered(Shared[T]):
    """A value on the workers, and the copy here from which it is sent again if they lose it."""

    def __init__(self, engine: Dask, value: T) -> None:
        super().__init__(value)
        self._engine = engine
        self.send_again()

    def send_again(self) -> None:
        """Send the value to one worker; the others fetch it from there."""
        with _in_sentences():
            [self.future] = self._engine.client.scatter([_Packed(self.value)], hash=False)


class _Packed:
    """A value whose arrays arrive aligned in memory.

    Dask places the bytes of arrays at any address. NumPy copies arrays at odd addresses before it
    multiplies them, and then no longer sees that a matrix is multiplied by its own transpose: it
    calls another routine of BLAS, with other bits.
    """

    def __init__(self, value: Any) -> None:
        self.value = value

    def __reduce__(self) -> tuple[Any, ...]:
        import cloudpickle

        buffers: list[pickle.PickleBuffer] = []
        # Plain pickle cannot send a kernel that is defined in a notebook.
        frame = cloudpickle.dumps(self.value, protocol=5, buffer_callback=buffers.append)
        return _unpack, (frame, *buffers)


def _unpack(frame: bytes, *buffers: Any) -> _Packed:
    aligned = [_aligned(buffer) for buffer in buffers]
    # What a scheduler sends to its workers is trusted: Dask itself unpickles it.
    return _Packed(pickle.loads(frame, buffers=aligned))  # noqa: S301


def _aligned(buffer: Any) -> np.ndarray:
    """The bytes, at an address that is a multiple of 16."""
    content = np.frombuffer(buffer, np.uint8)
    if content.ctypes.data % 16:
        content = content.copy()
    return content


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
    _require_dask()
    from distributed import Client, LocalCluster

    # Errors of tasks are raised here anyway; a log in between would hide the sentence.
    options = {"dashboard_address": ":0", "silence_logs": logging.CRITICAL}
    with _interrupts_ignored():
        local = LocalCluster(n_workers=workers, threads_per_worker=1, **options)
    with local, _interrupts_remembered(), Client(local) as client:
        yield Dask(client)


def _interrupts_ignored() -> AbstractContextManager[None]:
    """Ignore Ctrl-C, and have it ignored by the processes that start meanwhile.

    A terminal sends it to all of them. Theirs are ended by this process, in order.
    """
    return _interrupts_handled(signal.SIG_IGN)


_interrupted = threading.Event()
_GC_HOOK = str(Path("distributed", "gc.py"))


def _interrupts_remembered() -> AbstractContextManager[None]:
    """Raise KeyboardInterrupt as usual, or at the next `_raise_interrupt`.

    Dask hooks into the garbage collector, where Python would print and drop the exception.
    """

    def interrupt(number: int, frame: FrameType | None) -> None:
        _interrupted.set()
        if frame is None or not frame.f_code.co_filename.endswith(_GC_HOOK):
            raise KeyboardInterrupt

    _interrupted.clear()
    return _interrupts_handled(interrupt)


def _raise_interrupt() -> None:
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


def is_client(value: object) -> bool:
    """Whether `value` is a client of Dask, without importing it."""
    return type(value).__module__.startswith("distributed.") and hasattr(value, "scheduler_info")


def _require_dask() -> None:
    try:
        # An interrupt during the import may be dropped, too.
        with _interrupts_ignored():
            import distributed  # noqa: F401
    except ImportError:
        raise MissingExtraError(
            "a cluster needs Dask, which is not installed: pip install 'divprism[dask]'."
        ) from None


def _connect(address: str) -> "Client":
    from distributed import Client

    try:
        return Client(address, timeout=_CONNECT_SECONDS)
    except (OSError, ValueError) as error:
        reason = str(error).splitlines()[0] or type(error).__name__
        raise EngineError(f"no scheduler of Dask answers at {address}: {reason}") from None


def _homes(workers: dict[str, int], count: int) -> list[str]:
    """A worker for each of the bundles: neighbours to the same one, in proportion to threads."""
    slots = [address for address, threads in workers.items() for _ in range(threads)]
    return [slots[number * len(slots) // count] for number in range(count)]


def _release(futures: "Iterable[Future]") -> None:
    """Let the cluster forget tasks: those that have not started never will."""
    # Not `Client.cancel`, which fails for a task that another cancelled task has taken along.
    for future in futures:
        future.release()


def _sum_on_worker(job: _Packed, inputs: _Packed, items: Sequence[Any]) -> Total:
    # As in threads, so that sums have the same bits.
    with one_blas_thread():
        return sum_of(job.value, inputs.value, items)


def _merge_on_worker(first: Total, second: Total) -> Total:
    return first.merged(second)


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
