"""A selection of outputs: a table for people, and one for files."""

from divprism.data.wording import counted
from divprism.report.documents import Document
from divprism.report.table import Cell, Column, Measured, Table
from divprism.report.tables import kernel_notes, order_note, warnings_in
from divprism.report.texts import number_of
from divprism.report.words import entry_label
from divprism.scores.spec import score_spec

__all__ = ["selection_records", "selection_table"]

_SHOWN = 10  # outputs in the table: the first choices say most


def selection_table(document: Document) -> Table:
    """What the subset scores, beside random subsets of its size and all outputs."""
    spec = score_spec(document["score"])
    data = document["data"]
    rows: list[tuple[Cell, ...]] = [
        ("chosen", data["chosen"], _value(document["score_of_subset"])),
    ]
    random = document["random"]
    if random is not None:
        rows.append(("random", data["chosen"], _value(random["mean"], random)))
    rows.append(("all", data["n"], _value(document["score_of_all"])))
    columns = (
        Column("subset", "subset"),
        Column("n", "outputs", ",d"),
        Column(spec.name, spec.name, ".4f"),
    )
    notes = [
        *_meaning(document),
        *_gains(document),
        *_omitted(document),
        *_near_copies(document),
        *_quality(document),
        *_coverage(document),
        *_first_choices(document),
        *kernel_notes(document),
    ]
    return Table(columns, tuple(rows), _title(document), tuple(notes), warnings_in(document))


def selection_records(document: Document) -> Table:
    """Return the choices in their order: the row of the source, what it added, what it is."""
    columns = [
        Column("index", "index", "d"),
        Column("gain", "gain", ".6g"),
        Column("score", "score", ".6g"),
        Column("model", "model"),
        Column("output", "output"),
    ]
    count = len(document["indices"])
    gains = document["gains"] or [None] * count
    scores = document["scores_after"] or [None] * count
    rows: list[tuple[Cell, ...]] = []
    for index, gain, score, output in zip(
        document["indices"], gains, scores, document["outputs"], strict=True
    ):
        rows.append((index, gain, score, output.get("model"), _label(output)))
    return Table(tuple(columns), tuple(rows))


def _value(score: float | None, interval: Document | None = None) -> Measured | None:
    if score is None:
        return None
    if interval is None:
        return Measured(score)
    return Measured(score, interval["low"], interval["high"])


def _label(output: Document) -> str:
    """The text, the file or the place of an output; empty for a vector."""
    if {"text", "file", "id"} & set(output):
        return entry_label(output)
    return str(output.get("where", ""))


def _title(document: Document) -> str:
    data = document["data"]
    what = f"{data['chosen']:,} of {number_of(data['n'], 'output')}"
    if document["k"] is None:
        return f"{what}: one of each group of near-copies"
    chosen_by = f"chosen by {document['score']}"
    if document["per"] is not None:
        limit = ""
        if any(notice["code"] == "fewer-than-k" for notice in document["warnings"]):
            limit = "at most "
        return f"{what}, {limit}{document['k']:,} of each {document['per']}, {chosen_by}"
    return f"{what}, {chosen_by}"


def _meaning(document: Document) -> list[str]:
    """What the numbers count, and what they can be compared with."""
    spec = score_spec(document["score"])
    notes = [f"{spec.name}: {spec.meaning}; {order_note(document['settings'])}"]
    if spec.order is not None:
        notes = [f"{spec.name}: {spec.meaning}"]
    if document["per"] is not None:
        notes[0] += f"; geometric mean over each {document['per']} alone"
    random = document["random"]
    if random is not None:
        notes.append(
            f"random: mean of {random['num_draws']} random subsets of this size, and the range of "
            "95 in 100; compare the choice with these, not with all: more outputs score higher"
        )
    return notes


def _gains(document: Document) -> list[str]:
    """How much the last choices still added, where there is one order of choice."""
    gains = document["gains"]
    if document["per"] is not None or len(gains) < 2:
        return []
    half = len(gains) // 2
    if half == 1:  # a single output has a score of 1
        return [f"the last choice added {gains[-1]:.2g}"]
    reached = document["scores_after"][half - 1]
    return [f"the first {half:,} choices reach {reached:.4g}, the last one added {gains[-1]:.2g}"]


def _omitted(document: Document) -> list[str]:
    if document["score_of_all"] is not None:
        return []
    return ["all: not computed for this many outputs; score them by themselves"]


def _near_copies(document: Document) -> list[str]:
    count = document["near_copies"]
    if count is None:
        return []
    return [f"{counted(count, 'near-copy was', 'near-copies were')} left out"]


def _quality(document: Document) -> list[str]:
    quality = document["quality"]
    if quality is None:
        return []
    return [f"mean quality: {quality['subset']:.4g} of the subset, {quality['all']:.4g} of all"]


def _coverage(document: Document) -> list[str]:
    """How many prompts and models the subset holds outputs of."""
    notes = []
    for noun, key in (("prompt", "prompts"), ("model", "models")):
        entries = document["counts"].get(key)
        if not entries or len(entries) < 2:
            continue
        chosen = [entry["chosen"] for entry in entries if entry["chosen"]]
        text = f"outputs of {len(chosen):,} of {number_of(len(entries), noun)} are chosen"
        if max(chosen) > min(chosen) or len(chosen) < len(entries):
            text += f", at most {max(chosen):,} of one"
        notes.append(text)
    return notes


def _first_choices(document: Document) -> list[str]:
    """The rows of the first choices; the way to all of them."""
    indices = document["indices"]
    shown = ", ".join(map(str, indices[:_SHOWN]))
    if len(indices) > _SHOWN:
        return [f"rows, counted from 0: {shown}, ...; the JSON has all of them"]
    return [f"rows, counted from 0: {shown}"]
