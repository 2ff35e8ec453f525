"""Intervals: how far a score may be from its expectation, estimated from the sample itself.

The errors come from a jackknife (`analysis/jackknife.py`).
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from divprism.analysis.content_order import ContentOrder
from divprism.analysis.jackknife import Sample
from divprism.analysis.units import units_of
from divprism.engines import blas_for
from divprism.errors import Notice
from divprism.scores.problem import Problem
from divprism.scores.score import Score
from divprism.scores.settings import check_level
from divprism.scores.spec import MEANS, ScoreSpec, available, score_spec

__all__ = [
    "SAME_RATIO",
    "Interval",
    "SamplingError",
    "chance_of_difference",
    "quantile",
    "sampling_error",
    "too_few_units",
]

SAME_RATIO = 1e-6
"""Logarithm of the ratio of scores up to which models count as equal.

The same outputs in another order give ratios that differ by less, and no difference between models
that small matters.
"""

# The fewest units with which intervals of 95 % cover in about 90 of 100 simulated samples, for the
# worst score of smooth, clustered and heavy-tailed data (experiments/small_samples.py). With two
# pairs the jackknife sees no spread at all, and intervals of four cover in 54 to 72 of 100.
_MIN_PAIRS = 10
_MIN_PROMPTS = 5


# Items up to which all pairs of them are visited for an interval, beside an estimator that visits
# them too, and beside one that does not: half an hour, and half a minute.
_MOST_SWEPT = 1_000_000
_MOST_BESIDE = 100_000


@dataclass(frozen=True)
class Interval:
    """Where the expectation of a score lies: its mean over other samples of the same size.

    Attributes
    ----------
    low, high : float
        Ends of the interval.
    level : float
        How often such an interval covers the expectation.
    standard_error : float
        Sampling error of the score.
    unit : str
        What is resampled: "pair", or "prompt" with all its outputs. For pairs whose prompts are
        those of a design (`design_of`) outputs are random and prompts given.
    num_units : int
        Number of units in the sample.
    population : tuple of float, or None
        For order 2 of independent pairs, or of outputs under given prompts: the interval for
        infinitely many of them, around the U-statistic, in which no sample meets itself. The score
        of n samples lies below it on average.
    """

    low: float
    high: float
    level: float
    standard_error: float
    unit: str
    num_units: int
    population: tuple[float, float] | None = None


@dataclass(frozen=True, eq=False)
class SamplingError:
    """What parts of the sample contribute to the errors of the scores.

    Attributes
    ----------
    deviations : dict of ndarray
        By score: what each part of the sample (a unit, or a group of units) contributes to the
        error of its logarithm. Squares add up. The same parts of two models on the same prompts
        have the same index, so that common errors cancel in a difference.
    unit : str
        What the units are.
    num_units : int
        Number of units.
    unbiased : dict of (float, ndarray)
        By score of order 2, where a U-statistic is known: its logarithm by that, and the
        deviations.
    norms : dict of float
        Hilbert-Schmidt norm of each operator, without truncation.
    ranges : dict of (float, float)
        By score, the lowest and highest value that any sample of this size can have.
    """

    deviations: dict[str, np.ndarray]
    unit: str
    num_units: int
    unbiased: dict[str, tuple[float, np.ndarray]]
    norms: dict[str, float]
    ranges: dict[str, tuple[float, float]]

    def intervals(self, scores: Mapping[str, Score], level: float) -> dict[str, Interval]:
        """The interval of every score whose sampling error is known."""
        return {name: self.interval(scores[name], level) for name in self.deviations}

    def interval(self, score: Score, level: float) -> Interval:
        """The interval of a score: symmetric in the logarithm, by Student's t.

        It covers the sampling error and the error of the estimator, and ends where no score of
        such a sample can be.
        """
        # Parts are independent contributions, so their squares add up to the variance.
        parts = self.deviations[score.name]
        sampling = float(np.linalg.norm(parts))
        of_estimator = score.standard_error / score.value
        reach = quantile(parts.size, level) * math.hypot(sampling, of_estimator)
        lowest, highest = self.ranges[score.name]
        # Rounding may put the score itself a little beyond its limits.
        lowest, highest = min(lowest, score.value), max(highest, score.value)
        return Interval(
            low=max(math.exp(score.entropy - reach), lowest),
            high=min(math.exp(score.entropy + reach), highest),
            level=check_level(level),
            standard_error=score.value * sampling,
            unit=self.unit,
            num_units=self.num_units,
            population=self._population(score.name, level),
        )

    def _population(self, name: str, level: float) -> tuple[float, float] | None:
        """The interval for infinitely many samples, where the U-statistic is known."""
        if name not in self.unbiased:
            return None
        # There is no upper limit: infinitely many samples may be of infinitely many kinds.
        centre, parts = self.unbiased[name]
        reach = quantile(parts.size, level) * float(np.linalg.norm(parts))
        # The limits are those of samples that meet themselves. A U-statistic may lie below them,
        # and the interval has to contain it.
        lowest = min(self.ranges[name][0], math.exp(centre))
        return max(math.exp(centre - reach), lowest), math.exp(centre + reach)


def quantile(parts: int, level: float) -> float:
    """How many standard errors an interval reaches, for an error estimated from `parts` parts."""
    from scipy.special import stdtrit

    # The error is itself estimated from this number of contributions around their mean, so normal
    # quantiles would be too small.
    return float(stdtrit(parts - 1, (1 + check_level(level)) / 2))


def chance_of_difference(gap: float, error: float, parts: float) -> float:
    """The chance that two equal scores differ at least this much: Student's t, two-sided.

    Parameters
    ----------
    gap : float
        Difference of the logarithms of the scores.
    error : float
        Its standard error, estimated from `parts` parts; of infinitely many it is normal.
    """
    from scipy.special import stdtr

    if abs(gap) <= SAME_RATIO:
        return 1.0
    # Without an error every sample gives this difference.
    if error == 0:
        return 0.0
    return 2 * float(stdtr(parts - 1, -abs(gap) / error))


def too_few_units(problem: Problem, unit: str | None = None) -> Notice | None:
    """A warning if a sample is too small for intervals: they would be narrow and wrong.

    Intervals take five prompts where prompts are resampled. Where pairs are, they take ten
    prompts, or ten outputs beyond the first of each prompt: of six prompts with two outputs each,
    only six outputs show how much the model varies.

    Parameters
    ----------
    problem : Problem
        Whose scores are asked for.
    unit : "pair" or "prompt", optional
        Default as in `units_of`.
    """
    chosen, units = units_of(problem, unit)
    num_pairs = units.size
    if problem.t is None:
        if num_pairs >= _MIN_PAIRS:
            return None
        given, needed = _count(num_pairs, "output"), f"{_MIN_PAIRS} outputs"
    elif chosen == "prompt":
        if problem.t.size >= _MIN_PROMPTS:
            return None
        given, needed = _count(problem.t.size, "prompt"), f"{_MIN_PROMPTS} prompts"
    else:
        if max(problem.t.size, num_pairs - problem.t.size) >= _MIN_PAIRS:
            return None
        given = f"{_count(num_pairs, 'output')} of {_count(problem.t.size, 'prompt')}"
        needed = f"{_MIN_PAIRS} prompts, or {_MIN_PAIRS} outputs beyond the first of each prompt"
    return Notice(
        "too-few-for-interval",
        f"the sample ({given}) is too small for intervals, which take at least {needed}: with "
        "fewer they would be far too narrow. The scores describe this sample only.",
    )


def _count(number: int, noun: str) -> str:
    if number == 1:
        return f"1 {noun}"
    return f"{number:,} {noun}s"


def sampling_error(
    problem: Problem, unit: str | None = None, order: ContentOrder | None = None
) -> SamplingError:
    """The sampling errors of all scores of a problem.

    Parameters
    ----------
    problem : Problem
        Whose scores are asked for, at its order and at order 2.
    unit : "pair" or "prompt", optional
        Default as in `units_of`.
    order : ContentOrder, optional
        The order in which units are dealt out to the groups that are left out. Default: by row.

    Raises
    ------
    DataError
        If there are fewer than two units.
    """
    # The jackknife solves small matrices, and up to this size kernel blocks are small as well.
    with blas_for(problem.x.index.size):
        return _sampling_error(problem, Sample.of(problem, unit, order))


def _sampling_error(problem: Problem, sample: Sample) -> SamplingError:
    order, truncation = problem.settings.order, problem.truncation
    specs = available(sample.terms)
    # The closed form of order 2 and the norms exist only without truncation.
    similarities: dict[str, np.ndarray] = {}
    if truncation is None and _can_sum_squares(problem):
        similarities = sample.similarities(problem.resources)
    parts = _parts_of_entropies(sample, similarities, specs, order, truncation)
    deviations = {}
    for spec in specs:
        if spec.operators:
            deviations[spec.name] = parts.deviations(spec, spec.order_under(order))
        else:
            # A mean alone has contributions in closed form, of all units and at every order.
            deviations[spec.name] = sample.shares_of_mean()
    if sample.labels is not None:
        for spec in available(["within_labels"]):
            at = spec.order_under(order)
            deviations[spec.name] = sample.inside(at, truncation)
    ranges = {}
    for name in deviations:
        spec = score_spec(name)
        ranges[name] = spec.limits(sample.units.size, spec.order_under(order), truncation)
        if not spec.operators and sample.quality is not None:
            # Qualities have a scale of their own, of which only the numbers at hand are known.
            ranges[name] = float(sample.quality.min()), float(sample.quality.max())
    # The squared norm is sum_ij w_i w_j k_ij^2, and the inner sum over j is known already.
    norms = {name: math.sqrt(float(sample.weights @ sums)) for name, sums in similarities.items()}
    return SamplingError(
        deviations=deviations,
        unit=sample.unit,
        num_units=sample.num_units,
        unbiased=_unbiased(sample, similarities, specs, order),
        norms=norms,
        ranges=ranges,
    )


def _can_sum_squares(problem: Problem) -> bool:
    """Whether sums over all pairs of pairs take no longer than the scores themselves.

    Otherwise order 2 has the jackknife of the other orders, on a subset.
    """
    largest = max(operator.size for operator in problem.operators.values())
    if problem.settings.estimator.squares_are_exact:
        return largest <= _MOST_SWEPT
    # An estimator that visits each item once is chosen for data on which nothing else ends.
    return largest <= _MOST_BESIDE


@dataclass(frozen=True, eq=False)
class _EntropyParts:
    """What parts of the sample contribute to the errors of entropies, by operator and order.

    `within`, where prompts are resampled and only some of their outputs are used: the part of
    the error that outputs have. `lost` is the share of outputs that are not used.
    """

    whole: dict[tuple[str, float], np.ndarray]
    within: dict[tuple[str, float], np.ndarray]
    lost: float

    def deviations(self, spec: ScoreSpec, order: float) -> np.ndarray:
        """Contributions to the error of the logarithm of a score."""
        # Contributions are added with their signs before they are squared: what a part does to
        # H(X, T) and to H(T) alike is no error of Conditional.
        whole = _combine(spec, {name: self.whole[name, order] for name in spec.terms})
        if not all((name, order) in self.within for name in spec.terms):
            return whole
        within = _combine(spec, {name: self.within[name, order] for name in spec.terms})
        return whole * _shrinkage(whole, within, self.lost)


def _parts_of_entropies(
    sample: Sample,
    similarities: Mapping[str, np.ndarray],
    specs: tuple[ScoreSpec, ...],
    order: float,
    truncation: int | None,
) -> _EntropyParts:
    """Contributions to the error of every entropy and mean that some scores are sums of."""
    lost = sample.outputs_lost()
    whole: dict[tuple[str, float], np.ndarray] = {}
    within: dict[tuple[str, float], np.ndarray] = {}
    for spec in specs:
        at = spec.order_under(order)
        if not spec.operators:
            continue
        for name in spec.terms:
            # The same entropy occurs in several scores, and each costs twenty spectra.
            if (name, at) in whole:
                continue
            if at == 2 and name in similarities:
                # At order 2 the contributions are known in closed form.
                whole[name, at] = sample.shares_of(name, similarities[name])
                continue
            if at == 2 and name in MEANS and similarities:
                # Beside entropies in closed form, so that both have the same parts.
                whole[name, at] = sample.shares_of_mean()
                continue
            whole[name, at] = sample.left_out(name, at, truncation)
            if lost and name in MEANS:
                # Means of prompts are those of all their outputs.
                within[name, at] = np.zeros(1)
            elif lost:
                within[name, at] = sample.left_out_within(name, at, truncation)
    return _EntropyParts(whole, within, lost)


def _unbiased(
    sample: Sample,
    similarities: Mapping[str, np.ndarray],
    specs: tuple[ScoreSpec, ...],
    order: float,
) -> dict[str, tuple[float, np.ndarray]]:
    """The U-statistic of every score of order 2, and the contributions to its error."""
    entropies = sample.unbiased(similarities)
    unbiased = {}
    for spec in specs:
        is_known = all(name in entropies for name in spec.terms)
        if spec.order_under(order) != 2 or not is_known:
            continue
        logs = {name: np.array(entropies[name][0]) for name in spec.terms}
        spreads = {name: entropies[name][1] for name in spec.terms}
        unbiased[spec.name] = float(_combine(spec, logs)), _combine(spec, spreads)
    return unbiased


def _shrinkage(whole: np.ndarray, within: np.ndarray, lost: float) -> float:
    """Factor that corrects errors from a subset with fewer outputs per prompt than there are.

    The subset adds a share `lost` of the variance that outputs have; the whole sample has not.
    """
    variance = float(whole @ whole)
    if variance == 0:
        return 1.0
    # The variance of the outputs cannot exceed the whole, whatever their estimates.
    kept = 1 - lost * float(within @ within) / variance
    return math.sqrt(max(kept, 1 - lost))


def _combine(spec: ScoreSpec, parts: Mapping[str, np.ndarray]) -> np.ndarray:
    """The logarithm of a score, or its deviations, from those of its entropies."""
    return np.asarray(sum(sign * parts[name] for name, sign in spec.terms.items()))
