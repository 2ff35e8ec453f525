"""The Pareto front of quality and diversity: its table, and its sentences below a comparison."""

from collections.abc import Sequence

from divprism.report.documents import Document
from divprism.report.table import SCORE, Cell, Column, Measured, Table
from divprism.report.texts import isolated, number_of
from divprism.scores.spec import score_spec

__all__ = ["front_cells", "front_notes", "front_table"]

_STANDINGS = {"front": "yes", "dominated": "no", "open": "open"}
_SHOWN = 5  # models that a sentence names


def front_table(document: Document) -> Table:
    """The models of a front, a row each, from the highest quality to the lowest."""
    columns = (
        Column("model", "model"),
        Column("quality", score_spec(document["quality"]).heading, SCORE),
        Column("diversity", score_spec(document["diversity"]).heading, SCORE),
        Column("front", "front"),
        Column("dominated_by", "below", priority=1),
    )
    rows = []
    for point in document["points"]:
        row: list[Cell] = [point["model"]]
        for axis in ("quality", "diversity"):
            row.append(Measured(point[axis], *(point[f"{axis}_interval"] or (None, None))))
        # Without marks of direction: a cell stands alone, and files take it as it is.
        row += [_STANDINGS[point["standing"]], ", ".join(_above(point)) or None]
        rows.append(tuple(row))
    notes = [_legend(document), _basis(document)]
    if document["level"] is not None:
        notes.append(f"±: half the width of the {document['level']:.0%} interval")
    return Table(columns, tuple(rows), notes=tuple(notes))


def front_cells(document: Document) -> dict[str, str]:
    """By model, what the column `front` of a comparison holds."""
    return {point["model"]: _STANDINGS[point["standing"]] for point in document["points"]}


def front_notes(document: Document) -> list[str]:
    """Which models are on the front, and which are not, in words."""
    by_standing: dict[str, list[Document]] = {standing: [] for standing in _STANDINGS}
    for point in document["points"]:
        by_standing[point["standing"]].append(point)
    on_front = _enumerated([point["model"] for point in by_standing["front"]])
    parts = [f"on the front of quality and {_title(document)}: {on_front}"]
    for standing, opening in (("dominated", "clearly"), ("open", "perhaps")):
        below = by_standing[standing]
        named = []
        for point in below[:_SHOWN]:
            named.append(f"{isolated(point['model'])} (below {_enumerated(_above(point)[:1])})")
        if below:
            parts.append(f"{opening} below another model in both: {_joined(named, len(below))}")
    return ["; ".join(parts), f"{_legend(document)}; {_basis(document)}"]


def _above(point: Document) -> Sequence[str]:
    """The models that dominate a point, those that clearly do if there are any."""
    above: Sequence[str] = point["clearly_dominated_by"] or point["dominated_by"]
    return above


def _enumerated(names: Sequence[str]) -> str:
    return _joined([isolated(name) for name in names[:_SHOWN]], len(names))


def _joined(named: Sequence[str], count: int) -> str:
    if count > len(named):
        return f"{', '.join(named)} and {number_of(count - len(named), 'other model')}"
    return ", ".join(named)


def _title(document: Document) -> str:
    return score_spec(document["diversity"]).title


def _legend(document: Document) -> str:
    return (
        "front: yes where no other model is higher in both quality and "
        f"{_title(document)}; no where one clearly is; open where one is, but not clearly"
    )


def _basis(document: Document) -> str:
    if document["level"] is None:
        if document["is_paired"]:
            return "too few outputs for intervals, so no difference is clear"
        return "without intervals no difference is clear: pass `interval`, or compare the models"
    if document["is_paired"]:
        return "differences are paired by prompt"
    return (
        "differences are those of separate intervals: a comparison pairs them by prompt, and tells "
        "more models apart"
    )
