"""From result documents to the plain values that the template of the page shows."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from divprism import __version__
from divprism.errors import DataError
from divprism.report.bandwidth_words import sensitivity_note, stability_note
from divprism.report.documents import (
    Document,
    Documents,
    check_details,
    check_result,
    models_of,
    visible_document,
)
from divprism.report.downloads import Download, downloads_of
from divprism.report.fidelity_tables import fidelity_notes
from divprism.report.front_tables import front_notes
from divprism.report.overlap_views import (
    OverlapSection,
    check_overlap,
    overlap_section,
    renamed_overlap,
)
from divprism.report.pairs import Ranking, ranking_of
from divprism.report.repetition_views import (
    BesideSection,
    WorstSection,
    beside_section,
    worst_section,
)
from divprism.report.scales import Scales, scales_of
from divprism.report.scendi_tables import scendi_sentence
from divprism.report.sections import (
    LONGEST_NAME,
    LONGEST_TEXT,
    Card,
    Chart,
    GroupsSection,
    TableView,
    charts,
    factors_chart,
    front_chart,
    groups_section,
    intervals_chart,
    ranking_chart,
    reference_table,
    score_card,
    table_view,
)
from divprism.report.table import Table
from divprism.report.tables import (
    caption,
    comparison_table,
    differences_table,
    interval_remarks,
    results_table,
)
from divprism.report.texts import (
    distinct_names,
    fitted,
    isolated,
    number_of,
    sentence,
    shortened,
    visible,
)
from divprism.report.verdict import Verdict, verdict_of
from divprism.report.words import (
    comparison_sentences,
    convergence_sentence,
    headline,
    length_note,
)
from divprism.scores.spec import SCORES

if TYPE_CHECKING:
    from divprism.report.mixture_views import MixtureSection
    from divprism.report.selection_views import SelectionSection

__all__ = ["PageView", "page_view", "reproduce", "settings_of", "source_of", "warnings_of"]

_LONGEST_TITLE = 110  # letters of the title of the page
_BY_CHANCE = 0.05  # of pairs of equal models that differ clearly, at the default level
_PART_KEYS = {"groups": "groups", "curves": "convergence", "bandwidths": "sweep"}


@dataclass(frozen=True)
class ModelSection:
    """Everything about one model."""

    id: str
    name: str
    title: str
    worst: WorstSection | None
    sentences: tuple[str, ...]
    cards: tuple[Card, ...]
    remarks: tuple[str, ...]
    reference: TableView | None
    reference_notes: tuple[str, ...]
    factors: Chart | None
    groups: GroupsSection | None
    charts: tuple[Chart, ...]
    verdicts: tuple[str, ...]
    absent: tuple[tuple[str, str], ...]
    has_details: bool
    is_folded: bool
    settings: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class ComparisonSection:
    """The table of all models; of a comparison also the ranking and the differences."""

    title: str
    sentences: tuple[str, ...]
    table: TableView
    notes: tuple[str, ...]
    factors: Chart | None
    ranking: Chart | None
    differences: TableView | None
    front: Chart | None = None


@dataclass(frozen=True)
class Step:
    """One step of how to reproduce a result: a sentence, and what to run or keep."""

    text: str
    code: str = ""


@dataclass(frozen=True)
class Warned:
    """A warning as a sentence, and the code by which the documentation lists it."""

    text: str
    code: str


@dataclass(frozen=True)
class PageView:
    """The whole page."""

    title: str
    subtitle: str
    verdict: Verdict
    contents: tuple[tuple[str, str], ...]
    warnings: tuple[Warned, ...]
    comparison: ComparisonSection | None
    overlap: OverlapSection | None
    beside: BesideSection | None
    models: tuple[ModelSection, ...]
    downloads: tuple[Download, ...]
    reproduce: tuple[Step, ...]
    version: str
    selection: "SelectionSection | None" = None
    mixture: "MixtureSection | None" = None


def page_view(documents: Sequence[Document]) -> PageView:
    """Return what the template shows of a result with scores, and of further documents.

    Raises
    ------
    DataError
        If a document is not one that divprism writes, or the documents do not belong together.
    """
    main, parts = _checked(documents)
    models = models_of(main)
    if parts:
        models = _with_parts(models, parts)
    ranking = ranking_of(main, models)
    verdict = verdict_of(models, ranking)
    if main.get("front"):
        on_front = sentence(front_notes(main["front"])[0])
        verdict = replace(verdict, certainty=(*verdict.certainty, on_front))
    scales = scales_of([document.get("details") or {} for document in models.values()])
    sections = []
    for index, (name, document) in enumerate(models.items()):
        # Ids are numbered: a name from the data could equal another id, or break a link.
        section = _model_section(f"m{index}", name, document, scales, ranking is None)
        sections.append(_without_repetition(section, verdict))
    comparison = overlap = beside = None
    if ranking is not None:
        comparison = _comparison_section(main, models, ranking)
        if main.get("overlap") is not None:
            overlap = overlap_section(main["overlap"])
    if main.get("side_by_side") is not None:
        beside = beside_section(main["side_by_side"], len(models))
    warnings = warnings_of(main, models)
    title, subtitle = _titles(models)
    return PageView(
        title=title,
        subtitle=subtitle,
        verdict=verdict,
        contents=tuple(_contents(warnings, comparison, overlap, beside, sections)),
        warnings=warnings,
        comparison=comparison,
        overlap=overlap,
        beside=beside,
        models=tuple(sections),
        downloads=downloads_of(main, models),
        reproduce=tuple(reproduce(models)),
        version=__version__,
    )


def _without_repetition(section: ModelSection, verdict: Verdict) -> ModelSection:
    """Return the section of a model without the sentences that the verdict has."""
    said = {*verdict.certainty, *verdict.repetition}
    sentences = tuple(text for text in section.sentences if text not in said)
    return replace(section, sentences=sentences)


def _checked(documents: Sequence[Document]) -> tuple[Document, dict[str, Document]]:
    """Return the result with scores, and the other documents by the part of details they are."""
    # All texts at once, before a message, a table or a plot can show any of them.
    cleaned = [visible_document(document) for document in documents]
    main: Document | None = None
    others = []
    num_scored = 0
    for document in cleaned:
        if isinstance(document, Mapping) and ("scores" in document or "models" in document):
            main = document
            num_scored += 1
        else:
            others.append(document)
    if main is None or num_scored > 1:
        raise DataError(
            "a report needs one result with scores, that of `evaluate` or `compare`; got "
            f"{num_scored}."
        )
    # Checked before anything reads them: below, keys and types are relied on.
    check_result(main)
    if "ranks" in main and main.get("overlap") is not None:
        check_overlap(main["overlap"], main["models"])
    parts = {}
    for document in others:
        part = _part(document)
        check_details(part, document)
        parts[part] = document
    return _with_readable_names(main), parts


def _part(document: Document) -> str:
    """Return which part of the details a document is, by a key that only this part has."""
    keys: set[str] = set()
    if isinstance(document, Mapping):
        keys = set(document)
        # A sweep has its bandwidths on either side, a level deeper.
        if isinstance(document.get("x"), Mapping):
            keys |= set(document["x"])
    for key, part in _PART_KEYS.items():
        if key in keys:
            return part
    raise DataError(
        "one of the documents has neither scores, nor groups, nor a sweep, nor convergence curves."
    )


def _with_readable_names(document: Document) -> Document:
    """Return a result whose models have names that can be read and that differ."""
    if "models" not in document:
        return document
    given = list(document["models"])
    names = dict(zip(given, distinct_names(given, LONGEST_NAME), strict=True))
    # A single model without a name needs none: "(no name)" is for telling models apart.
    if given == [""]:
        names = {"": ""}
    renamed = dict(document)
    is_comparison = "ranks" in document  # else no other part of it has been checked
    for key in ("models", "ranks", "lengths"):
        if key == "models" or (is_comparison and key in document):
            renamed[key] = {names[model]: value for model, value in document[key].items()}
    if is_comparison and document.get("front") is not None:
        renamed["front"] = _renamed_front(document["front"], names)
    if document.get("side_by_side") is not None:
        renamed["side_by_side"] = _renamed_beside(document["side_by_side"], names)
    if is_comparison and document.get("overlap") is not None:
        renamed["overlap"] = renamed_overlap(document["overlap"], names)
    if is_comparison:
        renamed["differences"] = [
            {
                **difference,
                "first": names[difference["first"]],
                "second": names[difference["second"]],
            }
            for difference in document["differences"]
        ]
    return renamed


def _renamed_front(front: Document, names: Mapping[str, str]) -> Document:
    points = []
    for point in front["points"]:
        others = {
            key: [names[model] for model in point[key]]
            for key in ("dominated_by", "clearly_dominated_by")
        }
        points.append({**point, **others, "model": names[point["model"]]})
    return {**front, "points": points}


def _renamed_beside(beside: Document, names: Mapping[str, str]) -> Document:
    prompts = []
    for shown in beside["prompts"]:
        cells = {names[model]: cell for model, cell in shown["models"].items()}
        prompts.append({**shown, "models": cells})
    return {**beside, "prompts": prompts}


def _with_parts(models: Documents, parts: Documents) -> Documents:
    """Return the result of one model with further documents among its details."""
    if len(models) > 1:
        raise DataError(
            "a report of several models takes no further documents, which do not name their model."
        )
    [(name, document)] = models.items()
    num_scored = document["data"]["n"]
    for part in parts.values():
        # Of a part computed on a random subset, `drawn_from` is the size of the whole.
        num_outputs = part.get("drawn_from") or part.get("n") or part["data"]["n"]
        if num_outputs != num_scored:
            raise DataError(
                f"the scores are of {num_scored:,} outputs, and a further document is of "
                f"{num_outputs:,}: give documents of the same data."
            )
    # A document that was given on purpose replaces the same part of the result.
    details = {**(document.get("details") or {}), **parts}
    return {name: {**document, "details": details}}


def _titles(models: Documents) -> tuple[str, str]:
    """Return the title of the page, and where its numbers come from."""
    first = next(iter(models.values()))
    source = source_of(first)
    if len(models) > 1:
        return f"{len(models)} models", isolated(source)
    title = fitted(first["data"].get("model") or "", _LONGEST_TITLE) or source
    if title == source:
        return title, caption(first)
    return title, f"{isolated(source)}: {caption(first)}"


def source_of(document: Document) -> str:
    """Return the file or folder of a result, to be a title."""
    # Without the folders of the machine: a page is often sent to others.
    path = PurePath(document["data"].get("source") or "outputs")
    return fitted("/".join(path.parts[-2:]), _LONGEST_TITLE)


def _contents(
    warnings: Sequence[Warned],
    comparison: ComparisonSection | None,
    overlap: OverlapSection | None,
    beside: BesideSection | None,
    sections: Sequence[ModelSection],
) -> list[tuple[str, str]]:
    """Return the ids and titles of the sections."""
    contents = [("verdict", "Verdict")]
    if warnings:
        contents.append(("warnings", "Warnings"))
    if comparison is not None:
        contents.append(("comparison", comparison.title))
    if overlap is not None:
        contents.append(("overlap", "Overlap"))
    if beside is not None:
        contents.append(("beside", "Side by side"))
    contents += [(section.id, section.title) for section in sections]
    if len(sections) == 1:
        contents += _parts_of_contents(sections[0])
    return [*contents, ("downloads", "Downloads"), ("reproduce", "How to reproduce")]


def _parts_of_contents(section: ModelSection) -> list[tuple[str, str]]:
    """Return the parts of the section of a single model."""
    parts = []
    if section.worst is not None:
        parts.append((f"{section.id}-worst", "Least diverse prompts"))
    if section.groups is not None:
        parts.append((f"{section.id}-groups", "Groups of prompts"))
    if section.charts:
        parts.append((f"{section.id}-behind", "Behind the numbers"))
    return parts


def warnings_of(main: Document, models: Documents) -> tuple[Warned, ...]:
    """Return the warnings of a result and of its models, each once."""
    # Models that were scored in one run share most warnings; a dict keeps their order.
    warned: dict[Warned, None] = {}
    for document in (main, *models.values()):
        for warning in document.get("warnings", ()):
            text = sentence(shortened(warning["text"], LONGEST_TEXT))
            warned[Warned(text, shortened(warning["code"], LONGEST_NAME))] = None
    return tuple(warned)


def _model_section(
    key: str, name: str, document: Document, scales: Scales, is_only: bool
) -> ModelSection:
    details = document.get("details") or {}
    scores = document["scores"]
    groups = None
    if details.get("groups"):
        groups = groups_section(key, details["groups"])
    worst = None
    if details.get("least_diverse_prompts"):
        worst = worst_section(details["least_diverse_prompts"])
    # Without a name in the plot: it is the heading of the section. Several models share a plot.
    factors = None
    if is_only:
        factors = factors_chart(f"{key}-factors", {"": document})
    absent = details.get("absent") or {}
    return ModelSection(
        id=key,
        name=name,
        title=name or "Scores",
        worst=worst,
        sentences=tuple(headline(document)),
        cards=tuple(score_card(spec, document) for spec in SCORES if spec.name in scores),
        # Not `remarks`: the sentences above have the baseline already.
        remarks=tuple(map(sentence, [*interval_remarks(document), *scendi_sentence(document)])),
        reference=reference_table(document),
        reference_notes=tuple(map(sentence, fidelity_notes(document))),
        factors=factors,
        groups=groups,
        charts=tuple(charts(key, details, scales)),
        verdicts=tuple(_curves_in_words(details.get("convergence"))),
        absent=tuple((shortened(part, LONGEST_NAME), absent[part]) for part in absent),
        has_details=bool(details),
        # Several models with details would make a page too long to find anything in.
        is_folded=bool(name and details),
        settings=tuple(settings_of(document)),
    )


def _curves_in_words(curves: Document | None) -> list[str]:
    """Return for which scores the sample is large enough, then what each curve shows."""
    if not curves:
        return []
    verdicts = [verdict["sentence"] for verdict in curves["verdicts"].values()]
    return [convergence_sentence(curves), *verdicts]


def _comparison_section(main: Document, models: Documents, ranking: Ranking) -> ComparisonSection:
    results = results_table(models, wide=True, ratios=True)
    notes = tuple(map(sentence, _table_notes(main, models)))
    factors = factors_chart("factors", models)
    if "ranks" not in main:
        table = table_view(_with_score_first(results, ranking.score), "Scores of all models")
        sentences = tuple(_size_sentences(models))
        intervals = None
        if ranking.is_comparable:
            intervals = intervals_chart(
                ranking.score, {name: models[name] for name in ranking.order}
            )
        return ComparisonSection("All models", sentences, table, notes, factors, intervals, None)
    compared = _with_score_first(comparison_table(main, wide=True, ratios=True), ranking.score)
    return ComparisonSection(
        title="Comparison",
        sentences=tuple(map(sentence, _comparison_notes(main))),
        table=table_view(compared, "Scores of all models"),
        notes=notes,
        factors=factors,
        ranking=ranking_chart(main),
        differences=table_view(differences_table(main), "Ratios of scores, with intervals"),
        front=front_chart(main),
    )


def _with_score_first(table: Table, score: str) -> Table:
    """Return a table of models with the score of their order beside their names and ranks."""
    # A phone shows two or three columns, and these should be the ones that answer the question.
    keys = [column.key for column in table.columns]
    leading = [keys.index(key) for key in ("model", "rank", score) if key in keys]
    order = leading + [index for index in range(len(keys)) if index not in leading]
    columns = tuple(table.columns[index] for index in order)
    rows = []
    for row in table.rows:
        rows.append(tuple(row[index] for index in order))
    return replace(table, columns=columns, rows=tuple(rows))


def _comparison_notes(main: Document) -> list[str]:
    notes = [*comparison_sentences(main), *stability_note(main)]
    if main.get("front"):
        notes += front_notes(main["front"])[1:]  # the verdict has the first sentence
    num_pairs = len(main["differences"])
    by_chance = round(_BY_CHANCE * num_pairs)
    if by_chance:
        notes.append(
            f"each pair of models is judged alone: among {num_pairs:,} pairs of equal models about "
            f"{by_chance:,} would differ clearly by chance"
        )
    return notes


def _table_notes(main: Document, models: Documents) -> list[str]:
    """Return the notes below the table, those of the default scores: a line each."""
    notes = [*results_table(models, ratios=True).notes, *_order_2_note(models), *length_note(main)]
    if stability_note(main):
        # Over which bandwidths the order holds says more, and is among the sentences.
        sensitivity = sensitivity_note(models.values(), wide=False)
        notes = [note for note in notes if note not in sensitivity]
    return notes


def _order_2_note(models: Documents) -> list[str]:
    """Return what the columns of order 2 are, which only the page shows by default."""
    if all("rke" in document["scores"] for document in models.values()):
        return ["columns of rke: the same scores at order 2, to which rare outputs contribute less"]
    return []


def _size_sentences(models: Documents) -> list[str]:
    """Return a sentence if models were scored on different numbers of outputs."""
    sizes = [document["data"]["n"] for document in models.values()]
    if min(sizes) == max(sizes):
        return []
    return [
        f"Models have from {min(sizes):,} to {number_of(max(sizes), 'output')}, so their scores "
        "are not comparable: more outputs score higher. Compare models on the same prompts, with "
        "the same number of outputs for each."
    ]


def settings_of(document: Document) -> list[tuple[str, str]]:
    """Return the settings, the data, the embedders and the runtime, as names and values."""
    rows: list[tuple[str, Any]] = []
    for name, value in document["settings"].items():
        if isinstance(value, dict):
            value = ", ".join(f"{key}: {part}" for key, part in value.items())
        rows.append((name.replace("_", " "), value))
    for name, value in document["data"].items():
        # Only settings need all digits, to be used again.
        if isinstance(value, float):
            value = f"{value:.6g}"
        rows.append((name.replace("_", " "), value))
    for embedder in document["embedders"]:
        parts = [f"{key}: {value}" for key, value in embedder.items() if value is not None]
        rows.append((f"embedder of {embedder['side']}", ", ".join(parts)))
    rows += document["runtime"].items()
    rows += [("sensitivity", note) for note in sensitivity_note([document], wide=True)]
    shown = []
    for name, value in rows:
        if value is not None:
            # Names too: keys of the settings come from the file, and only values were cleaned.
            shown.append((shortened(name, LONGEST_NAME), shortened(str(value), LONGEST_TEXT)))
    return shown


def reproduce(models: Documents) -> list[Step]:
    """Return the command if there was one, the settings, and the hash of the data."""
    first = next(iter(models.values()))
    settings = {name: value for name, value in first["settings"].items() if value is not None}
    if "scores" in first and first["settings"].get("interval") is None:
        # On the command line, 0 switches intervals off, and absence means the default level.
        settings["interval"] = 0
    steps = []
    runtime = first["runtime"]
    if runtime.get("command"):
        version = runtime.get("divprism", __version__)
        steps.append(Step(f"With divprism {version}:", runtime["command"]))
    use = "keep them in a file and pass it as --config FILE:"
    if "scores" not in first:
        # These commands have fewer flags than there are settings, and take those of a result.
        use = "pass the JSON file of the downloads as --config FILE:"
    steps.append(
        Step(
            f"The settings, with every default resolved. On the command line, {use}",
            # Cleaned here because keys stay as they are in the file.
            visible(json.dumps(settings, indent=1, ensure_ascii=False)),
        )
    )
    # Of several models each has its own hash, listed with its settings.
    data_hash = first["data"].get("hash")
    if data_hash and len(models) == 1:
        steps.append(Step(f"The data are the same if their hash is {data_hash}."))
    return steps
