"""Subsample: order 2 from random rows, if n^2 operations take too long."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

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

# Rows to start with if `num_rows` is None.
_FIRST_ROWS = 4096

# Rows of more than this multiple of the mean mass are in every sample, up to half of it.
_HEAVY = 4.0

# Rows of a sample that are not heavy, and the least number of rows.
_FEWEST_LIGHT = 3


@dataclass(frozen=True)
class Subsample(Estimator):
    """Order 2 from random rows: pick it for the rke scores of a million items or more.

    ||K / n||_F^2 is a mean over pairs of items. The mean over the pairs of m items, sampled without
    replacement, plus the known diagonal is unbiased; with unequal weights it is a ratio of two such
    sums. Rows of large mass, frequent answers, are in every sample. Its error is a jackknife over
    the rows with the correction for a finite population, and what one similar pair more in the
    sample would change. K_X, K_T and their product use the same rows, so common errors cancel in a
    conditional score. With all rows the result is exact.

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
            num_rows = whole_number(self.num_rows, "num_rows", _FEWEST_LIGHT)
            object.__setattr__(self, "num_rows", num_rows)
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
        count = self.num_rows or _FIRST_ROWS
        rng = np.random.default_rng(question.rng)
        # Without one of the other rows the jackknife still needs a pair of them: at least three.
        most_heavy = min(count // 2, count - _FEWEST_LIGHT)
        plans = _plans(operators, joint, most_heavy, rng)
        available = max(plan.order.size for plan in plans)
        while True:
            estimates = []
            for operator, plan in zip(operators, plans, strict=True):
                estimates.append(_from_rows(operator, joint, plan, count, resources))
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


@dataclass(frozen=True, eq=False)
class _Plan:
    """The order in which rows are taken: first the heavy ones, then the others at random.

    Equal items were merged, so that a frequent answer is a single row of large mass. Two of them
    are hardly ever both in a random sample, and a sample without them does not show that they
    exist. So all of them are taken.
    """

    order: np.ndarray
    heavy: np.ndarray

    @classmethod
    def of(cls, masses: np.ndarray, most: int, rng: np.random.Generator) -> "_Plan":
        """A plan with at most `most` heavy rows."""
        largest = np.argsort(-masses, kind="stable")[:most]
        heavy = largest[masses[largest] > _HEAVY * masses.mean()]
        rest = rng.permutation(masses.size)
        return cls(np.concatenate([heavy, rest[~np.isin(rest, heavy)]]), heavy)


def _plans(
    operators: Sequence[Operator],
    joint: HadamardOperator | None,
    most: int,
    rng: np.random.Generator,
) -> list[_Plan]:
    """A plan for each operator; with a product, one of its pairs for all."""
    if joint is None:
        return [_Plan.of(operator.masses, most, rng) for operator in operators]
    return [_Plan.of(joint.masses, most, rng)] * len(operators)


def _from_rows(
    operator: Operator,
    joint: HadamardOperator | None,
    plan: _Plan,
    count: int,
    resources: Resources,
) -> Estimate:
    """-log ||M||_F^2 from some points; for a factor of `joint` from some of its pairs."""
    # In ascending order, so that rows of a file are read front to back.
    index = np.sort(plan.order[:count])
    masses, points = operator.masses, index
    if joint is not None and operator is not joint:
        # The sum over pairs, with the masses of pairs, equals the sum over the factor's points.
        masses = joint.masses
        points = joint.index_of(operator)[index]
    masses = masses / masses.sum()
    own, diagonal = masses[index], float(masses @ masses)
    sums = _row_sums(operator, points, own, resources)
    if index.size == masses.size:
        return Estimate(-math.log(diagonal + float(sums.sum())))
    is_drawn = ~np.isin(index, plan.heavy)
    to_heavy, fixed = np.zeros(index.size), 0.0
    if not is_drawn.all():
        among_drawn = _row_sums(operator, points[is_drawn], own[is_drawn], resources)
        to_heavy[is_drawn] = sums[is_drawn] - among_drawn
        fixed = float(sums[~is_drawn].sum() - to_heavy.sum())
        sums = np.where(is_drawn, sums - to_heavy, 0.0)
    light = np.where(is_drawn, own, 0.0)
    sample = _Sample(diagonal + fixed, masses, own[~is_drawn], light, to_heavy, sums)
    return sample.estimate(int(is_drawn.sum()))


@dataclass(frozen=True, eq=False)
class _Sample:
    """Sums of w_i w_j k_ij^2 over some rows, of which the heavy ones are known in full.

    Attributes
    ----------
    known : float
        The diagonal, and the sum over pairs of heavy rows.
    masses : ndarray
        Of all rows.
    heavy : ndarray
        Masses of the heavy rows.
    light : ndarray
        Masses of the rows of the sample; zero for heavy ones.
    to_heavy, sums : ndarray
        For each row of the sample, the sum over heavy rows, and over the others of the sample.
    """

    known: float
    masses: np.ndarray
    heavy: np.ndarray
    light: np.ndarray
    to_heavy: np.ndarray
    sums: np.ndarray

    def estimate(self, count: int) -> Estimate:
        """-log of the sum over all rows, with the error of `count` drawn rows."""
        light_mass = 1 - float(self.heavy.sum())
        squares = float(self.masses @ self.masses - self.heavy @ self.heavy)
        # The sums if all kernel values were one, of all rows and of those drawn: their ratio
        # replaces the rows that were not drawn.
        drawn = float(self.light.sum())
        present = self.light * (drawn - self.light)
        to_heavy, among = float(self.to_heavy.sum()), float(self.sums.sum())
        pairs = light_mass**2 - squares

        def logarithm(to_heavy: Any, among: Any, drawn: Any, present: Any) -> Any:
            crossed = 2 * to_heavy * light_mass / drawn
            return -np.log(self.known + crossed + among * pairs / present)

        value = float(logarithm(to_heavy, among, drawn, present.sum()))
        # Without a row, the sums lose its pairs on both sides of the diagonal.
        without = logarithm(
            to_heavy - self.to_heavy,
            among - 2 * self.sums,
            drawn - self.light,
            present.sum() - 2 * present,
        )
        # Jackknife, times the correction for sampling from a finite population.
        size = self.masses.size - self.heavy.size
        scale = math.sqrt((count - 1) / count * (1 - count / size))
        deviations = np.where(self.light > 0, scale * (without - value), 0.0)
        # Similar pairs may be so rare that the sample has none, and then the jackknife is zero. One
        # more pair among those drawn, or of a heavy and a drawn row, would have been no surprise.
        pair = 2 * float(present.sum()) / (count * (count - 1))
        beside = float(self.heavy.max(initial=0.0)) * drawn / count
        one_more = logarithm(to_heavy + beside, among + pair, drawn, present.sum())
        unseen = abs(float(one_more) - value) * math.sqrt(1 - (count / size) ** 2)
        return Estimate(value, deviations, unseen)


def _row_sums(
    operator: Operator, points: np.ndarray, masses: np.ndarray, resources: Resources
) -> np.ndarray:
    """For each of some rows, the sum over all others of w_i w_j k_ij^2."""
    part = operator.sample(points, double=False)
    # Relative to the largest, so that equal masses are exact in single precision.
    largest = float(masses.max())
    relative = replace(part, masses=masses / largest)  # type: ignore[type-var]
    [sums] = square_sums([relative], resources, distinct=False)
    # The diagonal, k_ii = 1, is left out.
    return masses * (largest * sums - masses)
