"""The page of a mixture of models, and the validation of its document."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from divprism import __version__
from divprism.analysis.evaluation import SCHEMA
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
from divprism.report.downloads import csv_file, json_file
from divprism.report.mixture_tables import (
    mixture_groups,
    mixture_records,
    mixture_table,
    mixture_verdict,
)
from divprism.report.sections import LONGEST_NAME, Chart, TableView, table_view
from divprism.report.style import family_color, styled
from divprism.report.svg import inline_svg
from divprism.report.table import Table
from divprism.report.texts import distinct_names, number_of, sentence
from divprism.report.verdict import Verdict
from divprism.report.view import PageView, reproduce, settings_of, warnings_of
from divprism.scores.spec import is_score, score_spec

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["MixtureSection", "check_mixture", "mixture_page"]

_LONGEST_LABEL = 26  # letters of a model beside a bar
_MOST_GROUPS = 50  # prompts on the page
_NOTHING = 0.005  # a gain that no one would pay for
_EQUAL = 1e-3  # certificates below it are all the same to a reader


@dataclass(frozen=True)
class MixtureSection:
    """A mixture: the weight of each model, alone and together, and by group of prompts."""

    weights: TableView
    notes: tuple[str, ...]
    chart: Chart
    groups: TableView | None
    group_notes: tuple[str, ...]
    settings: tuple[tuple[str, str], ...]


_WEIGHTS = mapping_of(number(0.0, 1.0 + 1e-6))
_GROUP = record(
    {
        "group": any_text,
        "weights": _WEIGHTS,
        "score": positive,
        "best": any_text,
        "gain": positive,
        "chance": maybe(positive),
    }
)
_MIXTURE = record(
    {
        "by": any_text,
        "weights": _WEIGHTS,
        "score": positive,
        "alone": mapping_of(positive),
        "best": any_text,
        "gain": positive,
        "low": maybe(positive),
        "high": maybe(positive),
        "chance": maybe(positive),
        "gain_beyond_chance": maybe(positive),
        "gap": number(),
        "num_iterations": whole(),
        "per_group": list_of(_GROUP),
        "quality": maybe(number()),
        "num_prompts": whole(1),
        "num_outputs": whole(1),
        "settings": SETTINGS,
        "warnings": NOTICES,
    },
    {"runtime": record({}, {"command": maybe(any_text)})},
)


def check_mixture(document: Document) -> None:
    """Raise `DataError`, one sentence, unless a document is that of a mixture."""
    if document.get("schema") != SCHEMA:
        refuse("schema", str(SCHEMA), document.get("schema"))
    _MIXTURE(document, "mixture")
    if not is_score(document["by"]):
        refuse("by", "a score", document["by"])
    models = set(document["weights"])
    if set(document["alone"]) != models:
        refuse("alone", "an object with a score for each model", sorted(document["alone"]))
    for index, part in enumerate((document, *document["per_group"])):
        if part["best"] not in models or not set(part["weights"]) <= models:
            refuse(f"per_group[{index - 1}]", "about models of the mixture", part["best"])
    for first, second in (("low", "high"), ("chance", "gain_beyond_chance")):
        if (document[first] is None) != (document[second] is None):
            refuse(second, f"given together with {first}", document[second])
    if document["low"] is not None:
        number(0.0, 1.0)(document["settings"].get("interval"), "settings.interval")


def mixture_page(given: Document) -> PageView:
    """Return what the template shows of a mixture."""
    check_mixture(given)
    document = _renamed(given)
    table = mixture_table(document)
    full = {"runtime": {}, **document, "embedders": [], "data": _data(document)}
    section = _section(document, table, full)
    warnings = warnings_of(document, {})
    contents = [("verdict", "Verdict"), ("weights", "Weights")]
    if warnings:
        contents.insert(1, ("warnings", "Warnings"))
    if section.groups is not None:
        contents.append(("groups", "For each prompt"))
    contents += [("downloads", "Downloads"), ("reproduce", "How to reproduce")]
    kept = {key: value for key, value in given.items() if key != "runtime"}
    return PageView(
        title=f"Mixture of {number_of(len(document['weights']), 'model')}",
        subtitle=table.title,
        verdict=_verdict(document),
        contents=tuple(contents),
        warnings=warnings,
        comparison=None,
        overlap=None,
        beside=None,
        models=(),
        downloads=(
            csv_file("The weight of each model, a row each", "weights.csv", mixture_records(given)),
            json_file("Weights, scores and settings", "mixture.json", kept),
        ),
        reproduce=tuple(reproduce({"": full})),
        version=__version__,
        mixture=section,
    )


def _section(document: Document, table: Table, full: Document) -> MixtureSection:
    groups = mixture_groups(document, _MOST_GROUPS)
    by_group, group_notes = None, []
    if groups is not None:
        by_group = table_view(_names_first(groups), "The best mixture for each prompt")
        group_notes = list(map(sentence, groups.notes))
    return MixtureSection(
        weights=table_view(table, "Weight and own score of each model"),
        notes=tuple(map(sentence, table.notes[1:])),  # the first is the verdict
        chart=_chart(document),
        groups=by_group,
        group_notes=tuple(group_notes),
        settings=tuple(settings_of(full)),
    )


def _names_first(table: Table) -> Table:
    """Return the table of groups with their names first, without columns that are empty."""
    kept = []
    for index, column in enumerate(table.columns):
        if any(row[index] is not None for row in table.rows):
            kept.append((column.key != "group", index))
    order = [index for _, index in sorted(kept)]
    columns = tuple(table.columns[index] for index in order)
    rows = []
    for row in table.rows:
        rows.append(tuple(row[index] for index in order))
    return replace(table, columns=columns, rows=tuple(rows))


def _data(document: Document) -> Document:
    return {"prompts": document["num_prompts"], "outputs_of_each_model": document["num_outputs"]}


def _renamed(document: Document) -> Document:
    """Return a document with names of models that can be read and that differ."""
    given = list(document["weights"])
    names = dict(zip(given, distinct_names(given, LONGEST_NAME), strict=True))

    def renamed(part: Document) -> Document:
        weights = {names[model]: weight for model, weight in part["weights"].items()}
        return {**part, "weights": weights, "best": names[part["best"]]}

    alone = {names[model]: score for model, score in document["alone"].items()}
    groups = [renamed(group) for group in document["per_group"]]
    return {**renamed(document), "alone": alone, "per_group": groups}


def _verdict(document: Document) -> Verdict:
    """Return what to mix, how sure the gain is, and what the certificate means."""
    certainty = []
    if document["low"] is not None:
        level = document["settings"]["interval"]
        ends = f"{document['low']:.2f} to {document['high']:.2f}"
        certainty.append(f"With {level:.0%} confidence, the gain is a factor of {ends}.")
    if document["chance"] is not None:
        beyond = document["gain_beyond_chance"]
        # More outputs score higher, whichever model they are from.
        sure = "These outputs do not show a gain from mixing beyond that."
        if beyond > 1 + _NOTHING:
            sure = f"Mixing gains a factor of {beyond:.2f} beyond that."
        gained = f"a factor of {document['chance']:.2f}"
        certainty.append(f"More outputs of one model would also gain {gained}. {sure}")
    certainty.append(_certificate(document))
    return Verdict(sentence(mixture_verdict(document)), tuple(certainty), "", (), ())


def _certificate(document: Document) -> str:
    others = "no others"
    if document["quality"] is not None:
        others = "no others that are allowed"
    if document["gap"] <= _EQUAL:
        return (
            f"These weights are the best there are for these outputs: it is proved that {others} "
            f"score more than {_EQUAL:.1%} higher."
        )
    return (
        f"Other weights may score up to {document['gap']:.1%} higher: the search stopped after "
        f"{number_of(document['num_iterations'], 'step')}."
    )


def _chart(document: Document) -> Chart:
    spec = score_spec(document["by"])
    panels = inline_svg(
        lambda axes: _draw(axes[0], document),
        panels=1,
        height=0.8 + 0.36 * len(document["weights"]),
        label="Bars: the weight of each model in the best mixture",
        name="weights",
    )
    caption = (
        "The share of the outputs that each model gives to the best mixture, and its own "
        f"{spec.title} in brackets."
    )
    return Chart(tuple(panels), caption)


def _draw(ax: "Axes", document: Document) -> None:
    """Draw a bar for each model, the heaviest on top."""
    models = sorted(document["weights"], key=lambda model: document["weights"][model])
    shown = distinct_names(models, _LONGEST_LABEL)
    labels = []
    for name, model in zip(shown, models, strict=True):
        labels.append(f"{name} ({document['alone'][model]:.2f})")
    weights = [100 * document["weights"][model] for model in models]
    with styled():
        ax.barh(range(len(models)), weights, color=family_color(score_spec(document["by"]).family))
        ax.set_yticks(range(len(models)), labels)
        for index, weight in enumerate(weights):
            ax.text(weight + 1, index, f"{weight:.0f} %", va="center")
        ax.set_xlim(0, max(1, *weights) * 1.18)
        ax.set_xlabel("weight in %")
        ax.grid(visible=False, axis="y")
