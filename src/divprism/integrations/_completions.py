"""Prompts and completions as trainers pass them: texts, or chats as lists of messages."""

import hashlib
import unicodedata
from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import Any, TypeGuard

from divprism.data.wording import escaped
from divprism.errors import DataError

__all__ = ["completion_text", "content_digest", "is_blank"]

_DIGEST_BYTES = 16
_UNSEEN = ("Cc", "Cf", "Zl", "Zp", "Zs")  # controls, format characters, separators


def completion_text(completion: object, index: int) -> str:
    """The text of a completion: of a chat, what the assistant says in all of its messages.

    >>> completion_text([{"role": "assistant", "content": "Yes."}], 0)
    'Yes.'
    """
    if isinstance(completion, Mapping):
        completion = [completion]
    if isinstance(completion, str):
        return _encodable(completion)
    if not _is_sequence(completion):
        raise _not_a_completion(completion, index)
    texts = []
    for message in completion:
        if not isinstance(message, Mapping):
            raise _not_a_completion(message, index)
        # Results of tools and turns of the user stand between those of the model.
        if message.get("role", "assistant") == "assistant":
            texts.append(_message_text(message.get("content"), index))
    return _encodable("\n".join(filter(None, texts)))


def is_blank(text: str) -> bool:
    r"""Whether nothing of a text can be seen: blanks, controls and format characters only.

    >>> is_blank(" \n\u200b"), is_blank("-")
    (True, False)
    """
    return all(unicodedata.category(letter) in _UNSEEN for letter in set(text))


def _message_text(content: object, index: int) -> str:
    """The text of a message; a call of a tool has the content None."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if not _is_sequence(content):
        raise _not_a_completion(content, index)
    texts = []
    for part in content:
        text = None
        if isinstance(part, Mapping):
            text = part.get("text")
        if not isinstance(text, str):
            raise DataError(
                f"completion {index} has a part that is no text: {escaped(part)[:80]}. "
                "Rewards compare texts only."
            )
        texts.append(text)
    return "\n".join(texts)


def content_digest(value: object) -> bytes:
    """A hash of a prompt by its content: equal prompts have equal hashes in every process.

    Texts, numbers, and lists and mappings of them; also images and arrays, which chats with models
    of images contain.
    """
    digest = hashlib.blake2b(digest_size=_DIGEST_BYTES)
    digest.update(_content(value))
    return digest.digest()


def _content(value: Any) -> bytes:
    """Bytes that two values share only if they are equal."""
    if isinstance(value, Mapping):
        # Keys that are absent and keys that are None mean the same: tables fill in None.
        present = [(str(key), value[key]) for key in value if value[key] is not None]
        # By the names alone: values may have no order.
        present.sort(key=itemgetter(0))
        parts = [_content(pair) for pair in present]
        return _framed(b"mapping", parts)
    if isinstance(value, bytes):
        return _framed(b"bytes", [value])
    if value is None or isinstance(value, str | int | float):
        # The type is part of it, or the number 1 and the text "1" would be one prompt.
        text = str(value).encode("utf-8", "surrogatepass")
        return _framed(type(value).__name__.encode(), [text])
    if _is_sequence(value):
        return _framed(b"sequence", [_content(entry) for entry in value])
    if hasattr(value, "tobytes"):  # images of Pillow, arrays of NumPy
        form = f"{getattr(value, 'mode', '')} {getattr(value, 'dtype', '')}"
        size = getattr(value, "shape", getattr(value, "size", ""))
        return _framed(b"pixels", [f"{form} {size}".encode(), value.tobytes()])
    raise DataError(
        "prompts must be texts or chats, so that completions of the same prompt can be found; "
        f"got a {type(value).__name__} in one."
    )


def _framed(kind: bytes, parts: Sequence[bytes]) -> bytes:
    """Parts with their lengths in front, so that no two lists of parts give the same bytes."""
    lengths = b"".join(len(part).to_bytes(8, "big") for part in parts)
    header = kind + b" " + len(parts).to_bytes(8, "big")
    return header + lengths + b"".join(parts)


def _is_sequence(value: object) -> TypeGuard[Sequence[Any]]:
    return isinstance(value, Sequence) and not isinstance(value, str | bytes)


def _encodable(text: str) -> str:
    # A training run must not end because of half a character, which no tokenizer accepts.
    return text.encode("utf-8", "replace").decode()


def _not_a_completion(value: object, index: int) -> DataError:
    return DataError(
        "`completions` must be texts or lists of chat messages; "
        f"completion {index} is or contains one of type {type(value).__name__}."
    )
