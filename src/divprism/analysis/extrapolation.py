"""Where the curve of a score is heading: laws fitted to it, a verdict, and its wording.

Two laws extend the curve beyond n. Both pass through its last point:

    order 2           sum lambda^2 = a + b / m for each of K_X, K_T and their product. This is exact
                      in expectation, because ||K||_F^2 / m^2 is a mean over m units paired with
                      themselves and m (m - 1) pairs of different ones. (Where prompts keep their
                      shares it also holds within each prompt; pairs of others do not depend on m.)
    all other scores  log score = limit - c m^(-rate), with rate in (0, 1]. Rate 1 is the bias of a
                      spectrum of finite rank ((K - 1) / (2 m) for K equal shares, Miller and
                      Madow) and of orders above 2. For a Gaussian kernel theory names no rate
                      (Truncated Vendi, Section 5); a rate near 0 is no sign of convergence.

The power law describes curves; it is not exact. For Gaussian data and a Gaussian kernel, where the
spectrum is known, its limit is up to 25 % too high while vendi still grows by a fifth per doubling,
5 % too high at a tenth per doubling, and below that right to a few percent. `limit_error` covers
about half of this.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeVar

import numpy as np

from divprism.estimators import Entropy
from divprism.scores.score import combine
from divprism.scores.settings import Settings
from divprism.scores.spec import ScoreSpec, available, truncated_name

__all__ = [
    "Curve",
    "EntropiesByKind",
    "Reading",
    "Verdict",
    "curves",
    "figures",
    "noun",
    "summary",
    "undetermined",
    "verdict",
]

_WINDOW = 8  # the power law is fitted to the last three doublings
# A curve of rate 0 has no limit, and no law above has a rate beyond 1.
_RATES = np.arange(5, 101) / 100
# At a rate below this the change per doubling falls by less than an eighth with each doubling.
_SLOWEST = 0.2
_REACH = 100  # times n: a needed number of units beyond this is not reported
_WEAK = 5  # times n: a needed number of units beyond this is called a guess
_FLAT = 0.25  # times the tolerance: a smaller change per doubling counts as none
_CLEARLY = 3.0  # standard errors: a larger change is not noise
_SHOWN_OFF = 1e-4  # a smaller relative distance from the limit is not printed
_SIGHT = math.log(2)  # a limit further from the score than a factor of two is out of sight
_ZERO_SHARE = 1e-9  # of the last sum of squares: a limit below it is rounding, and stands for zero

EntropiesByKind = dict[str, dict[str, Entropy]]
"""Kind of curve ("vendi", "rke" or "truncated") -> operator -> entropy."""

_Cell = TypeVar("_Cell")


class Law(Protocol):
    """The logarithm of a score as a function of the number of units."""

    @property
    def rate(self) -> float:
        """The curve approaches its limit as m^(-rate)."""

    def log_score(self, size: float) -> float:
        """Return the logarithm of the score at `size` units, or in the limit; NaN if undefined."""


@dataclass(frozen=True)
class SquaresLaw:
    """Order 2: sums of squared eigenvalues a + b / m, as (sign, a, b) for each operator."""

    lines: tuple[tuple[int, float, float], ...]
    rate: float = 1.0

    def log_score(self, size: float) -> float:
        """Return the signed sum of the entropies -log(a + b / size)."""
        total = 0.0
        for sign, a, b in self.lines:
            square = a + b / size
            if square <= 0:
                return math.nan
            total += sign * math.log(square)
        return -total


@dataclass(frozen=True)
class PowerLaw:
    """All other orders: limit - factor m^(-rate), through the last point of the curve."""

    last_size: float
    last_log: float
    factor: float
    rate: float

    def log_score(self, size: float) -> float:
        """Return the logarithm of the score at `size` units."""
        gap = self.last_size**-self.rate - size**-self.rate
        return self.last_log + self.factor * gap


@dataclass(frozen=True)
class Reading:
    """How a curve is read: what its units are called, the tolerance, and the truncation."""

    noun: str
    tolerance: float
    truncation: int | None


@dataclass(frozen=True)
class Verdict:
    """Whether a score has converged, and to what.

    Attributes
    ----------
    name : str
        Name of the score.
    status : str
        "converged", "approaching" (a limit is in sight, further away than the tolerance),
        "no limit" (no sign of convergence), or "unclear" (the curve is too noisy, too short or too
        bent).
    value : float
        The score of all data.
    change : float
        Relative change over the last doubling of the sample.
    limit, limit_error : float or None
        The limit of the curve, and how far it moves between repeats and when the fit sees half of
        the sample only. The data are one sample: `sampling_error` comes on top.
    rate : float or None
        The curve approaches its limit as m^(-rate).
    needed : int or None
        Number of units that brings the score within the tolerance of its limit: a size of the
        ladder if it has converged, and extrapolated otherwise. None if there is no limit, or if
        this would be more than a hundred times n.
    sampling_error : float or None
        Relative standard deviation between fresh samples of this size, estimated from subsets that
        share no unit.
    sentence : str
        All of this in words.
    """

    name: str
    status: str
    value: float
    change: float
    limit: float | None = None
    limit_error: float | None = None
    rate: float | None = None
    needed: int | None = None
    sampling_error: float | None = None
    sentence: str = ""


@dataclass(frozen=True, eq=False)
class Curve:
    """A score against size, as arrays of shape (repeats, sizes) or (sizes,).

    Each repeat is a random order of the units, cut into stretches. `scores` are those of the first
    stretch and `means` those of all stretches; `logs` and `squares` are, for each order, means of
    the log score and of the sums of squared eigenvalues (with the signs of their entropies in the
    score). A truncated score equals the plain one up to the size `cut`, where another law begins.
    `chance` is the relative sampling error of the last point.
    """

    name: str
    order: float
    sizes: np.ndarray
    cut: float
    scores: np.ndarray
    means: np.ndarray
    logs: np.ndarray
    squares: list[tuple[int, np.ndarray]]
    chance: float

    def fit(self, repeats: slice | list[int] = slice(None), count: int | None = None) -> Law:
        """Fit the law to the first `count` sizes, averaged over some of the repeats."""
        sizes = self.sizes[:count].astype(float)
        # Start after the cut, at most three doublings before the end, but keep three points. The
        # factor keeps a size that rounding put just below the start.
        start = 0.99 * max(sizes[-1] / _WINDOW, self.cut)
        first = min(int(np.searchsorted(sizes, start)), sizes.size - 3)
        sizes = sizes[first:]
        # A truncated spectrum is no sum over pairs of units, so its squares are no line in 1 / m.
        if self.order == 2 and not self.cut:
            lines = []
            for sign, square in self.squares:
                a, b = _line(square[repeats, first:count].mean(axis=0), sizes)
                lines.append((sign, a, b))
            return SquaresLaw(tuple(lines))
        rates = _RATES
        # The rate of these orders is known; fitting it would only add noise.
        if self.order > 2:
            rates = np.ones(1)
        return _power_law(self.logs[repeats, first:count].mean(axis=0), sizes, rates)


def curves(
    rows: Sequence[Sequence[Sequence[EntropiesByKind]]],
    pairs: np.ndarray,
    sizes: np.ndarray,
    order: float,
    truncation: int | None,
) -> Iterator[Curve]:
    """Yield a curve for each score, from entropies for each repeat, size and stretch."""
    # The truncation counts pairs, and `sizes` count units.
    cut = (truncation or 0) * sizes[-1] / pairs[0, -1]
    kinds = (("vendi", order, 0.0), ("rke", 2.0, 0.0), ("truncated", order, cut))
    solved = rows[0][0][0]
    for kind, kind_order, kind_cut in kinds:
        for spec in available(solved.get(kind, ())):
            # Every kind has the entropies of all operators; a score takes those of its order.
            if (spec.order is not None) != (kind == "rke"):
                continue
            cells = [_entropies_of_kind(row, kind) for row in rows]
            name = spec.name
            if kind_cut:
                name = truncated_name(spec)
            yield _curve(spec, name, kind_order, kind_cut, sizes, cells)


def _entropies_of_kind(
    row: Sequence[Sequence[EntropiesByKind]], kind: str
) -> list[list[dict[str, Entropy]]]:
    """Return the entropies of one kind in a repeat, for each size and stretch."""
    cells = []
    for cell in row:
        cells.append([entropies[kind] for entropies in cell])
    return cells


def _curve(
    spec: ScoreSpec,
    name: str,
    order: float,
    cut: float,
    sizes: np.ndarray,
    cells: list[list[list[dict[str, Entropy]]]],
) -> Curve:
    """Return the curve of one score from its entropies for each repeat, size and stretch."""

    def log_scores(cell: list[dict[str, Entropy]]) -> list[float]:
        return [combine(spec, entropies).estimate.value for entropies in cell]

    def mean_square(operator: str) -> Callable[[list[dict[str, Entropy]]], float]:
        # At order 2 the entropy is -log of the sum of squared eigenvalues.
        def mean(cell: list[dict[str, Entropy]]) -> float:
            squares = [math.exp(-entropies[operator].estimate.value) for entropies in cell]
            return float(np.mean(squares))

        return mean

    logs = [list(map(log_scores, row)) for row in cells]
    # Means of the squares, not of their logarithms: only they are unbiased for m units, and a line
    # in 1 / m without error.
    squares = []
    for operator, sign in spec.terms.items():
        squares.append((sign, _map_cells(mean_square(operator), cells)))
    return Curve(
        name=name,
        order=order,
        sizes=sizes,
        cut=cut,
        # Tables show means of the scores; the power law is fitted to means of logarithms.
        scores=_map_cells(lambda values: math.exp(values[0]), logs),
        means=_map_cells(lambda values: np.mean(list(map(math.exp, values))), logs).mean(axis=0),
        logs=_map_cells(np.mean, logs),
        squares=squares,
        chance=_chance(logs, sizes),
    )


def _map_cells(function: Callable[[_Cell], Any], rows: Sequence[Sequence[_Cell]]) -> np.ndarray:
    """Apply a function to the stretches of each repeat and size, shape (repeats, sizes)."""
    values = np.empty((len(rows), len(rows[0])))
    for repeat, row in enumerate(rows):
        values[repeat] = [function(cell) for cell in row]
    return values


def _chance(logs: Sequence[Sequence[Sequence[float]]], sizes: np.ndarray) -> float:
    """Return the standard deviation between fresh samples as large as the last; NaN if unknown.

    It is read off the stretches of at most half that size, which share no unit: the variance
    falls as one over the size.
    """
    variances = []
    for index, size in enumerate(sizes):
        # Up to half of the units two stretches are disjoint. Below an eighth the scores are too far
        # from those of all data for this law of variances.
        if sizes[-1] / _WINDOW * 0.99 <= size <= sizes[-1] / 2:
            variance = np.mean([np.var(row[index], ddof=1) for row in logs])
            variances.append(variance * size / sizes[-1])
    if not variances:
        return math.nan
    return math.sqrt(np.mean(variances))


def _line(values: np.ndarray, sizes: np.ndarray) -> tuple[float, float]:
    """Return a and b of value = a + b / size, through the last point.

    The variance of m out of n is proportional to 1/m - 1/n, for which least squares is a ratio of
    sums.
    """
    # With gaps g = 1/m - 1/n, differences y and weights 1 / g, least squares gives sum(w g y) /
    # sum(w g^2) = sum(y) / sum(g).
    b = float((values - values[-1]).sum() / (1 / sizes - 1 / sizes[-1]).sum())
    a = float(values[-1] - b / sizes[-1])
    # Zero makes the limit NaN: no two units have anything in common, and the score grows without
    # end. A negative value by rounding would have the same meaning.
    if a <= _ZERO_SHARE * values[-1]:
        a = 0.0
    return a, b


def _power_law(logs: np.ndarray, sizes: np.ndarray, rates: np.ndarray) -> PowerLaw:
    """Fit limit - c size^(-rate) through the last point by weighted least squares.

    The weights are the inverse variances of m out of n, and the rate is the best one of a grid.
    """
    last, end = sizes[-1], float(logs[-1])
    # The last point has no weight: the law passes through it.
    weights = 1 / (1 / sizes[:-1] - 1 / last)
    gaps = end - logs[:-1]
    shapes = sizes[:-1] ** -rates[:, None] - last ** -rates[:, None]
    # At a given rate the law is linear in its factor, so only the rate needs a search.
    factors = (shapes * weights) @ gaps / (shapes**2 @ weights)
    misfits = (gaps - factors[:, None] * shapes) ** 2 @ weights
    # Among equal misfits take the fastest rate: a flat curve fits every rate.
    best = rates.size - 1 - int(np.argmin(misfits[::-1]))
    return PowerLaw(last, end, float(factors[best]), float(rates[best]))


def verdict(curve: Curve, reading: Reading) -> Verdict:
    """Return whether a curve has converged, and to what."""
    tolerance = reading.tolerance
    mean = curve.logs.mean(axis=0)
    law = curve.fit()
    # Logarithms from here on: `limit` and `value` are of the log score.
    limit, value = law.log_score(math.inf), float(mean[-1])
    error = _limit_error(curve, limit)
    earlier, change = _last_changes(curve.sizes, mean)
    sampling_error = None
    if math.isfinite(curve.chance):
        sampling_error = curve.chance
    # Over two doublings: a curve that turns is flat in one of them.
    if max(abs(change), abs(earlier)) <= _FLAT * tolerance:
        status = "converged"
        # A flat curve is at its limit; one fitted further away, or NaN, is an artefact of noise.
        if not abs(math.expm1(value - limit)) <= tolerance:
            limit = value
    else:
        status = _status_of_moving(curve, law, error, change, tolerance)
    result = Verdict(
        name=curve.name,
        status=status,
        value=float(curve.means[-1]),
        change=math.expm1(change),
        sampling_error=sampling_error,
    )
    if status in ("converged", "approaching"):
        limit_error = None
        if math.isfinite(error):
            limit_error = math.exp(limit) * error
        result = replace(
            result,
            limit=math.exp(limit),
            limit_error=limit_error,
            rate=law.rate,
            needed=_needed(law, limit, mean, curve.sizes, tolerance),
        )
    return replace(result, sentence=_sentence(result, curve, reading))


def _last_changes(sizes: np.ndarray, mean: np.ndarray) -> tuple[float, float]:
    """Return the changes of the log score over the last doubling but one, and over the last."""
    total = float(sizes[-1])
    # The sizes of a ladder need not contain these, so the curve is interpolated. In the logarithm
    # of the size a score that grows as a power of it is a straight line.
    points = np.log([total / 4, total / 2, total])
    earlier, change = np.diff(np.interp(points, np.log(sizes), mean)).tolist()
    return earlier, change


def _status_of_moving(curve: Curve, law: Law, error: float, change: float, tolerance: float) -> str:
    """Return the status of a curve that still changes at its end."""
    value, limit = float(curve.logs.mean(axis=0)[-1]), law.log_score(math.inf)
    if math.isnan(limit) or law.rate <= _SLOWEST or abs(limit - value) > _SIGHT:
        # In the last column every repeat is the whole sample, so noise shows one before it.
        noise = float(curve.logs[:, -2].std(ddof=1)) / math.sqrt(curve.logs.shape[0])
        if abs(change) > max(_CLEARLY * noise, tolerance):
            return "no limit"
        return "unclear"
    distance = abs(math.expm1(value - limit))
    # The error is NaN where the fit without one of the repeats has no limit.
    # A limit that is less certain than the distance to it supports no other verdict.
    if math.isnan(error) or error > max(distance, tolerance):
        return "unclear"
    if distance <= tolerance:
        return "converged"
    return "approaching"


def undetermined(curve: Curve) -> Verdict:
    """Return the verdict where subsets lack some prompts: more outputs of them stay unknown."""
    sentence = (
        f"{curve.name} is undetermined: "
        "prompts have too few outputs for subsets with fewer outputs of each."
    )
    return Verdict(curve.name, "unclear", float(curve.means[-1]), 0.0, sentence=sentence)


def _limit_error(curve: Curve, limit: float) -> float:
    """Return how far the limit moves between repeats, and between fits to half of n and to all."""
    repeats = curve.logs.shape[0]
    limits = []
    for left_out in range(repeats):
        others = [repeat for repeat in range(repeats) if repeat != left_out]
        limits.append(curve.fit(others).log_score(math.inf))
    jackknife = math.sqrt((repeats - 1) * float(np.var(limits)))
    # Repeats show the noise of the limit. Only its shift from half of the data to all of them shows
    # that the law itself does not fit.
    count = int(np.searchsorted(curve.sizes, 0.5 * curve.sizes[-1], "right"))
    # With too few points below half of n, the limit may be no better than the last value.
    at_half = float(curve.logs[0, -1])
    if count >= 3:
        at_half = curve.fit(count=count).log_score(math.inf)
    return math.hypot(jackknife, at_half - limit)


def _needed(
    law: Law, limit: float, mean: np.ndarray, sizes: np.ndarray, tolerance: float
) -> int | None:
    """Return the size from which the score stays within the tolerance of its limit.

    It is read off the curve if possible, and extrapolated otherwise.
    """
    is_near = np.abs(np.expm1(mean - limit)) <= tolerance
    if is_near.all():
        return int(sizes[0])
    if is_near[-1]:
        # After the last size outside the tolerance, not from the first one inside: a noisy curve
        # may cross its limit early.
        last_far = np.flatnonzero(~is_near)[-1]
        return int(sizes[last_far + 1])
    # The law need not be monotone, so the last size outside the tolerance counts.
    further = sizes[-1] * np.geomspace(1, _REACH, 400)
    is_far = np.array(
        [abs(math.expm1(law.log_score(size) - limit)) > tolerance for size in further]
    )
    if is_far[-1]:
        return None
    return int(further[np.flatnonzero(is_far)[-1] + 1])


def _sentence(verdict: Verdict, curve: Curve, reading: Reading) -> str:
    """Put a verdict into words."""
    total, unit, name = int(curve.sizes[-1]), reading.noun, verdict.name
    direction = "falls"
    if verdict.change > 0:
        direction = "grows"
    moves = f"it {direction} by {_percent(verdict.change)} when the number of {unit} doubles"
    chance = _chance_in_words(verdict.sampling_error, reading, total)
    if verdict.status == "unclear":
        reason = "the curve is too noisy, too short or too bent to extrapolate"
        return f"{name} is undetermined: at the end {moves}, and {reason}.{chance}"
    if verdict.limit is None:
        steady = f"too steadily to estimate a limit or a sufficient number of {unit}"
        return f"{name} shows no sign of convergence: {moves}, {steady}.{chance}"
    position = _position_in_words(verdict, curve, reading)
    value = figures(verdict.value)
    if verdict.status == "converged":
        enough = ""
        if verdict.needed is not None and verdict.needed < total:
            enough = f"; {verdict.needed:,} {unit} would have been enough"
        return f"{name} has converged: {value} is {position}{enough}.{chance}"
    more = _needed_in_words(verdict, reading, total)
    return f"{name} has not converged: {moves}; {value} is {position}; {more}.{chance}"


def _position_in_words(verdict: Verdict, curve: Curve, reading: Reading) -> str:
    """Return where the score is relative to its limit."""
    assert verdict.limit is not None
    limit = f"the limit of {figures(verdict.limit)}"
    if verdict.limit_error:
        limit += f" (±{verdict.limit_error:.2g})"
    if curve.cut:
        limit += f" at truncation {reading.truncation:,}"
    limit += " that its curve points to"
    distance = verdict.value / verdict.limit - 1
    if abs(distance) < _SHOWN_OFF:
        return f"at {limit}"
    if distance < 0:
        return f"{_percent(distance)} below {limit}"
    return f"{_percent(distance)} above {limit}"


def _needed_in_words(verdict: Verdict, reading: Reading, total: int) -> str:
    """Return how many units bring a score within the tolerance of its limit."""
    unit = reading.noun
    within = f"within {_percent(reading.tolerance)}"
    if verdict.needed is None:
        return (
            f"more than {_REACH * total:,} {unit} would be needed to come {within}, "
            "further than the curve can be extrapolated"
        )
    more = f"about {_rounded(verdict.needed):,} {unit} would bring it {within}"
    # At rate 1 the law is known; other rates are fitted, and fade with the distance.
    if verdict.rate != 1 and verdict.needed > _WEAK * total:
        more += ", a guess at this distance"
    return more


def _chance_in_words(error: float | None, reading: Reading, total: int) -> str:
    if error is None:
        return ""
    tolerance = reading.tolerance
    sentence = f" By chance it varies by {_percent(error)} between samples of this size"
    if error > tolerance:
        # The sampling error falls with the root of the size.
        enough = _rounded(math.ceil(total * (error / tolerance) ** 2))
        sentence += f" ({_percent(tolerance)} with about {enough:,} {reading.noun})"
    return sentence + "."


def summary(verdicts: Mapping[str, Verdict], reading: Reading, total: int) -> str:
    """Return a sentence that lists for which scores the sample is large enough."""
    groups: dict[str, list[str]] = {"suffice for": [], "do not suffice for": [], "leave open": []}
    kinds = {"converged": "suffice for", "unclear": "leave open"}
    for name, verdict in verdicts.items():
        groups[kinds.get(verdict.status, "do not suffice for")].append(name)
    parts = [f"{verb} {', '.join(names)}" for verb, names in groups.items() if names]
    within = f"To within {_percent(reading.tolerance)}"
    return f"{within}, {total:,} {reading.noun} {'; they '.join(parts)}."


def noun(settings: Settings) -> str:
    """Return what the units of a curve are called."""
    if settings.unit == "prompt":
        return "prompts"
    if settings.kernel_t is None:
        return "outputs"
    return "pairs"


def _percent(share: float) -> str:
    percent = 100 * abs(share)
    if percent < 0.01:
        return "less than 0.01 %"
    if percent < 10:
        return f"{percent:.2g} %"
    return f"{percent:,.0f} %"


def figures(value: float) -> str:
    """Return a number with four significant figures.

    >>> figures(3.14159), figures(12345.6)
    ('3.142', '12,346')
    """
    if value >= 1000:
        return f"{value:,.0f}"
    return f"{value:.4g}"


def _rounded(count: int) -> int:
    """Return an estimated count with two significant figures, as exact as it can be."""
    return int(round(count, 2 - len(str(count))))
