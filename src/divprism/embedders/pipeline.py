"""Runs items through an embedder: decoded ahead of the model, cached, and never embedded twice."""

import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from divprism.data.items import Item
from divprism.data.media import without_warnings
from divprism.embedders.base import Embedder, Prepared, check_at_least
from divprism.embedders.cache import Cache, Store
from divprism.engines import Progress, cores
from divprism.errors import DataError, Notice

__all__ = ["Embedded", "embed_items"]

# A shard is written after this many vectors, or after this many seconds: enough vectors that a
# cache of millions of items has few files, and little work to lose in a crash.
_SHARD_ITEMS, _SHARD_SECONDS = 4096, 5.0
# Number of items per task of a decoding thread: short tasks would spend their time on scheduling.
_TASK_ITEMS = {"text": 64, "image": 16, "video": 1, "audio": 1}


@dataclass(frozen=True, eq=False)
class Embedded:
    """Vectors of items, and where they came from.

    Attributes
    ----------
    vectors : ndarray (n, d)
        One row per item, in order.
    computed, cached : int
        Number of distinct items that the model embedded, and that the cache already had.
    warnings : tuple of Notice
        Problems with the cache: damaged shards, a folder that cannot be written.
    """

    vectors: np.ndarray
    computed: int
    cached: int
    warnings: tuple[Notice, ...] = ()


def embed_items(
    items: Sequence[Item],
    embedder: Embedder,
    *,
    cache: Cache | None = None,
    num_workers: int | None = None,
    progress: Progress | None = None,
) -> Embedded:
    """Return the vector of every item; each distinct item is embedded at most once.

    Threads hash and decode items a few batches ahead of the model. Vectors go into the cache
    during the run, so an interrupted run resumes where it stopped. An item that cannot be read
    does not stop the others: the error is raised at the end.

    Parameters
    ----------
    items : sequence of Item
        All of the modality of the embedder.
    embedder : Embedder
        Without a `revision`, its vectors are not cached.
    cache : Cache, optional
        Without one, nothing is kept.
    num_workers : int, optional
        Number of decoding threads; default: the number of cores. Never part of the answer.
    progress : callable, optional
        Called after each batch with a text and the fraction that is done.

    Raises
    ------
    DataError
        If items cannot be read: names the first and counts the others. The vectors of all other
        items are in the cache by then.
    """
    if num_workers is not None:
        check_at_least("num_workers", num_workers)
    warnings: list[Notice] = []
    store: _Store = _MemoryStore()
    if cache is not None and embedder.revision is not None:
        store = cache.store(embedder.key(), embedder.describe(), warnings.append)
    run = _Run(items, embedder, store, num_workers or cores(), progress)
    computed: set[bytes] = set()
    remaining: Sequence[int] = range(len(items))
    # One pass, unless a shard turns out to be damaged when its vectors are read: then there is a
    # second pass for its items.
    while remaining:
        with without_warnings():
            computed |= run.embed(remaining)
        remaining = run.collect(remaining)
    assert run.vectors is not None
    num_cached = len(set(run.digests) - computed)
    return Embedded(run.vectors, len(computed), num_cached, tuple(warnings))


class _MemoryStore:
    """Replaces `Store` where nothing is written to disk."""

    pending = 0

    def __init__(self) -> None:
        self._vectors: dict[bytes, np.ndarray] = {}

    def __contains__(self, digest: bytes) -> bool:
        return digest in self._vectors

    def fetch(self, digests: Sequence[bytes]) -> Iterator[tuple[int, np.ndarray]]:
        return ((position, self._vectors[digest]) for position, digest in enumerate(digests))

    def width(self) -> int | None:
        return None

    def add(self, digest: bytes, vector: np.ndarray) -> None:
        self._vectors[digest] = vector

    def flush(self) -> None:
        """Do nothing: there is no disk to write to."""


_Store = Store | _MemoryStore


@dataclass(frozen=True)
class _Job:
    """An item on its way to the model.

    `is_done` means that its vector is in the store, or that an equal item is on its way already.
    """

    index: int
    digest: bytes = b""
    content: Prepared = None
    is_done: bool = False
    error: DataError | None = None


class _Run:
    """One call of `embed_items`: the items on their way through threads, model and store."""

    def __init__(
        self,
        items: Sequence[Item],
        embedder: Embedder,
        store: _Store,
        num_workers: int,
        progress: Progress | None,
    ) -> None:
        self.items = items
        self.embedder = embedder
        self.store = store
        self.num_workers = num_workers
        self.progress = progress
        # Filled in by `embed`; hashing happens in the decoding threads.
        self.digests = [b""] * len(items)
        self.vectors: np.ndarray | None = None
        self._width: int | None = None
        self._lock = threading.Lock()
        self._claimed: set[bytes] = set()

    def embed(self, indices: Sequence[int]) -> set[bytes]:
        """Bring the vectors of some items into the store.

        Returns the hashes of the items that the model embedded.
        """
        self._claimed = set()
        computed: set[bytes] = set()
        batch: list[_Job] = []
        failed: list[_Job] = []
        started = last_flush = time.monotonic()
        try:
            for count, job in enumerate(self._jobs(indices), 1):
                self.digests[job.index] = job.digest
                if job.error is not None:
                    failed.append(job)
                elif not job.is_done:
                    batch.append(job)
                is_full = len(batch) == self.embedder.batch_size
                is_last = count == len(indices)
                if is_full or (is_last and batch):
                    self._run_model(batch)
                    computed.update(entry.digest for entry in batch)
                    batch = []
                    seconds = time.monotonic() - last_flush
                    if self.store.pending >= _SHARD_ITEMS or seconds > _SHARD_SECONDS:
                        self.store.flush()
                        last_flush = time.monotonic()
                    self._report_progress(count, len(indices), started)
                elif is_last and computed:
                    # The last items were copies, or in the cache: a bar would stay where it is.
                    self._report_progress(count, len(indices), started)
        finally:
            # Also after an error or Ctrl-C: finished work is never lost.
            self.store.flush()
        if failed:
            raise DataError(self._failure_message(failed, indices))
        return computed

    def collect(self, indices: Sequence[int]) -> list[int]:
        """Copy vectors from the store to `self.vectors`.

        Returns the indices that the store could not deliver because a shard was damaged.
        """
        missing = set(indices)
        for position, vector in self.store.fetch([self.digests[index] for index in indices]):
            width = vector.shape[0]
            # Width and type of the rows are known only once the first vector is there.
            if self.vectors is None:
                self.vectors = np.empty((len(self.items), width), vector.dtype)
            # An endpoint or a function can change its width while its name stays the same.
            if width != self.vectors.shape[1]:
                raise self._width_error(width, self.vectors.shape[1])
            self.vectors[indices[position]] = vector
            missing.discard(indices[position])
        return sorted(missing)

    def _run_model(self, batch: list[_Job]) -> None:
        """Embed a batch, and add its vectors to the store if they are valid."""
        # Embedders of other packages may return lists.
        vectors = np.asarray(self.embedder.embed_batch([job.content for job in batch]))
        self._check_vectors(vectors, batch)
        for job, vector in zip(batch, vectors, strict=True):
            self.store.add(job.digest, vector)

    def _check_vectors(self, vectors: np.ndarray, batch: list[_Job]) -> None:
        name = self.embedder.name
        if vectors.ndim != 2 or vectors.shape[0] != len(batch):
            raise DataError(
                f"embedder {name} must return {len(batch)} rows for {len(batch)} items; "
                f"it returned an array of shape {vectors.shape}."
            )
        is_finite = np.isfinite(vectors).all(axis=1)
        if not is_finite.all():
            first = batch[int(np.argmin(is_finite))]
            raise DataError(
                f"embedder {name} returned NaN or infinity for {self.items[first.index].where}."
            )
        width = vectors.shape[1]
        if self._width is None:
            # Not asked for every batch: `known_dimension` may have to read a configuration.
            known = self.embedder.known_dimension
            if known not in (None, width):
                raise DataError(
                    f"embedder {name} returned vectors of {width:,} numbers, "
                    f"but its dimension is {known:,}."
                )
            # Checked before they are stored, or the cache would hold vectors of both widths.
            cached = None
            if known is None:
                cached = self.store.width()
            if cached not in (None, width):
                raise self._width_error(width, cached)
            self._width = width
        if width != self._width:
            raise DataError(
                f"embedder {name} returned vectors of different widths ({self._width} and {width})."
            )

    def _width_error(self, width: int, other: int | None) -> DataError:
        return DataError(
            f"embedder {self.embedder.name} returned vectors of different widths "
            f"({width} and {other}), some of them cached; clear the cache of this embedder."
        )

    def _jobs(self, indices: Sequence[int]) -> Iterator[_Job]:
        """Yield the items in order, prepared by threads that run at most a few batches ahead."""
        step = _TASK_ITEMS[self.embedder.modality]
        # Bounds the memory: every thread stays busy, and the next two batches are ready.
        max_waiting = 2 * self.num_workers + 2 * self.embedder.batch_size // step
        waiting: deque[Future[list[_Job]]] = deque()
        threads = ThreadPoolExecutor(self.num_workers, thread_name_prefix="decode")
        try:
            for start in range(0, len(indices), step):
                waiting.append(threads.submit(self._prepare_all, indices[start : start + step]))
                if len(waiting) > max_waiting:
                    yield from waiting.popleft().result()
            while waiting:
                yield from waiting.popleft().result()
        finally:
            # After an error, items that still wait for a thread are not decoded.
            threads.shutdown(cancel_futures=True)

    def _prepare_all(self, indices: Sequence[int]) -> list[_Job]:
        return [self._prepare(index) for index in indices]

    def _prepare(self, index: int) -> _Job:
        """Hash an item, and decode it unless its vector is known or being computed."""
        try:
            # The file is read once: it may change between a hash and a second read.
            item = self.items[index].snapshot()
            digest = item.digest()
        except DataError as error:
            return _Job(index, error=error)
        # The first thread to claim a digest prepares the item; equal items share its vector.
        with self._lock:
            if digest in self._claimed or digest in self.store:
                return _Job(index, digest, is_done=True)
            self._claimed.add(digest)
        try:
            embedder = self.embedder
            content = item.content(embedder.num_frames, embedder.frame_stride, embedder.sample_rate)
            content = embedder.prepare(content)
            # A video is too large to be kept in memory, so it is hashed a second time instead.
            if item.modality == "video" and item.digest() != digest:
                raise DataError(f"{item.where} changed while it was read.")
        except DataError as error:
            return _Job(index, digest, error=error)
        return _Job(index, digest, content)

    def _failure_message(self, failed: list[_Job], indices: Sequence[int]) -> str:
        """Return a sentence about the first unreadable item, with the number of the others."""
        errors = {job.index: job.error for job in failed}
        # Copies of a broken item were never tried, but they cannot be read either.
        broken = {job.digest for job in failed if job.digest}
        unreadable = [
            index for index in indices if index in errors or self.digests[index] in broken
        ]
        first = unreadable[0]
        error = errors.get(first)
        if error is None:
            # A later copy claimed the digest; prepare this one to get an error with its name.
            self._claimed = set()
            error = self._prepare(first).error
        if len(unreadable) == 1:
            return str(error)
        total = len(indices)
        return f"{len(unreadable):,} of {total:,} items cannot be read; the first: {error}"

    def _report_progress(self, done: int, total: int, started: float) -> None:
        if self.progress is None:
            return
        # A coarse clock may not have advanced yet.
        rate = done / max(time.monotonic() - started, 1e-9)
        text = f"{self.embedder.name}: {done:,} of {total:,}, {rate:,.0f}/s"
        self.progress(text, done / total)
