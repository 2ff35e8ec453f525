"""Groups of prompts with the kinds of their outputs: a table for people, and one for files."""

from divprism.report.documents import Document
from divprism.report.table import Cell, Column, Table
from divprism.report.tables import kernel_notes, order_note, warnings_in
from divprism.report.texts import number_of
from divprism.report.words import (
    at_equal_size,
    entry_label,
    equal_size_note,
    gap_notes,
    group_title,
    grouping_note,
)

__all__ = ["group_records", "groups_listing"]

_ROUNDING = 1e-9
_FIGURES = ("share", "size", "vendi", "rke", "standard_error", "rarefied", "rarefied_error")


def groups_listing(document: Document, top: int = 10, wide: bool = False) -> Table:
    """Return the least diverse groups, and below each the kinds of its outputs.

    A kind of outputs has a row of its own: its share of the group, and an example.
    """
    columns = _figure_columns(document, wide)
    empty = [None] * len(columns)
    rows: list[tuple[Cell, ...]] = []
    for group in _comparable(document)[:top]:
        figures = [group[column.key] for column in columns]
        rows.append((*figures, _label(group)))
        for mode in group["modes"]:
            example = entry_label(mode["outputs"][0])
            rows.append((*empty, f"- {mode['share']:.0%} {example}"))
    data = document["data"]
    prompts = "distinct prompt"
    # Prompts that share a vector are groups of their own: there are more prompts than vectors.
    if data["prompts"] is not None and data["prompts"] < len(document["groups"]):
        prompts = "distinct prompt vector"
    counts = (
        number_of(data["n"], "pair"),
        number_of(data["prompts"], prompts),
        number_of(len(document["groups"]), "group"),
    )
    return Table(
        (*columns, Column("group", "prompts and outputs")),
        tuple(rows),
        title=f"{', '.join(counts)}; least diverse first",
        notes=(
            *_kinds_of_outputs(document),
            *grouping_note(document),
            *_means(document),
            *_omissions(document, top),
            *kernel_notes(document),
        ),
        warnings=warnings_in(document),
    )


def _figure_columns(document: Document, wide: bool) -> list[Column]:
    # No priority: on a narrow terminal the prompts are shortened, and the figures stay.
    columns = [
        Column("vendi", "vendi", ".2f"),
        Column("rke", "rke", ".2f"),
        Column("share", "share", ".1%"),
        Column("size", "n", ",.0f"),
    ]
    if at_equal_size(document):
        columns.insert(0, Column("rarefied", f"vendi of {document['equal_size']}", ".2f"))
    if wide:
        columns.append(Column("num_prompts", "prompts", ",d", priority=1))
        columns.append(Column("standard_error", "error", ".2g", priority=2))
    return columns


def group_records(document: Document) -> Table:
    """Return everything about every group, a row each, in the order of the document."""
    columns = [Column("name", "name")]
    columns += [Column(name, name, ".6g") for name in _FIGURES]
    columns += [Column("small", "small"), Column("prompt", "prompt")]
    # A file is a rectangle: every group gets the columns of the group with the most kinds.
    most = max(len(group["modes"]) for group in document["groups"])
    for number in range(1, most + 1):
        columns.append(Column(f"mode_{number}_share", f"share {number}", ".0%"))
        columns.append(Column(f"mode_{number}_output", f"output {number}"))
    rows = []
    for group in document["groups"]:
        row: list[Cell] = [group["name"], *(group[name] for name in _FIGURES)]
        row += [str(group["small"]), group_title(group)]
        for mode in group["modes"]:
            row += [mode["share"], entry_label(mode["outputs"][0])]
        missing = len(columns) - len(row)  # groups with fewer kinds of outputs
        rows.append((*row, *[None] * missing))
    return Table(tuple(columns), tuple(rows))


def _comparable(document: Document) -> list[Document]:
    """Return the groups with enough outputs to be compared."""
    return [group for group in document["groups"] if not group["small"]]


def _label(group: Document) -> str:
    """Return the most typical prompt of a group, after its name where that says more."""
    title, name = group_title(group), group["name"]
    # Groups by label are often named after their prompt, which may have line breaks.
    if not name or " ".join(name.split()) == " ".join(title.split()):
        return title
    return f"{name}: {title}"


def _kinds_of_outputs(document: Document) -> list[str]:
    """Return what the rows below a group are; empty without any."""
    if not any(group["modes"] for group in document["groups"]):
        return []
    return ["below a group: the main kinds of its outputs, with their share of it and an example"]


def _means(document: Document) -> list[str]:
    """Return the mean of the groups, and how it compares with the scores of all pairs."""
    notes = []
    if at_equal_size(document):
        notes.append(equal_size_note(document))
    notes.append(
        f"mean of the groups by share: {document['aggregate']:.4f} at "
        f"{order_note(document['settings'])}, against Conditional-Vendi "
        f"{document['conditional_vendi']:.4f} ({document['gap']:+.4f} nats); "
        f"{document['aggregate_rke']:.4f} at order 2, against Conditional-RKE "
        f"{document['conditional_rke']:.4f} ({document['gap_rke']:+.4f} nats)"
    )
    notes += gap_notes(document)
    if document["cluster_vendi"] is not None:
        notes.append(
            f"Cluster-Vendi {document['cluster_vendi']:.4f}, "
            f"Cluster-RKE {document['cluster_rke']:.4f}: arithmetic means over the groups"
        )
    if "nested" in document:
        notes.append(_nested_note(document["nested"]))
    return notes


def _nested_note(nested: Document) -> str:
    """Return how closely the conditional scores follow the cluster scores."""
    parts = []
    for key, title in (("vendi", "Vendi"), ("rke", "RKE")):
        pearson, spearman = nested["pearson"][key], nested["spearman"][key]
        text = "undefined"  # one of the two scores is the same on all subsets
        if pearson is not None:
            text = f"Pearson {pearson:.3f}, Spearman {spearman:.3f}"
        parts.append(f"{title}: {text}")
    count = len(nested["sizes"])
    return f"Conditional against Cluster over {count} nested subsets: {'; '.join(parts)}"


def _omissions(document: Document, top: int) -> list[str]:
    """Return what the table does not show."""
    notes = []
    hidden = len(_comparable(document)) - top
    if hidden > 0:
        notes.append(f"not shown: {number_of(hidden, 'more group')}")
    if document["num_small"]:
        small = number_of(document["num_small"], "group")
        notes.append(f"not shown: {small} with fewer than {document['min_size']} outputs")
    # A sum of shares: rounding must not print that the groups hold 100.0% of all outputs.
    if document["coverage"] < 1 - _ROUNDING:
        notes.append(f"the groups contain {document['coverage']:.1%} of all outputs")
    return notes
