"""Subsample: order 2 from a random part of the rows, for n beyond n^2 work."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from divprism.core.arrays import Array, array_namespace, to_numpy, upload
from divprism.core.operators import HadamardOperator, Operator
from divprism.core.spectrum import Estimate, Spectrum
from divprism.core.tiles import row_blocks
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

_FIRST = 4096
_CHUNK = 512


@dataclass(frozen=True)
class Subsample(Estimator):
    """Order 2 from random rows: pick it for the rke scores of a million items and more.

    ||K / n||_F^2 is a mean over pairs of items. The mean over the pairs of m items drawn without replacement (with the
    diagonal, which is known) is unbiased; with unequal weights it is a ratio of two such sums. Its error is a jackknife over
    the rows, with the correction for a finite population. K_X, K_T and their product see the same rows, so that a conditional
    score carries the error of the difference. Exact with all rows.

    Any kernel; order 2 without truncation only. O(m^2 d) time, memory of a few tiles.

    Attributes
    ----------
    num_rows : int or None
        Rows to draw; None doubles their number until the error meets the tolerance.
    tolerance : float
        Relative error of a score wanted.
    """

    num_rows: int | None = None
    tolerance: float = 1e-3

    def __post_init__(self) -> None:
        if self.num_rows is not None:
            object.__setattr__(self, "num_rows", whole_number(self.num_rows, "num_rows", 3))
        check_tolerance(self.tolerance)

    @property
    def promise(self) -> float:
        """The tolerance, where rows may be added to meet it."""
        return self.tolerance if self.num_rows is None else math.inf

    @property
    def squares_are_exact(self) -> bool:
        """The rows drawn answer, not all of them."""
        return False

    def spectra(
        self,
        operators: Sequence[Operator],
        question: Question = QUESTION,
        resources: Resources = RESOURCES,
    ) -> list[Spectrum]:
        """Refused: a part of the rows tells squared norms, not eigenvalues."""
        raise ArgumentError(
            "Subsample() serves order 2 without truncation: the rke scores. Use Auto() for other orders."
        )

    def entropies(
        self, operators: Sequence[Operator], question: Question, resources: Resources = RESOURCES
    ) -> list[list[Entropy]]:
        """Entropies of order 2."""
        if not question.squares_suffice:
            self.spectra(operators, question, resources)
        home = next(
            (operator for operator in operators if isinstance(operator, HadamardOperator)), None
        )
        rng = np.random.default_rng(question.rng)
        common = None if home is None else rng.permutation(home.size)
        orders = [
            rng.permutation(operator.size) if common is None else common for operator in operators
        ]
        count = self.num_rows or _FIRST
        while True:
            found = [
                _from_rows(o, home, order[:count], resources)
                for o, order in zip(operators, orders, strict=True)
            ]
            error = math.hypot(*(estimate.standard_error for estimate in found))
            if (
                self.num_rows is not None
                or error <= self.tolerance
                or count >= max(map(len, orders))
            ):
                return [
                    [Entropy(estimate, "subsample") for estimate in found] for _ in question.orders
                ]
            count *= 2

    def cost(self, n: int, d_x: int, d_t: int | None = None) -> Cost:
        """For the rows given, or for all."""
        rows = min(n, self.num_rows or n)
        return Cost(2 * rows**2 * (d_x + (d_t or 0)), 8 * rows * (d_x + (d_t or 0)))


def _from_rows(
    operator: Operator, home: HadamardOperator | None, chosen: np.ndarray, resources: Resources
) -> Estimate:
    """-log ||M||_F^2 from some of the points; for a factor of `home` from some of its pairs, which have the same sum."""
    if home is None or operator is home:
        masses, places = operator.masses, np.sort(chosen)
        part = operator.sample(places, double=False)
    else:
        masses, places = home.masses, np.sort(chosen)
        part = operator.sample(
            (home.left_index if operator is home.left else home.right_index)[places], double=False
        )
    masses = masses / masses.sum()
    size, count = masses.size, places.size
    sums, own = (
        np.concatenate([_row_sums(part, rows, masses[places]) for rows in _told(count, resources)]),
        masses[places],
    )
    diagonal, total = float(masses @ masses), float(sums.sum())
    if count == size:
        return Estimate(-math.log(diagonal + total))
    present = own * (own.sum() - own)  # what the sums would be if all kernel values were one
    value = -math.log(diagonal + (1 - diagonal) * total / float(present.sum()))
    without = diagonal + (1 - diagonal) * (total - 2 * sums) / (present.sum() - 2 * present)
    scale = math.sqrt((count - 1) / count * (1 - count / size))
    return Estimate(value, scale * (-np.log(without) - value))


def _told(count: int, resources: Resources) -> Iterator[slice]:
    blocks = list(row_blocks(count, _CHUNK))
    for number, rows in enumerate(blocks):
        yield rows
        resources.report_progress("sums of squares", (number + 1) / len(blocks))


def _row_sums(part: Operator, rows: slice, masses: np.ndarray) -> np.ndarray:
    """For some rows, the sum over all other rows of w_i w_j k_ij^2."""
    total = np.zeros(rows.stop - rows.start)
    for columns in row_blocks(masses.size, _CHUNK):
        block: Array = part.values(rows, columns)
        weights = array_namespace(block).astype(
            upload(masses[columns] / masses.max(), block), block.dtype
        )
        total += to_numpy((block * block) @ weights)
    return masses[rows] * (masses.max() * total - masses[rows])
