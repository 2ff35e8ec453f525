"""Subsample: order 2 from random rows, if n^2 operations take too long."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from divprism.core.norms import square_sums
from divprism.core.operators import HadamardOperator, Operator
from divprism.core.spectrum import Estimate, Spectrum
from divprism.engines import RESOURCES, Resources
from divprism.errors import ArgumentError
from divprism.estimators.base import (
    QUESTION,
    Cost,
    Entropy,
    Estimator,
    Question,
    check_tolerance,
    whole_number,
)

__all__ = ["Subsample"]

# Rows to start with where their number is open.
_FIRST_ROWS = 4096


@dataclass(frozen=True)
class Subsample(Estimator):
    """Order 2 from random rows: pick it for the rke scores of a million items or more.

    ||K / n||_F^2 is a mean over pairs of items. The mean over the pairs of m items, sampled without
    replacement, plus the known diagonal is unbiased; with unequal weights it is a ratio of two such
    sums. Its error is a jackknife over the rows with the correction for a finite population. K_X,
    K_T and their product use the same rows, so common errors cancel in a conditional score. With
    all rows the result is exact.

    Supports every kernel; order 2 without truncation only. O(m^2 d) time, memory of a few tiles.

    Attributes
    ----------
    num_rows : int or None
        Number of rows; None doubles it until the error meets the tolerance.
    tolerance : float
        Relative error of a score to aim at.
    """

    num_rows: int | None = None
    tolerance: float = 1e-3

    def __post_init__(self) -> None:
        if self.num_rows is not None:
            object.__setattr__(self, "num_rows", whole_number(self.num_rows, "num_rows", 3))
        check_tolerance(self.tolerance)

    @property
    def promise(self) -> float:
        """The tolerance if rows can be added to meet it, otherwise infinity."""
        if self.num_rows is not None:
            return math.inf
        return self.tolerance

    @property
    def squares_are_exact(self) -> bool:
        """False: a sample of the rows replaces all of them."""
        return False

    def spectra(
        self,
        operators: Sequence[Operator],
        question: Question = QUESTION,
        resources: Resources = RESOURCES,
    ) -> list[Spectrum]:
        """Raise ArgumentError: a sample of rows gives squared norms but no eigenvalues."""
        raise ArgumentError(
            "Subsample() computes only order 2 without truncation, the rke scores. "
            "Use Auto() for other orders."
        )

    def entropies(
        self, operators: Sequence[Operator], question: Question, resources: Resources = RESOURCES
    ) -> list[list[Entropy]]:
        """Entropies of order 2, once for each order of the question."""
        if not question.squares_suffice:
            self.spectra(operators, question, resources)
        # With a product, rows are pairs for its factors too: common errors then cancel.
        joint = _first_product(operators)
        orders = _row_orders(operators, joint, np.random.default_rng(question.rng))
        available = max(len(order) for order in orders)
        count = self.num_rows or _FIRST_ROWS
        while True:
            estimates = []
            for operator, order in zip(operators, orders, strict=True):
                estimates.append(_from_rows(operator, joint, order[:count], resources))
            error = math.hypot(*(estimate.standard_error for estimate in estimates))
            is_done = self.num_rows is not None or error <= self.tolerance
            if is_done or count >= available:
                break
            count *= 2
        entropies = [Entropy(estimate, "subsample") for estimate in estimates]
        return [entropies for _ in question.orders]

    def cost(self, n: int, d_x: int, d_t: int | None = None) -> Cost:
        """Cost for `num_rows` rows, or for all if their number is open."""
        rows = min(n, self.num_rows or n)
        width = d_x + (d_t or 0)
        return Cost(2 * rows**2 * width, 8 * rows * width)


def _first_product(operators: Sequence[Operator]) -> HadamardOperator | None:
    for operator in operators:
        if isinstance(operator, HadamardOperator):
            return operator
    return None


def _row_orders(
    operators: Sequence[Operator], joint: HadamardOperator | None, rng: np.random.Generator
) -> list[np.ndarray]:
    """A random order of the rows for each operator; with a product, one order of its pairs."""
    if joint is None:
        return [rng.permutation(operator.size) for operator in operators]
    common = rng.permutation(joint.size)
    return [common for _ in operators]


def _from_rows(
    operator: Operator, joint: HadamardOperator | None, chosen: np.ndarray, resources: Resources
) -> Estimate:
    """-log ||M||_F^2 from some points; for a factor of `joint` from some of its pairs."""
    # In ascending order, so that rows of a file are read front to back.
    index = np.sort(chosen)
    if joint is None or operator is joint:
        masses = operator.masses
        part = operator.sample(index, double=False)
    else:
        # The sum over pairs, with the masses of pairs, equals the sum over the factor's points.
        masses = joint.masses
        part = operator.sample(joint.index_of(operator)[index], double=False)
    masses = masses / masses.sum()
    own = masses[index]
    sums = _row_sums(part, own, resources)
    size, count = masses.size, index.size
    diagonal, total = float(masses @ masses), float(sums.sum())
    if count == size:
        return Estimate(-math.log(diagonal + total))
    # The sums if all kernel values were one: the denominator of the ratio.
    present = own * (own.sum() - own)
    value = -math.log(diagonal + (1 - diagonal) * total / float(present.sum()))
    # Without a row, the sums lose its pairs on both sides of the diagonal.
    without = diagonal + (1 - diagonal) * (total - 2 * sums) / (present.sum() - 2 * present)
    # Jackknife, times the correction for sampling from a finite population.
    scale = math.sqrt((count - 1) / count * (1 - count / size))
    return Estimate(value, scale * (-np.log(without) - value))


def _row_sums(part: Operator, masses: np.ndarray, resources: Resources) -> np.ndarray:
    """For each row, the sum over all other rows of w_i w_j k_ij^2."""
    # Relative to the largest, so that equal masses are exact in single precision.
    largest = float(masses.max())
    relative = replace(part, masses=masses / largest)  # type: ignore[type-var]
    [sums] = square_sums([relative], resources, distinct=False)
    # The diagonal, k_ii = 1, is left out.
    return masses * (largest * sums - masses)
