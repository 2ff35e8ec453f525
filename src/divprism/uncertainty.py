"""How far a score may be off: intervals from the sample itself.

Sampling errors are a jackknife's. At order 2 a score is a ratio of sums over pairs of samples, and what each sample adds to it
is known in closed form; at other orders samples are left out by groups, twenty at most, and the scores computed again. So are
the cluster scores, at every order: what a sample adds to the score of a small cluster is not all that it does to it.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from divprism._arrays import to_numpy
from divprism._blocks import row_blocks
from divprism._problem import Problem
from divprism.entropy import matrix_entropy
from divprism.errors import ArgumentError, DataError
from divprism.operators import HadamardOperator, Operator, dense
from divprism.scores import COMBINATIONS

__all__ = ["UNITS", "Interval", "SamplingError", "sampling_error", "units_of"]

UNITS = ("pair", "prompt")
"""What is taken to have been drawn at random: pairs, or prompts with all their outputs."""

_FEW_PROMPTS = 20  # fewer are taken as given, not as drawn
_GROUPS = 20
_MAX_PAIRS = 500  # pairs that are left out by groups; of more, a draw stands for all: errors fall with the root of their number
_BLOCK_ENTRIES = 1 << 23


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
        What was drawn: "pair", or "prompt" with all its outputs.
    num_units : int
        How many.
    population : tuple of float, or None
        For order 2 of independent pairs: the interval for infinitely many samples, around the U-statistic, in which no sample
        meets itself. The score of n samples lies below it on average.
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
        Per score of order 2, for independent pairs: its logarithm by the U-statistic, and the deviations of that.
    norms : dict of float
        Hilbert-Schmidt norm of each operator, without truncation.
    """

    deviations: dict[str, np.ndarray]
    unit: str
    num_units: int
    unbiased: dict[str, tuple[float, np.ndarray]]
    norms: dict[str, float]

    def interval(self, name: str, entropy: float, level: float, own: float = 0.0) -> Interval:
        """The interval of a score whose logarithm is `entropy`: symmetric in the logarithm, by Student's t.

        `own` is the relative error that the estimator brought to the score; the interval reaches over both errors.
        """
        parts = self.deviations[name]
        error = float(np.linalg.norm(parts))
        reach = quantile(parts.size, level) * math.hypot(error, own)
        population = None
        if name in self.unbiased:
            around, spread = self.unbiased[name]
            far = quantile(spread.size, level) * float(np.linalg.norm(spread))
            population = (math.exp(around - far), math.exp(around + far))
        return Interval(
            low=math.exp(entropy - reach),
            high=math.exp(entropy + reach),
            level=level,
            standard_error=math.exp(entropy) * error,
            unit=self.unit,
            num_units=self.num_units,
            population=population,
        )


def quantile(parts: int, level: float) -> float:
    """How many standard errors an interval reaches, if the error was found from some number of parts."""
    from scipy.special import stdtrit

    if not isinstance(level, float) or not 0 < level < 1:
        raise ArgumentError(f"`interval` must be a level between 0 and 1, such as 0.95; got {level!r}.")
    return float(stdtrit(parts - 1, (1 + level) / 2))


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
    sample = _Sample.of(problem, unit)
    names = [name for name, terms in COMBINATIONS.items() if set(terms) <= set(sample.operators)]
    order, truncation = problem.settings["order"], problem.settings["truncation"]
    similar = {name: sample.similarities(name) for name in sample.operators} if truncation is None else {}
    found: dict[tuple[str, bool], np.ndarray] = {}
    for second in (False, True):
        at = 2.0 if second else order
        for name in sample.operators:
            closed = at == 2 and name in similar
            found[name, second] = sample.shares(similar[name]) if closed else sample.left_out(name, at, truncation)
    deviations = {
        name: _added_up(name, {part: found[part, name.endswith("rke")] for part in sample.operators}) for name in names
    }
    if problem.grouped is not None:
        labels = problem.grouped.right.index
        deviations["cluster_vendi"] = sample.inside(labels, order, truncation)
        deviations["cluster_rke"] = sample.inside(labels, 2.0, truncation)
    unbiased = {}
    pure = sample.unbiased(similar)
    for name in names:
        if pure and (name.endswith("rke") or order == 2):
            value = _added_up(name, {part: np.array(log) for part, (log, _) in pure.items()})
            unbiased[name] = float(value), _added_up(name, {part: spread for part, (_, spread) in pure.items()})
    norms = {name: math.sqrt(float(sample.weights @ sums)) for name, sums in similar.items()}
    return SamplingError(deviations, sample.unit, sample.num_units, unbiased, norms)


def _added_up(name: str, parts: dict[str, np.ndarray]) -> np.ndarray:
    """The logarithm of a score, or its deviations, from those of its entropies."""
    return np.asarray(sum(sign * parts[part] for part, sign in COMBINATIONS[name].items()))


@dataclass(frozen=True, eq=False)
class _Sample:
    """Pairs of a problem: which point of each operator a pair is, which unit it belongs to, what it weighs."""

    operators: dict[str, Operator]
    places: dict[str, np.ndarray]
    units: np.ndarray
    weights: np.ndarray
    unit: str
    rng: int

    @classmethod
    def of(cls, problem: Problem, unit: str | None) -> "_Sample":
        operators: dict[str, Operator] = {"x": problem.x}
        places = {"x": problem.x.index}
        whole: Operator = problem.x
        key = "x"
        if problem.t is not None and problem.joint is not None:
            whole, key = problem.joint, "joint"
            operators |= {"t": problem.t, "joint": problem.joint}
            places |= {"t": problem.t.index, "joint": _pair_places(problem.joint)}
        chosen, units = units_of(problem, unit)
        if units.max() < 1:
            raise DataError(f"an interval needs at least two {chosen}s; got one.")
        weights = whole.masses[places[key]] / np.bincount(places[key])[places[key]]
        return cls(operators, places, units, weights, chosen, problem.settings["rng"])

    @property
    def num_units(self) -> int:
        return int(self.units.max()) + 1

    def unbiased(self, similar: dict[str, np.ndarray]) -> dict[str, tuple[float, np.ndarray]]:
        """Entropies of order 2 from sums over different pairs only, and what each adds; none where pairs are not the units."""
        alone = float(self.weights @ self.weights)
        found = {}
        for name, similarities in similar.items() if self.unit == "pair" else ():
            others = similarities - self.weights
            total = float(self.weights @ others)
            if total <= 1e-9 * alone:
                return {}
            found[name] = -math.log(total / (1 - alone)), self.shares(others)
        return found

    def similarities(self, name: str) -> np.ndarray:
        """For each pair i the sum over all j of w_j k_ij^2."""
        operator = self.operators[name]
        sums = np.concatenate([_square_sums(operator, rows) for rows in _blocks(operator)])
        return np.asarray((sums / operator.masses)[self.places[name]])

    def shares(self, similarities: np.ndarray) -> np.ndarray:
        """What each unit adds to an entropy of order 2, -log sum_ij w_i w_j k_ij^2: its derivative by the weights is closed."""
        added = -2 * (similarities / float(self.weights @ similarities) - 1)
        total = np.bincount(self.units, weights=self.weights * added)
        return math.sqrt(total.size / (total.size - 1)) * total

    def left_out(self, name: str, order: float, truncation: int | None) -> np.ndarray:
        """What each group of units contributes to the error of an entropy: the jackknife that leaves out one after another."""
        kept, scale = self._drawn(self.units)
        used = np.flatnonzero(np.isin(self.units, kept))
        _, without = self._without(name, used, self._parted(kept)[used], order, truncation)
        return scale * _jackknifed(without)

    def inside(self, labels: np.ndarray, order: float, truncation: int | None) -> np.ndarray:
        """What each group of units contributes to the error of the logarithm of a cluster score: the same jackknife.

        A draw of all pairs would leave small clusters with too few, so every cluster keeps its pairs; of one with more than
        `_MAX_PAIRS` a draw stands for all in its entropy, whose change is scaled as in `left_out`, but not in its share. The
        score of a small cluster is far from linear in its pairs: with five of them the error comes out a sixth too large.
        """
        groups = self._parted(np.random.default_rng(self.rng).permutation(self.num_units))
        count = int(groups.max()) + 1
        total = np.zeros(count)
        sorted_pairs = np.argsort(labels, kind="stable")
        for members in np.split(sorted_pairs, np.flatnonzero(np.diff(labels[sorted_pairs])) + 1):
            kept, scale = self._drawn(self.units[members])
            drawn = members[np.isin(self.units[members], kept)]
            whole, without = self._without("x", drawn, groups[drawn], order, truncation, count)
            gone = np.bincount(groups[members], weights=self.weights[members], minlength=count)
            total += (gone.sum() - gone) * np.exp(whole + scale * (without - whole))
        mass = 1 - np.bincount(groups, weights=self.weights, minlength=count)
        return _jackknifed(np.log(total / mass))

    def _parted(self, units: np.ndarray) -> np.ndarray:
        """The group of each pair, where units in random order are dealt out to twenty; -1 for pairs of other units."""
        groups = np.full(self.num_units, -1)
        groups[units] = np.arange(units.size) % min(units.size, _GROUPS)
        return np.asarray(groups[self.units])

    def _drawn(self, units: np.ndarray) -> tuple[np.ndarray, float]:
        """Units that stand for all of some, with few enough pairs, and the factor that the absence of the others asks for."""
        distinct, sizes = np.unique(units, return_counts=True)
        order = np.random.default_rng(self.rng).permutation(distinct.size)
        within = int(np.searchsorted(np.cumsum(sizes[order]), _MAX_PAIRS, side="right"))
        kept = max(within, min(distinct.size, _GROUPS))
        return distinct[order[:kept]], math.sqrt(kept / distinct.size)

    def _without(
        self, name: str, used: np.ndarray, groups: np.ndarray, order: float, truncation: int | None, count: int = 0
    ) -> tuple[float, np.ndarray]:
        """Entropy of some pairs, and what it is without each group of them; one that has none of them, or all, changes nothing.

        `count`: number of groups, where the last of them may have none.
        """
        points, places = np.unique(self.places[name][used], return_inverse=True)
        operator = self.operators[name].sample(points, double=True)
        roots = np.sqrt(operator.masses)
        kernel = np.asarray(to_numpy(next(dense([operator]))), np.float64) / np.outer(roots, roots)

        def entropy(there: np.ndarray) -> float:
            masses = np.bincount(places, weights=self.weights[used] * there, minlength=points.size)
            return matrix_entropy(kernel, masses, order, truncation)

        whole, sizes = entropy(np.ones(used.size)), np.bincount(groups, minlength=count)
        return whole, np.array([entropy(groups != g) if 0 < size < used.size else whole for g, size in enumerate(sizes)])


def _jackknifed(left: np.ndarray) -> np.ndarray:
    """Contributions to the error of a number, from what it is without each part of the sample."""
    return math.sqrt((left.size - 1) / left.size) * (left - left.mean())


def _pair_places(joint: HadamardOperator) -> np.ndarray:
    """For each pair, the point of a product that it is."""
    codes = joint.left.index * joint.right.size + joint.right.index
    return np.searchsorted(joint.left_index * joint.right.size + joint.right_index, codes)


def units_of(problem: Problem, unit: str | None) -> tuple[str, np.ndarray]:
    """What was drawn at random, "pair" or "prompt", and which one each pair of a problem belongs to.

    Where nothing is said it is prompts, if they repeat and there are at least 20: outputs of one prompt are alike. Fewer
    prompts are the fixed categories of a design rather than a sample, and there it is pairs.
    """
    pairs = np.arange(problem.x.index.size)
    if unit not in (None, *UNITS):
        raise ArgumentError(f"`unit` must be pair or prompt; got {unit!r}.")
    if problem.t is None:
        if unit == "prompt":
            raise ArgumentError("`unit` is prompt, but there are no prompts.")
        return "pair", pairs
    chosen = unit or ("prompt" if _FEW_PROMPTS <= problem.t.size < pairs.size else "pair")
    return chosen, problem.t.index if chosen == "prompt" else pairs


def _blocks(operator: Operator) -> Iterator[slice]:
    return row_blocks(operator.size, max(1, _BLOCK_ENTRIES // operator.size))


def _square_sums(operator: Operator, rows: slice) -> np.ndarray:
    block = np.asarray(to_numpy(operator.rows(rows)), np.float64)
    return np.asarray(np.einsum("ij,ij->i", block, block))
