"""How many times as high the score of one model is as that of another, on the same prompts."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import combinations

import numpy as np

from divprism.analysis.evaluation import Results
from divprism.analysis.intervals import (
    SAME_RATIO,
    SamplingError,
    chance_of_difference,
    quantile,
)
from divprism.analysis.stability import Range, ScaledScores

__all__ = ["Difference", "differences_of"]


@dataclass(frozen=True)
class Difference:
    """How many times as diverse one model is as another, on the same prompts.

    Attributes
    ----------
    first, second : str
        The models.
    ratio : float
        Score of the first over that of the second.
    low, high : float or None
        Interval of the ratio. It pairs the models by prompt, so that the effect of a prompt on both
        of them cancels. None where the sample is too small for an interval.
    stable_range : dict of (float, float)
        For a clear difference, by side with a bandwidth ("x" outputs, "t" prompts): the multiples
        of the bandwidth, from 0.5 to 2, between which the same model is ahead.
    p_value : float or None
        If the models were equally diverse, the share of samples of this size in which they would
        differ at least this much (Student's t, two-sided). Below 1 - level where the difference is
        clear. None without an interval.
    standard_error : float or None
        Of the logarithm of the ratio; it falls with the root of the number of prompts.
    """

    first: str
    second: str
    ratio: float
    low: float | None = None
    high: float | None = None
    stable_range: dict[str, Range] = field(default_factory=dict)
    p_value: float | None = None
    standard_error: float | None = None

    @property
    def clear(self) -> bool:
        """Whether the interval excludes 1, by more than rounding; False without one."""
        if self.low is None or self.high is None:
            return False
        return self.low > 1 + SAME_RATIO or self.high < 1 - SAME_RATIO


def differences_of(
    results: Results,
    errors: Mapping[str, SamplingError | None],
    by: str,
    scaled: ScaledScores | None = None,
) -> tuple[Difference, ...]:
    """The difference of every pair of models, in the order of the results.

    With `scaled`, a clear one has the range of bandwidths over which it holds.
    """
    level = results.settings.interval
    assert level is not None
    differences = []
    for first, second in combinations(results, 2):
        ahead, behind = results[first].scores[by], results[second].scores[by]
        # Ratios are compared on the log scale, where their errors are symmetric.
        difference = Difference(first, second, math.exp(ahead.entropy - behind.entropy))
        of_first, of_second = errors[first], errors[second]
        if of_first is not None and of_second is not None:
            # The same parts of both samples are the same prompts: what they share cancels.
            spread = of_first.deviations[by] - of_second.deviations[by]
            # Errors of the estimators are added as independent ones: they do not cancel by prompt.
            of_estimator = [score.standard_error / score.value for score in (ahead, behind)]
            error = math.hypot(float(np.linalg.norm(spread)), *of_estimator)
            difference = _with_error(difference, error, spread.size, level)
        if difference.clear and scaled is not None:
            ranges = scaled.range_of_difference(first, second)
            difference = replace(difference, stable_range=ranges)
        differences.append(difference)
    return tuple(differences)


def _with_error(difference: Difference, error: float, parts: int, level: float) -> Difference:
    """A difference with its interval and its p-value, by Student's t of this number of parts."""
    # On the log scale the interval is symmetric, and the ratio the other way round has the inverse.
    gap = math.log(difference.ratio)
    reach = quantile(parts, level) * error
    return replace(
        difference,
        low=math.exp(gap - reach),
        high=math.exp(gap + reach),
        p_value=chance_of_difference(gap, error, parts),
        standard_error=error,
    )
