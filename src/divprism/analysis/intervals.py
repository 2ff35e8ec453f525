"""How far a score may be off: intervals from the sample itself. Their errors are a jackknife's (`_jackknife`)."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from divprism.analysis.jackknife import Sample
from divprism.errors import ArgumentError
from divprism.scores.problem import Problem
from divprism.scores.score import COMBINATIONS

__all__ = ["Interval", "SamplingError", "check_level", "quantile", "sampling_error"]


@dataclass(frozen=True)
class Interval:
    """Where the expectation of a score lies: the mean over other samples of the same size.

    Attributes
    ----------
    low, high : float
        Its ends.
    level : float
        How often such an interval holds the expectation.
    standard_error : float
        Sampling error of the score.
    unit : str
        What was drawn: "pair", or "prompt" with all its outputs. Of pairs whose prompts are those of a design (`design_of`) the
        outputs were drawn, and the prompts given.
    num_units : int
        How many.
    population : tuple of float, or None
        For order 2 of independent pairs, or of outputs under given prompts: the interval for infinitely many of them, around
        the U-statistic, in which no sample meets itself. The score of n samples lies below it on average.
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
        Per score: what each part of the sample (a unit, or a group of units) contributes to the error of its logarithm. Squares
        add up. The same parts of two models on the same prompts stand in the same places, so that in a difference common
        errors cancel.
    unit : str
        What the units are.
    num_units : int
        How many there are.
    unbiased : dict of (float, ndarray)
        Per score of order 2, where a U-statistic is known: its logarithm by that, and the deviations.
    norms : dict of float
        Hilbert-Schmidt norm of each operator, without truncation.
    ranges : dict of (float, float)
        Per score, the least and the most that it can be, whatever the sample.
    """

    deviations: dict[str, np.ndarray]
    unit: str
    num_units: int
    unbiased: dict[str, tuple[float, np.ndarray]]
    norms: dict[str, float]
    ranges: dict[str, tuple[float, float]]

    def interval(self, name: str, entropy: float, level: float, own: float = 0.0) -> Interval:
        """The interval of a score whose logarithm is `entropy`: symmetric in the logarithm, by Student's t.

        `own` is the relative error that the estimator brought to the score; the interval reaches over both errors. It ends
        where no score of such a sample can be.
        """
        parts = self.deviations[name]
        error, value = float(np.linalg.norm(parts)), math.exp(entropy)
        least, most = self.ranges[name]
        reach = quantile(parts.size, level) * math.hypot(error, own)
        population = None
        if name in self.unbiased:
            around, spread = self.unbiased[name]
            far = quantile(spread.size, level) * float(np.linalg.norm(spread))
            population = (
                max(math.exp(around - far), min(least, math.exp(around))),
                math.exp(around + far),
            )
        return Interval(
            low=max(math.exp(entropy - reach), min(least, value)),
            high=min(math.exp(entropy + reach), max(most, value)),
            level=check_level(level),
            standard_error=value * error,
            unit=self.unit,
            num_units=self.num_units,
            population=population,
        )


def quantile(parts: int, level: float) -> float:
    """How many standard errors an interval reaches, if the error was found from some number of parts."""
    from scipy.special import stdtrit

    return float(stdtrit(parts - 1, (1 + check_level(level)) / 2))


def check_level(level: Any) -> float:
    """The level of an interval as a float between 0 and 1, or a sentence."""
    if not isinstance(level, float | np.floating) or not 0 < level < 1:
        raise ArgumentError(
            f"`interval` must be a level between 0 and 1, such as 0.95; got {level!r}."
        )
    return float(level)


def sampling_error(problem: Problem, unit: str | None = None) -> SamplingError:
    """The sampling errors of all scores of a problem.

    Parameters
    ----------
    problem : Problem
        Whose scores are asked for, at its order and at order 2.
    unit : "pair" or "prompt", optional
        Default as in `units_of`.

    Raises
    ------
    DataError
        If there are fewer than two units.
    """
    sample = Sample.of(problem, unit)
    names = [name for name, terms in COMBINATIONS.items() if set(terms) <= set(sample.operators)]
    order, truncation = problem.settings["order"], problem.settings["truncation"]
    similar = (
        {name: sample.similarities(name) for name in sample.operators} if truncation is None else {}
    )
    found: dict[tuple[str, bool], np.ndarray] = {}
    within: dict[tuple[str, bool], np.ndarray] = {}
    lost = sample.outputs_lost()
    for second in (False, True):
        at = 2.0 if second else order
        for name in sample.operators:
            closed = at == 2 and name in similar
            found[name, second] = (
                sample.shares(similar[name]) if closed else sample.left_out(name, at, truncation)
            )
            if lost and not closed:
                within[name, second] = sample.left_out_within(name, at, truncation)
    deviations = {}
    for name in names:
        second = name.endswith("rke")
        deviations[name] = _added_up(name, {part: found[part, second] for part in sample.operators})
        if ("x", second) in within:
            inside = _added_up(name, {part: within[part, second] for part in sample.operators})
            deviations[name] *= _shrinkage(deviations[name], inside, lost)
    if problem.grouped is not None:
        labels = problem.grouped.right.index
        deviations["cluster_vendi"] = sample.inside(labels, order, truncation)
        deviations["cluster_rke"] = sample.inside(labels, 2.0, truncation)
    unbiased = {}
    pure = sample.unbiased(similar)
    for name in names:
        if pure and (name.endswith("rke") or order == 2):
            value = _added_up(name, {part: np.array(log) for part, (log, _) in pure.items()})
            unbiased[name] = (
                float(value),
                _added_up(name, {part: spread for part, (_, spread) in pure.items()}),
            )
    norms = {name: math.sqrt(float(sample.weights @ sums)) for name, sums in similar.items()}
    ranges = {name: _range(name, sample.units.size, order, truncation) for name in deviations}
    return SamplingError(deviations, sample.unit, sample.num_units, unbiased, norms, ranges)


def _shrinkage(deviations: np.ndarray, within: np.ndarray, lost: float) -> float:
    """What errors are to be multiplied by, if a draw has fewer outputs of each prompt than there are.

    A share `lost` of the part that outputs have in the variance is the draw's alone; outputs of a draw have it whole.
    """
    between = float(deviations @ deviations)
    return math.sqrt(max(1 - lost * float(within @ within) / between, 1 - lost)) if between else 1.0


def _range(name: str, n: int, order: float, truncation: int | None) -> tuple[float, float]:
    """The least and the most that a score of n pairs can be.

    The eigenvalues of K_X o K_T are majorised by those of either factor, so that Conditional is at least 1 and no score above
    that of n different outputs, at any order; cut spectra need not be, and only those of one operator are from 1 to where they
    are cut. Information is at least 1 by subadditivity, at order 1.
    """
    if name.startswith("conditional"):
        return (1.0, float(n)) if truncation is None else (0.0, float(min(n, truncation)))
    if name.startswith("information"):
        least = 1.0 if name == "information_vendi" and order == 1 and truncation is None else 0.0
        return least, float(n) if truncation is None else math.inf
    return 1.0, float(n if truncation is None else min(n, truncation))


def _added_up(name: str, parts: dict[str, np.ndarray]) -> np.ndarray:
    """The logarithm of a score, or its deviations, from those of its entropies."""
    return np.asarray(sum(sign * parts[part] for part, sign in COMBINATIONS[name].items()))
