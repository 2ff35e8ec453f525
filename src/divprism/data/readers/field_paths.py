"""Fields inside of objects and lists: `doc.question`, `choices.0.message.content`."""

import re
from typing import Any

from divprism.data.readers.values import MISSING

__all__ = ["last_found", "value_at"]

_INDEX = re.compile(r"-?[0-9]{1,9}")


def value_at(record: dict[str, Any], path: str) -> Any:
    """Return a field by its name, or by a path of names and indices with dots; else MISSING.

    >>> value_at({"choices": [{"text": "a"}, {"text": "b"}]}, "choices.-1.text")
    'b'
    """
    # A field whose own name contains a dot comes first.
    if path in record:
        return record[path]
    value: Any = record
    for part in path.split("."):
        value = _entry(value, part)
    return value


def last_found(record: dict[str, Any], path: str) -> tuple[str, Any]:
    """Return how far a path with a missing field leads: that part of it, and the value there.

    >>> last_found({"choices": [{"text": "a"}]}, "choices.0.txt")
    ('choices.0', {'text': 'a'})
    """
    found: list[str] = []
    value: Any = record
    for part in path.split("."):
        entry = _entry(value, part)
        if entry is MISSING:
            break
        found.append(part)
        value = entry
    return ".".join(found), value


def _entry(value: Any, part: str) -> Any:
    """Return an entry of an object by its name, or of a list by its index; else MISSING."""
    if isinstance(value, dict):
        return value.get(part, MISSING)
    # Indices may count from the end: messages.-1.content is the last message.
    if isinstance(value, list) and _INDEX.fullmatch(part):
        index = int(part)
        if -len(value) <= index < len(value):
            return value[index]
    return MISSING
