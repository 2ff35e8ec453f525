"""`divprism embed`: outputs and prompts to a folder of vectors."""

from pathlib import Path

import typer

from divprism.cli.flags import Embedding, Reading, bundled
from divprism.cli.options import Quiet, progress_on_stderr, say
from divprism.embedders.embedding import embed as embed_samples
from divprism.embedders.embedding import save_embedded

__all__ = ["embed"]


@bundled
def embed(
    reading: Reading,
    embedding: Embedding,
    output: Path = typer.Option(
        ..., "--output", "-o", help="Folder to write outputs.npy, prompts.npy and pairs.jsonl to."
    ),
    quiet: Quiet = False,
) -> None:
    """Embed outputs and prompts, and keep the vectors in a folder that `divprism score` reads."""
    samples = reading.samples()
    say(samples.notes, quiet)
    with progress_on_stderr(quiet) as progress:
        embedded = embed_samples(samples, **embedding.settings(samples), progress=progress)
    say(embedded.notes[len(samples.notes) :], quiet)
    say(embedded.warnings, False, "warning: ")
    save_embedded(output, samples, embedded)
    widths = [f"outputs {embedded.outputs.shape}"]  # type: ignore[union-attr]
    if embedded.prompts is not None:
        widths.append(f"prompts {embedded.prompts.shape}")  # type: ignore[union-attr]
    typer.echo(f"{output}: {', '.join(widths)}")
