"""Blocks of rows that cover a range."""

from collections.abc import Iterator

from divprism.engines.resources import TILE

__all__ = ["TILE", "row_blocks"]


def row_blocks(size: int, rows: int = TILE) -> Iterator[slice]:
    """Slices of at most `rows` that cover range(size).

    >>> list(row_blocks(5, 2))
    [slice(0, 2, None), slice(2, 4, None), slice(4, 5, None)]
    """
    return (slice(start, min(start + rows, size)) for start in range(0, size, rows))
