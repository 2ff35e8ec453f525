"""From result documents to what a page shows: sentences, cards, tables, plots and galleries, as plain values."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from divprism.errors import DataError
from divprism.report.plots import (
    draw_convergence,
    draw_factors,
    draw_ranking,
    draw_spectra,
    draw_sweep,
    inline_svg,
)
from divprism.report.table import Cell, Column, Measured
from divprism.report.tables import caption, models_of, remarks, results_table
from divprism.report.texts import (
    distinct_names,
    fitted,
    isolated,
    number_of,
    ranked,
    sentence,
    shortened,
    visible,
)
from divprism.report.thumbnails import is_thumbnail
from divprism.report.words import (
    at_equal_size,
    comparison_sentences,
    entry_label,
    equal_size_note,
    headline,
    percent,
)
from divprism.scores.spec import SCORES, ScoreSpec
from divprism.version import __version__

__all__ = ["page_view"]

Document = Mapping[str, Any]
_LONGEST = 1200  # letters of a text that are shown
_LONGEST_TITLE = 110
_LONGEST_NAME = 70
_PARTS = {
    "groups": "groups",
    "curves": "convergence",
    "bandwidths": "sweep",
}  # by a key that only documents of the kind have


def page_view(documents: Sequence[Document]) -> dict[str, Any]:
    """What the template shows of a result with scores, and of what goes with it."""
    scored = [one for one in documents if "scores" in one or "models" in one]
    if len(scored) != 1:
        raise DataError(
            f"a report is of one result with scores, that of divprism score or compare; got {len(scored)}."
        )
    main = _presentable(scored[0])
    models = dict(models_of(main))
    parts = {_part(one): _clean(one) for one in documents if one is not scored[0]}
    if len(models) > 1 and parts:
        raise DataError(
            "a report of several models takes no other documents: they say nothing of which model they are of."
        )
    name, first = next(iter(models.items()))
    for part in parts.values():
        _require_same_data(first, part)
    if parts:
        models = {name: {**first, "details": {**(first.get("details") or {}), **parts}}}
    views = [
        _model(f"m{place}", name, document) for place, (name, document) in enumerate(models.items())
    ]
    comparison = _comparison(main, models) if len(models) > 1 else None
    warnings = list(
        dict.fromkeys(
            [
                *(_warning(one) for one in main.get("warnings", ())),
                *(_warning(one) for document in models.values() for one in document["warnings"]),
            ]
        )
    )
    source = _source(first)
    model = fitted(str(first["data"].get("model") or ""), _LONGEST_TITLE)
    title = f"{len(models)} models" if comparison else model or source
    return {
        "title": title,
        "subtitle": _subtitle(title, source, None if comparison else caption(first)),
        "contents": [
            *([("warnings", "Warnings")] if warnings else []),
            *([("comparison", comparison["title"])] if comparison else []),
            *((view["id"], view["title"]) for view in views),
            ("reproduce", "How to reproduce"),
        ],
        "warnings": [shortened(text, _LONGEST) for text in warnings],
        "comparison": comparison,
        "models": views,
        "reproduce": _reproduce(first, several=len(models) > 1),
        "version": __version__,
    }


def _warning(notice: Document) -> str:
    return f"{notice['code']}: {notice['text']}"


def _subtitle(title: str, source: str, told: str | None) -> str:
    """Where the numbers come from, unless the title says so, and what was scored."""
    return ": ".join([*([isolated(source)] if source != title else []), *([told] if told else [])])


def _source(document: Document) -> str:
    """What was scored, without the folders of the machine that it was scored on; settings have them."""
    return fitted(
        "/".join(Path(str(document["data"].get("source") or "outputs")).parts[-2:]), _LONGEST_TITLE
    )


def _presentable(document: Document) -> dict[str, Any]:
    """A document without letters that nobody sees, its models under names that can be read and told apart."""
    if "models" not in document:
        return dict(_clean(document))
    if not document["models"]:
        raise DataError("a report is of at least one model, and this result holds none.")
    names = dict(
        zip(document["models"], distinct_names(document["models"], _LONGEST_NAME), strict=True)
    )
    if len(names) == 1 and not next(iter(names)):
        names = {"": ""}
    told = {**document, "models": {}}
    for key in ("models", "ranks", "lengths"):
        if document.get(key):
            told[key] = {names[model]: value for model, value in document[key].items()}
    if "differences" in document:
        told["differences"] = [
            {**one, "first": names[one["first"]], "second": names[one["second"]]}
            for one in told["differences"]
        ]
    return dict(_clean(told))


def _clean(node: Any) -> Any:
    """Plain values with every text as `visible` leaves it."""
    if isinstance(node, Mapping):
        return {visible(str(key)): _clean(value) for key, value in node.items()}
    if isinstance(node, list | tuple):
        return [_clean(value) for value in node]
    return visible(node) if isinstance(node, str) else node


def _require_same_data(result: Document, part: Document) -> None:
    """Refuse a part that is of other data than the scores, as far as it tells."""
    count = part.get("drawn_from") or part.get("n") or (part.get("data") or {}).get("n")
    if count != result["data"]["n"]:
        raise DataError(
            f"the scores are of {result['data']['n']:,} outputs, and what goes with them is of {count}."
        )


def _part(document: Document) -> str:
    """Which part of the details a document is."""
    keys = {*document, *(document.get("x") or {})}
    found = [part for key, part in _PARTS.items() if key in keys]
    if not found:
        raise DataError(
            "one of the documents is neither scores, nor groups, nor a sweep, nor a convergence."
        )
    return found[0]


def _model(key: str, name: str, document: Document) -> dict[str, Any]:
    details = document.get("details") or {}
    scores, convergence = document["scores"], details.get("convergence")
    return {
        "id": key,
        "name": name,
        "title": name or "Scores",
        "sentences": headline(document),
        "cards": [_card(spec, scores[spec.name]) for spec in SCORES if spec.name in scores],
        "remarks": [
            sentence(text) for text in remarks({**document, "baseline": None})
        ],  # that is in the sentences
        "factors": _factors(f"{key}-factors", {"": document})
        if "conditional_vendi" in scores
        else None,
        **{
            kind: draw(f"{key}-{kind}", details[kind]) if details.get(kind) else None
            for kind, draw in _PLOTS.items()
        },
        "verdicts": [verdict["sentence"] for verdict in convergence["verdicts"].values()]
        if convergence
        else [],
        "groups": _groups(key, details["groups"]) if details.get("groups") else None,
        "absent": list((details.get("absent") or {}).items()),
        "bare": not details,
        "folded": bool(name and details),
        "settings": _settings(document),
    }


def _factors(key: str, documents: Mapping[str, Document]) -> list[str]:
    label = "Bars: Vendi as the product of Conditional and Information"
    return inline_svg(
        lambda axes: draw_factors(axes[0], documents), 1, 1.0 + 0.48 * len(documents), label, key
    )


def _spectra(key: str, spectra: Document) -> list[str]:
    values = {name: (one["values"], one["weights"]) for name, one in spectra.items()}
    return inline_svg(
        lambda axes: draw_spectra(axes[0], values), 1, 3.3, "Spectra on log axes", key
    )


def _sweep(key: str, document: Document) -> list[str]:
    panels = 1 if document["t"] is None else 2
    return inline_svg(
        lambda axes: draw_sweep(axes, document), panels, 3.3, "Scores against bandwidths", key
    )


def _convergence(key: str, document: Document) -> list[str]:
    panels = 3 if "conditional_vendi" in document["means"] else 1
    label = "Scores against the number of samples"
    return inline_svg(lambda axes: draw_convergence(axes, document), panels, 3.3, label, key)


_PLOTS: dict[str, Callable[[str, Document], list[str]]] = {
    "spectra": _spectra,
    "sweep": _sweep,
    "convergence": _convergence,
}


def _card(spec: ScoreSpec, score: Document) -> dict[str, str]:
    interval = score["interval"]
    error = f"± {score['standard_error']:.2g} by the estimator" if score["standard_error"] else ""
    if interval is not None:
        error = (
            f"{interval['low']:.4g} to {interval['high']:.4g} ({percent(interval['level'])})"
            + (error and f", {error}")
        )
    return {
        "name": spec.title,
        "value": f"{score['value']:.4g}",
        "error": error,
        "reads": spec.meaning,
        "family": spec.family,
    }


def _comparison(main: Document, models: Mapping[str, Document]) -> dict[str, Any]:
    """The table of all models; of a comparison also the ranking and the differences."""
    table = results_table(models, wide=True)
    heads = [column.title for column in table.columns]
    names = list(models)
    cells = []
    for name, row in zip(names, table.rows, strict=True):
        columns = zip(table.columns[1:], row[1:], strict=True)
        cells.append([_name(name), *(_cell(column, cell) for column, cell in columns)])
    conditional = all("conditional_vendi" in document["scores"] for document in models.values())
    shown: dict[str, Any] = {
        "title": "All models",
        "sentences": _unequal(models),
        "ranking": None,
        "differences": [],
    }
    if "ranks" in main:
        heads.insert(1, "rank")
        for name, row in zip(names, cells, strict=True):
            row.insert(
                1, {"text": ranked(main["ranks"][name]), "sort": str(sum(main["ranks"][name]))}
            )
        if main["lengths"]:
            heads.append("words")
            for name, row in zip(names, cells, strict=True):
                row.append(_number(main["lengths"][name], "{:.0f}"))
        label, height = f"{main['score']} of each model with its interval", 0.7 + 0.42 * len(models)
        shown = {
            "title": "Comparison",
            "sentences": [sentence(text) for text in comparison_sentences(main)],
            "ranking": inline_svg(
                lambda axes: draw_ranking(axes[0], main), 1, height, label, "ranking"
            ),
            "differences": [_difference(one) for one in main["differences"]],
        }
    return shown | {
        "factors": _factors("factors", models) if conditional else None,
        "table": {"caption": "; ".join(table.notes), "heads": heads, "rows": cells},
    }


def _unequal(models: Mapping[str, Document]) -> list[str]:
    """What to say of models that were scored apart: with different numbers of outputs, scores do not compare."""
    counts = [document["data"]["n"] for document in models.values()]
    if len(set(counts)) == 1:
        return []
    return [
        f"Models have from {min(counts):,} to {number_of(max(counts), 'output')}, so their scores do not compare: more outputs "
        "score higher. divprism compare takes as many of each, to the same prompts."
    ]


def _name(text: str) -> dict[str, Any]:
    return {"text": text, "sort": text, "name": True}


def _difference(one: Document) -> list[dict[str, Any]]:
    numbers = [_number(one[name], "{:.3f}") for name in ("ratio", "low", "high")]
    clear = "yes" if one["clear"] else "no"
    return [_name(one["first"]), _name(one["second"]), *numbers, {"text": clear, "sort": clear}]


def _cell(column: Column, cell: Cell) -> dict[str, str]:
    """A cell of the page: what is shown, and the number that it is sorted by."""
    value = cell.value if isinstance(cell, Measured) else cell
    return {"text": column.show(cell), "sort": "" if value is None else str(value)}


def _groups(key: str, document: Document) -> dict[str, Any]:
    groups = document["groups"]
    fair = at_equal_size(document)
    heads = [
        "group",
        *([f"vendi of {document['equal_size']}"] if fair else []),
        "vendi",
        "rke",
        "share",
        "outputs",
        "prompts",
    ]
    notes = [
        f"The groups add up to {document['aggregate']:.4g}, {_signed(document['gap'])} nats from Conditional-Vendi "
        f"({document['conditional_vendi']:.4g}); at order 2 to {document['aggregate_rke']:.4g}, "
        f"{_signed(document['gap_rke'])} nats from "
        f"Conditional-RKE ({document['conditional_rke']:.4g})."
    ]
    if fair:
        notes.insert(0, sentence(equal_size_note(document)))
    if 0 < document["num_small"] < len(groups):
        small = number_of(document["num_small"], "group")
        notes.append(f"{small} with fewer than {document['min_size']} outputs: too small to tell.")
    return {
        "sentence": "The least diverse groups stand first: there the model repeats itself."
        if document["num_small"] < len(groups)
        else f"All groups have fewer than {document['min_size']} outputs: too small to tell.",
        "heads": heads,
        "rows": [_group(f"{key}-g{place}", group, fair) for place, group in enumerate(groups)],
        "notes": notes,
    }


def _signed(value: float) -> str:
    """Three decimals with a sign, and no minus before a zero."""
    return f"{round(value, 3) + 0.0:+.3f}"


def _group(key: str, group: Document, fair: bool) -> dict[str, Any]:
    figures = [
        ("vendi", "{:.2f}"),
        ("rke", "{:.2f}"),
        ("share", "{:.1%}"),
        ("size", "{:,.0f}"),
        ("num_prompts", "{:,.0f}"),
    ]
    cells = [
        _number(group.get(name), form)
        for name, form in [*([("rarefied", "{:.2f}")] if fair else []), *figures]
    ]
    prompts = [_entry(one) for one in group["prompts"]]
    typical = entry_label(group["prompts"][0]) if group["prompts"] else ""
    title = isolated(shortened(typical, _LONGEST_TITLE))
    if group["name"] and typical != group["name"]:
        title = f"{isolated(shortened(str(group['name']), _LONGEST_NAME))}: {title}"
    return {
        "id": key,
        "title": title,
        "told": f"{group['vendi']:.3g} distinct of {number_of(round(group['size']), 'output')}"
        f"{', too few to tell' if group['small'] else ''}",
        "cells": cells,
        "prompts": prompts,
        "modes": [
            {
                "title": f"Kind {place} of outputs, {mode['share']:.0%}",
                "outputs": [_entry(one) for one in mode["outputs"]],
            }
            for place, mode in enumerate(group["modes"], 1)
        ],
    }


def _number(value: float | None, form: str) -> dict[str, str]:
    """A number as a cell; nothing where there is none."""
    return (
        {"text": "", "sort": ""}
        if value is None
        else {"text": form.format(value), "sort": repr(float(value))}
    )


def _entry(entry: Document) -> dict[str, Any]:
    picture = entry.get("thumbnail")
    label = entry_label(entry)
    return {
        "label": label[:_LONGEST],
        "cut": len(label) > _LONGEST,
        "thumbnail": picture if is_thumbnail(picture) else None,
    }


def _settings(document: Document) -> list[tuple[str, str]]:
    """Every setting, what the data were, what embedded them, and how long it took."""
    rows = [
        (name.replace("_", " "), value)
        for name, value in document["settings"].items()
        if value is not None
    ]
    rows += [(name, value) for name, value in document["data"].items() if value is not None]
    for made in document["embedders"]:
        rows.append(
            (
                f"embedder {made['side']}",
                ", ".join(f"{k}: {v}" for k, v in made.items() if k != "side" and v is not None),
            )
        )
    rows += list(document["runtime"].items())
    return [(str(name), shortened(str(value), _LONGEST)) for name, value in rows]


def _reproduce(first: Document, several: bool) -> list[dict[str, str]]:
    """Settings that a command or `evaluate` take, the command if the result came from one, and the hash of the data."""
    off = {"interval": 0}  # None would mean the default, and there was none
    settings = {
        name: off.get(name) if value is None else value for name, value in first["settings"].items()
    }
    settings = {name: value for name, value in settings.items() if value is not None}
    command = first["runtime"].get("command")
    version = first["runtime"].get("divprism", __version__)
    steps = [{"text": f"With divprism {version}:", "code": str(command)}] if command else []
    steps.append(
        {
            "text": "The settings, every default resolved; commands take them from a file by --config FILE:",
            "code": json.dumps(settings, indent=1, ensure_ascii=False),
        }
    )
    if first["data"].get("hash") and not several:
        steps.append(
            {"text": f"The data are the same if their hash is {first['data']['hash']}.", "code": ""}
        )
    return steps
