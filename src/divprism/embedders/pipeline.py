"""Items through an embedder: hashed and decoded ahead of the model, kept as they come, never twice."""

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np

from divprism.data.media import without_warnings
from divprism.data.samples import Item
from divprism.embedders.base import Embedder
from divprism.embedders.cache import Cache, Store
from divprism.engines import cores
from divprism.errors import ArgumentError, DataError

__all__ = ["Embedded", "Progress", "embed_items"]

Progress = Callable[[str, float], None]
_SHARD_ITEMS, _SHARD_SECONDS = (
    4096,
    5.0,
)  # a shard is written after so many vectors, or so much time
_AT_ONCE = {"text": 64, "image": 16, "video": 1}  # items that a thread takes in one go


@dataclass(frozen=True, eq=False)
class Embedded:
    """Vectors of items, and where they came from.

    Attributes
    ----------
    vectors : ndarray (n, d)
        A row per item, in order.
    computed, cached : int
        Distinct items that the model ran on, and that the cache held.
    warnings : tuple of str
        Cached vectors that turned out broken.
    """

    vectors: np.ndarray
    computed: int
    cached: int
    warnings: tuple[str, ...] = ()


def embed_items(
    items: Sequence[Item],
    embedder: Embedder,
    *,
    cache: Cache | None = None,
    num_workers: int | None = None,
    progress: Progress | None = None,
) -> Embedded:
    """The vector of every item; each distinct one is embedded once, and not at all if the cache has it.

    Threads hash and decode up to a few batches ahead of the model. Vectors are kept in the cache as the work goes on, so a run
    that was interrupted goes on where it stopped. Items that cannot be read do not stop the others: they are told at the end.

    Raises
    ------
    DataError
        If items cannot be read: names the first, counts the others. The vectors of the rest are in the cache by then.
    """
    if num_workers is not None and num_workers < 1:
        raise ArgumentError(f"`num_workers` must be at least 1; got {num_workers}.")
    warnings: list[str] = []
    store: _Store = _Memory()
    if cache is not None and embedder.revision is not None:
        store = cache.store(embedder.key(), embedder.describe(), warnings.append)
    run = _Run(items, embedder, store, num_workers or cores(), progress)
    todo: Sequence[int] = range(len(items))
    vectors: np.ndarray | None = None
    computed: set[bytes] = set()
    while todo:  # a second time only for items whose shard turned out broken
        with without_warnings():
            computed |= run.embed(todo)
        digests = [run.digests[place] for place in todo]
        filled = set()
        for place, vector in store.fetch(digests):
            if vectors is None:
                vectors = np.empty((len(items), vector.shape[0]), vector.dtype)
            if (
                vector.shape[0] != vectors.shape[1]
            ):  # the cache holds others: an endpoint or a function changed its width
                widths = f"{vector.shape[0]} and {vectors.shape[1]}"
                raise DataError(
                    f"embedder {embedder.name} gave vectors of different widths ({widths}), some of them kept."
                )
            vectors[todo[place]] = vector
            filled.add(place)
        todo = [todo[place] for place in range(len(digests)) if place not in filled]
    assert vectors is not None
    return Embedded(vectors, len(computed), len(set(run.digests) - computed), tuple(warnings))


class _Memory:
    """In place of a store where nothing is kept."""

    def __init__(self) -> None:
        self._vectors: dict[bytes, np.ndarray] = {}

    pending = 0

    def __contains__(self, digest: bytes) -> bool:
        return digest in self._vectors

    def fetch(self, digests: Sequence[bytes]) -> Iterator[tuple[int, np.ndarray]]:
        return ((place, self._vectors[digest]) for place, digest in enumerate(digests))

    def add(self, digest: bytes, vector: np.ndarray) -> None:
        self._vectors[digest] = vector

    def flush(self) -> None:
        """Nothing to write."""


_Store = Store | _Memory


@dataclass(frozen=True)
class _Prepared:
    """An item on its way: its hash, and what the model is to be given, unless its vector is known or on its way already."""

    place: int
    digest: bytes = b""
    content: Any = None
    known: bool = True
    error: DataError | None = None


class _Run:
    """The items of one call on their way through threads and model."""

    def __init__(
        self,
        items: Sequence[Item],
        embedder: Embedder,
        store: _Store,
        workers: int,
        progress: Progress | None,
    ) -> None:
        self.items, self.embedder, self.store, self.workers, self.progress = (
            items,
            embedder,
            store,
            workers,
            progress,
        )
        self.digests = [b""] * len(items)
        self.width: int | None = None
        self._lock = threading.Lock()
        self._claimed: set[bytes] = set()

    def embed(self, places: Sequence[int]) -> set[bytes]:
        """See to it that the store has the vectors of the items at some places; the hashes of those the model ran on."""
        self._claimed = set()
        computed: set[bytes] = set()
        batch: list[_Prepared] = []
        failed: list[_Prepared] = []
        started = flushed = time.monotonic()
        try:
            for count, item in enumerate(self._prepared(places), 1):
                self.digests[item.place] = item.digest
                if item.error is not None:
                    failed.append(item)
                elif not item.known:
                    batch.append(item)
                if len(batch) == self.embedder.batch_size or (count == len(places) and batch):
                    self._run_model(batch)
                    computed.update(entry.digest for entry in batch)
                    batch = []
                    if (
                        self.store.pending >= _SHARD_ITEMS
                        or time.monotonic() - flushed > _SHARD_SECONDS
                    ):
                        self.store.flush()
                        flushed = time.monotonic()
                    self._tell(count, len(places), started)
        finally:
            self.store.flush()
        if failed:
            raise DataError(self._failure(failed, places))
        return computed

    def _run_model(self, batch: list[_Prepared]) -> None:
        vectors = np.asarray(self.embedder.embed_batch([entry.content for entry in batch]))
        name = self.embedder.name
        if vectors.ndim != 2 or vectors.shape[0] != len(batch):
            raise DataError(
                f"embedder {name} must give {len(batch)} rows for {len(batch)} items; it gave {vectors.shape}."
            )
        if not np.isfinite(vectors).all():
            row = int(np.flatnonzero(~np.isfinite(vectors).all(axis=1))[0])
            raise DataError(
                f"embedder {name} gave NaN or infinity for {self.items[batch[row].place].where}."
            )
        if self.width not in (None, vectors.shape[1]):
            raise DataError(
                f"embedder {name} gave vectors of different widths ({self.width} and {vectors.shape[1]})."
            )
        if self.width is None and (known := self.embedder.known_dimension) not in (
            None,
            vectors.shape[1],
        ):
            raise DataError(
                f"embedder {name} gave vectors of {vectors.shape[1]:,} numbers, but its dimension is {known:,}."
            )
        self.width = vectors.shape[1]
        for entry, vector in zip(batch, vectors, strict=True):
            self.store.add(entry.digest, vector)

    def _prepared(self, places: Sequence[int]) -> Iterator[_Prepared]:
        """Items in order, prepared by threads that run at most a few batches ahead."""
        step = _AT_ONCE[self.embedder.modality]
        ahead = 2 * self.workers + 2 * self.embedder.batch_size // step
        waiting: deque[Future[list[_Prepared]]] = deque()
        threads = ThreadPoolExecutor(self.workers, thread_name_prefix="decode")
        try:
            for start in range(0, len(places), step):
                waiting.append(threads.submit(self._prepare, places[start : start + step]))
                if len(waiting) > ahead:
                    yield from waiting.popleft().result()
            while waiting:
                yield from waiting.popleft().result()
        finally:
            threads.shutdown(cancel_futures=True)

    def _prepare(self, places: Sequence[int]) -> list[_Prepared]:
        return [self._prepare_one(place) for place in places]

    def _prepare_one(self, place: int) -> _Prepared:
        item = self.items[place]
        try:
            digest = item.digest()
            with self._lock:
                if digest in self._claimed or digest in self.store:
                    return _Prepared(place, digest)
                self._claimed.add(digest)
        except DataError as error:  # not even its bytes can be had
            return _Prepared(place, error=error)
        try:
            return _Prepared(
                place,
                digest,
                self.embedder.prepare(item.content(self.embedder.num_frames)),
                known=False,
            )
        except DataError as error:
            return _Prepared(place, digest, error=error)

    def _failure(self, failed: list[_Prepared], places: Sequence[int]) -> str:
        """One sentence on the first item that cannot be read; copies of a broken one, which nobody tried, count too."""
        broken = {entry.digest for entry in failed if entry.digest}
        own = {entry.place: entry.error for entry in failed}
        bad = [place for place in places if place in own or self.digests[place] in broken]
        error = own.get(bad[0])
        if error is None:  # a copy was tried before it
            self._claimed = set()
            error = self._prepare_one(bad[0]).error
        return (
            str(error)
            if len(bad) == 1
            else f"{len(bad):,} of {len(places):,} items cannot be read; the first: {error}"
        )

    def _tell(self, done: int, total: int, started: float) -> None:
        if self.progress is not None:
            rate = done / max(time.monotonic() - started, 1e-9)
            self.progress(
                f"{self.embedder.name}: {done:,} of {total:,}, {rate:,.0f}/s",
                max(done / total, 1e-9),
            )
