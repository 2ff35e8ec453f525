"""Tokenizers as untrusted data: what their files make of a text must stay in proportion to it.

A file of a few bytes can ask for text after text in place of a letter, or for a billion tokens of
padding. The library that runs them has no limits, so the steps in a file are measured before.
"""

import base64
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

from divprism.embedders._model_files import Json, UnsafeModelError, quoted, read_dictionary

__all__ = ["check_tokenizer", "check_tokenizers"]

_MAX_GROWTH = 256.0  # characters after all steps for each character of a text
_MAX_ADDED = 1000  # characters or tokens that do not depend on the text
_MAX_STEPS = 64
_MAX_OBJECTS = 200_000
_MAX_PADDING = 1 << 16
_MAX_MULTIPLE = 4096
_MAX_REPLACEMENT = 256  # bytes of a normal form of Unicode; the longest has 33
_MAX_NESTING = 32


def check_tokenizers(folder: Path) -> None:
    """Check every tokenizer in a model folder, at any depth.

    Raises
    ------
    UnsafeModelError
        If a text could grow out of proportion. Regular expressions that are slow are not found.
    """
    for path in sorted(folder.rglob("tokenizer*.json")):
        if path.is_file() and path.name != "tokenizer_config.json":
            check_tokenizer(path)


def check_tokenizer(path: Path) -> None:
    """Check one file of a tokenizer, as `check_tokenizers` does."""
    status = path.stat()
    _check_file(path, status.st_mtime_ns, status.st_size)


# A folder is checked whenever one of its files is read, and this file may have 17 MB.
@lru_cache(maxsize=16)
def _check_file(path: Path, _time: int, _size: int) -> None:
    # Counted before parsing, which takes a minute for millions of objects. Real files have one for
    # each added token.
    if path.read_bytes().count(b"{") > _MAX_OBJECTS:
        raise UnsafeModelError(f"{quoted(path.name)} has more than {_MAX_OBJECTS:,} objects")
    content = read_dictionary(path)
    growth, added = 1.0, 0
    steps = list(_steps(content.get("normalizer"), "normalizers"))
    steps += _steps(content.get("pre_tokenizer"), "pretokenizers")
    for step in steps:
        growth *= _growth(step)
        added += len(str(step.get("prepend") or ""))
    # Each turns a letter outside ASCII into several letters outside ASCII.
    repeated = [step.get("type") in ("ByteLevel", "Precompiled") for step in steps]
    if growth > _MAX_GROWTH or added > _MAX_ADDED or sum(repeated) > 2:
        raise UnsafeModelError(f"{quoted(path.name)} makes texts many times longer")
    templates = list(_steps(content.get("post_processor"), "processors"))
    for template in templates:
        _check_template(template, path.name)
    _check_padding(content.get("padding"), path.name)
    _check_truncation(content.get("truncation"), path.name)
    if len(steps) + len(templates) > _MAX_STEPS:
        raise UnsafeModelError(f"{quoted(path.name)} has more than {_MAX_STEPS} steps")


def _steps(part: object, inner: str, depth: int = 0) -> Iterator[Json]:
    """Yield the steps of a part of a tokenizer, those of sequences in sequences too."""
    if depth > _MAX_NESTING:
        raise UnsafeModelError(f"its tokenizer is nested more than {_MAX_NESTING} deep")
    if not isinstance(part, dict):
        return
    # Without a type, the library takes the first kind of step that the fields fit.
    if isinstance(part.get(inner), list):
        for step in part[inner]:
            yield from _steps(step, inner, depth + 1)
    else:
        yield part


def _growth(step: Json) -> float:
    """Return how many characters a step may make of one."""
    if "precompiled_charsmap" in step:
        _check_normal_forms(step["precompiled_charsmap"])
    if step.get("content") is None:
        return 1.0
    length = len(str(step["content"]))
    pattern = step.get("pattern")
    text = pattern
    if isinstance(pattern, dict):
        text = pattern.get("String")
    if isinstance(text, str) and text:
        return max(1.0, length / len(text))
    # A regular expression may match between any two letters, which stay.
    return 1.0 + length


def _check_normal_forms(charsmap: object) -> None:
    """Check the table of replacements that SentencePiece writes: a trie, then the texts."""
    try:
        table = base64.b64decode(str(charsmap or ""), validate=True)
    except ValueError:
        raise UnsafeModelError("the normal forms of its tokenizer are not readable") from None
    start = 4 + int.from_bytes(table[:4], "little")
    if any(len(text) > _MAX_REPLACEMENT for text in table[start:].split(b"\0")):
        raise UnsafeModelError("the normal forms of its tokenizer are too long")


def _check_template(template: Json, where: str) -> None:
    """Check what is put around the tokens of a text: few tokens, and the text itself once."""
    for key, most in (("single", 1), ("pair", 2)):
        pieces = template.get(key) or []
        texts = [piece for piece in pieces if isinstance(piece, dict) and "Sequence" in piece]
        if len(pieces) > _MAX_STEPS or len(texts) > most:
            raise UnsafeModelError(f"{quoted(where)} repeats texts or special tokens")
    special = template.get("special_tokens") or {}
    if not isinstance(special, dict):
        raise UnsafeModelError(f"{quoted(where)} is not readable")
    counts = [len(token.get("ids") or ()) for token in special.values() if isinstance(token, dict)]
    if max(counts, default=0) > _MAX_ADDED:
        raise UnsafeModelError(f"{quoted(where)} repeats texts or special tokens")


def _check_padding(padding: object, where: str) -> None:
    if not isinstance(padding, dict):
        return
    limits = {"pad_to_multiple_of": _MAX_MULTIPLE, "Fixed": _MAX_PADDING}
    numbers = dict(padding)
    if isinstance(padding.get("strategy"), dict):
        numbers |= padding["strategy"]
    for key, limit in limits.items():
        value = numbers.get(key)
        if isinstance(value, int | float) and not value <= limit:
            raise UnsafeModelError(
                f"{key} in {quoted(where)} is {quoted(value)}; at most {limit:,} are supported"
            )


def _check_truncation(truncation: object, where: str) -> None:
    """Require parts of a text to overlap by less than their length, or the library panics."""
    if not isinstance(truncation, dict):
        return
    length, overlap = truncation.get("max_length", 0), truncation.get("stride", 0)
    are_counts = type(length) is int and type(overlap) is int
    # Room for special tokens is taken off the length first.
    if not are_counts or (overlap and overlap >= length - _MAX_STEPS):
        raise UnsafeModelError(f"{quoted(where)} cuts texts into parts that overlap too much")
