"""Where the curve of a score is heading: laws fitted to it, what they say, and that in words.

Two laws carry the curve beyond n, both through its last point:

    order 2           sum lambda^2 = a + b / m for each of K_X, K_T and their product: exact in expectation, because
                      ||K||_F^2 / m^2 is a mean over m units met with themselves and m (m - 1) pairs of different ones. (Under
                      prompts that keep their shares, so is the part of each prompt; pairs of others do not depend on m.)
    all other scores  log score = limit - c m^(-rate), with rate in (0, 1]. Rate 1 is the bias of a spectrum of finite rank
                      (of K equal shares (K - 1) / (2 m), Miller and Madow) and of orders above 2. For a Gaussian kernel
                      theory names no rate (Truncated Vendi, Section 5); near 0 it is read as no sign of convergence.

The power law is a description, not the truth. Where the spectrum is known (Gaussian data, Gaussian kernel) and vendi still
grows by a fifth per doubling, its limit comes out up to 25 % too high; at a tenth per doubling 5 %, below it is right to a few
percent. `limit_error` tells about half of that.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from divprism.estimators import Entropy
from divprism.scores.score import combine
from divprism.scores.settings import Settings
from divprism.scores.spec import available, truncated_name

__all__ = [
    "Curve",
    "Found",
    "Reading",
    "Verdict",
    "curves",
    "figures",
    "noun",
    "summary",
    "unreadable",
    "verdict",
]

_WINDOW = 8  # the power law is fitted to the last three doublings
_RATES = np.arange(5, 101) / 100
_SLOWEST = 0.2  # rate below which a change per doubling falls by less than an eighth from one doubling to the next
_REACH = 100  # times n: further than that no needed number is told
_WEAK = 5  # times n: further than that a needed number is called a guess
_FLAT = 0.25  # of the tolerance: a change per doubling below it counts as none
_CLEARLY = 3.0  # standard errors: a change above that is not noise
_SHOWN_OFF = 1e-4  # a smaller distance from the limit is not worth a number
_SIGHT = math.log(2)  # a limit further from the score than a factor of two is out of sight
_NOTHING = 1e-9  # of a sum of powers: a limit below it is rounding, and stands for zero

Law = Callable[
    [float], float
]  # number of units, infinity included -> log score; NaN where there is none
Found = dict[str, dict[str, Entropy]]  # "vendi", "rke" or "truncated" -> operator -> entropy


@dataclass(frozen=True)
class Reading:
    """How a curve is read: what its units are called, the tolerance, and the truncation."""

    noun: str
    tolerance: float
    truncation: int | None


@dataclass(frozen=True)
class Verdict:
    """What a curve says about one score.

    Attributes
    ----------
    name : str
        Of the score.
    status : str
        "converged", "approaching" (a limit is in sight, and further away than the tolerance), "no limit" (no sign of
        convergence), or "unclear" (the curve is too noisy, too short or too bent to tell).
    value : float
        The score of all data.
    change : float
        Relative change over the last doubling of the sample.
    limit, limit_error : float or None
        Where the curve points to, and how far that moves between repeats and when the fit knows half of the sample only. The
        data are one draw: `sampling_error` comes on top.
    rate : float or None
        The curve nears its limit as m^(-rate).
    needed : int or None
        Units that bring the score within the tolerance of its limit: a size of the ladder where it has converged, else
        extrapolated; None where that would be more than a hundred times n, or there is no limit.
    sampling_error : float or None
        Relative standard deviation between fresh samples of this size, read off subsets that share no unit.
    sentence : str
        All this in words.
    """

    name: str
    status: str
    value: float
    change: float
    limit: float | None
    limit_error: float | None
    rate: float | None
    needed: int | None
    sampling_error: float | None
    sentence: str = ""


@dataclass(frozen=True, eq=False)
class Curve:
    """A score against size: arrays of shape (repeats, sizes), or (sizes,).

    `scores` are those of the first stretch of each order, `means` those of all; `logs` and `squares` are, for each order, means
    of the log score and of the sums of squared eigenvalues (with the signs that their entropies have in it). A truncated score
    equals the plain one up to the size `cut`, where another law begins. `chance` is the relative error of the last.
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

    def fit(self, rows: Any = slice(None), count: int | None = None) -> tuple[Law, float]:
        """The law of the first `count` sizes in some of the repeats, and its rate."""
        sizes = self.sizes[:count].astype(float)
        first = min(
            int(np.searchsorted(sizes, 0.99 * max(sizes[-1] / _WINDOW, self.cut))), sizes.size - 3
        )
        if self.order != 2 or self.cut:
            rates = np.ones(1) if self.order > 2 else _RATES
            return _power_law(self.logs[rows, first:count].mean(axis=0), sizes[first:], rates)
        lines = [
            (sign, *_line(square[rows, first:count].mean(axis=0), sizes[first:]))
            for sign, square in self.squares
        ]

        def law(size: float) -> float:
            squares = [(sign, a + b / size) for sign, a, b in lines]
            return (
                -sum(sign * math.log(square) for sign, square in squares)
                if all(q > 0 for _, q in squares)
                else math.nan
            )

        return law, 1.0


def curves(
    rows: list[list[list[Found]]],
    pairs: np.ndarray,
    sizes: np.ndarray,
    order: float,
    truncation: int | None,
) -> Iterator[Curve]:
    """A curve for each score, from entropies for each repeat, size and stretch."""
    cut = (truncation or 0) * sizes[-1] / pairs[0, -1]
    for kind, at, start in (("vendi", order, 0.0), ("rke", 2.0, 0.0), ("truncated", order, cut)):
        for spec in available(rows[0][0][0].get(kind, ())):
            if (spec.order is not None) != (kind == "rke"):
                continue
            score, signs = spec.name, spec.terms
            logs = [
                [[combine(spec, one[kind]).estimate.value for one in cell] for cell in row]
                for row in rows
            ]
            squares = [
                [
                    [
                        np.mean([math.exp(-one[kind][part].estimate.value) for one in cell])
                        for cell in row
                    ]
                    for row in rows
                ]
                for part in signs
            ]
            yield Curve(
                name=truncated_name(spec) if start else score,
                order=at,
                sizes=sizes,
                cut=start,
                scores=np.array([[math.exp(cell[0]) for cell in row] for row in logs]),
                means=np.mean(
                    [
                        [np.mean([math.exp(value) for value in cell]) for cell in row]
                        for row in logs
                    ],
                    axis=0,
                ),
                logs=np.array([[np.mean(cell) for cell in row] for row in logs]),
                squares=list(zip(signs.values(), map(np.array, squares), strict=True)),
                chance=_chance(logs, sizes),
            )


def _chance(logs: list[list[list[float]]], sizes: np.ndarray) -> float:
    """Standard deviation of fresh samples as large as the last: of those of at most half its size, which share no unit."""
    places = [
        place
        for place in range(sizes.size)
        if sizes[-1] / _WINDOW * 0.99 <= sizes[place] <= sizes[-1] / 2
    ]
    variances = [
        np.mean([np.var(row[place], ddof=1) for row in logs]) * sizes[place] / sizes[-1]
        for place in places
    ]
    return math.sqrt(np.mean(variances)) if variances else math.nan


def _line(values: np.ndarray, sizes: np.ndarray) -> tuple[float, float]:
    """a and b of value = a + b / size, through the last; the variance of m out of n is as 1/m - 1/n, hence a ratio of sums."""
    b = float((values - values[-1]).sum() / (1 / sizes - 1 / sizes[-1]).sum())
    a = float(values[-1] - b / sizes[-1])
    return (a if a > _NOTHING * values[-1] else 0.0), b


def _power_law(logs: np.ndarray, sizes: np.ndarray, rates: np.ndarray) -> tuple[Law, float]:
    """Least squares for limit - c size^(-rate) through the last point, weights as the variances of m out of n."""
    last, end = sizes[-1], float(logs[-1])
    weights = 1 / (1 / sizes[:-1] - 1 / last)
    shapes = sizes[:-1] ** -rates[:, None] - last ** -rates[:, None]
    factors = (shapes * weights) @ (end - logs[:-1]) / (shapes**2 @ weights)
    misfits = (end - logs[:-1] - factors[:, None] * shapes) ** 2 @ weights
    best = (
        rates.size - 1 - int(np.argmin(misfits[::-1]))
    )  # of equals the fastest: a flat curve has no rate
    c, rate = float(factors[best]), float(rates[best])
    return lambda size: end + c * (last**-rate - size**-rate), rate


def verdict(curve: Curve, reading: Reading) -> Verdict:
    """What a curve says."""
    sizes, mean, total = curve.sizes, curve.logs.mean(axis=0), float(curve.sizes[-1])
    tolerance = reading.tolerance
    law, rate = curve.fit()
    limit, value = law(math.inf), float(mean[-1])
    distance, error = abs(math.expm1(value - limit)), _error(curve, limit)
    ends = np.interp(np.log([total / 4, total / 2, total]), np.log(sizes), mean)
    earlier, change = np.diff(ends).tolist()
    noise = float(curve.logs[:, -2].std(ddof=1)) / math.sqrt(curve.logs.shape[0])
    endless = math.isnan(limit) or rate <= _SLOWEST or abs(limit - value) > _SIGHT
    if max(abs(change), abs(earlier)) <= _FLAT * tolerance:
        status, limit = "converged", limit if distance <= tolerance else value
    elif endless:
        status = "no limit" if abs(change) > max(_CLEARLY * noise, tolerance) else "unclear"
    elif not error <= max(
        distance, tolerance
    ):  # NaN where a fit without one of the repeats has no limit
        status = "unclear"
    else:
        status = "converged" if distance <= tolerance else "approaching"
    seen = status in ("converged", "approaching")
    found = Verdict(
        name=curve.name,
        status=status,
        value=float(curve.means[-1]),
        change=math.expm1(change),
        limit=math.exp(limit) if seen else None,
        limit_error=math.exp(limit) * error if seen and math.isfinite(error) else None,
        rate=rate if seen else None,
        needed=_needed(law, limit, mean, sizes, tolerance) if seen else None,
        sampling_error=curve.chance if math.isfinite(curve.chance) else None,
    )
    return replace(found, sentence=_sentence(found, reading, int(total)))


def unreadable(curve: Curve) -> Verdict:
    """What a curve says whose subsets lack prompts that all data have: nothing of more outputs under the same ones."""
    sentence = f"{curve.name}: cannot be told. Prompts have too few outputs for subsets that have fewer of each."
    return Verdict(
        curve.name, "unclear", float(curve.means[-1]), 0.0, None, None, None, None, None, sentence
    )


def _error(curve: Curve, limit: float) -> float:
    """How far the limit moves between repeats (jackknife), and between fits to half of n and to all of it."""
    repeats = curve.logs.shape[0]
    left = [
        curve.fit([row for row in range(repeats) if row != one])[0](math.inf)
        for one in range(repeats)
    ]
    count = int(np.searchsorted(curve.sizes, 0.5 * curve.sizes[-1], "right"))
    half = (
        curve.fit(count=count)[0](math.inf) if count >= 3 else float(curve.logs[0, -1])
    )  # unchecked: may be nothing to it
    return math.hypot(math.sqrt((repeats - 1) * float(np.var(left))), half - limit)


def _needed(
    law: Law, limit: float, mean: np.ndarray, sizes: np.ndarray, tolerance: float
) -> int | None:
    """The first size from which on the score stays within the tolerance of its limit: seen on the curve, or extrapolated."""
    near = np.abs(np.expm1(mean - limit)) <= tolerance
    if near[-1]:
        return int(sizes[near.size - int(np.argmin(near[::-1])) if not near.all() else 0])
    further = sizes[-1] * np.geomspace(1, _REACH, 400)
    far = np.array([abs(math.expm1(law(size) - limit)) > tolerance for size in further])
    return None if far[-1] else int(further[np.flatnonzero(far)[-1] + 1])


def _sentence(verdict: Verdict, reading: Reading, total: int) -> str:
    unit, name = reading.noun, verdict.name
    way = "grows" if verdict.change > 0 else "falls"
    moves = f"it {way} by {_percent(verdict.change)} when the number of {unit} doubles"
    chance = _chance_in_words(verdict.sampling_error, reading, total)
    if verdict.status == "unclear":
        open_end = "the curve is too noisy, too short or too bent to say where to."
        return f"{name}: cannot be told. At the end {moves}, and {open_end}{chance}"
    if verdict.limit is None:
        steady = f"too steadily for a limit, or a number of {unit}, to be named."
        return f"{name} shows no sign of convergence: {moves}, {steady}{chance}"
    error = f" (+- {verdict.limit_error:.2g})" if verdict.limit_error else ""
    cut = f" at truncation {reading.truncation:,}" if name.startswith("truncated") else ""
    where = f"the limit of {figures(verdict.limit)}{error}{cut} that its curve points to"
    off = verdict.value / verdict.limit - 1
    where = (
        f"{_percent(off)} {'below' if off < 0 else 'above'} {where}"
        if abs(off) >= _SHOWN_OFF
        else where
    )
    if verdict.status == "converged":
        enough = (
            f"; {verdict.needed:,} {unit} would have done"
            if (verdict.needed or total) < total
            else ""
        )
        return f"{name} has converged: {figures(verdict.value)} is {where}{enough}.{chance}"
    within = f"within {_percent(reading.tolerance)}"
    if verdict.needed is None:
        more = f"more than {_REACH * total:,} {unit} would be needed to come {within}, further than a curve can tell."
    else:
        guess = (
            ", a guess at this distance"
            if verdict.rate != 1 and verdict.needed > _WEAK * total
            else ""
        )
        more = f"about {_rounded(verdict.needed):,} {unit} would bring it {within}{guess}."
    return f"{name} has not converged: {moves}; {figures(verdict.value)} is {where}; {more}{chance}"


def _chance_in_words(error: float | None, reading: Reading, total: int) -> str:
    if error is None:
        return ""
    tolerance, unit = reading.tolerance, reading.noun
    enough = _rounded(math.ceil(total * (error / tolerance) ** 2))
    more = f" ({_percent(tolerance)} with about {enough:,} {unit})" if error > tolerance else ""
    return f" By chance it varies by {_percent(error)} between samples of this size{more}."


def summary(verdicts: dict[str, Verdict], reading: Reading, total: int) -> str:
    """What a sample suffices for, in a sentence."""
    groups: dict[str, list[str]] = {"suffice for": [], "do not suffice for": [], "leave open": []}
    kinds = {"converged": "suffice for", "unclear": "leave open"}
    for name, verdict in verdicts.items():
        groups[kinds.get(verdict.status, "do not suffice for")].append(name)
    told = "; they ".join(f"{what} {', '.join(names)}" for what, names in groups.items() if names)
    return f"To within {_percent(reading.tolerance)}, {total:,} {reading.noun} {told}."


def noun(settings: Settings) -> str:
    """What the units of a curve are called."""
    if settings.unit == "prompt":
        return "prompts"
    if settings.kernel_t is None:
        return "outputs"
    return "pairs"


def _percent(share: float) -> str:
    percent = 100 * abs(share)
    return (
        f"{percent:,.0f} %"
        if percent >= 10
        else f"{percent:.2g} %"
        if percent >= 0.01
        else "less than 0.01 %"
    )


def figures(value: float) -> str:
    """A number with four figures."""
    return f"{value:,.0f}" if value >= 1000 else f"{value:.4g}"


def _rounded(count: int) -> int:
    """Two figures: more would claim too much."""
    return int(round(count, 2 - len(str(count))))
