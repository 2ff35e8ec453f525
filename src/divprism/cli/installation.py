"""`divprism ls`, `cache` and `doctor`: what there is to choose from, cached and installed."""

from pathlib import Path

import typer

from divprism.cli.messages import echo, say
from divprism.embedders import Cache
from divprism.errors import ArgumentError, DataError
from divprism.report.doctor import installation
from divprism.report.listings import KINDS, cached_vectors, choice_lines

_ACTIONS = ("ls", "verify", "clear")


def ls(kind: str = typer.Argument(..., metavar="|".join(KINDS), help="What to list.")) -> None:
    """List the kernels, estimators, bandwidth rules, scores or embedders to choose from."""
    if kind not in KINDS:
        raise ArgumentError(f"{kind!r} cannot be listed; choose from {', '.join(KINDS)}.")
    echo("\n".join(choice_lines(kind)))


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
    echo("\n".join(cached_vectors(cached)))


def doctor() -> None:
    """Print what is installed, what works and what is missing, for a bug report."""
    echo("\n".join(installation()))
