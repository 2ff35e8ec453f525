"""The plot of quality against diversity: models with intervals, and the front as steps."""

from collections.abc import Sequence
from itertools import pairwise
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
_DOT = 3.4  # points from the centre of a dot to its edge
_LETTERS = 22  # of a name beside its point
_MOST_LABELS = 25  # models that are named; beyond, only those on the front
# Where a label may stand around its point: distances in points, and directions in turns.
_DISTANCES = (5.0, 14.0, 26.0, 40.0)
_DIRECTIONS = (0.125, 0.375, 0.875, 0.625, 0.0, 0.5, 0.25, 0.75)
_NEAR = _DISTANCES[0]  # up to here a label needs no line to its point
# What it costs to cover a square point of a dot or a label, and of a thin line; and to be a point
# further away.
_ON_DOT, _ON_LINE, _AWAY = 20.0, 0.5, 1.0

Box = tuple[float, float, float, float]
Weighted = tuple[float, Box]


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
            shade = color
            if point["standing"] != "front":
                shade = family_color("cluster")  # grey
            marker, face = "o", shade
            if point["standing"] == "open":
                marker, face = "D", "none"
            ax.errorbar(
                point["quality"],
                point["diversity"],
                xerr=_reach(point, "quality"),
                yerr=_reach(point, "diversity"),
                fmt=marker,
                markerfacecolor=face,
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
    # Without moving the limits that the data have taken.
    limits = {"xlim": ax.get_xlim(), "ylim": ax.get_ylim()}
    x, y = zip(*_steps(ax, points), strict=True)
    ax.step(x, y, where="post", color=color, linewidth=1.2, alpha=0.6, zorder=2)
    ax.set(**limits)


def _steps(ax: "Axes", points: Sequence[Document]) -> list[tuple[float, float]]:
    """The start of each step, from the left edge of the axes to the bottom edge."""
    front = [point for point in points if point["standing"] == "front"]
    front.sort(key=lambda point: point["quality"])
    starts = [ax.get_xlim()[0], *(point["quality"] for point in front)]
    levels = [*(point["diversity"] for point in front), ax.get_ylim()[0]]
    return list(zip(starts, levels, strict=True))


def _name_points(ax: "Axes", points: Sequence[Document]) -> None:
    """Write the name of each model beside its dot, where no other name or dot is."""
    named = list(points)
    if len(named) > _MOST_LABELS:
        named = [point for point in named if point["standing"] == "front"][:_MOST_LABELS]
    names = distinct_names([point["model"] for point in named], _LETTERS)
    figure: Any = ax.figure  # by its type it may also be a part of a figure, which cannot draw
    # The layout decides where the axes are, and so where data are on the page.
    figure.draw_without_rendering()
    scale = 72 / figure.dpi
    taken = _drawn(ax, points, scale)
    frame = ax.get_window_extent()
    inside = (frame.x0 * scale, frame.y0 * scale, frame.x1 * scale, frame.y1 * scale)
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
        centre = ax.transData.transform((point["quality"], point["diversity"])) * scale
        offset, box = _free_place(centre, size, taken, inside)
        taken.append((_ON_DOT, box))
        _annotate(ax, point, name, offset)


def _drawn(ax: "Axes", points: Sequence[Document], scale: float) -> list[Weighted]:
    """The boxes of dots, error bars and steps, in points, and what it costs to cover them."""
    corners = []
    for point in points:
        x, y = point["quality"], point["diversity"]
        corners.append(((x, y), (x, y), _DOT))
        if point["quality_interval"] is not None:
            low, high = point["quality_interval"]
            corners.append(((low, y), (high, y), 1.0))
        if point["diversity_interval"] is not None:
            low, high = point["diversity_interval"]
            corners.append(((x, low), (x, high), 1.0))
    # Each step leads to the right, and then down to the next point of the front.
    for (x, y), (following, below) in pairwise(_steps(ax, points)):
        corners.append(((x, y), (following, y), 1.0))
        corners.append(((following, below), (following, y), 1.0))
    boxes = []
    for first, second, margin in corners:
        x0, y0 = ax.transData.transform(first) * scale
        x1, y1 = ax.transData.transform(second) * scale
        box = (x0 - margin, y0 - margin, x1 + margin, y1 + margin)
        price = _ON_LINE
        if margin == _DOT:
            price = _ON_DOT
        boxes.append((price, box))
    return boxes


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
    centre: np.ndarray, size: tuple[float, float], taken: Sequence[Weighted], inside: Box
) -> tuple[np.ndarray, Box]:
    """The offset of a label and its box: near its point, and covering little else."""
    width, height = size
    best: tuple[float, np.ndarray, Box] | None = None
    for distance in _DISTANCES:
        for turn in _DIRECTIONS:
            across, up = np.cos(2 * np.pi * turn), np.sin(2 * np.pi * turn)
            # The corner, or the middle of the side, that faces the point is at this distance.
            x = across * distance + (_side(across) - 1) * width / 2
            y = up * distance + (_side(up) - 1) * height / 2
            box = (centre[0] + x, centre[1] + y, centre[0] + x + width, centre[1] + y + height)
            cost = _AWAY * distance + sum(price * _overlap(box, other) for price, other in taken)
            cost += _ON_DOT * (width * height - _overlap(box, inside))
            if best is None or cost < best[0] - 1e-9:
                best = cost, np.array([x, y]), box
    assert best is not None
    return best[1], best[2]


def _side(part: float) -> float:
    """The sign of a part of a direction, 0 where it is rounding."""
    return float(np.sign(round(part, 6)))


def _overlap(one: Box, other: Box) -> float:
    """The area that two boxes share."""
    width = min(one[2], other[2]) - max(one[0], other[0])
    height = min(one[3], other[3]) - max(one[1], other[1])
    return max(0.0, width) * max(0.0, height)
