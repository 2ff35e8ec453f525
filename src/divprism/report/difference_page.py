"""One self-contained HTML page of differences or novelty, with examples side by side."""

from dataclasses import dataclass, field
from typing import Any

from divprism.analysis.differences import Differences, Novelty
from divprism.data.items import Item
from divprism.data.samples import Samples
from divprism.report.difference_tables import (
    difference_sentences,
    differences_table,
    groups_of_differences_table,
    novelty_sentences,
    novelty_table,
)
from divprism.report.documents import Document
from divprism.report.page import rendered
from divprism.report.table import Table
from divprism.report.texts import sentence, shortened, visible
from divprism.report.thumbnails import thumbnail
from divprism.report.words import entry_label

__all__ = ["difference_page"]

_LONGEST = 600  # letters of an example
_THUMBNAILS = 240  # images of a page: about 1.5 MB
_GROUPS = 50  # groups of prompts on a page
_COPIES = 40  # near-copies on a page


def difference_page(result: Differences | Novelty) -> str:
    """Return the page of a result; it loads nothing, and nothing from the data can run in it."""
    document = result.to_dict()
    images = _Images()
    if isinstance(result, Novelty):
        view = _novelty_view(result, document, images)
    else:
        view = _differences_view(result, document, images)
    return rendered("differences.html", view=view)


@dataclass
class _Images:
    """The thumbnails that a page may still hold."""

    left: int = _THUMBNAILS
    known: dict[int, str | None] = field(default_factory=dict)

    def of(self, item: Item | None) -> str | None:
        """The thumbnail of an image or a video; None for anything else, or where all are used."""
        if item is None:
            return None
        if id(item) not in self.known:
            if self.left <= 0:
                return None
            self.known[id(item)] = thumbnail(item)
            self.left -= self.known[id(item)] is not None
        return self.known[id(item)]


def _entry(entry: Document | None, side: Any, images: _Images) -> Document | None:
    """An example as the page shows it: a thumbnail with its label, or a text."""
    if entry is None:
        return None
    item = None
    if isinstance(side, tuple):
        item = side[entry["row"]]
    label = entry_label(entry)
    if len(label) > _LONGEST:
        label = f"{label[:_LONGEST].rstrip()}..."
    return {"label": label, "thumbnail": images.of(item)}


def _differences_view(result: Differences, document: Document, images: _Images) -> Document:
    found = document["differences"]
    first, second = found["first"], found["second"]
    sentences = difference_sentences(document)
    tables = [_table_view(differences_table(document), "Modes", sentences)]
    if found["groups"]:
        groups = groups_of_differences_table(document, _GROUPS)
        tables.append(_table_view(groups, "Groups of prompts", sentences))
    modes = []
    for number, mode in enumerate(found["modes"], start=1):
        other = first if mode["model"] == second else second
        lead = (
            f"{_share(mode['share_first'])} of {first}, {_share(mode['share_second'])} of {second}"
        )
        modes.append(_mode_view(mode, number, result.samples, other, lead, images))
    title = f"{shortened(first, 40)} and {shortened(second, 40)}"
    return {
        "title": f"What {title} have more of",
        "sentences": _in_full(sentences),
        "tables": tables,
        "modes": modes,
        "copies": [],
    }


def _novelty_view(result: Novelty, document: Document, images: _Images) -> Document:
    found = document["novelty"]
    modes = []
    for number, mode in enumerate(found["modes"], start=1):
        lead = (
            f"{_share(mode['share_first'])} of the outputs, {_share(mode['share_second'])} of the "
            "reference"
        )
        modes.append(_mode_view(mode, number, result.samples, "reference", lead, images))
    sentences = novelty_sentences(document)
    copies = []
    for copy in found["copies"][:_COPIES]:
        copies.append(
            {
                "similarity": f"{copy['similarity']:.3f}",
                "output": _entry(copy["output"], result.samples["outputs"].outputs, images),
                "item": _entry(copy["item"], result.samples["reference"].outputs, images),
            }
        )
    return {
        "title": "Outputs against a reference",
        "sentences": _in_full(sentences),
        "tables": [_table_view(novelty_table(document), "Modes", sentences)],
        "modes": modes,
        "copies": copies,
    }


def _share(share: float) -> str:
    return f"{share:.1%}"


def _mode_view(
    mode: Document,
    number: int,
    samples: dict[str, Samples],
    other: str,
    lead: str,
    images: _Images,
) -> Document:
    """A mode with its examples, each beside the nearest item of the other sample."""
    own = samples[mode["model"]]
    pairs = []
    for example in mode["examples"]:
        prompt = None
        if example["prompt"] is not None:
            prompt = _entry(example["prompt"], own.prompts, images)
        pairs.append(
            {
                "prompt": prompt,
                "output": _entry(example["output"], own.outputs, images),
                "nearest": _entry(example["nearest"], samples[other].outputs, images),
            }
        )
    clear = "not clear"
    if mode["clear"]:
        clear = "clear"
    return {
        "title": f"Mode {number}: more in {visible(mode['model'])}",
        "lead": f"{visible(lead)}; {clear}",
        "own": visible(mode["model"]),
        "other": visible(other),
        "pairs": pairs,
    }


def _in_full(notes: list[str]) -> list[str]:
    """Notes as sentences, without the characters of names that nobody can see."""
    return [sentence(visible(note)) for note in notes]


def _table_view(table: Table, caption: str, said: list[str]) -> Document:
    """A table as plain texts for the template, which escapes them; without notes already said."""
    rows = []
    for row in table.rows:
        cells = zip(table.columns, row, strict=True)
        rows.append(
            [{"text": column.show(cell), "is_text": column.is_text} for column, cell in cells]
        )
    return {
        "caption": caption,
        "columns": [{"title": visible(c.title), "is_text": c.is_text} for c in table.columns],
        "rows": rows,
        "notes": _in_full([note for note in table.notes if note not in said]),
        "warnings": [visible(str(warning)) for warning in table.warnings],
    }
