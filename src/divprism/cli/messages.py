"""What a command writes to stderr: notes, progress, warnings; and library messages in flags."""

import re
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import typer

from divprism.data.readers.guards import shown
from divprism.errors import BandwidthWarning, Notice

__all__ = ["in_flags", "say", "warn", "working"]

# Python arguments whose flag has another name, and those that are no flags.
_RENAMED = {"memory": "max_memory", "precision": "dtype", "num_clusters": "num_groups"}
_SIDES = {"x": "the outputs", "t": "the prompts"}
_ARGUMENT = re.compile(r"`(\w+)(?:=([^`]*))?`")


def in_flags(text: str, command: Any) -> str:
    """A message of the library with flags of `command` in place of Python arguments.

    Arguments that are no flags, such as fields of a kernel, stay as they are.
    """
    flags = {}
    for parameter in command.params:
        long_names = [name for name in parameter.opts if name.startswith("--")]
        if long_names:
            flags[parameter.name] = long_names[0]

    def translate(match: re.Match[str]) -> str:
        name, value = match.groups()
        if name in _SIDES and value is None:
            return _SIDES[name]
        option = flags.get(_RENAMED.get(name, name))
        if option is None:
            return match[0]
        if value is None or value == "True":
            return option
        return f"{option} {value.strip(chr(34))}"

    text = re.sub(r"\b(outputs|prompts) `[xt]`", r"\1", text)  # the noun is there already
    return _ARGUMENT.sub(translate, text).replace("math.inf", "inf")


def say(lines: Iterable[object], quiet: bool = False) -> None:
    """Print lines to stderr, none of which can control the terminal."""
    if quiet:
        return
    for line in lines:
        typer.echo(shown(line), err=True)


def warn(context: typer.Context, notices: Iterable[Notice]) -> None:
    """Print the warnings of a result, after the result."""
    for notice in notices:
        say([f"warning: {in_flags(str(notice), context.command)}"])


@contextmanager
def working(quiet: bool) -> Iterator[Callable[[str, float], None] | None]:
    """A function for `progress=`: plans as lines, and on a terminal a bar with the time left."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", BandwidthWarning)  # printed with the other warnings
        if quiet:
            yield None
        elif sys.stderr.isatty():
            with _bar() as update:
                yield update
        else:
            yield _print_plan


def _print_plan(text: str, fraction: float) -> None:
    if fraction == 0:
        say([text])


@contextmanager
def _bar() -> Iterator[Callable[[str, float], None]]:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True, highlight=False)
    columns = TextColumn("{task.description}", markup=False), BarColumn(), TimeRemainingColumn()
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("", total=1.0, visible=False)

        def update(text: str, fraction: float) -> None:
            if fraction == 0:
                console.print(text, markup=False)
            else:
                bar.update(task, description=text, completed=fraction, visible=True)

        yield update
