"""Checks of saved banks: their files come from anywhere, and nothing in them is trusted."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from divprism.data.archives import require_keys

__all__ = ["BankContent", "checked_content"]

_KEYS = {"format", "capacity", "dtype", "shape", "arrived", "kind"}
_MOST_SIDES = 32  # dimensions of a sample; array libraries support 64


@dataclass(frozen=True, eq=False)
class BankContent:
    """The samples of a saved bank, oldest first, with their prompts and arrival numbers."""

    latents: np.ndarray
    prompts: np.ndarray | None
    kind: str | None
    shape: tuple[int, ...]
    arrivals: np.ndarray
    arrived: int


def checked_content(
    header: Mapping[str, Any], archive: Mapping[str, np.ndarray], capacity: int, dtype: str
) -> BankContent | None:
    """The content of an untrusted file, None for an empty bank.

    Raises
    ------
    ValueError
        If anything in it is inconsistent.
    """
    require_keys(header, _KEYS, "its header")
    arrived, kind = header["arrived"], header["kind"]
    # bool is an int, and counts from 2^53 on would not be exact in every reader of JSON.
    if type(arrived) is not int or not 0 <= arrived < 2**53:
        raise ValueError("its header does not fit")
    if arrived == 0:
        require_keys(archive, set(), "an empty bank")
        if header["shape"] is not None or kind is not None:
            raise ValueError("its header does not fit its arrays")
        return None
    names = {"latents", "arrivals"}
    if "prompts" in archive:
        names.add("prompts")
    require_keys(archive, names, "the file")
    latents, arrivals = archive["latents"], archive["arrivals"]
    prompts = archive.get("prompts")
    shape = _checked_shape(header["shape"])
    # Not NumPy's product, in which untrusted integers may overflow.
    is_table = latents.ndim == 2 and latents.shape[1] == math.prod(shape)
    if not is_table or not 0 < len(latents) <= capacity:
        raise ValueError("its header does not fit its arrays")
    _check_finite(latents, dtype)
    if prompts is not None and prompts.ndim != 1:
        _check_finite(prompts, dtype)
    _check_prompts(prompts, kind, len(latents))
    _check_arrivals(arrivals, len(latents), arrived)
    return BankContent(latents, prompts, kind, shape, arrivals, arrived)


def _check_finite(rows: np.ndarray, dtype: str) -> None:
    is_table = rows.dtype == dtype and rows.ndim == 2 and 0 not in rows.shape
    if not is_table or not np.isfinite(rows).all():
        raise ValueError(f"its samples or prompts are not finite rows of {dtype}")


def _checked_shape(sides: Any) -> tuple[int, ...]:
    """Return the shape of a sample from a header, or (0,), which no array fits."""
    if not isinstance(sides, list) or not 0 < len(sides) <= _MOST_SIDES:
        return (0,)
    if not all(type(side) is int and side > 0 for side in sides):
        return (0,)
    return tuple(sides)


def _check_prompts(prompts: np.ndarray | None, kind: object, count: int) -> None:
    """Refuse stored prompts that do not match the number of samples or their stated kind."""
    kinds: tuple[object, ...] = (None,)
    if prompts is not None:
        is_flat = prompts.ndim == 1
        if len(prompts) != count or (is_flat and prompts.dtype != np.int64):
            raise ValueError("its prompts do not fit its samples")
        kinds = ("embeddings",)
        if is_flat:
            kinds = ("numbers", "texts")
    if kind not in kinds:
        raise ValueError("its prompts are not of the kind in its header")


def _check_arrivals(arrivals: np.ndarray, count: int, arrived: int) -> None:
    """Refuse stored arrival numbers that are not sorted or not below the total."""
    is_sorted = arrivals.dtype == np.int64 and arrivals.shape == (count,)
    is_sorted = is_sorted and not (np.diff(arrivals) < 0).any()
    if not is_sorted or arrivals[0] < 0 or arrivals[-1] >= arrived:
        raise ValueError("its arrival numbers do not fit its samples")
