"""Figures that experiments share: the same method looks the same everywhere."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

# Width and height of one panel, in inches.
_PANEL = (4.2, 3.2)

# Size of the marker of a curve of one point.
_POINT = 10.0

# Height of a row of the legend, and width of an entry with no and with one letter, in inches.
_ROW, _ENTRY, _LETTER = 0.24, 0.6, 0.085


@dataclass(frozen=True)
class Style:
    """How a curve is drawn.

    Curves that hide each other are told apart by width and dashes: a wide solid one can be seen
    below a thin dashed one.
    """

    colour: str
    dashes: str = "-"
    marker: str = "o"
    width: float = 1.5
    size: float = 4.0


_STYLES = {
    "Vendi": Style("#1f77b4", "-", "o", 3.0),
    "truncated": Style("#ff7f0e", "--", "s", 2.2),
    "Nystrom": Style("#2ca02c", ":", "^", 2.0),
    "FKEA": Style("#d62728", "-.", "v"),
    "RKE": Style("#9467bd", "-", "D"),
    "Conditional-Vendi": Style("#008b8b", "-", "o", 2.6),
    "Conditional-RKE": Style("#c51b7d", "-.", "D"),
    "Information-Vendi": Style("#8c564b", "-", "o", 2.6),
    "Information-RKE": Style("#b5a000", "-.", "D"),
    "Cluster-Vendi": Style("#333333", ":", "s", 2.0),
    "Cluster-RKE": Style("#999999", ":", "D", 2.0),
    "recall": Style("#17becf", "--", "P"),
    "coverage": Style("#e377c2", "--", "X"),
    "Exact": Style("#000000", "--", "x", 1.0),
    "Lanczos": Style("#7f7f7f", "-", "P"),
    # Known values, which curves may hide: open squares around them, without a line.
    "true clusters": Style("#000000", "none", "s", size=8.0),
}

# Of what is no method: models, captioners, bandwidths, theorems.
_OTHERS = (
    Style("#4c72b0", "-", "o", 2.4),
    Style("#dd8452", "--", "s", 2.0),
    Style("#55a868", ":", "^", 2.0),
    Style("#c44e52", "-.", "v"),
    Style("#8172b3", "-", "D"),
    Style("#937860", "--", "P"),
    Style("#da8bc3", ":", "X", 2.0),
)


def panels(count: int, columns: int | None = None) -> "tuple[Figure, list[Axes]]":
    """Axes in rows of `columns`, by default in one row."""
    from matplotlib.figure import Figure

    columns = columns or count
    rows = -(-count // columns)
    width, height = _PANEL
    figure = Figure(figsize=(width * columns, height * rows), layout="constrained")
    axes = [figure.add_subplot(rows, columns, index + 1) for index in range(count)]
    return figure, axes


def lines(
    axes: "Axes",
    x: Sequence[float],
    curves: Mapping[str, Sequence[float]],
    *,
    title: str,
    xlabel: str,
    ylabel: str,
    log: bool = False,
    counts: bool = False,
) -> None:
    """Curves by name over common positions; `counts` puts ticks at whole numbers only."""
    from matplotlib.ticker import MaxNLocator

    for name, values in curves.items():
        style = _style(axes, name)
        size, fill, above = style.size, "none", 2.0
        if len(values) == 1:
            # A single point may lie on a curve: large and filled, it is seen around its marker.
            size, fill, above = _POINT, style.colour, 1.5
        axes.plot(
            x,
            values,
            color=style.colour,
            linestyle=style.dashes,
            linewidth=style.width,
            marker=style.marker,
            markersize=size,
            markerfacecolor=fill,
            zorder=above,
            label=name,
        )
    axes.set(title=title, xlabel=xlabel, ylabel=ylabel)
    if log:
        axes.set_yscale("log")
    if counts:
        axes.xaxis.set_major_locator(MaxNLocator(nbins=6, integer=True))
    tidy(axes)


def tidy(axes: "Axes") -> None:
    """Plain numbers at the ticks, and no frame."""
    for axis in (axes.xaxis, axes.yaxis):
        _plain_ticks(axis)
    axes.spines[["top", "right"]].set_visible(False)


def bars(
    axes: "Axes", values: Mapping[str, float], *, title: str, xlabel: str, named: bool = True
) -> None:
    """Horizontal bars by name, the first on top, each with its number.

    Where bars of the same names stand in a row of panels, only the first needs to be `named`.
    """
    names = list(values)
    drawn = axes.barh(names, list(values.values()), color="#4c72b0")
    axes.bar_label(drawn, fmt="%.3g", padding=2, fontsize="small")
    axes.invert_yaxis()
    axes.margins(x=0.15)
    axes.set(title=title, xlabel=xlabel)
    if not named:
        axes.tick_params(axis="y", labelleft=False)
    axes.spines[["top", "right"]].set_visible(False)


SIDE, GAP = 8, 2
"""Pixels of a digit, and between digits."""


def mosaic(rows: Sequence[Sequence[np.ndarray]]) -> np.ndarray:
    """Rows of images of 8 x 8 pixels as one image, with nan in the gaps between them."""
    step = SIDE + GAP
    width = max(len(images) for images in rows)
    canvas = np.full((step * len(rows) + GAP, step * width + GAP), np.nan)
    for row, images in enumerate(rows):
        for column, image in enumerate(images):
            top, left = step * row + GAP, step * column + GAP
            canvas[top : top + SIDE, left : left + SIDE] = image
    return canvas


def middles(count: int) -> list[float]:
    """Where the rows of a mosaic have their middles."""
    return [(SIDE + GAP) * row + GAP + (SIDE - 1) / 2 for row in range(count)]


def show(axes: "Axes", canvas: np.ndarray) -> None:
    """Draw a mosaic: images are grey, and what lies between them is blue."""
    import matplotlib as mpl

    colours = mpl.colormaps["gray"].with_extremes(bad="#9ecae1")
    axes.imshow(canvas, cmap=colours, vmin=-1, vmax=1, interpolation="nearest")


def legend(figure: "Figure") -> None:
    """One legend of all curves, below the panels, so that it covers none of them."""
    drawn = {}
    for axes in figure.axes:
        for handle, name in zip(*axes.get_legend_handles_labels(), strict=True):
            drawn.setdefault(name, handle)
    # Methods in the same order everywhere, and before all else.
    order = [*_STYLES, *drawn]
    names = sorted(drawn, key=lambda name: order.index(_method(name)))
    width, height = figure.get_size_inches()
    entry = _ENTRY + _LETTER * max(len(name) for name in drawn)
    columns = max(1, min(len(drawn), int(width / entry)))
    rows = -(-len(drawn) // columns)
    figure.set_size_inches(width, height + _ROW * rows)
    figure.legend(
        [drawn[name] for name in names],
        names,
        loc="outside lower center",
        ncols=columns,
        frameon=False,
        fontsize="small",
        handlelength=3,
    )


def _method(name: str) -> str:
    """The method of a curve such as "FKEA, t = 100" or "RKE (beyond the paper)"."""
    method = re.split(r",| \(", name)[0]
    if method in _STYLES:
        return method
    return name


def _style(axes: "Axes", name: str) -> Style:
    """The style of a method, or the next one of the figure for anything else."""
    if _method(name) in _STYLES:
        return _STYLES[_method(name)]
    others: list[str] = []
    for each in axes.figure.axes:
        labels = each.get_legend_handles_labels()[1]
        others += [label for label in labels if _method(label) not in (*_STYLES, *others)]
    if name not in others:
        others.append(name)
    return _OTHERS[others.index(name) % len(_OTHERS)]


def plain(value: float, _: int) -> str:
    """A number without an exponent."""
    if abs(value) >= 1:
        return f"{value:,.10g}"
    return np.format_float_positional(round(value, 10), trim="-")


def _plain_ticks(axis: "Axis") -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axis.set_major_formatter(FuncFormatter(plain))
    if axis.get_scale() != "log":
        return
    low, high = axis.get_view_interval()
    parts: tuple[float, ...] = (1, 1.5, 2, 3, 4, 5, 7)
    if high > 300 * low:
        parts = (1,)
    elif high > 8 * low:
        parts = (1, 2, 5)
    axis.set_major_locator(LogLocator(subs=parts))
    axis.set_minor_formatter(NullFormatter())
