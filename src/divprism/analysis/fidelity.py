"""What stands beside diversity in tables: distance to real data, alignment, similarity in a batch, recall, coverage.

Kernel distance, alignment and in-batch similarity are columns of Conditional Vendi, Tables 1 and 3; recall and coverage are
columns of Truncated Vendi, Tables 1 and 2. All of them take embeddings, and what they say depends on the embedder.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from divprism.core.arrays import Array, array_namespace, distinct_rows, to_numpy, upload
from divprism.core.distances import squared_distances, squared_gaps
from divprism.core.kernels import Cosine
from divprism.core.tiles import row_blocks
from divprism.core.validation import check_pairing, clean_ids, clean_rows, like
from divprism.errors import ArgumentError, DataError

__all__ = [
    "KernelDistance",
    "alignment",
    "coverage",
    "in_batch_similarity",
    "kernel_distance",
    "recall",
]

_ROUNDING = 1e-12  # of the squared norms: what a product of rows may be off by
_BORDER = 1e-12  # of a squared distance: what rounding of the data may put a border off by


@dataclass(frozen=True)
class KernelDistance:
    """A kernel distance with its error; float() gives the distance.

    Attributes
    ----------
    value : float
        The unbiased estimate: near zero, and as often below as above it, where both sets follow one distribution.
    standard_error : float
        By the jackknife over the rows of both sets. Right where the distributions differ; where they agree it is too large,
        by a factor of sqrt(2).
    n, n_reference : int
        Rows of either set.
    """

    value: float
    standard_error: float
    n: int
    n_reference: int

    def __float__(self) -> float:
        return self.value


def kernel_distance(x: Any, reference: Any) -> KernelDistance:
    """How far outputs are from real data in distribution: the squared maximum mean discrepancy, unbiased (KID, KD).

    mean k(x_i, x_j) + mean k(y_i, y_j) - 2 mean k(x_i, y_j), no row with itself, with k(a, b) = (a.b / d + 1)^3
    (Binkowski et al., 2018). The usual mean over random subsets of a thousand rows has the same expectation; here all pairs are
    used, which leaves nothing to chance, and the standard error follows from sums that are there anyway. Papers tend to print
    it times 100 or 1000.

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
        if size < 3:
            raise DataError(
                f"`{name}` must have at least 3 rows for a distance with an error; got {size}."
            )
    with np.errstate(over="ignore", invalid="ignore"):  # what overflows is looked for below
        own, cross = _kernel_sums(x, x, among=True), _kernel_sums(x, reference)
        other, back = _kernel_sums(reference, reference, among=True), _kernel_sums(reference, x)
    if not np.isfinite([own.sum(), other.sum(), cross.sum()]).all():
        raise DataError("kernel values between rows overflow. Rescale the embeddings.")
    value = own.sum() / (n * (n - 1)) + other.sum() / (m * (m - 1)) - 2 * cross.sum() / (n * m)
    spread = _jackknife_variance(own, cross, m) + _jackknife_variance(other, back, n)
    return KernelDistance(float(value), math.sqrt(spread), n, m)


def _kernel_sums(a: Array, b: Array, among: bool = False) -> np.ndarray:
    """sum_j (a_i . b_j / d + 1)^3 for each row i; `among` the rows of one set, without the row itself."""
    xp = array_namespace(a)
    right = xp.astype(b, xp.float64, copy=False).T
    found = []
    for rows in row_blocks(a.shape[0]):
        left = xp.astype(a[rows, :], xp.float64, copy=False)
        sums = xp.sum((left @ right / a.shape[1] + 1) ** 3, axis=1)
        if among:
            sums = sums - (xp.sum(left * left, axis=1) / a.shape[1] + 1) ** 3
        found.append(to_numpy(sums))
    return np.concatenate(found)


def _jackknife_variance(own: np.ndarray, cross: np.ndarray, others: int) -> float:
    """Variance of the distance due to one set, from what it is without each of its rows in turn.

    `own` and `cross` are the kernel sums of each row over its own set, and over the `others` rows of the other one.
    """
    n = own.size
    left = (own.sum() - 2 * own) / ((n - 1) * (n - 2)) - 2 * (cross.sum() - cross) / (
        (n - 1) * others
    )
    return float((n - 1) * left.var())


def alignment(x: Any, t: Any, *, scale: float = 100.0) -> float:
    """How well outputs follow their prompts: the mean of scale x max(0, cosine) over pairs (CLIPScore, Hessel et al., 2021).

    With `scale` 100, as in the tables of Conditional Vendi and in common libraries, CLIP's outputs score 20 to 35; the paper
    that introduced it has 2.5. Negative cosines count as zero, pair by pair. O(n d).

    Parameters
    ----------
    x : array, shape (n, d)
        Embeddings of outputs.
    t : array, shape (n, d)
        Embeddings of their prompts, from the same model, so that cosines between the two mean something: CLIP, SigLIP.
    scale : float
        What a cosine of one scores.

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
    One output points where its prompt does, the other at a right angle to it:

    >>> alignment([[2.0, 0.0], [1.0, 0.0]], [[1.0, 0.0], [0.0, 3.0]])
    50.0
    """
    if (
        isinstance(scale, bool)
        or not isinstance(scale, int | float | np.number)
        or not 0 < scale < math.inf
    ):
        raise ArgumentError(f"`scale` must be a positive number; got {scale!r}.")
    x, t = _same_width(x, t, "t")
    check_pairing(x.shape[0], t.shape[0], "t")
    cosines = array_namespace(x).vecdot(_directions(x, "x"), _directions(t, "t"))
    return float(scale * np.clip(to_numpy(cosines), 0.0, 1.0).mean())


def in_batch_similarity(x: Any, t: Any) -> float:
    """How alike the outputs of one prompt are: the mean cosine between two of them, averaged over prompts.

    A column of Conditional Vendi, Table 1 (App. E.3 takes it from Corso et al., 2024). Prompts with a single output say nothing
    and are left out; every other prompt counts alike, however many outputs it has. O(n d): the cosines of a prompt add up to
    the squared length of the sum of its unit rows.

    Parameters
    ----------
    x : array, shape (n, d)
        Embeddings of outputs.
    t : ids, length n, or array, shape (n, e)
        Their prompts: texts, whole numbers, or embeddings, of which equal rows are one prompt.

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

    >>> in_batch_similarity([[1.0, 0.0], [2.0, 0.0], [1.0, 0.0], [0.0, 1.0]], ["a dog", "a dog", "a cat", "a cat"])
    0.5
    """
    x = clean_rows(x, "x")
    codes = clean_ids(t, "t")
    if codes is None:
        codes = distinct_rows(clean_rows(t, "t"))[1]
    check_pairing(x.shape[0], codes.size, "t")
    order = np.argsort(codes, kind="stable")
    _, starts, sizes = np.unique(codes[order], return_index=True, return_counts=True)
    if sizes.max() < 2:
        raise DataError(
            f"each of the {sizes.size:,} prompts has a single output. Similarity needs two outputs of a prompt."
        )
    sums = np.add.reduceat(to_numpy(_directions(x, "x"))[order], starts, axis=0)
    several = sizes > 1
    pairs = (np.einsum("ij,ij->i", sums, sums) - sizes)[several] / (sizes * (sizes - 1.0))[several]
    return float(pairs.mean())


def recall(x: Any, reference: Any, *, num_neighbours: int = 3) -> float:
    """Which part of real data the outputs reach: the share of real rows inside the manifold of outputs.

    The manifold is the union of a ball around each output that reaches to its `num_neighbours`-th nearest other output
    (Kynkaanniemi et al., 2019, borders included). With the arguments exchanged it is precision. A single stray output has a
    large ball and can raise it; `coverage` is not open to that. O(n (n + m) d); memory for blocks of rows.

    Parameters
    ----------
    x : array, shape (n, d)
        Embeddings of outputs.
    reference : array, shape (m, d)
        Embeddings of real data by the same embedder.
    num_neighbours : int
        Which neighbour the balls reach to: from 1 to n - 1.

    Returns
    -------
    float
        Between 0 and 1.

    Raises
    ------
    DataError, ArgumentError
        If widths differ, or there are too few rows for so many neighbours.

    Examples
    --------
    Every ball has radius 1, and of two real numbers one lies in a ball:

    >>> recall([[0.0], [1.0], [2.0], [3.0]], [[0.5], [10.0]], num_neighbours=1)
    0.5
    """
    x, reference = _comparable(x, reference)
    reach = _radii(x, num_neighbours, "x")[None, :]
    reached = [
        _within(reference[rows, :], x, reach).any(axis=1) for rows in row_blocks(reference.shape[0])
    ]
    return float(np.concatenate(reached).mean())


def coverage(x: Any, reference: Any, *, num_neighbours: int = 5) -> float:
    """Which part of real data has an output nearby: the share of real rows with one in their own neighbourhood.

    The neighbourhood of a real row is a ball that reaches to its `num_neighbours`-th nearest other real row (Naeem et al.,
    2020, borders included). Balls are around real data, so stray outputs do no harm. O(m (n + m) d); memory for blocks of rows.

    Parameters
    ----------
    x : array, shape (n, d)
        Embeddings of outputs.
    reference : array, shape (m, d)
        Embeddings of real data by the same embedder.
    num_neighbours : int
        Which neighbour the balls reach to: from 1 to m - 1.

    Returns
    -------
    float
        Between 0 and 1. Expected for outputs that follow the distribution of real data, n = m large: 1 - 2^-num_neighbours.

    Raises
    ------
    DataError, ArgumentError
        If widths differ, or there are too few rows for so many neighbours.

    Examples
    --------
    Every ball has radius 1, and the output lies in those around 0 and 1:

    >>> coverage([[0.5]], [[0.0], [1.0], [2.0], [3.0]], num_neighbours=1)
    0.5
    """
    x, reference = _comparable(x, reference)
    reach = _radii(reference, num_neighbours, "reference")[:, None]
    covered = [
        _within(reference[rows, :], x, reach[rows]).any(axis=1)
        for rows in row_blocks(reference.shape[0])
    ]
    return float(np.concatenate(covered).mean())


def _same_width(x: Any, other: Any, name: str = "reference") -> tuple[Array, Array]:
    """Both sets as clean rows of one width, in one library."""
    x = clean_rows(x, "x")
    other = like(clean_rows(other, name), x, name)
    if x.shape[1] != other.shape[1]:
        raise DataError(
            f"`x` and `{name}` must come from one embedder; got rows of width {x.shape[1]:,} and {other.shape[1]:,}."
        )
    return x, other


def _directions(x: Array, name: str) -> Array:
    """Unit rows in double precision; a row of zeros points nowhere."""
    xp = array_namespace(x)
    zero = np.flatnonzero(to_numpy(xp.max(xp.abs(x), axis=1)) == 0)
    if zero.size:
        raise DataError(
            f"row {zero[0]} of `{name}` is all zeros, so its cosine with any row is undefined. Drop it."
        )
    return Cosine().points(x, xp.float64, name).rows


def _comparable(x: Any, reference: Any) -> tuple[Array, Array]:
    """Both sets in double precision, in units in which no squared distance overflows: a power of two, so no digit changes."""
    x, reference = _same_width(x, reference)
    xp = array_namespace(x)
    sets = [xp.astype(x, xp.float64), xp.astype(reference, xp.float64)]
    unit = 2.0 ** -math.frexp(max(float(xp.max(xp.abs(one))) for one in sets))[1]
    return sets[0] * unit, sets[1] * unit


def _radii(rows: Array, num_neighbours: Any, name: str) -> np.ndarray:
    """Squared distance of each row to its `num_neighbours`-th nearest other row."""
    if (
        not isinstance(num_neighbours, int | np.integer)
        or isinstance(num_neighbours, bool)
        or num_neighbours < 1
    ):
        raise ArgumentError(
            f"`num_neighbours` must be a whole number of at least 1; got {num_neighbours!r}."
        )
    n = int(rows.shape[0])
    if num_neighbours >= n:
        raise DataError(
            f"{n:,} rows of `{name}` have at most {n - 1:,} neighbours each; got `num_neighbours` {num_neighbours}."
        )
    found = []
    for part in row_blocks(n):
        squares, _ = _squared_distances(rows[part, :], rows)
        # the nearest of all is the row itself, or a copy of it, at distance zero
        places = np.argpartition(squares, num_neighbours, axis=1)[:, num_neighbours].copy()
        found.append(
            _squared_gaps(rows, rows, np.arange(part.start, part.start + places.size), places)
        )
    return np.concatenate(found)


def _within(a: Array, b: Array, reach: np.ndarray) -> np.ndarray:
    """Whether |a_i - b_j|^2 <= reach, borders included: what a product leaves open is decided by differences."""
    squares, norms = _squared_distances(a, b)
    inside = squares <= reach
    left, right = np.nonzero(np.abs(squares - reach) <= _ROUNDING * norms + _BORDER * reach)
    if left.size:
        reach = np.broadcast_to(reach, squares.shape)[left, right]
        inside[left, right] = _squared_gaps(a, b, left, right) <= reach * (1 + _BORDER)
    return inside


def _squared_distances(a: Array, b: Array) -> tuple[np.ndarray, np.ndarray]:
    """|a_i - b_j|^2 on the host, and the squared norms around the mean of b that its rounding grows with."""
    squares, norms = squared_distances(a, b, centre=array_namespace(b).mean(b, axis=0))
    return to_numpy(squares), to_numpy(norms)


def _squared_gaps(a: Array, b: Array, left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """|a_i - b_j|^2 for some pairs, on the host, from differences of the rows as they are."""
    return to_numpy(squared_gaps(a, b, upload(left, a), upload(right, b)))
