"""Rows that are equal up to rounding."""

import math

import numpy as np

__all__ = ["equal_up_to", "typical_distance"]

# Random directions that rows are compared in first, and sides of a cell in tolerances: two rows
# whose distance is the tolerance share a cell of a grid in about two cases of three.
_DIRECTIONS = 8
_CELL = 16.0

# Grids, each moved at random: a pair whose distance is the tolerance shares a cell of none of them
# in one case of 6,000.
_GRIDS = 8


def equal_up_to(rows: np.ndarray, tolerance: float) -> np.ndarray:
    """For each row the index of the first row that it is equal to, its own if there is none before.

    Rows are equal if their distance is at most the tolerance, or if a chain of such rows is between
    them. O(n d).

    >>> equal_up_to(np.array([[1.0, 0.0], [1.0, 1.0], [1.0, 1e-17]]), 1e-15).tolist()
    [0, 1, 0]
    """
    n, d = rows.shape
    rng = np.random.default_rng(0)
    along = rows @ rng.standard_normal((d, _DIRECTIONS))
    # A step as long as the tolerance is about that long in every such direction.
    cell = _CELL * tolerance
    factors = rng.integers(2**62, size=_DIRECTIONS)
    followers, leaders = [], []
    for _ in range(_GRIDS):
        cells = np.floor(along / cell + rng.random(_DIRECTIONS))
        # Far from the origin numbers of cells exceed 64 bits: the same remainder is enough.
        cells = np.remainder(cells, 2.0**62).astype(np.int64)
        # One number for each cell, much faster to sort. It overflows, which is harmless, and so are
        # two cells of the same number: rows are compared below.
        _, first, inverse = np.unique(cells @ factors, return_index=True, return_inverse=True)
        leader = first[inverse]
        follower = np.flatnonzero(leader != np.arange(n))
        # Rows of one cell may be apart in the directions that were not looked at.
        apart = np.linalg.norm(rows[follower] - rows[leader[follower]], axis=1)
        follower = follower[apart <= tolerance]
        followers.append(follower)
        leaders.append(leader[follower])
    return _first_connected(np.concatenate(followers), np.concatenate(leaders), n)


def _first_connected(left: np.ndarray, right: np.ndarray, count: int) -> np.ndarray:
    """For each of some numbers the least one that pairs (left, right) connect it with."""
    least = np.arange(count)
    while True:
        before = least.copy()
        np.minimum.at(least, left, before[right])
        np.minimum.at(least, right, before[left])
        if np.array_equal(least, before):
            return least


def typical_distance(rows: np.ndarray) -> float:
    """Distance of rows in the middle of the data from its centre, times the root of two. O(n d).

    Of medians, so that a few rows far away change nothing.

    >>> round(typical_distance(np.array([[0.0], [2.0], [4.0], [6.0], [1e9]])) ** 2, 12)
    8.0
    """
    apart = np.linalg.norm(rows - np.median(rows, axis=0), axis=1)
    # Two independent rows are the root of two times as far from each other as from the centre.
    return math.sqrt(2) * float(np.median(apart))
