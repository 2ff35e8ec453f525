"""Plots by matplotlib: each draws plain values, or a result document, on axes that it is given.

Texts may come from strangers: none is read as a formula.
"""

import io
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from divprism.errors import ArgumentError, MissingExtraError
from divprism.report.texts import family_of, ranked, shortened, visible

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
]

Document = Mapping[str, Any]
_WIDTH, _HEIGHT, _PANEL = 6.4, 3.6, 4.2  # inches: of a plot, and the width of one of several panels
_INK, _GRID = "#333333", "#dddddd"
_COLORS = {"vendi": "#0072b2", "conditional": "#d55e00", "information": "#009e73", "prompts": "#8e6bb0"}
_SPECTRA = {"x": ("outputs", "vendi"), "joint": ("pairs", "conditional"), "t": ("prompts", "prompts")}
_LONGEST = 40  # letters of a name
_NARROW, _WIDE = 3, 30  # scores below and above which an axis has more, or fewer, ticks
_SHAPES = {"vendi": ("-", "order {order:g}"), "truncated": ("--", "truncated"), "rke": (":", "order 2 (RKE)")}
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
        raise MissingExtraError("Plots need matplotlib, which is not installed: pip install 'divprism[report]'.") from None
    with matplotlib.rc_context(_STYLE | more), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        yield


def new_axes(ax: Any = None, height: float = _HEIGHT) -> tuple[Any, Any]:
    """A figure and its axes: those given, or new ones."""
    figure, axes = new_panels(None if ax is None else [ax], 1, height)
    return figure, axes[0]


def new_panels(axes: Any, count: int, height: float = _HEIGHT) -> tuple[Any, np.ndarray]:
    """A figure and `count` axes beside each other: those given, or new ones."""
    if axes is not None:
        panels = np.asarray(axes, dtype=object).reshape(-1)
        if panels.size != count:
            raise ArgumentError(f"`axes` must be {count} matplotlib Axes; got {panels.size}.")
        return panels[0].figure, panels
    with _styled():
        from matplotlib import pyplot

        width = _WIDTH if count == 1 else _PANEL * count
        figure, made = pyplot.subplots(1, count, figsize=(width, height), layout="constrained", squeeze=False)
        return figure, made[0]


def inline_svg(draw: Any, panels: int, height: float, label: str, name: str) -> str:
    """What `draw(axes)` draws, as an SVG element for a page: its colours follow the page, its text is text.

    Parameters
    ----------
    draw : callable
        Is given an array of `panels` axes.
    label : str
        What is to be seen, for those who cannot.
    name : str
        Of the plot within its page: keeps the ids of two plots apart.
    """
    with _styled(**{"svg.fonttype": "none", "svg.hashsalt": name, "font.family": ["sans-serif"]}):
        from matplotlib.figure import Figure

        width = _WIDTH if panels == 1 else _PANEL * panels
        figure = Figure(figsize=(width, height), layout="constrained")
        draw(figure.subplots(1, panels, squeeze=False)[0])
        buffer = io.StringIO()
        figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>|<defs>\s*<style.*?</style>\s*</defs>", "", text, count=2, flags=re.DOTALL)
    text = re.sub(r'<g id="[\w.]+_\d+">', "<g>", text)  # the same in every plot
    text = re.sub(r"<[^<>]+>", _following_the_page, text)
    return f'<svg role="img" aria-label="{_attribute(label)}" class="plot" {text.removeprefix("<svg ")}'


def _following_the_page(tag: re.Match[str]) -> str:
    """A tag with the colours and the letters of the page; texts between tags, where < and > are escaped, stay as they are."""
    text = re.sub(r"font: ([^;\"]*?)'[^;\"]*", r"font: \1sans-serif", tag[0])
    for name, color in {**_COLORS, "grid": _GRID}.items():
        text = text.replace(color, f"var(--{name})")
    return text.replace(_INK, "currentColor")


def _attribute(text: str) -> str:
    return visible(text).replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;").replace(">", "&gt;")


def _plain_ticks(axis: Any, steps: tuple[float, ...] = (1, 2, 5)) -> None:
    """Numbers as people write them on a log axis: 2, 5, 10, never powers; and no ticks between, which cost most of the time."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    axis.set_major_locator(LogLocator(10, steps))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.6g}"))
    axis.set_minor_locator(NullLocator())


def draw_spectra(ax: Any, spectra: Mapping[str, tuple[Any, Any]]) -> None:
    """Eigenvalues, the largest first, on log axes: eigenvalues, and how often each occurs, by operator."""
    with _styled():
        for operator, (title, family) in _SPECTRA.items():
            if operator not in spectra:
                continue
            values, weights = (np.asarray(side, dtype=float) for side in spectra[operator])
            ranks = np.maximum(np.cumsum(weights), 1e-3)
            shape = {"marker": ".", "markersize": 3} if values.size < 60 else {}
            ax.plot(ranks, values, color=_COLORS[family], label=title, **shape)
        ax.set(xscale="log", yscale="log", xlabel="rank", ylabel="eigenvalue (share of all)")
        _plain_ticks(ax.xaxis)
        _plain_ticks(ax.yaxis, (1,))
        ax.legend()


def draw_values(ax: Any, values: Mapping[str, tuple[float, float, float]]) -> None:
    """Values with their low and high ends, the first on top."""
    with _styled():
        for place, (name, (value, low, high)) in enumerate(values.items()):
            reach = [[max(0.0, value - low)], [max(0.0, high - value)]]
            ax.errorbar(value, place, xerr=reach, fmt="o", color=_COLORS[family_of(name)], capsize=3)
            ax.annotate(f"{value:.3g}", (value, place), xytext=(0, 7), textcoords="offset points", ha="center")
        ax.set_yticks(range(len(values)), [shortened(name, _LONGEST) for name in values])
        ax.set_ylim(len(values) - 0.4, -0.6)
        ax.set_xlabel("effective number of outputs")


def draw_factors(ax: Any, documents: Mapping[str, Document]) -> None:
    """Vendi as conditional times information, a bar for each model: on a log axis lengths multiply."""
    with _styled():
        for place, document in enumerate(documents.values()):
            scores = document["scores"]
            vendi, conditional = (scores[name]["value"] for name in ("vendi", "conditional_vendi"))
            ax.barh(place, conditional - 1, left=1, color=_COLORS["conditional"], height=0.55)
            ax.barh(place, vendi - conditional, left=conditional, color=_COLORS["information"], height=0.55, alpha=0.85)
            end = max(vendi, conditional)
            if (interval := scores["conditional_vendi"].get("interval")) is not None:
                end = max(end, interval["high"])
                reach = [[max(0.0, conditional - interval["low"])], [max(0.0, interval["high"] - conditional)]]
                ax.errorbar(conditional, place, xerr=reach, fmt="none", color=_INK, capsize=3, linewidth=1.2)
            told = f" {conditional:.3g} x {vendi / conditional:.3g} = {vendi:.3g}"
            ax.annotate(told, (end, place), xytext=(4, 0), textcoords="offset points", va="center").set_in_layout(False)
        top = max(max(d["scores"][name]["value"] for name in ("vendi", "conditional_vendi")) for d in documents.values())
        ax.set(xscale="log", xlim=(1, max(1.5, top) ** 1.55), xlabel="effective number of outputs (log scale)")
        _plain_ticks(ax.xaxis, (1, 1.2, 1.5, 2, 3, 5) if top < _NARROW else (1, 2, 5) if top < _WIDE else (1,))
        ax.set_yticks(range(len(documents)), [shortened(name, _LONGEST) for name in documents])
        ax.set_ylim(len(documents) - 0.4, -0.6)
        ax.grid(visible=False, axis="y")
        own, brought = "conditional: the model's own", "information: what prompts bring"
        patches = [_patch("conditional", own), _patch("information", brought)]
        ax.legend(handles=patches, loc="lower right", bbox_to_anchor=(1, 1), ncols=2, borderaxespad=0.1)


def _patch(family: str, label: str) -> Any:
    from matplotlib.patches import Patch

    return Patch(color=_COLORS[family], label=label)


def draw_ranking(ax: Any, document: Document) -> None:
    """The score that models are ranked by, with intervals and ranks, in the order of the document."""
    with _styled():
        name, models = document["score"], document["models"]
        for place, (model, result) in enumerate(models.items()):
            score = result["scores"][name]
            interval = score["interval"] or {"low": score["value"], "high": score["value"]}
            reach = [[max(0.0, score["value"] - interval["low"])], [max(0.0, interval["high"] - score["value"])]]
            ax.errorbar(score["value"], place, xerr=reach, fmt="o", color=_COLORS[family_of(name)], capsize=3)
            ax.annotate(ranked(document["ranks"][model]), (1.01, place), xycoords=("axes fraction", "data"), va="center")
        ax.annotate("rank", (1.01, -0.7), xycoords=("axes fraction", "data"), va="center", fontsize="small")
        ax.set_yticks(range(len(models)), [shortened(model, _LONGEST) for model in models])
        ax.set_ylim(len(models) - 0.4, -0.6)
        ax.set_xlabel(name)


def draw_sweep(axes: Sequence[Any], document: Document) -> None:
    """Scores against the bandwidth of outputs, and of prompts, with the bandwidth chosen marked."""
    sides = [(side, document[side]) for side in ("x", "t") if document[side] is not None]
    with _styled():
        for ax, (side, swept) in zip(axes, sides, strict=True):
            for score, values in swept["scores"].items():
                family = "prompts" if score == "prompts" else family_of(score)
                ax.plot(swept["bandwidths"], values, color=_COLORS[family], label=score)
            ax.axvline(swept["chosen"], color=_INK, linewidth=1, linestyle="--")
            ax.annotate("chosen", (swept["chosen"], 0.02), xycoords=("data", "axes fraction"), xytext=(3, 0),
                        textcoords="offset points", fontsize="small")  # fmt: skip
            what = {"x": "outputs", "t": "prompts"}[side]
            ax.set(xscale="log", yscale="log", xlabel=f"bandwidth of {what}", ylabel="effective number")
            _plain_ticks(ax.yaxis)
            _plain_ticks(ax.xaxis)
        axes[0].legend(fontsize="small")


def draw_convergence(axes: Sequence[Any], document: Document) -> None:
    """Scores against the number of samples, with bands of a standard deviation over repeats: a panel for each kind."""
    families = ["vendi", "conditional", "information"][: len(axes)]
    order = float(document["settings"]["order"])
    unit = {"prompt": "prompts", "pair": "outputs"}[document["settings"]["unit"]]
    sizes = np.asarray(document["sizes"], dtype=float)
    with _styled():
        for name, means in document["means"].items():
            if family_of(name) not in families or (order == 2 and name.endswith("vendi") and "truncated" not in name):
                continue  # at order 2 they are the rke scores
            ax = axes[families.index(family_of(name))]
            shape = "truncated" if "truncated" in name else "rke" if name.endswith("rke") else "vendi"
            line, label = _SHAPES[shape]
            mean, spread = np.asarray(means), np.std(np.asarray(document["curves"][name]), axis=0, ddof=1)
            color = _COLORS[family_of(name)]
            ax.plot(sizes, mean, line, color=color, label=label.format(order=order))
            ax.fill_between(sizes, mean - spread, mean + spread, color=color, alpha=0.2, linewidth=0)
        for ax, family in zip(axes, families, strict=True):
            ax.set(xscale="log", yscale="log", xlabel=f"number of {unit}", title=family)
            _plain_ticks(ax.yaxis)
            _plain_ticks(ax.xaxis)
            ax.legend(fontsize="small")
        axes[0].set_ylabel("effective number")
