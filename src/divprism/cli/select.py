"""`divprism select`: a diverse subset of outputs, written in the layout that they came in."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from divprism.analysis.selection import select as select_outputs
from divprism.cli.job import Job, command, flag
from divprism.cli.messages import say
from divprism.data.files import read_file
from divprism.data.readers.guards import parse_json, shown
from divprism.data.samples import Image, Item, Samples, Video
from divprism.data.subsets import layout_of
from divprism.errors import ArgumentError, DataError, DivprismError
from divprism.report.selection_tables import selection_records, selection_table

_MOST = 64 << 20  # bytes of a file with rows to keep or drop
_WITHOUT = ("interval", "unit", "num_permutations", "fail_under", "report", "details")


@command(*_WITHOUT, "output", "workers", "scheduler", "resume", "wide", "estimator", "truncation")
def select(
    job: Job,
    k: int | None = flag(
        "Scoring", None, "Outputs to choose, of each group with --per.", "--k", "-k"
    ),
    by: str = flag("Scoring", "vendi", "Score to maximise: divprism ls scores."),
    per: str | None = flag("Scoring", None, "Choose from each.", metavar="prompt|model"),
    quality_field: str | None = flag("Input", None, "Field with a quality, higher for better."),
    keep: str | None = flag("Input", None, "File with rows or outputs to choose in any case."),
    drop: str | None = flag("Input", None, "File with rows or outputs not to choose."),
    near_duplicates: float | None = flag("Scoring", None, "Similarity of near-copies, as 0.95."),
    subset: Path | None = flag(
        "Output", None, "New file or folder for the subset.", "--output", "-o"
    ),
) -> None:
    """Choose a diverse subset of the outputs, and write it in the layout that they came in."""
    samples = job.read()
    layout = layout_of(job.source, samples, joined=job.prompts is not None)
    if subset is not None:
        layout.check(subset)  # before anything is embedded
    quality = None
    if quality_field is not None:
        quality = _qualities(job, samples, quality_field)
    options: dict[str, Any] = {"settings": job.settings(samples), "memory": job.max_memory}
    options |= {"k": k, "by": by, "per": per, "quality": quality}
    options |= {"near_duplicates": near_duplicates}
    for name, path in (("keep", keep), ("drop", drop)):
        if path is not None:
            options[name] = _rows_in(path, name, samples)
    result = job.run(select_outputs, samples, **options)
    if subset is not None:
        say(layout.write(sorted(result.positions), subset), job.quiet)
    document = result.to_dict()
    job.show(result, document, selection_table(document), selection_records(document))


def _qualities(job: Job, samples: Samples, name: str) -> list[float]:
    """The numbers in a field, in the order of the samples."""
    if job.source == "-":
        raise ArgumentError("--quality-field reads IN twice, so IN cannot be standard input.")
    quiet = replace(job, quiet=True)
    try:
        # As if the field named the model: so a field can be read from every format.
        whole = quiet.read(limit=None, model_field=name)
    except DivprismError as error:
        reason = str(error).replace(" (`model_field`)", "")
        raise ArgumentError(f"--quality-field {shown(name)}: {reason}") from None
    if whole.models is None:
        raise ArgumentError(f"--quality-field {shown(name)}: {samples.source} has no such field.")
    rows = whole.rows or range(len(whole))
    of_row = dict(zip(rows, whole.models, strict=True))
    qualities = []
    for row in samples.rows or range(len(samples)):
        try:
            qualities.append(float(of_row[row]))
        except ValueError:
            raise DataError(
                f"--quality-field {shown(name)} must hold numbers; row {row:,} has "
                f"{shown(of_row[row][:80])}."
            ) from None
    return qualities


def _rows_in(path: str, name: str, samples: Samples) -> list[int]:
    """The rows of the source that a file names: by number, or by the output itself.

    A file is a result of this command, or lines. If all lines are whole numbers, they are rows
    counted from 0; else each is the text of an output, or the name of its file.
    """
    content = read_file(path, _MOST).decode("utf-8-sig", "replace")
    if path.lower().endswith(".json"):
        document = parse_json(content, shown(path))
        if not isinstance(document, dict) or not isinstance(document.get("indices"), list):
            raise DataError(f"{shown(path)} is not a result of divprism select.")
        return list(document["indices"])
    lines = [line.strip() for line in content.splitlines() if line.strip()]
    if all(line.isascii() and line.isdigit() for line in lines):
        return [int(line) for line in lines]
    rows_of = _rows_by_name(samples)
    rows: list[int] = []
    for line in lines:
        if line not in rows_of:
            raise DataError(
                f"--{name} {shown(path)}: no output is {shown(line[:80])}; a line is a row, "
                "counted from 0, the text of an output, or the name of its file."
            )
        rows += rows_of[line]
    return rows


def _rows_by_name(samples: Samples) -> dict[str, list[int]]:
    """The rows of the source with each text, or with each file by its name or path."""
    rows_of: dict[str, list[int]] = {}
    numbers = samples.rows or range(len(samples))
    if not isinstance(samples.outputs, tuple):
        return rows_of
    for row, item in zip(numbers, samples.outputs, strict=True):
        for name in _names_of(item):
            rows_of.setdefault(name, []).append(row)
    return rows_of


def _names_of(item: Item) -> set[str]:
    names = {item.label.strip()}
    if isinstance(item, Image | Video):
        names.add(Path(item.label).name)
    return names
