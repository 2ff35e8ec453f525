"""Plots as SVG elements inside a page: their colours follow the page, and their text is text."""

import io
import re
from collections.abc import Callable
from html import escape
from typing import TYPE_CHECKING, Any

from divprism.report.style import FAMILY_COLORS, GRID, INK, PAPER, styled
from divprism.report.texts import visible

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["inline_svg"]

_WIDTH = 5.0  # inches: narrow enough that labels stay readable when a phone shrinks the plot
_PAGE_COLORS = {**FAMILY_COLORS, "grid": GRID, "paper": PAPER}


def inline_svg(
    draw: "Callable[[list[Axes]], object]", panels: int, height: float, label: str, name: str
) -> list[str]:
    """Return what `draw(axes)` draws as one SVG element for each of its panels.

    Parameters
    ----------
    draw : callable
        Receives a list of `panels` axes.
    panels : int
        Number of axes, each a figure of its own, so that a page can wrap them.
    height : float
        Height of each panel in inches.
    label : str
        What the plot shows, for screen readers.
    name : str
        Name of the plot, unique within its page: it keeps the ids of two plots apart.
    """
    with styled():
        from matplotlib.figure import Figure

        # Not from pyplot: a page must not leave figures open in a notebook.
        figures = [Figure(figsize=(_WIDTH, height), layout="constrained") for _ in range(panels)]
        axes = [figure.subplots() for figure in figures]
        draw(axes)
        elements = []
        for index, (figure, ax) in enumerate(zip(figures, axes, strict=True)):
            panel_label = label
            if panels > 1:
                panel_label = f"{label}: {ax.get_title() or ax.get_xlabel()}"
            elements.append(_as_element(figure, panel_label, f"{name}-{index}"))
        return elements


def _as_element(figure: "Figure", label: str, name: str) -> str:
    from matplotlib.backends.backend_svg import FigureCanvasSVG

    buffer = io.StringIO()
    # Transparent, because on the dark scheme a white ground would be a bright box.
    for patch in (figure.patch, *(ax.patch for ax in figure.axes)):
        patch.set(facecolor="none", edgecolor="none")
    # The salt makes ids reproducible; without a date the same result gives the same bytes.
    # As text, letters can be searched, selected and read aloud; as paths they cannot.
    with styled(**{"svg.fonttype": "none", "svg.hashsalt": name, "font.family": ["sans-serif"]}):
        # Not by `savefig`, which draws everything twice: once for the layout alone.
        canvas: Any = FigureCanvasSVG(figure)
        canvas.print_svg(buffer, metadata={"Date": None, "Creator": None})
    text = buffer.getvalue()
    # An XML declaration and a doctype are not allowed inside of HTML.
    text = text[text.index("<svg ") + len("<svg ") :]
    # The global style of matplotlib, and its metadata, would repeat in every plot.
    text = re.sub(
        r"<metadata>.*?</metadata>|<defs>\s*<style.*?</style>\s*</defs>",
        "",
        text,
        count=2,
        flags=re.DOTALL,
    )
    # matplotlib numbers the groups of every figure from one; nothing refers to these ids.
    text = re.sub(r'<g id="[\w.]+_\d+"(/?)>', r"<g\1>", text)
    # Only tags are changed: in texts between them, < and > are escaped.
    text = re.sub(r"<[^<>]+>", _follow_page, text)
    # As an image with a label: screen readers would otherwise read out every tick.
    return f'<svg role="img" aria-label="{escape(visible(label))}" class="plot" {text}'


def _follow_page(tag: re.Match[str]) -> str:
    """Return a tag with the font and the colours of the page in place of those of matplotlib."""
    # matplotlib lists fonts of the machine that draws; the reader's may have none of them.
    text = re.sub(r"font: ([^;\"]*?)'[^;\"]*", r"font: \1sans-serif", tag[0])
    for name, color in _PAGE_COLORS.items():
        text = text.replace(color, f"var(--{name})")
    # The colour of the text around the plot: dark on light, light on dark, black in print.
    return text.replace(INK, "currentColor")
