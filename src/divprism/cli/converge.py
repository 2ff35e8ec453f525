"""`divprism converge`: scores against the number of samples, and whether there are enough."""

import csv
import io
import json

import typer

from divprism.analysis.convergence import Convergence
from divprism.analysis.convergence import converge as converge_samples
from divprism.analysis.jackknife import UNITS
from divprism.cli.flags import Embedding, Reading, Scoring, bundled, of_model
from divprism.cli.options import (
    Config,
    Output,
    Quiet,
    choice,
    progress_on_stderr,
    say,
    write_result,
)
from divprism.cli.report import Plot, check_plot, write_plot
from divprism.core.kernels import Categorical
from divprism.data.samples import Samples
from divprism.embedders.embedding import embed
from divprism.errors import ArgumentError

__all__ = ["converge"]

_FORMATS = ("table", "json", "csv")
_ONE_BANDWIDTH = (
    "The bandwidth is chosen on this model's data, by divprism score on those of all models: "
    "with its --bandwidth-x and --bandwidth-t the numbers are the same."
)


@bundled
def converge(
    context: typer.Context,
    reading: Reading,
    scoring: Scoring,
    embedding: Embedding,
    model: str | None = typer.Option(
        None, "--model", help="Which model, where the source holds several."
    ),
    sizes: str | None = typer.Option(
        None, "--sizes", help="Numbers of units, as 100,200,400; all is added."
    ),
    num_repeats: int = typer.Option(
        5, "--num-repeats", help="Random orders that subsets are taken from."
    ),
    unit: str | None = typer.Option(
        None,
        "--unit",
        help="What subsets are made of: single pairs, or prompts with all outputs.",
        metavar="|".join(UNITS),
    ),
    tolerance: float = typer.Option(
        0.01, "--tolerance", help="Relative distance from the limit that is close enough."
    ),
    quiet: Quiet = False,
    form: str = typer.Option(
        "table", "--format", help=f"{'|'.join(_FORMATS)}.", metavar="|".join(_FORMATS)
    ),
    output: Output = None,
    plot: Plot = None,
    config: Config = None,
) -> None:
    """Score growing subsets, and say whether there are enough samples, for which score, and how many would do.

    Truncated scores keep an eighth of the pairs as eigenvalues unless --truncation says otherwise.
    """
    choice(form, _FORMATS, "--format")
    check_plot(plot)
    settings, ladder = scoring.settings(context), _sizes(sizes)
    whole = reading.samples()
    say(whole.notes, quiet)
    samples = of_model(whole, model)
    if isinstance(settings["kernel_t"], Categorical):
        samples = samples.with_prompt_ids()
    with progress_on_stderr(quiet) as progress:
        embedded = embed(samples, **embedding.settings(samples), progress=progress)
        result = converge_samples(
            embedded.outputs,
            embedded.prompts,
            sizes=ladder,
            num_repeats=num_repeats,
            unit=unit,
            tolerance=tolerance,
            progress=progress,
            **settings,
        )
    say(embedded.notes[len(samples.notes) :], quiet)
    pooled = whole.models is not None and len(set(whole.models)) > 1
    say([_ONE_BANDWIDTH] if pooled and result.settings["bandwidth_rule"] is not None else [], quiet)
    say([*embedded.warnings, *result.warnings], False, "warning: ")
    write_result(_rendered(result, embedded, form), output)
    if plot is not None:
        write_plot(result, plot)


def _sizes(text: str | None) -> list[int] | None:
    if text is None:
        return None
    try:
        return [
            int(part) for part in text.strip("[]").split(",")
        ]  # brackets: from a result used as --config
    except ValueError:
        raise ArgumentError(
            f"--sizes must be whole numbers with commas between, as 100,200,400; got {text!r}."
        ) from None


def _rendered(result: Convergence, embedded: Samples, form: str) -> str:
    if form == "table":
        return str(result)
    if form == "json":
        model = None if embedded.models is None else embedded.models[0]
        data = {"source": embedded.source, "model": model, "skipped": embedded.skipped}
        document = result.to_dict() | {"data": data, "embedders": list(embedded.embedders)}
        return json.dumps(document, indent=2, allow_nan=False, ensure_ascii=False) + "\n"
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(["score", "size", "outputs", "mean", "standard_deviation"])
    counts = result.pairs.mean(axis=0)
    for name, mean in result.means.items():
        for place, size in enumerate(result.sizes):
            writer.writerow(
                [
                    name,
                    int(size),
                    float(counts[place]),
                    float(mean[place]),
                    float(result.deviations[name][place]),
                ]
            )
    return buffer.getvalue()
