"""Plots of a selection: its score after each choice, beside random subsets and all outputs."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from divprism.errors import ArgumentError
from divprism.report.documents import Document
from divprism.report.plots import new_axes
from divprism.report.style import INK, family_color, styled
from divprism.scores.spec import score_spec

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from divprism.analysis.selection import Selection

__all__ = ["draw_selection", "mean_curve", "plot_selection"]


def plot_selection(selection: "Selection", ax: "Axes | None" = None) -> tuple[Any, Any]:
    """Plot the score after each choice; with groups, the mean over those that are as large."""
    curve = mean_curve(selection)
    if not curve:
        raise ArgumentError("only near-copies were dropped: there is no order of choice to plot.")
    figure, ax = new_axes(ax)
    draw_selection(ax, selection.to_dict(), curve)
    return figure, ax


def mean_curve(selection: "Selection") -> list[float]:
    """Return the score after each choice: the geometric mean over the groups that are as large."""
    curves = selection.curves
    means = []
    for size in range(1, max(map(len, curves), default=0) + 1):
        reached = [math.log(curve[size - 1]) for curve in curves if len(curve) >= size]
        means.append(math.exp(math.fsum(reached) / len(reached)))
    return means


def draw_selection(ax: "Axes", document: Document, curve: Sequence[float]) -> None:
    """Draw the score after each choice, and that of random subsets with their range."""
    spec = score_spec(document["score"])
    random = document["random"]
    with styled():
        from matplotlib.ticker import MaxNLocator

        color = family_color(spec.family)
        ax.plot(range(1, len(curve) + 1), curve, color=color, label="chosen")
        if random is not None:
            low, high = random["mean"] - random["low"], random["high"] - random["mean"]
            ends = [[low], [high]]
            ax.errorbar(
                len(curve), random["mean"], ends, fmt="o", color=INK, label="random subsets"
            )
        ax.set_xlabel("outputs chosen")
        ax.set_ylabel(spec.title)
        ax.set_ylim(bottom=0)
        ax.xaxis.set_major_locator(MaxNLocator(integer=True))  # no half outputs
        ax.legend(frameon=False)
