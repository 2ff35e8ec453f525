"""One result document, five spellings."""

import csv
import io
import json
from collections.abc import Callable, Mapping
from typing import Any

from divprism.report.texts import literal, number_of
from divprism.scores.registry import SCORES

__all__ = [
    "FORMATS",
    "MODEL_FORMATS",
    "caption",
    "kernel_note",
    "model_note",
    "model_table",
    "remarks",
    "render",
    "render_models",
]

Document = Mapping[str, Any]
_INFORMS = 10.0  # times the score: a bound that reaches further tells nothing
_SIDES = {"x": "outputs", "t": "prompts"}


def render(document: Document, form: str) -> str:
    """A result document (`Evaluation.to_dict()`) as text in one of `FORMATS`."""
    return FORMATS[form](document)


def render_models(documents: Mapping[str, Document], form: str) -> str:
    """The results of several models as one text: a row each, or a document of documents."""
    if form == "json":
        return _json({"schema": 1, "models": documents})
    if form == "csv":
        parts = [_csv(document).splitlines() for document in documents.values()]
        lines = [f"model,{parts[0][0]}"]
        for model, part in zip(documents, parts, strict=True):
            lines += [f"{_csv_cell(model)},{line}" for line in part[1:]]
        return "\n".join(lines) + "\n"
    return MODEL_FORMATS[form](*model_table(documents), model_note(documents))


def _csv_cell(text: str) -> str:
    buffer = io.StringIO()
    csv.writer(buffer, lineterminator="").writerow([text])
    return buffer.getvalue()


def model_table(documents: Mapping[str, Document]) -> tuple[list[str], list[list[str]]]:
    """Names of the columns, and a row for each model; sampling error where it is known, else that of an estimate."""
    names = list(
        dict.fromkeys(name for document in documents.values() for name in document["scores"])
    )
    shuffled = any(document["baseline"] for document in documents.values())
    rows = []
    for model, document in documents.items():
        cells = [
            "" if (score := document["scores"].get(name)) is None else _cell(score)
            for name in names
        ]
        if shuffled:
            cells.append(
                ""
                if document["baseline"] is None
                else f"{document['baseline']['excess_information']:.3f}"
            )
        rows.append([model, f"{document['data']['n']:,}", *cells])
    return ["model", "n", *names, *(["excess_information"] if shuffled else [])], rows


def _cell(score: dict[str, Any]) -> str:
    if (interval := score["interval"]) is not None:
        return f"{score['value']:.2f} +- {_half(interval):.2g}"
    return f"{score['value']:.3f}" + (
        f" +- {score['standard_error']:.1g}" if score["standard_error"] else ""
    )


def _any_interval(document: Document) -> dict[str, Any] | None:
    """One of the intervals, which share level and units; None if there are none."""
    return next(
        (score["interval"] for score in document["scores"].values() if score["interval"]), None
    )


def _half(interval: dict[str, Any]) -> float:
    return (interval["high"] - interval["low"]) / 2


def model_note(documents: Mapping[str, Document]) -> str:
    """What the numbers of several models were made with."""
    first = next(iter(documents.values()))
    return "; ".join([_order(first["settings"]), kernel_note(first), *_interval_note(documents)])


def _interval_note(documents: Mapping[str, Document]) -> list[str]:
    """What the errors mean: level, and what was drawn."""
    found = [
        interval
        for document in documents.values()
        if (interval := _any_interval(document)) is not None
    ]
    if not found:
        return []
    units = " or ".join(sorted({f"{interval['unit']}s" for interval in found}))
    return [f"+-: half of the {found[0]['level']:.0%} interval, {units} drawn"]


def _model_table(columns: list[str], rows: list[list[str]], note: str) -> str:
    shown = [[cell if cell.isprintable() else repr(cell) for cell in row] for row in rows]
    widths = [max(len(row[place]) for row in [columns, *shown]) for place in range(len(columns))]
    lines = []
    for row in [columns, *shown]:
        cells = [
            cell.ljust(width) if place == 0 else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    return "\n".join([*lines, note]) + "\n"


def _model_markdown(columns: list[str], rows: list[list[str]], note: str) -> str:
    lines = ["| " + " | ".join(columns) + " |", "|---" + "|---:" * (len(columns) - 1) + "|"]
    lines += ["| " + " | ".join([literal(row[0]), *row[1:]]) + " |" for row in rows]
    return "\n".join([*lines, "", note]) + "\n"


def _model_latex(columns: list[str], rows: list[list[str]], note: str) -> str:
    head = [r"% needs \usepackage{booktabs}", f"% {' '.join(note.split())}"]
    lines = [*head, rf"\begin{{tabular}}{{l{'r' * (len(columns) - 1)}}}", r"\toprule"]
    lines += [" & ".join(_latex_text(cell) for cell in columns) + r" \\", r"\midrule"]
    lines += [
        " & ".join(_latex_text(cell).replace("+-", r"$\pm$") for cell in row) + r" \\"
        for row in rows
    ]
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}"]) + "\n"


MODEL_FORMATS: dict[str, Callable[[list[str], list[list[str]], str], str]] = {
    "table": _model_table,
    "md": _model_markdown,
    "latex": _model_latex,
}


def _rows(document: Document) -> list[tuple[str, str, str, str]]:
    """Name, value, error or interval, and meaning of each score."""
    rows = []
    for name, score in document["scores"].items():
        error = f"{score['standard_error']:.2g}" if score["standard_error"] else "exact"
        if (interval := score["interval"]) is not None:
            error = f"{interval['low']:.4g} to {interval['high']:.4g}"
        rows.append((name, f"{score['value']:.4f}", error, SCORES[name]))
    return rows


def _error_title(document: Document) -> str:
    interval = _any_interval(document)
    return "error" if interval is None else f"{interval['level']:.0%} interval"


def remarks(document: Document) -> list[str]:
    """What stands below a table: what the interval is of, and the shuffled baseline in words."""
    lines = []
    interval = _any_interval(document)
    if interval is not None:
        drawn = number_of(interval["num_units"], interval["unit"])
        lines.append(
            f"intervals: of the mean over other samples like this one; drawn at random are the {drawn}"
        )
        if told := _bounds_told(document):
            lines.append(
                f"of infinitely many samples, whatever their law, at {interval['level']:.0%}: {told}"
            )
    if (baseline := document["baseline"]) is not None:
        excess, count = baseline["excess_information"], baseline["num_permutations"]
        lines.append(
            f"excess information: {excess:.3f} nats over {number_of(count, 'random pairing')} of outputs and prompts, whose "
            f"information_vendi is {baseline['baseline']:.4f} (p = {baseline['p_value']:.2g})"
        )
    return lines


def _bounds_told(document: Document) -> str:
    """The papers' bounds in words, those that end within ten times the score: of more, nobody learns anything."""
    return ", ".join(
        f"{name} {bound['low']:.2f} to {bound['high']:.2f} ({bound['theorem']})"
        for name, score in document["scores"].items()
        if (bound := score.get("bound"))
        and bound["high"] is not None
        and bound["high"] <= _INFORMS * score["value"]
    )


def caption(document: Document) -> str:
    """What was scored and how, in one line."""
    data, settings = document["data"], document["settings"]
    subject = number_of(data["n"], "output")
    if data["prompts"] is not None:
        subject = f"{number_of(data['n'], 'pair')}, {number_of(data['prompts'], 'distinct prompt')}"
    return f"{subject}; {_order(settings)}"


def _order(settings: dict[str, Any]) -> str:
    cut = "" if settings["truncation"] is None else f", truncation {settings['truncation']}"
    return f"order inf{cut}" if settings["order"] == "inf" else f"order {settings['order']:g}{cut}"


def kernel_note(document: Document) -> str:
    """The kernels, with the convention that a bandwidth is meant in."""
    settings = document["settings"]
    parts = []
    for side, what in (("x", "outputs"), ("t", "prompts")):
        kernel, bandwidth = settings[f"kernel_{side}"], settings[f"bandwidth_{side}"]
        if kernel is not None:
            parts.append(
                f"{what}: {kernel}"
                if bandwidth is None
                else f"{what}: {kernel}, bandwidth {bandwidth:.6g}"
            )
    note = "kernel of " + "; of ".join(parts)
    if settings["bandwidth_x"] is not None or settings["bandwidth_t"] is not None:
        note += "; k = exp(-d^2 / (2 bandwidth^2))"
    if settings["bandwidth_rule"] is not None:
        note += f"; bandwidth by rule: {settings['bandwidth_rule']}"
    made = [f"{_SIDES[entry['side']]} by {entry['id']}" for entry in document["embedders"]]
    return f"{note}; embedded: {', '.join(made)}" if made else note


def _table(document: Document) -> str:
    from rich.console import Console
    from rich.table import Table

    table = Table(
        title=caption(document), title_justify="left", title_style="bold", box=None, pad_edge=False
    )
    table.add_column("score", no_wrap=True)
    table.add_column("value", justify="right", no_wrap=True)
    table.add_column(_error_title(document), justify="right", no_wrap=True)
    table.add_column("reads as")
    for row in _rows(document):
        table.add_row(*row)
    buffer = io.StringIO()
    console = Console(file=buffer, width=100, color_system=None, highlight=False)
    console.print(table)
    for line in (*remarks(document), kernel_note(document)):
        console.print(line, soft_wrap=True, markup=False)
    return "\n".join(line.rstrip() for line in buffer.getvalue().splitlines()) + "\n"


def _json(document: Document) -> str:
    return json.dumps(document, indent=2, allow_nan=False, ensure_ascii=False) + "\n"


def _csv(document: Document) -> str:
    fields = ["value", "standard_error", "entropy", "order", "truncation", "method"]
    ends = ["low", "high", "level"]
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(["score", "n", *fields, *ends])
    for name, score in document["scores"].items():
        cells = [score[field] for field in fields] + [
            (score["interval"] or {}).get(end) for end in ends
        ]
        writer.writerow(
            [name, document["data"]["n"], *("" if cell is None else cell for cell in cells)]
        )
    return buffer.getvalue()


def _markdown(document: Document) -> str:
    lines = [f"| score | value | {_error_title(document)} | reads as |", "|---|---:|---:|---|"]
    lines += ["| " + " | ".join(row) + " |" for row in _rows(document)]
    note = "; ".join([caption(document), kernel_note(document), *remarks(document)])
    return "\n".join([*lines, "", note]) + "\n"


def _latex(document: Document) -> str:
    lines = [
        r"% needs \usepackage{booktabs}",
        *(f"% {line}" for line in (caption(document), kernel_note(document))),
    ]
    lines += [f"% {line}" for line in remarks(document)]
    title = _latex_text(_error_title(document).capitalize())
    lines += [r"\begin{tabular}{lrr}", r"\toprule", rf"Score & Value & {title} \\", r"\midrule"]
    lines += [" & ".join(_latex_text(cell) for cell in row[:3]) + r" \\" for row in _rows(document)]
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}"]) + "\n"


def _latex_text(text: str) -> str:
    return "".join(_LATEX.get(letter, letter) for letter in text.replace("\n", " "))


_LATEX = {
    "\\": r"\textbackslash{}",
    **{letter: f"\\{letter}" for letter in "_%&#${}"},
    "^": r"\^{}",
    "~": r"\~{}",
}

FORMATS: dict[str, Callable[[Document], str]] = {
    "table": _table,
    "json": _json,
    "csv": _csv,
    "md": _markdown,
    "latex": _latex,
}
"""The formats that `render` knows."""
