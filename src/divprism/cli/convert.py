"""`divprism embed` and `divprism report`: files to vectors, results to a page."""

from pathlib import Path
from typing import Any

import typer

from divprism.cli.job import Reading, command, flag
from divprism.cli.messages import echo, say, warn
from divprism.data.files import require_apart, write_text
from divprism.data.parts import Shard
from divprism.embedders.embedding import (
    EMBEDDED_FILES,
    check_folder,
    embed_into_cache,
    save_embedded,
)
from divprism.embedders.embedding import embed as embed_samples
from divprism.report import report_page
from divprism.report.result_files import read_result

SHARD = flag("Input", None, "Only this part of the rows, such as 3/16.", metavar="PART/PARTS")


@command()
def embed(
    job: Reading,
    output: Path | None = flag("Output", None, "Folder for the vectors.", "--output", "-o"),
    shard: str | None = SHARD,
) -> None:
    """Embed outputs and prompts: into a folder that `divprism score` reads, or into the cache."""
    part = None
    if shard is not None:  # an empty text is refused: it is not all rows
        part = Shard.parse(shard)
    written = []
    if output is not None:
        written = [output / name for name in EMBEDDED_FILES]
    samples = job.read(written=written)
    if output is not None:
        check_folder(output)  # before hours of embedding
    if part is not None:
        samples = part.of(samples)
    if output is None:
        embedded = job.run(embed_into_cache, samples, **job.embedders(samples))
    else:
        embedded = job.run(embed_samples, samples, **job.embedders(samples))
        save_embedded(output, samples, embedded, part)
    sides: dict[str, Any] = {"outputs": embedded.outputs, "prompts": embedded.prompts}
    shapes = [f"{name} {side.shape}" for name, side in sides.items() if side is not None]
    echo(f"{output or 'cached'}: {', '.join(shapes)}")
    warn(job.context, embedded.warnings)


def report(
    results: list[Path] = typer.Argument(..., metavar="RESULT ...", help="Results as JSON."),
    output: Path = flag("Output", Path("report.html"), "HTML page to write.", "--output", "-o"),
) -> None:
    """Write results as one HTML page: scores in words, plots, and prompt groups with examples."""
    require_apart([output], results)
    write_text(output, report_page(*(read_result(path) for path in results)))
    say([f"wrote {output}; open it in a browser"])
