"""Fourier: random features, in one pass over the data."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from divprism.core.arrays import Array
from divprism.core.features import FourierMap, draw_frequencies, require_fourier_features
from divprism.core.moments import FeatureMoments
from divprism.core.operators import HadamardOperator, KernelOperator, Operator
from divprism.core.spectrum import Spectrum
from divprism.core.tiles import row_blocks
from divprism.engines import RESOURCES, Resources
from divprism.estimators.base import QUESTION, Cost, Estimator, Question, whole_number

__all__ = ["Fourier"]

# Bytes of features held at a time.
_CHUNK = 1 << 24


@dataclass(frozen=True)
class Fourier(Estimator):
    """Random Fourier features (FKEA): pick it for a million items or more, or for streams.

    Eigenvalues of the 2 r x 2 r moment of r random frequencies (Truncated Vendi, eq. 12). Needs
    Gaussian kernels. The spectrum of r features is too concentrated, by a term of about 1 / r. The
    same moment contains two sets of r / 2 frequencies and four of r / 4, from which the entropy is
    extrapolated to r = infinity; the influence of each frequency gives the random error.
    Choose r well above the score: a spectrum has at most 2 r eigenvalues, and if r is too small the
    stated error is as large as the score itself.

    O(n (d + r) r) time in one pass; 32 r^2 bytes for each of K_X, K_T and their product in turn,
    whatever n.

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
        """False: order 2 uses the features too, because the method promises a single pass."""
        return False

    def spectra(
        self,
        operators: Sequence[Operator],
        question: Question = QUESTION,
        resources: Resources = RESOURCES,
    ) -> list[Spectrum]:
        """The spectrum of each operator; the product uses the frequencies of both factors."""
        factors = [factor for operator in operators for factor in operator.factors]
        require_fourier_features(*(factor.kernel for factor in factors))
        resources.require(
            64 * self.num_features**2, f"Fourier({self.num_features})", "take fewer features"
        )
        rng = np.random.default_rng(question.rng)
        maps: dict[KernelOperator, FourierMap] = {}
        # Frequencies are tied to a factor, so that the product reuses those of K_X and K_T.
        for factor in factors:
            if factor not in maps:
                maps[factor] = FourierMap(draw_frequencies(factor.width, self.num_features, rng))
        return [self._moments(operator, maps, resources).spectrum() for operator in operators]

    def _moments(
        self, operator: Operator, maps: dict[KernelOperator, FourierMap], resources: Resources
    ) -> FeatureMoments:
        moments = FeatureMoments(2 * self.num_features, is_random=True)
        # A cosine and a sine of eight bytes each for every frequency.
        blocks = list(row_blocks(operator.size, max(1, _CHUNK // (16 * self.num_features))))
        for number, rows in enumerate(blocks):
            phases = _phases(operator, maps, rows)
            moments.update(FourierMap.features(phases), operator.masses[rows])
            resources.report_progress("random features", (number + 1) / len(blocks))
        return moments

    def cost(self, n: int, d_x: int, d_t: int | None = None) -> Cost:
        """Cost of one pass over the data, and a dozen small eigenproblems for each matrix."""
        r = self.num_features
        width, matrices = d_x, 1
        if d_t is not None:
            # The product computes the phases of both factors once more.
            width, matrices = 2 * (d_x + d_t), 3
        return Cost(2 * n * r * width + matrices * (4 * n * r**2 + 80 * r**3), 64 * r**2)


def _phases(operator: Operator, maps: dict[KernelOperator, FourierMap], rows: slice) -> Array:
    """Phases of some rows of an operator; those of a product are the sums of its factors'."""
    if isinstance(operator, HadamardOperator):
        left = operator.left.points_at(operator.left_index[rows])
        right = operator.right.points_at(operator.right_index[rows])
        return maps[operator.left].phases(left) + maps[operator.right].phases(right)
    [factor] = operator.factors
    return maps[factor].phases(factor.points[rows])
