"""`divprism score`: every score of a set of outputs, or of each model in it."""

from pathlib import Path
from typing import Any

import typer

from divprism import registry
from divprism.cli.options import (
    AllowOutside,
    BatchSize,
    CacheFolder,
    Device,
    EmbedderT,
    EmbedderX,
    Limit,
    ModelField,
    NoCache,
    NumWorkers,
    Offline,
    OutputField,
    OutputKind,
    Precision,
    PromptField,
    PromptKind,
    Prompts,
    Quiet,
    Source,
    Strict,
    choice,
    embedders_from_flags,
    kernel_from_flags,
    load_config,
    progress_on_stderr,
    say,
    typed,
    write_result,
)
from divprism.errors import ArgumentError
from divprism.evaluation import Evaluation, evaluate, evaluate_models
from divprism.readers import load, read_array
from divprism.report import FORMATS, render, render_models
from divprism.samples import Samples

__all__ = ["score"]

_FORMATS = "|".join(FORMATS)


def score(
    context: typer.Context,
    source: Source = None,
    outputs: str | None = typer.Option(None, "--outputs", help="The same as IN."),
    prompts: Prompts = None,
    labels: str | None = typer.Option(None, "--labels", help="A group per output; adds the cluster scores."),
    weights: str | None = typer.Option(None, "--weights", help="A weight per output, summing to one."),
    order: str = typer.Option("1", "--order", help="Order of the entropy, above 0, or inf."),
    truncation: int | None = typer.Option(None, "--truncation", help="Keep this many eigenvalues of each spectrum."),
    kernel_x: str | None = typer.Option(None, "--kernel-x", help="Kernel of the outputs (see: divprism ls kernels)."),
    kernel_t: str | None = typer.Option(None, "--kernel-t", help="Kernel of the prompts; categorical takes texts as ids."),
    bandwidth_x: float | None = typer.Option(None, "--bandwidth-x", help="Gaussian bandwidth of the outputs."),
    bandwidth_t: float | None = typer.Option(None, "--bandwidth-t", help="Gaussian bandwidth of the prompts."),
    bandwidth_rule: str = typer.Option("median", "--bandwidth-rule", help="How a bandwidth that is not given is chosen."),
    estimator: str = typer.Option("auto", "--estimator", help="How spectra are found (see: divprism ls estimators)."),
    rng: int = typer.Option(0, "--rng", help="Seed of whatever is drawn."),
    max_memory: str | None = typer.Option(
        None, "--max-memory", help="Memory beside the data, as 4GB; default half of what is free."
    ),
    output_field: OutputField = None,
    prompt_field: PromptField = None,
    model_field: ModelField = None,
    output_kind: OutputKind = None,
    prompt_kind: PromptKind = None,
    limit: Limit = None,
    strict: Strict = False,
    allow_outside: AllowOutside = False,
    embedder_x: EmbedderX = None,
    embedder_t: EmbedderT = None,
    device: Device = None,
    dtype: Precision = None,
    batch_size: BatchSize = None,
    num_workers: NumWorkers = None,
    cache: CacheFolder = None,
    no_cache: NoCache = False,
    offline: Offline = False,
    quiet: Quiet = False,
    form: str = typer.Option("table", "--format", help=f"{_FORMATS}.", metavar=_FORMATS),
    output: Path | None = typer.Option(None, "--output", "-o", help="Write to a file in place of stdout."),
    config: Path | None = typer.Option(
        None, "--config", help="JSON file with these flags as keys, or an earlier result.", callback=load_config, is_eager=True
    ),
) -> None:
    """Score outputs against their prompts: Vendi, Conditional and Information, at the order given and at order 2."""
    choice(form, FORMATS, "--format")
    if (source is None) == (outputs is None):
        raise ArgumentError("name the outputs once: divprism score IN, or --outputs IN.")
    outputs = source or outputs
    if [outputs, prompts, labels, weights].count("-") > 1:
        raise ArgumentError("only one of IN, --prompts, --labels and --weights can be - (stdin).")
    if typed(context, "kernel_x") and not typed(context, "bandwidth_x"):
        bandwidth_x = None  # that of a config file belongs to the kernel that the flag replaces
    if typed(context, "kernel_t") and not typed(context, "bandwidth_t"):
        bandwidth_t = None
    settings: dict[str, Any] = {
        "kernel_x": kernel_from_flags(kernel_x, bandwidth_x, "x"),
        "kernel_t": kernel_from_flags(kernel_t, bandwidth_t, "t"),
        "bandwidth_rule": registry.parse(bandwidth_rule, registry.BANDWIDTH_RULES, "bandwidth rule"),
        "order": order,
        "truncation": truncation,
        "estimator": registry.parse(estimator, registry.ESTIMATORS, "estimator"),
        "rng": rng,
        "memory": max_memory,
        "cache": False if no_cache else cache,
        "num_workers": num_workers,
    }
    samples = load(
        str(outputs),
        prompts,
        output_field=output_field,
        prompt_field=prompt_field,
        model_field=model_field,
        output_kind=output_kind,
        prompt_kind=prompt_kind,
        limit=limit,
        strict=strict,
        allow_outside=allow_outside,
    )
    say(samples.notes, quiet)
    made = embedders_from_flags(
        samples, {"x": embedder_x, "t": embedder_t}, device=device, dtype=dtype, batch_size=batch_size, offline=offline
    )
    settings |= {f"embedder_{side}": embedder for side, embedder in made.items()}
    if kernel_t == "gaussian" and getattr(samples.prompts, "ndim", 2) == 1:
        raise ArgumentError("--kernel-t gaussian needs a row of numbers per prompt; these are ids. Leave it out to match ids.")
    groups = None if labels is None else read_array(labels, "labels")
    masses = None if weights is None else read_array(weights, "weights")
    with progress_on_stderr(quiet) as progress:
        results = _results(samples, settings | {"progress": progress}, groups, masses)
    first = next(iter(results.values()))
    say(first.notes[len(samples.notes) :], quiet)
    say(dict.fromkeys(text for result in results.values() for text in result.warnings), False, "warning: ")
    documents = {model: result.to_dict() for model, result in results.items()}
    several = len(documents) > 1
    write_result(render_models(documents, form) if several else render(first.to_dict(), form), output)


def _results(samples: Samples, settings: dict[str, Any], labels: Any, weights: Any) -> dict[str, Evaluation]:
    if samples.models is None or len(set(samples.models)) == 1:
        return {"": evaluate(samples, labels=labels, weights=weights, **settings)}
    if labels is not None or weights is not None:
        raise ArgumentError("--labels and --weights belong to one model; this source holds several.")
    return evaluate_models(samples, **settings)
