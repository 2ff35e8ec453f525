"""The page of a selection, and the validation of its document."""

from collections.abc import Sequence
from dataclasses import dataclass

from divprism import __version__
from divprism.analysis.evaluation import SCHEMA
from divprism.report.checks import (
    all_of,
    list_of,
    mapping_of,
    maybe,
    number,
    positive,
    record,
    refuse,
    whole,
)
from divprism.report.checks import text as any_text
from divprism.report.documents import NOTICES, SETTINGS, Document
from divprism.report.downloads import csv_file, json_file
from divprism.report.sections import (
    LONGEST_NAME,
    Chart,
    EntryView,
    TableView,
    entry_view,
    table_view,
)
from divprism.report.selection_details import MAX_SHOWN
from divprism.report.selection_plots import draw_selection
from divprism.report.selection_tables import selection_records, selection_table
from divprism.report.svg import inline_svg
from divprism.report.texts import isolated, number_of, sentence, shortened, significant
from divprism.report.verdict import Verdict
from divprism.report.view import PageView, reproduce, settings_of, source_of, warnings_of
from divprism.scores.spec import is_score, score_spec

__all__ = ["SelectionSection", "check_selection", "selection_page"]

_LONGEST_OUTPUT = 600  # letters of an output
_DROPPED = ("thumbnail", "waveform", "prompt")  # of outputs, from the download


@dataclass(frozen=True)
class ChosenView:
    """A chosen output: which choice it was, what it added, and its model."""

    title: str
    entry: EntryView


@dataclass(frozen=True)
class PromptView:
    """The chosen outputs of a prompt."""

    id: str
    prompt: EntryView | None
    summary: str
    outputs: tuple[ChosenView, ...]


@dataclass(frozen=True)
class SelectionSection:
    """A selection: its score beside random subsets and all, and what was chosen."""

    scores: TableView
    notes: tuple[str, ...]
    introduction: str
    prompts: tuple[PromptView, ...]
    choices: TableView
    chart: Chart | None
    settings: tuple[tuple[str, str], ...]


_ENTRY = record(
    {},
    {
        "text": maybe(any_text),
        "file": maybe(any_text),
        "where": maybe(any_text),
        "id": maybe(any_text),
        "model": maybe(any_text),
    },
)
_OUTPUT = all_of(_ENTRY, record({}, {"prompt": maybe(_ENTRY)}))
_RANDOM = record({"mean": positive, "low": positive, "high": positive, "num_draws": whole(1)})
_COUNTS = list_of(record({"chosen": whole(), "of": whole()}))
_SELECTION = record(
    {
        "score": any_text,
        "per": maybe(any_text),
        "k": maybe(whole(1)),
        "indices": list_of(whole(), 1),
        "gains": list_of(number()),
        "scores_after": list_of(positive),
        "score_of_subset": maybe(positive),
        "score_of_all": maybe(positive),
        "random": maybe(_RANDOM),
        "outputs": list_of(_OUTPUT, 1),
        "counts": mapping_of(maybe(_COUNTS)),
        "quality": maybe(record({"subset": number(), "all": number()})),
        "near_copies": maybe(whole()),
        "data": record({"n": whole(1), "chosen": whole(1)}, {"source": maybe(any_text)}),
        "settings": SETTINGS,
        "warnings": NOTICES,
    },
    {
        "curve": list_of(positive),
        "runtime": record({}, {"command": maybe(any_text)}),
        "embedders": list_of(record({"side": any_text, "id": any_text})),
    },
)


def check_selection(document: Document) -> None:
    """Raise `DataError`, one sentence, unless a document is that of a selection."""
    if document.get("schema") != SCHEMA:
        refuse("schema", str(SCHEMA), document.get("schema"))
    _SELECTION(document, "selection")
    if not is_score(document["score"]):
        refuse("score", "a score", document["score"])
    count = len(document["indices"])
    if len(document["outputs"]) != count:
        refuse("outputs", f"a list of {count:,}", len(document["outputs"]))
    for key in ("gains", "scores_after"):
        # Empty where nothing but near-copies was dropped.
        if len(document[key]) not in (0, count):
            refuse(key, f"a list of {count:,}", len(document[key]))
    random = document["random"]
    if random is not None and not random["low"] <= random["mean"] <= random["high"]:
        refuse("random.mean", "between its ends", random["mean"])
    if len(document["gains"]) != len(document["scores_after"]):
        refuse("gains", "given with `scores_after`", len(document["gains"]))


def selection_page(document: Document) -> PageView:
    """Return what the template shows of a selection."""
    check_selection(document)
    # A file of `--format json` has neither of these where there were none.
    full = {"embedders": [], "runtime": {}, **document}
    table = selection_table(document)
    warnings = warnings_of(document, {})
    contents = [("verdict", "Verdict")]
    if warnings:
        contents.append(("warnings", "Warnings"))
    contents += [("scores", "Scores"), ("chosen", "Chosen outputs")]
    contents += [("downloads", "Downloads"), ("reproduce", "How to reproduce")]
    prompts = _prompts(document)
    section = SelectionSection(
        scores=table_view(table, "Chosen, random and all outputs"),
        notes=tuple(map(sentence, table.notes)),
        introduction=_introduction(document, prompts),
        prompts=prompts,
        choices=table_view(selection_records(_head(document)), "Outputs in order of choice"),
        chart=_chart(document),
        settings=tuple(settings_of(full)),
    )
    records = selection_records(document)
    return PageView(
        title=source_of(document),
        subtitle=table.title,
        verdict=_verdict(document),
        contents=tuple(contents),
        warnings=warnings,
        comparison=None,
        overlap=None,
        beside=None,
        models=(),
        downloads=(
            csv_file("All chosen outputs in order of choice", "chosen.csv", records),
            json_file("Rows, scores and settings", "selection.json", _slim(document)),
        ),
        reproduce=tuple(reproduce({"": full})),
        version=__version__,
        selection=section,
    )


def _verdict(document: Document) -> Verdict:
    """Return what the subset scores beside random subsets and all outputs."""
    spec = score_spec(document["score"])
    data = document["data"]
    chosen = number_of(data["chosen"], "output")
    score, random = document["score_of_subset"], document["random"]
    what = f"{data['chosen']:,} of {number_of(data['n'], 'output')}"
    if document["k"] is None or score is None:
        return Verdict(f"{what} are left without near-copies.", (), "", (), ())
    if random is None:
        answer = f"The {chosen} chosen reach {spec.title} {significant(score)}."
        return Verdict(answer, tuple(_beside_all(document)), "", (), ())
    answer = (
        f"The {chosen} chosen reach {spec.title} {significant(score)}, "
        f"{score / random['mean']:.2f} times the {significant(random['mean'])} of random subsets"
        f"{_mean_over(document)}."
    )
    within = f"between {significant(random['low'])} and {significant(random['high'])}"
    certainty = [
        f"95 of 100 random subsets of this size score {within}, {_standing(score, random)}"
    ]
    return Verdict(answer, (*certainty, *_beside_all(document)), "", (), ())


def _mean_over(document: Document) -> str:
    """Return which mean of scores is meant, where a subset is chosen from each group."""
    if document["per"] is None:
        return ""
    return f" (mean over {document['per']}s)"


def _standing(score: float, random: Document) -> str:
    if score > random["high"]:
        return "so the choice is more diverse than chance."
    if score < random["low"]:
        return "so the choice is less diverse than chance."
    return "and so does the choice: chance would do as well."


def _beside_all(document: Document) -> list[str]:
    if document["score_of_all"] is None:
        return []
    total, score = number_of(document["data"]["n"], "output"), document["score_of_all"]
    together = " together"
    if document["per"] is not None:
        together = ""
    reached = f"All {total}{together} reach {significant(score)}{_mean_over(document)}"
    if score > document["score_of_subset"]:
        return [f"{reached}: larger sets usually score higher."]
    return [f"{reached}, less than the subset, in which no kind outweighs the others as much."]


def _chart(document: Document) -> Chart | None:
    """Return the score after each choice; None without one order of choice."""
    curve = document.get("curve")
    if curve is None and document["per"] is None:
        curve = document["scores_after"]
    if not curve or len(curve) < 2:
        return None
    panels = inline_svg(
        lambda axes: draw_selection(axes[0], document, curve),
        panels=1,
        height=3.0,
        label="The score after each choice, beside random subsets",
        name="selection",
    )
    caption = "The score after each choice."
    if document["per"] is not None:
        caption = f"The score after each choice, the mean over {document['per']}s."
    if document["random"] is not None:
        caption += " The bar is where 95 of 100 random subsets of the final size lie."
    return Chart(tuple(panels), caption)


def _head(document: Document) -> Document:
    """Return the first choices, which the page shows."""
    keys = ("indices", "gains", "scores_after", "outputs")
    return {**document, **{key: document[key][:MAX_SHOWN] for key in keys}}


def _slim(document: Document) -> Document:
    """Return the document without previews, which would double the page."""
    outputs = []
    for output in document["outputs"]:
        outputs.append({key: value for key, value in output.items() if key not in _DROPPED})
    kept = {key: value for key, value in document.items() if key not in ("curve", "runtime")}
    return {**kept, "outputs": outputs}


def _introduction(document: Document, prompts: Sequence[PromptView]) -> str:
    count = len(document["indices"])
    text = "Numbered in order of choice; in brackets what the choice added to the score."
    if any(shown.prompt is not None for shown in prompts):
        text = f"By prompt. {text}"
    if count > MAX_SHOWN:
        text += f" The first {MAX_SHOWN:,} of {count:,}; the downloads have all."
    return text


def _prompts(document: Document) -> tuple[PromptView, ...]:
    """Return the first choices by prompt, the prompt that was chosen from first on top."""
    groups: dict[tuple[str, ...], list[int]] = {}
    for position, output in enumerate(document["outputs"][:MAX_SHOWN]):
        prompt = output.get("prompt") or {}
        key = tuple(str(prompt.get(name) or "") for name in ("text", "file", "id"))
        groups.setdefault(key, []).append(position)
    views = []
    for index, positions in enumerate(groups.values()):
        first = document["outputs"][positions[0]].get("prompt")
        prompt = None
        if first:
            prompt = entry_view({"row": 0, **first}, _LONGEST_OUTPUT)
        outputs = tuple(_chosen(document, position) for position in positions)
        summary = f"{number_of(len(positions), 'output')} chosen"
        views.append(PromptView(f"p{index}", prompt, summary, outputs))
    return tuple(views)


def _chosen(document: Document, position: int) -> ChosenView:
    output = document["outputs"][position]
    title = f"{position + 1:,}"
    if document["gains"]:
        title += f" (+{document['gains'][position]:.2f})"
    if output.get("model"):
        title += f" {isolated(shortened(output['model'], LONGEST_NAME))}"
    row = {"row": document["indices"][position]}
    return ChosenView(title, entry_view({**output, **row}, _LONGEST_OUTPUT))
