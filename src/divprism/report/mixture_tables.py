"""The best mixture of models: tables of weights, and the verdict in a sentence."""

from collections.abc import Callable, Mapping

from divprism.report.documents import Document
from divprism.report.table import Cell, Column, Table
from divprism.report.tables import kernel_notes, order_note, warnings_in
from divprism.report.texts import isolated, number_of
from divprism.scores.spec import score_spec

__all__ = ["mixture_groups", "mixture_records", "mixture_table", "mixture_verdict"]

_NOTHING = 0.005  # a gain that no one would pay for
_MOST_NAMED = 5  # models that a sentence lists
_SMALL = 0.005  # weight that is printed as zero


def mixture_table(document: Document) -> Table:
    """Return the weight and the own score of each model, the heaviest first, and a verdict."""
    spec = score_spec(document["by"])
    columns = (
        Column("model", "model"),
        Column("weight", "weight", ".1%"),
        Column("alone", f"{spec.name} alone", ".2f"),
    )
    rows: list[tuple[Cell, ...]] = []
    for model, weight in _heaviest_first(document["weights"]):
        rows.append((model, weight, document["alone"][model]))
    title = (
        f"Mixture of {number_of(len(document['weights']), 'model')} on "
        f"{number_of(document['num_prompts'], 'prompt')}, "
        f"{number_of(document['num_outputs'], 'output')} each; {order_note(document['settings'])}"
    )
    notes = [mixture_verdict(document), *_about_gain(document), _certificate(document)]
    return Table(
        columns,
        tuple(rows),
        title=title,
        notes=(*notes, *kernel_notes(document)),
        warnings=warnings_in(document),
    )


def _heaviest_first(weights: Mapping[str, float]) -> list[tuple[str, float]]:
    return sorted(weights.items(), key=lambda item: -item[1])


def _mixed(weights: Mapping[str, float], mark: Callable[[str], str] = str) -> str:
    """Return the weights in words; of many models the heaviest, and the sum of the others."""
    heavy = [item for item in _heaviest_first(weights) if item[1] >= _SMALL]
    named = heavy
    if len(heavy) > _MOST_NAMED:
        named = heavy[: _MOST_NAMED - 1]
    parts = [f"{weight:.0%} {mark(model)}" for model, weight in named]
    others = heavy[len(named) :]
    if others:
        parts.append(f"{sum(weight for _, weight in others):.0%} of {len(others):,} others")
    return ", ".join(parts)


def mixture_verdict(document: Document) -> str:
    """Return what to mix, what that scores, and whether it is worth more than one model."""
    spec = score_spec(document["by"])
    best = isolated(document["best"])
    alone = document["alone"][document["best"]]
    enough = _good_enough(document, "is")
    if document["gain"] <= 1 + _NOTHING:
        return f"no mixture{enough} is more diverse than {best} alone ({spec.title} {alone:.2f})"
    mixed, score = _mixed(document["weights"], mark=isolated), document["score"]
    return (
        f"the best mixture is {mixed}: {spec.title} {score:.2f}, "
        f"{document['gain']:.2f} times that of the best single model{enough}, {best} ({alone:.2f})"
    )


def _good_enough(document: Document, verb: str) -> str:
    """Return which models and mixtures are meant, where a least quality is asked for."""
    if document["quality"] is None:
        return ""
    return f" that {verb} good enough"


def _about_gain(document: Document) -> list[str]:
    """Return the interval of the gain, and what part of it more outputs would bring anyway."""
    notes = []
    if document["low"] is not None:
        level = document["settings"]["interval"]
        notes.append(
            f"{level:.0%} interval of the gain: {document['low']:.3f} to {document['high']:.3f}"
        )
    if document["chance"] is not None and document["gain"] > 1 + _NOTHING:
        notes.append(_about_chance(document))
    if document["quality"] is not None:
        notes.append(f"mean quality of the mixture: {document['quality']:.4g}")
    return notes


def _about_chance(document: Document) -> str:
    chance = f"{document['chance']:.3f}"
    if document["chance"] >= document["gain"]:
        return (
            f"more outputs explain all of the gain: if all models were one, the same weights would "
            f"gain a factor of {chance}"
        )
    return (
        f"of the gain, a factor of {chance} comes from having more outputs: the same weights would "
        f"gain it if all models were one; mixing gains {document['gain_beyond_chance']:.3f} beyond"
    )


def _certificate(document: Document) -> str:
    return (
        f"no weights{_good_enough(document, 'are')} are better by more than "
        f"{max(document['gap'], 1e-12):.0e} (duality gap, after "
        f"{number_of(document['num_iterations'], 'step')})"
    )


def mixture_groups(document: Document, top: int = 10) -> Table | None:
    """Return the groups of prompts whose own mixture gains most; None without groups."""
    groups = sorted(document["per_group"], key=lambda group: -group["gain"])
    if not groups:
        return None
    columns = (
        Column("gain", "gain", ".2f"),
        Column("chance", "by chance", ".2f", priority=1),
        Column("score", "score", ".2f"),
        Column("best", "best alone"),
        Column("mixture", "mixture"),
        Column("group", "prompts"),
    )
    rows: list[tuple[Cell, ...]] = []
    for group in groups[:top]:
        figures = (group["gain"], group["chance"], group["score"])
        rows.append((*figures, group["best"], _mixed(group["weights"]), group["group"]))
    notes = ["gain: score of the best mixture for these prompts over that of the best model"]
    if len(groups) > top:
        notes.append(f"not shown: {number_of(len(groups) - top, 'more group')}")
    return Table(columns, tuple(rows), title="By group of prompts", notes=tuple(notes))


def mixture_records(document: Document) -> Table:
    """Return the weights, a row for each model: of all prompts, then of each group."""
    columns = (
        Column("group", "group"),
        Column("model", "model"),
        Column("weight", "weight", ".6g"),
        Column("alone", "alone", ".6g"),
    )
    rows: list[tuple[Cell, ...]] = []
    for model, weight in document["weights"].items():
        rows.append((None, model, weight, document["alone"][model]))
    for group in document["per_group"]:
        for model, weight in group["weights"].items():
            rows.append((group["group"], model, weight, None))
    return Table(columns, tuple(rows))
