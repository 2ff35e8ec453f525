"""Embedding on the workers of a cluster: each writes the vectors of its items into the cache."""

from collections.abc import Sequence
from dataclasses import dataclass, is_dataclass, replace
from typing import Any

from divprism.core.tiles import row_blocks
from divprism.data.items import Item
from divprism.embedders.base import Embedder
from divprism.embedders.cache import Cache
from divprism.embedders.pipeline import embed_items
from divprism.engines import Arrays, Engine, Job, Progress, bundled
from divprism.errors import DataError

__all__ = ["embed_on_workers"]

# Items of one task, so that a worker which dies loses little; and tasks that wait for workers.
_TASK_ITEMS = 256
_MOST_TASKS = 256


def embed_on_workers(
    items: Sequence[Item],
    embedder: Embedder,
    cache: Cache,
    engine: Engine,
    progress: Progress | None,
) -> None:
    """Bring the vectors of items into the cache; each worker loads the model on its own device.

    Workers have to see the cache under the same path. Items whose vectors do not arrive, and those
    that cannot be read, are left to the process that asks.
    """
    if is_dataclass(embedder):
        # A new object, without the model that this process may have loaded.
        embedder = replace(embedder)  # type: ignore[unreachable]  # embedders may be dataclasses
    job = _Embedding(items, embedder, cache)
    blocks = list(row_blocks(len(items), _TASK_ITEMS))

    def report(share: float) -> None:
        if progress is not None:
            progress("embedding on the workers", share)

    engine.total(engine.share(job), None, bundled(blocks, _MOST_TASKS), report)


@dataclass(frozen=True, eq=False)
class _Embedding(Job):
    """Counts the items that a model has embedded; the vectors are in the cache."""

    items: Sequence[Item]
    embedder: Embedder
    cache: Cache

    def empty(self, inputs: Any, items: Sequence[slice]) -> Arrays:
        """Zero: no item has been embedded."""
        return Arrays((0,))

    def part(self, inputs: Any, item: slice) -> tuple[int]:
        """Embed some items."""
        try:
            return (embed_items(self.items[item], self.embedder, cache=self.cache).computed,)
        except DataError:
            # Raised again by the process that asks, which names the items.
            return (0,)
