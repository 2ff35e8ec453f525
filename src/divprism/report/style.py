"""The look of all plots: colours, fonts and lines, set only while a plot is drawn."""

import io
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from divprism.data.wording import first_line
from divprism.errors import DataError, MissingExtraError

__all__ = ["FAMILY_COLORS", "GRID", "INK", "PAPER", "family_color", "image_bytes", "styled"]

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


# Settings of the program that draws rather than of a plot: they stay those of the user.
_OF_THE_PROGRAM = (
    *("backend", "interactive", "toolbar", "timezone", "webagg.", "tk.", "macosx."),
    *("savefig.directory", "date.epoch", "docstring.", "keymap."),
)


@contextmanager
def styled(**more: Any) -> Iterator[None]:
    """Apply our style inside a `with` block; the settings of the user are the same after it.

    It replaces all settings of plots: a matplotlibrc in the current folder, which may have come
    with the data, is obeyed by matplotlib, and can even call LaTeX.
    """
    try:
        import matplotlib
    except ImportError:
        raise MissingExtraError(
            "Plots need matplotlib, which is not installed: pip install 'divprism[report]'."
        ) from None
    except (ValueError, OSError) as error:  # MPLBACKEND, or a matplotlibrc that is no text
        raise DataError(f"matplotlib cannot be imported: {first_line(error)}.") from None
    with warnings.catch_warnings():
        # Deprecated settings have defaults, too.
        warnings.filterwarnings("ignore", category=matplotlib.MatplotlibDeprecationWarning)
        # A model may have a name in a script that the font lacks; a box in its place is enough.
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        settings: dict[Any, Any] = dict(matplotlib.rcParamsDefault)
        for name in matplotlib.rcParamsDefault:
            if name.startswith(_OF_THE_PROGRAM):
                del settings[name]
        with matplotlib.rc_context(settings | _SETTINGS | more):
            yield


def image_bytes(figure: Any, form: str) -> bytes:
    """Return a figure as a file of a format, such as "png" or "pdf"."""
    image = io.BytesIO()
    with styled():
        figure.savefig(image, format=form, dpi=150, bbox_inches="tight")
    return image.getvalue()
