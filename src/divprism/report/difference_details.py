"""What a page of differences or novelty shows beyond its numbers: previews of its examples."""

from typing import Any

from divprism.analysis.differences import Differences, Novelty
from divprism.data.items import Item
from divprism.data.samples import Samples
from divprism.report.difference_views import MAX_COPIES, MAX_IMAGES
from divprism.report.documents import Document
from divprism.report.thumbnails import preview

__all__ = ["difference_details"]


def difference_details(
    result: Differences | Novelty, max_thumbnails: int = MAX_IMAGES
) -> dict[str, Any]:
    """Return the document with previews of at most `max_thumbnails` examples, first ones first."""
    document = result.to_dict()
    previews = _Previews(max_thumbnails)
    if isinstance(result, Novelty):
        found = document["novelty"]
        nearest = {"outputs": result.samples["reference"]}
    else:
        found = document["differences"]
        first, second = result.first, result.second
        nearest = {first: result.samples[second], second: result.samples[first]}
    # In the order of the page.
    for copy in found.get("copies", ())[:MAX_COPIES]:
        previews.add(copy["output"], result.samples["outputs"].outputs)
        previews.add(copy["item"], result.samples["reference"].outputs)
    for mode in found["modes"]:
        own, others = result.samples[mode["model"]], nearest[mode["model"]]
        for example in mode["examples"]:
            _add_example(example, own, others, previews)
    return document | {"runtime": {}}


def _add_example(example: Document, own: Samples, others: Samples, previews: "_Previews") -> None:
    previews.add(example["prompt"], own.prompts)
    previews.add(example["output"], own.outputs)
    previews.add(example["nearest"], others.outputs)


class _Previews:
    """The previews that a page may still hold."""

    def __init__(self, most: int) -> None:
        self.left = most
        self.known: dict[int, dict[str, Any]] = {}

    def add(self, entry: dict[str, Any] | None, side: Any) -> None:
        """Add the preview of an example to its entry, if it is a file or an image."""
        # Only items that were files or images are kept as a tuple; arrays have no images.
        if entry is None or not isinstance(side, tuple) or self.left <= 0:
            return
        item: Item = side[entry["row"]]
        if id(item) not in self.known:
            self.known[id(item)] = preview(item)
        drawn = self.known[id(item)]
        entry |= drawn
        self.left -= bool(drawn)
