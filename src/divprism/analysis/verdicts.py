"""Verdicts: whether the curve of a score has converged, and to what, in numbers and in words."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from divprism.analysis.extrapolation import Curve, Law
from divprism.scores.settings import Settings

__all__ = ["Criteria", "Verdict", "noun", "summary", "undetermined", "verdict"]

# At a rate below this the change per doubling falls by less than an eighth with each doubling.
_SLOWEST = 0.2
_REACH = 100  # times n: a needed number of units beyond this is not reported
_WEAK = 5  # times n: a needed number of units beyond this is called a guess
_FLAT = 0.25  # times the tolerance: a smaller change per doubling counts as none
_CLEARLY = 3.0  # standard errors: a larger change is not noise
_SHOWN_OFF = 1e-4  # a smaller relative distance from the limit is not printed
_ROUNDING = 1e-9  # relative error of a limit that is none
_SIGHT = math.log(2)  # a limit further from the score than a factor of two is out of sight


@dataclass(frozen=True)
class Criteria:
    """What a curve is judged by: what its units are called, the tolerance, and the truncation."""

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


def verdict(curve: Curve, criteria: Criteria) -> Verdict:
    """Return whether a curve has converged, and to what."""
    tolerance = criteria.tolerance
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
    return replace(result, sentence=_sentence(result, curve, criteria))


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


def _sentence(verdict: Verdict, curve: Curve, criteria: Criteria) -> str:
    """Put a verdict into words."""
    total, unit, name = int(curve.sizes[-1]), criteria.noun, verdict.name
    direction = "falls"
    if verdict.change > 0:
        direction = "grows"
    moves = f"it {direction} by {_percent(verdict.change)} when the number of {unit} doubles"
    chance = _chance_in_words(verdict.sampling_error, criteria, total)
    if verdict.status == "unclear":
        reason = "the curve is too noisy, too short or too bent to extrapolate"
        return f"{name} is undetermined: at the end {moves}, and {reason}.{chance}"
    if verdict.limit is None:
        steady = f"too steadily to estimate a limit or a sufficient number of {unit}"
        return f"{name} shows no sign of convergence: {moves}, {steady}.{chance}"
    position = _position_in_words(verdict, curve, criteria)
    value = _figures(verdict.value)
    if verdict.status == "converged":
        enough = ""
        if verdict.needed is not None and verdict.needed < total:
            enough = f"; {verdict.needed:,} {unit} would have been enough"
        return f"{name} has converged: {value} is {position}{enough}.{chance}"
    more = _needed_in_words(verdict, criteria, total)
    return f"{name} has not converged: {moves}; {value} is {position}; {more}.{chance}"


def _position_in_words(verdict: Verdict, curve: Curve, criteria: Criteria) -> str:
    """Return where the score is relative to its limit."""
    assert verdict.limit is not None
    limit = f"the limit of {_figures(verdict.limit)}"
    # "±2e-14" is rounding, not an error of the limit.
    if verdict.limit_error and verdict.limit_error > _ROUNDING * verdict.limit:
        limit += f" (±{verdict.limit_error:.2g})"
    if curve.cut:
        limit += f" at truncation {criteria.truncation:,}"
    limit += " that its curve points to"
    distance = verdict.value / verdict.limit - 1
    if abs(distance) < _SHOWN_OFF:
        return f"at {limit}"
    if distance < 0:
        return f"{_percent(distance)} below {limit}"
    return f"{_percent(distance)} above {limit}"


def _needed_in_words(verdict: Verdict, criteria: Criteria, total: int) -> str:
    """Return how many units bring a score within the tolerance of its limit."""
    unit = criteria.noun
    within = f"within {_percent(criteria.tolerance)}"
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


def _chance_in_words(error: float | None, criteria: Criteria, total: int) -> str:
    if error is None:
        return ""
    varies, tolerance = _percent(error), _percent(criteria.tolerance)
    if error <= criteria.tolerance:
        return f" By chance it varies by {varies} between samples of this size."
    if varies == tolerance:
        varies = f"slightly more than {tolerance}"
    # The sampling error falls with the root of the size.
    enough = _rounded(math.ceil(total * (error / criteria.tolerance) ** 2))
    return (
        f" By chance it varies by {varies} between samples of this size; about {enough:,} "
        f"{criteria.noun} would bring that down to {tolerance}."
    )


def summary(verdicts: Mapping[str, Verdict], criteria: Criteria, total: int) -> str:
    """Return a sentence that lists for which scores the sample is large enough."""
    verbs = ("suffice for", "do not suffice for", "may or may not suffice for")
    groups: dict[str, list[str]] = {verb: [] for verb in verbs}
    kinds = {"converged": verbs[0], "unclear": verbs[2]}
    for name, verdict in verdicts.items():
        groups[kinds.get(verdict.status, "do not suffice for")].append(name)
    within = f"To within {_percent(criteria.tolerance)}, {total:,} {criteria.noun}"
    # A list of all names would only hide that it is all of them.
    if len(verdicts) > 2 and len(groups["suffice for"]) == len(verdicts):
        return f"{within} suffice for all scores."
    if len(verdicts) > 2 and len(groups["do not suffice for"]) == len(verdicts):
        return f"{within} do not suffice for any of the scores."
    parts = [f"{verb} {', '.join(names)}" for verb, names in groups.items() if names]
    return f"{within} {'; they '.join(parts)}."


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


def _figures(value: float) -> str:
    """Return a number with four significant figures.

    >>> _figures(3.14159), _figures(12345.6)
    ('3.142', '12,346')
    """
    if value >= 1000:
        return f"{value:,.0f}"
    return f"{value:.4g}"


def _rounded(count: int) -> int:
    """Return an estimated count with two significant figures, as exact as it can be."""
    return int(round(count, 2 - len(str(count))))
