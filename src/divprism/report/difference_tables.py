"""Tables of differences between models, of groups of prompts, and of what is novel."""

from typing import Any

from divprism.report.documents import Document
from divprism.report.table import Cell, Column, Measured, Table
from divprism.report.tables import kernel_notes, warnings_in
from divprism.report.texts import number_of, significant
from divprism.report.words import entry_label, percent

__all__ = [
    "difference_records",
    "difference_sentences",
    "differences_table",
    "groups_of_differences_table",
    "novelty_records",
    "novelty_sentences",
    "novelty_table",
]

_SHARE = ".1%"
_SHOWN_COPIES = 10  # near-copies below a table


def differences_table(document: Document) -> Table:
    """The modes that one model has more of, the largest difference first."""
    found = document["differences"]
    columns = _mode_columns(found["first"], found["second"], found["modes"], has_side=True)
    rows = [_mode_row(mode, has_side=True) for mode in found["modes"]]
    return Table(
        tuple(columns),
        tuple(rows),
        title=_title(document),
        notes=(*difference_sentences(document), *_mode_notes(found), *kernel_notes(document)),
        warnings=warnings_in(document),
    )


def _title(document: Document) -> str:
    found, data = document["differences"], document["data"]
    outputs = number_of(data["n"], "output")
    prompts = number_of(data["prompts"], "prompt")
    return f"{found['first']} and {found['second']}: {outputs} of each for {prompts}"


def _mode_columns(
    first: str, second: str, modes: list[Document], *, has_side: bool
) -> list[Column]:
    columns = [
        Column("share_first", first, _SHARE),
        Column("share_second", second, _SHARE),
        Column("held_out", "other data, %", "+.1f"),
        Column("p_value", "p", ".2g"),
        Column("clear", "clear"),
        Column("example", "example"),
    ]
    if any(mode["share_reference"] is not None for mode in modes):
        columns.insert(2, Column("share_reference", "reference", _SHARE))
    if has_side:
        columns.insert(0, Column("model", "more in"))
    return columns


def _mode_row(mode: Document, *, has_side: bool) -> tuple[Cell, ...]:
    row: list[Cell] = [mode["share_first"], mode["share_second"]]
    if mode["share_reference"] is not None:
        row.append(mode["share_reference"])
    clear = "no"
    if mode["clear"]:
        clear = "yes"
    # In percent, because the error of a share would be printed as a plain number.
    difference = Measured(*(_percent(mode[name]) for name in ("held_out", "low", "high")))
    row += [difference, mode["p_value"], clear, _example(mode)]
    if has_side:
        row.insert(0, mode["model"])
    return tuple(row)


def _percent(share: Any) -> Any:
    """A share in percent; None stays None."""
    if share is None:
        return None
    return 100 * share


def _example(mode: Document) -> str:
    """The output that shows a mode best, after its prompt."""
    if not mode["examples"]:
        return ""
    example = mode["examples"][0]
    output = entry_label(example["output"])
    if example["prompt"] is None:
        return output
    return f"{entry_label(example['prompt'])} -> {output}"


def difference_sentences(document: Document) -> list[str]:
    """Whether two models differ, by how much, and what of it is clear."""
    found = document["differences"]
    clear = [mode for mode in found["modes"] if mode["clear"]]
    text = _without_clear_modes(found)
    if clear:
        first, second = found["first"], found["second"]
        of_first = sum(mode["model"] == first for mode in clear)
        modes = number_of(len(found["modes"]), "mode")
        text = (
            f"clear differences in {len(clear)} of {modes} (kinds of output): "
            f"{first} has more of {of_first}, {second} has more of {len(clear) - of_first}"
        )
    return [text, _total_sentence(found, "the models")]


def _without_clear_modes(found: Document) -> str:
    """Why no mode is clear."""
    if not found["modes"]:
        return "no modes: neither sample has more of anything"
    modes = number_of(len(found["modes"]), "mode")
    level, count = round(1 - found["level"], 9), found["num_exchanges"]
    if count == 0:
        return f"{modes}; without exchanges none can be called clear"
    if 1 / (1 + count) > level:
        return f"{modes}; with {number_of(count, 'exchange')} no p-value can be {level:g} or less"
    if any(mode["p_value"] is not None and mode["p_value"] <= level for mode in found["modes"]):
        return f"none of {modes} is clear: on other data, differences this large may be chance"
    return f"none of {modes} is clear: samples of one model differ this much by chance"


def _total_sentence(found: Document, samples: str) -> str:
    total = f"total difference {significant(found['total'])} of at most 1"
    if found["baseline"] is None:
        return total
    chance = f"p = {found['p_value']:.2g}, {number_of(found['num_exchanges'], 'exchange')}"
    left = significant(found["baseline"])
    return f"{total}; exchanging {samples} at random leaves {left} ({chance})"


def _mode_notes(found: Document) -> list[str]:
    notes = [
        "shares: mass of each sample in the mode (mean squared cosine), on the data that the mode "
        "was found on; 'other data': the difference of shares where directions are found on one "
        f"half and measured on the other, in percent, with its {percent(found['level'])} interval"
    ]
    if found["num_exchanges"]:
        notes.append(
            "p-value: chance of any mode this large if both were the same; clear: it is at most "
            f"{1 - found['level']:.2g} and the interval excludes 0"
        )
    if found["ratio"] != 1:
        notes.append(f"the second share counts {found['ratio']:g} times")
    if found["unseen"]:
        notes.append(
            f"modes in the span of 1,000 landmarks, which miss {found['unseen']:.1%} of the outputs"
        )
    return notes


def groups_of_differences_table(document: Document, top: int = 10) -> Table:
    """The groups of prompts with the largest difference above chance, each with its first mode."""
    found = document["differences"]
    columns = (
        Column("excess", "above chance", "+.3f"),
        Column("total", "total", ".3f"),
        Column("p_value", "p", ".2g"),
        Column("size", "n", ",d"),
        Column("group", "prompts"),
        Column("model", "more in", priority=1),
        Column("example", "example"),
    )
    rows: list[tuple[Cell, ...]] = []
    for group in found["groups"][:top]:
        row: list[Cell] = [group["excess"], group["total"], group["p_value"], group["size"]]
        row.append(group["name"])
        mode = None
        if group["modes"]:
            mode = group["modes"][0]
        row += [mode and mode["model"], mode and _example(mode)]
        rows.append(tuple(row))
    hidden = len(found["groups"]) - len(rows)
    notes = difference_sentences(document)
    notes.append(
        "above chance: total difference inside a group less its mean after exchanging the models; "
        "p is of each group alone, so of 100 groups of equal models five have 0.05 or less"
    )
    if hidden > 0:
        notes.append(f"not shown: {number_of(hidden, 'more group')}")
    return Table(
        columns,
        tuple(rows),
        title=f"{_title(document)}, in {number_of(len(found['groups']), 'group')}",
        notes=(*notes, *kernel_notes(document)),
        warnings=warnings_in(document),
    )


def difference_records(document: Document) -> Table:
    """Everything about every mode, a row each."""
    found = document["differences"]
    names = ("model", "eigenvalue", "share_first", "share_second", "share_reference", "held_out")
    columns = [Column(name, name, ".6g") for name in names]
    columns += [Column(name, name, ".6g") for name in ("agreement", "p_value")]
    columns += [Column(name, name) for name in ("clear", "prompt", "output", "nearest")]
    rows = []
    for mode in found["modes"]:
        row: list[Cell] = [mode[name] for name in names[:-1]]
        row += [
            Measured(mode["held_out"], mode["low"], mode["high"]),
            mode["agreement"],
            mode["p_value"],
            str(mode["clear"]),
        ]
        row += _example_cells(mode)
        rows.append(tuple(row))
    return Table(tuple(columns), tuple(rows))


def _example_cells(mode: Document) -> list[Cell]:
    """Prompt, output and nearest item of the first example."""
    if not mode["examples"]:
        return [None, None, None]
    example = mode["examples"][0]
    cells: list[Cell] = []
    for name in ("prompt", "output", "nearest"):
        entry = example[name]
        cells.append(entry and entry_label(entry))
    return cells


def novelty_table(document: Document) -> Table:
    """The modes that outputs have more of than a reference, then near-copies of it."""
    found = document["novelty"]
    columns = _mode_columns("outputs", "reference", [], has_side=False)
    rows = [_mode_row(mode, has_side=False) for mode in found["modes"]]
    data = document["data"]
    outputs = number_of(data["n"], "output")
    items = number_of(data["reference"], "item")
    return Table(
        tuple(columns),
        tuple(rows),
        title=f"{outputs} against a reference of {items}",
        notes=(
            *novelty_sentences(document),
            *copy_notes(document),
            *_mode_notes(found),
            *kernel_notes(document),
        ),
        warnings=warnings_in(document),
    )


def novelty_sentences(document: Document) -> list[str]:
    """How novel outputs are as a whole, and how many are near-copies."""
    found, data = document["novelty"], document["data"]
    clear = sum(mode["clear"] for mode in found["modes"])
    modes = number_of(len(found["modes"]), "mode")
    text = _without_clear_modes(found)
    if clear:
        text = (
            f"the outputs have clearly more of {clear} of {modes} (kinds of output) than the "
            "reference has"
        )
    sentences = [
        text,
        _total_sentence(found, "outputs with the reference")
        + f"; entropic novelty (KEN) {found['ken']:.3g} nats",
    ]
    expected = found["quantile"] * data["n"]
    copies = number_of(len(found["copies"]), "near-copy").replace("near-copys", "near-copies")
    text = f"{copies} of the reference among {number_of(data['n'], 'output')}"
    if found["quantile"]:
        text += (
            f"; of new outputs that are distributed as the reference, about {expected:.2g} would "
            "be listed"
        )
    return [*sentences, text]


def copy_notes(document: Document) -> list[str]:
    """The closest near-copies, a line each."""
    copies = document["novelty"]["copies"]
    notes = []
    for copy in copies[:_SHOWN_COPIES]:
        output, item = entry_label(copy["output"]), entry_label(copy["item"])
        notes.append(f"near-copy, similarity {copy['similarity']:.3f}: {output} <- {item}")
    hidden = len(copies) - len(notes)
    if hidden > 0:
        notes.append(f"not shown: {hidden:,} more; JSON and CSV have all")
    return notes


def novelty_records(document: Document) -> Table:
    """How novel each output is, a row each."""
    found = document["novelty"]
    columns = (
        Column("row", "row", "d"),
        Column("novelty", "novelty", ".6g"),
        Column("distance", "distance", ".6g"),
        Column("relative_distance", "relative_distance", ".6g"),
        Column("nearest", "nearest", "d"),
        Column("near_copy", "near_copy"),
    )
    copies = {copy["row"] for copy in found["copies"]}
    outputs = found["outputs"]
    rows: list[tuple[Cell, ...]] = []
    for row, value in enumerate(outputs["novelty"]):
        figures = [outputs[name][row] for name in ("distance", "relative_distance", "nearest")]
        rows.append((row, value, *figures, str(row in copies)))
    return Table(columns, tuple(rows))
