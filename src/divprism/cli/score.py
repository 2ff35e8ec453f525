"""`divprism score`: every score of a set of outputs, or of each model in it."""

import dataclasses
import warnings
from typing import Any

import typer

from divprism.analysis.evaluation import Evaluation, evaluate, evaluate_models
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
from divprism.cli.report import Details, Report, check_details, with_command, write_page
from divprism.data.readers import read_array
from divprism.data.samples import Samples
from divprism.errors import ArgumentError, BandwidthWarning
from divprism.report import FORMATS, render, render_models
from divprism.report.details import detailed

__all__ = ["score"]

_FORMATS = "|".join(FORMATS)


@bundled
def score(
    context: typer.Context,
    reading: Reading,
    scoring: Scoring,
    embedding: Embedding,
    outputs: str | None = typer.Option(None, "--outputs", help="The same as IN."),
    labels: str | None = typer.Option(
        None, "--labels", help="A group per output; adds the cluster scores."
    ),
    weights: str | None = typer.Option(
        None, "--weights", help="A weight per output, summing to one."
    ),
    interval: float = typer.Option(0.95, "--interval", help="Level of the intervals; 0 for none."),
    unit: Unit = None,
    num_permutations: NumPermutations = None,
    fail_under: FailUnder = None,
    quiet: Quiet = False,
    form: str = typer.Option("table", "--format", help=f"{_FORMATS}.", metavar=_FORMATS),
    output: Output = None,
    report: Report = None,
    with_details: Details = False,
    config: Config = None,
) -> None:
    """Score outputs against their prompts: Vendi, Conditional and Information, at the order given and at order 2."""
    choice(form, FORMATS, "--format")
    gates = parse_gates(fail_under)
    check_possible(gates, labels=labels is not None)
    if (reading.source is None) == (outputs is None):
        raise ArgumentError("name the outputs once: divprism score IN, or --outputs IN.")
    reading = dataclasses.replace(reading, source=reading.source or outputs)
    if [reading.source, reading.prompts, labels, weights].count("-") > 1:
        raise ArgumentError("only one of IN, --prompts, --labels and --weights can be - (stdin).")
    check_details(with_details, form)
    if weights is not None and (report is not None or with_details):
        raise ArgumentError(
            "--report and --details tell of outputs that count alike, so they do not go with --weights."
        )
    settings = scoring.settings(context)
    settings |= {"interval": interval or None, "unit": unit, "num_permutations": num_permutations}
    samples = reading.samples()
    say(samples.notes, quiet)
    check_possible(gates, labels=labels is not None, prompts=samples.prompts is not None)
    if scoring.kernel_t == "gaussian" and getattr(samples.prompts, "ndim", 2) == 1:
        raise ArgumentError(
            "--kernel-t gaussian needs a row of numbers per prompt; these are ids. Leave it out to match ids."
        )
    settings |= embedding.settings(samples)
    groups = None if labels is None else read_array(labels, "labels")
    masses = None if weights is None else read_array(weights, "weights")
    with progress_on_stderr(quiet) as progress, warnings.catch_warnings():
        warnings.simplefilter("ignore", BandwidthWarning)  # told below, with the other warnings
        results = _results(samples, settings | {"progress": progress}, groups, masses)
        wanted = report is not None or with_details
        full = (
            with_command(detailed(_one_or_all(results), groups, progress=progress))
            if wanted
            else None
        )
    first = next(iter(results.values()))
    say(first.notes[len(samples.notes) :], quiet)
    say(
        dict.fromkeys(text for result in results.values() for text in result.warnings),
        False,
        "warning: ",
    )
    documents = {model: result.to_dict() for model, result in results.items()}
    if full is not None and with_details:
        documents = full["models"] if len(results) > 1 else {"": full}
    several = len(documents) > 1
    write_result(
        render_models(documents, form) if several else render(next(iter(documents.values())), form),
        output,
    )
    if full is not None and report is not None:
        write_page([full], report, quiet)
    check_gates(results, gates)


def _one_or_all(results: dict[str, Evaluation]) -> Any:
    return results if len(results) > 1 else next(iter(results.values()))


def _results(
    samples: Samples, settings: dict[str, Any], labels: Any, weights: Any
) -> dict[str, Evaluation]:
    if samples.models is None or len(set(samples.models)) == 1:
        return {"": evaluate(samples, labels=labels, weights=weights, **settings)}
    if labels is not None or weights is not None:
        raise ArgumentError(
            "--labels and --weights belong to one model; this source holds several."
        )
    return evaluate_models(samples, **settings)
