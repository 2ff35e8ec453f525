"""The plot of quality against diversity: models with intervals, and the front as steps."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from divprism.report.documents import Document
from divprism.report.plots import new_axes
from divprism.report.style import GRID, INK, family_color, styled
from divprism.report.texts import distinct_names
from divprism.scores.spec import score_spec

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["draw_front", "plot_front"]

_HEIGHT = 4.2  # inches
_LETTERS = 22  # of a name beside its point
_MOST_LABELS = 25  # models that are named; beyond, only those on the front
# Where a label may stand around its point: distances in points, and directions in turns.
_DISTANCES = (5.0, 14.0, 26.0, 40.0)
_DIRECTIONS = (0.0, 0.125, 0.875, 0.5, 0.375, 0.625, 0.25, 0.75)
_NEAR = _DISTANCES[0]  # up to here a label needs no line to its point

Box = tuple[float, float, float, float]


def plot_front(document: Document, ax: "Axes | None" = None) -> tuple[Any, Any]:
    """Plot the front of a document, that of `ParetoFront.to_dict`."""
    figure, ax = new_axes(ax, height=_HEIGHT)
    draw_front(ax, document)
    return figure, ax


def draw_front(ax: "Axes", document: Document) -> None:
    """Draw each model as a dot with its intervals; models off the front are grey."""
    spec = score_spec(document["diversity"])
    color = family_color(spec.family)
    with styled():
        points = document["points"]
        for point in points:
            shade = color if point["standing"] == "front" else "#999999"
            ax.errorbar(
                point["quality"],
                point["diversity"],
                xerr=_reach(point, "quality"),
                yerr=_reach(point, "diversity"),
                fmt="o" if point["standing"] != "open" else "D",
                markerfacecolor="none" if point["standing"] == "open" else shade,
                color=shade,
                elinewidth=0.9,
                capsize=2,
                zorder=3,
            )
        ax.margins(0.12)
        _draw_steps(ax, points, color)
        ax.set_xlabel(score_spec(document["quality"]).meaning)
        ax.set_ylabel(f"{spec.meaning}\n({spec.title})")
        _name_points(ax, points)


def _reach(point: Document, axis: str) -> list[list[float]] | None:
    """The distances to the ends of an interval, as `errorbar` takes them."""
    ends = point[f"{axis}_interval"]
    if ends is None:
        return None
    return [[max(0.0, point[axis] - ends[0])], [max(0.0, ends[1] - point[axis])]]


def _draw_steps(ax: "Axes", points: Sequence[Document], color: str) -> None:
    """Draw the edge of what models reach: below and left of it another model is better."""
    front = [point for point in points if point["standing"] == "front"]
    front.sort(key=lambda point: point["quality"])
    # From the left edge to the bottom edge, without moving the limits that the data have taken.
    left, right = ax.get_xlim()
    bottom, top = ax.get_ylim()
    x = [left, *(point["quality"] for point in front)]
    y = [point["diversity"] for point in front]
    ax.step(x, [*y, y[-1]], where="post", color=color, linewidth=1.2, alpha=0.6, zorder=2)
    ax.plot([x[-1], x[-1]], [y[-1], bottom], color=color, linewidth=1.2, alpha=0.6, zorder=2)
    ax.set(xlim=(left, right), ylim=(bottom, top))


def _name_points(ax: "Axes", points: Sequence[Document]) -> None:
    """Write the name of each model beside its dot, where no other name or dot is."""
    named = list(points)
    if len(named) > _MOST_LABELS:
        named = [point for point in named if point["standing"] == "front"][:_MOST_LABELS]
    names = distinct_names([point["model"] for point in named], _LETTERS)
    # The layout decides where the axes are, and so where data are on the page.
    ax.figure.draw_without_rendering()  # type: ignore[union-attr]
    scale = 72 / ax.figure.dpi
    centres = []
    for point in points:
        centres.append(ax.transData.transform((point["quality"], point["diversity"])) * scale)
    taken: list[Box] = [(x - 4, y - 4, x + 4, y + 4) for x, y in centres]
    frame = ax.get_window_extent()
    inside = (frame.x0 * scale, frame.y0 * scale, frame.x1 * scale, frame.y1 * scale)
    places = {id(point): centre for point, centre in zip(points, centres, strict=True)}
    for point, name in zip(named, names, strict=True):
        text = ax.annotate(
            name,
            (point["quality"], point["diversity"]),
            xytext=(0, 0),
            textcoords="offset points",
            fontsize="small",
            color=INK,
            zorder=4,
        )
        extent = text.get_window_extent()
        size = extent.width * scale, extent.height * scale
        text.remove()
        offset, box = _free_place(places[id(point)], size, taken, inside)
        taken.append(box)
        _annotate(ax, point, name, offset)


def _annotate(ax: "Axes", point: Document, name: str, offset: np.ndarray) -> None:
    """Write a name at an offset of its lower left corner, with a line where it is far away."""
    arrow = None
    if np.hypot(*offset) > 3 * _NEAR:
        arrow = {"arrowstyle": "-", "color": GRID, "shrinkA": 0, "shrinkB": 3}
    ax.annotate(
        name,
        (point["quality"], point["diversity"]),
        xytext=(float(offset[0]), float(offset[1])),
        textcoords="offset points",
        fontsize="small",
        color=INK,
        zorder=4,
        arrowprops=arrow,
    )


def _free_place(
    centre: np.ndarray, size: tuple[float, float], taken: Sequence[Box], inside: Box
) -> tuple[np.ndarray, Box]:
    """The offset of a label and its box: the nearest place that covers least of the others."""
    width, height = size
    best: tuple[float, np.ndarray, Box] | None = None
    for distance in _DISTANCES:
        for turn in _DIRECTIONS:
            across, up = np.cos(2 * np.pi * turn), np.sin(2 * np.pi * turn)
            # The side of the label that faces the point is at this distance from it.
            x = across * distance + (across - 1) * width / 2
            y = up * distance + (up - 1) * height / 2
            box = (centre[0] + x, centre[1] + y, centre[0] + x + width, centre[1] + y + height)
            covered = sum(_overlap(box, other) for other in taken)
            covered += width * height - _overlap(box, inside)
            if best is None or covered < best[0] - 1e-9:
                best = covered, np.array([x, y]), box
        assert best is not None
        if best[0] <= 1e-9:
            break
    return best[1], best[2]


def _overlap(one: Box, other: Box) -> float:
    """The area that two boxes share."""
    width = min(one[2], other[2]) - max(one[0], other[0])
    height = min(one[3], other[3]) - max(one[1], other[1])
    return max(0.0, width) * max(0.0, height)
