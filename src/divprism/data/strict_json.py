"""Hooks for `json.loads` that refuse what Python's parser lets pass and JSON does not mean.

Python keeps the last of several equal keys, where another program may keep the first, and reads NaN
and Infinity, which are not JSON. The readers of tables, results and answers share these hooks.
"""

from collections import Counter
from typing import Any

__all__ = ["RepeatedKeyError", "refuse_constant", "unique_keys"]

_LONGEST_KEY = 60  # letters of a key that a message quotes


class RepeatedKeyError(ValueError):
    """An object has a key twice; `key` is the start of it."""

    def __init__(self, key: str) -> None:
        self.key = key[:_LONGEST_KEY]
        super().__init__(f"the key {self.key!r} occurs twice")


def unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the pairs of an object as a dictionary (`object_pairs_hook`).

    >>> unique_keys([("a", 1), ("b", 2)])
    {'a': 1, 'b': 2}

    Raises
    ------
    RepeatedKeyError
        If a key occurs twice.
    """
    content = dict(pairs)
    if len(content) < len(pairs):
        key, _ = Counter(name for name, _ in pairs).most_common(1)[0]
        raise RepeatedKeyError(key)
    return content


def refuse_constant(name: str) -> None:
    """Raise ValueError for NaN, Infinity and -Infinity (`parse_constant`)."""
    raise ValueError(f"{name} is not a JSON number")
