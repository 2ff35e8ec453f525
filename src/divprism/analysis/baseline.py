"""Information, or the bias of a small sample? A baseline by pairing outputs with prompts at random."""

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from divprism.core.operators import HadamardOperator
from divprism.errors import ArgumentError
from divprism.estimators.base import whole_number
from divprism.scores.problem import Problem, entropies, pose
from divprism.scores.score import combined

__all__ = ["ShuffledBaseline", "default_permutations", "shuffled_baseline", "shuffled_from"]

_FEW_OUTPUTS = 5  # of a prompt on average: below, Information is mostly bias
_PAIRINGS = ((1000, 19), (5000, 5))  # up to so many pairs, so many: each costs a joint spectrum


@dataclass(frozen=True)
class ShuffledBaseline:
    """Information that is left when outputs are paired with prompts at random: bias of a finite sample, not information.

    Attributes
    ----------
    excess_information : float
        Logarithm of the Information score minus its mean over random pairings, in nats: what the outputs tell of their prompts.
    baseline : float
        That mean, as a score.
    p_value : float
        Share of pairings, the given one included, whose Information is at least that of the given one.
    num_permutations, order
        Number of random pairings, and order of the score.
    standard_deviation : float or None
        Of the logarithm over the random pairings, in nats: with few of them, excess / (standard_deviation * sqrt(1 + 1 / m))
        tells more than the p-value, by Student's t with m - 1 degrees of freedom. None of one pairing.
    """

    excess_information: float
    baseline: float
    p_value: float
    num_permutations: int
    order: float
    standard_deviation: float | None = None


def shuffled_baseline(
    x: Any, t: Any, *, num_permutations: int = 19, **settings: Any
) -> ShuffledBaseline:
    """Information-Vendi against its value under random re-pairing of outputs and prompts.

    With few outputs per prompt the raw score is mostly bias: outputs that ignore their prompts score well above 1. What is in
    excess of the shuffled value is information. A p-value of 1 / (num_permutations + 1) is the smallest that can be had.
    Costs `num_permutations` + 1 joint entropies.

    Parameters
    ----------
    x, t : as in `information_vendi`
    num_permutations : int, optional
        Number of random pairings.
    **settings
        As in `information_vendi`, without `weights`.

    Examples
    --------
    Outputs that repeat their prompts, against chance:

    >>> import numpy as np, divprism as dp
    >>> t = np.repeat(np.arange(6), 10)
    >>> found = dp.shuffled_baseline(np.eye(6)[t], t, kernel_x=dp.Cosine())
    >>> round(found.baseline, 1), found.p_value
    (1.3, 0.05)
    """
    defaults = {"order": 1.0, "truncation": None, "estimator": None, "rng": 0}
    problem = pose(x, t, **(defaults | settings))
    return shuffled_from(problem, num_permutations)


def default_permutations(problem: Problem) -> tuple[int, tuple[str, ...]]:
    """How many random pairings Information is compared with if nothing is said, and what to tell where that is too dear.

    Some where prompts have fewer than five outputs on average: 19 up to 1,000 pairs, 5 up to 5,000. None elsewhere, and none
    where pairs have weights of their own, which cannot be shuffled.
    """
    pairs = problem.x.index.size
    if (
        problem.t is None
        or pairs < 2
        or not _count_alike(problem)
        or pairs >= _FEW_OUTPUTS * problem.t.size
    ):
        return 0, ()
    for most, count in _PAIRINGS:
        if pairs <= most:
            return count, ()
    told = (
        f"information-unchecked: prompts have {pairs / problem.t.size:.1f} outputs on average, so Information may be mostly "
        f"the bias of a small sample; num_permutations={_PAIRINGS[-1][1]} would tell, for as many joint spectra."
    )
    return 0, (told,)


def _count_alike(problem: Problem) -> bool:
    return bool(np.ptp(problem.x.masses / np.bincount(problem.x.index)) <= 1e-12)


def shuffled_from(problem: Problem, num_permutations: int) -> ShuffledBaseline:
    """The baseline of a problem that is posed already."""
    num_permutations = whole_number(num_permutations, "num_permutations", 1)
    if problem.t is None:
        raise ArgumentError("`num_permutations` was given, but there are no prompts to shuffle.")
    if not _count_alike(problem):
        raise ArgumentError(
            "`weights` cannot be shuffled: the baseline is of pairs that count alike."
        )
    order = problem.settings["order"]
    generator = np.random.default_rng(problem.settings["rng"])
    pairs = problem.x.index.size  # without those of weight zero
    weights = np.full(pairs, 1 / pairs)
    [found] = entropies(problem, ["x", "t", "joint"], [order])
    given = combined("information_vendi", found).estimate.value
    shuffled = []
    for _ in range(num_permutations):
        left = replace(problem.x, index=generator.permutation(problem.x.index))
        mixed = replace(problem, joint=HadamardOperator.of(left, problem.t, weights))
        [joint] = entropies(mixed, ["joint"], [order])
        shuffled.append(combined("information_vendi", found | joint).estimate.value)
    mean = math.fsum(shuffled) / num_permutations
    at_least = sum(value >= given - 1e-12 for value in shuffled)
    chance = (1 + at_least) / (1 + num_permutations)
    spread = float(np.std(shuffled, ddof=1)) if num_permutations > 1 else None
    return ShuffledBaseline(given - mean, math.exp(mean), chance, num_permutations, order, spread)
