"""The best weights on some prompts: entropies, gain over a single model, errors, chance."""

import math
from dataclasses import dataclass

import numpy as np

from divprism.analysis.intervals import quantile
from divprism.analysis.mixture_entropy import GuideEntropy, MixtureEntropy
from divprism.analysis.model_squares import ModelSquares, model_squares
from divprism.analysis.model_states import ModelStates
from divprism.analysis.overlap_errors import MIN_PROMPTS
from divprism.analysis.simplex import (
    EntropyAndSlopes,
    Optimum,
    guided_entropy,
    least_square,
    most_entropy,
)
from divprism.scores.settings import Settings

__all__ = ["SolvedMixture", "solved_mixture"]

_ROUNDING = 1e-12  # difference of entropies that are equal


@dataclass(frozen=True, eq=False)
class _Best:
    """The best weights by entropies, before they become scores.

    `own` are the entropies of the models, `best` is the best single one, and `spread` what each
    prompt contributes to the error of the logarithm of the gain.
    """

    weights: np.ndarray
    entropy: float
    own: np.ndarray
    best: int
    chance: float | None
    gap: float
    num_iterations: int
    spread: np.ndarray | None = None

    @property
    def log_gain(self) -> float:
        """Logarithm of the score of the mixture over that of the best single model."""
        # A single model is a mixture too, up to rounding.
        return max(0.0, float(self.entropy - self.own[self.best]))


@dataclass(frozen=True, eq=False)
class SolvedMixture:
    """The best weights on the prompts of some states, and the scores.

    `low` and `high` are the ends of the interval of the gain. The other fields are those of
    `Mixture`, with arrays in the order of the models.
    """

    weights: np.ndarray
    score: float
    alone: np.ndarray
    best: int
    gain: float
    low: float | None
    high: float | None
    chance: float | None
    gap: float
    num_iterations: int


def solved_mixture(
    states: ModelStates, settings: Settings, corners: np.ndarray, *, errors: bool
) -> SolvedMixture:
    """The best weights on the prompts of some states.

    With `errors` also the interval of the gain, and at order 1 what chance explains of it.
    """
    find = _by_entropy
    if settings.order == 2:
        find = _by_squares
    found = find(states, settings, corners, errors)
    prompts, _ = states.entropy(states.state_of_prompts(), settings.order)
    low = high = None
    if found.spread is not None:
        assert settings.interval is not None
        error = float(np.linalg.norm(found.spread))
        reach = quantile(found.spread.size, settings.interval) * error
        # The best mixture is never worse than a model, so neither is its expectation.
        low = math.exp(max(0.0, found.log_gain - reach))
        high = math.exp(found.log_gain + reach)
    return SolvedMixture(
        weights=found.weights,
        score=math.exp(found.entropy - prompts),
        alone=np.exp(found.own - prompts),
        best=found.best,
        gain=math.exp(found.log_gain),
        low=low,
        high=high,
        chance=found.chance,
        gap=found.gap,
        num_iterations=found.num_iterations,
    )


def _by_squares(
    states: ModelStates, settings: Settings, corners: np.ndarray, errors: bool
) -> _Best:
    """The best weights at order 2."""
    squares = model_squares(states, 0)
    gram = squares.gram
    optimum, best, _ = _best_of_gram(gram, corners)
    weights = corners.T @ optimum.weights
    chance = spread = None
    if settings.num_permutations:
        chance = _chance_of_squares(squares, weights)
    if errors and states.counts.size >= MIN_PROMPTS:
        # The jackknife, with weights that are chosen again without each prompt.
        gains = np.array([_best_of_gram(part, corners)[2] for part in squares.without_prompts()])
        spread = math.sqrt((gains.size - 1) / gains.size) * (gains - gains.mean())
    return _Best(
        weights=weights,
        entropy=-math.log(float(weights @ gram @ weights)),
        own=-np.log(np.diagonal(gram)),
        best=best,
        chance=chance,
        gap=optimum.gap,
        num_iterations=optimum.num_iterations,
        spread=spread,
    )


def _alone_allowed(corners: np.ndarray) -> np.ndarray:
    """The models that may be used alone: those that are corners themselves."""
    return np.flatnonzero((corners == 1).any(axis=0))


def _best_of_gram(gram: np.ndarray, corners: np.ndarray) -> tuple[Optimum, int, float]:
    """The best weights of the corners, the best single model, and the log of the gain over it."""
    optimum = least_square(corners @ gram @ corners.T)
    weights = corners.T @ optimum.weights
    allowed = _alone_allowed(corners)
    own = np.diagonal(gram)[allowed]
    best = int(allowed[np.argmin(own)])
    return optimum, best, math.log(float(own.min()) / float(weights @ gram @ weights))


def _chance_of_squares(squares: ModelSquares, weights: np.ndarray) -> float:
    """The mean gain of the weights over exchanges of all outputs, in closed form."""
    count = weights.size
    inside = squares.mean_exchange(range(count))
    own = inside / count
    between = (float(squares.total.sum()) - inside) / (count * (count - 1))
    # sum_lm a_l a_m <rho_l, rho_m>, with one mean for equal models and one for different ones.
    even = float(weights @ weights)
    return max(1.0, own / (own * even + between * (1 - even)))


def _most_entropy_of_corners(entropy: MixtureEntropy, corners: np.ndarray) -> Optimum:
    """The shares of the corners whose mixture has the most entropy."""

    def of_corners(function: MixtureEntropy | GuideEntropy) -> EntropyAndSlopes:
        def entropy_and_slopes(shares: np.ndarray) -> tuple[float, np.ndarray]:
            value, slopes = function(corners.T @ shares)
            return value, corners @ slopes

        return entropy_and_slopes

    if not entropy.is_large:
        return most_entropy(of_corners(entropy), len(corners))
    guide = entropy.guide()
    return guided_entropy(
        of_corners(entropy),
        lambda: corners @ entropy.curvature() @ corners.T,
        of_corners(guide),
        lambda shares: corners @ guide.curvature(corners.T @ shares) @ corners.T,
        len(corners),
    )


def _by_entropy(
    states: ModelStates, settings: Settings, corners: np.ndarray, errors: bool
) -> _Best:
    """The best weights at order 1."""
    entropy = MixtureEntropy(states)

    optimum = _most_entropy_of_corners(entropy, corners)
    entropy.forget()
    weights = corners.T @ optimum.weights
    own = np.array([entropy.alone(model) for model in range(states.num_models)])
    allowed = _alone_allowed(corners)
    best = int(allowed[np.argmax(own[allowed])])
    single = np.eye(states.num_models)[best]
    value = entropy.value(weights)
    if own[best] > value + _ROUNDING:
        # Within the gap, a single model is better. One that is as good is no reason to leave out
        # others: equal models share their weight, whatever their order.
        value, weights = own[best], single
    chance = spread = None
    if errors and settings.num_permutations:
        chance = entropy.chance(weights, settings.num_permutations)
    if errors and states.counts.size >= MIN_PROMPTS:
        size = states.counts.size
        parts = entropy.parts(weights) - entropy.parts(single)
        spread = math.sqrt(size / (size - 1)) * parts
    return _Best(
        weights=weights,
        entropy=float(value),
        own=own,
        best=best,
        chance=chance,
        gap=optimum.gap,
        num_iterations=optimum.num_iterations,
        spread=spread,
    )
