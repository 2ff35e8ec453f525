"""The entropy of order 1 of a mixture of models, with its derivatives in the weights."""

import math

import numpy as np

from divprism.analysis.mixture_blocks import (
    SMALL_BLOCK,
    Block,
    FeatureBlock,
    KernelBlock,
    block_of,
    feature_width,
    landmark_block,
)
from divprism.analysis.model_squares import exchanged_members, random_deals
from divprism.analysis.model_states import ModelStates
from divprism.core.kernels import Categorical
from divprism.core.operators import HadamardOperator
from divprism.errors import ArgumentError

__all__ = ["GuideEntropy", "MixtureEntropy", "refuse_large"]

_MOST_POINTS = 15_000  # distinct outputs that are connected, up to which mixtures are solved
_GUIDED_POINTS = 1000  # above, the search is guided, because each spectrum takes seconds
_MINUTES_POINTS = 5000  # above, each spectrum takes minutes, and whoever waits should know
_LANDMARKS = 300  # points of a block on which its guide is exact
_MATRICES = 3  # matrices of all connected outputs that are held together

_BATCH = 5  # exchanges between two looks at their spread
_PRECISION = 0.002  # standard error of their mean, in nats
_SAME = 1e-8  # weights that differ by less share a spectrum: inside the simplex, and on its border

_AT_ORDER_TWO = {"conditional_vendi": "conditional_rke", "vendi": "rke"}


class MixtureEntropy:
    """H(sum a_m rho_m) as a function of the weights a, from spectra of all outputs together.

    Calling it returns the entropy and its slopes -tr rho_m log rho_a, up to a constant that is the
    same for all models. All models must have a positive weight, or none in all calls.
    """

    def __init__(self, states: ModelStates) -> None:
        self.states = states
        codes = states.codes(states.rows)
        distinct, firsts, index = np.unique(codes, return_index=True, return_inverse=True)
        self.index = index.reshape(states.rows.shape)
        self.size = distinct.size
        self.rows = states.rows.ravel()[firsts]
        self.points = _connected(states, distinct)
        self.blocks: list[Block] = [block_of(states, self.rows[each]) for each in self.points]
        self.masses = self._masses(self.index)
        self.num_spectra = 0
        self._alone: dict[int, float] = {}
        self._last: tuple[np.ndarray, float, np.ndarray] | None = None

    @property
    def is_large(self) -> bool:
        """Whether each spectrum takes seconds or more."""
        return self._largest > _GUIDED_POINTS

    @property
    def _work(self) -> str:
        """What takes the time, for the display of progress."""
        work = f"spectra of {self._largest:,} outputs together"
        if self._largest > _MINUTES_POINTS:
            work += ", minutes each (order 2 takes seconds)"
        return work

    @property
    def _largest(self) -> int:
        """Points of the largest kernel matrix."""
        sizes = []
        for points, block in zip(self.points, self.blocks, strict=True):
            if isinstance(block, KernelBlock):
                sizes.append(points.size)
        return max(sizes, default=0)

    def _masses(self, index: np.ndarray) -> np.ndarray:
        """The mass of each point in each model, shape (m, points)."""
        masses = [np.bincount(own, minlength=self.size) / own.size for own in index]
        return np.array(masses)

    def __call__(self, weights: np.ndarray) -> tuple[float, np.ndarray]:
        """The entropy of a mixture, and its slopes in the weights."""
        total, slopes = self._solved(weights)
        return total, self.masses @ slopes

    def _solved(self, weights: np.ndarray) -> tuple[float, np.ndarray]:
        """The entropy, and -<phi_i, log rho phi_i> of each point."""
        if self.is_large:
            # The search usually takes three; what follows it takes about as long.
            done = min(self.num_spectra, 3) / 6
            self.states.problem.resources.report_progress(self._work, done)
            self.num_spectra += 1
        masses = weights @ self.masses
        total, slopes = 0.0, np.zeros(self.size)
        for points, block in zip(self.points, self.blocks, strict=True):
            entropy, slopes[points] = block.slopes(masses[points])
            total += entropy
        self._last = weights.copy(), total, slopes
        return total, slopes

    def _at(self, weights: np.ndarray) -> tuple[float, np.ndarray]:
        """As `_solved`; where a spectrum takes long, the last one serves weights close to its own.

        The entropy then follows its slopes, from the least weights inside the simplex to zero. What
        that leaves out is of the size of those weights, 1e-9.
        """
        if self.is_large and self._last is not None:
            before, total, slopes = self._last
            if np.abs(before - weights).max() <= _SAME:
                return total + float((weights - before) @ (self.masses @ slopes)), slopes
        return self._solved(weights)

    def curvature(self) -> np.ndarray:
        """The second derivatives of the entropy in the weights, where it was called last."""
        total = np.zeros((len(self.masses), len(self.masses)))
        for points, block in zip(self.points, self.blocks, strict=True):
            total += block.curvature(self.masses[:, points])
        return total

    def forget(self) -> None:
        """Free what `curvature` needs, once the search is over."""
        for block in self.blocks:
            block.forget()

    def value(self, weights: np.ndarray) -> float:
        """The entropy of a mixture; weights may be zero."""
        if self.is_large:
            return self._at(weights)[0]
        return self._entropy(weights @ self.masses)

    def alone(self, model: int) -> float:
        """The entropy of one model, which both the guide and the result need."""
        if model not in self._alone:
            self._alone[model] = self._entropy(self.masses[model])
        return self._alone[model]

    def _entropy(self, masses: np.ndarray) -> float:
        total = 0.0
        for points, block in zip(self.points, self.blocks, strict=True):
            total += block.entropy(masses[points])
        return total

    def parts(self, weights: np.ndarray) -> np.ndarray:
        """What each prompt contributes to the error of the entropy, the weights held.

        The derivative in the weight of the prompt, which takes from all others.
        """
        total, slopes = self._at(weights)
        of_prompts = np.zeros(self.states.counts.size)
        for weight, index in zip(weights, self.index, strict=True):
            if weight > 0:
                # Each output has its part of the entropy.
                own = slopes[index] * weight / index.size
                of_prompts += np.bincount(self.states.prompts, weights=own)
        return of_prompts - self.states.counts / self.states.num_outputs * total

    def chance(self, weights: np.ndarray, most: int) -> float:
        """The mean gain of the weights over a single model, under exchanges of all outputs.

        Above 3,000 connected outputs their entropies are those of the estimator of the settings.
        """
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
                own = [self._estimated(each) for each in masses]
                gains.append(self._estimated(weights @ masses) - math.fsum(own) / len(own))
            if len(gains) > 1 and np.std(gains, ddof=1) <= _PRECISION * math.sqrt(len(gains)):
                break
        return math.exp(max(0.0, math.fsum(gains) / len(gains)))

    def _estimated(self, masses: np.ndarray) -> float:
        """The entropy of points with these masses, by the estimator where they are many."""
        present = np.flatnonzero(masses)
        if self._largest <= SMALL_BLOCK or present.size <= SMALL_BLOCK:
            return self._entropy(masses)
        return self.states.entropy(self._operator(present, masses[present]), 1.0)[0]

    def _operator(self, points: np.ndarray, masses: np.ndarray) -> HadamardOperator:
        return self.states.weighted_state(self.rows[points], masses)

    def guide(self) -> "GuideEntropy":
        """A function of the weights like this one that takes a fraction of a second."""
        return GuideEntropy(self)


class GuideEntropy:
    """An entropy of mixtures that is close to the exact one, for the search of the best weights.

    Points are projected onto the span of some hundred of them. What the projections leave out of
    different points is taken to be disjoint, and each model alone has its exact entropy. So outputs
    that several models share are shared here, too. Decides which weights are tried, never what is
    reported of them.
    """

    def __init__(self, exact: MixtureEntropy) -> None:
        self.masses, self.points = exact.masses, exact.points
        self.blocks: list[FeatureBlock] = []
        lengths = np.zeros(exact.size)
        order = _order_of_points(exact)
        for points in self.points:
            # Evenly among all points in an order that no shuffle of rows or models changes.
            ranks = np.argsort(order[points])
            steps = np.linspace(0, points.size - 1, min(points.size, _LANDMARKS))
            chosen = np.sort(ranks[np.unique(steps.round().astype(int))])
            block = landmark_block(exact.states, exact.rows[points], chosen)
            lengths[points] = np.sum(block.features**2, axis=1)
            self.blocks.append(block)
        self.left_out = np.maximum(0.0, 1 - lengths)
        self.linear = np.zeros(len(self.masses))
        own = np.eye(len(self.masses))
        alone = [exact.alone(model) - self._value(own[model]) for model in range(len(own))]
        self.linear = np.array(alone)

    def __call__(self, weights: np.ndarray) -> tuple[float, np.ndarray]:
        """The value, and its slopes in the weights."""
        masses = weights @ self.masses
        slopes = np.zeros(masses.size)
        total = self._of_rest(weights)
        for points, block in zip(self.points, self.blocks, strict=True):
            entropy, slopes[points] = block.slopes(masses[points])
            total += entropy
            # The derivative of -l log l has a term -1, for masses that do not sum to one.
            slopes[points] -= np.sum(block.features**2, axis=1)
        slopes -= self.left_out * (np.log(_positive(masses)) + 1)
        return total, self.masses @ slopes + self.linear

    def _of_rest(self, weights: np.ndarray) -> float:
        """What the projections leave out, as if that of different points were disjoint."""
        masses = weights @ self.masses
        terms = self.left_out * masses * np.log(_positive(masses))
        return float(self.linear @ weights - terms.sum())

    def _value(self, weights: np.ndarray) -> float:
        masses = weights @ self.masses
        total = self._of_rest(weights)
        for points, block in zip(self.points, self.blocks, strict=True):
            total += block.entropy(masses[points])
        return total

    def curvature(self, weights: np.ndarray) -> np.ndarray:
        """The second derivatives in the weights."""
        self(weights)
        shares = self.left_out / _positive(weights @ self.masses)
        total = -(self.masses * shares) @ self.masses.T
        for points, block in zip(self.points, self.blocks, strict=True):
            total += block.curvature(self.masses[:, points])
        return total


def refuse_large(states: ModelStates, by: str) -> None:
    """Raise ArgumentError if a mixture at order 1 needs spectra that are too large to solve."""
    codes, firsts = np.unique(states.codes(states.rows), return_index=True)
    widest = max(_connected(states, codes), key=lambda points: points.size)
    width = feature_width(states, states.rows.ravel()[firsts[widest]])
    way_out = f"take order 2, which needs no spectrum: `by={_AT_ORDER_TWO[by]!r}`"
    if width is None and widest.size > _MOST_POINTS:
        raise ArgumentError(
            f"a mixture at order 1 takes spectra of all outputs together, up to "
            f"{_MOST_POINTS:,} distinct ones; got {widest.size:,}. T{way_out[1:]}."
        )
    needed = 8 * _MATRICES * widest.size * (width or widest.size)
    states.problem.resources.require(needed, "a mixture at order 1", way_out)


def _connected(states: ModelStates, codes: np.ndarray) -> list[np.ndarray]:
    """The points that have something in common, by index: all of them, or those of each prompt."""
    if not isinstance(states.prompt_state.kernel, Categorical):
        return [np.arange(codes.size)]
    # Pairs of different prompts have nothing in common.
    prompts = codes % states.prompt_state.size
    order = np.argsort(prompts, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(prompts[order])) + 1)


def _order_of_points(exact: MixtureEntropy) -> np.ndarray:
    """The rank of each point by its prompt and its content."""
    states = exact.states
    prompts = np.broadcast_to(states.prompts, states.rows.shape).ravel()
    ranks = np.empty(exact.size, int)
    # Ranks of outputs in their order; the rank of a point is that of one of its equal outputs.
    by_content = np.lexsort((states.contents.ravel(), prompts))
    ranks[exact.index.ravel()[by_content]] = np.arange(by_content.size)
    return ranks


def _positive(weights: np.ndarray) -> np.ndarray:
    return np.maximum(weights, np.finfo(np.float64).tiny)
