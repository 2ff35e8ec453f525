"""`divprism cache`: what vectors are kept, whether they are whole, and away with them."""

from pathlib import Path

import typer

from divprism.embedders import Cache
from divprism.engines import spell_bytes
from divprism.errors import DataError

__all__ = ["app"]

app = typer.Typer(
    help="The vectors that are kept: list, check, remove.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

_FOLDER = typer.Option(
    None, "--cache", help="The folder; default DIVPRISM_CACHE or the user's cache folder."
)


@app.command("ls")
def ls(folder: Path | None = _FOLDER) -> None:
    """List the embedders whose vectors are kept."""
    cache = Cache(folder)
    entries = cache.entries()
    typer.echo(f"{cache.folder}: {spell_bytes(sum(entry.bytes for entry in entries))}")
    for entry in entries:
        name = entry.embedder.get("id", "unknown")
        typer.echo(
            f"{entry.key[:12]}  {name}: {entry.items:,} items in {entry.shards:,} shards, {spell_bytes(entry.bytes)}"
        )


@app.command("verify")
def verify(folder: Path | None = _FOLDER) -> None:
    """Check every shard against its checksum; broken ones are removed, and computed again when next asked for."""
    cache = Cache(folder)
    problems = cache.verify()
    if problems:
        for text in problems[1:]:
            typer.echo(f"divprism: {text}", err=True)
        raise DataError(problems[0])
    entries = cache.entries()
    typer.echo(
        f"{sum(entry.shards for entry in entries):,} shards, {sum(entry.items for entry in entries):,} items: all whole"
    )


@app.command("clear")
def clear(
    name: str | None = typer.Argument(
        None, metavar="[EMBEDDER]", help="Only the vectors of this one, by name or key."
    ),
    folder: Path | None = _FOLDER,
) -> None:
    """Remove vectors."""
    typer.echo(f"{Cache(folder).clear(name):,} shards removed")
