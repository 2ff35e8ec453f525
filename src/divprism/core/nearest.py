"""The nearest rows of one set to each row of another, block by block."""

import numpy as np

from divprism.core.arrays import Array, array_namespace, to_numpy, upload
from divprism.core.distances import squared_distances, squared_gaps
from divprism.core.tiles import row_blocks

__all__ = ["nearest_rows"]

_BLOCK_ENTRIES = 1 << 22  # distances held at a time: 32 MB in double precision


def nearest_rows(
    rows: Array, others: Array, count: int, *, are_same: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """The `count` nearest of `others` to each row, and their squared distances, nearest first.

    With `are_same` both are one set, and a row is not its own neighbour. Both arrays have the shape
    (len(rows), count). O(len(rows) len(others) d) time; memory for blocks of rows. The distances
    are computed from differences, so that equal rows are exactly zero apart.

    >>> index, squares = nearest_rows(np.array([[0.0], [5.0]]), np.array([[4.0], [1.0]]), 1)
    >>> index.tolist(), squares.tolist()
    ([[1], [0]], [[1.0], [1.0]])
    """
    centre = array_namespace(others).mean(others, axis=0)
    found, distances = [], []
    for block in row_blocks(rows.shape[0], max(1, _BLOCK_ENTRIES // others.shape[0])):
        squares, _ = squared_distances(rows[block, :], others, centre=centre)
        squares = to_numpy(squares)
        own = np.arange(block.start, block.stop)
        if are_same:
            squares[own - block.start, own] = np.inf
        nearest = np.argpartition(squares, count - 1, axis=1)[:, :count]
        left = np.repeat(own, count)
        gaps = squared_gaps(rows, others, upload(left, rows), upload(nearest.ravel(), rows))
        exact = to_numpy(gaps).reshape(nearest.shape)
        # Rows that are equally near keep their order, whatever the last bits of the product are.
        order = np.lexsort((nearest, exact), axis=1)
        found.append(np.take_along_axis(nearest, order, axis=1))
        distances.append(np.take_along_axis(exact, order, axis=1))
    return np.concatenate(found), np.concatenate(distances)
