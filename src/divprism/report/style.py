"""The look of all plots: colours, fonts and lines, set only while a plot is drawn."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from divprism.errors import MissingExtraError

__all__ = ["FAMILY_COLORS", "GRID", "INK", "PAPER", "family_color", "styled"]

# PAPER is not quite white: `svg` finds colours by their spelling, and #ffffff is not only ours.
INK, GRID, PAPER = "#333333", "#dddddd", "#fffffe"
# From the palette of Okabe and Ito, which people with colour blindness can tell apart; purple and
# grey are added for the side of the prompts and for clusters.
FAMILY_COLORS = {
    "vendi": "#0072b2",
    "conditional": "#d55e00",
    "information": "#009e73",
    "prompts": "#8e6bb0",
    "per_prompt": "#cc79a7",
    "cluster": "#999999",
}
"""Colour by family of scores (`ScoreSpec.family`); page.css has a variable of each name."""


def family_color(family: str) -> str:
    """The colour of a family of scores; that of the text for one without a colour of its own."""
    return FAMILY_COLORS.get(family, INK)


_SETTINGS: dict[Any, Any] = {
    "axes.edgecolor": INK,
    # By default the grid is drawn over bars.
    "axes.axisbelow": True,
    "axes.grid": True,
    "axes.labelcolor": INK,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlecolor": INK,
    "font.size": 10.0,
    "grid.color": GRID,
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "text.color": INK,
    # Names come from the data: "$x" is a name, not the start of a formula.
    "text.parse_math": False,
    "xtick.color": INK,
    "ytick.color": INK,
}


@contextmanager
def styled(**more: Any) -> Iterator[None]:
    """Apply our style inside a `with` block; the settings of the user are the same after it."""
    try:
        import matplotlib
    except ImportError:
        raise MissingExtraError(
            "Plots need matplotlib, which is not installed: pip install 'divprism[report]'."
        ) from None
    with matplotlib.rc_context(_SETTINGS | more), warnings.catch_warnings():
        # A model may have a name in a script that the font lacks; a box in its place is enough.
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        yield
