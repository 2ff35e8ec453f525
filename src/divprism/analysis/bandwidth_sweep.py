"""Scores against the bandwidth of outputs and prompts: what a choice of bandwidth changes."""

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from divprism.analysis.content_sample import choose_pairs
from divprism.analysis.evaluation import SCHEMA
from divprism.analysis.inputs import (
    as_samples,
    describe_source,
    embed_samples,
    require_model,
    with_truncation,
)
from divprism.core.arrays import Array, content_hashes, distinct_rows, smallest, to_numpy
from divprism.core.distances import condensed_squares
from divprism.core.entropy import matrix_entropy, truncation_of
from divprism.core.kernels import Gaussian
from divprism.core.validation import check_pairing, clean_rows
from divprism.data.samples import Samples
from divprism.errors import ArgumentError, Notice
from divprism.estimators.base import whole_number
from divprism.scores.bandwidth import BandwidthRule, MedianDistance
from divprism.scores.settings import EmbeddingOptions, Progress, Settings, read_options
from divprism.scores.spec import available

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = ["BandwidthSweep", "SideSweep", "bandwidth_sweep"]

# The default grid: bandwidths per doubling, and doublings below and above the median distance.
# This is the range that StableScore searches, so that what it chooses lies within the grid.
_STEPS, _DOWN, _UP = 4, 3, 2

# The largest ratio of distances to bandwidth whose square is finite: beyond it everything that is
# not equal has nothing in common anyway.
_FARTHEST = 1e100


class SweepOptions(EmbeddingOptions, total=False):
    """Keywords of `bandwidth_sweep` that are fields of `Settings` or `Resources`."""

    settings: Settings | None
    bandwidth_rule: BandwidthRule | None
    order: float
    truncation: int | None
    rng: Any
    preset: str | None
    normalize: bool
    normalize_x: bool
    normalize_t: bool
    progress: Progress | bool | None


@dataclass(frozen=True, eq=False)
class SideSweep:
    """Scores over the bandwidths of one side, with the bandwidth of the other side fixed.

    Attributes
    ----------
    bandwidths : ndarray, shape (m,)
        Bandwidths of this side, increasing.
    scores : dict of ndarray, shape (m,)
        By name, every score at the order of the settings that needs no more than prompts.
    chosen, median : float
        The bandwidth that the rule chooses, and the median distance.
    """

    bandwidths: np.ndarray
    scores: dict[str, np.ndarray]
    chosen: float
    median: float

    def to_dict(self) -> dict[str, Any]:
        """The sweep of one side as plain values, every number finite."""
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
        Number of pairs used.
    drawn_from : int
        Number of pairs in the data; those used are chosen by their content.
    settings : Settings
        Order, truncation, bandwidth rule and seed.
    max_rows : int
        Largest number of pairs used.
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
        """Plot the scores against the bandwidth of outputs, and of prompts: a panel each.

        Parameters
        ----------
        axes : sequence of matplotlib Axes, optional
            One for each side. Default: a new figure.

        Returns
        -------
        (Figure, ndarray of Axes)
        """
        from divprism.report.plots import draw_sweep, new_panels

        num_panels = 1
        if self.t is not None:
            num_panels = 2
        figure, axes = new_panels(axes, num_panels)
        draw_sweep(axes, self.to_dict())
        return figure, axes

    def to_dict(self) -> dict[str, Any]:
        """The result document: plain values only; its `settings` reproduce the sweep."""
        plain = self.settings.to_dict()
        names = ("bandwidth_rule", "order", "truncation", "rng")
        scaled = ("preset", "normalize_x", "normalize_t")
        kept = {name: plain[name] for name in (*names, *scaled)}
        kept["max_rows"] = self.max_rows
        # The grid itself, not how it was chosen: the median distance depends on the data.
        kept["bandwidths_x"] = self.x.bandwidths.tolist()
        kept["bandwidths_t"] = None
        sides: dict[str, Any] = {"x": self.x.to_dict(), "t": None}
        if self.t is not None:
            kept["bandwidths_t"] = self.t.bandwidths.tolist()
            sides["t"] = self.t.to_dict()
        return sides | {
            "schema": SCHEMA,
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

        return sweep_table(self.to_dict()).to_text(terminal_width()).rstrip()

    def _repr_html_(self) -> str:
        from divprism.report.tables import sweep_table

        return sweep_table(self.to_dict()).to_html()

    def to_frame(self) -> Any:
        """The scores of every bandwidth as a data frame (pandas or polars)."""
        from divprism.report.tables import sweep_table

        return sweep_table(self.to_dict()).to_frame()


def bandwidth_sweep(
    x: object,
    t: object = None,
    *,
    model: str | None = None,
    bandwidths_x: object = None,
    bandwidths_t: object = None,
    max_rows: int = 1000,
    **options: "Unpack[SweepOptions]",
) -> BandwidthSweep:
    """Scores over a range of bandwidths, first of the outputs, then of the prompts.

    Distances are computed once and serve all bandwidths. While the bandwidth of one side changes,
    the other side keeps the one that the rule chooses. At small bandwidths Vendi tends to the
    number of distinct outputs, at large ones to 1; only the range between carries information.
    Where Conditional is near 1 for every bandwidth of the outputs, the bandwidth of the prompts is
    too small: each prompt is a kind of its own. O(m n^3) for m bandwidths.

    Parameters
    ----------
    x, t
        Outputs and prompts, as in `evaluate`; outputs of several models are pooled.
    model : str, optional
        Whose scores to compute, where `x` holds several models. Default: those of all together.
    bandwidths_x, bandwidths_t : collection of positive numbers, optional
        Default: 21 values from an eighth of the median distance to four times the median distance.
    max_rows : int, optional
        Largest number of pairs used; of more pairs, those of some prompts, chosen by content.
    bandwidth_rule, order, truncation, rng, settings
        As in `evaluate`.
    embedder_x, embedder_t, cache, num_workers, progress
        As in `embed`.

    Returns
    -------
    BandwidthSweep

    Examples
    --------
    >>> import numpy as np, divprism as dp
    >>> sweep = dp.bandwidth_sweep(np.repeat(np.eye(3), 4, axis=0), bandwidths_x=[0.01, 100.0])
    >>> sweep.x.scores["vendi"].round(3)
    array([3.   , 1.001])
    """
    settings, resources = read_options(options, SweepOptions, "bandwidth_sweep")
    max_rows = whole_number(max_rows, "max_rows", 2)
    samples = as_samples(x, t, None)
    if model is not None:
        require_model(samples, model)
    embedded, settings = embed_samples(samples, settings, resources)
    # The rule is recorded even where it is the default: the sweep marks what it chooses.
    settings = replace(settings, bandwidth_rule=settings.rule)
    if embedded.prompts is None and bandwidths_t is not None:
        raise ArgumentError("`bandwidths_t` was given, but no prompts `t`.")
    rows = _paired_rows(embedded.outputs, embedded.prompts)
    # On all rows of all models: these have to be the bandwidths that the scores are computed with.
    chosen = {}
    for name, side in rows.items():
        kernel = settings.kernel(name)
        # Of a preset: other kernels are none of the keywords.
        if settings.preset is not None and isinstance(kernel, Gaussian):
            chosen[name] = kernel.bandwidth
        else:
            chosen[name] = settings.rule.side_bandwidth(name, side, models=embedded.models)
    settings = _with_truncation(embedded, settings, chosen)
    if model is not None:
        embedded = embedded.by_model()[model]
        rows = _paired_rows(embedded.outputs, embedded.prompts)
    count = int(rows["x"].shape[0])
    kept = _kept_rows(rows, max_rows)
    given = {"x": bandwidths_x, "t": bandwidths_t}
    swept = _sweep(rows, kept, given, chosen, settings)
    return BandwidthSweep(
        x=swept["x"],
        t=swept.get("t"),
        n=kept.size,
        drawn_from=count,
        settings=settings,
        max_rows=max_rows,
        data=_described(embedded),
        embedders=embedded.embedders,
        notes=embedded.notes,
        warnings=embedded.warnings,
    )


def _with_truncation(embedded: Samples, settings: Settings, chosen: dict[str, float]) -> Settings:
    """The settings with the truncation that scores at the chosen bandwidths have."""
    kernels: dict[str, Any] = {}
    for name, bandwidth in chosen.items():
        kernels[f"kernel_{name}"] = Gaussian(bandwidth)
    resolved = with_truncation(embedded, replace(settings, **kernels))
    if resolved.truncation is None:
        return settings
    return replace(settings, truncation=resolved.truncation)


def _described(samples: Samples) -> dict[str, Any]:
    """Where the samples come from; of several models their number, because they are pooled."""
    data = describe_source(samples)
    num_models = len(set(samples.models or ()))
    if num_models > 1:
        return data | {"model": None, "num_models": num_models}
    return data


def _paired_rows(x: object, t: object) -> dict[str, Array]:
    """Clean vectors of each side, checked to have the same length."""
    rows = {"x": clean_rows(x, "x")}
    if t is not None:
        rows["t"] = clean_rows(t, "t")
    for name, side in rows.items():
        check_pairing(int(rows["x"].shape[0]), int(side.shape[0]), name)
    return rows


def _kept_rows(rows: dict[str, Array], max_rows: int) -> np.ndarray:
    """At most `max_rows` pairs, chosen by their content: no seed and no order of rows matters.

    Whole prompts, because pairs chosen one by one would hardly have a prompt in common.
    """
    count = int(rows["x"].shape[0])
    if count <= max_rows:
        return np.arange(count)
    of_outputs = content_hashes(rows["x"])
    if "t" not in rows:
        return smallest(of_outputs, max_rows)
    _, prompts = distinct_rows(rows["t"])
    return choose_pairs(prompts, content_hashes(rows["t"]), of_outputs, max_rows)


def _sweep(
    rows: dict[str, Array],
    kept: np.ndarray,
    given: dict[str, Any],
    chosen: dict[str, float],
    settings: Settings,
) -> dict[str, SideSweep]:
    """The sweep of each side, on the rows kept, with the bandwidth chosen for the other side."""
    sides = {name: _Side.of(to_numpy(data)[kept]) for name, data in rows.items()}
    swept = {}
    for name, data in rows.items():
        median = MedianDistance().bandwidth(data, name=name)
        grid = _grid(given[name], median, name)
        points = []
        for bandwidth in grid.tolist():
            points.append(_entropies(sides, chosen | {name: bandwidth}, settings))
        swept[name] = SideSweep(grid, _curves(points), chosen[name], median)
    return swept


def _grid(given: Any, median: float, name: str) -> np.ndarray:
    """The bandwidths given, sorted; by default a geometric grid around the median distance."""
    if given is None:
        return median * 2.0 ** (np.arange(-_DOWN * _STEPS, _UP * _STEPS + 1) / _STEPS)
    try:
        grid = np.sort(np.asarray(given, dtype=float).reshape(-1))
    # No float holds an integer of 400 digits.
    except (TypeError, ValueError, OverflowError):
        # The check below reports an empty grid in the same words as any other invalid one.
        grid = np.empty(0)
    if grid.size == 0 or not np.isfinite(grid).all() or grid[0] <= 0:
        raise ArgumentError(f"`bandwidths_{name}` must be positive and finite; got {given!r:.80}.")
    return grid


@dataclass(frozen=True, eq=False)
class _Side:
    """Distances between the distinct rows of one side, and how often each row occurs.

    `squares` holds the squared distances in units of `scale` squared, so that they neither overflow
    nor vanish; `index` holds the distinct row of each pair.
    """

    squares: np.ndarray
    scale: float
    index: np.ndarray
    masses: np.ndarray

    @classmethod
    def of(cls, rows: np.ndarray) -> "_Side":
        from scipy.spatial.distance import squareform

        first, index = distinct_rows(rows)
        # Merged rows with their frequencies as masses have the nonzero eigenvalues of the matrix of
        # all rows, at the cost of the distinct ones.
        masses = np.bincount(index, minlength=first.size) / index.size
        # There are no distances between equal rows; any scale will do.
        if first.size == 1:
            return cls(np.zeros((1, 1)), 1.0, index, masses)
        squares, scale = condensed_squares(rows, first)
        return cls(squareform(squares), scale, index, masses)

    def kernel(self, bandwidth: float) -> np.ndarray:
        """The Gaussian kernel matrix of the distinct rows."""
        # Without the cap the square would overflow, and infinity times the zero distances on the
        # diagonal is NaN.
        ratio = min(self.scale / bandwidth, _FARTHEST)
        return np.exp(-0.5 * ratio**2 * self.squares)


def _entropies(
    sides: dict[str, _Side], bandwidths: dict[str, float], settings: Settings
) -> dict[str, float]:
    """The entropies of outputs, prompts and pairs at some bandwidths, by operator."""
    order = settings.order
    truncation = truncation_of(settings.truncation, sides["x"].index.size)
    kernels = {name: side.kernel(bandwidths[name]) for name, side in sides.items()}
    entropies = {}
    for name, side in sides.items():
        entropies[name] = matrix_entropy(kernels[name], side.masses, order, truncation)
    if "t" in sides:
        (of_x, of_t), masses = _distinct_pairs(sides)
        # The kernel of a pair is the product of the kernels of its parts. Their indices select
        # rows, because equal outputs may occur under different prompts.
        product = kernels["x"][np.ix_(of_x, of_x)] * kernels["t"][np.ix_(of_t, of_t)]
        entropies["joint"] = matrix_entropy(product, masses, order, truncation)
    return entropies


def _distinct_pairs(sides: dict[str, _Side]) -> tuple[np.ndarray, np.ndarray]:
    """Distinct pairs of an output and a prompt as two rows of indices, and their masses."""
    # Equal pairs are merged with their masses: the entropy is the same, the matrix smaller.
    index = np.stack([sides["x"].index, sides["t"].index])
    pairs, counts = np.unique(index, axis=1, return_counts=True)
    return pairs, counts / counts.sum()


def _curves(points: list[dict[str, float]]) -> dict[str, np.ndarray]:
    """Every score that the entropies allow, at each bandwidth.

    Scores of a fixed order are left out: a sweep is at the order of its settings.
    """
    curves = {}
    for spec in available(points[0]):
        if spec.order is None:
            logs = [spec.log_value(entropies) for entropies in points]
            curves[spec.name] = np.array([math.exp(log) for log in logs])
    return curves
