"""Value and gradient of a diversity score with respect to new samples, in closed form, on any array library.

With K_X and K_T the kernel matrices of samples and prompts, J = K_X o K_T and M = J / n, a score depends on the new sample a
through row and column a of K_X alone. So its gradient is (Conditional Vendi, eq. 27)

    sum_j C_aj grad k(x_a, x_j),    C = 2 / n (dH / dM) o K_T,

where for order 2 dH / dM = -2 M / |M|^2, and otherwise V diag(slopes) V^T with the eigenvectors V of M (eq. 24, 26). Prompts
have no gradient, and a bandwidth that is read off the samples is held constant in it.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from divprism.core.arrays import (
    Array,
    array_namespace,
    device_of,
    eigvalsh,
    outer_take,
    plain_mode,
    to_numpy,
    upload,
)
from divprism.core.entropy import entropy_slopes, renyi_entropy
from divprism.core.kernels import Cosine, Gaussian, Kernel
from divprism.core.spectrum import Spectrum
from divprism.core.tiles import row_blocks
from divprism.errors import ArgumentError, DataError
from divprism.guidance import objectives
from divprism.guidance._pairs import weighted_sums
from divprism.guidance._pool import Pool, Side, pose
from divprism.guidance.objectives import Objective

__all__ = ["Gradient", "marginal_gain", "score_gradient"]

_FAR = 0.1  # squared distances this far below the squared norms are those of samples far from the origin


@dataclass(frozen=True, eq=False)
class Gradient:
    """A score and the direction in which it grows.

    Attributes
    ----------
    value : float
        The score of all samples, or its logarithm.
    gradient : array
        Its derivative in each new sample, in their shape, library and dtype.
    kernel_x, kernel_t : Kernel
        What was used, with the bandwidths of this call; None for `kernel_t` if prompts do not matter.
    """

    value: float
    gradient: Array
    kernel_x: Kernel
    kernel_t: Kernel | None


def score_gradient(
    x: Any,
    t: Any = None,
    *,
    bank: Any = None,
    score: Objective | str = "conditional_rke",
    kernel_x: Kernel | None = None,
    kernel_t: Kernel | None = None,
    log: bool = True,
) -> Gradient:
    """Value of a score of new and earlier samples together, and its gradient with respect to the new ones.

    Any subset of samples can be the new ones: the others are the bank. A step of size e along the gradient raises the score
    by e |gradient|^2 at first. Exact copies do not part: by symmetry the gradient between them is zero, as it is between
    samples too far apart for the kernel to see.

    Costs O(n d) for each new sample at order 2, once the bank has kept its own distances (see `Bank`), and O(n^2) where the
    bandwidth is new, as by the median rule; other orders, and truncation, add O(n^3) for eigenvectors. New samples are rounded
    as the bank stores its own, so that copies are copies. Rows are multiplied and added up in double precision if `x` is, or if
    eigenvectors are needed; else in single, but kernel values always in double. Autocast is left outside. Memory: blocks of
    rows, and in the bank 8 n^2 bytes, for conditional scores twice that.

    Parameters
    ----------
    x : array, shape (b, ...)
        New samples, of any shape, as NumPy, torch or any library of the array API standard.
    t : array, shape (b, ...), or ids, length b
        Their prompts: embeddings, or whole numbers or texts; conditional scores only. Rounded as the bank stores them, so that
        equal prompts stay equal.
    bank : Bank, array, or pair of arrays
        Earlier samples, or earlier samples and prompts. A `Bank` keeps what it computes for the next call.
    score : Objective or str
        What to climb: "vendi", "rke", "conditional_vendi" or "conditional_rke", with settings as in
        "conditional_vendi(truncation=50)", or an `Objective`.
    kernel_x, kernel_t : Gaussian or Cosine; for prompts also Categorical
        None takes a Gaussian with the median distance between distinct samples of bank and batch at this very call, for ids
        Categorical.
    log : bool
        Whether to take the logarithm of the score: the entropy, in nats. The gradient of the score itself is this one times
        the score (Conditional Vendi, eq. 25).

    Returns
    -------
    Gradient
        In the dtype of `x`. In half precision small gradients become zero and entries beyond its range the largest number
        in it; pass single precision where that matters.

    Raises
    ------
    DataError, ArgumentError
        If samples, prompts and bank do not fit together, or a row is all zeros under Cosine.

    Examples
    --------
    Two samples push each other apart along the line between them:

    >>> pair = score_gradient(np.array([[0.0, 0.0], [1.0, 0.0]]), score="rke", kernel_x=Gaussian(1.0))
    >>> round(math.exp(pair.value), 6) == round(2 / (1 + math.exp(-1)), 6)
    True
    >>> pair.gradient.round(3)
    array([[-0.538,  0.   ],
           [ 0.538,  0.   ]])
    """
    with plain_mode():
        pool = pose(x, t, bank, _objective(score), kernel_x, kernel_t)
        value, coupling = _by_squares(pool) if pool.score.by_squares else _by_eigenvectors(pool)
        gradient = (
            _gaussian(pool, coupling)
            if isinstance(pool.x.kernel, Gaussian)
            else _cosine(pool, coupling)
        )
        factor = 1.0 if log else math.exp(value)
        kernel_t = None if pool.t is None else pool.t.kernel
        return Gradient(
            value if log else factor, _like_input(factor * gradient, pool), pool.x.kernel, kernel_t
        )


def marginal_gain(
    x: Any,
    t: Any = None,
    *,
    bank: Any = None,
    score: Objective | str = "conditional_rke",
    kernel_x: Kernel | None = None,
    kernel_t: Kernel | None = None,
    log: bool = True,
) -> Array:
    """What each new sample brings: the score of all samples, less the score of all but this one. A reward.

    Each is judged beside the bank and the rest of the batch, so that copies in a batch earn nothing from each other; to judge
    a sample beside the bank alone, pass it alone. Both scores have the same kernels, with a bandwidth from all samples. For
    conditional scores the prompt leaves with the sample, and the gain may be negative.

    O(n d) for each new sample at order 2; otherwise an eigenvalue problem, O(n^3), for each.

    Parameters
    ----------
    x, t, bank, score, kernel_x, kernel_t, log
        As in `score_gradient`. With `log` the gain is the difference of the logarithms.

    Returns
    -------
    array of float64, shape (b,)
        In the library of `x`.

    Examples
    --------
    A third direction adds one to two, a copy of the first takes from them:

    >>> axes = np.eye(3)
    >>> [marginal_gain(new[None], bank=axes[:2], score="rke", kernel_x=Cosine(), log=False).round(3)[0] for new in axes[[2, 0]]]
    [np.float64(1.0), np.float64(-0.2)]
    """
    with plain_mode():
        pool = pose(x, t, bank, _objective(score), kernel_x, kernel_t)
        if pool.n < 2:
            raise DataError(
                "a gain needs at least two samples, new or in the bank: nothing has no score."
            )
        total, left = _squared_gains(pool) if pool.score.by_squares else _spectral_gains(pool)
        gains = total - left if log else math.exp(total) - np.exp(left)
        return upload(gains, pool.new)


def _objective(score: Any) -> Objective:
    if isinstance(score, str):
        return objectives.objective(score)
    if not isinstance(score, Objective):
        raise ArgumentError(
            f"`score` must be a name such as 'conditional_rke', or an Objective; got {score!r}."
        )
    return score


def _squared_sum(pool: Pool, sides: list[Side], values: Array) -> float:
    """|K|^2 of the product of some sides over all samples; the part of the bank is kept with the bank."""
    xp = array_namespace(values)

    def own() -> float:
        total = 0.0
        for rows in row_blocks(pool.m):  # the diagonal block, and twice what is right of it
            square = pool.own(sides, rows, slice(rows.start, rows.stop))
            total += float(xp.sum(square * square))
            if rows.stop < pool.m:
                right = pool.own(sides, rows, slice(rows.stop, pool.m))
                total += 2 * float(xp.sum(right * right))
        return total

    kept = (
        0.0
        if pool.bank is None
        else pool.bank.kept(tuple((side.name, side.kernel) for side in sides), own)
    )
    cross, among = values[:, : pool.m], values[:, pool.m :]
    return float(kept) + 2 * float(xp.sum(cross * cross)) + float(xp.sum(among * among))


def _by_squares(pool: Pool) -> tuple[float, Array]:
    """Log of the score at order 2, |K_T|^2 / |J|^2 (n^2 / |K_X|^2 without prompts), and its derivative in K_X as C above."""
    total = _squared_sum(pool, pool.sides, pool.joint)
    prompts = pool.n**2 if pool.t is None else _squared_sum(pool, [pool.t], pool.t.values)
    return math.log(prompts) - math.log(total), _coupling(pool, pool.joint * (-4 / total))


def _by_eigenvectors(pool: Pool) -> tuple[float, Array]:
    """Log of the score at any order, and its derivative in K_X as C above."""
    matrix = pool.whole(pool.sides, pool.joint)
    values, vectors = array_namespace(matrix).linalg.eigh(matrix)
    entropy, slopes = entropy_slopes(to_numpy(values), pool.score.order, pool.score.truncation)
    rows = (vectors[pool.m :, :] * upload(slopes, matrix)) @ vectors.T
    if pool.t is not None:
        entropy -= _entropy(pool.whole([pool.t], pool.t.values), pool.score)
    return entropy, _coupling(pool, rows * (2 / pool.n))


def _coupling(pool: Pool, slopes: Array) -> Array:
    """Derivative in the product of the kernels -> derivative in K_X, without that of the diagonal, which does not move."""
    xp = array_namespace(slopes)
    elsewhere = 1 - xp.eye(*slopes.shape, k=pool.m, dtype=slopes.dtype, device=device_of(slopes))
    return slopes * elsewhere if pool.t is None else slopes * elsewhere * pool.t.values


def _entropy(matrix: Array, score: Objective) -> float:
    spectrum = Spectrum.from_eigenvalues(eigvalsh(matrix), noise=0.0, method="exact")
    return renyi_entropy(spectrum, score.order, score.truncation)


def _gaussian(pool: Pool, coupling: Array) -> Array:
    """sum_j C_aj grad k(x_a, x_j) with grad k = -k (x_a - x_j) / bandwidth^2."""
    assert isinstance(pool.x.kernel, Gaussian)
    xp, width = array_namespace(coupling), pool.x.kernel.bandwidth
    weights = coupling * pool.x.values
    far = _are_far(pool, weights)
    dtype = xp.float64 if far else pool.precision
    centre = xp.mean(xp.astype(pool.new, dtype), axis=0)

    def ready(rows: Array) -> Array:
        rows = xp.astype(rows, dtype, copy=False)
        return rows - centre if far else rows

    weights = xp.astype(weights, dtype)
    slopes = _sums(pool, weights, ready) - xp.sum(weights, axis=1)[:, None] * ready(pool.new)
    with np.errstate(over="ignore"):  # what is beyond the range is cut to it below
        return slopes / width / width  # the square of a bandwidth may be none


def _are_far(pool: Pool, weights: Array) -> bool:
    """Whether the samples that matter to each other are near each other and far from the origin.

    Their differences would lose digits, so those are then taken in double precision, around the mean of the new ones.
    """
    assert isinstance(pool.x.kernel, Gaussian)
    xp, values = array_namespace(weights), pool.x.values
    seen = values > 0
    exponents = -xp.log(
        xp.where(seen, values, 1.0)
    )  # squared distances over twice the squared bandwidth
    heavy = xp.abs(weights)
    total = float(xp.sum(heavy))
    if total == 0:
        return False
    new = xp.astype(pool.new, xp.float64)
    near = (
        2
        * float(xp.sum(heavy * exponents))
        / total
        * pool.x.kernel.bandwidth
        * pool.x.kernel.bandwidth
    )
    return near < _FAR * float(xp.mean(xp.vecdot(new, new)))


def _cosine(pool: Pool, coupling: Array) -> Array:
    """sum_j C_aj grad k(x_a, x_j) with grad k = (u_j - k u_a) / |x_a|, u the unit rows."""
    xp, dtype = array_namespace(coupling), pool.precision

    def ready(rows: Array) -> Array:
        return Cosine().points(rows, dtype, "x").rows

    double = xp.astype(pool.new, xp.float64)
    size = xp.max(
        xp.abs(double), axis=1, keepdims=True
    )  # the square of a tiny or huge number is none
    double = double / size
    coupling = coupling / xp.sqrt(xp.vecdot(double, double))[:, None] / size
    inward = xp.astype(xp.vecdot(coupling, pool.x.values), dtype)[:, None] * ready(pool.new)
    return _sums(pool, xp.astype(coupling, dtype), ready) - inward


def _sums(pool: Pool, weights: Array, ready: Callable[[Array], Array]) -> Array:
    """sum_j weights_aj ready(x_j) over all samples."""
    found = weights[:, pool.m :] @ ready(pool.new)
    return (
        found
        if pool.bank is None
        else found + weighted_sums(weights[:, : pool.m], pool.bank.rows("x"), ready)
    )


def _like_input(gradient: Array, pool: Pool) -> Array:
    """The gradient in the shape and dtype of the new samples; what is beyond the range of half precision is cut to it."""
    xp = array_namespace(gradient)
    largest = float(xp.finfo(pool.new.dtype).max)
    gradient = xp.astype(xp.clip(gradient, -largest, largest), pool.new.dtype)
    return xp.reshape(gradient, (gradient.shape[0], *pool.shape))


def _squared_gains(pool: Pool) -> tuple[float, np.ndarray]:
    """Log of the score at order 2 with all new samples, and without each of them."""

    def sums(sides: list[Side], values: Array) -> tuple[float, np.ndarray]:
        total = _squared_sum(pool, sides, values)
        return total, total + 1 - 2 * to_numpy(
            array_namespace(values).vecdot(values, values)
        )  # its row and its column

    total, left = sums(pool.sides, pool.joint)
    if pool.t is None:
        return 2 * math.log(pool.n) - math.log(total), 2 * math.log(pool.n - 1) - np.log(left)
    prompts, prompts_left = sums([pool.t], pool.t.values)
    return math.log(prompts) - math.log(total), np.log(prompts_left) - np.log(left)


def _spectral_gains(pool: Pool) -> tuple[float, np.ndarray]:
    """The same at any order: an entropy for each of them."""
    terms = [(1, pool.whole(pool.sides, pool.joint))]
    if pool.t is not None:
        terms.append((-1, pool.whole([pool.t], pool.t.values)))

    def value(keep: np.ndarray) -> float:
        parts = (
            (sign, outer_take(matrix, upload(keep, matrix)) * (pool.n / keep.size))
            for sign, matrix in terms
        )
        return math.fsum(sign * _entropy(part, pool.score) for sign, part in parts)

    every = np.arange(pool.n)
    return value(every), np.array([value(np.delete(every, place)) for place in every[pool.m :]])
