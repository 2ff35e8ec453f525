"""Numbers of a page as files that a browser saves: links that contain them, and no script."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from divprism.report.documents import Document, Documents
from divprism.report.table import Cell, Column, Table
from divprism.report.tables import differences_table

__all__ = ["Download", "csv_file", "downloads_of", "json_file"]

# Signs that a URL inside a quoted attribute may contain as they are: the others are written as %22.
_SAFE = "/:,.;()[]{}=+*!~_-"
_LISTED = (
    "scores",
    "baseline",
    "data",
    "settings",
    "embedders",
    "runtime",
    "warnings",
    "fidelity",
    "scendi",
)
_OF_A_COMPARISON = (
    *("score", "ranks", "differences", "lengths", "length_correlation", "stable_range"),
    *("notes", "warnings"),
)


@dataclass(frozen=True)
class Download:
    """A file inside a link: what it is, its name, and the `data:` address of its content."""

    title: str
    name: str
    address: str


def downloads_of(main: Document, models: Documents) -> tuple[Download, ...]:
    """Return the scores as CSV and JSON, and the differences of a comparison as CSV."""
    files = [csv_file("Every score, a row each", "scores.csv", _scores(models))]
    if "differences" in main:
        differences = differences_table(main)
        files.append(csv_file("Differences of models", "differences.csv", differences))
    content = _without_details(main, models)
    files.append(json_file("Scores, settings and data, without examples", "result.json", content))
    return tuple(files)


def csv_file(title: str, name: str, table: Table) -> Download:
    """Return a table as a CSV file."""
    # Charsets, because spreadsheets and browsers would guess them otherwise.
    content = quote(table.to_csv().encode("utf-8", "replace"), safe=_SAFE)
    return Download(title, name, f"data:text/csv;charset=utf-8,{content}")


def json_file(title: str, name: str, document: Document) -> Download:
    """Return a document as a JSON file."""
    content = quote(json.dumps(_plain(document), allow_nan=False), safe=_SAFE)
    return Download(title, name, f"data:application/json;charset=utf-8,{content}")


def _scores(models: Documents) -> Table:
    """Return every score with its errors, from what has been checked in any document."""
    columns = [Column("model", "model"), Column("score", "score"), Column("n", "n", "d")]
    for key in ("value", "low", "high", "level", "standard_error"):
        columns.append(Column(key, key, "g"))
    rows: list[tuple[Cell, ...]] = []
    for model, document in models.items():
        for name, score in document["scores"].items():
            interval = score["interval"] or {}
            ends = [interval.get(key) for key in ("low", "high", "level")]
            numbers = (score["value"], *ends, score["standard_error"])
            rows.append((model, name, document["data"]["n"], *numbers))
    return Table(tuple(columns), tuple(rows))


def _without_details(main: Document, models: Documents) -> dict[str, Any]:
    """Return a result without details, whose texts and images would double the page."""
    kept = {name: _picked(document, _LISTED) for name, document in models.items()}
    schema = {"schema": main.get("schema")}
    if len(kept) == 1 and "models" not in main:
        [only] = kept.values()
        return schema | only
    return schema | _picked(main, _OF_A_COMPARISON) | {"models": kept}


def _picked(document: Document, keys: tuple[str, ...]) -> dict[str, Any]:
    return {key: document[key] for key in keys if key in document}


def _plain(value: Any) -> Any:
    """Return a value as JSON has it; parts of a document that nothing checks may hold anything."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if value is None or isinstance(value, str | bool | int | float):
        return value
    if isinstance(value, Mapping):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return str(value)
