"""Threads: one per core, each with one BLAS thread, and results returned in a fixed order."""

import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache
from typing import Any, TypeVar

from divprism.engines.base import Engine, Report, Shared, Tree

__all__ = [
    "Caller",
    "Serial",
    "Threads",
    "blas_for",
    "cores",
    "in_order",
    "one_blas_thread",
    "side_by_side",
]

# Tasks submitted ahead of the one whose result is awaited.
_WINDOW = 8

# Rows up to which work of many small steps runs on one BLAS thread. Between two calls the other
# threads of OpenBLAS spin, which takes twice to six times the processor time and gains little.
_ONE_THREAD_SIZE = 3000

T = TypeVar("T")
R = TypeVar("R")


def cores() -> int:
    """Number of processors that this process may use."""
    import psutil

    process = psutil.Process()
    if hasattr(process, "cpu_affinity"):  # not available on macOS
        # Containers and schedulers often restrict a process to some of the processors.
        return len(process.cpu_affinity())
    return psutil.cpu_count() or 1


class Caller(Executor):
    """An executor that runs each task immediately, in the thread that submits it."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future:
        """Run the task and return its finished future."""
        future: Future = Future()
        future.set_result(fn(*args, **kwargs))
        return future


def in_order(
    call: Callable[[T], R], items: Iterable[T], executor: Executor, window: int = _WINDOW
) -> Iterator[R]:
    """Yield call(item) for each item in order, computed by the executor a few items ahead.

    Because the order is fixed, sums over the results have the same bits for any number of workers.
    If the loop ends early, by an interrupt for example, tasks that have not started are cancelled.
    """
    # A short queue, so that results waiting for their turn do not pile up in memory.
    pending: deque[Future[R]] = deque()
    try:
        for item in items:
            pending.append(executor.submit(call, item))
            if len(pending) >= window:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
    finally:
        for future in pending:
            future.cancel()


def side_by_side(call: Callable[[T], R], items: Iterable[T], executor: Executor) -> list[R]:
    """Return call(item) for each item, on the threads of the executor if it has any."""
    # A call may change objects of this process, which only threads share with it.
    if isinstance(executor, ThreadPoolExecutor):
        return list(in_order(call, items, executor))
    return [call(item) for item in items]


@cache
def _blas(with_scipy: bool) -> Any:
    """The BLAS libraries loaded in this process; NumPy and SciPy each load their own on import."""
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


# How many callers are inside `one_blas_thread`, and the limit that the first of them has set.
_entered, _limit, _lock = 0, None, threading.Lock()


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Limit BLAS to one thread while any caller is inside.

    The limit is global to the process, so only the last caller to leave restores the old limit.
    """
    global _entered, _limit
    with _lock:
        _entered += 1
        if _entered == 1:
            # Looked up again once SciPy has brought its library, which would go unlimited.
            blas = _blas("scipy.linalg" in sys.modules)
            _limit = blas.limit(limits=1, user_api="blas")
    try:
        yield
    finally:
        with _lock:
            _entered -= 1
            if _entered == 0 and _limit is not None:
                _limit.restore_original_limits()


def blas_for(size: int) -> AbstractContextManager[None]:
    """Limit BLAS to one thread for many steps with matrices of up to 3,000 rows, and not beyond.

    Results agree to rounding.
    """
    if size <= _ONE_THREAD_SIZE:
        return one_blas_thread()
    return nullcontext()


class Threads(Engine):
    """The default: one thread per core, each with one BLAS thread.

    Parameters
    ----------
    executor : concurrent.futures.ThreadPoolExecutor, optional
        Threads of your own.
    """

    def __init__(self, executor: Executor | None = None) -> None:
        self.executor = executor

    def __repr__(self) -> str:
        return f"Threads({self.executor or ''})"

    @property
    def num_workers(self) -> int:
        """Number of cores, whatever the executor."""
        return cores()

    def share(self, value: T) -> Shared[T]:
        """The value itself: threads share it already."""
        return Shared(value)

    @contextmanager
    def pool(self) -> Iterator[Executor]:
        """Yield the executor to use."""
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

    def total(
        self,
        job: Shared[Any],
        inputs: Any,
        bundles: Sequence[Sequence[Any]],
        report: Report,
    ) -> Any:
        """The sum of the parts of all items."""
        items = [item for bundle in bundles for item in bundle]

        def part(item: Any) -> Any:
            return job.value.part(inputs, item)

        tree, done = Tree(), 0
        with self.pool() as executor:
            # A short queue, because a part may be as large as the total.
            parts = in_order(part, items, executor, 2 * self.num_workers)
            for bundle in bundles:
                total = job.value.empty(inputs, bundle)
                for item in bundle:
                    total.add(item, next(parts))
                    done += 1
                    report(done / len(items))
                tree.add(total)
        return tree.sum()

    def kept_bytes(self, room: int, needed: int) -> int:
        """All of `room`, which no other process shares."""
        return room


class Serial(Threads):
    """The thread that asks: for array libraries that have threads, or a device, of their own."""

    @property
    def num_workers(self) -> int:
        """One."""
        return 1

    @contextmanager
    def pool(self) -> Iterator[Executor]:
        """Yield an executor that runs each task immediately."""
        yield Caller()
