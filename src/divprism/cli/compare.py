"""`divprism compare`: models on the same prompts, ranked, with what their differences leave open."""

import json
import warnings
from pathlib import Path

import typer

from divprism.analysis.comparison import Comparison
from divprism.analysis.comparison import compare as compare_models
from divprism.cli.flags import Embedding, Reading, Scoring, bundled
from divprism.cli.options import (
    Config,
    FailUnder,
    NumPermutations,
    Output,
    Quiet,
    Unit,
    check_gates,
    check_possible,
    choice,
    parse_gates,
    progress_on_stderr,
    say,
    write_result,
)
from divprism.cli.report import (
    Details,
    Plot,
    Report,
    check_details,
    check_plot,
    with_command,
    write_page,
    write_plot,
)
from divprism.data.readers.guards import shown
from divprism.data.samples import Samples
from divprism.errors import ArgumentError, BandwidthWarning
from divprism.report import MODEL_FORMATS, comparison_sentences, model_note, model_table
from divprism.report.details import detailed
from divprism.report.texts import literal, ranked, visible

__all__ = ["compare"]

_FORMATS = ("table", "json", "md", "latex")


@bundled
def compare(
    context: typer.Context,
    reading: Reading,
    scoring: Scoring,
    embedding: Embedding,
    others: list[str] | None = typer.Argument(
        None, metavar="[IN ...]", help="More files or folders, a model each."
    ),
    by: str = typer.Option(
        "conditional_vendi", "--by", help="Score to rank by (see: divprism ls scores)."
    ),
    interval: float = typer.Option(0.95, "--interval", help="Level of the intervals."),
    unit: Unit = None,
    num_permutations: NumPermutations = None,
    fail_under: FailUnder = None,
    quiet: Quiet = False,
    form: str = typer.Option(
        "table", "--format", help=f"{'|'.join(_FORMATS)}.", metavar="|".join(_FORMATS)
    ),
    output: Output = None,
    report: Report = None,
    with_details: Details = False,
    plot: Plot = None,
    config: Config = None,
) -> None:
    """Compare models on the same prompts, with as many outputs of each: paired differences, and a ranking with its ties.

    Name one file that holds several models, or a file or folder for each model.
    """
    choice(form, _FORMATS, "--format")
    check_plot(plot)
    check_details(with_details, form)
    gates = parse_gates(fail_under)
    check_possible(gates, labels=False)
    sources = [source for source in (reading.source, *(others or [])) if source is not None]
    parts = (
        {source: reading.samples(source) for source in sources}
        if sources
        else {"": reading.samples()}
    )
    for part in parts.values():
        say(part.notes, quiet)
    named = dict(zip(_labels(parts), parts.values(), strict=True))
    if len(named) < len(parts):
        raise ArgumentError(
            "two of the sources have the same name; say which model each holds in a field `model`."
        )
    first = next(iter(parts.values()))
    with progress_on_stderr(quiet) as progress, warnings.catch_warnings():
        warnings.simplefilter("ignore", BandwidthWarning)  # told below, with the other warnings
        settings = (
            scoring.settings(context)
            | embedding.settings(first)
            | {"num_permutations": num_permutations}
        )
        found = compare_models(
            named, by=by, interval=interval, unit=unit, progress=progress, **settings
        )
        wanted = report is not None or with_details
        full = with_command(detailed(found, progress=progress)) if wanted else None
    say(found.notes, quiet)
    say(found.warnings, False, "warning: ")
    document = full if full is not None and with_details else found.to_dict()
    text = (
        json.dumps(document, indent=2, allow_nan=False, ensure_ascii=False) + "\n"
        if form == "json"
        else _rendered(found, form)
    )
    write_result(text, output)
    if plot is not None:
        write_plot(found, plot)
    if full is not None and report is not None:
        write_page([full], report, quiet)
    check_gates(found.results, gates)


def _labels(parts: dict[str, Samples]) -> list[str]:
    """For each source the model that it names, if it names one; else what tells its path from those of the others."""
    told = _differing(list(parts))
    for place, part in enumerate(parts.values()):
        if part.models is not None and len(set(part.models)) == 1:
            told[place] = part.models[0]
    return told


def _differing(sources: list[str]) -> list[str]:
    """Of each path the shortest end that no other has, without the folders and names that all paths end in.

    >>> _differing(["runs/a/out.jsonl", "runs/b/out.jsonl"]), _differing(["x/a.csv", "x/b.csv", "y/b.csv"])
    (['a', 'b'], ['a.csv', 'x/b.csv', 'y/b.csv'])
    """
    paths = [Path(source).parts for source in sources]
    common = 0
    while len({path[-1 - common :] for path in paths}) == 1 < len(paths) and common < len(paths[0]):
        common += 1
    if all(len(path) > common for path in paths):
        paths = [path[: len(path) - common] for path in paths]
    told = []
    for place, path in enumerate(paths):
        others = paths[:place] + paths[place + 1 :]
        lengths = (
            length
            for length in range(1, len(path) + 1)
            if all(one[-length:] != path[-length:] for one in others)
        )
        length = next(lengths, None)
        told.append(sources[place] if length is None else str(Path(*path[-length:])))
    return told


def _rendered(found: Comparison, form: str) -> str:
    documents = {model: result.to_dict() for model, result in found.results.items()}
    columns, rows = model_table(documents)
    columns = [columns[0], "rank", *columns[1:], *(["words"] if found.lengths else [])]
    for row in rows:
        words = [f"{found.lengths[row[0]]:.0f}"] if found.lengths else []
        row[:] = [row[0], ranked(found.ranks[row[0]]), *row[1:], *words]
    lines = [
        shown(visible(line))
        for line in (model_note(documents), *comparison_sentences(found.to_dict()))
    ]
    note = (
        "\n".join(lines)
        if form == "table"
        else "; ".join(literal(line) if form == "md" else line for line in lines)
    )
    return MODEL_FORMATS[form](columns, rows, note)
