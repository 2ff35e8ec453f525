"""`divprism ls`, `cache` and `doctor`: what there is to choose from, cached and installed."""

import os
import platform
import sys
from pathlib import Path

import typer

from divprism import __version__
from divprism.cli.messages import echo, say
from divprism.embedders import Cache
from divprism.engines import spell_bytes
from divprism.errors import ArgumentError, DataError
from divprism.report.listings import KINDS, choices, packages
from divprism.report.texts import number_of, shortened

_ACTIONS = ("ls", "verify", "clear")


def ls(kind: str = typer.Argument(..., metavar="|".join(KINDS), help="What to list.")) -> None:
    """List the kernels, estimators, bandwidth rules, scores or embedders to choose from."""
    if kind not in KINDS:
        raise ArgumentError(f"{kind!r} cannot be listed; choose from {', '.join(KINDS)}.")
    rows = choices(kind)
    width = max(len(name) for name, _ in rows)
    for name, text in rows:
        echo(f"{name:<{width}}  {text}")


def cache(
    action: str = typer.Argument(..., metavar="|".join(_ACTIONS), help="What to do."),
    name: str = typer.Argument(None, metavar="EMBEDDER", help="Which to clear: name or key."),
    folder: Path = typer.Option(None, "--cache", help="The folder; default: DIVPRISM_CACHE."),
) -> None:
    """List the cache; or first verify it (remove damaged vectors), or clear it (remove all)."""
    if action not in _ACTIONS:
        raise ArgumentError(f"the action must be one of {', '.join(_ACTIONS)}; got {action!r}.")
    cached = Cache(folder)
    if action == "clear":
        echo(f"{cached.clear(name):,} shards removed")
    elif action == "verify":
        problems = cached.verify()
        say(f"divprism: {problem}" for problem in problems[1:])
        if problems:
            raise DataError(problems[0])  # for its exit code
    entries = cached.entries()
    echo(f"{cached.folder}: {spell_bytes(sum(entry.bytes for entry in entries))}")
    for entry in entries:
        name = f"{entry.key[:12]}  {shortened(str(entry.embedder.get('id')), 100)}"
        counted = f"{entry.items:,} items in {number_of(entry.shards, 'shard')}"
        echo(f"{name}: {counted}, {spell_bytes(entry.bytes)}")


def doctor() -> None:
    """Print the versions that are installed, for a bug report."""
    echo(f"divprism {__version__}, {sys.executable}")
    echo(f"python {platform.python_version()}, {platform.platform()}, {os.cpu_count()} cores")
    for line in packages():
        echo(line)
    try:
        echo(f"vectors are cached in {Cache().folder}")
    except DataError as error:
        echo(f"vectors are not cached: {error}")
