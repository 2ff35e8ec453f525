"""Samples and prompts at the door: of any shape, as rows or ids that stay the same from call to call."""

import hashlib
from typing import Any

import numpy as np

from divprism._arrays import Array, array_namespace, device_of, is_array_api_obj, to_numpy
from divprism._validate import clean_ids, clean_rows
from divprism.errors import DataError

__all__ = ["flat_rows", "prompt_rows", "require_together"]


def flat_rows(x: Any, name: str) -> tuple[Array, tuple[int, ...]]:
    """Items of any shape as clean rows, and that shape: (n, 4, 8, 8) becomes (n, 256) and (4, 8, 8)."""
    shape: tuple[int, ...] = ()
    if not is_array_api_obj(x):
        x = np.asarray(x)
    if x.ndim > 2:
        shape = tuple(int(side) for side in x.shape[1:])
        x = array_namespace(x).reshape(x, (x.shape[0], int(np.prod(shape))))
    rows = clean_rows(x, name)
    return rows, shape or (int(rows.shape[1]),)


def prompt_rows(t: Any, name: str) -> Array:
    """Embeddings of prompts as clean rows; ids as whole numbers, texts by a hash that every process agrees on."""
    if clean_ids(t, name) is None:
        return flat_rows(t, name)[0]
    ids = np.asarray(to_numpy(t) if is_array_api_obj(t) else t)
    if ids.dtype.kind in "iub":
        return ids.astype(np.int64)
    digests = [hashlib.blake2b(str(text).encode(), digest_size=8).digest() for text in ids]
    return np.frombuffer(b"".join(digests), np.int64)


def require_together(x: Array, bank: Array) -> None:
    """Refuse samples and a bank of different libraries or devices."""
    if array_namespace(x) is not array_namespace(bank) or device_of(x) != device_of(bank):
        raise DataError(
            f"samples and bank must live in one array library and on one device; got {type(x).__name__} on {device_of(x)} and "
            f"{type(bank).__name__} on {device_of(bank)}. Bank.load(path, like=x) moves a bank."
        )
