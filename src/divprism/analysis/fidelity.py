"""Metrics reported next to diversity: fidelity to real data, alignment, in-batch similarity.

Kernel distance, alignment and in-batch similarity are columns of Conditional Vendi, Tables 1 and 3;
recall and coverage are columns of Truncated Vendi, Tables 1 and 2. All of them take embeddings, and
their values depend on the embedder.
"""

import math
from dataclasses import dataclass

import numpy as np

from divprism.core.arrays import Array, array_namespace, distinct_rows, to_numpy, upload
from divprism.core.distances import squared_distances, squared_gaps
from divprism.core.kernels import Cosine
from divprism.core.tiles import row_blocks
from divprism.core.validation import check_pairing, clean_ids, clean_rows, like, whole_number
from divprism.errors import ArgumentError, DataError

__all__ = [
    "KernelDistance",
    "alignment",
    "coverage",
    "in_batch_similarity",
    "kernel_distance",
    "recall",
]

_ROUNDING = 1e-12  # error of a product of rows, relative to their squared norms
_BORDER = 1e-12  # error of a squared distance that rounded data may cause, relative to it


@dataclass(frozen=True)
class KernelDistance:
    """A kernel distance with its error; float() returns the distance.

    Attributes
    ----------
    value : float
        The unbiased estimate. Where both sets follow one distribution it is near zero, and as often
        negative as positive.
    standard_error : float
        By the jackknife over the rows of both sets. It is right where the distributions differ;
        where they agree it is too large by a factor of sqrt(2).
    n, n_reference : int
        Number of rows in either set.
    """

    value: float
    standard_error: float
    n: int
    n_reference: int

    def __float__(self) -> float:
        return self.value


def kernel_distance(x: Array, reference: Array) -> KernelDistance:
    """Return how far outputs are from real data in distribution (KID, KD).

    This is the squared maximum mean discrepancy, unbiased: mean k(x_i, x_j) + mean k(y_i, y_j)
    - 2 mean k(x_i, y_j), without pairs of a row with itself, and k(a, b) = (a.b / d + 1)^3
    (Binkowski et al., 2018). The usual mean over random subsets of a thousand rows has the same
    expectation. Here all pairs count, so the result is deterministic, and the standard error
    follows from sums that are computed anyway. Papers often print the distance times 100 or 1000.

    O((n + m)^2 d) in double precision; memory for blocks of rows.

    Parameters
    ----------
    x : array, shape (n, d)
        Embeddings of outputs; at least three.
    reference : array, shape (m, d)
        Embeddings of real data by the same embedder; at least three.

    Returns
    -------
    KernelDistance

    Raises
    ------
    DataError
        If a set is too small, widths differ, or kernel values overflow.

    Examples
    --------
    The kernel is 1 between any number and 0, and 8 between ones, so 1 + 8 - 2 x 1:

    >>> float(kernel_distance([[0.0]] * 3, [[1.0]] * 3))
    7.0
    """
    x, reference = _same_width(x, reference)
    n, m = int(x.shape[0]), int(reference.shape[0])
    for size, name in ((n, "x"), (m, "reference")):
        # The jackknife leaves out one row, and a mean over pairs of different rows needs two more.
        if size < 3:
            raise DataError(
                f"`{name}` must have at least 3 rows for a distance with an error; got {size}."
            )
    # Overflow leaves infinities or NaN, which are reported below with a way out.
    with np.errstate(over="ignore", invalid="ignore"):
        within_x = _sums_within(x)
        within_reference = _sums_within(reference)
        x_to_reference = _kernel_sums(x, reference)
        reference_to_x = _kernel_sums(reference, x)
    totals = [within_x.sum(), within_reference.sum(), x_to_reference.sum()]
    if not np.isfinite(totals).all():
        raise DataError("kernel values between rows overflow. Rescale the embeddings.")
    value = totals[0] / (n * (n - 1)) + totals[1] / (m * (m - 1)) - 2 * totals[2] / (n * m)
    # The sets are independent of each other, so their variances add up.
    variance = _jackknife_variance(within_x, x_to_reference, m)
    variance += _jackknife_variance(within_reference, reference_to_x, n)
    return KernelDistance(float(value), math.sqrt(variance), n, m)


def _kernel_sums(a: Array, b: Array) -> np.ndarray:
    """sum_j (a_i . b_j / d + 1)^3 for each row i."""
    xp = array_namespace(a)
    # The distance is a small difference of large means of cubes: single precision would leave no
    # digit of it.
    right = xp.astype(b, xp.float64, copy=False).T
    sums = []
    for rows in row_blocks(a.shape[0]):
        left = xp.astype(a[rows, :], xp.float64, copy=False)
        kernel = (left @ right / a.shape[1] + 1) ** 3
        sums.append(to_numpy(xp.sum(kernel, axis=1)))
    return np.concatenate(sums)


def _sums_within(a: Array) -> np.ndarray:
    """sum over j other than i of (a_i . a_j / d + 1)^3 for each row i."""
    xp = array_namespace(a)
    own = []
    for rows in row_blocks(a.shape[0]):
        left = xp.astype(a[rows, :], xp.float64, copy=False)
        # The kernel of a row with itself is at least 1, and would bias the distance upwards.
        own.append(to_numpy((xp.sum(left * left, axis=1) / a.shape[1] + 1) ** 3))
    return _kernel_sums(a, a) - np.concatenate(own)


def _jackknife_variance(within: np.ndarray, across: np.ndarray, num_others: int) -> float:
    """Return the variance of the distance that one set causes, from leaving out each of its rows.

    `within` and `across` are the kernel sums of each row over its own set, and over the
    `num_others` rows of the other one.
    """
    n = within.size
    # A row leaves the sum within its set twice: as a row and as a column.
    mean_within = (within.sum() - 2 * within) / ((n - 1) * (n - 2))
    mean_across = (across.sum() - across) / ((n - 1) * num_others)
    left_out = mean_within - 2 * mean_across
    # (n - 1) / n times the sum of squared deviations; var() has the 1 / n.
    return float((n - 1) * left_out.var())


def alignment(x: Array, t: Array, *, scale: float = 100.0) -> float:
    """Return how well outputs follow their prompts: the mean of scale x max(0, cosine) over pairs.

    This is CLIPScore (Hessel et al., 2021). With `scale` 100, as in the tables of Conditional Vendi
    and in common libraries, CLIP embeddings score 20 to 35; the paper that introduced it uses 2.5.
    Negative cosines count as zero, pair by pair. O(n d).

    Parameters
    ----------
    x : array, shape (n, d)
        Embeddings of outputs.
    t : array, shape (n, d)
        Embeddings of their prompts by a model that embeds both in one space, such as CLIP or
        SigLIP.
    scale : float
        The score of a cosine of one.

    Returns
    -------
    float
        Between 0 and `scale`.

    Raises
    ------
    DataError, ArgumentError
        If the sets do not pair up, a row is all zeros, or `scale` is not positive.

    Examples
    --------
    One output points in the direction of its prompt, the other at a right angle to it:

    >>> alignment([[2.0, 0.0], [1.0, 0.0]], [[1.0, 0.0], [0.0, 3.0]])
    50.0
    """
    # bool is an int, and a scale of True is a mistake.
    is_number = isinstance(scale, int | float | np.number) and not isinstance(scale, bool)
    if not is_number or not 0 < scale < math.inf:
        raise ArgumentError(f"`scale` must be a positive number; got {scale!r}.")
    x, t = _same_width(x, t, "t")
    check_pairing(x.shape[0], t.shape[0], "t")
    # Clipped from above as well: rounding may put the cosine of equal directions above one.
    cosines = array_namespace(x).vecdot(_directions(x, "x"), _directions(t, "t"))
    return float(scale * np.clip(to_numpy(cosines), 0.0, 1.0).mean())


def in_batch_similarity(x: Array, t: Array | None = None) -> float:
    """Return how alike the outputs of one prompt are: their mean cosine, averaged over prompts.

    A column of Conditional Vendi, Table 1 (App. E.3 takes it from Corso et al., 2024). Prompts with
    a single output are left out; all other prompts have equal weight, whatever their number of
    outputs. O(n d).

    Parameters
    ----------
    x : array, shape (n, d)
        Embeddings of outputs.
    t : ids, length n, or array, shape (n, e), optional
        Their prompts: texts, whole numbers, or embeddings, of which equal rows are one prompt; or
        the number of the batch that an output was generated in. Default: all outputs are one
        batch, which is the expectation over random batches, whatever their size. So outputs of
        prompts with one output each are compared (Conditional Vendi, Table 1 and App. E.3, does
        not say what its batches are).

    Returns
    -------
    float
        Between -1 and 1: low is diverse.

    Raises
    ------
    DataError
        If the sets do not pair up, a row is all zeros, or no prompt has two outputs.

    Examples
    --------
    Copies under one prompt, a right angle under the other:

    >>> x = [[1.0, 0.0], [2.0, 0.0], [1.0, 0.0], [0.0, 1.0]]
    >>> in_batch_similarity(x, ["a dog", "a dog", "a cat", "a cat"])
    0.5
    """
    x = clean_rows(x, "x")
    codes: np.ndarray | None = np.zeros(x.shape[0], dtype=int)
    if t is not None:
        codes = clean_ids(t, "t")
    if codes is None:
        _, codes = distinct_rows(clean_rows(t, "t"))
    check_pairing(x.shape[0], codes.size, "t")
    # Sorted by prompt, the outputs of each are consecutive, as reduceat needs them.
    order = np.argsort(codes, kind="stable")
    _, starts, sizes = np.unique(codes[order], return_index=True, return_counts=True)
    if sizes.max() < 2:
        raise DataError(
            f"each of the {sizes.size:,} prompts has a single output. "
            "Similarity needs at least one prompt with two outputs."
        )
    # The cosines of a prompt add up to the squared length of the sum of its unit rows, of which
    # each row contributes one with itself.
    sums = np.add.reduceat(to_numpy(_directions(x, "x"))[order], starts, axis=0)
    several = sizes > 1
    cosine_sums = (np.einsum("ij,ij->i", sums, sums) - sizes)[several]
    num_pairs = (sizes * (sizes - 1.0))[several]
    return float((cosine_sums / num_pairs).mean())


def recall(x: Array, reference: Array, *, num_neighbours: int = 3) -> float:
    """Return the share of real data that the outputs reach: real rows in the manifold of outputs.

    The manifold is the union of balls around the outputs, each of which reaches to the
    `num_neighbours`-th nearest other output (Kynkaanniemi et al., 2019, borders included). With the
    arguments swapped it is precision. A single outlier among the outputs has a large ball and can
    raise recall; `coverage` is robust to that. O(n (n + m) d); memory for blocks of rows.

    Parameters
    ----------
    x : array, shape (n, d)
        Embeddings of outputs.
    reference : array, shape (m, d)
        Embeddings of real data by the same embedder.
    num_neighbours : int
        The neighbour that the balls reach to, from 1 to n - 1.

    Returns
    -------
    float
        Between 0 and 1.

    Raises
    ------
    DataError, ArgumentError
        If widths differ, or a row has fewer than `num_neighbours` others.

    Examples
    --------
    Every ball has radius 1, and one of the two real numbers lies in a ball:

    >>> recall([[0.0], [1.0], [2.0], [3.0]], [[0.5], [10.0]], num_neighbours=1)
    0.5
    """
    x, reference = _comparable(x, reference)
    # A radius per column, because the balls are around the outputs; `coverage` has one per row.
    radii = _squared_radii(x, num_neighbours, "x")[None, :]
    reached = []
    for rows in row_blocks(reference.shape[0]):
        reached.append(_within(reference[rows, :], x, radii).any(axis=1))
    return float(np.concatenate(reached).mean())


def coverage(x: Array, reference: Array, *, num_neighbours: int = 5) -> float:
    """Return the share of real data with an output nearby.

    An output is near a real row if it lies in the ball around that row that reaches to its
    `num_neighbours`-th nearest other real row (Naeem et al., 2020, borders included). Balls are
    around real data, so outliers among the outputs have no effect. O(m (n + m) d); memory for
    blocks of rows.

    Parameters
    ----------
    x : array, shape (n, d)
        Embeddings of outputs.
    reference : array, shape (m, d)
        Embeddings of real data by the same embedder.
    num_neighbours : int
        The neighbour that the balls reach to, from 1 to m - 1.

    Returns
    -------
    float
        Between 0 and 1. For outputs that follow the distribution of real data it is expected to be
        1 - 2^-num_neighbours, for large n = m.

    Raises
    ------
    DataError, ArgumentError
        If widths differ, or a row has fewer than `num_neighbours` others.

    Examples
    --------
    Every ball has radius 1, and the output lies in those around 0 and 1:

    >>> coverage([[0.5]], [[0.0], [1.0], [2.0], [3.0]], num_neighbours=1)
    0.5
    """
    x, reference = _comparable(x, reference)
    radii = _squared_radii(reference, num_neighbours, "reference")[:, None]
    covered = []
    for rows in row_blocks(reference.shape[0]):
        covered.append(_within(reference[rows, :], x, radii[rows]).any(axis=1))
    return float(np.concatenate(covered).mean())


def _same_width(x: Array, other: Array, name: str = "reference") -> tuple[Array, Array]:
    """Return both sets as clean rows of one width, in one library."""
    x = clean_rows(x, "x")
    other = like(clean_rows(other, name), x, name)
    if x.shape[1] != other.shape[1]:
        raise DataError(
            f"`x` and `{name}` must come from one embedder; "
            f"got rows of width {x.shape[1]:,} and {other.shape[1]:,}."
        )
    return x, other


def _directions(x: Array, name: str) -> Array:
    """Return unit rows in double precision, and refuse rows of zeros, which have no direction."""
    xp = array_namespace(x)
    zero_rows = np.flatnonzero(to_numpy(xp.max(xp.abs(x), axis=1)) == 0)
    if zero_rows.size:
        raise DataError(
            f"row {zero_rows[0]} of `{name}` is all zeros, "
            "so its cosine with any row is undefined. Drop it."
        )
    return Cosine().points(x, xp.float64, name).rows


def _comparable(x: Array, reference: Array) -> tuple[Array, Array]:
    """Return both sets in double precision, in units in which no squared distance overflows."""
    x, reference = _same_width(x, reference)
    xp = array_namespace(x)
    x, reference = xp.astype(x, xp.float64), xp.astype(reference, xp.float64)
    # All zeros have the exponent 0, and the unit is 1.
    largest = max(float(xp.max(xp.abs(x))), float(xp.max(xp.abs(reference))))
    # A power of two changes no digit.
    unit = 2.0 ** -math.frexp(largest)[1]
    return x * unit, reference * unit


def _squared_radii(rows: Array, num_neighbours: int, name: str) -> np.ndarray:
    """Return the squared distance of each row to its `num_neighbours`-th nearest other row."""
    num_neighbours = whole_number(num_neighbours, "num_neighbours", 1)
    n = int(rows.shape[0])
    if num_neighbours >= n:
        raise DataError(
            f"{n:,} rows of `{name}` have at most {n - 1:,} neighbours each; "
            f"got `num_neighbours` {num_neighbours}."
        )
    radii = []
    for block in row_blocks(n):
        squares, _ = _host_distances(rows[block, :], rows)
        # Index 0 is the row itself, or a copy of it, at distance zero.
        # A copy, because a view would keep the indices of the whole block in memory.
        neighbours = np.argpartition(squares, num_neighbours, axis=1)[:, num_neighbours].copy()
        own = np.arange(block.start, block.start + neighbours.size)
        # From differences: a radius decides ties exactly, and the product may round.
        radii.append(_host_gaps(rows, rows, own, neighbours))
    return np.concatenate(radii)


def _within(a: Array, b: Array, squared_radii: np.ndarray) -> np.ndarray:
    """Whether |a_i - b_j|^2 is at most the squared radius, borders included.

    Pairs that the rounding of the product leaves open are decided by differences.
    """
    squares, norms = _host_distances(a, b)
    is_inside = squares <= squared_radii
    margin = _ROUNDING * norms + _BORDER * squared_radii
    left, right = np.nonzero(np.abs(squares - squared_radii) <= margin)
    if left.size:
        # On a grid many rows lie exactly on a border; rounding must not put some of them outside.
        limits = np.broadcast_to(squared_radii, squares.shape)[left, right] * (1 + _BORDER)
        is_inside[left, right] = _host_gaps(a, b, left, right) <= limits
    return is_inside


def _host_distances(a: Array, b: Array) -> tuple[np.ndarray, np.ndarray]:
    """|a_i - b_j|^2 in host memory, and the squared norms that its rounding grows with.

    The product is taken around the mean of b, far from which there are few rows.
    """
    centre = array_namespace(b).mean(b, axis=0)
    squares, norms = squared_distances(a, b, centre=centre)
    return to_numpy(squares), to_numpy(norms)


def _host_gaps(a: Array, b: Array, left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """|a_i - b_j|^2 in host memory for some pairs, from differences of the rows as given."""
    return to_numpy(squared_gaps(a, b, upload(left, a), upload(right, b)))
