"""Results in a notebook: bars that split the diversity of each model, above the table."""

import math
from collections.abc import Mapping
from html import escape
from typing import Any

from divprism.report.style import family_color
from divprism.report.table import Table
from divprism.report.texts import shortened, significant, visible

__all__ = ["with_bars"]

Document = Mapping[str, Any]

_LONGEST_NAME = 40
_MAX_BARS = 20  # more models would hide the table
# In the order of the plots on a page.
_PARTS = (
    ("conditional_vendi", family_color("conditional")),
    ("information_vendi", family_color("information")),
)


def with_bars(table: Table, documents: Mapping[str, Document]) -> str:
    """Return a table as HTML, below a bar for each model that splits its vendi.

    Parameters
    ----------
    table : Table
        What the notebook shows.
    documents : mapping of str to dict
        The result document of each model. Results without prompts have nothing to split, and get no
        bars.
    """
    splits = {}
    for model, document in documents.items():
        split = _split(document)
        if split is not None:
            splits[model] = split
    if not splits:
        return table.to_html()
    return _bars(splits) + table.to_html()


def _split(document: Document) -> dict[str, float] | None:
    """Return vendi and its two factors, or None where one of them is missing."""
    scores = document["scores"]
    names = ("vendi", *(name for name, _ in _PARTS))
    if any(name not in scores for name in names):
        return None
    return {name: float(scores[name]["value"]) for name in names}


def _bars(splits: Mapping[str, Mapping[str, float]]) -> str:
    # One scale for all models: the widest bar is that of the largest product.
    widths = []
    for split in splits.values():
        widths.append(sum(_width(split[name]) for name, _ in _PARTS))
    widest = max(widths)
    shown = dict(list(splits.items())[:_MAX_BARS])
    lines = ['<div style="max-width: 60em; margin-bottom: 0.5em">', _legend()]
    lines += [_bar(model, split, widest or 1.0) for model, split in shown.items()]
    if len(shown) < len(splits):
        lines.append(f"<div>and {len(splits) - len(shown)} more</div>")
    lines.append("</div>")
    return "\n".join(lines) + "\n"


def _width(factor: float) -> float:
    # Factors multiply, so their logarithms add up to the length of the bar. At other orders than 1
    # information may be slightly below 1, which no bar can show.
    return max(math.log(factor), 0.0)


def _legend() -> str:
    swatch = '<span style="background: {}; padding: 0 0.6em; margin: 0 0.3em 0 0"></span>{}'
    entries = [
        swatch.format(color, words)
        for (_, color), words in zip(_PARTS, ("conditional", "information"), strict=True)
    ]
    return f'<div style="font-size: 90%">vendi = {" &times; ".join(entries)}</div>'


def _bar(model: str, split: Mapping[str, float], widest: float) -> str:
    name = escape(shortened(visible(model), _LONGEST_NAME))
    conditional, information = (significant(split[part]) for part, _ in _PARTS)
    words = f"vendi {significant(split['vendi'])} = {conditional} x {information}"
    spans = []
    for part, color in _PARTS:
        share = 70 * _width(split[part]) / widest  # percent of the line; the rest is for the number
        style = f"display: inline-block; height: 1em; width: {share:.2f}%; background: {color}"
        spans.append(f'<span style="{style}"></span>')
    label = ""
    if name:
        label = f'<div style="font-size: 90%">{name}</div>'
    bar = f'<div role="img" aria-label="{words}">{"".join(spans)} {words}</div>'
    return f"{label}{bar}"
