"""What is random in a sample: pairs, or prompts with all their outputs."""

import numpy as np

from divprism.errors import ArgumentError
from divprism.scores.problem import Problem

__all__ = ["design_of", "is_even", "units_of"]

_FEW_PROMPTS = 20  # fewer prompts are taken as given, not as a random sample

# With fewer outputs of a prompt, what two of them have in common is not part of the contribution
# of either, and errors would be too small.
_FEW_OUTPUTS = 3

# Share of random samples whose numbers of outputs per prompt are as even as those of a design.
_EVEN = 0.05


def units_of(problem: Problem, unit: str | None) -> tuple[str, np.ndarray]:
    """What is resampled, "pair" or "prompt", and the unit of each pair of a problem.

    By default prompts, if they repeat and there are at least 20, because outputs of one prompt are
    alike. Fewer prompts are the fixed categories of a design rather than a sample; there the
    default is pairs.
    """
    pairs = np.arange(problem.x.index.size)
    if problem.t is None:
        if unit == "prompt":
            raise ArgumentError("`unit` is prompt, but there are no prompts.")
        return "pair", pairs
    if unit is None:
        unit = "pair"
        if _FEW_PROMPTS <= problem.t.size < pairs.size:
            unit = "prompt"
    if unit == "prompt":
        return unit, problem.t.index
    return unit, pairs


def design_of(problem: Problem, unit: str) -> np.ndarray | None:
    """The prompt of each pair, where the pairs are the units and the prompts those of a design.

    Whether prompts are those of a design is read off the numbers of their outputs. Of prompts that
    were sampled together with their outputs, some occur more often than others; where the numbers
    differ less than in 19 of 20 such samples, they were chosen. None elsewhere.

    With fewer than three outputs of a prompt the pairs count as sampled, whatever the prompts:
    intervals are then up to twice as wide as they should be. From three to about ten outputs the
    intervals of Conditional are still conservative: 98 to 99 of 100 intervals of 95 % cover.
    """
    if unit != "pair" or problem.t is None:
        return None
    counts = np.bincount(problem.t.index)
    if is_even(counts) and counts.min() >= _FEW_OUTPUTS:
        return problem.t.index
    return None


def is_even(counts: np.ndarray) -> bool:
    """Whether numbers, not all 1, vary less than those of all but a few random samples.

    By the chi-squared statistic of equal shares, at its lower tail.
    """
    from scipy.special import chdtri

    if counts.size < 2 or counts.max() < 2:
        return False
    mean = counts.mean()
    statistic = ((counts - mean) ** 2).sum() / mean
    return bool(statistic <= chdtri(counts.size - 1, 1 - _EVEN))
