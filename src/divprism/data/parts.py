"""Shards: one of several contiguous parts of the rows, as jobs of a cluster share them."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from divprism.data.samples import Samples
from divprism.data.wording import agreeing
from divprism.errors import ArgumentError, DataError

__all__ = ["Shard", "require_all"]

_SPELLING = re.compile(r"([0-9]{1,9})/([0-9]{1,9})", re.ASCII)
_NAMED = 5  # missing shards that a message lists


@dataclass(frozen=True, order=True)
class Shard:
    """One of `count` parts of the rows, counted from 1.

    Parts are contiguous, their sizes differ by at most one, and the larger ones come first.

    Attributes
    ----------
    index : int
        Which part, from 1 to `count`.
    count : int
        Number of parts.

    Examples
    --------
    >>> [list(Shard(index, 3).rows(7)) for index in (1, 2, 3)]
    [[0, 1, 2], [3, 4], [5, 6]]
    """

    index: int
    count: int

    @classmethod
    def parse(cls, text: str) -> "Shard":
        """Return the shard that a text such as "3/16" names."""
        match = _SPELLING.fullmatch(text.strip())
        if match is None or not 1 <= int(match[1]) <= int(match[2]):
            raise ArgumentError(
                "`shard` must be a part and the number of parts, such as 3/16 for the third of "
                f"sixteen; got {text[:60]!r}."
            )
        return cls(int(match[1]), int(match[2]))

    def __str__(self) -> str:
        return f"{self.index}/{self.count}"

    def rows(self, n: int) -> range:
        """Return the rows of this part among `n` rows."""
        size, larger = divmod(n, self.count)
        before = self.index - 1
        start = before * size + min(before, larger)
        return range(start, start + size + (self.index <= larger))

    def of(self, samples: Samples) -> Samples:
        """Return this part of some samples; each part must have a row."""
        if self.count > len(samples):
            raise ArgumentError(
                f"`shard` must be one of at most {len(samples):,} parts, the number of outputs in "
                f"{samples.source}; got {self}."
            )
        return samples.select(self.rows(len(samples)))


def require_all(shards: Sequence[Shard | None], names: Sequence[str]) -> None:
    """Refuse shards of which one is missing, doubled or out of order.

    Parameters
    ----------
    shards : sequence of Shard or None
        The part that each source holds; None for one that is no part.
    names : sequence of str
        The sources, for messages.
    """
    first = shards[0]
    for shard, name in zip(shards, names, strict=True):
        if (shard is None) != (first is None) or (shard and first and shard.count != first.count):
            raise DataError(
                f"{names[0]} holds {_spelled(first)}, but {name} {_spelled(shard)}; read the "
                "shards of one data set together."
            )
    if first is None:
        return
    given = [shard.index for shard in shards if shard is not None]
    missing = sorted(set(range(1, first.count + 1)) - set(given))
    if missing:
        are = agreeing(len(missing), "is", "are")
        listed = ", ".join(map(str, missing[:_NAMED]))
        raise DataError(
            f"{len(missing):,} of {first.count:,} shards {are} missing beside {names[0]}: "
            f"{listed}{', ...' * (len(missing) > _NAMED)}."
        )
    for position, index in enumerate(given, 1):
        if index != position:
            raise DataError(
                f"{names[position - 1]} holds {_spelled(shards[position - 1])}, but is number "
                f"{position:,} by its name; name shards in their order, and each once."
            )


def _spelled(shard: Shard | None) -> str:
    if shard is None:
        return "no shard"
    return f"shard {shard}"
