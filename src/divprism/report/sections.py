"""Parts of a page as plain values: tables, cards, charts and the galleries of groups."""

from collections.abc import Mapping
from dataclasses import dataclass

from divprism.data.wording import plain_number
from divprism.report.documents import Document, Documents
from divprism.report.fidelity_tables import fidelity_table
from divprism.report.front_plots import draw_front
from divprism.report.kinds import ends_of, out_of
from divprism.report.plots import (
    curve_families,
    draw_convergence,
    draw_factors,
    draw_ranking,
    draw_spectra,
    draw_sweep,
    draw_values,
)
from divprism.report.scales import Scale, Scales
from divprism.report.svg import inline_svg
from divprism.report.table import Cell, Column, Measured, Table
from divprism.report.tables import groups_table, meaning_in
from divprism.report.texts import (
    isolated,
    number_of,
    sentence,
    shortened,
    significant,
    without_formula,
)
from divprism.report.thumbnails import is_thumbnail, is_waveform
from divprism.report.words import (
    at_equal_size,
    entry_label,
    equal_size_note,
    group_title,
    groups_sentences,
    percent,
)
from divprism.scores.spec import ScoreSpec, score_spec

__all__ = [
    "LONGEST_NAME",
    "LONGEST_TEXT",
    "Card",
    "CellView",
    "Chart",
    "EntryView",
    "GroupsSection",
    "TableView",
    "charts",
    "entry_view",
    "factors_chart",
    "front_chart",
    "groups_section",
    "intervals_chart",
    "ranking_chart",
    "reference_table",
    "score_card",
    "table_view",
]

LONGEST_TEXT = 1200  # letters of an example or a setting
LONGEST_NAME = 70  # letters of the name of a model or a group
_LONGEST_HEADING = 110
_CHART_HEIGHT = 3.3  # inches, beside a width of five
_FRONT_HEIGHT = 4.0


@dataclass(frozen=True)
class CellView:
    """A cell of a table: its text, the value that the browser sorts it by, and what it copies."""

    text: str
    sort: str
    copied: str
    is_text: bool


@dataclass(frozen=True)
class TableView:
    """A table with sortable columns."""

    caption: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[CellView, ...], ...]


def table_view(table: Table, caption: str) -> TableView:
    """Return a table for the page."""
    rows = []
    for row in table.rows:
        pairs = zip(table.columns, row, strict=True)
        rows.append(tuple(_cell_view(column, cell) for column, cell in pairs))
    return TableView(caption, table.columns, tuple(rows))


def _cell_view(column: Column, cell: Cell) -> CellView:
    value = cell
    if isinstance(cell, Measured):
        value = cell.value
    # Sorted by all digits: the text has three of them, and perhaps an error behind.
    sort = ""
    if value is not None:
        sort = str(value)
    text, copied = column.show(cell), sort
    if column.is_text:
        # It may be pasted into a spreadsheet.
        copied = without_formula(text)
    return CellView(text, sort, copied, column.is_text)


def reference_table(document: Document) -> TableView | None:
    """Return the metrics of a model beside real data; None without a reference."""
    table = fidelity_table(document)
    if table is None:
        return None
    return table_view(table, "Beside real data")


@dataclass(frozen=True)
class Card:
    """One score: its value in large and with all digits, its error, and what it means."""

    family: str
    title: str
    value: str
    digits: str
    error: str
    meaning: str


def score_card(spec: ScoreSpec, document: Document) -> Card:
    """Return the card of a score of a model."""
    score = document["scores"][spec.name]
    errors = []
    interval = score["interval"]
    if interval is not None:
        ends = ends_of(interval, spec)
        if ends:
            errors.append(f"{ends} ({percent(interval['level'])})")
    if score["standard_error"]:
        errors.append(f"± {score['standard_error']:.2g} by the estimator")
    value = plain_number(score["value"], 4)
    meaning = meaning_in(spec, document)
    if spec.family == "per_prompt":
        # Beside the value, where the meaning need not repeat it.
        value = out_of(score["value"], document)
        meaning = spec.meaning
    digits = f"{score['value']:.12g}"
    return Card(spec.family, spec.title, value, digits, ", ".join(errors), meaning)


@dataclass(frozen=True)
class Chart:
    """A plot: an SVG element for each panel, and a caption."""

    panels: tuple[str, ...]
    caption: str


def factors_chart(key: str, documents: Documents) -> Chart | None:
    """Return the bars of conditional times information; None without prompts."""
    if not all("conditional_vendi" in document["scores"] for document in documents.values()):
        return None
    panels = inline_svg(
        lambda axes: draw_factors(axes[0], documents),
        panels=1,
        # An inch for axis and legend, half an inch for each bar with its line of text.
        height=1.0 + 0.48 * len(documents),
        label="Bars: Vendi as the product of Conditional and Information",
        name=key,
    )
    caption = (
        "Distinct outputs in all (Vendi) = distinct outputs per kind of prompt (Conditional) x the "
        "factor that the prompts add (Information). On the log axis lengths multiply; the whisker "
        "is the interval of Conditional."
    )
    return Chart(tuple(panels), caption)


def ranking_chart(document: Document) -> Chart:
    """Return the ranking of a comparison."""
    spec = score_spec(document["score"])
    panels = inline_svg(
        lambda axes: draw_ranking(axes[0], document),
        panels=1,
        height=0.7 + 0.42 * len(document["models"]),
        label=f"{spec.title} of each model with its interval",
        name="ranking",
    )
    return Chart(tuple(panels), "The score of each model, with its interval, on one scale.")


def front_chart(document: Document) -> Chart | None:
    """Return quality against diversity of a comparison; None without a quality."""
    front = document.get("front")
    if not front:
        return None
    panels = inline_svg(
        lambda axes: draw_front(axes[0], front),
        panels=1,
        height=_FRONT_HEIGHT,
        label="Quality against diversity, a point for each model",
        name="front",
    )
    caption = (
        "Quality against diversity. The steps are the front: for models on it, no other model is "
        "better in both. Grey dots are clearly below another model, open grey diamonds perhaps. "
        "The bars are intervals of each model alone; differences on the same prompts are more "
        "certain."
    )
    return Chart(tuple(panels), caption)


def intervals_chart(score: str, documents: Documents) -> Chart:
    """Return the score of models that were scored apart, without ranks."""
    spec = score_spec(score)
    values, label = {}, f"{spec.title} of each model"
    caption = "The score of each model, on one scale."
    if any(document["scores"][score]["interval"] for document in documents.values()):
        label += " with its interval"
        caption = "The score of each model, with its interval, on one scale."
    for model, document in documents.items():
        one = document["scores"][score]
        interval = one["interval"] or {"low": one["value"], "high": one["value"]}
        values[model] = (one["value"], interval["low"], interval["high"])
    panels = inline_svg(
        lambda axes: draw_values(axes[0], values, spec),
        panels=1,
        height=0.7 + 0.42 * len(documents),
        label=label,
        name="ranking",
    )
    return Chart(tuple(panels), caption)


def charts(key: str, details: Mapping[str, Document], scales: Scales) -> list[Chart]:
    """Return the charts behind the numbers: spectra, sweep and convergence, where present."""
    drawn = []
    if details.get("spectra"):
        drawn.append(_spectra_chart(f"{key}-spectra", details["spectra"], scales.spectra))
    if details.get("sweep"):
        drawn.append(_sweep_chart(f"{key}-sweep", details["sweep"], scales.sweep))
    if details.get("convergence"):
        curves = details["convergence"]
        drawn.append(_convergence_chart(f"{key}-convergence", curves, scales.convergence))
    return drawn


def _spectra_chart(key: str, document: Document, scale: Scale | None) -> Chart:
    spectra = {}
    for name, spectrum in document.items():
        spectra[name] = (spectrum["values"], spectrum["weights"])
    panels = inline_svg(
        lambda axes: draw_spectra(axes[0], spectra, scale),
        panels=1,
        height=_CHART_HEIGHT,
        label="Spectra on log axes",
        name=key,
    )
    caption = (
        "Spectra: the scores are entropies of these eigenvalues. A steep line means few kinds, a "
        "flat line many."
    )
    return Chart(tuple(panels), caption)


def _sweep_chart(key: str, document: Document, scales: Mapping[str, Scale]) -> Chart:
    sides = [side for side in ("x", "t") if document[side] is not None]
    panels = inline_svg(
        lambda axes: draw_sweep(axes, document, scales),
        panels=len(sides),
        height=_CHART_HEIGHT,
        label="Scores against bandwidths",
        name=key,
    )
    caption = (
        "Scores against the bandwidth of one side, with the bandwidth of the other side fixed. "
        "Trust a finding that holds around the bandwidth chosen."
    )
    return Chart(tuple(panels), caption)


def _convergence_chart(key: str, document: Document, scales: Mapping[str, Scale]) -> Chart:
    panels = inline_svg(
        lambda axes: draw_convergence(axes, document, scales),
        panels=len(curve_families(document["means"])),
        height=_CHART_HEIGHT,
        label="Scores against the number of samples",
        name=key,
    )
    caption = (
        "Scores against the size of the sample; bands are one standard deviation over random "
        "orders."
    )
    return Chart(tuple(panels), caption)


@dataclass(frozen=True)
class EntryView:
    """An example: a text, or an image or a sound with the name of its file.

    `waveform` is the path of an SVG drawing of 64 by 100 units, a bar for each part of a sound.
    """

    label: str
    is_cut: bool
    thumbnail: str | None
    waveform: str | None = None


@dataclass(frozen=True)
class ModeView:
    """Examples of one kind of outputs."""

    title: str
    outputs: tuple[EntryView, ...]


@dataclass(frozen=True)
class GroupView:
    """A group of prompts: its row in the table, and its gallery."""

    id: str
    title: str
    copied: str
    summary: str
    cells: tuple[CellView, ...]
    prompts: tuple[EntryView, ...]
    modes: tuple[ModeView, ...]


@dataclass(frozen=True)
class GroupsSection:
    """The table of groups, the least diverse first, and their galleries."""

    columns: tuple[Column, ...]
    groups: tuple[GroupView, ...]
    introduction: str
    notes: tuple[str, ...]


def groups_section(key: str, document: Document) -> GroupsSection:
    """Return the groups of a model; `key` keeps the ids of two models apart."""
    table = groups_table(document)
    rows = table_view(table, "").rows
    groups = []
    for index, (group, row) in enumerate(zip(document["groups"], rows, strict=True)):
        # The first cell becomes a link to the gallery, with the title of the group.
        groups.append(_group_view(f"{key}-g{index}", group, row[1:]))
    introduction, *notes = groups_sentences(document)
    if at_equal_size(document):
        notes.insert(0, sentence(equal_size_note(document)))
    return GroupsSection(table.columns, tuple(groups), introduction, tuple(notes))


def _group_view(key: str, group: Document, cells: tuple[CellView, ...]) -> GroupView:
    size = number_of(round(group["size"]), "output")
    summary = f"{significant(group['vendi'])} distinct of {size}"
    if group["small"]:
        summary += ", too few to judge"
    modes = []
    for number, mode in enumerate(group["modes"], 1):
        outputs = tuple(entry_view(entry) for entry in mode["outputs"])
        modes.append(ModeView(f"Kind {number} of outputs, {mode['share']:.0%}", outputs))
    title = _gallery_title(group)
    return GroupView(
        id=key,
        title=title,
        copied=without_formula(title),
        summary=summary,
        cells=cells,
        prompts=tuple(entry_view(entry) for entry in group["prompts"]),
        modes=tuple(modes),
    )


def _gallery_title(group: Document) -> str:
    """Return the typical prompt of a group, after the name of the group where it differs."""
    typical, name = group_title(group), group["name"]
    title = isolated(shortened(typical, _LONGEST_HEADING))
    if name and name != typical:
        # Each part is isolated: a name from right to left would take the colon to its other side.
        return f"{isolated(shortened(name, LONGEST_NAME))}: {title}"
    return title


def entry_view(entry: Document, longest: int = LONGEST_TEXT) -> EntryView:
    """Return an example, cut to `longest` letters."""
    label = entry_label(entry)
    image = entry.get("thumbnail")
    # The document comes from a file: only a JPEG of ours goes into the page.
    if not is_thumbnail(image):
        image = None
    bars = None
    if is_waveform(entry.get("waveform")):
        bars = _bars(entry["waveform"])
    return EntryView(label[:longest], len(label) > longest, image, bars)


def _bars(heights: list[int]) -> str:
    """Return vertical lines around the middle as the path of an SVG drawing.

    >>> _bars([100, 0])
    'M0.5 0v100M1.5 49v2'
    """
    lines = []
    for position, height in enumerate(heights):
        # Silence is a thin line, not a gap.
        half = max(1, height // 2)
        lines.append(f"M{position}.5 {50 - half}v{2 * half}")
    return "".join(lines)
