"""The entropy of order 1 of a mixture of models, with its slopes in the weights."""

import math

import numpy as np

from divprism.analysis.model_squares import exchanged_members, random_deals
from divprism.analysis.model_states import ModelStates
from divprism.core.arrays import plain_mode, to_numpy
from divprism.core.kernels import Categorical
from divprism.core.operators import dense
from divprism.errors import ArgumentError

__all__ = ["MixtureEntropy"]

_MOST_POINTS = 3000  # distinct outputs that are connected, up to which mixtures are solved
_BATCH = 5  # exchanges between two looks at their spread
_PRECISION = 0.002  # standard error of their mean, in nats


class MixtureEntropy:
    """H(sum a_m rho_m) as a function of the weights a, from one kernel matrix of all outputs.

    Calling it returns the entropy and its slopes -tr rho_m log rho_a, up to a constant that is the
    same for all models. All models must have a positive weight.

    Raises
    ------
    ArgumentError
        If more outputs are connected than can be solved again and again.
    """

    def __init__(self, states: ModelStates) -> None:
        self.states = states
        codes = states.codes(states.rows).reshape(states.rows.shape)
        distinct, index = np.unique(codes, return_inverse=True)
        self.index = index.reshape(codes.shape)
        self.size = distinct.size
        blocks = np.zeros(self.size, int)
        if isinstance(states.prompt_state.kernel, Categorical):
            # Pairs of different prompts have nothing in common.
            blocks = distinct % states.prompt_state.size
        order = np.argsort(blocks, kind="stable")
        cuts = np.flatnonzero(np.diff(blocks[order])) + 1
        self.blocks = np.split(order, cuts)
        largest = max(block.size for block in self.blocks)
        if largest > _MOST_POINTS:
            raise ArgumentError(
                f"a mixture at order 1 takes spectra of all outputs together, up to "
                f"{_MOST_POINTS:,} distinct ones; got {largest:,}. Take order 2, which needs no "
                "spectrum: `by='conditional_rke'`, or `order=2`."
            )
        self.kernels = self._kernels()
        self.masses = self._masses(self.index)

    def _kernels(self) -> list[np.ndarray]:
        """The kernel matrix of each block."""
        rows = self.states.rows.ravel()
        firsts = np.unique(self.index.ravel(), return_index=True)[1]
        kernels = []
        for block in self.blocks:
            # A row for each point of the block; `state` sorts them by code, as the points are.
            operator = self.states.state(rows[firsts[block]])
            with plain_mode():
                matrix = np.asarray(to_numpy(next(dense([operator]))), np.float64)
            kernels.append(matrix * block.size)
        return kernels

    def _masses(self, index: np.ndarray) -> np.ndarray:
        """The mass of each point in each model, shape (m, points)."""
        masses = [np.bincount(own, minlength=self.size) / own.size for own in index]
        return np.array(masses)

    def __call__(self, weights: np.ndarray) -> tuple[float, np.ndarray]:
        """The entropy of a mixture, and its slopes in the weights."""
        total, shares, masses = self._shares(weights)
        # -<phi_i, log rho phi_i> of each point.
        return total, self.masses @ (shares / masses)

    def _shares(self, weights: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
        """The entropy, and the part of it that each point has: sum_k v_ik^2 (-l_k log l_k)."""
        masses = weights @ self.masses
        shares = np.zeros(self.size)
        for block, kernel in zip(self.blocks, self.kernels, strict=True):
            present = np.flatnonzero(masses[block] > 0)
            points, matrix = block[present], kernel[np.ix_(present, present)]
            roots = np.sqrt(masses[points])
            values, vectors = np.linalg.eigh(matrix * np.outer(roots, roots))
            shares[points] = (vectors * vectors) @ _terms(values)
        return float(shares.sum()), shares, masses

    def value(self, weights: np.ndarray) -> float:
        """The entropy of a mixture; weights may be zero."""
        return self._entropy(weights @ self.masses)

    def alone(self, model: int) -> float:
        """The entropy of one model."""
        return self._entropy(self.masses[model])

    def _entropy(self, masses: np.ndarray) -> float:
        total = 0.0
        for block, kernel in zip(self.blocks, self.kernels, strict=True):
            present = np.flatnonzero(masses[block] > 0)
            roots = np.sqrt(masses[block][present])
            matrix = kernel[np.ix_(present, present)] * np.outer(roots, roots)
            total += float(_terms(np.linalg.eigvalsh(matrix)).sum())
        return total

    def parts(self, weights: np.ndarray) -> np.ndarray:
        """What each prompt contributes to the error of the entropy, the weights held.

        The derivative in the weight of the prompt, which takes from all others.
        """
        total, shares, masses = self._shares(weights)
        of_prompts = np.zeros(self.states.counts.size)
        for weight, index in zip(weights, self.index, strict=True):
            if weight > 0:
                # Each output has its part of the share of its point.
                own = shares[index] / masses[index] * weight / index.size
                of_prompts += np.bincount(self.states.prompts, weights=own)
        return of_prompts - self.states.counts / self.states.num_outputs * total

    def chance(self, weights: np.ndarray, most: int) -> float:
        """The mean gain of the weights over a single model, under exchanges of all outputs."""
        members = range(self.states.num_models)
        deals = random_deals(self.states, self.states.num_models, most)
        dealt = exchanged_members(self.states, members, deals)
        # Exchanges make all models one, so the order of the weights must not matter.
        weights = np.sort(weights)
        gains: list[float] = []
        while len(gains) < most:
            for exchange in range(len(gains), min(len(gains) + _BATCH, most)):
                given = [self.index[dealt[:, :, exchange] == model] for model in members]
                masses = self._masses(np.array(given))
                own = [self._entropy(each) for each in masses]
                gains.append(self._entropy(weights @ masses) - math.fsum(own) / len(own))
            if len(gains) > 1 and np.std(gains, ddof=1) <= _PRECISION * math.sqrt(len(gains)):
                break
        return math.exp(max(0.0, math.fsum(gains) / len(gains)))


def _terms(eigenvalues: np.ndarray) -> np.ndarray:
    """-l log l of each eigenvalue, and zero of those that rounding made negative."""
    positive = np.maximum(eigenvalues, np.finfo(np.float64).tiny)
    return np.where(eigenvalues > 0, -eigenvalues * np.log(positive), 0.0)
