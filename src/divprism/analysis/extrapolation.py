"""Where the curve of a score is heading: the laws fitted to it (verdicts: `analysis/verdicts.py`).

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
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import numpy as np

from divprism.estimators import Entropy
from divprism.scores.score import combine
from divprism.scores.spec import ScoreSpec, available, truncated_name

__all__ = ["WINDOW", "Curve", "EntropiesByKind", "Law", "curves"]

WINDOW = 8
"""The power law is fitted to the last three doublings: sizes from n / 8 on."""

# A curve of rate 0 has no limit, and no law above has a rate beyond 1.
_RATES = np.arange(5, 101) / 100
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
        start = 0.99 * max(sizes[-1] / WINDOW, self.cut)
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
        if sizes[-1] / WINDOW * 0.99 <= size <= sizes[-1] / 2:
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
