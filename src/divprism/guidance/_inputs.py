"""Samples and prompts at the door: of any shape, as rows or ids that stay the same from call to call."""

import hashlib
from dataclasses import dataclass
from typing import Any

import numpy as np

from divprism.core.arrays import Array, array_namespace, device_of, is_array_api_obj, to_numpy
from divprism.core.validation import clean_ids, clean_rows
from divprism.errors import DataError

__all__ = ["Prompts", "clean_prompts", "flat_rows", "require_shape", "require_together"]


def flat_rows(x: Any, name: str) -> tuple[Array, tuple[int, ...]]:
    """Items of any shape as clean rows, and that shape: (n, 4, 8, 8) becomes (n, 256) and (4, 8, 8)."""
    shape: tuple[int, ...] = ()
    if not is_array_api_obj(x):
        x = np.asarray(x)
    if x.ndim == 1 and x.shape[0]:
        raise DataError(
            f"`{name}` must have a row per sample; got shape {tuple(x.shape)}. A single sample is {name}[None]."
        )
    if x.ndim > 2:
        shape = tuple(int(side) for side in x.shape[1:])
        x = array_namespace(x).reshape(x, (x.shape[0], int(np.prod(shape))))
    rows = clean_rows(x, name)
    return rows, shape or (int(rows.shape[1]),)


@dataclass(frozen=True, eq=False)
class Prompts:
    """Prompts as rows of numbers or flat ids, and what they were given as: embeddings, numbers or texts.

    Texts are ids by a hash that every process agrees on, so they never equal whole numbers that were given.
    """

    rows: Array
    kind: str

    def require_kind(self, kind: str | None, width: tuple[int, ...]) -> None:
        """Refuse prompts of another kind, or of another width, than those in a bank."""
        mine, theirs = _told(self.kind, self.rows.shape[1:]), _told(kind, width)
        if mine != theirs:
            raise DataError(
                f"new prompts are {mine} and those in the bank {theirs}; they must be of one kind."
            )


def _told(kind: str | None, width: tuple[int, ...]) -> str:
    return f"embeddings of width {width[0]}" if width else f"{kind}"


def clean_prompts(t: Any, name: str) -> Prompts:
    """Embeddings of prompts as clean rows; whole numbers as they are, texts by a hash."""
    if isinstance(t, str):
        raise DataError(
            f"`{name}` must be a list with a prompt for each sample; got the text {t[:40]!r}."
        )
    if clean_ids(t, name) is None:
        return Prompts(flat_rows(t, name)[0], "embeddings")
    ids = np.asarray(to_numpy(t) if is_array_api_obj(t) else t)
    if ids.dtype.kind in "iub":
        return Prompts(ids.astype(np.int64), "numbers")
    digests = [
        hashlib.blake2b(str(text).encode("utf-8", "surrogatepass"), digest_size=8).digest()
        for text in ids
    ]
    return Prompts(np.frombuffer(b"".join(digests), np.int64), "texts")


def require_together(x: Array, bank: Array) -> None:
    """Refuse samples and a bank of different libraries or devices."""
    if array_namespace(x) is not array_namespace(bank) or device_of(x) != device_of(bank):
        raise DataError(
            f"samples and bank must live in one array library and on one device; got {type(x).__name__} on {device_of(x)} and "
            f"{type(bank).__name__} on {device_of(bank)}. Bank.load(path, like=x) moves a bank."
        )


def require_shape(shape: tuple[int, ...], bank: tuple[int, ...] | None) -> None:
    """Refuse samples of another shape than those in a bank."""
    if shape != bank:
        raise DataError(
            f"samples of shape {shape} do not fit a bank of samples of shape {bank}. Use a bank for each."
        )
