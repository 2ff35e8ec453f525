"""Random pairings of outputs with prompts at order 2: sums of squares, no eigenvalue.

Everything is about N = ||K_X o K_T||_F^2, the sum of x_ij t_ij over all pairs of items, with x and
t the squared kernel values. Its logarithm is Information of order 2 up to a constant: a pairing
moves neither marginal.
"""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from divprism.core.arrays import to_numpy
from divprism.core.norms import squared_norms
from divprism.core.operators import HadamardOperator, KernelOperator
from divprism.core.tiles import row_blocks
from divprism.engines import Resources

__all__ = ["Moments", "Pairings", "pairing_moments"]

_BLOCK_ROWS = 256  # a block of rows of 5,000 items stays in the cache


@dataclass(frozen=True)
class Moments:
    """Mean and variance of N over all n! pairings."""

    mean: float
    variance: float


def pairing_moments(x: KernelOperator, t: KernelOperator) -> Moments:
    """Mean and variance of N = ||K_X o K_T||_F^2 over all pairings, in closed form.

    The diagonal adds n to N under every pairing. Of the rest the mean is the product of the sums of
    both sides over n (n - 1). The variance sorts the products of two entries by how many items they
    share: two, one or none (Daniels 1944, Mantel 1967). Costs one pass over either kernel matrix.

    With two outputs, the two pairings are the same:

    >>> from divprism.core.kernels import Gaussian
    >>> data, weights = np.array([[0.0], [1.0]]), np.array([0.5, 0.5])
    >>> side = KernelOperator.from_data(Gaussian(1.0), data, weights, dtype=np.float64, name="x")
    >>> round(pairing_moments(side, side).variance, 12)
    0.0
    """
    n = x.index.size
    if n < 2:
        return Moments(float(n), 0.0)
    left, right = _SideSums.of(x), _SideSums.of(t)
    mean = n + left.total * right.total / (n * (n - 1))
    ways = n * (n - 1)
    variance = 2 * left.same * right.same / ways
    if n > 2:
        ways *= n - 2
        variance += 4 * left.sharing_one * right.sharing_one / ways
    if n > 3:
        ways *= n - 3
        variance += left.disjoint * right.disjoint / ways
    # Where every pairing is the same, rounding may leave a negative variance.
    return Moments(mean, max(0.0, variance))


@dataclass(frozen=True)
class _SideSums:
    """Sums over the squared kernel values of different items of one side.

    `total` adds them up. The others add up products of two of them, less their mean, by the items
    that both have in common: `same` both, `sharing_one` one. Less the mean, because the variance is
    a tiny part of the mean of squares, and would drown in rounding.
    """

    total: float
    same: float
    sharing_one: float

    @property
    def disjoint(self) -> float:
        """Sum of products without a common item."""
        # All products add up to the squared sum, which is zero without the mean. Each product
        # with two items in common occurs twice in it, each with one in common four times.
        return -2 * self.same - 4 * self.sharing_one

    @classmethod
    def of(cls, operator: KernelOperator) -> "_SideSums":
        # Equal items are merged; each point counts as often as it occurs.
        counts = np.bincount(operator.index, minlength=operator.size).astype(np.float64)
        n = operator.index.size
        everything = slice(0, operator.size)
        row_sums, fourth = np.empty(operator.size), 0.0
        for rows in row_blocks(operator.size, _BLOCK_ROWS):
            squares = _squares(operator, rows, everything)
            # Less one: an item does not meet itself, but does meet its equals.
            row_sums[rows] = squares @ counts - 1
            fourth += float(counts[rows] @ (squares * squares) @ counts)
        total = float(counts @ row_sums)
        same = fourth - n - total**2 / (n * (n - 1))
        by_rows = float(counts @ row_sums**2) - total**2 / n
        return cls(total, same, by_rows - same)


def _squares(operator: KernelOperator, rows: slice, columns: slice) -> np.ndarray:
    block = np.asarray(to_numpy(operator.values(rows, columns)), np.float64)
    return np.asarray(block * block)


@dataclass(frozen=True, eq=False)
class Pairings:
    """N of single pairings, from squared kernel values that are kept where they fit the memory."""

    x: KernelOperator
    t: KernelOperator
    weights: np.ndarray
    resources: Resources

    def joint(self, order: np.ndarray) -> HadamardOperator:
        """The joint operator of the pairing that gives prompt i the output order[i]."""
        # Permuting the index pairs the merged points anew without copying the data.
        left = replace(self.x, index=self.x.index[order])
        return HadamardOperator.of(left, self.t, self.weights)

    def squared_norm(self, order: np.ndarray) -> float:
        """N of a pairing."""
        n = self.x.index.size
        if not self._are_kept:
            [norm] = squared_norms([self.joint(order)], self.resources)
            return norm * n**2
        prompts = np.empty(n, int)
        prompts[order] = self.t.index
        total = 0.0
        for rows in row_blocks(n, _BLOCK_ROWS):
            left = self._of_outputs[rows, rows.start :]
            right = self._of_prompts[prompts[rows]].take(prompts[rows.start :], axis=1)
            # The matrix is symmetric: what lies right of the square on the diagonal counts twice.
            square = slice(0, left.shape[0])
            total += 2 * float(np.einsum("ij,ij->", left, right))
            total -= float(np.einsum("ij,ij->", left[:, square], right[:, square]))
        return total

    @cached_property
    def _are_kept(self) -> bool:
        """Whether squared kernel values fit the memory; it takes long to ask for each pairing."""
        # In full on the side of the outputs, and one value per point on that of the prompts.
        needed = 8 * (self.x.index.size**2 + self.t.size**2)
        return needed <= self.resources.budget

    @cached_property
    def kernels(self) -> tuple[np.ndarray, np.ndarray]:
        """The kernel matrices of outputs and prompts, between points."""
        left, right = (np.asarray(to_numpy(side.table()), np.float64) for side in (self.x, self.t))
        return left, right

    @cached_property
    def _of_outputs(self) -> np.ndarray:
        everything = slice(0, self.x.size)
        squares = _squares(self.x, everything, everything)
        return squares[np.ix_(self.x.index, self.x.index)]

    @cached_property
    def _of_prompts(self) -> np.ndarray:
        everything = slice(0, self.t.size)
        return _squares(self.t, everything, everything)
