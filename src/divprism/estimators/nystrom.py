"""Nystrom: the spectrum seen from some of the items."""

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

_RANK = 1e-12  # eigenvalues of the landmarks' matrix below this share of the largest count as zero
_CHUNK = 1 << 24  # bytes of columns at a time


@dataclass(frozen=True)
class Nystrom(Estimator):
    """Landmarks: pick it for truncated scores with t well below the number of landmarks, or when memory is short.

    The matrix is replaced by C W^+ C', C its columns at random landmarks and W their rows; where all items of a connected part
    would be landmarks, it is solved exactly.
    What that leaves of the trace is spread over the eigenvalues found, as the papers' truncation does (Truncated Vendi, Def.
    2): a truncated score with t eigenvalues sees only the t largest, and those are found first. Without truncation the rest of
    the spectrum is unknown but for its sum; the error told is how much it matters where the rest goes.

    Any kernel. O(n m (d + m)) time for m landmarks, one pass for each matrix; 24 m^2 bytes.

    Attributes
    ----------
    num_landmarks : int
        Items to see the others from, drawn by their masses without replacement.
    """

    num_landmarks: int = 1000

    def __post_init__(self) -> None:
        object.__setattr__(
            self, "num_landmarks", whole_number(self.num_landmarks, "num_landmarks", 2)
        )

    @property
    def squares_are_exact(self) -> bool:
        """Order 2 is answered by the landmarks too: the user wants one pass."""
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
        found = dict(
            zip(small, direct_spectra(small, resources, by_moment=lambda part: False), strict=True)
        )
        rng = np.random.default_rng(question.rng)
        found.update((o, self._spectrum(o, rng, resources)) for o in operators if o not in found)
        return [found[operator] for operator in operators]

    def _spectrum(
        self, operator: Operator, rng: np.random.Generator, resources: Resources
    ) -> Spectrum:
        trace = float(operator.masses.sum())
        count = self.num_landmarks
        places = rng.choice(operator.size, count, replace=False, p=operator.masses / trace)
        root = np.sqrt(operator.masses)
        values_at = operator.columns(places)
        inner, gram = np.zeros((count, count)), np.zeros((count, count))
        blocks = list(row_blocks(operator.size, max(1, _CHUNK // (8 * count))))
        for number, rows in enumerate(blocks):
            block = (
                to_numpy(values_at(rows)).astype(np.float64) * root[rows, None] * root[None, places]
            )
            gram += block.T @ block
            here = np.flatnonzero((places >= rows.start) & (places < rows.stop))
            inner[here] = block[places[here] - rows.start]
            resources.report_progress("landmarks", (number + 1) / len(blocks))
        inner = 0.5 * (inner + inner.T)
        all_found, half_found = (
            _eigenvalues(inner[:k, :k], gram[:k, :k]) for k in (count, max(1, count // 2))
        )
        floor = max(operator.noise * trace, count * np.finfo(np.float64).eps * float(all_found[0]))
        all_found, half_found = all_found[all_found > floor], half_found[half_found > floor]
        unseen = np.delete(operator.masses, places).max() / trace
        return _topped_up(all_found / trace, half_found / trace, operator.size, float(unseen))

    def cost(self, n: int, d_x: int, d_t: int | None = None) -> Cost:
        """One pass for each matrix."""
        m, matrices = self.num_landmarks, 1 if d_t is None else 3
        width = d_x if d_t is None else 2 * (d_x + d_t)
        return Cost(2 * n * m * width + matrices * (n * m**2 + 15 * m**3), 24 * m**2)


def _eigenvalues(inner: np.ndarray, gram: np.ndarray) -> np.ndarray:
    """Eigenvalues of C W^+ C' from W and C' C, largest first."""
    values, vectors = np.linalg.eigh(inner)
    large = values > _RANK * values[-1]
    half_inverse = vectors[:, large] / np.sqrt(values[large])
    return np.linalg.eigvalsh(half_inverse.T @ gram @ half_inverse)[::-1]


def _topped_up(values: np.ndarray, coarse: np.ndarray, size: int, unseen: float) -> Spectrum:
    """Eigenvalues with the missing mass spread over them, and three changes that tell the error.

    The missing mass spread evenly over all other eigenvalues; gathered in eigenvalues as large as the largest mass of an item
    that is no landmark, as if those had nothing in common; and the eigenvalues that half of the landmarks give.
    """
    missing, missing_coarse = max(0.0, 1 - float(values.sum())), max(0.0, 1 - float(coarse.sum()))
    others = max(1, size - values.size)
    topped = values + missing / values.size
    measures = [
        (topped, np.ones(values.size)),
        (np.append(values, missing / others), np.append(np.ones(values.size), others)),
        (np.append(values, unseen), np.append(np.ones(values.size), missing / unseen)),
        (coarse + missing_coarse / coarse.size, np.ones(coarse.size)),
    ]
    nodes = np.concatenate([nodes for nodes, _ in measures])
    weights = np.zeros((len(measures), nodes.size))
    start = 0
    for number, (own, counts) in enumerate(measures):
        weights[number, start : start + own.size] = counts
        start += own.size
    order = np.argsort(nodes)[::-1]
    order = order[nodes[order] > 0]
    weights = weights[:, order]
    return Spectrum(nodes[order], weights[0], "nystrom", shifts=weights[1:] - weights[0])
