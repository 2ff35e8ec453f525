"""What models share: a table for people, one for files, and sentences."""

import math
from collections.abc import Sequence

from divprism.errors import Notice
from divprism.report.documents import Document
from divprism.report.table import Cell, Column, Measured, Table
from divprism.report.tables import kernel_notes, order_note, warnings_in
from divprism.report.texts import fitted, isolated, number_of, significant
from divprism.report.words import entry_label

__all__ = ["overlap_records", "overlap_sentences", "overlap_table"]

_MOST_COLUMNS = 8  # models up to which a table has a column for each of them
_Grid = tuple[tuple[Column, ...], tuple[tuple[Cell, ...], ...], list[str]]
_ENDS = 5  # pairs shown of either end where there are more models
_LEVEL = 0.05  # p-value up to which models are said to differ
_LONGEST_PROMPT = 70  # letters of a prompt in a sentence
_LEGEND = (
    "counts as: exp of Information between output and model given the prompt, from 1 "
    "(interchangeable) to the number of models (nothing in common)"
)
_FIGURES = (
    *("counts_as", "factor", "information", "low", "high", "standard_error"),
    *("chance", "excess", "p_value", "new_share", "union", "gain"),
)
_BEYOND = "over what exchanging the outputs to each prompt at random gives (by chance)"


def overlap_table(document: Document, wide: bool = False, *, alone: bool = True) -> Table:
    """Return as how many models pairs count: a matrix, or of many models the ends of the list.

    With `wide` all pairs, a row each, with their intervals. Below another table, not `alone`, notes
    do not repeat the kernels.
    """
    counts = number_of(len(document["models"]), "model")
    sizes = f"{number_of(document['num_outputs'], 'output')} each"
    prompts = number_of(document["num_prompts"], "prompt")
    title = f"Overlap of {counts} on {prompts}, {sizes}; {order_note(document['settings'])}"
    if wide or len(document["models"]) > _MOST_COLUMNS:
        columns, rows, notes = _list_of_pairs(document, wide)
    else:
        columns, rows, notes = _matrix(document)
    notes += overlap_sentences(document)
    warnings: tuple[Notice, ...] = ()
    if alone:
        notes += kernel_notes(document)
        warnings = warnings_in(document)
    return Table(columns, rows, title=title, notes=tuple(notes), warnings=warnings)


def _matrix(document: Document) -> _Grid:
    """A row and a column for each model."""
    models = document["models"]
    columns = [Column("model", "model"), Column("alone", "alone", ".2f")]
    # Numbers, because names would not fit; a file gets the names from `overlap_records`.
    columns += [Column(f"with_{index}", f"{index}", ".2f") for index in range(1, len(models) + 1)]
    values = {frozenset(pair["models"]): pair["counts_as"] for pair in document["pairs"]}
    rows: list[tuple[Cell, ...]] = []
    for index, model in enumerate(models, start=1):
        cells = [values.get(frozenset((model, other))) for other in models]
        rows.append((f"{index} {model}", document["alone"][model], *cells))
    notes = [
        "alone: distinct outputs of a model per kind of prompt (Conditional); numbers: how many "
        "models the two together count as",
        _legend(document),
    ]
    return tuple(columns), tuple(rows), notes


def _list_of_pairs(document: Document, wide: bool) -> _Grid:
    """A row for each pair of models, from those that overlap most."""
    pairs = document["pairs"]
    notes = [_legend(document)]
    shown = list(pairs)
    if not wide and len(pairs) > 2 * _ENDS:
        shown = [*pairs[:_ENDS], *pairs[-_ENDS:]]
        hidden = number_of(len(pairs) - 2 * _ENDS, "pair")
        notes.insert(0, f"the {_ENDS} pairs that overlap most and least; not shown: {hidden}")
    columns = [
        Column("first", "first"),
        Column("second", "second"),
        Column("counts_as", "counts as", ".3f"),
    ]
    has_chance = document["joint"]["chance"] is not None
    if has_chance:
        columns += [
            Column("factor", "in sample", ".3f", priority=2),
            Column("chance", "by chance", ".3f", priority=2),
            Column("p_value", "p", ".2f", priority=1),
        ]
        notes.append(
            "counts as = in sample / by chance; p: share of the exchanges with at least as much "
            "Information of order 2"
        )
    rows: list[tuple[Cell, ...]] = []
    for pair in shown:
        cells: list[Cell] = [*pair["models"], _measured(pair)]
        if has_chance:
            cells += [pair["factor"], math.exp(pair["chance"]), pair["p_value"]]
        rows.append(tuple(cells))
    return tuple(columns), tuple(rows), notes


def _legend(document: Document) -> str:
    """Return what the numbers are, beyond chance or not."""
    if document["joint"]["chance"] is None:
        return _LEGEND
    return f"{_LEGEND}, {_BEYOND}"


def _measured(pair: Document) -> Measured:
    """Return as how many models a pair counts, with its interval."""
    if pair["low"] is None:
        return Measured(pair["counts_as"])
    chance = pair["chance"] or 0.0
    ends = (math.exp(max(0.0, pair[end] - chance)) for end in ("low", "high"))
    return Measured(pair["counts_as"], *ends)


def overlap_records(document: Document) -> Table:
    """Return everything about every pair, a row each."""
    columns = [Column("first", "first"), Column("second", "second")]
    columns += [Column(name, name, ".6g") for name in _FIGURES]
    rows = []
    for pair in document["pairs"]:
        rows.append((*pair["models"], *(pair[column.key] for column in columns[2:])))
    return Table(tuple(columns), tuple(rows))


def overlap_sentences(document: Document) -> list[str]:
    """Return the overlap in words: the closest and the farthest models, all of them, prompts."""
    pairs = document["pairs"]
    if len(pairs) == 1:
        sentences = [f"{_named(pairs[0])}: {_counted(pairs[0])}"]
    else:
        sentences = [
            f"{_named(pairs[0])} overlap most: {_counted(pairs[0])}",
            f"{_named(pairs[-1])} overlap least: {_counted(pairs[-1])}",
            f"all {len(document['models'])} models: {_counted(document['joint'])}",
        ]
    return [
        *sentences,
        *_evidence(pairs),
        *_similarities(document["homogeneity"]),
        *_prompts(document["prompts"]),
    ]


def _named(pair: Document) -> str:
    first, second = pair["models"]
    return f"{isolated(first)} and {isolated(second)}"


def _counted(overlap: Document) -> str:
    """Return as how many models some count, and as how many they would by chance."""
    number = len(overlap["models"])
    text = f"together they count as {overlap['counts_as']:.2f} models of {number}"
    if overlap["chance"] is None:
        return text
    by_chance = math.exp(overlap["chance"])
    return f"{text} ({overlap['factor']:.2f} in this sample, of which {by_chance:.2f} by chance)"


def _evidence(pairs: Sequence[Document]) -> list[str]:
    """Return how many pairs differ by more than exchanges at random."""
    if pairs[0]["p_value"] is None:
        return []
    differing = sum(pair["p_value"] <= _LEVEL for pair in pairs)
    beyond = f"more than random exchanges of their outputs explain (p at most {_LEVEL:g})"
    if len(pairs) == 1:
        if differing:
            return [f"they differ by {beyond}"]
        return [f"they do not differ by {beyond}: they may be the same model"]
    return [f"{differing} of {number_of(len(pairs), 'pair')} of models differ by {beyond}"]


def _similarities(homogeneity: Document) -> list[str]:
    for name, noun in (("cosine", "cosine"), ("kernel", "kernel value")):
        means = homogeneity[name]
        if means is None or means["within_a_model"] is None:
            continue
        between, within = significant(means["between_models"]), significant(means["within_a_model"])
        return [
            f"two outputs to the same prompt have a mean {noun} of {between} if they come from "
            f"different models, and of {within} if they come from the same one"
        ]
    return []


def _prompts(prompts: Document) -> list[str]:
    """Return on which prompts models differ most and least; empty where prompts have no names."""
    sentences = []
    for key, text in (("most_apart", "most"), ("most_alike", "least")):
        if prompts[key]:
            label = fitted(entry_label(prompts[key][0]["prompt"]), _LONGEST_PROMPT)
            sentences.append(f'models differ {text} on the prompt "{isolated(label)}"')
    return sentences
