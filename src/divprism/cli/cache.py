"""`divprism cache`: list, check and remove cached vectors."""

from pathlib import Path

import typer

from divprism.cli.messages import say
from divprism.embedders import Cache
from divprism.engines import spell_bytes
from divprism.errors import ArgumentError, DataError


def cache(
    action: str = typer.Argument(..., metavar="ls|verify|clear", help="What to do."),
    name: str = typer.Argument(None, metavar="EMBEDDER", help="To clear only one: name or key."),
    folder: Path = typer.Option(None, "--cache", help="The folder; default: DIVPRISM_CACHE."),
) -> None:
    """List, verify or clear cached vectors. Damaged shards are removed, to be computed again."""
    cached = Cache(folder)
    if action == "clear":
        typer.echo(f"{cached.clear(name):,} shards removed")
    elif action == "verify":
        problems = cached.verify()
        say(f"divprism: {problem}" for problem in problems[1:])
        if problems:
            raise DataError(problems[0])
        counts = [(entry.shards, entry.items) for entry in cached.entries()]
        shards, items = (sum(column) for column in zip((0, 0), *counts, strict=True))
        typer.echo(f"{shards:,} shards, {items:,} items: no damage")
    elif action == "ls":
        entries = cached.entries()
        typer.echo(f"{cached.folder}: {spell_bytes(sum(entry.bytes for entry in entries))}")
        for entry in entries:
            name = f"{entry.key[:12]}  {entry.embedder.get('id', 'unknown')}"
            counted = f"{entry.items:,} items in {entry.shards:,} shards"
            typer.echo(f"{name}: {counted}, {spell_bytes(entry.bytes)}")
    else:
        raise ArgumentError(f"a cache can be listed (ls), verified or cleared; got {action!r}.")
