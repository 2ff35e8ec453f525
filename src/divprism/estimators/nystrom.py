"""Nystrom: the spectrum from the columns of some items, the landmarks."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from divprism.core.arrays import to_numpy
from divprism.core.operators import Operator
from divprism.core.spectrum import Spectrum
from divprism.core.tiles import row_blocks
from divprism.engines import RESOURCES, Resources
from divprism.estimators._direct import direct_spectra, largest_part
from divprism.estimators.base import QUESTION, Cost, Estimator, Question, whole_number

__all__ = ["Nystrom"]

# Eigenvalues of the matrix of landmarks below this share of the largest count as zero.
_RANK = 1e-12

# Bytes of columns held at a time.
_CHUNK = 1 << 24


@dataclass(frozen=True)
class Nystrom(Estimator):
    """Landmarks: pick it if memory is short, or if t is well below the number of landmarks.

    The matrix is replaced by C W^+ C', with C its columns at random landmarks and W their rows. A
    connected part with no more items than landmarks is solved exactly.

    The trace that C W^+ C' misses is spread over the computed eigenvalues, as in the papers'
    truncation (Truncated Vendi, Def. 2). A truncated score depends on the t largest eigenvalues
    only, which converge first. Without truncation only the sum of the other eigenvalues is known;
    the stated error is the change of the score between different ways to distribute that sum.

    Supports every kernel. O(n m (d + m)) time for m landmarks, one pass for each matrix; 24 m^2
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
        resources.require(
            24 * self.num_landmarks**2, f"Nystrom({self.num_landmarks})", "take fewer landmarks"
        )
        small = [operator for operator in operators if largest_part(operator) <= self.num_landmarks]
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
        inner, gram = _inner_and_gram(operator, landmarks, resources)
        # Half of the landmarks show how far the eigenvalues have converged.
        half = max(1, count // 2)
        fine = _eigenvalues(inner, gram)
        coarse = _eigenvalues(inner[:half, :half], gram[:half, :half])
        # The larger of the noise of the kernel values and the rounding of the eigensolver.
        floor = max(operator.noise * trace, count * np.finfo(np.float64).eps * float(fine[0]))
        fine, coarse = fine[fine > floor], coarse[coarse > floor]
        # An item that is similar to no landmark adds an eigenvalue of the size of its mass.
        unseen = float(np.delete(operator.masses, landmarks).max() / trace)
        return _topped_up(fine / trace, coarse / trace, operator.size, unseen)

    def cost(self, n: int, d_x: int, d_t: int | None = None) -> Cost:
        """Cost of one pass for each matrix."""
        m = self.num_landmarks
        width, matrices = d_x, 1
        if d_t is not None:
            width, matrices = 2 * (d_x + d_t), 3
        return Cost(2 * n * m * width + matrices * (n * m**2 + 15 * m**3), 24 * m**2)


def _inner_and_gram(
    operator: Operator, landmarks: np.ndarray, resources: Resources
) -> tuple[np.ndarray, np.ndarray]:
    """W and C' C for the columns C of the landmarks and their rows W."""
    count = landmarks.size
    root = np.sqrt(operator.masses)
    values_at = operator.columns(landmarks)
    inner, gram = np.zeros((count, count)), np.zeros((count, count))
    blocks = list(row_blocks(operator.size, max(1, _CHUNK // (8 * count))))
    for number, rows in enumerate(blocks):
        values = to_numpy(values_at(rows)).astype(np.float64)
        block = values * root[rows, None] * root[None, landmarks]
        # Accumulated, so that the n x m matrix C is never held as a whole.
        gram += block.T @ block
        inside = np.flatnonzero((landmarks >= rows.start) & (landmarks < rows.stop))
        inner[inside] = block[landmarks[inside] - rows.start]
        resources.report_progress("landmarks", (number + 1) / len(blocks))
    return 0.5 * (inner + inner.T), gram


def _eigenvalues(inner: np.ndarray, gram: np.ndarray) -> np.ndarray:
    """Eigenvalues of C W^+ C' from W and C' C, largest first."""
    # C W^+ C' shares its non-zero eigenvalues with W^(-1/2) C' C W^(-1/2), which is m x m.
    values, vectors = np.linalg.eigh(inner)
    large = values > _RANK * values[-1]
    half_inverse = vectors[:, large] / np.sqrt(values[large])
    return np.linalg.eigvalsh(half_inverse.T @ gram @ half_inverse)[::-1]


def _topped_up(values: np.ndarray, coarse: np.ndarray, size: int, unseen: float) -> Spectrum:
    """Eigenvalues with the missing mass spread over them, and three alternatives as its error.

    The alternatives: the missing mass spread evenly over all other eigenvalues; gathered in
    eigenvalues as large as the largest mass of an item that is no landmark, as if those items had
    similarity zero; and the eigenvalues from half of the landmarks.
    """
    missing = max(0.0, 1 - float(values.sum()))
    missing_coarse = max(0.0, 1 - float(coarse.sum()))
    others = max(1, size - values.size)
    ones = np.ones(values.size)
    measures = [
        (values + missing / values.size, ones),
        (np.append(values, missing / others), np.append(ones, others)),
        (np.append(values, unseen), np.append(ones, missing / unseen)),
        (coarse + missing_coarse / coarse.size, np.ones(coarse.size)),
    ]
    # All measures on the same nodes, so that alternatives are shifts of the weights.
    nodes = np.concatenate([own for own, _ in measures])
    weights = np.zeros((len(measures), nodes.size))
    start = 0
    for number, (own, counts) in enumerate(measures):
        weights[number, start : start + own.size] = counts
        start += own.size
    order = np.argsort(nodes)[::-1]
    order = order[nodes[order] > 0]
    weights = weights[:, order]
    return Spectrum(nodes[order], weights[0], "nystrom", shifts=weights[1:] - weights[0])
