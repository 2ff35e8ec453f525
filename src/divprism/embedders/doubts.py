"""What to doubt about vectors: scripts that a model was not trained on, items with one vector."""

import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import lru_cache

import numpy as np

from divprism.data.items import Item, Text
from divprism.data.readers.guards import shown
from divprism.data.wording import NOUNS, excerpts
from divprism.embedders.base import Embedder
from divprism.embedders.multilingual import Multilingual
from divprism.errors import Notice

__all__ = ["doubts_about"]

_SIDES = {"x": "outputs", "t": "prompts"}
_MOSTLY = 0.5  # share of the letters of a text that makes it one of their script
_SHARE_OF_TEXTS = 0.1  # share of texts in foreign scripts that is worth a warning
# Share of the items whose vectors are not their own from which on that is a warning, not a note.
_SHARE_OF_ITEMS = 0.01
# Vectors are compared after scaling to a largest entry of one: sums of the same numbers in another
# order differ in the eighth digit.
_DECIMALS = 5
_BLOCK_ROWS = 4096  # vectors compared at a time
_NAMES = {"CJK": "Han"}  # scripts that Unicode calls by a name nobody uses
_SHOWN = 40  # characters of a text inside a message


def doubts_about(
    items: Sequence[Item], vectors: np.ndarray, embedder: Embedder, side: str
) -> list[Notice]:
    """Return warnings and notes about the vectors of one side, "x" or "t"."""
    found = [
        _blindness(items, embedder, side),
        _cut_texts(items, embedder, side),
        _foreign_scripts(items, embedder, side),
        _shared_vectors(items, vectors, side),
    ]
    return [notice for notice in found if notice is not None]


def _blindness(items: Sequence[Item], embedder: Embedder, side: str) -> Notice | None:
    """Return what the embedder cannot distinguish in any of the items."""
    if not embedder.blind_to or not items:
        return None
    noun = f"{NOUNS[embedder.modality]}s"
    return Notice(
        "limited-embedder",
        f"{embedder.name} {embedder.blind_to}; if that matters, pass a model of {noun} as "
        f"`embedder_{side}`.",
    )


def _cut_texts(items: Sequence[Item], embedder: Embedder, side: str) -> Notice | None:
    limit = embedder.max_characters
    if limit is None:
        return None
    texts = [item for item in items if isinstance(item, Text)]
    long = [item for item in texts if len(item.text) > limit]
    if not long:
        return None
    return Notice(
        "texts-cut",
        f"{len(long):,} of {len(texts):,} {_SIDES[side]} have more than {limit:,} characters "
        f"(first: {shown(long[0].where)}), and {embedder.name} receives only these of each; split "
        "them if the rest matters.",
    )


def _foreign_scripts(items: Sequence[Item], embedder: Embedder, side: str) -> Notice | None:
    if embedder.scripts is None:
        return None
    # What the model does not receive cannot be in a script unknown to it.
    texts = [item.text[: embedder.max_characters] for item in items if isinstance(item, Text)]
    scripts: Counter[str] = Counter()
    for text in texts:
        script = _main_script(text, embedder.scripts)
        if script is not None:
            scripts[script] += 1
    count = scripts.total()
    if not count or count < _SHARE_OF_TEXTS * len(texts):
        return None
    names = " and ".join(_NAMES.get(name, name.title()) for name, _ in scripts.most_common(2))
    return Notice(
        "unknown-script",
        f"{count:,} of {len(texts):,} {_SIDES[side]} are mostly in a script that {embedder.name} "
        f"was not trained on ({names}): it splits them into letters or bytes, so that they are "
        f"compared by spelling, not by meaning. {_advice(scripts)} as `embedder_{side}`.",
    )


def _advice(scripts: Counter[str]) -> str:
    """Return what to pass for texts in these scripts."""
    known = Multilingual.scripts or frozenset()
    if any(name not in known for name in scripts):
        return "Pass a model that was trained on it"
    return (
        "Pass multilingual (pip install 'divprism[multilingual]'; dp.Multilingual() in Python) or "
        "another multilingual model"
    )


def _main_script(text: str, known: frozenset[str]) -> str | None:
    """Return the script of most letters if at least half of them are of unknown scripts."""
    # ASCII is Latin, and counting it is a hundred times as fast as looking at every letter. A text
    # in another script has blanks and digits in ASCII, but never three quarters of them.
    if 4 * len(text.encode("ascii", "ignore")) > 3 * len(text):
        return None
    letters = Counter(filter(None, map(_script, text)))
    foreign = Counter({name: count for name, count in letters.items() if name not in known})
    if not foreign or foreign.total() < _MOSTLY * letters.total():
        return None
    return foreign.most_common(1)[0][0]


@lru_cache(maxsize=1 << 16)
def _script(letter: str) -> str:
    """Return the script of a letter, the first word of its name; empty for anything else.

    >>> _script("a"), _script("\N{CYRILLIC SMALL LETTER DE}"), _script("!")
    ('LATIN', 'CYRILLIC', '')
    """
    if not letter.isalpha():
        return ""
    return unicodedata.name(letter, "").split(" ")[0]


def _shared_vectors(items: Sequence[Item], vectors: np.ndarray, side: str) -> Notice | None:
    """Return how many different items have the vector of another one."""
    # Equal items share their vector by right, so each is looked at once.
    first_of: dict[object, int] = {}
    for row, item in enumerate(items):
        first_of.setdefault(_identity(item), row)
    rows = list(first_of.values())
    members: dict[int, list[int]] = {}
    for row, key in zip(rows, _keys(vectors, rows), strict=True):
        members.setdefault(key, []).append(row)
    groups = [group for group in members.values() if len(group) > 1]
    if not groups:
        return None
    count = sum(map(len, groups))
    one, other = (items[row].label for row in groups[0][:2])
    first = excerpts(one, other, _SHOWN)
    text = (
        f"{len(rows):,} different {_SIDES[side]} have {len(members):,} different vectors (first "
        f"that share one: {first})"
    )
    if count < _SHARE_OF_ITEMS * len(rows):
        return Notice("items-share-a-vector", text, "note")
    return Notice(
        "items-share-a-vector",
        f"{text}; those that share one count as the same. If they differ in what matters, pass "
        f"another model as `embedder_{side}`.",
    )


def _keys(vectors: np.ndarray, rows: Sequence[int]) -> Iterator[int]:
    """Yield a number for each of some rows, equal where vectors are equal up to rounding."""
    for start in range(0, len(rows), _BLOCK_ROWS):
        block = vectors[rows[start : start + _BLOCK_ROWS]].astype(np.float64)
        largest = np.abs(block).max(axis=1, keepdims=True, initial=0.0)
        largest[largest == 0] = 1.0
        # NaN and infinity have no whole number; they are refused where vectors are scored.
        with np.errstate(invalid="ignore"):
            # Divided first: the factor of a tiny vector would be infinite.
            scaled = block / largest * 10**_DECIMALS
            # As whole numbers: minus zero would have other bytes than zero.
            rounded = np.rint(scaled).astype(np.int32)
        for row in rounded:
            yield hash(row.tobytes())


def _identity(item: Item) -> object:
    if isinstance(item, Text):
        return item.text
    # Not by content: reading every file again would cost more than the embedding from a cache.
    return getattr(item, "source", item.label)
