"""Columns of data frames, and arrays of strings or objects, as lists."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from divprism.core.arrays import is_array_api_obj

__all__ = ["plain_column"]


def plain_column(values: Any) -> Any:
    """Return a column of texts, images or lists as a list; anything else as it is.

    Columns are those of pandas, polars and pyarrow, and arrays of strings or objects: whichever
    holds the texts, the answer is that of the list.
    """
    if values is None or isinstance(values, str | bytes | list | tuple):
        return values
    if isinstance(values, np.ndarray):
        if values.ndim == 1 and values.dtype.kind in "UOT":
            return values.tolist()
        return values
    # Tensors and other arrays of numbers have `tolist`, too, and stay on their device.
    if is_array_api_obj(values) or len(getattr(values, "shape", (0,))) != 1:
        return values
    for method in ("to_pylist", "to_list"):  # of pyarrow; of pandas and polars
        if callable(getattr(values, method, None)):
            return getattr(values, method)()
    if isinstance(values, Sequence):
        return list(values)
    return values
