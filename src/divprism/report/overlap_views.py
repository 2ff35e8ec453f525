"""The section about overlap on a page, and the validation of its document."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from divprism.report.checks import (
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
from divprism.report.overlap_plots import draw_heat_map, draw_tree
from divprism.report.overlap_tables import overlap_sentences, overlap_table
from divprism.report.sections import Chart, TableView, table_view
from divprism.report.svg import inline_svg
from divprism.report.texts import sentence

__all__ = ["OverlapSection", "check_overlap", "overlap_section", "renamed_overlap"]

_NATS = number(-100.0, 100.0)
_MAYBE_NATS = maybe(_NATS)
_SHARE = number(0.0, 1.0 + 1e-6)
_MEANS = maybe(record({"between_models": number(), "within_a_model": maybe(number())}))
_MODELS = record(
    {
        "models": list_of(any_text, 2),
        "information": _NATS,
        "factor": positive,
        "counts_as": positive,
        "distance": number(0.0, 100.0),
        "low": _MAYBE_NATS,
        "high": _MAYBE_NATS,
        "chance": _MAYBE_NATS,
        "excess": _MAYBE_NATS,
        "p_value": maybe(_SHARE),
    }
)
_ENTRY = record({}, {"text": any_text, "file": any_text, "id": any_text, "where": any_text})
_PROMPTS = list_of(record({"prompt": _ENTRY}))
_OVERLAP = record(
    {
        "models": list_of(any_text, 2),
        "pairs": list_of(_MODELS, 1),
        "joint": _MODELS,
        "alone": mapping_of(positive),
        "homogeneity": record({"cosine": _MEANS, "kernel": _MEANS}),
        "prompts": record({"most_apart": _PROMPTS, "most_alike": _PROMPTS}),
        "num_prompts": whole(1),
        "num_outputs": whole(1),
        "settings": SETTINGS,
        "warnings": NOTICES,
    }
)


@dataclass(frozen=True)
class OverlapSection:
    """What the models share: sentences, a heat map beside a tree, and all pairs."""

    sentences: tuple[str, ...]
    chart: Chart
    pairs: TableView


def check_overlap(document: Document, models: Collection[str]) -> None:
    """Raise `DataError`, one sentence, unless a document is the overlap of these models."""
    _OVERLAP(document, "overlap")
    names = document["models"]
    if set(names) != set(models) or len(names) != len(models):
        refuse("overlap.models", "the models of the result", names)
    if set(document["alone"]) != set(models):
        refuse("overlap.alone", "an object with a score for each model", sorted(document["alone"]))
    seen = set()
    for index, pair in enumerate(document["pairs"]):
        members = frozenset(pair["models"])
        path = f"overlap.pairs[{index}].models"
        if len(pair["models"]) != 2 or len(members) != 2 or not members <= set(models):
            refuse(path, "two models of the result", pair["models"])
        if members in seen:
            refuse(path, "a pair that occurs once", pair["models"])
        seen.add(members)
        _check_ends(pair, f"overlap.pairs[{index}]", document["joint"])
    if sorted(document["joint"]["models"]) != sorted(names):
        refuse("overlap.joint.models", "the models of the result", document["joint"]["models"])
    _check_ends(document["joint"], "overlap.joint", document["joint"])
    if len(seen) != len(names) * (len(names) - 1) // 2:
        refuse("overlap.pairs", "a list of all pairs of models", len(seen))
    for key in ("most_apart", "most_alike"):
        for index, shown in enumerate(document["prompts"][key]):
            # A label falls back on the number of the row.
            whole()(shown["prompt"].get("row"), f"overlap.prompts.{key}[{index}].prompt.row")


def _check_ends(overlap: Document, path: str, joint: Document) -> None:
    """Require that what is known of one pair is known of all."""
    for first, second in (("low", "high"), ("chance", "excess"), ("chance", "p_value")):
        if (overlap[first] is None) != (overlap[second] is None):
            refuse(f"{path}.{second}", f"given together with {first}", overlap[second])
    if (overlap["chance"] is None) != (joint["chance"] is None):
        refuse(f"{path}.chance", "given for all pairs or for none", overlap["chance"])


def renamed_overlap(document: Document, names: Mapping[str, str]) -> Document:
    """Return a document with names of models that can be read and that differ."""

    def renamed(overlap: Document) -> Document:
        return {**overlap, "models": [names[model] for model in overlap["models"]]}

    return {
        **renamed(document),
        "pairs": [renamed(pair) for pair in document["pairs"]],
        "joint": renamed(document["joint"]),
        "alone": {names[model]: value for model, value in document["alone"].items()},
    }


def overlap_section(document: Document) -> OverlapSection:
    """Return the section of what the models share."""
    count = len(document["models"])
    height = 1.6 + 0.26 * count
    panels = [
        *inline_svg(
            lambda axes: draw_heat_map(axes[0], document),
            panels=1,
            # Names below the map take as much room as five models.
            height=height + 1.2,
            label="Heat map: as how many models each pair of models counts",
            name="overlap-map",
        ),
        *inline_svg(
            lambda axes: draw_tree(axes[0], document),
            panels=1,
            height=height,
            label="Tree of the models: those that overlap most are joined first",
            name="overlap-tree",
        ),
    ]
    caption = (
        "First: how many models two models together count as, from 1 (interchangeable) to 2 "
        "(nothing in common). Second: models joined by average linkage; the further right two "
        "branches meet, the less their models share."
    )
    return OverlapSection(
        sentences=tuple(map(sentence, overlap_sentences(document))),
        chart=Chart(tuple(panels), caption),
        pairs=table_view(overlap_table(document, wide=True), "Overlap of all pairs of models"),
    )
