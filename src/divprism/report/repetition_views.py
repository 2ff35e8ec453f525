"""Models side by side on the same prompts, and the least diverse prompts, for the page."""

from dataclasses import dataclass

from divprism.report.documents import Document
from divprism.report.sections import EntryView, TableView, entry_view, table_view
from divprism.report.table import Column, Table
from divprism.report.texts import number_of, shortened, significant
from divprism.report.words import entry_label

__all__ = ["BesideSection", "WorstSection", "beside_section", "worst_section"]

_LONGEST_OUTPUT = 220  # letters of an output side by side: a few lines
_LONGEST_PROMPT = 300
_LONGEST_CELL = 90
_REASONS = {
    "apart": "Shown because the models differ most here.",
    "middle": "Shown because it is in the middle: on half of the prompts the models differ more.",
    "alike": "Shown because the models together are least diverse here.",
    "spread": "",
}


@dataclass(frozen=True)
class OutputView:
    """An output, and how many times a model gave it."""

    entry: EntryView
    count: int


@dataclass(frozen=True)
class BesideCell:
    """What one model gave for a prompt."""

    model: str
    summary: str
    share: float | None
    outputs: tuple[OutputView, ...]
    more: str


@dataclass(frozen=True)
class BesidePrompt:
    """A prompt with a cell for each model, and why it is shown."""

    id: str
    prompt: EntryView
    reason: str
    cells: tuple[BesideCell, ...]


@dataclass(frozen=True)
class BesideSection:
    """Models side by side on a few prompts."""

    introduction: str
    prompts: tuple[BesidePrompt, ...]


@dataclass(frozen=True)
class WorstSection:
    """The exact prompts with the lowest score."""

    introduction: str
    table: TableView


def beside_section(document: Document, num_models: int) -> BesideSection:
    """Return the models side by side; `num_models` counts those of the page."""
    prompts = []
    for index, shown in enumerate(document["prompts"]):
        cells = tuple(_cell(model, cell) for model, cell in shown["models"].items())
        reason = _REASONS.get(shown["reason"], "")
        entry = entry_view(shown["prompt"], _LONGEST_PROMPT)
        prompts.append(BesidePrompt(f"beside{index}", entry, reason, cells))
    total = number_of(document["num_prompts"], "shared prompt")
    introduction = f"{len(prompts)} of {total}, chosen by the scores: they are not typical."
    if all(shown["reason"] == "spread" for shown in document["prompts"]):
        introduction = f"{len(prompts)} of {total}, evenly spread."
    num_shown = max(len(prompt.cells) for prompt in prompts)
    if num_shown < num_models:
        introduction += f" {num_shown} of {num_models:,} models, from the first to the last."
    return BesideSection(introduction, tuple(prompts))


def _cell(model: str, cell: Document) -> BesideCell:
    size = number_of(cell["size"], "output")
    summary, share = size, None
    if cell["vendi"] is not None:
        summary = f"{significant(cell['vendi'])} distinct of {size}"
        share = min(1.0, cell["vendi"] / cell["size"])
    outputs = []
    for output in cell["outputs"]:
        outputs.append(OutputView(entry_view(output, _LONGEST_OUTPUT), output["count"]))
    hidden = cell["size"] - sum(output.count for output in outputs)
    more = ""
    if hidden > 0:
        more = f"and {number_of(hidden, 'more output')}"
    return BesideCell(model, summary, share, tuple(outputs), more)


def worst_section(least: Document) -> WorstSection | None:
    """Return the table of the least diverse prompts; None for results of earlier versions."""
    if not least.get("worst"):
        return None
    columns = [
        Column("prompt", "prompt"),
        Column("distinct", "distinct outputs", ".2f"),
        Column("outputs", "outputs", ",d"),
    ]
    # Outputs that are only vectors have nothing to show.
    has_repeats = any(one["repeated"] for one in least["worst"])
    if has_repeats:
        columns += [Column("repeated", "most repeated output"), Column("times", "times", ",d")]
    rows = []
    for one in least["worst"]:
        row = [shortened(entry_label(one["prompt"]), _LONGEST_CELL), one["vendi"], one["size"]]
        if has_repeats:
            row += _repeated(one["repeated"])
        rows.append(tuple(row))
    table = Table(tuple(columns), tuple(rows))
    return WorstSection(_introduction(least), table_view(table, "The least diverse prompts"))


def _repeated(repeated: Document | None) -> list[str | int | None]:
    if repeated is None:
        return ["no output twice", None]
    return [shortened(entry_label(repeated["output"]), _LONGEST_CELL), repeated["count"]]


def _introduction(least: Document) -> str:
    compared = number_of(least["num_compared"], "exact prompt")
    text = f"The least diverse of {compared}"
    if least["is_sampled"]:
        text += f", compared at {least['num_outputs']:,} random outputs of each"
    text += f"; half of them have at least {significant(least['median'])} distinct outputs."
    if least["num_small"]:
        small = number_of(least["num_small"], "prompt")
        text += f" Left out: {small} with far fewer outputs than the others, or fewer than three."
    return text
