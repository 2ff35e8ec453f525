"""Scores against the bandwidth of either side: what a choice of bandwidth does, before one trusts it."""

import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from divprism.core.arrays import distinct_rows, to_numpy
from divprism.core.distances import condensed_squares
from divprism.core.entropy import matrix_entropy
from divprism.core.validation import (
    check_order,
    check_pairing,
    check_seed,
    check_truncation,
    clean_rows,
)
from divprism.errors import ArgumentError
from divprism.estimators.base import whole_number
from divprism.scores import registry
from divprism.scores.bandwidth import BandwidthRule, MedianDistance, StableScore

__all__ = ["BandwidthSweep", "SideSweep", "bandwidth_sweep"]

_STEPS, _DOWN, _UP = (
    4,
    3,
    2,
)  # bandwidths per doubling, and doublings below and above the median distance
_FAR = (
    1e100  # a scale of so many bandwidths, whose square is finite: all that is not equal is apart
)


@dataclass(frozen=True, eq=False)
class SideSweep:
    """Scores over bandwidths of one side, that of the other one fixed.

    Attributes
    ----------
    bandwidths : ndarray, shape (m,)
        Of this side, rising.
    scores : dict of ndarray, shape (m,)
        vendi; with prompts conditional_vendi, information_vendi, and `prompts`, the effective number of prompts.
    chosen, median : float
        What the rule takes, and the median distance.
    """

    bandwidths: np.ndarray
    scores: dict[str, np.ndarray]
    chosen: float
    median: float


@dataclass(frozen=True, eq=False)
class BandwidthSweep:
    """Scores against the bandwidth of outputs, and against that of prompts.

    Attributes
    ----------
    x : SideSweep
        Over bandwidths of outputs.
    t : SideSweep or None
        Over bandwidths of prompts.
    n : int
        Pairs that were used.
    drawn_from : int
        Pairs that there were; those used are a seeded draw of them.
    order, truncation, rule, rng, max_rows
        As given.
    """

    x: SideSweep
    t: SideSweep | None
    n: int
    drawn_from: int
    order: float
    truncation: int | None
    rule: BandwidthRule
    rng: int
    max_rows: int = 1000

    def plot(self, axes: Any = None) -> tuple[Any, Any]:
        """Draw the scores against the bandwidth of outputs, and of prompts: a panel each.

        Parameters
        ----------
        axes : one matplotlib Axes for each side that was swept, optional
            Where to draw; default a new figure.

        Returns
        -------
        (Figure, ndarray of Axes)
        """
        from divprism.report.plots import draw_sweep, new_panels

        figure, axes = new_panels(axes, 1 if self.t is None else 2)
        draw_sweep(axes, self.to_dict())
        return figure, axes

    def to_dict(self) -> dict[str, Any]:
        """Plain values only, every number finite; under `settings` what gives this sweep again."""
        named = type(self.rule) in registry.BANDWIDTH_RULES.values()
        settings = {
            "bandwidth_rule": self.rule if named else None,
            "order": self.order,
            "truncation": self.truncation,
            "rng": self.rng,
            "max_rows": self.max_rows,
            "bandwidths_x": self.x.bandwidths.tolist(),
            "bandwidths_t": None if self.t is None else self.t.bandwidths.tolist(),
        }
        sides = {
            name: None
            if side is None
            else asdict(side)
            | {
                "bandwidths": side.bandwidths.tolist(),
                "scores": {score: values.tolist() for score, values in side.scores.items()},
            }
            for name, side in (("x", self.x), ("t", self.t))
        }
        return sides | {
            "n": self.n,
            "drawn_from": self.drawn_from,
            "order": "inf" if math.isinf(self.order) else self.order,
            "truncation": self.truncation,
            "rng": self.rng,
            "settings": registry.spell_settings(settings),
        }


def bandwidth_sweep(
    x: Any,
    t: Any = None,
    *,
    bandwidths_x: Any = None,
    bandwidths_t: Any = None,
    bandwidth_rule: BandwidthRule | None = None,
    order: float = 1.0,
    truncation: int | None = None,
    max_rows: int = 1000,
    rng: Any = 0,
) -> BandwidthSweep:
    """Vendi, Conditional and Information over a range of bandwidths, first of the outputs, then of the prompts.

    Distances are computed once and serve all bandwidths; while one side moves, the other one keeps what the rule chose. The
    scores at small bandwidths tend to the number of distinct outputs, at large ones to 1; between the two lies what can be
    told. Where Conditional is near 1 for every bandwidth of the outputs, that of the prompts is too small: each prompt is a
    group of its own. O(m n^3) for m bandwidths.

    Parameters
    ----------
    x : array (n, d)
        A row per output.
    t : array (n, d_t), optional
        A row per prompt.
    bandwidths_x, bandwidths_t : collection of positive numbers, optional
        Default: 21 values from an eighth of the median distance to four times.
    bandwidth_rule : BandwidthRule, optional
        As in `evaluate`.
    order, truncation, rng
        As in `evaluate`.
    max_rows : int, optional
        Of more pairs a seeded draw of so many is used.

    Examples
    --------
    >>> import numpy as np, divprism as dp
    >>> sweep = dp.bandwidth_sweep(np.repeat(np.eye(3), 4, axis=0), bandwidths_x=[0.01, 100.0])
    >>> sweep.x.scores["vendi"].round(3)
    array([3.   , 1.001])
    """
    order, truncation, seed = check_order(order), check_truncation(truncation), check_seed(rng)
    rule = StableScore() if bandwidth_rule is None else bandwidth_rule
    if not isinstance(rule, BandwidthRule):
        raise ArgumentError(
            f"`bandwidth_rule` must be an object such as dp.StableScore(); got {rule!r}."
        )
    max_rows = whole_number(max_rows, "max_rows", 2)
    if t is None and bandwidths_t is not None:
        raise ArgumentError("`bandwidths_t` was given, but no prompts `t`.")
    data = {"x": clean_rows(x, "x")} | ({} if t is None else {"t": clean_rows(t, "t")})
    count = int(data["x"].shape[0])
    chosen = {name: rule.bandwidth(rows, rng=seed, name=name) for name, rows in data.items()}
    kept = np.arange(count)
    if count > max_rows:
        kept = np.sort(np.random.default_rng(seed).choice(count, max_rows, replace=False))
    sides = {}
    for name, rows in data.items():
        check_pairing(count, int(rows.shape[0]), name)
        sides[name] = _Side.of(to_numpy(rows)[kept])
    grids = {"x": bandwidths_x, "t": bandwidths_t}
    swept = {}
    for name in sides:
        median = MedianDistance().bandwidth(data[name], rng=seed, name=name)
        grid = _grid(grids[name], median, name)
        fixed = {other: chosen[other] for other in sides if other != name}
        points = [
            _scores(sides, {**fixed, name: float(width)}, order, truncation) for width in grid
        ]
        swept[name] = SideSweep(
            grid,
            {score: np.array([point[score] for point in points]) for score in points[0]},
            chosen[name],
            median,
        )
    return BandwidthSweep(
        swept["x"], swept.get("t"), kept.size, count, order, truncation, rule, seed, max_rows
    )


def _grid(given: Any, median: float, name: str) -> np.ndarray:
    if given is None:
        return median * 2.0 ** (np.arange(-_DOWN * _STEPS, _UP * _STEPS + 1) / _STEPS)
    try:
        grid = np.sort(np.asarray(given, dtype=float).reshape(-1))
    except (TypeError, ValueError):
        grid = np.empty(0)
    if grid.size == 0 or not np.isfinite(grid).all() or grid[0] <= 0:
        raise ArgumentError(f"`bandwidths_{name}` must be positive and finite; got {given!r}.")
    return grid


@dataclass(frozen=True, eq=False)
class _Side:
    """Squared distances between the distinct rows of one side, in units of a squared scale, and which row each pair has."""

    squares: np.ndarray
    scale: float
    index: np.ndarray
    masses: np.ndarray

    @classmethod
    def of(cls, rows: np.ndarray) -> "_Side":
        from scipy.spatial.distance import squareform

        first, index = distinct_rows(rows)
        masses = np.bincount(index, minlength=first.size) / index.size
        if first.size == 1:
            return cls(np.zeros((1, 1)), 1.0, index, masses)
        squares, scale = condensed_squares(rows, first)
        return cls(squareform(squares), scale, index, masses)

    def kernel(self, bandwidth: float) -> np.ndarray:
        return np.exp(-0.5 * min(self.scale / bandwidth, _FAR) ** 2 * self.squares)


def _scores(
    sides: dict[str, _Side], bandwidths: dict[str, float], order: float, truncation: int | None
) -> dict[str, float]:
    kernels = {name: side.kernel(bandwidths[name]) for name, side in sides.items()}
    found = {
        name: matrix_entropy(kernels[name], sides[name].masses, order, truncation) for name in sides
    }
    if "t" not in sides:
        return {"vendi": math.exp(found["x"])}
    pairs, masses = _pairs(sides)
    product = kernels["x"][np.ix_(pairs[0], pairs[0])] * kernels["t"][np.ix_(pairs[1], pairs[1])]
    joint = matrix_entropy(product, masses, order, truncation)
    return {
        "vendi": math.exp(found["x"]),
        "conditional_vendi": math.exp(joint - found["t"]),
        "information_vendi": math.exp(found["x"] + found["t"] - joint),
        "prompts": math.exp(found["t"]),
    }


def _pairs(sides: dict[str, _Side]) -> tuple[np.ndarray, np.ndarray]:
    """Distinct pairs of an output and a prompt, and their masses."""
    found, counts = np.unique(
        np.stack([sides["x"].index, sides["t"].index]), axis=1, return_counts=True
    )
    return found, counts / counts.sum()
