"""Fourier: random features, one pass over the data."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from divprism.core.arrays import upload
from divprism.core.features import FourierMap, draw_frequencies, require_fourier_features
from divprism.core.kernels import Points
from divprism.core.moments import FeatureMoments
from divprism.core.operators import HadamardOperator, KernelOperator, Operator
from divprism.core.spectrum import Spectrum
from divprism.core.tiles import row_blocks
from divprism.engines import RESOURCES, Resources
from divprism.estimators.base import QUESTION, Cost, Estimator, Question, whole_number

__all__ = ["Fourier"]

_CHUNK = 1 << 24  # bytes of features at a time


@dataclass(frozen=True)
class Fourier(Estimator):
    """Random Fourier features (FKEA): pick it for a million items and more, or for streams.

    Eigenvalues of the 2 r x 2 r moment of r random frequencies (Truncated Vendi, eq. 12). Demands Gaussian kernels. The
    spectrum of r features is too concentrated by a term of about 1 / r; the same moment holds two sets of r / 2 and four of
    r / 4, from which the entropy is extrapolated to r = infinity, and eight sets of 7 r / 8, whose spread is the error told. It
    wants r well above the score: a spectrum cannot have more than 2 r eigenvalues, and an error as large as the score's own
    says so.

    O(n (d + r) r) time, one pass; 32 r^2 bytes for each of K_X, K_T and their product, whatever n, one after the other.

    Attributes
    ----------
    num_features : int
        Number of frequencies r, at least 8.
    """

    num_features: int = 1000

    def __post_init__(self) -> None:
        object.__setattr__(self, "num_features", whole_number(self.num_features, "num_features", 8))

    @property
    def squares_are_exact(self) -> bool:
        """Order 2 is answered by the features too: the user wants one pass."""
        return False

    def spectra(
        self,
        operators: Sequence[Operator],
        question: Question = QUESTION,
        resources: Resources = RESOURCES,
    ) -> list[Spectrum]:
        """The spectrum of each operator; the frequencies of K_X and K_T serve their product, whose phases are the sums."""
        require_fourier_features(*(factor.kernel for operator in operators for factor in operator.factors))
        resources.require(
            64 * self.num_features**2, f"Fourier({self.num_features})", "take fewer features"
        )
        rng = np.random.default_rng(question.rng)
        maps: dict[KernelOperator, FourierMap] = {}
        for factor in (factor for operator in operators for factor in operator.factors):
            if factor not in maps:
                maps[factor] = FourierMap(draw_frequencies(factor.width, self.num_features, rng))
        return [self._moments(operator, maps, resources).spectrum() for operator in operators]

    def _moments(
        self, operator: Operator, maps: dict[KernelOperator, FourierMap], resources: Resources
    ) -> FeatureMoments:
        moments = FeatureMoments(2 * self.num_features, is_random=True)
        blocks = list(row_blocks(operator.size, max(1, _CHUNK // (16 * self.num_features))))
        for number, rows in enumerate(blocks):
            phases = sum(
                maps[factor].phases(points) for factor, points in _points_of(operator, rows)
            )
            moments.update(FourierMap.features(phases), operator.masses[rows])
            resources.report_progress("random features", (number + 1) / len(blocks))
        return moments

    def cost(self, n: int, d_x: int, d_t: int | None = None) -> Cost:
        """One pass over the data, and a dozen small eigenproblems for each matrix."""
        r, matrices = self.num_features, 1 if d_t is None else 3
        flops = 2 * n * r * (d_x + (d_t or 0)) * (1 if d_t is None else 2) + matrices * (
            4 * n * r**2 + 80 * r**3
        )
        return Cost(flops, 64 * r**2)


def _points_of(operator: Operator, rows: slice) -> list[tuple[KernelOperator, Points]]:
    """The points of each factor at some rows of the operator."""
    if isinstance(operator, HadamardOperator):
        sides = (operator.left, operator.left_index), (operator.right, operator.right_index)
        return [
            (factor, factor.points.take(upload(index[rows], factor.points.rows)))
            for factor, index in sides
        ]
    [factor] = operator.factors
    return [(factor, factor.points[rows])]
