"""Scores against the bandwidth of either side: what a choice of bandwidth does, before one trusts it."""

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from divprism.analysis.inputs import as_samples, describe_source, embed_samples
from divprism.core.arrays import distinct_rows, to_numpy
from divprism.core.distances import condensed_squares
from divprism.core.entropy import matrix_entropy
from divprism.core.validation import check_pairing, clean_rows
from divprism.errors import ArgumentError, Notice
from divprism.estimators.base import whole_number
from divprism.scores.bandwidth import BandwidthRule, MedianDistance
from divprism.scores.settings import EmbeddingOptions, Progress, Settings, read_options
from divprism.scores.spec import available

if TYPE_CHECKING:
    from typing_extensions import Unpack

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
        Every score of the order asked for that needs no more than prompts, by name.
    chosen, median : float
        What the rule takes, and the median distance.
    """

    bandwidths: np.ndarray
    scores: dict[str, np.ndarray]
    chosen: float
    median: float

    def to_dict(self) -> dict[str, Any]:
        """Plain values only."""
        return {
            "bandwidths": self.bandwidths.tolist(),
            "scores": {name: values.tolist() for name, values in self.scores.items()},
            "chosen": self.chosen,
            "median": self.median,
        }


@dataclass(frozen=True, eq=False, repr=False)
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
    settings : Settings
        Order, truncation, bandwidth rule and seed.
    max_rows : int
        Largest number of pairs that is used.
    data, embedders, notes, warnings
        As in `Evaluation`.
    """

    x: SideSweep
    t: SideSweep | None
    n: int
    drawn_from: int
    settings: Settings
    max_rows: int = 1000
    data: dict[str, Any] = field(default_factory=dict)
    embedders: tuple[dict[str, Any], ...] = ()
    notes: tuple[Notice, ...] = ()
    warnings: tuple[Notice, ...] = ()

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
        plain = self.settings.to_dict()
        kept = {name: plain[name] for name in ("bandwidth_rule", "order", "truncation", "rng")}
        kept["max_rows"] = self.max_rows
        kept["bandwidths_x"] = self.x.bandwidths.tolist()
        kept["bandwidths_t"] = None
        sides: dict[str, Any] = {"x": self.x.to_dict(), "t": None}
        if self.t is not None:
            kept["bandwidths_t"] = self.t.bandwidths.tolist()
            sides["t"] = self.t.to_dict()
        return sides | {
            "n": self.n,
            "drawn_from": self.drawn_from,
            "order": plain["order"],
            "truncation": plain["truncation"],
            "rng": plain["rng"],
            "settings": kept,
            "data": self.data,
            "embedders": list(self.embedders),
            "warnings": [notice.to_dict() for notice in self.warnings],
        }

    def __repr__(self) -> str:
        from divprism.report.table import terminal_width
        from divprism.report.tables import sweep_table

        return sweep_table(self.to_dict()).to_text(terminal_width())

    def _repr_html_(self) -> str:
        from divprism.report.tables import sweep_table

        return sweep_table(self.to_dict()).to_html()

    def to_frame(self) -> Any:
        """The scores of every bandwidth as a data frame (pandas or polars)."""
        from divprism.report.tables import sweep_table

        return sweep_table(self.to_dict()).to_frame()


def bandwidth_sweep(
    x: Any,
    t: Any = None,
    *,
    bandwidths_x: Any = None,
    bandwidths_t: Any = None,
    max_rows: int = 1000,
    **options: "Unpack[SweepOptions]",
) -> BandwidthSweep:
    """Vendi, Conditional and Information over a range of bandwidths, first of the outputs, then of the prompts.

    Distances are computed once and serve all bandwidths; while one side moves, the other one keeps what the rule chose. The
    scores at small bandwidths tend to the number of distinct outputs, at large ones to 1; between the two lies what can be
    told. Where Conditional is near 1 for every bandwidth of the outputs, that of the prompts is too small: each prompt is a
    group of its own. O(m n^3) for m bandwidths.

    Parameters
    ----------
    x, t
        Outputs and prompts, as in `evaluate`; of several models, all together.
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
    settings, resources = read_options(options, SweepOptions, "bandwidth_sweep")
    samples = as_samples(x, t, None)
    embedded, settings = embed_samples(samples, settings, resources)
    x, t = embedded.outputs, embedded.prompts
    order, truncation, seed, rule = (
        settings.order,
        settings.truncation,
        settings.rng,
        settings.rule,
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
    settings = replace(settings, bandwidth_rule=rule)
    return BandwidthSweep(
        x=swept["x"],
        t=swept.get("t"),
        n=kept.size,
        drawn_from=count,
        settings=settings,
        max_rows=max_rows,
        data=describe_source(samples),
        embedders=embedded.embedders,
        notes=embedded.notes,
        warnings=embedded.warnings,
    )


class SweepOptions(EmbeddingOptions, total=False):
    """Keywords of `bandwidth_sweep` that are settings."""

    settings: Settings | None
    bandwidth_rule: BandwidthRule | None
    order: float
    truncation: int | None
    rng: Any
    progress: Progress | None


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
    entropies = {
        name: matrix_entropy(kernels[name], sides[name].masses, order, truncation) for name in sides
    }
    if "t" in sides:
        pairs, masses = _pairs(sides)
        of_x = kernels["x"][np.ix_(pairs[0], pairs[0])]
        of_t = kernels["t"][np.ix_(pairs[1], pairs[1])]
        entropies["joint"] = matrix_entropy(of_x * of_t, masses, order, truncation)
    scores = {}
    for spec in available(entropies):
        # Scores of a fixed order are left out: the sweep is at the order asked for.
        if spec.order is None:
            log = sum(sign * entropies[name] for name, sign in spec.terms.items())
            scores[spec.name] = math.exp(log)
    return scores


def _pairs(sides: dict[str, _Side]) -> tuple[np.ndarray, np.ndarray]:
    """Distinct pairs of an output and a prompt, and their masses."""
    found, counts = np.unique(
        np.stack([sides["x"].index, sides["t"].index]), axis=1, return_counts=True
    )
    return found, counts / counts.sum()
