"""Dask arrays as NumPy arrays: computed chunk by chunk, and kept on disk if they are large."""

import math
from collections.abc import Iterator
from typing import Any, BinaryIO

import numpy as np
from array_api_compat import is_dask_array

from divprism.data.readers import npy
from divprism.data.readers.joined_arrays import stored_rows
from divprism.data.wording import counted, first_line
from divprism.errors import DataError

__all__ = ["computed"]

_PLAIN = "biuf"  # kinds of numbers, which have a size before they are computed


def computed(values: Any, name: str) -> Any:
    """Return a Dask array as a NumPy array; anything else as it is.

    Chunks of rows are computed one after the other, on the cluster of the current client if there
    is one. An array of more than 1 GB goes into a temporary file, of which a map is returned;
    `TMPDIR` names the folder.

    Parameters
    ----------
    values : object
        What a user passed.
    name : str
        Its name in messages: "x" or "t".

    Raises
    ------
    DataError
        If a chunk cannot be computed, or if the temporary file cannot be written.
    """
    if not is_dask_array(values):
        return values
    lazy: Any = values
    try:
        if lazy.ndim == 0 or lazy.dtype.kind not in _PLAIN:
            return lazy.compute()
        if any(math.isnan(length) for length in lazy.shape):  # where a length is not known
            lazy = lazy.compute_chunk_sizes()
        # Rows are what is read together, so a chunk has all columns of its rows.
        rows = lazy.rechunk(dict.fromkeys(range(1, values.ndim), -1))
    except Exception as error:  # whatever the functions of the graph raise
        raise DataError(_failed(name, error)) from error
    shape = tuple(int(length) for length in rows.shape)
    if rows.nbytes <= npy.MAX_READ:
        array = np.empty(shape, rows.dtype)
        for start, block in _blocks(rows, name):
            array[start : start + len(block)] = block
        return array

    def write(file: BinaryIO) -> None:
        for _, block in _blocks(rows, name):
            file.write(block.data)

    return stored_rows(shape, rows.dtype, write)


def _blocks(rows: Any, name: str) -> Iterator[tuple[int, np.ndarray]]:
    """Yield each chunk of rows with the number of its first row."""
    start = 0
    for index, length in enumerate(rows.chunks[0]):
        try:
            chunk = rows.blocks[index].compute()
            _require_plain(chunk, name)
            block = np.ascontiguousarray(chunk, rows.dtype)
        except DataError:
            raise
        except Exception as error:  # whatever the functions of the graph raise
            raise DataError(_failed(name, error)) from error
        expected = (length, *rows.shape[1:])
        if block.shape != expected:
            raise DataError(
                f"`{name}` is a Dask array with a chunk of the shape {block.shape}, where its "
                f"description says {expected}; {counted(start, 'row', 'rows')} came before it."
            )
        yield start, block
        start += length


def _require_plain(chunk: Any, name: str) -> None:
    """Refuse what would lose its mask or its imaginary part on the way to an array."""
    if isinstance(chunk, np.ma.MaskedArray):
        raise DataError(f"`{name}` is a masked array: drop or fill what is masked.")
    if np.iscomplexobj(chunk):
        raise DataError(f"`{name}` must be real numbers; got a chunk of {chunk.dtype}.")


def _failed(name: str, error: Exception) -> str:
    return f"`{name}` is a Dask array that cannot be computed: {first_line(error)}."
