"""Plots of what models share: a heat map of pairs, and the tree of the models."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from divprism.analysis.model_tree import average_linkage
from divprism.report.documents import Document
from divprism.report.plots import new_panels
from divprism.report.style import INK, PAPER, family_color, styled
from divprism.report.texts import distinct_names

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from divprism.analysis.overlap_result import Overlap

__all__ = ["distances_of", "draw_heat_map", "draw_tree", "plot_overlap"]

_LONGEST_NAME = 26  # letters of a model beside a plot
_DARK = 0.7  # share of the scale from which on a cell is too dark for dark letters
_MOST_TICKS = 5  # of the tree, whose labels are long
_FEW_MODELS = 15  # up to which a cell has room for its number


def plot_overlap(overlap: "Overlap", axes: "Sequence[Axes] | None" = None) -> tuple[Any, Any]:
    """Plot a heat map of the pairs of models, and their tree."""
    document = overlap.to_dict()
    figure, panels = new_panels(axes, 2, height=1.6 + 0.3 * len(overlap.models))
    draw_heat_map(panels[0], document)
    draw_tree(panels[1], document)
    return figure, panels


def distances_of(document: Document) -> np.ndarray:
    """Return the distances that the tree joins models by, shape (m, m), in document order."""
    index = {model: number for number, model in enumerate(document["models"])}
    distances = np.zeros((len(index), len(index)))
    for pair in document["pairs"]:
        first, second = (index[model] for model in pair["models"])
        distances[first, second] = distances[second, first] = pair["distance"]
    return distances


def _leaves(document: Document) -> list[int]:
    """Return the models in the order in which the tree can be drawn without crossings."""
    from scipy.cluster.hierarchy import leaves_list

    return [int(leaf) for leaf in leaves_list(average_linkage(distances_of(document)))]


def _names(document: Document, order: Sequence[int]) -> list[str]:
    names = distinct_names(document["models"], _LONGEST_NAME)
    return [names[index] for index in order]


def draw_heat_map(ax: "Axes", document: Document) -> None:
    """Draw as how many models each pair counts, models in the order of the tree."""
    order = _leaves(document)
    index = {model: number for number, model in enumerate(document["models"])}
    factors = np.full((len(order), len(order)), np.nan)
    for pair in document["pairs"]:
        first, second = (order.index(index[model]) for model in pair["models"])
        factors[first, second] = factors[second, first] = pair["counts_as"]
    with styled():
        from matplotlib.colors import LinearSegmentedColormap

        # From the paper to the colour of what prompts and models bring: dark is far apart.
        far = family_color("information")
        colors = LinearSegmentedColormap.from_list("overlap", [PAPER, far])
        highest = float(np.nanmax(factors))
        mesh = ax.pcolormesh(
            factors, cmap=colors, vmin=1.0, vmax=max(highest, 1.01), edgecolors=PAPER, linewidth=1
        )
        # Rectangles instead of an embedded bitmap, so that a page stays sharp.
        mesh.set_rasterized(False)
        if len(order) <= _FEW_MODELS:
            _write_factors(ax, factors, dark=1 + _DARK * (highest - 1))
        names = _names(document, order)
        places = np.arange(len(order)) + 0.5
        ax.set_yticks(places, names, fontsize="small")
        ax.set_xticks(places, names, fontsize="small", rotation=90)
        ax.tick_params(length=0)
        ax.grid(visible=False)
        ax.invert_yaxis()
        ax.set_title("counts as ... models", fontsize="medium")
        for spine in ax.spines.values():
            spine.set_visible(False)


def _write_factors(ax: "Axes", factors: np.ndarray, dark: float) -> None:
    """Write each number into its cell; a lone colour cannot be read off."""
    for row, values in enumerate(factors):
        for column, value in enumerate(values):
            if np.isnan(value):
                continue
            color = INK
            if value > dark:
                color = PAPER
            middle = (column + 0.5, row + 0.5)
            ax.text(*middle, f"{value:.2f}", ha="center", va="center", fontsize=7, color=color)


def draw_tree(ax: "Axes", document: Document) -> None:
    """Draw the tree of the models: the further right two are joined, the less they share."""
    from scipy.cluster.hierarchy import dendrogram

    order = _leaves(document)
    drawn = dendrogram(average_linkage(distances_of(document)), no_plot=True)
    has_chance = document["joint"]["chance"] is not None
    with styled():
        from matplotlib.ticker import MaxNLocator

        for places, heights in zip(drawn["icoord"], drawn["dcoord"], strict=True):
            # SciPy puts leaves at 5, 15, 25, ...
            ax.plot(heights, [(place - 5) / 10 for place in places], color=INK, linewidth=1.2)
        ax.set_yticks(range(len(order)), _names(document, order), fontsize="small")
        ax.tick_params(axis="y", length=0)
        ax.grid(visible=False, axis="y")
        ax.set_ylim(len(order) - 0.5, -0.5)
        ax.set_xlim(left=0.0)
        ax.xaxis.set_major_locator(MaxNLocator(_MOST_TICKS))
        label = "Information between output and model given the prompt (nats)"
        if has_chance:
            label = "Information beyond chance (nats)"
        ax.set_xlabel(label)
        ax.set_title("which models overlap", fontsize="medium")
