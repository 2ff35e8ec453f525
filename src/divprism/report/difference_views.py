"""The page of differences or of novelty, with examples side by side, and its validation."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from divprism.analysis.evaluation import SCHEMA
from divprism.report.checks import (
    all_of,
    boolean,
    list_of,
    maybe,
    number,
    one_of,
    positive,
    record,
    refuse,
    whole,
)
from divprism.report.checks import text as any_text
from divprism.report.difference_tables import (
    difference_sentences,
    differences_table,
    groups_of_differences_table,
    novelty_sentences,
    novelty_table,
)
from divprism.report.documents import EMBEDDERS, ENTRY, NOTICES, SETTINGS, Document, visible_values
from divprism.report.sections import LONGEST_NAME, EntryView, entry_view
from divprism.report.table import Table
from divprism.report.texts import distinct_names, number_of, sentence, shortened

__all__ = [
    "MAX_COPIES",
    "MAX_IMAGES",
    "DifferencesView",
    "check_differences",
    "check_novelty",
    "differences_page",
    "is_of_differences",
    "novelty_page",
]

MAX_IMAGES = 240
"""Images of a page: about 1.5 MB."""
MAX_COPIES = 40
"""Near-copies on a page."""
_LONGEST = 600  # letters of an example
_GROUPS = 50  # groups of prompts on a page
_MODES = 100  # modes on a page
_EXAMPLES = 50  # examples of a mode


@dataclass(frozen=True)
class PlainTable:
    """A table as plain texts for the template, which escapes them."""

    caption: str
    columns: tuple[tuple[str, bool], ...]
    rows: tuple[tuple[tuple[str, bool], ...], ...]
    notes: tuple[str, ...]
    warnings: tuple[str, ...]


@dataclass(frozen=True)
class ExampleView:
    """An output beside the nearest item of the other sample, below its prompt."""

    caption: str
    prompt: EntryView | None
    output: EntryView
    nearest: EntryView | None


@dataclass(frozen=True)
class ModeView:
    """A mode with its examples."""

    title: str
    lead: str
    own: str
    other: str
    examples: tuple[ExampleView, ...]


@dataclass(frozen=True)
class DifferencesView:
    """The whole page."""

    title: str
    sentences: tuple[str, ...]
    tables: tuple[PlainTable, ...]
    modes: tuple[ModeView, ...]
    hidden: str
    copies: tuple[ExampleView, ...]


_SHARE = number(0.0, 1.0 + 1e-6)
_LEVEL = number(0.0, 1.0)
_EXAMPLE = record(
    {"output": ENTRY, "prompt": maybe(ENTRY), "nearest": maybe(ENTRY)},
)


def _check_ends(value: Any, path: str) -> None:
    """Require both ends of an interval or none."""
    if (value["low"] is None) != (value["high"] is None):
        refuse(f"{path}.high", "given with `low`", value["high"])


_MODE = all_of(
    record(
        {
            "model": any_text,
            "eigenvalue": number(),
            "share_first": _SHARE,
            "share_second": _SHARE,
            "share_reference": maybe(_SHARE),
            "held_out": number(),
            "low": maybe(number()),
            "high": maybe(number()),
            "agreement": _SHARE,
            "p_value": maybe(_SHARE),
            "clear": boolean,
            "examples": list_of(_EXAMPLE),
        }
    ),
    _check_ends,
)
_TOTAL = {
    "modes": list_of(_MODE),
    "total": _SHARE,
    "baseline": maybe(_SHARE),
    "p_value": maybe(_SHARE),
    "ratio": positive,
    "num_exchanges": whole(),
    "level": _LEVEL,
    "unseen": _SHARE,
}
_AROUND = {"settings": SETTINGS, "embedders": EMBEDDERS, "warnings": NOTICES}
_GROUP = record(
    {
        "name": any_text,
        "size": whole(),
        "total": _SHARE,
        "excess": number(),
        "p_value": maybe(_SHARE),
        "modes": list_of(_MODE),
    }
)
_DIFFERENCES = record(
    {
        "differences": record(
            {
                **_TOTAL,
                "first": any_text,
                "second": any_text,
                "modes_of": one_of("pairs", "outputs"),
                "unit": one_of("prompt", "pair"),
                "groups": list_of(_GROUP),
            }
        ),
        "data": record({"n": whole(1), "prompts": whole(1), "reference": whole()}),
        **_AROUND,
    }
)
_COPY = record({"similarity": number(), "output": ENTRY, "item": ENTRY})
_NOVELTY = record(
    {
        "novelty": record(
            {**_TOTAL, "ken": number(0.0), "copies": list_of(_COPY), "quantile": _LEVEL}
        ),
        "data": record({"n": whole(1), "reference": whole(1)}),
        **_AROUND,
    }
)


def is_of_differences(document: Document) -> bool:
    """Whether a document is that of `diff`; a comparison has a list under the same key."""
    return isinstance(document.get("differences"), Mapping)


def check_differences(document: Document) -> None:
    """Raise `DataError`, one sentence, unless a document is that of differences."""
    _check_schema(document)
    _DIFFERENCES(document, "result")
    found = document["differences"]
    names = (found["first"], found["second"])
    if names[0] == names[1]:
        refuse("differences.second", "another model than `first`", names[1])
    _check_modes(found, "differences", names)
    for index, group in enumerate(found["groups"]):
        _check_models(group["modes"], f"differences.groups[{index}].modes", names)


def check_novelty(document: Document) -> None:
    """Raise `DataError`, one sentence, unless a document is that of novelty."""
    _check_schema(document)
    _NOVELTY(document, "result")
    _check_modes(document["novelty"], "novelty", ("outputs",))


def _check_schema(document: Document) -> None:
    if document.get("schema") != SCHEMA:
        refuse("schema", str(SCHEMA), document.get("schema"))


def _check_modes(found: Document, path: str, names: Sequence[str]) -> None:
    _check_models(found["modes"], f"{path}.modes", names)
    if (found["baseline"] is None) != (found["p_value"] is None):
        refuse(f"{path}.p_value", "given with `baseline`", found["p_value"])
    # All rows of a table have the same columns.
    if len({mode["share_reference"] is None for mode in found["modes"]}) > 1:
        refuse(f"{path}.modes", "a list with `share_reference` in all or in none", "some")


def _check_models(modes: Sequence[Document], path: str, names: Sequence[str]) -> None:
    for index, mode in enumerate(modes):
        if mode["model"] not in names:
            refuse(f"{path}[{index}].model", "a model of the result", mode["model"])


def differences_page(given: Document) -> DifferencesView:
    """Return what the template shows of differences."""
    check_differences(given)
    document = visible_values(_renamed(given))
    found = document["differences"]
    first, second = found["first"], found["second"]
    sentences = difference_sentences(document)
    tables = [_plain_table(differences_table(_head(document)), "Modes", sentences)]
    if found["groups"]:
        groups = groups_of_differences_table(document, _GROUPS)
        tables.append(_plain_table(groups, "Groups of prompts", sentences))
    images, modes = _Images(), []
    for index, mode in enumerate(found["modes"][:_MODES], start=1):
        other = first if mode["model"] == second else second
        shares = _share(mode["share_first"]), _share(mode["share_second"])
        lead = f"{shares[0]} of {first}, {shares[1]} of {second}"
        modes.append(_mode_view(mode, index, mode["model"], other, lead, images))
    return DifferencesView(
        title=f"What {shortened(first, 40)} and {shortened(second, 40)} have more of",
        sentences=tuple(map(sentence, sentences)),
        tables=tuple(tables),
        modes=tuple(modes),
        hidden=_hidden(found),
        copies=(),
    )


def novelty_page(given: Document) -> DifferencesView:
    """Return what the template shows of novelty."""
    check_novelty(given)
    document = visible_values(given)
    found = document["novelty"]
    sentences = novelty_sentences(document)
    images, modes, copies = _Images(), [], []
    for index, mode in enumerate(found["modes"][:_MODES], start=1):
        shares = _share(mode["share_first"]), _share(mode["share_second"])
        lead = f"{shares[0]} of the outputs, {shares[1]} of the reference"
        modes.append(_mode_view(mode, index, "outputs", "reference", lead, images))
    for copy in found["copies"][:MAX_COPIES]:
        sides = images.of(copy["output"]), images.of(copy["item"])
        copies.append(ExampleView(f"similarity {copy['similarity']:.3f}", None, *sides))
    return DifferencesView(
        title="Outputs against a reference",
        sentences=tuple(map(sentence, sentences)),
        tables=(_plain_table(novelty_table(_head(document)), "Modes", sentences),),
        modes=tuple(modes),
        hidden=_hidden(found),
        copies=tuple(copies),
    )


def _head(document: Document) -> Document:
    """Return a document with the modes that the page shows."""
    key = "differences" if is_of_differences(document) else "novelty"
    found = document[key]
    return {**document, key: {**found, "modes": found["modes"][:_MODES]}}


def _hidden(found: Document) -> str:
    number_hidden = len(found["modes"]) - _MODES
    if number_hidden <= 0:
        return ""
    return f"Not shown: {number_of(number_hidden, 'more mode')}; the JSON has all."


def _renamed(document: Document) -> Document:
    """Return differences between models with names that can be read and that differ."""
    found = document["differences"]
    given = (found["first"], found["second"])
    names = dict(zip(given, distinct_names(given, LONGEST_NAME), strict=True))

    def renamed(modes: Sequence[Document]) -> list[Document]:
        return [{**mode, "model": names[mode["model"]]} for mode in modes]

    groups = [{**group, "modes": renamed(group["modes"])} for group in found["groups"]]
    first, second = names.values()
    changed = {"first": first, "second": second, "modes": renamed(found["modes"])}
    return {**document, "differences": {**found, **changed, "groups": groups}}


def _share(share: float) -> str:
    return f"{share:.1%}"


class _Images:
    """Examples as the page shows them, with images as long as there is room for more."""

    def __init__(self) -> None:
        self.left = MAX_IMAGES

    def of(self, entry: Document) -> EntryView:
        """Return the view of an example."""
        shown = entry_view(entry, _LONGEST)
        if shown.thumbnail is None:
            return shown
        self.left -= 1
        if self.left >= 0:
            return shown
        return entry_view({**entry, "thumbnail": None}, _LONGEST)

    def maybe(self, entry: Document | None) -> EntryView | None:
        """Return the view of an example, if there is one."""
        if entry is None:
            return None
        return self.of(entry)


def _mode_view(
    mode: Document, index: int, own: str, other: str, lead: str, images: _Images
) -> ModeView:
    """Return a mode with its examples, each beside the nearest item of the other sample."""
    examples = []
    for example in mode["examples"][:_EXAMPLES]:
        prompt = images.maybe(example["prompt"])
        output, nearest = images.of(example["output"]), images.maybe(example["nearest"])
        examples.append(ExampleView("", prompt, output, nearest))
    clear = "not clear"
    if mode["clear"]:
        clear = "clear"
    title = f"Mode {index}: more in {own}"
    return ModeView(title, f"{lead}; {clear}", own, other, tuple(examples))


def _plain_table(table: Table, caption: str, said: Sequence[str]) -> PlainTable:
    """Return a table without the notes that were already said."""
    rows = []
    for row in table.rows:
        cells = zip(table.columns, row, strict=True)
        rows.append(tuple((column.show(cell), column.is_text) for column, cell in cells))
    return PlainTable(
        caption=caption,
        columns=tuple((column.title, column.is_text) for column in table.columns),
        rows=tuple(rows),
        notes=tuple(sentence(note) for note in table.notes if note not in said),
        warnings=tuple(map(str, table.warnings)),
    )
