"""Rows, columns and notes about outputs beside real data."""

from divprism.report.documents import Document, Documents
from divprism.report.table import Cell, Column, Table

__all__ = [
    "fidelity_columns",
    "fidelity_notes",
    "fidelity_records",
    "fidelity_rows",
    "fidelity_table",
]

_METRICS = {
    "kernel_distance": ("distance", "distance from the reference; 0 is best"),
    "recall": ("recall", "share of the reference inside the outputs"),
    "coverage": ("coverage", "share of the reference with an output nearby"),
    "alignment": ("alignment", "100 x mean cosine of outputs and their prompts"),
    "in_batch_similarity": ("in-batch", "mean cosine inside a batch; low is diverse"),
}
_BATCHES = {
    "prompt": "a batch is the outputs of one prompt",
    "all": "all outputs are one batch, as no prompt has two: the mean over random batches",
}


def fidelity_records(document: Document) -> list[tuple[str, float, float | None]]:
    """Name, value and standard error of each metric that was computed."""
    fidelity = document.get("fidelity") or {}
    records: list[tuple[str, float, float | None]] = []
    for name in _METRICS:
        value = fidelity.get(name)
        if name == "kernel_distance" and value is not None:
            records.append((name, value["value"], value["standard_error"]))
        elif value is not None:
            records.append((name, value, None))
    return records


def fidelity_rows(document: Document) -> list[tuple[Cell, ...]]:
    """Rows below the scores of one model."""
    rows: list[tuple[Cell, ...]] = []
    for name, value, error in fidelity_records(document):
        shown = ""
        if error is not None:
            shown = f"error {error:.2g}"
        meaning = _METRICS[name][1]
        if name == "kernel_distance":
            # Four decimals may leave no digit of it.
            meaning = f"{value:.4g}: {meaning}"
        rows.append((name, value, shown, meaning))
    return rows


def fidelity_table(document: Document) -> Table | None:
    """The metrics of one model on their own; None without a reference."""
    records = fidelity_records(document)
    if not records:
        return None
    columns = (
        Column("metric", "metric"),
        Column("value", "value", ".4g"),
        Column("error", "standard error", ".2g"),
        Column("reads_as", "reads as"),
    )
    rows = [(name, value, error, _METRICS[name][1]) for name, value, error in records]
    return Table(columns, tuple(rows))


def fidelity_columns(documents: Documents) -> tuple[list[Column], dict[str, list[Cell]]]:
    """Columns beside the scores of several models, and the cells of each model."""
    found = {model: fidelity_records(document) for model, document in documents.items()}
    present = {name for records in found.values() for name, _, _ in records}
    names = [name for name in _METRICS if name in present]
    columns = [Column(name, _METRICS[name][0], ".3g", priority=7) for name in names]
    cells: dict[str, list[Cell]] = {}
    for model, records in found.items():
        # Without the error of the distance: the ± of this table are intervals.
        values = {name: value for name, value, _ in records}
        cells[model] = [values.get(name) for name in names]
    return columns, cells


def fidelity_notes(document: Document) -> list[str]:
    """What the metrics compare, and which are absent; empty without a reference."""
    fidelity = document.get("fidelity")
    if not fidelity:
        return []
    size = fidelity["kernel_distance"]["n_reference"]
    notes = [f"reference: {size:,} items; in-batch similarity: {_BATCHES[fidelity['batches']]}"]
    notes += [f"no {name}: {reason}" for name, reason in fidelity["absent"].items()]
    return notes
