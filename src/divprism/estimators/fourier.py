"""Fourier: random features, in one pass over the data."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from divprism.core.arrays import Array, to_numpy, upload
from divprism.core.features import FourierMap, draw_frequencies, require_fourier_features
from divprism.core.kernels import Points
from divprism.core.moments import FeatureMoments
from divprism.core.operators import KernelOperator, Operator
from divprism.core.spectrum import Spectrum
from divprism.core.tiles import row_blocks
from divprism.engines import RESOURCES, Arrays, Job, Resources, bundled, one_blas_thread
from divprism.estimators.base import (
    QUESTION,
    Cost,
    Estimator,
    Question,
    check_flag,
    whole_number,
)

__all__ = ["Fourier"]

# Bytes of features held at a time.
_CHUNK = 1 << 24

# Parts of the rows whose moments are summed: each is as large as their sum.
_PARTS = 16

# Moments that wait to be summed with others of the same height in a tree of this many parts.
_WAITING = 6

# Workers that a cost is stated for.
_USUAL_WORKERS = 2


@dataclass(frozen=True)
class Fourier(Estimator):
    """Random Fourier features (FKEA): pick it for a million items or more, or for streams.

    Eigenvalues of the 2 r x 2 r moment of r random frequencies (FKEA-Vendi in Truncated Vendi,
    App. A.5). Needs Gaussian kernels. The spectrum of r features is too concentrated, by a term of
    about 1 / r. The same moment contains two sets of r / 2 frequencies and four of r / 4, from
    which the entropy is extrapolated to r = infinity; the influence of each frequency gives the
    random error.
    Choose r well above the score: a spectrum has at most 2 r eigenvalues, and if r is too small the
    stated error is as large as the score itself.

    O(n (d + r) r) time in one pass; 320 r^2 bytes on two cores, whatever n.

    Attributes
    ----------
    num_features : int
        Number of frequencies r, at least 8.
    extrapolate : bool
        Whether to extrapolate to r = infinity. If False, the score is that of the r frequencies
        alone: the papers' FKEA-Vendi, which Truncated Vendi, Thm 3 (a), is about. Its stated error
        then contains what the extrapolation would have changed.
    """

    num_features: int = 1000
    extrapolate: bool = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "num_features", whole_number(self.num_features, "num_features", 8))
        object.__setattr__(self, "extrapolate", check_flag(self.extrapolate, "extrapolate"))

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
        engine = resources.engine_for(factors[0].points.rows)
        needed = self._held_bytes(engine.num_workers)
        resources.require(needed, f"Fourier({self.num_features})", "take fewer features")
        rng = np.random.default_rng(question.rng)
        maps: dict[KernelOperator, FourierMap] = {}
        # Frequencies are tied to a factor, so that the product reuses those of K_X and K_T.
        for factor in factors:
            if factor not in maps:
                maps[factor] = FourierMap(draw_frequencies(factor.width, self.num_features, rng))
        spectra = []
        for operator in operators:
            moments, excess = self._moments(operator, maps, resources)
            lengths = sum(_excess_lengths(maps[factor]) for factor in operator.factors)
            controls = np.stack([lengths, excess], axis=1)
            spectrum = replace(moments.spectrum(), controls=controls, raw=not self.extrapolate)
            spectra.append(spectrum)
        return spectra

    def _moments(
        self, operator: Operator, maps: dict[KernelOperator, FourierMap], resources: Resources
    ) -> tuple[FeatureMoments, np.ndarray]:
        """Moments of the features, and how much wider each frequency spreads than the items."""
        sides = []
        for factor, index in operator.indexed_factors():
            of_pairs = None
            if operator is not factor:
                of_pairs = index
            sides.append(_Side(factor.points, maps[factor], of_pairs))
        job = _Phases.of(sides, operator.masses)
        engine = resources.engine_for(operator.factors[0].points.rows)
        # A cosine and a sine of eight bytes each for every frequency.
        blocks = list(row_blocks(operator.size, max(1, _CHUNK // (16 * self.num_features))))
        # Sums as large as the result are worth many blocks of rows.
        bundles = [[part] for part in bundled(blocks, _PARTS)]

        def report(share: float) -> None:
            resources.report_progress("random features", share)

        total = engine.total(engine.share(job), None, bundles, report).values
        return job.moments(total), job.excess(total)

    def cost(self, n: int, d_x: int, d_t: int | None = None) -> Cost:
        """Cost of one pass over the data, and a dozen small eigenproblems for each matrix."""
        r = self.num_features
        width, matrices = d_x, 1
        if d_t is not None:
            # The product computes the phases of both factors once more.
            width, matrices = 2 * (d_x + d_t), 3
        flops = 2 * n * r * width + matrices * (4 * n * r**2 + 80 * r**3)
        return Cost(flops, self._held_bytes(_USUAL_WORKERS))

    def _held_bytes(self, num_workers: int) -> int:
        """Bytes of the moments that are held at the same time."""
        # Two parts for each worker: one that it computes, and one that waits to be summed.
        held = min(_PARTS, 2 * num_workers) + _WAITING
        # A cosine and a sine for each frequency: (2 r)^2 numbers of eight bytes.
        return held * 32 * self.num_features**2


@dataclass(frozen=True, eq=False)
class _Side:
    """The points of one factor, and their random features; with `index`, those of pairs."""

    points: Points
    features: FourierMap
    index: np.ndarray | None

    def at(self, rows: slice) -> Points:
        """The points of some rows of the operator."""
        if self.index is None:
            return self.points[rows]
        return self.points.take(upload(self.index[rows], self.points.rows))


@dataclass(frozen=True, eq=False)
class _Phases(Job):
    """Sums over rows: of w phi phi', and of the phases and coordinates and their squares.

    Attributes
    ----------
    sides : sequence of _Side
        One, or two for a product: its phases are the sums of theirs.
    masses : ndarray
        Masses of the rows.
    origins : list of ndarray
        Phases, then the coordinates of each side, that sums are relative to: squares of a large
        common offset would cancel.
    """

    sides: Sequence[_Side]
    masses: np.ndarray
    origins: list[np.ndarray]

    @classmethod
    def of(cls, sides: Sequence[_Side], masses: np.ndarray) -> "_Phases":
        """Sums relative to the first row."""
        job = cls(sides, masses, [])
        with one_blas_thread():
            first = job._values(slice(0, 1))
        origins = [to_numpy(values)[0].astype(np.float64) for values in first]
        return replace(job, origins=origins)

    def _values(self, rows: slice) -> list[Array]:
        """Phases, then the coordinates of each side."""
        points = [side.at(rows) for side in self.sides]
        of_sides = []
        for side, own in zip(self.sides, points, strict=True):
            of_sides.append(side.features.phases(own))
        # The phases of a product are the sums of those of its factors.
        phases = sum(of_sides[1:], of_sides[0])
        return [phases, *(own.rows for own in points)]

    def empty(self, inputs: None, items: Sequence[list[slice]]) -> Arrays:
        """Zeros."""
        size = 2 * self.origins[0].size
        sums = [np.zeros(origin.size) for origin in self.origins for _ in range(2)]
        return Arrays((np.zeros((size, size)), *sums))

    def part(self, inputs: None, item: Sequence[slice]) -> tuple[np.ndarray, ...]:
        """The sums over some blocks of rows."""
        moments = FeatureMoments(2 * self.origins[0].size, is_random=True)
        sums: list[Any] = [0.0] * (2 * len(self.origins))
        for rows in item:
            masses, values = self.masses[rows], self._values(rows)
            moments.update(FourierMap.features(values[0]), masses)
            for number, (each, origin) in enumerate(zip(values, self.origins, strict=True)):
                moved = to_numpy(each).astype(np.float64) - origin
                sums[2 * number] += masses @ moved
                sums[2 * number + 1] += masses @ moved**2
        return moments.total, *sums

    def moments(self, total: tuple[np.ndarray, ...]) -> FeatureMoments:
        """Moments of the features, from the sums over all rows."""
        empty = FeatureMoments(2 * self.origins[0].size, is_random=True)
        return empty.restored(total[0], float(self.masses.sum()))

    def excess(self, total: tuple[np.ndarray, ...]) -> np.ndarray:
        """Variance of the phases of each frequency less its mean over all frequencies.

        That mean is the total variance of the items, over the bandwidths. Where the variances of a
        sample of frequencies are smaller, the items look more alike than they are.
        """
        mass = float(self.masses.sum())
        variances = []
        for first, second in zip(total[1::2], total[2::2], strict=True):
            variances.append(second / mass - (first / mass) ** 2)
        phases, *coordinates = variances
        return np.asarray(phases - sum(float(variance.sum()) for variance in coordinates))


def _excess_lengths(features: FourierMap) -> np.ndarray:
    """Squared length of each frequency less its mean, which is the width of the data."""
    return (features.frequencies**2).sum(axis=0) - features.frequencies.shape[0]
