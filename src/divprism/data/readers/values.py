"""What a field of a record holds, as items: texts, files, pictures in a table, vectors, chats; single or in lists."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from divprism.data.readers.guards import Root, shown
from divprism.data.samples import Image, Item, Text, Video, clean_text
from divprism.errors import DataError

__all__ = ["MISSING", "as_file", "is_blank", "one_prompt", "outputs_in"]


MISSING = object()
"""Stands for a field that is not there."""


def is_blank(value: Any) -> bool:
    """Whether a field holds nothing, or is not there."""
    return (
        value is MISSING
        or value is None
        or value == ""
        or value == []
        or (isinstance(value, float) and value != value)
    )


def one_prompt(value: Any, kind: str, where: str, root: Root) -> Any:
    """The prompt that a field holds, chats as one text."""
    found = list(outputs_in(_spoken(value), kind, where, root))
    if len(found) > 1:
        raise DataError(
            f"{where} has {len(found)} prompts in one field; a prompt is one text, picture or vector."
        )
    return found[0]


def _spoken(value: Any) -> Any:
    """Chat messages as one text, pictures and calls in them left out; anything else as it is."""
    if (
        isinstance(value, list)
        and value
        and all(isinstance(entry, dict) and "content" in entry for entry in value)
    ):
        return "\n".join(text for entry in value if (text := _parts(entry["content"])))
    return value


def _parts(content: Any) -> str:
    """The text of a message: a string, or the texts among its parts."""
    if isinstance(content, list):
        return "\n".join(
            str(part["text"])
            for part in content
            if isinstance(part, dict) and isinstance(part.get("text"), str)
        )
    return "" if content is None else str(content)


def outputs_in(
    value: Any, kind: str, where: str, root: Root, *, frames: bool = False
) -> Iterator[Any]:
    """The outputs that one field holds: a value, or a list of them; an empty text stands for an empty one of any kind."""
    value = _spoken(value)
    if kind == "embedding":
        yield from _vectors(value, where)
    elif kind == "video" and frames and isinstance(value, list):
        if not value:
            yield Text("", where)
        elif isinstance(value[0], list):  # several clips
            for clip in value:
                yield from outputs_in(clip, kind, where, root, frames=True)
        else:
            yield Video(tuple(root.find(_file_name(name, where), where) for name in value), where)
    elif isinstance(value, list):
        if not value:
            yield Text("", where)
        for entry in value:
            yield from outputs_in(entry, kind, where, root)
    elif kind == "text":
        yield _text(value, where)
    elif is_blank(value):
        yield Text("", where)
    elif isinstance(value, dict):
        yield _stored(value, kind, where, root)
    else:
        yield as_file(root.find(_file_name(value, where), where), kind, where)


def _vectors(value: Any, where: str) -> Iterator[list[float]]:
    if not isinstance(value, list) or not value:
        raise DataError(f"{where} has no list of numbers where an embedding is expected.")
    if isinstance(value[0], list):
        for entry in value:
            yield from _vectors(entry, where)
    elif all(isinstance(number, float | int) and not isinstance(number, bool) for number in value):
        yield value
    else:
        raise DataError(f"{where} has something other than numbers in an embedding.")


def _text(value: Any, where: str) -> Text:
    if isinstance(value, dict):
        value = next((_parts(value[name]) for name in ("text", "content") if name in value), value)
    if is_blank(value):
        return Text("", where)
    if isinstance(value, dict | list | bytes):
        raise DataError(f"{where} has a {type(value).__name__} where a text is expected.")
    return Text(clean_text(str(value)), where)


def _stored(value: dict[str, Any], kind: str, where: str, root: Root) -> Item:
    """A file inside a table, as `datasets` stores it: its bytes, or its name."""
    content = value.get("bytes")
    if isinstance(content, bytes) and kind == "image":
        return Image(content, where)
    if isinstance(value.get("path"), str):
        return as_file(root.find(value["path"], where), kind, where)
    raise DataError(
        f"{where} holds neither the bytes nor the path of {'an image' if kind == 'image' else 'a video'}."
    )


def _file_name(value: Any, where: str) -> str:
    if not isinstance(value, str):
        raise DataError(
            f"{where} has a {type(value).__name__} where the name of a file is expected."
        )
    return value


def as_file(path: Path, kind: str, where: str = "") -> Item:
    """A picture or a clip, by its file."""
    label = f"{shown(path)} ({where})" if where else shown(path)
    return Video(path, label) if kind == "video" else Image(path, label)
