"""Row blocks and tiles: a matrix too large for memory is visited a piece at a time."""

from collections.abc import Iterator

__all__ = ["TILE", "row_blocks", "upper_tiles"]

TILE = 512
"""Rows of a tile: 512 x 512 entries stay in cache between the passes that a kernel block needs."""


def row_blocks(size: int, rows: int = TILE) -> Iterator[slice]:
    """Slices of at most `rows` that cover range(size).

    >>> list(row_blocks(5, 2))
    [slice(0, 2, None), slice(2, 4, None), slice(4, 5, None)]
    """
    return (slice(start, min(start + rows, size)) for start in range(0, size, rows))


def upper_tiles(size: int, rows: int = TILE) -> Iterator[tuple[slice, slice]]:
    """Tiles on and above the diagonal: with symmetry, half the work of all tiles.

    >>> [(r.start, c.start) for r, c in upper_tiles(3, 2)]
    [(0, 0), (0, 2), (2, 2)]
    """
    blocks = list(row_blocks(size, rows))
    return ((row, column) for i, row in enumerate(blocks) for column in blocks[i:])
