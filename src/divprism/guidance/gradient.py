"""Value and gradient of a diversity score with respect to new samples, in closed form.

With K_X and K_T the kernel matrices of samples and prompts, J = K_X o K_T and M = J / n, a score
depends on the new sample a only through row and column a of K_X. So its gradient is (Conditional
Vendi, eq. 27)

    sum_j C_aj grad k(x_a, x_j),    C = 2 / n (dH / dM) o K_T,

where at order 2 dH / dM = -2 M / |M|^2, and otherwise V diag(slopes) V^T with the eigenvectors V of
M (eq. 24, 26). Prompts have no gradient. A bandwidth chosen from the samples counts as a constant.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

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
from divprism.errors import DataError
from divprism.guidance._pairs import weighted_sums
from divprism.guidance._pool import Pool, PooledSide, pose
from divprism.guidance.objectives import Objective, as_objective

__all__ = ["Gradient", "marginal_gain", "score_gradient"]

# Samples count as far from the origin if their squared distances are below this share of their
# squared norms.
_FAR = 0.1


@dataclass(frozen=True, eq=False)
class Gradient:
    """A score and the direction in which it grows.

    Attributes
    ----------
    value : float
        The score of all samples, or its logarithm.
    gradient : array
        Its derivative with respect to each new sample, in their shape, library and dtype.
    kernel_x, kernel_t : Kernel
        The kernels used, with the bandwidths of this call; `kernel_t` is None for scores without
        prompts.
    """

    value: float
    gradient: Array
    kernel_x: Kernel
    kernel_t: Kernel | None


def score_gradient(
    x: Array,
    t: Array = None,
    *,
    bank: object = None,
    score: Objective | str = "conditional_rke",
    kernel_x: Kernel | None = None,
    kernel_t: Kernel | None = None,
    log: bool = True,
) -> Gradient:
    """Return the score of new and earlier samples together, and its gradient in the new ones.

    Any subset of the samples can be the new ones: the others are the bank. A step of size e along
    the gradient raises the score by ``e |gradient|^2`` to first order. Exact copies do not
    separate: by symmetry the gradient between them is zero. It is also zero between samples so far
    apart that their kernel value underflows.

    At order 2 each new sample costs O(n d) once the bank has computed its own distances (see
    `Bank`), and O(n^2) where the bandwidth is new, as with the median rule; other orders, and
    truncation, add O(n^3) for eigenvectors. Memory: blocks of rows, and in the bank 8 n^2 bytes,
    or twice that for conditional scores.

    New samples are rounded to the precision in which the bank stores its own, so that copies stay
    copies. Rows are multiplied and summed in double precision if `x` is double or eigenvectors are
    needed, and in single precision otherwise; kernel values are always double. Autocast has no
    effect inside.

    Parameters
    ----------
    x : array, shape (b, ...)
        New samples, of any shape, in NumPy, torch or any library of the array API standard.
    t : array, shape (b, ...), or ids, length b
        Their prompts, for conditional scores only: embeddings, whole numbers or texts. Embeddings
        are rounded as the bank stores them, so that equal prompts stay equal.
    bank : Bank, array, or pair of arrays
        Earlier samples, or a tuple of earlier samples and their prompts. A `Bank` keeps its
        distances for the next call.
    score : Objective or str
        The score to climb: "vendi", "rke", "conditional_vendi" or "conditional_rke", with optional
        settings as in "conditional_vendi(truncation=50)", or an `Objective`.
    kernel_x, kernel_t : Gaussian or Cosine; for prompts also Categorical
        None takes a Gaussian whose bandwidth is the median distance between distinct samples of
        bank and batch at this call, or Categorical if prompts are ids.
    log : bool
        Whether to differentiate the logarithm of the score: the entropy, in nats. The gradient of
        the score itself is this gradient times the score (Conditional Vendi, eq. 25).

    Returns
    -------
    Gradient
        In the dtype of `x`. In half precision small entries become zero, and entries beyond the
        range become its largest number; pass single precision where that matters.

    Raises
    ------
    DataError, ArgumentError
        If samples, prompts and bank do not fit together, or a row is all zeros under Cosine.

    Examples
    --------
    Two samples push each other apart along the line between them:

    >>> x = np.array([[0.0, 0.0], [1.0, 0.0]])
    >>> pair = score_gradient(x, score="rke", kernel_x=Gaussian(1.0))
    >>> round(math.exp(pair.value), 6) == round(2 / (1 + math.exp(-1)), 6)
    True
    >>> pair.gradient.round(3)
    array([[-0.538,  0.   ],
           [ 0.538,  0.   ]])
    """
    with plain_mode():
        pool = pose(x, t, bank, as_objective(score), kernel_x, kernel_t)
        if pool.score.by_squares:
            value, coupling = _by_squares(pool)
        else:
            value, coupling = _by_eigenvectors(pool)
        if isinstance(pool.x.kernel, Gaussian):
            gradient = _gaussian(pool, coupling)
        else:
            gradient = _cosine(pool, coupling)
        if not log:
            # The chain rule: the score is exp of the entropy.
            value = math.exp(value)
            gradient = value * gradient
        used_kernel_t = None
        if pool.t is not None:
            used_kernel_t = pool.t.kernel
        return Gradient(value, _like_input(gradient, pool), pool.x.kernel, used_kernel_t)


def marginal_gain(
    x: Array,
    t: Array = None,
    *,
    bank: object = None,
    score: Objective | str = "conditional_rke",
    kernel_x: Kernel | None = None,
    kernel_t: Kernel | None = None,
    log: bool = True,
) -> Array:
    """Return what each new sample adds: the score of all samples minus the score without it.

    This is a reward for diversity. Each sample is judged next to the bank and the rest of the
    batch, so copies in a batch earn nothing from each other; to judge a sample next to the bank
    alone, pass it alone. Both scores use the same kernels, with a bandwidth from all samples. For
    conditional scores the prompt is left out together with its sample, and the gain may be
    negative.

    Each new sample costs O(n d) at order 2, and otherwise an eigenvalue problem, O(n^3).

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
    A third direction adds one to a score of two; a copy of the first lowers it:

    >>> axes = np.eye(3)
    >>> settings = {"bank": axes[:2], "score": "rke", "kernel_x": Cosine(), "log": False}
    >>> marginal_gain(axes[2:], **settings).round(3), marginal_gain(axes[:1], **settings).round(3)
    (array([1.]), array([-0.2]))
    """
    with plain_mode():
        pool = pose(x, t, bank, as_objective(score), kernel_x, kernel_t)
        if pool.n < 2:
            raise DataError(
                "a gain needs at least two samples, new or in the bank; got one. "
                "The score without it would be that of no samples."
            )
        if pool.score.by_squares:
            total, without = _squared_gains(pool)
        else:
            total, without = _spectral_gains(pool)
        if log:
            return upload(total - without, pool.new)
        return upload(math.exp(total) - np.exp(without), pool.new)


def _squared_sum(pool: Pool, sides: list[PooledSide], values: Array) -> float:
    """|K|^2 of the product of some sides over all samples; the bank keeps its own part."""
    xp = array_namespace(values)
    total = 0.0
    if pool.bank is not None:
        key = tuple((side.name, side.kernel) for side in sides)
        total = float(pool.bank.kept(key, lambda: _bank_squared_sum(pool, sides)))
    cross, among = values[:, : pool.m], values[:, pool.m :]
    # K is symmetric: the block between bank and batch counts twice.
    return total + 2 * float(xp.sum(cross * cross)) + float(xp.sum(among * among))


def _bank_squared_sum(pool: Pool, sides: list[PooledSide]) -> float:
    """|K|^2 inside the bank, from its diagonal blocks and twice the blocks to their right."""
    total = 0.0
    for rows in row_blocks(pool.m):
        diagonal = pool.bank_block(sides, rows, slice(rows.start, rows.stop))
        xp = array_namespace(diagonal)
        total += float(xp.sum(diagonal * diagonal))
        if rows.stop < pool.m:
            right = pool.bank_block(sides, rows, slice(rows.stop, pool.m))
            total += 2 * float(xp.sum(right * right))
    return total


def _by_squares(pool: Pool) -> tuple[float, Array]:
    """Log of the score at order 2, and the coupling C.

    The score is |K_T|^2 / |J|^2, or n^2 / |K_X|^2 without prompts.
    """
    total = _squared_sum(pool, pool.sides, pool.joint)
    prompts: float = pool.n**2
    if pool.t is not None:
        prompts = _squared_sum(pool, [pool.t], pool.t.values)
    # 2 / n times dH / dM = -2 M / |M|^2 with M = J / n: the factors n cancel.
    coupling = _coupling(pool, pool.joint * (-4 / total))
    return math.log(prompts) - math.log(total), coupling


def _by_eigenvectors(pool: Pool) -> tuple[float, Array]:
    """Log of the score at any order, and the coupling C."""
    matrix = pool.trace_one_matrix(pool.sides, pool.joint)
    values, vectors = array_namespace(matrix).linalg.eigh(matrix)
    # The slopes are known up to a common constant, which only affects the diagonal.
    entropy, slopes = entropy_slopes(to_numpy(values), pool.score.order, pool.score.truncation)
    # Only the rows of new samples are needed of V diag(slopes) V^T.
    rows = (vectors[pool.m :, :] * upload(slopes, matrix)) @ vectors.T
    if pool.t is not None:
        entropy -= _entropy(pool.trace_one_matrix([pool.t], pool.t.values), pool.score)
    return entropy, _coupling(pool, rows * (2 / pool.n))


def _coupling(pool: Pool, slopes: Array) -> Array:
    """Turn a derivative in the joint kernel into C, the derivative in K_X."""
    xp = array_namespace(slopes)
    # The diagonal of K_X is constant, so its entries have no derivative.
    diagonal = xp.eye(*slopes.shape, k=pool.m, dtype=slopes.dtype, device=device_of(slopes))
    coupling = slopes * (1 - diagonal)
    if pool.t is None:
        return coupling
    return coupling * pool.t.values


def _entropy(matrix: Array, score: Objective) -> float:
    # No eigenvalue is dropped as noise: the gradient counts all of them too.
    spectrum = Spectrum.from_eigenvalues(eigvalsh(matrix), noise=0.0, method="exact")
    return renyi_entropy(spectrum, score.order, score.truncation)


def _gaussian(pool: Pool, coupling: Array) -> Array:
    """sum_j C_aj grad k(x_a, x_j) with grad k = -k (x_a - x_j) / bandwidth^2."""
    assert isinstance(pool.x.kernel, Gaussian)
    xp = array_namespace(coupling)
    bandwidth = pool.x.kernel.bandwidth
    weights = coupling * pool.x.values
    is_far = _is_far(pool, weights)
    dtype = pool.precision
    if is_far:
        dtype = xp.float64
    with np.errstate(over="ignore"):
        centre = xp.mean(xp.astype(pool.new, dtype), axis=0)
    # The sum of huge rows overflows. Any other point among them serves as well.
    centre = xp.where(xp.isfinite(centre), centre, xp.astype(pool.new[0, :], dtype))

    # The sum over differences x_j - x_a is taken as a matrix product minus a multiple of x_a, so a
    # common shift of all rows changes its rounding only.
    def prepared(rows: Array) -> Array:
        rows = xp.astype(rows, dtype, copy=False)
        if is_far:
            return rows - centre
        return rows

    weights = xp.astype(weights, dtype)
    own = xp.sum(weights, axis=1)[:, None] * prepared(pool.new)
    slopes = _weighted_rows(pool, weights, prepared) - own
    # Entries that overflow are clipped in `_like_input`. The bandwidth divides twice because its
    # square may underflow or overflow.
    with np.errstate(over="ignore"):
        return slopes / bandwidth / bandwidth


def _is_far(pool: Pool, weights: Array) -> bool:
    """Whether samples that matter to each other are close together and far from the origin.

    Their differences would lose digits, so they are then computed in double precision around the
    mean of the new samples.
    """
    assert isinstance(pool.x.kernel, Gaussian)
    xp = array_namespace(weights)
    values, bandwidth = pool.x.values, pool.x.kernel.bandwidth
    # -log k is the squared distance over twice the squared bandwidth; k may underflow to zero.
    exponents = -xp.log(xp.where(values > 0, values, 1.0))
    importance = xp.abs(weights)
    total = float(xp.sum(importance))
    if total == 0:
        return False
    mean_exponent = 2 * float(xp.sum(importance * exponents)) / total
    mean_square = mean_exponent * bandwidth * bandwidth
    new = xp.astype(pool.new, xp.float64)
    # Squares that overflow are infinite: such samples are far indeed.
    with np.errstate(over="ignore"):
        return mean_square < _FAR * float(xp.mean(xp.vecdot(new, new)))


def _cosine(pool: Pool, coupling: Array) -> Array:
    """sum_j C_aj grad k(x_a, x_j) with grad k = (u_j - k u_a) / |x_a|, u the unit rows."""
    xp = array_namespace(coupling)
    dtype = pool.precision

    def unit_rows(rows: Array) -> Array:
        return Cosine().points(rows, dtype, "x").rows

    # |x_a| from entries scaled to at most one: squares of tiny or huge numbers leave the range.
    double = xp.astype(pool.new, xp.float64)
    size = xp.max(xp.abs(double), axis=1, keepdims=True)
    scaled = double / size
    lengths = xp.sqrt(xp.vecdot(scaled, scaled))[:, None]
    radial = xp.astype(xp.vecdot(coupling, pool.x.values), dtype)[:, None] * unit_rows(pool.new)
    slopes = _weighted_rows(pool, xp.astype(coupling, dtype), unit_rows) - radial
    # Divided last: a tiny |x_a| makes slopes overflow, and a difference of infinities is NaN.
    with np.errstate(over="ignore"):
        return xp.astype(slopes, xp.float64) / lengths / size


def _weighted_rows(pool: Pool, weights: Array, prepared: Callable[[Array], Array]) -> Array:
    """sum_j weights_aj prepared(x_j) over all samples."""
    sums = weights[:, pool.m :] @ prepared(pool.new)
    if pool.bank is None:
        return sums
    return sums + weighted_sums(weights[:, : pool.m], pool.bank.rows("x"), prepared)


def _like_input(gradient: Array, pool: Pool) -> Array:
    """Return the gradient in the shape and dtype of the new samples, clipped to their range."""
    xp = array_namespace(gradient)
    # Infinite entries would turn the samples into NaN at the next step.
    largest = float(xp.finfo(pool.new.dtype).max)
    gradient = xp.astype(xp.clip(gradient, -largest, largest), pool.new.dtype)
    return xp.reshape(gradient, (gradient.shape[0], *pool.shape))


def _squared_gains(pool: Pool) -> tuple[float, np.ndarray]:
    """Log of the score at order 2 with all new samples, and without each of them."""
    total, without = _squared_sums_without_each(pool, pool.sides, pool.joint)
    if pool.t is None:
        log_score = 2 * math.log(pool.n) - math.log(total)
        return log_score, 2 * math.log(pool.n - 1) - np.log(without)
    prompts, prompts_without = _squared_sums_without_each(pool, [pool.t], pool.t.values)
    return math.log(prompts) - math.log(total), np.log(prompts_without) - np.log(without)


def _squared_sums_without_each(
    pool: Pool, sides: list[PooledSide], values: Array
) -> tuple[float, np.ndarray]:
    """|K|^2 over all samples, and without the row and the column of each new sample."""
    total = _squared_sum(pool, sides, values)
    row_sums = to_numpy(array_namespace(values).vecdot(values, values))
    # Row and column share the diagonal entry, whose square is one.
    return total, total + 1 - 2 * row_sums


def _spectral_gains(pool: Pool) -> tuple[float, np.ndarray]:
    """Log of the score at any order with all new samples, and without each of them."""
    terms = [(1, pool.trace_one_matrix(pool.sides, pool.joint))]
    if pool.t is not None:
        terms.append((-1, pool.trace_one_matrix([pool.t], pool.t.values)))

    def log_score(keep: np.ndarray) -> float:
        entropies = []
        for sign, matrix in terms:
            # Fewer samples: the trace is brought back to one.
            kept = outer_take(matrix, upload(keep, matrix)) * (pool.n / keep.size)
            entropies.append(sign * _entropy(kept, pool.score))
        return math.fsum(entropies)

    every = np.arange(pool.n)
    without = [log_score(np.delete(every, index)) for index in every[pool.m :]]
    return log_score(every), np.array(without)
