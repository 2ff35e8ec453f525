"""Shuffled baseline: how much Information is left when outputs are paired with prompts at random.

With few outputs per prompt that is much of it: the bias of a small sample, not information.
"""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from divprism.core.operators import HadamardOperator
from divprism.errors import ArgumentError, Notice
from divprism.estimators import Entropy
from divprism.estimators.base import whole_number
from divprism.scores.problem import Problem, entropies, pose
from divprism.scores.score import combine
from divprism.scores.settings import PairOptions, read_options
from divprism.scores.spec import score_spec

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = ["ShuffledBaseline", "default_permutations", "shuffled_baseline", "shuffled_from"]

_FEW_OUTPUTS = 5  # outputs per prompt, on average, below which Information is mostly bias
# The smallest p-value is 1 / (m + 1), so 19 pairings are the fewest that can reach 0.05. Five
# cannot; they serve to estimate the bias.
_PAIRINGS = ((1000, 19), (5000, 5))  # pairs up to which this many pairings are affordable
_INFORMATION = score_spec("information_vendi")


@dataclass(frozen=True)
class ShuffledBaseline:
    """Information that is left when outputs are paired with prompts at random.

    Attributes
    ----------
    excess_information : float
        Logarithm of the Information score minus its mean over random pairings, in nats: what the
        outputs reveal about their prompts.
    baseline : float
        That mean, as a score.
    p_value : float
        Share of pairings, the given one included, whose Information is at least that of the given
        one.
    num_permutations, order
        Number of random pairings, and order of the score.
    standard_deviation : float or None
        Of the logarithm over the random pairings, in nats: with few of them,
        excess / (standard_deviation * sqrt(1 + 1 / m)) under Student's t with m - 1 degrees of
        freedom is a finer test than the p-value. None for one pairing.
    """

    excess_information: float
    baseline: float
    p_value: float
    num_permutations: int
    order: float
    standard_deviation: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """Plain values, every number finite."""
        plain = asdict(self)
        if math.isinf(self.order):
            plain["order"] = "inf"
        return plain


def shuffled_baseline(
    x: object, t: object, *, num_permutations: int = 19, **options: "Unpack[PairOptions]"
) -> ShuffledBaseline:
    """Information-Vendi against its value under random re-pairing of outputs and prompts.

    With few outputs per prompt the raw score is mostly bias: outputs that ignore their prompts
    score well above 1. What exceeds the shuffled value is information. The smallest possible
    p-value is 1 / (num_permutations + 1). Costs `num_permutations` + 1 joint entropies.

    Parameters
    ----------
    x, t : as in `information_vendi`
    num_permutations : int, optional
        Number of random pairings.
    **options
        Keywords of `information_vendi`, without `weights`.

    Examples
    --------
    Outputs that repeat their prompts, against chance:

    >>> import numpy as np, divprism as dp
    >>> t = np.repeat(np.arange(6), 10)
    >>> baseline = dp.shuffled_baseline(np.eye(6)[t], t, kernel_x=dp.Cosine())
    >>> round(baseline.baseline, 1), baseline.p_value
    (1.3, 0.05)
    """
    settings, resources = read_options(options, PairOptions, "shuffled_baseline")
    problem = pose(x, t, settings=settings, resources=resources)
    return shuffled_from(problem, whole_number(num_permutations, "num_permutations", 1))


def default_permutations(problem: Problem) -> tuple[int, tuple[Notice, ...]]:
    """The default number of random pairings, and a warning where they would be too expensive.

    Where prompts have fewer than five outputs on average: 19 up to 1,000 pairs, 5 up to 5,000.
    None elsewhere, and none where pairs have weights of their own, which cannot be shuffled.
    """
    pairs = problem.x.index.size
    if problem.t is None or pairs < 2 or not _has_equal_weights(problem):
        return 0, ()
    # Pairs of weight zero are gone here, so the count is that of the pairs that are scored.
    outputs_per_prompt = pairs / problem.t.size
    if outputs_per_prompt >= _FEW_OUTPUTS:
        return 0, ()
    for largest, count in _PAIRINGS:
        if pairs <= largest:
            return count, ()
    text = (
        f"prompts have {outputs_per_prompt:.1f} outputs on average, so Information may be mostly "
        f"the bias of a small sample; compare it with {_PAIRINGS[-1][1]} random pairings, at the "
        "cost of a joint spectrum each."
    )
    return 0, (Notice("information-unchecked", text),)


def _has_equal_weights(problem: Problem) -> bool:
    # Weights are normalised to sum to one, so equal weights may differ in their last digit.
    return bool(np.ptp(problem.weights) <= 1e-12)


def shuffled_from(
    problem: Problem, num_permutations: int, solved: Mapping[str, Entropy] | None = None
) -> ShuffledBaseline:
    """The baseline of a problem; `solved` holds the entropies at its order, if they are known."""
    if problem.t is None:
        raise ArgumentError("`num_permutations` was given, but there are no prompts to shuffle.")
    if not _has_equal_weights(problem):
        raise ArgumentError("`weights` cannot be shuffled: the baseline needs equal weights.")
    order = problem.settings.order
    if solved is None:
        [solved] = entropies(problem, list(_INFORMATION.terms), [order])
    given = combine(_INFORMATION, solved).estimate.value
    generator = np.random.default_rng(problem.settings.rng)
    shuffled = []
    for _ in range(num_permutations):
        # Shuffling moves neither marginal: only the joint entropy is computed again.
        # Permuting the index pairs the merged points anew without copying the data.
        left = replace(problem.x, index=generator.permutation(problem.x.index))
        joint = HadamardOperator.of(left, problem.t, problem.weights)
        [entropy] = entropies(replace(problem, joint=joint), ["joint"], [order])
        shuffled.append(combine(_INFORMATION, {**solved, **entropy}).estimate.value)
    # The mean of the logarithms is the bias that random pairings have in common.
    mean = math.fsum(shuffled) / num_permutations
    # Equal up to rounding counts as "at least": pairings of equal items are the given one.
    at_least = sum(value >= given - 1e-12 for value in shuffled)
    # One pairing has no standard deviation.
    spread = None
    if num_permutations > 1:
        spread = float(np.std(shuffled, ddof=1))
    # If outputs and prompts are independent, the given pairing is as likely as each random one.
    # Unless it is counted among them, the p-value can be zero, and the test exceeds its level.
    return ShuffledBaseline(
        excess_information=given - mean,
        baseline=math.exp(mean),
        p_value=(1 + at_least) / (1 + num_permutations),
        num_permutations=num_permutations,
        order=order,
        standard_deviation=spread,
    )
