"""The score of given rows, of all rows, and of random subsets to compare a selection with."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from divprism.analysis.selection.similarities import Similarities
from divprism.analysis.selection.traces import trace_of_order
from divprism.core.tiles import row_blocks

__all__ = ["RandomSubsets", "log_score", "random_log_scores"]

NUM_DRAWS = 20
"""Random subsets that a selection is compared with."""

_LEVEL = 0.95
_BLOCK = 1024  # rows of a kernel matrix whose squares are summed at a time


@dataclass(frozen=True)
class RandomSubsets:
    """The score of random subsets of the same size, from the same groups.

    Attributes
    ----------
    mean : float
        Geometric mean over the random subsets.
    low, high : float
        Where the score of a random subset lies in 95 of 100 cases, by Student's t.
    num_draws : int
        Number of random subsets.
    """

    mean: float
    low: float
    high: float
    num_draws: int

    @classmethod
    def of(cls, log_scores: np.ndarray) -> "RandomSubsets":
        """The summary of the logarithms of the scores of random subsets."""
        from scipy.special import stdtrit

        count = log_scores.size
        mean = float(log_scores.mean())
        reach = float(stdtrit(count - 1, 0.5 + _LEVEL / 2))
        # Of one more subset, not of the mean: hence the one under the root.
        reach *= float(log_scores.std(ddof=1)) * math.sqrt(1 + 1 / count)
        return cls(math.exp(mean), math.exp(mean - reach), math.exp(mean + reach), count)


def log_score(
    similarities: Mapping[str, Similarities],
    terms: Mapping[str, int],
    order: float,
    rows: np.ndarray,
) -> float:
    """The logarithm of the score of some rows of a pool. O(m^3), at order 2 O(m^2)."""
    total = 0.0
    for name, sign in terms.items():
        each = similarities[name]
        items = each.item_of_row[rows]
        if order == 2:
            squares = 0.0
            for part in row_blocks(items.size, _BLOCK):
                block = each.block(items[part], items).astype(np.float64, copy=False)
                squares += float(np.vdot(block, block))
            entropy = 2 * math.log(items.size) - math.log(squares)
        else:
            entropy = _entropies(each.matrix(items)[None], order)[0]
        total += sign * entropy
    return total


def random_log_scores(
    similarities: Mapping[str, Similarities],
    terms: Mapping[str, int],
    order: float,
    draws: Sequence[np.ndarray],
) -> np.ndarray:
    """`log_score` of several sets of rows of one size, which share kernel values where few."""
    first = next(iter(similarities.values()))
    if first.size > 4 * draws[0].size + 64:
        return np.array([log_score(similarities, terms, order, rows) for rows in draws])
    chosen = np.stack(draws)
    total = np.zeros(len(draws))
    for name, sign in terms.items():
        each = similarities[name]
        whole = each.matrix(np.arange(each.size))
        items = each.item_of_row[chosen]
        matrices = whole[items[:, :, None], items[:, None, :]]
        if order == 2:
            squares = np.einsum("ijk,ijk->i", matrices, matrices)
            total += sign * (2 * math.log(chosen.shape[1]) - np.log(squares))
        else:
            total += sign * _entropies(matrices, order)
    return total


def _entropies(matrices: np.ndarray, order: float) -> np.ndarray:
    """The entropy of each of some kernel matrices over their size."""
    size = matrices.shape[1]
    trace = trace_of_order(order)
    spectra = np.maximum(np.linalg.eigvalsh(matrices), 0.0)
    return np.array([trace.entropy(trace.total(values), size) for values in spectra])
