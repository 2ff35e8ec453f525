"""Fourier: random features, in one pass over the data."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from divprism.core.arrays import Array, to_numpy
from divprism.core.features import FourierMap, draw_frequencies, require_fourier_features
from divprism.core.kernels import Points
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
        spectra = []
        for operator in operators:
            moments, spread = self._moments(operator, maps, resources)
            lengths = sum(_excess_lengths(maps[factor]) for factor in operator.factors)
            controls = np.stack([lengths, spread.excess()], axis=1)
            spectra.append(replace(moments.spectrum(), controls=controls))
        return spectra

    def _moments(
        self, operator: Operator, maps: dict[KernelOperator, FourierMap], resources: Resources
    ) -> tuple[FeatureMoments, "_PhaseSpread"]:
        moments, spread = FeatureMoments(2 * self.num_features, is_random=True), _PhaseSpread()
        # A cosine and a sine of eight bytes each for every frequency.
        blocks = list(row_blocks(operator.size, max(1, _CHUNK // (16 * self.num_features))))
        for number, rows in enumerate(blocks):
            pieces = _points(operator, rows)
            # The phases of a product are the sums of those of its factors.
            first, *rest = [maps[factor].phases(points) for factor, points in pieces]
            phases = sum(rest, first)
            moments.update(FourierMap.features(phases), operator.masses[rows])
            spread.update([points.rows for _, points in pieces], phases, operator.masses[rows])
            resources.report_progress("random features", (number + 1) / len(blocks))
        return moments, spread

    def cost(self, n: int, d_x: int, d_t: int | None = None) -> Cost:
        """Cost of one pass over the data, and a dozen small eigenproblems for each matrix."""
        r = self.num_features
        width, matrices = d_x, 1
        if d_t is not None:
            # The product computes the phases of both factors once more.
            width, matrices = 2 * (d_x + d_t), 3
        return Cost(2 * n * r * width + matrices * (4 * n * r**2 + 80 * r**3), 64 * r**2)


class _PhaseSpread:
    """Variance of the phases of each frequency over the items, beside that of the items.

    The mean over all frequencies is the total variance of the items, over the bandwidths. Where it
    is smaller in a sample of frequencies, the items look more alike than they are.
    """

    def __init__(self) -> None:
        self._phases = _Variance()
        self._coordinates: list[_Variance] = []

    def update(self, rows: list[Array], phases: Array, masses: np.ndarray) -> None:
        """Add items: their rows on each side, and their phases."""
        if not self._coordinates:
            self._coordinates = [_Variance() for _ in rows]
        self._phases.update(phases, masses)
        for variance, values in zip(self._coordinates, rows, strict=True):
            variance.update(values, masses)

    def excess(self) -> np.ndarray:
        """Variance of the phases of each frequency less its mean over all frequencies."""
        total = sum(float(variance.value().sum()) for variance in self._coordinates)
        return self._phases.value() - total


class _Variance:
    """Weighted variance of each column, block by block."""

    def __init__(self) -> None:
        self._origin: np.ndarray | None = None
        self._mass = 0.0
        self._first: np.ndarray | float = 0.0
        self._second: np.ndarray | float = 0.0

    def update(self, values: Array, masses: np.ndarray) -> None:
        """Add rows of values."""
        block = to_numpy(values).astype(np.float64)
        if self._origin is None:
            # Relative to some row: squares of a large common offset would cancel.
            self._origin = block[0]
        block = block - self._origin
        self._mass += float(masses.sum())
        self._first = self._first + masses @ block
        self._second = self._second + masses @ block**2

    def value(self) -> np.ndarray:
        """The variances."""
        mean = np.asarray(self._first) / self._mass
        return np.asarray(self._second) / self._mass - mean**2


def _excess_lengths(features: FourierMap) -> np.ndarray:
    """Squared length of each frequency less its mean, which is the width of the data."""
    return (features.frequencies**2).sum(axis=0) - features.frequencies.shape[0]


def _points(operator: Operator, rows: slice) -> list[tuple[KernelOperator, Points]]:
    """The points of some rows of an operator, by factor."""
    if isinstance(operator, HadamardOperator):
        return [
            (operator.left, operator.left.points_at(operator.left_index[rows])),
            (operator.right, operator.right.points_at(operator.right_index[rows])),
        ]
    [factor] = operator.factors
    return [(factor, factor.points[rows])]
