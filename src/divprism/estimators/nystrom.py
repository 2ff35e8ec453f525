"""Nystrom: the spectrum from the columns of some items, the landmarks."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from divprism.core.arrays import Array, to_numpy
from divprism.core.operators import ColumnNoise, Operator
from divprism.core.spectrum import Spectrum, spectral_floor
from divprism.core.tiles import row_blocks
from divprism.engines import RESOURCES, Arrays, Job, Resources, bundled
from divprism.estimators._direct import direct_spectra, largest_part
from divprism.estimators.base import QUESTION, Cost, Estimator, Question, whole_number

__all__ = ["Nystrom"]

_EPSILON = float(np.finfo(np.float64).eps)

# Error of an entropy by what no landmark shows: two items that resemble only each other.
_UNRESOLVED = 3e-6

# Bytes of columns held at a time.
_CHUNK = 1 << 24


@dataclass(frozen=True)
class Nystrom(Estimator):
    """Landmarks: pick it if memory is short, or if t is well below the number of landmarks.

    The matrix is replaced by C W^+ C', with C its columns at random landmarks and W their rows. A
    connected part with no more items than landmarks is solved exactly.

    A truncated score depends on the t largest eigenvalues only, which converge first. Of the others
    only the sum is known, the trace that C W^+ C' misses. Spread over few or over many eigenvalues
    it gives a lower and an upper bound. The estimate lies between them, where two halves of the
    landmarks predict; its stated error is a share of the gap, large with few landmarks.

    Supports every kernel. O(n m (d + m)) time for m landmarks, one pass for each matrix; 80 m^2
    bytes.

    Attributes
    ----------
    num_landmarks : int
        Number of landmarks, sampled by mass without replacement.
    """

    num_landmarks: int = 1000

    def __post_init__(self) -> None:
        count = whole_number(self.num_landmarks, "num_landmarks", 2)
        object.__setattr__(self, "num_landmarks", count)

    @property
    def squares_are_exact(self) -> bool:
        """False: order 2 uses the landmarks too, because the method promises a single pass."""
        return False

    def spectra(
        self,
        operators: Sequence[Operator],
        question: Question = QUESTION,
        resources: Resources = RESOURCES,
    ) -> list[Spectrum]:
        """The spectrum of each operator."""
        small = [operator for operator in operators if largest_part(operator) <= self.num_landmarks]
        if len(small) < len(operators):
            needed = 80 * self.num_landmarks**2
            resources.require(needed, f"Nystrom({self.num_landmarks})", "take fewer landmarks")
        spectra = dict(zip(small, direct_spectra(small, resources), strict=True))
        rng = np.random.default_rng(question.rng)
        for operator in operators:
            if operator not in spectra:
                spectra[operator] = self._spectrum(operator, rng, resources)
        return [spectra[operator] for operator in operators]

    def _spectrum(
        self, operator: Operator, rng: np.random.Generator, resources: Resources
    ) -> Spectrum:
        trace = float(operator.masses.sum())
        count = self.num_landmarks
        landmarks = rng.choice(operator.size, count, replace=False, p=operator.masses / trace)
        inner = _landmark_features(operator, landmarks)
        moment, squares, noise = _moment(operator, landmarks, inner, resources)
        values = _eigenvalues(moment) / trace
        floor = spectral_floor(values[0], operator.size, noise / trace)
        fine = _bounded(values, operator.size, floor)
        _, most = fine.bounds
        unseen = max(0.0, squares / trace**2 - float(most.weights @ most.values**2))
        # One landmark more might have an equal: the least that a sample of them cannot exclude.
        unseen += float(operator.masses @ operator.masses) / (trace**2 * count)
        coarse = []
        # Two independent halves of the landmarks show how far the eigenvalues have converged.
        for half in np.array_split(np.arange(count), 2):
            basis = _basis(inner[:, half])
            within = _eigenvalues(basis.T @ moment @ basis) / trace
            coarse.append(_bounded(within, operator.size, floor))
        return replace(fine, coarse=tuple(coarse), unseen=unseen, rounding=_UNRESOLVED)

    def cost(self, n: int, d_x: int, d_t: int | None = None) -> Cost:
        """Cost of one pass for each matrix."""
        m = self.num_landmarks
        width, matrices = d_x, 1
        if d_t is not None:
            width, matrices = 2 * (d_x + d_t), 3
        return Cost(2 * n * m * width + matrices * (n * m**2 + 15 * m**3), 80 * m**2)


def _landmark_features(operator: Operator, landmarks: np.ndarray) -> np.ndarray:
    """Features B of the landmarks, shape (rank, m), with B' B = W their matrix."""
    everything = slice(0, landmarks.size)
    values = operator.sample(landmarks, double=False).values(everything, everything)
    root = np.sqrt(operator.masses[landmarks])
    matrix = to_numpy(values).astype(np.float64) * root[:, None] * root[None, :]
    eigenvalues, vectors = np.linalg.eigh(0.5 * (matrix + matrix.T))
    large = eigenvalues > landmarks.size * _EPSILON * eigenvalues[-1]
    # Without the small ones, as dividing by them would magnify rounding.
    return np.sqrt(eigenvalues[large])[:, None] * vectors[:, large].T


def _moment(
    operator: Operator, landmarks: np.ndarray, features: np.ndarray, resources: Resources
) -> tuple[np.ndarray, float, float]:
    """F' F for the features F of all items, with C = F B; tr M^2 as estimated; rounding noise of M.

    C W^+ C' = F F' shares its non-zero eigenvalues with F' F. Computing C' C instead and dividing
    by W on both sides would square the condition of W, and eigenvalues below 1e-8 of the largest
    would be noise.
    """
    # B has orthogonal rows, so its pseudo-inverse is its transpose with the rows rescaled.
    inverse = (features / (features**2).sum(axis=1, keepdims=True)).T
    noise = ColumnNoise.of(operator, landmarks)
    job = _Landmarks(
        operator.columns(landmarks), np.sqrt(operator.masses), landmarks, inverse, noise
    )
    engine = resources.engine_for(operator.factors[0].points.rows)
    blocks = list(row_blocks(operator.size, max(1, _CHUNK // (8 * landmarks.size))))

    def report(share: float) -> None:
        resources.report_progress("landmarks", share)

    moment, squares, sums = engine.total(engine.share(job), None, bundled(blocks), report).values
    # Landmarks are sampled by mass, so a column stands for 1 / mass of them. The diagonal is known.
    masses, own = operator.masses, operator.masses[landmarks]
    beside = float(((squares - own**2) / own).mean()) * float(masses.sum())
    return moment, float(masses @ masses) + beside, noise.total(sums)


@dataclass(frozen=True, eq=False)
class _Landmarks(Job):
    """Sums over rows of the columns C of the landmarks: F' F, squares of C, and rounding noise."""

    values_at: Callable[[slice], Array]
    root: np.ndarray
    landmarks: np.ndarray
    inverse: np.ndarray
    noise: ColumnNoise

    def empty(self, inputs: None, items: Sequence[slice]) -> Arrays:
        """Zeros."""
        width, count = self.inverse.shape[1], self.landmarks.size
        return Arrays((np.zeros((width, width)), np.zeros(count), np.zeros((2, count))))

    def part(self, inputs: None, item: slice) -> tuple[np.ndarray, ...]:
        """The sums over some rows: the n x m matrix F is never held as a whole."""
        values = to_numpy(self.values_at(item)).astype(np.float64)
        block = values * self.root[item, None] * self.root[None, self.landmarks]
        features = block @ self.inverse
        squares = (block**2).sum(axis=0)
        return features.T @ features, squares, self.noise.sums(item, block)


def _basis(features: np.ndarray) -> np.ndarray:
    """Orthonormal basis of the space of some features: the landmarks that have them suffice."""
    basis, sizes, _ = np.linalg.svd(features, full_matrices=False)
    # Singular values are the roots of eigenvalues, and so is the bound on their rounding.
    return basis[:, sizes > np.sqrt(features.shape[1] * _EPSILON) * sizes[0]]


def _eigenvalues(moment: np.ndarray) -> np.ndarray:
    """Eigenvalues, largest first; those that rounding makes negative are zero."""
    return np.maximum(np.linalg.eigvalsh(moment)[::-1], 0.0)


def _bounded(values: np.ndarray, size: int, floor: float) -> Spectrum:
    """Eigenvalues above the floor, with the missing mass placed in two ways.

    C W^+ C' is at most M, so each eigenvalue is at most the true one, and the mass that is missing
    is known. For the least entropy it enlarges all eigenvalues in proportion. For the most entropy
    it is spread evenly over all others, or over as many as it can raise to the rounding floor:
    below it eigenvalues count as zero.
    """
    missing = max(0.0, 1 - float(values.sum()))
    kept = values[values > floor]
    count = min(float(max(1, size - kept.size)), missing / floor)
    least = Spectrum(kept / kept.sum(), np.ones(kept.size), "nystrom")
    most = least
    if count > 0:
        nodes = np.append(kept, missing / count)
        weights = np.append(np.ones(kept.size), count)
        order = np.argsort(nodes)[::-1]
        nodes, weights = nodes[order], weights[order]
        most = Spectrum(nodes / float(nodes @ weights), weights, "nystrom")
    return replace(least, bounds=(least, most), seen=min(1.0, float(kept.sum())))
