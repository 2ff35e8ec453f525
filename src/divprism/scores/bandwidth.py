"""Rules that choose the bandwidth of a Gaussian kernel from data.

No rule is random: the order of rows, a seed or the container of the data never change a bandwidth.
Beyond `max_rows` distinct rows a rule looks at a sample of them that is chosen by their content.
The result of a score records the rule and the number that it chose.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from divprism.core.arrays import Array, content_hashes, distinct_rows
from divprism.core.distances import condensed_squares
from divprism.core.validation import clean_rows, whole_number
from divprism.errors import ArgumentError

__all__ = ["BandwidthRule", "DistinctPrompts", "MedianDistance", "StableScore"]


# The papers' rule searches from four times the median distance down to an eighth of it, in steps of
# this much in the logarithm; within a step it solves for the root.
_HIGHEST = math.log(4.0)
_LOWEST = math.log(1 / 8)
_STEP = 0.3

# Accuracy of the logarithm of a bandwidth. A score moves by at most a few times as much, and a
# default score must not depend on the order of rows beyond 1e-6.
_ACCURACY = 1e-10

# Where the bandwidth is this many times below the smallest distance, exp(-36) is left of any pair.
_VANISHING = 6.0

# Largest share of all other outputs that may become companions of an output that is alone, and the
# share of all outputs that has to be alone to get as many companions as it needs.
_MOST_OF_ALL = 0.2
_HEARD = 0.1

# Prompts that are closer than this, relative to the median distance, are the same up to rounding:
# an embedder may give a text slightly different vectors in different batches.
_SAME_PROMPT = 0.01


class BandwidthRule(ABC):
    """A way to choose the bandwidths of Gaussian kernels from data."""

    @abstractmethod
    def bandwidth(self, x: Array, *, name: str = "x") -> float:
        """The bandwidth for the outputs `x`; `name` is what messages call them."""

    def prompt_bandwidth(
        self, t: Array, *, models: Sequence[str] | None = None, name: str = "t"
    ) -> float:
        """The bandwidth for the prompts `t`, one row per output; by default as for outputs.

        `models` names the model of each output, where several models share the bandwidth.
        """
        return self.bandwidth(t, name=name)

    def side_bandwidth(
        self, side: str, rows: Array, *, models: Sequence[str] | None = None
    ) -> float:
        """The bandwidth for the outputs ("x") or for the prompts ("t")."""
        if side == "t":
            return self.prompt_bandwidth(rows, models=models, name=side)
        return self.bandwidth(rows, name=side)


@dataclass(frozen=True)
class MedianDistance(BandwidthRule):
    """The median distance between distinct rows: the common default of kernel methods.

    Copies count once, so repeating prompts, or the whole data set, does not change the bandwidth.
    Data without two distinct rows get 1, where every bandwidth gives the same score.
    O(max_rows^2 d).

    Attributes
    ----------
    max_rows : int
        Largest number of distinct rows to look at; of more, a sample chosen by content.

    Examples
    --------
    >>> MedianDistance().bandwidth(np.array([[0.0], [1.0], [3.0], [3.0]]))
    2.0
    """

    max_rows: int = 2000

    def __post_init__(self) -> None:
        object.__setattr__(self, "max_rows", whole_number(self.max_rows, "max_rows", 2))

    def bandwidth(self, x: Array, *, name: str = "x") -> float:
        """Median of ``|x_i - x_j|`` over pairs of distinct rows."""
        rows = _DistinctRows.of(clean_rows(x, name), self.max_rows)
        if rows.count < 2:
            return 1.0
        return rows.median


@dataclass(frozen=True)
class StableScore(BandwidthRule):
    """The smallest bandwidth at which the RKE is stable: the rule of the papers.

    Conditional Vendi, App. E.1 takes, for each kind of data, the smallest bandwidth at which the
    score varies by less than 0.01 (variance) between independent evaluations. Here the score is the
    RKE (order 2, as in the work that the rule comes from) of `num_samples` samples, and its
    variance is known in closed form: with h = k^2 the RKE is 1 / mu, mu = 1/m + (1 - 1/m) U, and U
    is a U-statistic of h, whose variance follows from the variance of h over pairs and of its mean
    over rows (Hoeffding). So nothing is drawn and no grid is walked.

    The bandwidth is where the variance, coming from four times the median distance, first exceeds
    `threshold`; at the latest an eighth of the median distance. The direction matters: at
    bandwidths so small that every row is a kind of its own the variance vanishes again.

    Copies of a row count by their share of all rows, but pairs of copies do not count: copying the
    data set changes nothing. Data without two distinct rows get 1. O(max_rows^2 d).

    Attributes
    ----------
    threshold : float
        Largest variance of the score.
    num_samples : int
        Number of samples m of an evaluation.
    max_rows : int
        Largest number of distinct rows to look at; of more, a sample chosen by content.
    """

    threshold: float = 0.01
    num_samples: int = 500
    max_rows: int = 2000

    def __post_init__(self) -> None:
        object.__setattr__(self, "threshold", _positive("threshold", self.threshold))
        for field in ("num_samples", "max_rows"):
            object.__setattr__(self, field, whole_number(getattr(self, field), field, 2))

    def bandwidth(self, x: Array, *, name: str = "x") -> float:
        """The first bandwidth, from above, at which the variance reaches the threshold."""
        rows = _DistinctRows.of(clean_rows(x, name), self.max_rows)
        if rows.count < 2:
            return 1.0
        return self.between(rows)

    def between(self, rows: "_DistinctRows") -> float:
        """The bandwidth for at least two distinct rows."""
        masses = rows.counts / rows.counts.sum()
        squares = _square(rows.relative_squares)

        def log_excess(log_bandwidth: float) -> float:
            variance = _variance_of_rke(squares, masses, math.exp(log_bandwidth), self.num_samples)
            # A variance of zero is stable, and its logarithm would not be finite.
            return math.log(max(variance, 1e-300) / self.threshold)

        return rows.median * math.exp(_first_root_from_above(log_excess))


@dataclass(frozen=True)
class DistinctPrompts(BandwidthRule):
    """The papers' rule, widened, for outputs; different prompts count as different: the default.

    Outputs get `widening` times the bandwidth of `StableScore`. For prompts that rule is too wide:
    at order 2 pairs of outputs of different prompts outnumber those of the same prompt, and unless
    the kernel all but removes them, Conditional-RKE compares answers to *different* questions. An
    output shares its kind of prompt with sum_j k_T(i, j)^2 outputs, on average n / prompt_rke. Of
    these, the outputs of its own prompt are the ones to compare it with. This rule takes the
    largest bandwidth at which outputs of other prompts make up a share of at most `across`. The
    candidates are compared in docs/validity.md; far wider outputs rank a little better still, but
    then ten different outputs count as hardly more than one.

    An output that is the only one of its prompt has nothing to be compared with, so it needs
    companions from similar prompts: where prompts do not repeat, the bandwidth is the one at which
    an output has `companions` of them, and so n / (1 + companions) kinds of prompt. Between these
    cases the rule interpolates by the share of outputs that are alone.

    With several models, each with its own outputs, both are averages over the models, the second
    one over those with outputs that are alone. Few prompts cannot have many companions: at most a
    fifth of all other outputs are taken. Prompts closer than a hundredth of the median distance
    count as the same. Data without two distinct prompts get 1, where every bandwidth gives the same
    score. O(max_rows^2 d).

    Attributes
    ----------
    across : float
        Largest share of the squared kernel values that pairs of different prompts may have.
    companions : float
        Number of outputs of other prompts that an output needs if it is alone.
    widening : float
        Bandwidth of the outputs, as a multiple of that of `StableScore`.
    max_rows : int
        Largest number of distinct rows to look at; of more, a sample chosen by content.

    Examples
    --------
    Ten prompts of five outputs each; their kinds, at order 2, are nine tenths of ten:

    >>> import divprism as dp
    >>> t = np.repeat(np.arange(10.0)[:, None] ** 1.5, 5, axis=0)
    >>> bandwidth = DistinctPrompts().prompt_bandwidth(t)
    >>> round(dp.prompt_rke(t, kernel=dp.Gaussian(bandwidth)), 6)
    9.0
    """

    across: float = 0.1
    companions: float = 4.0
    widening: float = 1.2
    max_rows: int = 2000

    def __post_init__(self) -> None:
        for field in ("across", "companions", "widening"):
            object.__setattr__(self, field, _positive(field, getattr(self, field)))
        if self.across >= 1:
            raise ArgumentError(f"`across` must be between 0 and 1; got {self.across!r}.")
        object.__setattr__(self, "max_rows", whole_number(self.max_rows, "max_rows", 2))

    def bandwidth(self, x: Array, *, name: str = "x") -> float:
        """The bandwidth of `StableScore`, widened."""
        rows = _DistinctRows.of(clean_rows(x, name), self.max_rows)
        if rows.count < 2:
            return 1.0
        return self.widening * StableScore().between(rows)

    def prompt_bandwidth(
        self, t: Array, *, models: Sequence[str] | None = None, name: str = "t"
    ) -> float:
        """The largest bandwidth at which outputs of other prompts are few enough."""
        rows = _DistinctRows.of(clean_rows(t, name), self.max_rows)
        if rows.count < 2:
            return 1.0
        companions = _Companions.of(rows, models, self)
        # Prompts of different models never meet: that may leave no two prompts to compare.
        if companions.num_outputs.size == 0:
            return rows.median
        closest = math.sqrt(float(rows.relative_squares.min()))
        lowest = math.log(max(closest / _VANISHING, _SAME_PROMPT))
        apart = _root_between(companions.log_excess_of_all, lowest, _HIGHEST)
        if companions.weight_of_alone > 0:
            together = _root_between(companions.log_excess_of_alone, lowest, _HIGHEST)
            # Outputs that are alone can only ask for a wider bandwidth.
            apart += companions.weight_of_alone * max(together - apart, 0.0)
        return rows.median * math.exp(apart)


@dataclass(frozen=True, eq=False)
class _Companions:
    """How many outputs of other prompts an output of each model has in its kind of prompt.

    Attributes
    ----------
    squares : ndarray, shape (p, p)
        Squared distances between the prompts that are looked at, relative to the median.
    counts : ndarray, shape (p, m)
        Number of outputs of each of these prompts and each model.
    num_outputs, same_prompt : ndarray, shape (m,)
        Number of outputs of each model, and how many outputs their prompt has on average.
    wanted_alone : ndarray, shape (m,)
        Number of companions that outputs without another one of their prompt need.
    weight_of_alone : float
        How much these outputs count: 1 if they are at least a tenth of all.
    share : float
        Companions, over the outputs of the same prompt, that are allowed where these suffice.
    """

    squares: np.ndarray
    counts: np.ndarray
    num_outputs: np.ndarray
    same_prompt: np.ndarray
    wanted_alone: np.ndarray
    weight_of_alone: float
    share: float

    @classmethod
    def of(
        cls, rows: "_DistinctRows", models: Sequence[str] | None, rule: DistinctPrompts
    ) -> "_Companions":
        """The companions of the models with at least two prompts."""
        counts = rows.counts_by_model(models)
        chosen = counts[rows.chosen]
        # A sample of prompts may hold fewer than two of a model.
        kept = (chosen > 0).sum(axis=0) > 1
        counts = counts[:, kept]
        num_outputs = counts.sum(axis=0)
        same_prompt = (counts**2).sum(axis=0) / num_outputs
        num_alone = (counts == 1).sum(axis=0)
        # Few prompts cannot give many companions without becoming one kind.
        wanted = np.minimum(
            rule.companions * num_alone / num_outputs, _MOST_OF_ALL * (num_outputs - same_prompt)
        )
        # A few outputs that are alone must not decide for all others.
        heard = float(num_alone.sum()) / (_HEARD * rows.inverse.size)
        return cls(
            _square(rows.relative_squares),
            chosen[:, kept],
            num_outputs,
            same_prompt=same_prompt,
            wanted_alone=wanted,
            # Squared, so that a few hardly move it and nothing jumps as their number grows.
            weight_of_alone=min(1.0, heard) ** 2,
            share=rule.across / (1 - rule.across),
        )

    def numbers(self, log_bandwidth: float) -> np.ndarray:
        """For each model the mean number of companions."""
        # k_T^2, in which the 2 of the Gaussian kernel cancels.
        values = np.exp(self.squares * (-1 / math.exp(log_bandwidth) ** 2))
        np.fill_diagonal(values, 0.0)  # outputs of the same prompt are no companions
        similar = ((values @ self.counts) * self.counts).sum(axis=0)
        # Pairs of outputs of different prompts.
        pairs = self.counts.sum(axis=0) ** 2 - (self.counts**2).sum(axis=0)
        # A sample of the prompts stands for all of them.
        possible = self.num_outputs - self.same_prompt
        return np.asarray(possible * similar / pairs)

    def log_excess_of_all(self, log_bandwidth: float) -> float:
        """Logarithm of the companions of all outputs over the number that is allowed."""
        numbers = self.numbers(log_bandwidth)
        allowed = self.share * float(self.num_outputs @ self.same_prompt)
        return math.log(max(float(self.num_outputs @ numbers) / allowed, 1e-300))

    def log_excess_of_alone(self, log_bandwidth: float) -> float:
        """The same for the models with outputs that are alone, over the number that these need."""
        needy = self.wanted_alone > 0
        outputs = self.num_outputs[needy]
        wanted = float(outputs @ self.wanted_alone[needy])
        number = float(outputs @ self.numbers(log_bandwidth)[needy])
        return math.log(max(number / wanted, 1e-300))


@dataclass(frozen=True, eq=False)
class _DistinctRows:
    """The distinct rows of a side, and the distances between them, or between a sample of them.

    Attributes
    ----------
    inverse : ndarray of int
        Which distinct row each row is.
    chosen : ndarray of int
        Which of the distinct rows are looked at.
    squares : ndarray
        Squared distances between these, in the order of `scipy.spatial.distance.pdist`, in units
        of scale^2.
    scale : float
        That unit.
    """

    inverse: np.ndarray
    chosen: np.ndarray
    squares: np.ndarray
    scale: float

    @classmethod
    def of(cls, x: Array, max_rows: int) -> "_DistinctRows":
        first, inverse = distinct_rows(x)
        if first.size < 2:
            return cls(inverse, np.arange(first.size), np.zeros(0), 1.0)
        # Sums in an order that the content decides, not the order of rows: a bandwidth is the same
        # to the bit in whatever order a folder lists its files.
        chosen = np.argsort(content_hashes(x)[first], kind="stable")[:max_rows]
        squares, scale = condensed_squares(x, first[chosen])
        return cls(inverse, chosen, squares, scale)

    @property
    def count(self) -> int:
        """Number of distinct rows that are looked at."""
        return int(self.chosen.size)

    @property
    def counts(self) -> np.ndarray:
        """Number of copies of each distinct row that is looked at."""
        return np.bincount(self.inverse)[self.chosen]

    @property
    def median(self) -> float:
        """The median distance; the root mean square, if most pairs are too close to resolve."""
        return self.scale * math.sqrt(self._median_square)

    @property
    def relative_squares(self) -> np.ndarray:
        """Squared distances in units of the median, whatever the scale of the data."""
        return self.squares / self._median_square

    @cached_property
    def _median_square(self) -> float:
        # The median is 0 where most pairs are closer than their rounding.
        return float(np.median(self.squares) or np.mean(self.squares))

    def counts_by_model(self, models: Sequence[str] | None) -> np.ndarray:
        """Number of outputs of each distinct prompt (rows) and model (columns)."""
        if models is None:
            return np.bincount(self.inverse)[:, None].astype(float)
        # As objects, because NumPy drops null characters at the end of its own texts.
        names, codes = np.unique(np.array(models, dtype=object), return_inverse=True)
        num_prompts = int(self.inverse.max()) + 1
        cells = np.bincount(self.inverse * names.size + codes, minlength=num_prompts * names.size)
        return cells.reshape(num_prompts, names.size).astype(float)


def _positive(name: str, value: object) -> float:
    """A field of a rule as a float, which must be positive and finite."""
    if isinstance(value, int | float | np.number) and 0 < value < math.inf:
        return float(value)
    raise ArgumentError(f"`{name}` must be positive and finite; got {value!r}.")


def _square(condensed: np.ndarray) -> np.ndarray:
    """The full symmetric matrix of condensed distances, with zeros on its diagonal."""
    # Imported at first use, to keep `import divprism` fast.
    from scipy.spatial.distance import squareform

    return np.asarray(squareform(condensed, checks=False))


def _variance_of_rke(
    squares: np.ndarray, masses: np.ndarray, bandwidth: float, num_samples: int
) -> float:
    """Variance of the RKE of independent samples, from squared distances between distinct rows.

    The kernel is squared in RKE, which cancels the 2 of the Gaussian kernel. By the delta method
    Var(1 / mu) = Var(mu) / mu^4.
    """
    m = num_samples
    values = np.exp(squares * (-1 / bandwidth**2))
    np.fill_diagonal(values, 0.0)  # a row and itself are no pair
    # Equal to n where rows do not repeat.
    effective = 1 / float(masses @ masses)
    others = 1 - 1 / effective
    sums = values @ masses
    mean = float(masses @ sums) / others
    np.square(values, out=values)
    of_pairs = max(float(masses @ (values @ masses)) / others - mean**2, 0.0)
    row_means = sums / (1 - masses)
    # Over 1 - 1/n, which makes the variance of the row means unbiased.
    spread = float(masses @ (row_means - mean) ** 2) / others
    # A row mean is over n - 1 other rows, and so varies even where all rows are alike.
    noise = of_pairs * max(effective - 2, 0.0) / (effective - 1) ** 2
    of_rows = max(spread - noise, 0.0)
    # Hoeffding's variance of a U-statistic of pairs.
    variance = (4 * (m - 2) * of_rows + 2 * of_pairs) / (m * (m - 1))
    mu = 1 / m + (1 - 1 / m) * mean
    return (1 - 1 / m) ** 2 * variance / mu**4


def _first_root_from_above(function: Callable[[float], float]) -> float:
    """Where a function of the logarithm of the bandwidth first exceeds zero, from above.

    The end of the range, where it exceeds zero at once or never.
    """
    above = _HIGHEST
    if function(above) > 0:
        return above
    # Step by step: the variance falls again further down, so the ends may bracket no root.
    while above > _LOWEST:
        below = max(above - _STEP, _LOWEST)
        if function(below) > 0:
            return _root(function, below, above)
        above = below
    return _LOWEST


def _root_between(function: Callable[[float], float], low: float, high: float) -> float:
    """The zero of an increasing function, or the end of the range that is nearer to it."""
    if function(low) >= 0:
        return low
    if function(high) <= 0:
        return high
    return _root(function, low, high)


def _root(function: Callable[[float], float], low: float, high: float) -> float:
    """A zero between two points at which the function has different signs."""
    from scipy.optimize import brentq

    return float(brentq(function, low, high, xtol=_ACCURACY))
