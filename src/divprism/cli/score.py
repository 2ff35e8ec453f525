"""`divprism score`: every score of one set of outputs."""

from pathlib import Path

import typer

from divprism import registry
from divprism.cli.options import choice, kernel_from_flags, load_config, progress_on_stderr, typed, write_result
from divprism.errors import ArgumentError
from divprism.evaluation import evaluate
from divprism.readers import read_array
from divprism.report import FORMATS, render

__all__ = ["score"]

_FORMATS = "|".join(FORMATS)


def score(
    context: typer.Context,
    outputs: str = typer.Option(..., "--outputs", help="Outputs, a row each: .npy, .npz, .csv, or - for stdin."),
    prompts: str | None = typer.Option(None, "--prompts", help="The prompt of each output: rows, or group ids (.npy)."),
    labels: str | None = typer.Option(None, "--labels", help="A group per output; adds the cluster scores."),
    weights: str | None = typer.Option(None, "--weights", help="A weight per output, summing to one."),
    order: str = typer.Option("1", "--order", help="Order of the entropy, above 0, or inf."),
    truncation: int | None = typer.Option(None, "--truncation", help="Keep this many eigenvalues of each spectrum."),
    kernel_x: str | None = typer.Option(None, "--kernel-x", help="Kernel of the outputs (see: divprism ls kernels)."),
    kernel_t: str | None = typer.Option(None, "--kernel-t", help="Kernel of the prompts."),
    bandwidth_x: float | None = typer.Option(None, "--bandwidth-x", help="Gaussian bandwidth of the outputs."),
    bandwidth_t: float | None = typer.Option(None, "--bandwidth-t", help="Gaussian bandwidth of the prompts."),
    bandwidth_rule: str = typer.Option("median", "--bandwidth-rule", help="How a bandwidth that is not given is chosen."),
    estimator: str = typer.Option("auto", "--estimator", help="How spectra are found (see: divprism ls estimators)."),
    rng: int = typer.Option(0, "--rng", help="Seed of whatever is drawn."),
    max_memory: str | None = typer.Option(
        None, "--max-memory", help="Memory beside the data, as 4GB; default half of what is free."
    ),
    quiet: bool = typer.Option(False, "--quiet", "-q", help="Neither plan nor progress on stderr."),
    form: str = typer.Option("table", "--format", help=f"{_FORMATS}.", metavar=_FORMATS),
    output: Path | None = typer.Option(None, "--output", "-o", help="Write to a file in place of stdout."),
    config: Path | None = typer.Option(
        None, "--config", help="JSON file with these flags as keys, or an earlier result.", callback=load_config, is_eager=True
    ),
) -> None:
    """Score outputs against their prompts: Vendi, Conditional and Information, at the order given and at order 2."""
    choice(form, FORMATS, "--format")
    if [outputs, prompts, labels, weights].count("-") > 1:
        raise ArgumentError("only one of --outputs, --prompts, --labels and --weights can be - (stdin).")
    if typed(context, "kernel_x") and not typed(context, "bandwidth_x"):
        bandwidth_x = None  # that of a config file belongs to the kernel that the flag replaces
    if typed(context, "kernel_t") and not typed(context, "bandwidth_t"):
        bandwidth_t = None
    prompt_array = None if prompts is None else read_array(prompts, "prompts")
    if kernel_t == "gaussian" and prompt_array is not None and prompt_array.ndim == 1:
        raise ArgumentError("--kernel-t gaussian needs a row of numbers per prompt; these are ids. Leave it out to match ids.")
    with progress_on_stderr(quiet) as progress:
        result = evaluate(
            read_array(outputs, "outputs"),
            prompt_array,
            None if labels is None else read_array(labels, "labels"),
            weights=None if weights is None else read_array(weights, "weights"),
            kernel_x=kernel_from_flags(kernel_x, bandwidth_x, "x"),
            kernel_t=kernel_from_flags(kernel_t, bandwidth_t, "t"),
            bandwidth_rule=registry.parse(bandwidth_rule, registry.BANDWIDTH_RULES, "bandwidth rule"),
            order=order,  # type: ignore[arg-type]
            truncation=truncation,
            estimator=registry.parse(estimator, registry.ESTIMATORS, "estimator"),
            rng=rng,
            memory=max_memory,
            progress=progress,
        )
    for warning in result.warnings:
        typer.echo(f"warning: {warning}", err=True)
    write_result(render(result.to_dict(), form), output)
