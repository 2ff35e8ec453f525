"""`divprism embed`: outputs and prompts to a folder of vectors."""

from pathlib import Path

import numpy as np
import typer

from divprism.cli.job import Reading, command, flag
from divprism.cli.messages import warn
from divprism.embedders.embedding import embed as embed_samples
from divprism.embedders.embedding import save_embedded


@command()
def embed(
    job: Reading,
    output: Path = flag("Output", ..., "Folder to write the vectors to.", "--output", "-o"),
) -> None:
    """Embed outputs and prompts, and keep the vectors in a folder for `divprism score`."""
    samples = job.read()
    embedded = job.run(embed_samples, samples, **job.embedders(samples))
    save_embedded(output, samples, embedded)
    shapes = [f"outputs {np.shape(embedded.outputs)}"]
    if embedded.prompts is not None:
        shapes.append(f"prompts {np.shape(embedded.prompts)}")
    typer.echo(f"{output}: {', '.join(shapes)}")
    warn(job.context, embedded.warnings)
