"""From samples to the ratings of a model: each distinct pair is asked once, and then kept."""

import json
import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from divprism.data.items import Text
from divprism.data.samples import Samples
from divprism.data.wording import counted
from divprism.embedders.base import Embedder
from divprism.embedders.cache import Cache
from divprism.embedders.embedding import resolve_cache
from divprism.embedders.pipeline import embed_items
from divprism.engines import Progress
from divprism.errors import DataError, Notice
from divprism.judges.base import QualityModel, UnusableRatingError

__all__ = ["rated"]

# Pairs whose ratings are handed over together, for each request under way.
_ROUNDS = 4


def rated(
    samples: Samples, model: QualityModel, *, cache: Any, progress: Progress | None
) -> Samples:
    """Return the samples with the ratings of a model as their quality.

    The number of requests is announced to `progress` before the first one. Ratings go into the
    cache as they arrive, so an interrupted run resumes where it stopped.

    Raises
    ------
    DataError
        If outputs or prompts are no texts, or an answer has no usable rating: names the output.
    """
    pairs = _pairs_of(samples, model)
    kept, notes = resolve_cache(cache)
    raters = _Raters(model)
    address = model.service.address().text
    num_distinct, num_known = _count(pairs, raters, kept)
    asked = counted(num_distinct - num_known, "request", "requests")
    if progress is not None:
        progress(f"{model.name}: {asked} to {address}, {num_known:,} ratings in the cache", 0.0)
    try:
        found = embed_items(pairs, raters, cache=kept, progress=progress)
    except UnusableRatingError as error:
        problem = f"{_first(pairs, raters.failed).where}: {error}."
    else:
        model.asked_at(address)
        text = (
            f"quality: {counted(num_distinct, 'distinct pair', 'distinct pairs')} rated by "
            f"{model.name}: {found.computed:,} asked, {found.cached:,} found in the cache"
        )
        return replace(
            samples,
            quality=found.vectors[:, 0],
            notes=(*samples.notes, *notes, Notice("rated", text, "note")),
            warnings=(*samples.warnings, *found.warnings),
        )
    finally:
        raters.keep(kept)
    raise DataError(problem)


def _pairs_of(samples: Samples, model: QualityModel) -> list[Text]:
    """Each output with its prompt, as JSON: what is rated, and what the cache is addressed by."""
    # Prompts that are compared as ids have numbers in place of their texts.
    given = samples.given or samples
    outputs: Any = given.outputs
    prompts: Any = given.prompts
    if not _are_texts(outputs) or not (prompts is None or _are_texts(prompts)):
        raise DataError(
            f"{model.name} reads texts, and not all outputs and prompts of {samples.source} are "
            "texts; give the quality as numbers, a column or a function."
        )
    if prompts is None and model.needs_prompts:
        raise DataError(f"{model.name} needs prompts, and {samples.source} has none.")
    pairs = []
    for row, output in enumerate(outputs):
        pair = {"output": output.text}
        if prompts is not None:
            pair = {"prompt": prompts[row].text, "output": output.text}
        text = json.dumps(pair, ensure_ascii=False)
        pairs.append(Text(text, output.where or f"output {row}"))
    return pairs


def _are_texts(side: object) -> bool:
    return isinstance(side, tuple) and all(isinstance(item, Text) for item in side)


def _count(pairs: Sequence[Text], raters: "_Raters", cache: Cache | None) -> tuple[int, int]:
    """The number of distinct pairs, and of those whose rating is known."""
    digests = {pair.digest() for pair in pairs}
    if cache is None:
        return len(digests), 0
    store = cache.store(raters.key(), raters.describe(), lambda notice: None)
    return len(digests), sum(digest in store for digest in digests)


def _first(pairs: Sequence[Text], content: str) -> Text:
    return next(pair for pair in pairs if pair.text == content)


class _Raters(Embedder):
    """A model that rates, as an embedder of pairs into one dimension.

    So ratings have the cache of vectors, with its checksums, and the run that resumes.
    """

    modality = "text"

    def __init__(self, model: QualityModel) -> None:
        self.model = model
        self.batch_size = _ROUNDS * model.num_at_once
        self.failed = ""
        # Of a batch of which one fails: what the others cost is not lost.
        self._finished: dict[str, float] = {}

    @property
    def name(self) -> str:
        """That of the model."""
        return self.model.name

    @property
    def revision(self) -> str | None:
        """Endpoint and model."""
        return self.model.describe()["revision"]

    @property
    def dimension(self) -> int:
        """One rating."""
        return 1

    def describe(self) -> dict[str, str | None]:
        """All that a rating depends on."""
        return self.model.describe()

    def embed_batch(self, batch: Sequence[str]) -> np.ndarray:
        """Ask for the rating of each pair, several at a time."""
        round_of_asking = _Round(self.model, batch)
        # Before it runs, so that Ctrl-C loses none either.
        self._finished = round_of_asking.ratings
        round_of_asking.run()
        for content in batch:
            if content in round_of_asking.errors:
                self.failed = content
                raise round_of_asking.errors[content]
        ratings = [self._finished.pop(content) for content in batch]
        return np.array(ratings, np.float64)[:, None]

    def keep(self, cache: Cache | None) -> None:
        """Write the ratings of a batch that failed in part."""
        if cache is None or not self._finished:
            return
        store = cache.store(self.key(), self.describe(), lambda notice: None)
        # A copy: a request that is still under way may add its answer.
        for content, rating in list(self._finished.items()):
            store.add(Text(content).digest(), np.array([rating]))
        store.flush()


class _Round:
    """The pairs of a batch on their way to the model, by a few threads."""

    def __init__(self, model: QualityModel, batch: Sequence[str]) -> None:
        self.model = model
        self.ratings: dict[str, float] = {}
        self.errors: dict[str, Exception] = {}
        self._waiting = list(reversed(batch))
        self._lock = threading.Lock()
        self._stopped = threading.Event()

    def run(self) -> None:
        """Return when all pairs are rated, or one has failed and no request is under way."""
        # Daemons, so that Ctrl-C does not wait for a slow answer.
        threads = []
        for _ in range(min(self.model.num_at_once, len(self._waiting))):
            threads.append(threading.Thread(target=self._work, name="rate", daemon=True))
        try:
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        finally:
            self._stop()

    def _work(self) -> None:
        while (content := self._next()) is not None:
            pair = json.loads(content)
            try:
                # A turn may be minutes away, and nothing is sent after an error or Ctrl-C.
                if self._stopped.wait(self.model.turn()):
                    return
                rating = self.model.rate_at_once(pair["output"], pair.get("prompt"))
                self.ratings[content] = rating
            # Raised again by the thread that waits: here it would only be printed.
            except Exception as error:
                self.errors[content] = error
                self._stop()

    def _next(self) -> str | None:
        with self._lock:
            if not self._waiting:
                return None
            return self._waiting.pop()

    def _stop(self) -> None:
        """Send no further request: the error will be the same, or Ctrl-C was pressed."""
        self._stopped.set()
        with self._lock:
            self._waiting.clear()
