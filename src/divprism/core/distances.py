"""Squared Euclidean distances that stay accurate where the fast formula cancels.

|a - b|^2 = |a|^2 + |b|^2 - 2 a.b turns all pairs into one matrix product, an order of magnitude
faster than differences of rows. Its rounding error grows with |a|^2 + |b|^2, though, so rows that
are much closer to each other than to the origin lose every digit. Each function here evaluates the
product first and then repeats, from differences, only the entries that it cannot resolve.
"""

import numpy as np

from divprism.core.arrays import (
    Array,
    array_namespace,
    device_of,
    machine_epsilon,
    to_numpy,
    upload,
)
from divprism.core.tiles import row_blocks

__all__ = [
    "EXPONENT_ERROR",
    "condensed_squares",
    "gaussian_exponents",
    "squared_distances",
    "squared_gaps",
]

# An entry below this share of |a|^2 + |b|^2 has lost too many digits to the product. The entries
# above it are accurate to a relative error of about 1e-5 in single and 1e-11 in double precision.
_CANCELLED_SINGLE = 1e-2
_CANCELLED_DOUBLE = 1e-4

# Where the median entry is below this share of the largest norm, no statistic can be trusted.
_CANCELLED_MEDIAN = 1e-6

# Share of cancelled entries above which centring both sets first is cheaper than differences.
_MANY = 0.1

# Absolute error of an exponent in double precision that a kernel value may carry.
EXPONENT_ERROR = 1e-10

# exp(-750) is zero in double precision: exponents below it need no digits.
_UNDERFLOW = 750.0

# Coordinates of differences held at a time: 32 MB in double precision.
_GAP_ENTRIES = 1 << 22


def squared_distances(a: Array, b: Array, *, centre: Array | None = None) -> tuple[Array, Array]:
    """|a_i - b_j|^2, shape (len(a), len(b)), and the norms |a_i|^2 + |b_j|^2 around the centre.

    The rounding error of an entry is proportional to its norms. Equal rows are exactly zero apart.
    The product is taken around `centre`; without one it is taken around the origin, or around the
    mean of `a` if too many entries cancel there. O(len(a) len(b) d).

    >>> squares, _ = squared_distances(np.array([[1e9, 0.0]]), np.array([[1e9, 3.0], [1e9, 0.0]]))
    >>> squares.tolist()
    [[9.0, 0.0]]
    """
    xp = array_namespace(a)
    if centre is None:
        squares, norms, cancelled = _expanded(a, b)
        if float(xp.mean(xp.astype(cancelled, xp.float32))) > _MANY:
            centre = xp.mean(a, axis=0)
    if centre is not None:
        squares, norms, cancelled = _expanded(a - centre, b - centre)
    # Differences of the rows as given: centring rounds, and so may part rows that are tied.
    _replace_entries(squares, cancelled, a, b)
    return squares, norms


def squared_gaps(a: Array, b: Array, left: Array, right: Array) -> Array:
    """|a_i - b_j|^2 from differences, for the pairs (i, j) in `left` and `right`."""
    xp = array_namespace(a)
    pieces = [xp.zeros((0,), dtype=a.dtype, device=device_of(a))]
    # In pieces, because a difference takes d numbers where its square takes one.
    for piece in row_blocks(left.shape[0], max(1, _GAP_ENTRIES // a.shape[1])):
        gap = xp.take(a, left[piece], axis=0) - xp.take(b, right[piece], axis=0)
        pieces.append(xp.sum(gap * gap, axis=1))
    return xp.concat(pieces)


def condensed_squares(x: Array, rows: np.ndarray) -> tuple[np.ndarray, float]:
    """Squared distances between all pairs of some rows, in units of scale^2, and that scale.

    Pairs are in the order of `scipy.spatial.distance.pdist`, on the host. The scale is such that
    squares neither overflow nor vanish. For statistics of all distances: what counts is an error
    that is small beside the median, so single pairs that cancel are left as they are.
    O(len(rows)^2 d).

    >>> condensed_squares(np.array([[0.0], [1.0], [4.0], [7.0]]), np.array([0, 1, 3]))[0].size
    3
    """
    xp = array_namespace(x)
    points = xp.astype(xp.take(x, upload(rows, x), axis=0), xp.float64)
    points = points - xp.mean(points, axis=0)
    # Equal rows are all zero around their mean, and keep the scale one.
    scale = float(xp.max(xp.abs(points))) or 1.0
    points = points / scale
    norms = to_numpy(xp.sum(points * points, axis=1))
    products = to_numpy(points @ points.T)
    left, right = np.triu_indices(rows.size, 1)
    # Rounding may take the square of a tiny distance below zero.
    squares = np.maximum(norms[left] + norms[right] - 2 * products[left, right], 0.0)
    if np.median(squares) < _CANCELLED_MEDIAN * norms.max():
        from scipy.spatial.distance import pdist

        squares = pdist(to_numpy(points), "sqeuclidean")
    return squares, scale


def gaussian_exponents(a: Array, b: Array, half_a: Array, half_b: Array, *, refine: bool) -> Array:
    """-|a_i - b_j|^2 / 2, the exponents of a Gaussian kernel of bandwidth one.

    `half_a` and `half_b` hold half the squared norms of the rows, which the caller has centred.
    With `refine`, entries whose rounding exceeds `EXPONENT_ERROR` are computed from differences.
    """
    # In place: a block is as large as the matrix product itself and is written once more by exp.
    exponents = a @ b.T
    exponents -= half_a[:, None]
    exponents -= half_b[None, :]
    if refine:
        # A bound, with some margin, on the rounding of the product and of both subtractions.
        rounding = 8 * machine_epsilon(exponents) * (half_a[:, None] + half_b[None, :])
        # With a bandwidth that is tiny beside the spread of the data nearly all pairs cancel,
        # but only the few that are close enough for a kernel value above zero matter.
        above_zero = exponents + rounding > -_UNDERFLOW
        _replace_entries(exponents, (rounding > EXPONENT_ERROR) & above_zero, a, b, factor=-0.5)
    return exponents


def _expanded(a: Array, b: Array) -> tuple[Array, Array, Array]:
    """|a_i|^2 + |b_j|^2 - 2 a_i.b_j, the norms in it, and whether the entry is lost to rounding."""
    xp = array_namespace(a)
    norms = xp.sum(a * a, axis=1)[:, None] + xp.sum(b * b, axis=1)[None, :]
    squares = norms - 2 * (a @ b.T)
    share = _CANCELLED_SINGLE
    if a.dtype == xp.float64:
        share = _CANCELLED_DOUBLE
    return squares, norms, squares < share * norms


def _replace_entries(
    values: Array, where: Array, a: Array, b: Array, *, factor: float = 1.0
) -> None:
    """Write factor * |a_i - b_j|^2 from differences over the marked entries of `values`."""
    left, right = array_namespace(values).nonzero(where)
    if left.shape[0]:
        values[where] = factor * squared_gaps(a, b, left, right)
