"""`divprism cache`: list, check and remove cached vectors."""

from pathlib import Path

import typer

from divprism.cli.messages import say
from divprism.embedders import Cache
from divprism.engines import spell_bytes
from divprism.errors import DataError

app = typer.Typer(help="List, check and remove cached vectors.", no_args_is_help=True)

_FOLDER = typer.Option(None, "--cache", help="The folder; default: DIVPRISM_CACHE or the user's.")


@app.command("ls")
def ls(folder: Path | None = _FOLDER) -> None:
    """List the embedders with cached vectors."""
    cache = Cache(folder)
    entries = cache.entries()
    typer.echo(f"{cache.folder}: {spell_bytes(sum(entry.bytes for entry in entries))}")
    for entry in entries:
        name, size = entry.embedder.get("id", "unknown"), spell_bytes(entry.bytes)
        counts = f"{entry.items:,} items in {entry.shards:,} shards"
        typer.echo(f"{entry.key[:12]}  {name}: {counts}, {size}")


@app.command("verify")
def verify(folder: Path | None = _FOLDER) -> None:
    """Compare every shard with its checksum and remove damaged ones, to be computed again."""
    cache = Cache(folder)
    problems = cache.verify()
    if problems:
        say(f"divprism: {text}" for text in problems[1:])
        raise DataError(problems[0])
    entries = cache.entries()
    shards, items = sum(entry.shards for entry in entries), sum(entry.items for entry in entries)
    typer.echo(f"{shards:,} shards, {items:,} items: no damage")


@app.command("clear")
def clear(
    name: str | None = typer.Argument(
        None, metavar="EMBEDDER", help="Remove only the vectors of this embedder: name or key."
    ),
    folder: Path | None = _FOLDER,
) -> None:
    """Remove cached vectors."""
    typer.echo(f"{Cache(folder).clear(name):,} shards removed")
