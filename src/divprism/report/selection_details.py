"""What a page shows of a selection beyond its numbers: prompts, thumbnails and the curve."""

from typing import TYPE_CHECKING, Any

from divprism.analysis.groups.result import describe_row
from divprism.report.documents import Document
from divprism.report.selection_plots import mean_curve
from divprism.report.thumbnails import preview

if TYPE_CHECKING:
    from divprism.analysis.selection import Selection

__all__ = ["MAX_SHOWN", "selection_details"]

MAX_SHOWN = 300
"""Outputs on the page: about 2 MB of it, if they are images."""


def selection_details(selection: "Selection", max_thumbnails: int = MAX_SHOWN) -> dict[str, Any]:
    """Return the document with the prompt and the thumbnail of each of the first choices."""
    document = selection.to_dict()
    items, outputs = selection.items, []
    for count, (position, output) in enumerate(
        zip(selection.positions, document["outputs"], strict=True)
    ):
        shown = dict(output)
        if count < MAX_SHOWN and items.prompts is not None:
            shown["prompt"] = _named(describe_row(items.prompts, position))
        if count < min(MAX_SHOWN, max_thumbnails) and isinstance(items.outputs, tuple):
            shown |= preview(items.outputs[position])
        outputs.append(shown)
    return document | {"outputs": outputs, "curve": mean_curve(selection), "runtime": {}}


def _named(prompt: Document) -> Document | None:
    """Return a prompt that readers can tell from others; None for a vector."""
    if {"text", "file", "id"} & set(prompt):
        return prompt
    return None
