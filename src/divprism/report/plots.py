"""Plots by matplotlib: each draws plain values, or a result document, on axes that it is given.

Texts may come from strangers: none is read as a formula.
"""

import io
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

import numpy as np

from divprism.analysis.comparison import Comparison
from divprism.analysis.evaluation import Evaluation
from divprism.errors import ArgumentError, MissingExtraError
from divprism.report.texts import distinct_names, ranked, visible
from divprism.scores.score import Score
from divprism.scores.spec import curve_spec, score_spec

__all__ = [
    "draw_convergence",
    "draw_factors",
    "draw_ranking",
    "draw_spectra",
    "draw_sweep",
    "draw_values",
    "inline_svg",
    "new_axes",
    "new_panels",
    "plot_comparison",
    "plot_evaluation",
    "plot_score",
    "rank_curve",
]

Document = Mapping[str, Any]
_WIDTH, _HEIGHT, _PANEL = 6.4, 3.6, 4.2  # inches: of a plot, and the width of one of several panels
_PAGE = 5.0  # inches: of a plot on a page, so that its letters can still be read where a phone shrinks it
_INK, _GRID, _PAPER = "#333333", "#dddddd", "#fffffe"
_COLORS = {
    "vendi": "#0072b2",
    "conditional": "#d55e00",
    "information": "#009e73",
    "prompts": "#8e6bb0",
    "per_prompt": "#cc79a7",
    "cluster": "#999999",
}
_SPECTRA = {
    "x": ("outputs", "vendi"),
    "joint": ("pairs", "conditional"),
    "t": ("prompts", "prompts"),
}
_LETTER = 0.62  # width of a usual letter, as a part of the size of the font
_MOST_TICKS = 6  # numbers on a log axis
_STEPS = (
    (1.0, (1, 2, 5)),
    (0.35, (1, 1.5, 2, 3, 5, 7)),
)  # from so many decades on, numbers between the powers of ten
_SHAPES = {
    "vendi": ("-", "order {order:g}"),
    "truncated": ("--", "truncated"),
    "rke": (":", "order 2 (RKE)"),
}
_STYLE: dict[Any, Any] = {
    "axes.edgecolor": _INK,
    "axes.axisbelow": True,
    "axes.grid": True,
    "axes.labelcolor": _INK,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlecolor": _INK,
    "font.size": 10.0,
    "grid.color": _GRID,
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "text.color": _INK,
    "text.parse_math": False,
    "xtick.color": _INK,
    "ytick.color": _INK,
}


@contextmanager
def _styled(**more: Any) -> Iterator[None]:
    """Our style while we draw, and nobody's settings changed after; letters that a font lacks are no reason to warn."""
    try:
        import matplotlib
    except ImportError:
        raise MissingExtraError(
            "Plots need matplotlib, which is not installed: pip install 'divprism[report]'."
        ) from None
    with matplotlib.rc_context(_STYLE | more), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        yield


def new_axes(ax: Any = None, height: float = _HEIGHT) -> tuple[Any, Any]:
    """A figure and its axes: those given, or new ones."""
    figure, axes = new_panels(None if ax is None else [ax], 1, height)
    return figure, axes[0]


def new_panels(axes: Any, count: int, height: float = _HEIGHT) -> tuple[Any, np.ndarray]:
    """A figure and `count` axes beside each other: those given, or new ones."""
    with _styled():
        from matplotlib import pyplot
        from matplotlib.axes import Axes

        if axes is None:
            width = _WIDTH if count == 1 else _PANEL * count
            figure, made = pyplot.subplots(
                1, count, figsize=(width, height), layout="constrained", squeeze=False
            )
            return figure, made[0]
    panels = np.asarray(axes, dtype=object).reshape(-1)
    wrong = [type(one).__name__ for one in panels if not isinstance(one, Axes)]
    if wrong or panels.size != count:
        what = "matplotlib Axes" if count == 1 else f"{count} matplotlib Axes"
        raise ArgumentError(
            f"`{'ax' if count == 1 else 'axes'}` must be {what}; got {wrong[0] if wrong else panels.size}."
        )
    return panels[0].figure, panels


def inline_svg(draw: Any, panels: int, height: float, label: str, name: str) -> list[str]:
    """What `draw(axes)` draws, as an SVG element for each of its panels: colours follow the page, text is text.

    Parameters
    ----------
    draw : callable
        Is given an array of `panels` axes.
    label : str
        What is to be seen, for those who cannot.
    name : str
        Of the plot within its page: keeps the ids of two plots apart.
    """
    with _styled():
        from matplotlib.figure import Figure

        figures = [Figure(figsize=(_PAGE, height), layout="constrained") for _ in range(panels)]
        axes = np.array([figure.subplots() for figure in figures], dtype=object)
        draw(axes)
        drawn = []
        for place, (figure, ax) in enumerate(zip(figures, axes, strict=True)):
            seen = label if panels == 1 else f"{label}: {ax.get_title() or ax.get_xlabel()}"
            drawn.append(_as_element(figure, seen, f"{name}-{place}"))
        return drawn


def _as_element(figure: Any, label: str, name: str) -> str:
    """A figure as an SVG element."""
    buffer = io.StringIO()
    with _styled(**{"svg.fonttype": "none", "svg.hashsalt": name, "font.family": ["sans-serif"]}):
        figure.savefig(
            buffer, format="svg", transparent=True, metadata={"Date": None, "Creator": None}
        )
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(
        r"<metadata>.*?</metadata>|<defs>\s*<style.*?</style>\s*</defs>",
        "",
        text,
        count=2,
        flags=re.DOTALL,
    )
    text = re.sub(r'<g id="[\w.]+_\d+">', "<g>", text)  # the same in every plot
    text = re.sub(r"<[^<>]+>", _following_the_page, text)
    return f'<svg role="img" aria-label="{_attribute(label)}" class="plot" {text.removeprefix("<svg ")}'


def _following_the_page(tag: re.Match[str]) -> str:
    """A tag with the colours and the letters of the page; texts between tags, where < and > are escaped, stay as they are."""
    text = re.sub(r"font: ([^;\"]*?)'[^;\"]*", r"font: \1sans-serif", tag[0])
    for name, color in {**_COLORS, "grid": _GRID, "paper": _PAPER}.items():
        text = text.replace(color, f"var(--{name})")
    return text.replace(_INK, "currentColor")


def _attribute(text: str) -> str:
    return (
        visible(text)
        .replace("&", "&amp;")
        .replace('"', "&quot;")
        .replace("<", "&lt;")
        .replace(">", "&gt;")
    )


def _plain_ticks(axis: Any) -> None:
    """Numbers as people write them on a log axis: 2, 5, 10, never powers; and no ticks between, which cost most of the time."""
    from matplotlib.ticker import FuncFormatter, NullLocator

    axis.set_major_locator(_log_ticks()())
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.6g}"))
    axis.set_minor_locator(NullLocator())


@cache
def _log_ticks() -> Any:
    """The class of our ticks on log axes; made when matplotlib is there."""
    from matplotlib.ticker import Locator, MaxNLocator

    class LogTicks(Locator):
        """Powers of ten, fewer over many decades; over few, numbers between; over less, as on a linear axis."""

        def __call__(self) -> Any:
            assert self.axis is not None
            return self.tick_values(*self.axis.get_view_interval())

        def tick_values(self, vmin: float, vmax: float) -> Any:
            low, high = sorted(np.log10(np.maximum([vmin, vmax], 1e-300)))
            decades = np.arange(np.floor(low), np.ceil(high) + 1)
            stride = int(np.ceil((high - low) / _MOST_TICKS))
            if high - low >= 2:
                ticks = 10.0 ** decades[decades % stride == 0]
            else:
                steps = next((steps for least, steps in _STEPS if high - low >= least), (1,))
                ticks = np.outer(10.0**decades, steps).reshape(-1)
            inside = ticks[(ticks >= 10**low * (1 - 1e-9)) & (ticks <= 10**high * (1 + 1e-9))]
            return (
                inside
                if inside.size > 1
                else MaxNLocator(_MOST_TICKS - 2, steps=[1, 2, 5, 10]).tick_values(
                    10**low, 10**high
                )
            )

    return LogTicks


def rank_curve(values: Any, weights: Any) -> tuple[np.ndarray, np.ndarray]:
    """Ranks from 1 on, strictly increasing, and the eigenvalue at each; `weights` say how often each of `values` occurs.

    A quadrature has parts and negative numbers of eigenvalues: what does not raise the rank reached so far is left out.

    >>> [side.tolist() for side in rank_curve([0.5, 0.4, 0.3, 0.2], [0.5, 2, -1, 3])]
    [[1.0, 2.5, 4.5], [0.5, 0.4, 0.2]]
    """
    reached = np.maximum.accumulate(np.maximum(np.cumsum(np.asarray(weights, dtype=float)), 1.0))
    further = np.diff(reached, prepend=0.0) > 0
    return reached[further], np.asarray(values, dtype=float)[further]


def draw_spectra(ax: Any, spectra: Mapping[str, tuple[Any, Any]]) -> None:
    """Eigenvalues, the largest first, on log axes: eigenvalues, and how often each occurs, by operator."""
    with _styled():
        last = 2.0
        for operator, (title, family) in _SPECTRA.items():
            if operator not in spectra:
                continue
            ranks, values = rank_curve(*spectra[operator])
            last = max([last, *ranks[-1:]])
            shape = {"marker": ".", "markersize": 3} if values.size < 60 else {}
            ax.plot(ranks, values, color=_COLORS[family], label=title, **shape)
        ax.set(
            xscale="log",
            yscale="log",
            xlabel="rank",
            ylabel="eigenvalue (share of all)",
            xlim=(1, 1.1 * last),
        )
        _plain_ticks(ax.xaxis)
        _plain_ticks(ax.yaxis)
        ax.legend()


def _name_lines(ax: Any, names: Sequence[str], told: Sequence[str]) -> None:
    """A line of words above each of the places 0, 1, ...: a name on the left and numbers on the right, both inside the plot."""
    letters = 0.92 * ax.figure.get_figwidth() * 72 / (_LETTER * 10)
    if ax.figure.get_layout_engine() is None or len(ax.figure.axes) > 1:
        letters = ax.get_window_extent().width / ax.figure.dpi * 72 / (_LETTER * 10)
    room = max(8.0, letters - max(map(len, told)) - 1)
    shown = distinct_names(names, room) if len(names) > 1 or any(names) else [""]
    style = {"xycoords": ("axes fraction", "data"), "textcoords": "offset points", "va": "center"}
    for place, (name, numbers) in enumerate(zip(shown, told, strict=True)):
        ax.annotate(name, (0, place - 0.36), xytext=(4, 0), ha="left", **style)
        ax.annotate(numbers, (1, place - 0.36), xytext=(-2, 0), ha="right", **style)
    ax.set_yticks([])
    ax.set_ylim(len(names) - 0.6, -0.7)


def plot_score(score: Score, ax: Any = None) -> tuple[Any, Any]:
    """The spectra of a score on log axes; where there are none, its value with its error."""
    figure, ax = new_axes(ax)
    if score.spectra:
        spectra = {
            name: (spectrum.values, spectrum.weights) for name, spectrum in score.spectra.items()
        }
        draw_spectra(ax, spectra)
    else:
        low, high = score.value - score.standard_error, score.value + score.standard_error
        draw_values(ax, {score.name: (score.value, low, high)})
    ax.set_title(str(score).replace(" (", "\n(", 1), fontsize="medium")
    return figure, ax


def plot_evaluation(evaluation: Evaluation, ax: Any = None) -> tuple[Any, Any]:
    """How vendi splits into conditional and information; without prompts, the spectrum."""
    if evaluation.conditional_vendi is None:
        return plot_score(evaluation.scores["vendi"], ax)
    figure, ax = new_axes(ax, height=1.8)
    draw_factors(ax, {evaluation.model: evaluation.to_dict()})
    return figure, ax


def plot_comparison(comparison: Comparison, ax: Any = None) -> tuple[Any, Any]:
    """The score of each model with its interval, the best on top."""
    figure, ax = new_axes(ax, height=1.2 + 0.32 * len(comparison.results))
    draw_ranking(ax, comparison.to_dict())
    return figure, ax


def draw_values(ax: Any, values: Mapping[str, tuple[float, float, float]]) -> None:
    """Values with their low and high ends, the first on top."""
    with _styled():
        for place, (name, (value, low, high)) in enumerate(values.items()):
            _draw_reach(ax, name, place, value, low, high)
        _name_lines(ax, list(values), [f"{value:.3g}" for value, _, _ in values.values()])
        ax.set_xlabel("effective number of outputs")


def _draw_reach(ax: Any, score: str, place: float, value: float, low: float, high: float) -> None:
    """A dot with its interval."""
    reach = [[max(0.0, value - low)], [max(0.0, high - value)]]
    ax.errorbar(
        value, place, xerr=reach, fmt="o", color=_COLORS[score_spec(score).family], capsize=3
    )


def draw_factors(ax: Any, documents: Mapping[str, Document]) -> None:
    """Vendi as conditional times information, a bar for each model: on a log axis lengths multiply."""
    with _styled():
        told, ends = [], [1.5]
        for place, document in enumerate(documents.values()):
            scores = document["scores"]
            vendi, conditional = (scores[name]["value"] for name in ("vendi", "conditional_vendi"))
            shape = {"height": 0.4, "edgecolor": _PAPER, "linewidth": 1.2}
            ax.barh(place, conditional - 1, left=1, color=_COLORS["conditional"], **shape)
            ax.barh(
                place, vendi - conditional, left=conditional, color=_COLORS["information"], **shape
            )
            ends += [vendi, conditional]
            if (interval := scores["conditional_vendi"].get("interval")) is not None:
                ends.append(interval["high"])
                reach = [
                    [max(0.0, conditional - interval["low"])],
                    [max(0.0, interval["high"] - conditional)],
                ]
                for color, width in (
                    (_PAPER, 4.0),
                    (_INK, 1.4),
                ):  # an edge, so that it is seen on either colour
                    style = {"capsize": 3 + width / 2, "capthick": width, "elinewidth": width}
                    ax.errorbar(conditional, place, xerr=reach, fmt="none", color=color, **style)
            told.append(f"{conditional:.3g} x {vendi / conditional:.3g} = {vendi:.3g}")
        ax.set(
            xscale="log",
            xlim=(1, max(ends) ** 1.04),
            xlabel="effective number of outputs (log scale)",
        )
        _plain_ticks(ax.xaxis)
        _name_lines(ax, list(documents), told)
        ax.grid(visible=False, axis="y")
        patches = [
            _patch("conditional", "model (conditional)"),
            _patch("information", "prompts (information)"),
        ]
        ax.legend(
            handles=patches,
            loc="lower left",
            bbox_to_anchor=(0, 1),
            ncols=2,
            borderaxespad=0.1,
            columnspacing=1.2,
        )


def _patch(family: str, label: str) -> Any:
    from matplotlib.patches import Patch

    return Patch(color=_COLORS[family], label=label)


def draw_ranking(ax: Any, document: Document) -> None:
    """The score that models are ranked by, with intervals and ranks, in the order of the document."""
    with _styled():
        name, models, told = document["score"], document["models"], []
        for place, (model, result) in enumerate(models.items()):
            score = result["scores"][name]
            interval = score["interval"] or {"low": score["value"], "high": score["value"]}
            _draw_reach(ax, name, place, score["value"], interval["low"], interval["high"])
            told.append(f"{score['value']:.3g}, rank {ranked(document['ranks'][model])}")
        _name_lines(ax, list(models), told)
        ax.grid(visible=False, axis="y")
        ax.set_xlabel(name)


def draw_sweep(axes: Sequence[Any], document: Document) -> None:
    """Scores against the bandwidth of outputs, and of prompts, with the bandwidth chosen marked."""
    sides = [(side, document[side]) for side in ("x", "t") if document[side] is not None]
    with _styled():
        for ax, (side, swept) in zip(axes, sides, strict=True):
            for score, values in swept["scores"].items():
                family = score_spec(score).family
                ax.plot(swept["bandwidths"], values, color=_COLORS[family], label=score)
            ax.axvline(swept["chosen"], color=_INK, linewidth=1, linestyle="--")
            ax.annotate("chosen", (swept["chosen"], 0.02), xycoords=("data", "axes fraction"), xytext=(3, 0),
                        textcoords="offset points", fontsize="small")  # fmt: skip
            what = {"x": "outputs", "t": "prompts"}[side]
            ax.set(
                xscale="log", yscale="log", xlabel=f"bandwidth of {what}", ylabel="effective number"
            )
            _plain_ticks(ax.yaxis)
            _plain_ticks(ax.xaxis)
            ax.legend(fontsize="small")


def draw_convergence(axes: Sequence[Any], document: Document) -> None:
    """Scores against the number of samples, with bands of a standard deviation over repeats: a panel for each kind."""
    families = ["vendi", "conditional", "information"][: len(axes)]
    order = float(document["settings"]["order"])
    unit = {"prompt": "prompts", "pair": "outputs"}[document["settings"]["unit"]]
    sizes = np.asarray(document["sizes"], dtype=float)
    with _styled():
        for name, means in document["means"].items():
            spec, is_truncated = curve_spec(name)
            # At order 2 the scores of the order asked for are those of order 2.
            is_repeated = order == 2 and spec.order is None and not is_truncated
            if spec.family not in families or is_repeated:
                continue
            ax = axes[families.index(spec.family)]
            shape = "vendi" if spec.order is None else "rke"
            if is_truncated:
                shape = "truncated"
            line, label = _SHAPES[shape]
            mean, spread = (
                np.asarray(means),
                np.std(np.asarray(document["curves"][name]), axis=0, ddof=1),
            )
            color = _COLORS[spec.family]
            ax.plot(sizes, mean, line, color=color, label=label.format(order=order))
            ax.fill_between(
                sizes, mean - spread, mean + spread, color=color, alpha=0.2, linewidth=0
            )
        for ax, family in zip(axes, families, strict=True):
            ax.set(xscale="log", yscale="log", xlabel=f"number of {unit}", title=family)
            _plain_ticks(ax.yaxis)
            _plain_ticks(ax.xaxis)
            ax.legend(fontsize="small")
            if ax.figure is not axes[0].figure or ax is axes[0]:
                ax.set_ylabel("effective number")
