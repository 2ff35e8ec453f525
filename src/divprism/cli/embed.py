"""`divprism embed`: outputs and prompts to a folder of vectors."""

from pathlib import Path

import typer

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
    embedders_from_flags,
    progress_on_stderr,
    say,
)
from divprism.embedding import embed as embed_samples
from divprism.embedding import save_embedded
from divprism.errors import ArgumentError
from divprism.readers import load

__all__ = ["embed"]


def embed(
    source: Source = None,
    output: Path = typer.Option(..., "--output", "-o", help="Folder to write outputs.npy, prompts.npy and pairs.jsonl to."),
    prompts: Prompts = None,
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
) -> None:
    """Embed outputs and prompts, and keep the vectors in a folder that `divprism score` reads."""
    if source is None:
        raise ArgumentError("name the outputs: divprism embed IN -o DIR.")
    samples = load(
        source,
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
    with progress_on_stderr(quiet) as progress:
        embedded = embed_samples(
            samples, made["x"], made["t"], cache=False if no_cache else cache, num_workers=num_workers, progress=progress
        )
    say(embedded.notes[len(samples.notes) :], quiet)
    say(embedded.warnings, False, "warning: ")
    save_embedded(output, samples, embedded)
    widths = [f"outputs {embedded.outputs.shape}"]  # type: ignore[union-attr]
    if embedded.prompts is not None:
        widths.append(f"prompts {embedded.prompts.shape}")  # type: ignore[union-attr]
    typer.echo(f"{output}: {', '.join(widths)}")
