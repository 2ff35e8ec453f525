"""Figures that experiments share."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Width and height of one panel, in inches.
_PANEL = (4.2, 3.2)


def panels(count: int) -> "tuple[Figure, list[Axes]]":
    """A row of axes."""
    from matplotlib.figure import Figure

    width, height = _PANEL
    figure = Figure(figsize=(width * count, height), layout="constrained")
    axes = [figure.add_subplot(1, count, index + 1) for index in range(count)]
    return figure, axes


def lines(
    axes: "Axes",
    x: Sequence[float],
    curves: Mapping[str, Sequence[float]],
    *,
    title: str,
    xlabel: str,
    ylabel: str = "",
    log: bool = False,
) -> None:
    """Curves by name over common positions."""
    for name, values in curves.items():
        axes.plot(x, values, marker="o", markersize=3, label=name)
    axes.set(title=title, xlabel=xlabel, ylabel=ylabel)
    if log:
        axes.set_yscale("log")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize="small")
