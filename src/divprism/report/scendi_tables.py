"""Scendi as a row, a column or a sentence beside the scores."""

from divprism.report.documents import Document, Documents
from divprism.report.table import Cell, Column
from divprism.report.texts import significant

__all__ = ["scendi_columns", "scendi_records", "scendi_rows", "scendi_sentence"]

_MEANING = "diversity that prompts do not explain linearly; order 1"


def scendi_records(document: Document) -> list[tuple[str, float]]:
    """Return the name and the value, where Scendi was asked for."""
    if document.get("scendi") is None:
        return []
    return [("scendi", document["scendi"]["value"])]


def scendi_rows(document: Document) -> list[tuple[Cell, ...]]:
    """Return the row below the scores of one model."""
    return [(name, value, "", _MEANING) for name, value in scendi_records(document)]


def scendi_columns(documents: Documents) -> tuple[list[Column], dict[str, tuple[Cell, ...]]]:
    """Return the column of several models, and the cell of each; nothing if it was not asked."""
    values = {model: scendi_records(document) for model, document in documents.items()}
    if not any(values.values()):
        return [], dict.fromkeys(documents, ())
    cells: dict[str, tuple[Cell, ...]] = dict.fromkeys(documents, (None,))
    for model, records in values.items():
        for _, value in records:
            cells[model] = (value,)
    return [Column("scendi", "scendi", ".3f", priority=7)], cells


def scendi_sentence(document: Document) -> list[str]:
    """Return Scendi in words, for a page."""
    return [f"Scendi {significant(value)}: {_MEANING}" for _, value in scendi_records(document)]
