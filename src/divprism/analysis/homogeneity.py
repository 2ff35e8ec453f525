"""How similar outputs of different models to the same prompt are, beside outputs of one model.

Means over pairs of outputs, as Jiang et al. report them ("Artificial Hivemind", arXiv 2510.22954):
they find that outputs of different language models to an open-ended prompt are nearly as similar as
those of one model. A mean cosine says how close outputs are, not how many kinds there are.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from divprism.analysis.matched_models import MatchedModels
from divprism.analysis.model_states import ModelStates
from divprism.core.arrays import plain_mode, to_numpy
from divprism.core.tiles import row_blocks

__all__ = ["Homogeneity", "homogeneity_of"]

_PANEL = 512  # outputs to a prompt whose kernel values are computed together


@dataclass(frozen=True, eq=False)
class Homogeneity:
    """Mean similarity of two outputs to the same prompt, by the models that they come from.

    Every prompt counts the same. On the diagonal two different outputs of one model; NaN where no
    prompt has two.

    Attributes
    ----------
    kernel : ndarray, shape (m, m)
        Mean kernel value of the outputs.
    cosine : ndarray, shape (m, m), or None
        Mean cosine of their vectors; None for outputs that are ids.
    """

    kernel: np.ndarray
    cosine: np.ndarray | None

    def to_dict(self) -> dict[str, Any]:
        """Both matrices, and their means between models and within one; None for NaN."""
        document: dict[str, Any] = {}
        for name, matrix in (("kernel", self.kernel), ("cosine", self.cosine)):
            document[name] = None
            if matrix is not None:
                between = matrix[~np.eye(len(matrix), dtype=bool)]
                document[name] = {
                    "between_models": float(between.mean()),
                    "within_a_model": _plain(float(matrix.diagonal().mean())),
                    "matrix": [_plain_row(row) for row in matrix.tolist()],
                }
        return document


def _plain(value: float) -> float | None:
    if np.isnan(value):
        return None
    return value


def _plain_row(row: list[float]) -> list[float | None]:
    return [_plain(value) for value in row]


def homogeneity_of(kept: MatchedModels, states: ModelStates) -> Homogeneity:
    """Mean similarities between and within models; O(N d) and the kernel values of each prompt."""
    vectors = np.asarray(to_numpy(kept.pooled().outputs))
    cosine = None
    if vectors.ndim == 2:
        cosine = _mean_of(*_cosine_sums(states, vectors), states)
    return Homogeneity(_mean_of(*_kernel_sums(states), states), cosine)


def _mean_of(sums: np.ndarray, themselves: np.ndarray, states: ModelStates) -> np.ndarray:
    """Means over prompts from sums by prompt, and the sums of outputs with themselves."""
    counts = states.counts.astype(np.float64)
    means = np.mean(sums / (counts**2)[:, None, None], axis=0)
    several = counts > 1
    own = np.full(states.num_models, np.nan)
    if several.any():
        ways = (counts * (counts - 1))[several, None]
        inside = np.diagonal(sums, axis1=1, axis2=2)
        own = np.mean((inside - themselves)[several] / ways, axis=0)
    np.fill_diagonal(means, own)
    return np.asarray(means)


def _cosine_sums(states: ModelStates, vectors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Sums of cosines by prompt, and of those with themselves: 1, or 0 for a vector of zeros."""
    totals, themselves = [], []
    for rows in states.rows:
        own = vectors[rows].astype(np.float64)
        # The largest entry first: squares of tiny or huge numbers would vanish or overflow.
        largest = np.abs(own).max(axis=1, keepdims=True)
        own /= np.where(largest > 0, largest, 1.0)
        lengths = np.linalg.norm(own, axis=1, keepdims=True)
        own /= np.where(lengths > 0, lengths, 1.0)
        totals.append(np.add.reduceat(own, states.starts))
        themselves.append(np.add.reduceat((lengths[:, 0] > 0).astype(np.float64), states.starts))
    count = states.num_models
    sums = np.empty((states.counts.size, count, count))
    for first in range(count):
        for second in range(first, count):
            # A sum of cosines is the inner product of two sums of unit vectors.
            cosines = np.einsum("pd,pd->p", totals[first], totals[second])
            sums[:, first, second] = sums[:, second, first] = cosines
    return sums, np.stack(themselves, axis=1)


def _kernel_sums(states: ModelStates) -> tuple[np.ndarray, np.ndarray]:
    """Sums of kernel values of the outputs by prompt, and of those with themselves."""
    x, count = states.problem.x, states.num_models
    sums = np.zeros((states.counts.size, count, count))
    for prompt, (start, size) in enumerate(zip(states.starts, states.counts, strict=True)):
        rows = states.rows[:, start : start + size].ravel()
        points = x.points_at(x.index[rows])
        for panel in row_blocks(rows.size, _PANEL):
            with plain_mode():
                block = np.asarray(to_numpy(x.kernel.block(points[panel], points)), np.float64)
            by_model = block.reshape(block.shape[0], count, size).sum(axis=2)
            np.add.at(sums[prompt], np.arange(panel.start, panel.stop) // size, by_model)
    # k(a, a) = 1.
    themselves = np.repeat(states.counts[:, None].astype(np.float64), count, axis=1)
    return sums, themselves
