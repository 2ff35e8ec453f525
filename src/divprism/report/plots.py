"""Plots by matplotlib: each function draws plain values, or a result document, on given axes."""

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from divprism.analysis.comparison import Comparison
from divprism.analysis.evaluation import Evaluation
from divprism.data.wording import SIDES
from divprism.errors import ArgumentError
from divprism.report.documents import Document
from divprism.report.scales import Scale
from divprism.report.style import INK, PAPER, family_color, styled
from divprism.report.texts import distinct_names, ranked, significant
from divprism.scores.score import Score
from divprism.scores.spec import SCORES, ScoreSpec, curve_spec, score_spec

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.patches import Patch
    from matplotlib.ticker import Locator
    from numpy.typing import ArrayLike

__all__ = [
    "curve_families",
    "draw_convergence",
    "draw_factors",
    "draw_ranking",
    "draw_spectra",
    "draw_sweep",
    "draw_values",
    "new_axes",
    "new_panels",
    "plot_comparison",
    "plot_evaluation",
    "plot_score",
    "rank_curve",
]

_WIDTH, _HEIGHT, _PANEL_WIDTH = 6.4, 3.6, 4.2  # inches
# Of DejaVu Sans, which matplotlib brings along; most other fonts are narrower.
_LETTER_WIDTH = 0.62  # of a lower-case letter, in units of the font size
_FONT_SIZE = 10  # points
_MOST_TICKS = 6  # of a log axis
_FEW_POINTS = 60  # eigenvalues up to which each one gets a marker
_COUNT_LABEL = "distinct outputs"
_SPECTRA = {
    "x": ("outputs", "vendi"),
    "joint": ("pairs", "conditional"),
    "t": ("prompts", "prompts"),
}
_CURVE_FAMILIES = ("vendi", "conditional", "information")


def new_axes(ax: object = None, height: float = _HEIGHT) -> tuple[Any, Any]:
    """Return a figure and its axes: the axes given, or new ones."""
    if ax is None:
        figure, panels = new_panels(None, 1, height)
    else:
        figure, panels = new_panels([ax], 1, height)
    return figure, panels[0]


def new_panels(axes: object, count: int, height: float = _HEIGHT) -> tuple[Any, np.ndarray]:
    """Return a figure and an array of `count` axes side by side: those given, or new ones."""
    with styled():
        # After `styled`, which reports a missing matplotlib in one sentence.
        from matplotlib import pyplot

        if axes is None:
            width = _WIDTH
            if count > 1:
                width = _PANEL_WIDTH * count
            # Without a layout, labels of neighbouring panels overlap, and the outer ones are cut.
            figure, grid = pyplot.subplots(
                1, count, figsize=(width, height), layout="constrained", squeeze=False
            )
            return figure, grid[0]
    panels = np.asarray(axes, dtype=object).reshape(-1)
    _check_panels(panels, count)
    return panels[0].figure, panels


def _check_panels(panels: np.ndarray, count: int) -> None:
    from matplotlib.axes import Axes

    argument, requirement = "axes", f"{count} matplotlib Axes"
    if count == 1:
        argument, requirement = "ax", "matplotlib Axes"
    for panel in panels:
        if not isinstance(panel, Axes):
            given = type(panel).__name__
            raise ArgumentError(f"`{argument}` must be {requirement}; got {given}.")
    if panels.size != count:
        raise ArgumentError(f"`{argument}` must be {requirement}; got {panels.size}.")


def _label_log_axis(axis: "Axis") -> None:
    """Label a log axis with plain numbers such as 2, 5 and 10, and draw no minor ticks."""
    from matplotlib.ticker import NullLocator, StrMethodFormatter

    # Called after drawing: the ticks depend on the range that the data have taken.
    ends = np.log10(axis.get_view_interval())
    axis.set_major_locator(_log_locator(float(np.ptp(ends))))
    # LogFormatter would round 0.25 to "2e-01".
    axis.set_major_formatter(StrMethodFormatter("{x:,.6g}"))
    # Minor ticks would take most of the time of drawing a page.
    axis.set_minor_locator(NullLocator())


def _log_locator(num_decades: float) -> "Locator":
    """Return a locator with at least two ticks on a log axis of this length."""
    from matplotlib.ticker import LogLocator, MaxNLocator

    if num_decades >= 2:
        return LogLocator(subs=(1.0,), numticks=_MOST_TICKS)
    # A range of factor 5 holds two of 1, 2, 5, 10, ...; a shorter one is nearly linear.
    if num_decades >= math.log10(5):
        return LogLocator(subs=(1.0, 2.0, 5.0), numticks=_MOST_TICKS)
    return MaxNLocator(_MOST_TICKS - 2, steps=[1, 2, 5, 10])


def rank_curve(values: "ArrayLike", weights: "ArrayLike") -> tuple[np.ndarray, np.ndarray]:
    """Return strictly increasing ranks from 1, and the eigenvalue at each.

    `weights` are the multiplicities of `values`. Those of a quadrature are fractional, and some
    are negative: a value that does not raise the rank reached so far is left out.

    >>> [side.tolist() for side in rank_curve([0.5, 0.4, 0.3, 0.2], [0.5, 2, -1, 3])]
    [[1.0, 2.5, 4.5], [0.5, 0.4, 0.2]]
    """
    counts = np.cumsum(np.asarray(weights, dtype=float))
    # The first weight of a quadrature may be below 1, and the axis starts at rank 1.
    reached = np.maximum.accumulate(np.maximum(counts, 1.0))
    is_higher = np.diff(reached, prepend=0.0) > 0
    return reached[is_higher], np.asarray(values, dtype=float)[is_higher]


def draw_spectra(
    ax: "Axes",
    spectra: "Mapping[str, tuple[ArrayLike, ArrayLike]]",
    scale: Scale | None = None,
) -> None:
    """Draw eigenvalues by rank on log axes.

    `spectra` holds, for each operator, the eigenvalues and their multiplicities. `scale` holds the
    ranges of the axes; by default those of the data.
    """
    with styled():
        last = 2.0  # a log axis from rank 1 to rank 1 would have no length
        for operator, (title, family) in _SPECTRA.items():
            if operator not in spectra:
                continue
            ranks, values = rank_curve(*spectra[operator])
            last = max(last, float(ranks[-1]))
            # A spectrum of a single eigenvalue is no line, and would be invisible without a marker.
            marker = ""
            if values.size < _FEW_POINTS:
                marker = "."
            color = family_color(family)
            ax.plot(ranks, values, color=color, label=title, marker=marker, markersize=3)
        ax.set(xscale="log", yscale="log", xlabel="rank", ylabel="eigenvalue (share of all)")
        ax.set_xlim(1, 1.1 * last)
        _apply(scale, ax)
        _finish_log_plot(ax)


def _apply(scale: Scale | None, ax: "Axes") -> None:
    """Set the ranges of both axes, so that plots of several models can be compared."""
    # Before the ticks, which depend on the range.
    if scale is not None:
        ax.set(xlim=scale.x, ylim=scale.y)


def _finish_log_plot(ax: "Axes", **legend: Any) -> None:
    _label_log_axis(ax.xaxis)
    _label_log_axis(ax.yaxis)
    # matplotlib warns about a legend without entries.
    if ax.get_legend_handles_labels()[0]:
        ax.legend(**legend)


def _name_lines(ax: "Axes", names: Sequence[str], numbers: Sequence[str]) -> None:
    """Write a line of text above each bar: its name on the left, its numbers on the right.

    Both stay inside the plot, however long the name is.
    """
    # A constrained layout has not placed a lone plot yet; it will fill most of the figure.
    width = 0.92 * ax.figure.bbox.width / ax.figure.dpi
    if ax.figure.get_layout_engine() is None or len(ax.figure.axes) > 1:
        width = ax.get_window_extent().width / ax.figure.dpi
    num_letters = width * 72 / (_LETTER_WIDTH * _FONT_SIZE)
    room = max(8.0, num_letters - max(map(len, numbers)) - 1)
    # A lone evaluation without a name gets no "(no name)".
    shown = [""]
    if len(names) > 1 or any(names):
        shown = distinct_names(names, room)
    # Not tick labels: the layout would give long names all the room, and none to the bars.
    style: dict[str, Any] = {
        "xycoords": ("axes fraction", "data"),
        "textcoords": "offset points",
        "va": "center",
    }
    for index, (name, text) in enumerate(zip(shown, numbers, strict=True)):
        ax.annotate(name, (0, index - 0.36), xytext=(4, 0), ha="left", **style)
        ax.annotate(text, (1, index - 0.36), xytext=(-2, 0), ha="right", **style)
    ax.set_yticks([])
    # Downwards, so that the first is on top, with room for the line of text above its bar.
    ax.set_ylim(len(names) - 0.6, -0.7)


def plot_score(score: Score, ax: "Axes | None" = None) -> tuple[Any, Any]:
    """Plot the spectra of a score on log axes; without spectra, its value with its error."""
    figure, ax = new_axes(ax)
    if score.spectra:
        spectra = {}
        for name, spectrum in score.spectra.items():
            spectra[name] = (spectrum.values, spectrum.weights)
        draw_spectra(ax, spectra)
    else:
        low, high = score.value - score.standard_error, score.value + score.standard_error
        draw_values(ax, {score.name: (score.value, low, high)})
    # The value stays on the first line, the settings in brackets go to the second.
    ax.set_title(str(score).replace(" (", "\n(", 1), fontsize="medium")
    return figure, ax


def plot_evaluation(evaluation: Evaluation, ax: "Axes | None" = None) -> tuple[Any, Any]:
    """Plot how vendi splits into conditional and information; without prompts, the spectrum."""
    if evaluation.conditional_vendi is None:
        return plot_score(evaluation.scores["vendi"], ax)
    figure, ax = new_axes(ax, height=1.8)
    draw_factors(ax, {evaluation.model: evaluation.to_dict()})
    return figure, ax


def plot_comparison(comparison: Comparison, ax: "Axes | None" = None) -> tuple[Any, Any]:
    """Plot the score of each model with its interval, the best on top."""
    figure, ax = new_axes(ax, height=1.2 + 0.32 * len(comparison.results))
    draw_ranking(ax, comparison.to_dict())
    return figure, ax


def draw_values(
    ax: "Axes",
    values: Mapping[str, tuple[float, float, float]],
    spec: ScoreSpec | None = None,
) -> None:
    """Draw scores with the low and the high end of their error, the first on top.

    The names are those of scores, or with `spec` those of models with this score.
    """
    with styled():
        label = _COUNT_LABEL
        if spec is not None:
            label = _label_of(spec)
        for index, (name, (value, low, high)) in enumerate(values.items()):
            score = name
            if spec is not None:
                score = spec.name
            _draw_interval(ax, score, index, value, low, high)
        _name_lines(ax, list(values), [significant(value) for value, _, _ in values.values()])
        ax.grid(visible=False, axis="y")
        ax.set_xlabel(label)


def _label_of(spec: ScoreSpec) -> str:
    """Return what the axis of a score counts, and its name."""
    return f"{spec.meaning} ({spec.title})"


def _reach(value: float, low: float, high: float) -> list[list[float]]:
    """Return the distances to both ends as `errorbar` wants them.

    An interval need not contain its score, which is biased in small samples.
    """
    return [[max(0.0, value - low)], [max(0.0, high - value)]]


def _draw_interval(
    ax: "Axes", score: str, index: int, value: float, low: float, high: float
) -> None:
    """Draw a dot with its interval, in the colour of the score."""
    color = family_color(score_spec(score).family)
    ax.errorbar(value, index, xerr=_reach(value, low, high), fmt="o", color=color, capsize=3)


def draw_factors(ax: "Axes", documents: Mapping[str, Document]) -> None:
    """Draw vendi as conditional times information, a bar for each model.

    The axis is logarithmic, so the lengths of the two parts multiply.
    """
    with styled():
        numbers = []
        highest = 1.5  # so that the axis has a length where all scores are 1
        for index, document in enumerate(documents.values()):
            scores = document["scores"]
            highest = max(highest, _draw_factor_bar(ax, index, scores))
            vendi, conditional = scores["vendi"]["value"], scores["conditional_vendi"]["value"]
            # Divided here, so that the equation holds whatever the document gives as Information.
            factors = f"{significant(conditional)} x {significant(vendi / conditional)}"
            numbers.append(f"{factors} = {significant(vendi)}")
        # On a log axis from 1 a power is a margin in proportion to the length of the axis.
        ax.set(xscale="log", xlim=(1, highest**1.04), xlabel=f"{_COUNT_LABEL} (log scale)")
        _label_log_axis(ax.xaxis)
        _name_lines(ax, list(documents), numbers)
        ax.grid(visible=False, axis="y")
        # The bars have no labels of their own: each model would add two entries to the legend.
        patches = [
            _patch("conditional", "model (conditional)"),
            _patch("information", "prompts (information)"),
        ]
        # Above the plot: inside it the legend would cover the longest bars.
        ax.legend(
            handles=patches,
            loc="lower left",
            bbox_to_anchor=(0, 1),
            ncols=2,
            borderaxespad=0.1,
            columnspacing=1.2,
        )


def _draw_factor_bar(ax: "Axes", index: int, scores: Document) -> float:
    """Draw the bar of one model with the interval of conditional; return its highest value."""
    vendi, conditional = scores["vendi"]["value"], scores["conditional_vendi"]["value"]
    # The edge is a gap between the parts: it shows where one ends without the colours too.
    shape: dict[str, Any] = {"height": 0.4, "edgecolor": PAPER, "linewidth": 1.2}
    own, rest = family_color("conditional"), family_color("information")
    # A log axis has no zero: bars start at 1, the score of outputs that are all the same.
    ax.barh(index, conditional - 1, left=1, color=own, **shape)
    ax.barh(index, vendi - conditional, left=conditional, color=rest, **shape)
    interval = scores["conditional_vendi"].get("interval")
    if interval is None:
        return float(max(vendi, conditional))
    reach = _reach(conditional, interval["low"], interval["high"])
    # A wide whisker in the colour of the paper outlines the dark one on either part of the bar.
    for color, width in ((PAPER, 4.0), (INK, 1.4)):
        ax.errorbar(
            conditional,
            index,
            xerr=reach,
            fmt="none",
            color=color,
            capsize=3 + width / 2,
            capthick=width,
            elinewidth=width,
        )
    return float(max(vendi, conditional, interval["high"]))


def _patch(family: str, label: str) -> "Patch":
    from matplotlib.patches import Patch

    return Patch(color=family_color(family), label=label)


def draw_ranking(ax: "Axes", document: Document) -> None:
    """Draw the score that models are ranked by, with intervals and ranks, in document order."""
    with styled():
        name = document["score"]
        numbers = []
        for index, (model, result) in enumerate(document["models"].items()):
            score = result["scores"][name]
            value = score["value"]
            interval = score["interval"] or {"low": value, "high": value}
            _draw_interval(ax, name, index, value, interval["low"], interval["high"])
            numbers.append(f"{significant(value)}, rank {ranked(document['ranks'][model])}")
        _name_lines(ax, list(document["models"]), numbers)
        ax.grid(visible=False, axis="y")
        ax.set_xlabel(_label_of(score_spec(name)))


def draw_sweep(
    axes: "Sequence[Axes]", document: Document, scales: Mapping[str, Scale] | None = None
) -> None:
    """Draw scores against the bandwidth of outputs, and of prompts; mark the bandwidths chosen.

    `scales` holds the ranges of the axes by side; by default those of the data.
    """
    sides = [side for side in SIDES if document[side] is not None]
    with styled():
        for ax, side in zip(axes, sides, strict=True):
            swept = document[side]
            for score, values in swept["scores"].items():
                color = family_color(score_spec(score).family)
                ax.plot(swept["bandwidths"], values, color=color, label=score)
            ax.axvline(swept["chosen"], color=INK, linewidth=1, linestyle="--")
            ax.annotate(
                "chosen",
                (swept["chosen"], 0.02),
                xycoords=("data", "axes fraction"),
                xytext=(3, 0),
                textcoords="offset points",
                fontsize="small",
            )
            ax.set(xscale="log", yscale="log", ylabel="score")
            ax.set_xlabel(f"bandwidth of {SIDES[side]}")
            _apply((scales or {}).get(side), ax)
            _finish_log_plot(ax, fontsize="small")


def curve_families(names: Sequence[str]) -> list[str]:
    """Return the families of scores that convergence curves get a panel for, in table order."""
    present = {curve_spec(name)[0].family for name in names}
    families = dict.fromkeys(spec.family for spec in SCORES if spec.family in present)
    # The curves answer whether the split of vendi has converged, so its parts get panels.
    return [family for family in families if family in _CURVE_FAMILIES]


def draw_convergence(
    axes: "Sequence[Axes]", document: Document, scales: Mapping[str, Scale] | None = None
) -> None:
    """Draw scores against the size of the sample, a panel for each family of scores.

    Bands are a standard deviation over random orders of the sample. `scales` holds the ranges of
    the axes by family; by default those of the data.
    """
    families = curve_families(document["means"])
    panels = dict(zip(families, axes, strict=True))
    # `float` also reads "inf", as documents write an infinite order.
    order = float(document["settings"]["order"])
    with styled():
        for name in document["means"]:
            spec, is_truncated = curve_spec(name)
            # At order 2 the scores of the order asked for are those of order 2.
            is_repeated = order == 2 and spec.order is None and not is_truncated
            if spec.family in panels and not is_repeated:
                line, label = _curve_style(spec, is_truncated, order)
                _draw_curve(panels[spec.family], document, name, line, label)
        for family, ax in panels.items():
            ax.set(xscale="log", yscale="log", title=family)
            ax.set_xlabel(f"number of {document['noun']}")
            _apply((scales or {}).get(family), ax)
            _finish_log_plot(ax, fontsize="small")
            # Panels of one figure stand side by side and share the label of the first.
            if ax.figure is not axes[0].figure or ax is axes[0]:
                ax.set_ylabel("score")


def _curve_style(spec: ScoreSpec, is_truncated: bool, order: float) -> tuple[str, str]:
    """Return the line style and the label of a curve within its panel."""
    # Line styles, because the curves of a panel share a colour, and print may have none.
    if is_truncated:
        return "--", "truncated"
    if spec.order is None:
        return "-", f"order {order:g}"
    return ":", f"order {spec.order:g} (RKE)"


def _draw_curve(ax: "Axes", document: Document, name: str, line: str, label: str) -> None:
    sizes = np.asarray(document["sizes"], dtype=float)
    mean = np.asarray(document["means"][name], dtype=float)
    spread = np.asarray(document["deviations"][name], dtype=float)
    color = family_color(curve_spec(name)[0].family)
    ax.plot(sizes, mean, line, color=color, label=label)
    # A band may reach below zero: the log axis clips it there.
    ax.fill_between(sizes, mean - spread, mean + spread, color=color, alpha=0.2, linewidth=0)
