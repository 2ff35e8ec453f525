"""`divprism ls`, `cache` and `doctor`: what there is to choose from, cached and installed."""

import os
import platform
import re
import sys
from dataclasses import MISSING, fields
from importlib import metadata
from pathlib import Path

import typer

from divprism import __version__
from divprism.cli.messages import say
from divprism.embedders import Cache
from divprism.engines import spell_bytes
from divprism.errors import ArgumentError, DataError
from divprism.report.texts import number_of
from divprism.scores import registry
from divprism.scores.spec import SCORES

_TABLES: dict[str, dict[str, type]] = {
    "kernels": registry.KERNELS,
    "estimators": registry.ESTIMATORS,
    "rules": registry.BANDWIDTH_RULES,
}
_KINDS = (*_TABLES, "scores", "embedders")
_ACTIONS = ("ls", "verify", "clear")
_NOT_FOR_USERS = ("all", "bench", "lint", "test")  # extras


def ls(kind: str = typer.Argument(..., metavar="|".join(_KINDS), help="What to list.")) -> None:
    """List the kernels, estimators, bandwidth rules, scores or embedders to choose from."""
    if kind not in _KINDS:
        raise ArgumentError(f"{kind!r} cannot be listed; choose from {', '.join(_KINDS)}.")
    if kind == "scores":
        rows = [(spec.name, f"{spec.meaning}; needs {' and '.join(spec.needs)}") for spec in SCORES]
        rows = [(name, text.removesuffix("; needs ")) for name, text in rows]
    elif kind == "embedders":
        embedders, aliases = registry.EMBEDDERS.items(), registry.ALIASES.items()
        rows = [(_with_argument(name, entry), registry.purpose(entry)) for name, entry in embedders]
        rows += [(name, f"transformers:{alias['model']}") for name, alias in aliases]
        rows += [(name, "from another package") for name in registry.plugins()]
    else:
        entries = _TABLES[kind].items()
        rows = [(_signature(name, entry), registry.purpose(entry)) for name, entry in entries]
    width = max(len(name) for name, _ in rows)
    for name, text in rows:
        typer.echo(f"{name:<{width}}  {text}")


def _signature(name: str, kind: type) -> str:
    """A name with its settings, as a flag takes it."""
    defaults = {field.name: field.default for field in fields(kind)}
    settings = [f"{key}={value!r}" for key, value in defaults.items()]
    spelled = f"{name}({', '.join(settings)})".replace(f"={MISSING!r}", "")  # without a default
    return spelled.removesuffix("()")


def _with_argument(name: str, kind: type) -> str:
    """The name of an embedder; its first field follows a colon if it has no default."""
    first = fields(kind)[0]
    if first.default is MISSING and first.default_factory is MISSING:
        name += f":{first.name.upper()}"
    return name


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
        typer.echo(f"{cached.clear(name):,} shards removed")
    elif action == "verify":
        problems = cached.verify()
        say(f"divprism: {problem}" for problem in problems[1:])
        if problems:
            raise DataError(problems[0])  # for its exit code
    entries = cached.entries()
    typer.echo(f"{cached.folder}: {spell_bytes(sum(entry.bytes for entry in entries))}")
    for entry in entries:
        name = f"{entry.key[:12]}  {entry.embedder.get('id', 'unknown')}"
        counted = f"{entry.items:,} items in {number_of(entry.shards, 'shard')}"
        typer.echo(f"{name}: {counted}, {spell_bytes(entry.bytes)}")


def doctor() -> None:
    """Print the versions that are installed, for a bug report."""
    typer.echo(f"divprism {__version__}, {sys.executable}")
    typer.echo(f"python {platform.python_version()}, {platform.platform()}, {os.cpu_count()} cores")
    extras: dict[str, str] = {}
    for requirement in metadata.requires("divprism") or []:
        # Reads "numpy>=1.26", or "av>=12; extra == 'video'" for what an extra brings.
        name = re.split(r"[^\w.-]", requirement)[0]
        extra = requirement.partition("extra == ")[2].strip("'\"")
        if extra not in _NOT_FOR_USERS:
            extras.setdefault(name, extra)  # several extras may bring it
    for name, extra in extras.items():
        try:
            typer.echo(f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:
            typer.echo(f"{name} is not installed: pip install 'divprism[{extra}]'")
    typer.echo(f"vectors are cached in {Cache().folder}")
