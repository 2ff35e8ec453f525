"""Rows of norm one, for bandwidths that assume them."""

from dataclasses import replace
from typing import Any

from divprism.core.arrays import Array, array_namespace, machine_epsilon, to_numpy, upload
from divprism.core.kernels import Categorical, Precomputed
from divprism.core.kernels.base import unit_rows
from divprism.core.near_rows import equal_up_to
from divprism.core.validation import clean_ids, clean_rows
from divprism.errors import ArgumentError, DataError
from divprism.scores.settings import Settings

__all__ = ["normalized"]

# Distance of scaled rows, in units of the precision of the data, up to which they are the same.
_SAME = 8.0


def normalized(x: Any, t: Any, settings: Settings) -> tuple[Any, Any, Settings]:
    """Outputs and prompts with the rows that the settings ask for scaled to norm one.

    Ids, and sides that are absent or compared as ids, stay as they are; the settings returned name
    the sides that were scaled. In double precision, in memory.
    """
    sides = {"x": x, "t": t}
    scaled: dict[str, bool] = {}
    for side, data in sides.items():
        scaled[side] = settings.normalizes(side) and _is_vectors(data, side, settings)
        if scaled[side]:
            sides[side] = _unit_rows(data, side)
    settings = replace(settings, normalize_x=scaled["x"], normalize_t=scaled["t"])
    return sides["x"], sides["t"], settings


def _is_vectors(data: Any, side: str, settings: Settings) -> bool:
    kernel = settings.kernel(side)
    if data is None or isinstance(kernel, Categorical):
        return False
    if isinstance(kernel, Precomputed):
        raise ArgumentError(
            f"`normalize_{side}` scales vectors, and a precomputed kernel has none; leave it out."
        )
    return side == "x" or clean_ids(data, side) is None


def _unit_rows(data: Any, side: str) -> Array:
    rows = clean_rows(data, side)
    xp = array_namespace(rows)
    zeros = int((to_numpy(xp.max(xp.abs(rows), axis=1)) == 0).sum())
    if zeros:
        raise DataError(
            f"{zeros:,} of {rows.shape[0]:,} rows of `{side}` are all zeros, which cannot be "
            f"scaled to norm one. Drop them, or leave out `normalize_{side}`."
        )
    scaled = unit_rows(rows, xp.float64)
    # Rows that point the same way differ in the last bits after the division, and would count as
    # different prompts.
    tolerance = _SAME * machine_epsilon(rows)
    return scaled[upload(equal_up_to(to_numpy(scaled), tolerance), scaled)]
