"""From the body of an answer to vectors; whatever the protocol does not allow is refused."""

import base64
import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from divprism.data.strict_json import refuse_constant, unique_keys

__all__ = ["UnusableAnswerError", "parse_answer", "read_message", "read_vectors"]

# An answer has two containers and about ten strings per text. Parsing makes an object of up to 200
# bytes of each, so far larger numbers of them are refused before.
_MAX_PARTS_PER_TEXT = 64
_MAX_DIGITS = 32  # longer integers are no entries of a vector, and take long to parse
_MAX_MESSAGE_BYTES = 1 << 16


class UnusableAnswerError(Exception):
    """An answer that is refused; the text states the reason and quotes nothing of the answer."""


def read_vectors(body: bytes, count: int) -> np.ndarray:
    """Return the vectors of an answer to `count` texts, in the order of the texts.

    Raises
    ------
    UnusableAnswerError
        If the answer is not JSON, its indices do not number the texts, or its vectors are not
        finite numbers of one length.
    """
    answer = parse_answer(body, count, "a list of vectors")
    entries = None
    if isinstance(answer, dict):
        entries = answer.get("data")
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise UnusableAnswerError("it is not a list of vectors")
    if len(entries) != count:
        raise UnusableAnswerError(f"{len(entries)} vectors for {count} texts")
    order = _order(entries)
    vectors = [_vector(entry.get("embedding")) for entry in entries]
    if len({len(vector) for vector in vectors}) != 1:
        raise UnusableAnswerError("its vectors differ in length")
    # The position of each text among the vectors.
    return np.stack(vectors)[np.argsort(order)]


def read_message(body: bytes) -> str:
    """Return the message of an error, or an empty string where the protocol's fields have none."""
    if len(body) > _MAX_MESSAGE_BYTES:
        return ""
    try:
        answer = parse_answer(body, 1, "a message")
    except UnusableAnswerError:
        return ""
    # OpenAI: {"error": {"message": ...}}; others: {"error": ...}, {"message": ...}, {"detail": ...}
    for name in ("error", "message", "detail", "message"):
        if isinstance(answer, dict):
            answer = answer.get(name) or answer
    if isinstance(answer, str):
        return answer
    return ""


def parse_answer(body: bytes, count: int, expected: str) -> Any:
    """Return an answer about `count` texts as JSON; `expected` is what it should be.

    Raises
    ------
    UnusableAnswerError
        If it is not JSON, repeats a key, or has far more parts than such an answer.
    """
    limit = _MAX_PARTS_PER_TEXT * (count + _MAX_PARTS_PER_TEXT)
    if max(body.count(b"{") + body.count(b"["), body.count(b'"')) > limit:
        raise UnusableAnswerError(f"it is not {expected}")
    try:
        return json.loads(
            body.decode("utf-8-sig"),
            object_pairs_hook=unique_keys,
            parse_constant=refuse_constant,
            parse_int=_integer,
        )
    except (ValueError, RecursionError):
        pass
    # Raised out here: the exceptions above hold the text of the answer.
    raise UnusableAnswerError("it is not valid JSON")


def _integer(text: str) -> int:
    if len(text) > _MAX_DIGITS:
        raise ValueError
    return int(text)


def _order(entries: Sequence[dict[str, Any]]) -> list[int]:
    """Return the number of the text that each entry belongs to."""
    numbers = list(range(len(entries)))
    # The protocol requires an index; servers that leave it out keep the order of the texts.
    if not any("index" in entry for entry in entries):
        return numbers
    indices = [entry.get("index") for entry in entries]
    # `type`, because True is an int and equals 1, and 1.0 equals 1.
    are_integers = all(type(index) is int for index in indices)
    if not are_integers or sorted(indices) != numbers:  # type: ignore[type-var]
        raise UnusableAnswerError("its indices do not number the texts")
    return indices  # type: ignore[return-value]


def _vector(embedding: Any) -> np.ndarray:
    """Return a vector that was sent as numbers, or as base64 by servers that ignore the format."""
    if isinstance(embedding, str):
        numbers = _from_base64(embedding)
    elif isinstance(embedding, list) and set(map(type, embedding)) <= {int, float}:
        numbers = np.array(embedding, np.float64)
    else:
        raise UnusableAnswerError("its vectors are not lists of numbers")
    if len(numbers) == 0:
        raise UnusableAnswerError("it contains a vector without numbers")
    # Compared before the conversion, which would turn larger ones into infinity. NaN fails too.
    with np.errstate(invalid="ignore"):
        is_valid = np.abs(numbers) <= np.finfo(np.float32).max
    if not is_valid.all():
        raise UnusableAnswerError("its vectors contain NaN, infinity or numbers beyond float32")
    return numbers.astype(np.float32)


def _from_base64(text: str) -> np.ndarray:
    try:
        return np.frombuffer(base64.b64decode(text, validate=True), "<f4")
    except ValueError:
        pass
    raise UnusableAnswerError("its vectors are not base64 of float32")
