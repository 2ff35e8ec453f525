"""Errors of overlap: a jackknife over prompts, which all models share.

At order 2 the sums without a prompt are known exactly. At other orders the contribution of a prompt
is the derivative of the entropies in its weight (the infinitesimal jackknife), on a subset of the
prompts whose eigenvectors are cheap.
"""

import math
from collections.abc import Sequence
from functools import cache

import numpy as np

from divprism.analysis.model_squares import ModelSquares
from divprism.analysis.model_states import ModelStates, mean_power_entropy
from divprism.core.arrays import to_numpy
from divprism.core.entropy import entropy_slopes
from divprism.core.operators import dense
from divprism.engines import one_blas_thread

__all__ = ["MIN_PROMPTS", "Contributions", "information_of_squares"]

MIN_PROMPTS = 5
"""The fewest prompts with which an interval is given, as for scores."""

# Outputs of all members whose eigenvectors are computed: half a second. Errors fall with the root
# of the number of prompts, so that those of a subset can be scaled.
_MOST_OUTPUTS = 1000
_FEWEST_PROMPTS = 20  # in a subset, as far as there are that many


def information_of_squares(total: np.ndarray, members: Sequence[int]) -> np.ndarray:
    """Information of order 2 from sums of squares between models, shape (..., m, m).

    log(mean of the own inner products) - log(mean of all). A mean of states is at most as pure as
    they are on average, because the squared norm is convex, so this is not negative. All inner
    products are at least zero, so the mean of all m^2 is at least the mean of the m own over m, and
    the limit is log m.
    """
    part = total[..., np.array(members)[:, None], np.array(members)[None, :]]
    own = np.trace(part, axis1=-2, axis2=-1)
    return np.asarray(np.log(len(members) * own / part.sum(axis=(-2, -1))))


class Contributions:
    """What each prompt contributes to the error of the Information of some models.

    Parameters
    ----------
    states : ModelStates
        The models.
    squares : ModelSquares
        Their sums of squares.
    order : float
        Order of the entropies.
    """

    def __init__(self, states: ModelStates, squares: ModelSquares, order: float) -> None:
        self.states = states
        self.order = order
        self._without = squares.without_prompts()
        # Shared by all pairs of models: subsets of the same size have the same outputs.
        self._own = cache(self._entropy_parts)

    def of(self, members: Sequence[int]) -> np.ndarray:
        """Contributions whose squares add up to the variance."""
        if self.order == 2:
            without = information_of_squares(self._without, members)
            return math.sqrt((without.size - 1) / without.size) * (without - without.mean())
        columns = self._columns(len(members))
        each = [self._own((member,), len(members)) for member in members]
        _, slopes = mean_power_entropy([entropy for entropy, _ in each], self.order)
        _, parts = self._entropy_parts(tuple(members), len(members))
        for slope, (_, of_member) in zip(slopes, each, strict=True):
            parts = parts - slope * of_member
        kept = np.unique(self.states.prompts[columns]).size
        # An error falls with the root of the number of prompts: from those kept to all of them.
        scale = math.sqrt(kept / self.states.counts.size)
        return scale * math.sqrt(kept / max(1, kept - 1)) * parts

    def _columns(self, num_members: int) -> np.ndarray:
        """Columns of the first prompts, with at most as many outputs each as leave room for 20."""
        counts = self.states.counts
        most = max(1, _MOST_OUTPUTS // num_members)
        largest = max(1, most // min(_FEWEST_PROMPTS, counts.size))
        within = np.arange(self.states.num_outputs) - np.repeat(self.states.starts, counts)
        kept = within < largest
        if self.states.num_outputs <= most:
            kept[:] = True
        # In the order of their content prompts are as good as random, and so are their outputs.
        return np.flatnonzero(kept)[:most]

    def _entropy_parts(self, members: tuple[int, ...], subset: int) -> tuple[float, np.ndarray]:
        """The entropy of some models on the columns of `subset` models, and the part of prompts."""
        columns = self._columns(subset)
        rows = self.states.rows[np.array(members)][:, columns]
        operator = self.states.state(rows)
        matrix = np.asarray(to_numpy(next(dense([operator]))), np.float64)
        with one_blas_thread():
            values, vectors = np.linalg.eigh(matrix)
        values = np.maximum(values, 0.0)
        entropy, slopes = entropy_slopes(values, self.order)
        # The derivative of an eigenvalue in log w_i is itself times v_i^2: the root of w_i is a
        # factor of row i and of column i of the matrix.
        shares = (vectors * vectors) @ (slopes * values)
        # Weights sum to one, so a prompt that gains weight takes it from all others.
        shares = shares - operator.masses * shares.sum()
        # Each output has its part of the share of its point.
        _, points, sizes = np.unique(
            self.states.codes(rows), return_inverse=True, return_counts=True
        )
        own = (shares / sizes)[points.ravel()]
        prompts = np.tile(self.states.prompts[columns], len(members))
        return entropy, np.bincount(prompts, weights=own)
