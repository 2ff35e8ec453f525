"""`divprism groups`: diversity inside each group of prompts, the least diverse first."""

import csv
import io
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import typer

from divprism.analysis.groups.decomposition import prompt_groups
from divprism.analysis.groups.grouping import (
    EigenDirectionGrouping,
    EigenGrouping,
    ExactPromptGrouping,
    Grouping,
    KMeansGrouping,
    LabelGrouping,
)
from divprism.analysis.groups.nested import nested_scores
from divprism.cli.flags import Embedding, Reading, Scoring, bundled, of_model
from divprism.cli.options import (
    Config,
    Output,
    Quiet,
    choice,
    progress_on_stderr,
    say,
    typed,
    write_result,
)
from divprism.data.readers import read_array
from divprism.data.readers.guards import shown
from divprism.data.samples import Samples
from divprism.errors import ArgumentError, DivprismError
from divprism.report.formats import kernel_note
from divprism.report.texts import literal, number_of, shortened
from divprism.report.words import at_equal_size, entry_label, equal_size_note

__all__ = ["groups"]

Document = dict[str, Any]
_WAYS: dict[str, Callable[[int], Grouping]] = {
    "eigen": EigenGrouping,
    "directions": EigenDirectionGrouping,
    "prompt": lambda number: ExactPromptGrouping(),
    "kmeans": KMeansGrouping,
}


@bundled
def groups(
    context: typer.Context,
    reading: Reading,
    scoring: Scoring,
    embedding: Embedding,
    by: str = typer.Option(
        "eigen",
        "--by",
        help=f"{', '.join(_WAYS)}, or a field of IN.",
        metavar=f"{'|'.join(_WAYS)}|FIELD",
    ),
    labels: str | None = typer.Option(
        None, "--labels", help="A group per output, from a file; in place of --by."
    ),
    num_groups: int = typer.Option(
        10, "--num-groups", min=1, help="How many, by eigen, directions or kmeans."
    ),
    model: str | None = typer.Option(None, "--model", help="Which model, if IN holds several."),
    num_modes: int = typer.Option(
        3, "--num-modes", min=0, help="Kinds of outputs told of each group, at most."
    ),
    num_examples: int = typer.Option(
        3, "--num-examples", min=1, help="Typical prompts, and outputs of a mode, in JSON."
    ),
    min_size: int = typer.Option(
        5, "--min-size", min=2, help="Outputs below which a group is too small to tell."
    ),
    top: int = typer.Option(
        10, "--top", min=1, help="Groups shown in a table; JSON and CSV hold all."
    ),
    nested: bool = typer.Option(
        False, "--nested", help="Also correlate Conditional with Cluster over ever more groups."
    ),
    quiet: Quiet = False,
    form: str = typer.Option(
        "table", "--format", help="table|json|csv|md.", metavar="table|json|csv|md"
    ),
    output: Output = None,
    config: Config = None,
) -> None:
    """Split outputs by their prompts and tell where the model repeats itself: the least diverse groups first."""
    choice(form, _FORMATS, "--format")
    if typed(context, "truncation"):
        raise ArgumentError("--truncation has no meaning for groups: their matrices are small.")
    if scoring.truncation is not None:
        say([f"groups are not truncated; that of {config} is left out."], False, "warning: ")
    samples, field = _read(reading, None if by in _WAYS or labels else by, model)
    say(samples.notes, quiet)
    settings = scoring.settings(context) | embedding.settings(samples)
    del settings["truncation"]
    given = read_array(labels, "labels") if labels else field
    grouping = _WAYS[by](num_groups) if given is None else LabelGrouping(given)
    shown_of_each: dict[str, Any] = {
        "num_modes": num_modes,
        "num_examples": num_examples,
        "min_size": min_size,
    }
    with progress_on_stderr(quiet) as progress:
        found = prompt_groups(
            samples, grouping=grouping, progress=progress, **shown_of_each, **settings
        )
    say(found.notes[len(samples.notes) :], quiet)
    say(found.warnings, False, "warning: ")
    document = found.to_dict()
    if nested:
        if found.labels is None:
            raise ArgumentError("--nested needs groups that rows belong to; directions are soft.")
        kept = {
            name: value for name, value in settings.items() if name not in ("estimator", "memory")
        }
        kept |= {
            name: found.settings[name] for name in ("kernel_x", "kernel_t")
        }  # as chosen on all rows
        groups_found = {group.name for group in found.groups}
        inside = [
            place for place, name in enumerate(found.labels) if name in groups_found
        ]  # a row in none is named ""
        names = [found.labels[place] for place in inside]
        document["nested"] = nested_scores(samples.select(inside), None, names, **kept).to_dict()
    write_result(_FORMATS[form](document, top), output)


def _read(
    reading: Reading, by: str | None, model: str | None
) -> tuple[Samples, tuple[str, ...] | None]:
    """The pairs of one model, and the values of the field that groups them."""
    samples = reading.samples(limit=None)
    field = None if by is None else _field(samples, reading, by)
    chosen = of_model(samples, model)
    places = list(range(len(samples)))
    if samples.models is not None and chosen.models is not None:
        places = [place for place in places if samples.models[place] == chosen.models[0]]
    if reading.limit is not None:
        chosen, places = chosen.head(reading.limit), places[: reading.limit]
    return chosen, None if field is None else tuple(field[place] for place in places)


def _field(samples: Samples, reading: Reading, by: str) -> tuple[str, ...]:
    """The field of each output, read as if it named the model."""
    if reading.source == "-":
        raise ArgumentError(
            "--by FIELD reads its source twice, which standard input cannot be; name a file."
        )
    try:
        labelled = reading.samples(limit=None, model_field=by)
    except DivprismError as error:
        raise ArgumentError(
            f"--by {shown(by)} is neither {', '.join(_WAYS)} nor a field that can be read: {error}"
        ) from None
    if labelled.models is None or len(labelled) != len(samples):
        raise ArgumentError(
            f"--by {shown(by)}: {samples.source} has no such field for each output."
        )
    return labelled.models


def _label(entry: Document, width: int) -> str:
    """What stands for a row, in one line."""
    return shortened(entry_label(entry), width)


@dataclass(frozen=True)
class _Line:
    """A group as cells: figures, its name and typical prompt, and a share and example for each mode."""

    figures: list[str]
    prompt: str
    modes: list[tuple[str, str]]


def _lines(document: Document, top: int, width: int) -> tuple[list[str], list[_Line]]:
    """Heads of the figures, and a line for each group that is large enough."""
    heads = ["vendi", "rke", "share", "n"]
    fair = at_equal_size(document)
    lines = []
    for group in [group for group in document["groups"] if not group["small"]][:top]:
        figures = [
            f"{group['vendi']:.2f}",
            f"{group['rke']:.2f}",
            f"{group['share']:.1%}",
            f"{group['size']:,.0f}",
        ]
        prompt = _label(group["prompts"][0], width)
        name = shortened(group["name"], width)
        lines.append(
            _Line(
                [f"{group['rarefied']:.2f}", *figures] if fair else figures,
                prompt
                if name == prompt or group["prompts"][0].get("text") == group["name"]
                else f"{name}: {prompt}",
                [
                    (f"{mode['share']:.0%}", _label(mode["outputs"][0], width))
                    for mode in group["modes"]
                ],
            )
        )
    return ([f"vendi of {document['equal_size']}", *heads] if fair else heads), lines


def _notes(document: Document, top: int) -> list[str]:
    """What the groups add up to, what is not shown, and the kernels."""
    order = float(document["settings"]["order"])
    lines = [
        f"adding up to {document['aggregate']:.4f} at order {order:g}, {document['gap']:+.4f} nats from Conditional-Vendi "
        f"{document['conditional_vendi']:.4f}; to {document['aggregate_rke']:.4f} at order 2, {document['gap_rke']:+.4f} nats "
        f"from Conditional-RKE {document['conditional_rke']:.4f}"
    ]
    if at_equal_size(document):
        lines.insert(0, equal_size_note(document))
    if abs(document["gap"]) > 0.05:
        lines.append(
            f"(the prompt kernel sees {'fewer' if document['gap'] < 0 else 'more'} kinds of prompts than these groups)"
        )
    if document["cluster_vendi"] is not None:
        lines.append(
            f"Cluster-Vendi {document['cluster_vendi']:.4f}, Cluster-RKE {document['cluster_rke']:.4f}"
        )
    if "nested" in document:
        lines.append(_nested_note(document["nested"]))
    hidden = len(document["groups"]) - document["num_small"] - top
    if hidden > 0:
        lines.append(f"{hidden:,} more groups are not shown (--top)")
    if document["num_small"]:
        small = number_of(document["num_small"], "group")
        lines.append(f"{small} with fewer than {document['min_size']} outputs: too small to tell")
    if document["coverage"] < 1 - 1e-9:
        lines.append(f"the groups hold {document['coverage']:.1%} of all")
    return [*lines, kernel_note(document)]


def _nested_note(nested: Document) -> str:
    parts = []
    for name, title in (("vendi", "Vendi"), ("rke", "RKE")):
        told = [
            f"{nested[kind][name]:.3f}" if nested[kind][name] is not None else "none"
            for kind in ("pearson", "spearman")
        ]
        parts.append(f"{title}: Pearson {told[0]}, Spearman {told[1]}")
    return f"Conditional with Cluster over {len(nested['sizes'])} nested parts: {'; '.join(parts)}"


def _title(document: Document) -> str:
    data = document["data"]
    return f"{data['n']:,} pairs, {data['prompts']:,} distinct prompts, {len(document['groups']):,} groups; least diverse first"


def _table(document: Document, top: int) -> str:
    heads, lines = _lines(document, top, 72)
    widths = [
        max([len(head), *(len(line.figures[place]) for line in lines)])
        for place, head in enumerate(heads)
    ]
    margin = " " * (sum(widths) + 2 * len(widths))
    text = [
        _title(document),
        "  ".join(head.rjust(width) for head, width in zip(heads, widths, strict=True))
        + "  prompts",
    ]
    for line in lines:
        text.append(
            "  ".join(
                [
                    *(cell.rjust(width) for cell, width in zip(line.figures, widths, strict=True)),
                    line.prompt,
                ]
            )
        )
        text += [f"{margin}{share:>4} {example}" for share, example in line.modes]
    return "\n".join([*text, *_notes(document, top)]) + "\n"


def _markdown(document: Document, top: int) -> str:
    heads, lines = _lines(document, top, 120)
    text = [f"| {' | '.join(heads)} | prompts | outputs |", "|" + "---:|" * len(heads) + "---|---|"]
    for line in lines:
        modes = "<br>".join(f"{share} {literal(example)}" for share, example in line.modes)
        text.append(f"| {' | '.join(line.figures)} | {literal(line.prompt)} | {modes} |")
    return "\n".join([*text, "", f"{_title(document)}. {'. '.join(_notes(document, top))}"]) + "\n"


def _csv(document: Document, top: int) -> str:
    fields = [
        "name",
        "share",
        "size",
        "vendi",
        "rke",
        "standard_error",
        "rarefied",
        "rarefied_error",
        "small",
    ]
    modes = max(len(group["modes"]) for group in document["groups"])
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    heads = [
        name
        for place in range(1, modes + 1)
        for name in (f"mode_{place}_share", f"mode_{place}_output")
    ]
    writer.writerow([*fields, "prompt", *heads])
    for group in document["groups"]:
        cells = [
            cell
            for mode in group["modes"]
            for cell in (mode["share"], _label(mode["outputs"][0], 1 << 20))
        ]
        row = ["" if group[field] is None else group[field] for field in fields]
        writer.writerow(
            [*row, _label(group["prompts"][0], 1 << 20), *cells, *[""] * (2 * modes - len(cells))]
        )
    return buffer.getvalue()


def _json(document: Document, top: int) -> str:
    return json.dumps(document, indent=2, allow_nan=False, ensure_ascii=False) + "\n"


_FORMATS: dict[str, Callable[[Document, int], str]] = {
    "table": _table,
    "json": _json,
    "csv": _csv,
    "md": _markdown,
}
