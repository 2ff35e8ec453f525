"""What a command writes to stderr: notes, progress, warnings; and library messages in flags."""

import re
import sys
import textwrap
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import typer

from divprism.data.wording import escaped
from divprism.errors import BandwidthWarning, Notice
from divprism.report.progress import progress_bar
from divprism.report.streams import put, put_error
from divprism.report.table import terminal_width

_FLAGLESS = {"x": "the outputs", "t": "the prompts", "source": "IN"}  # arguments without a flag
# Python arguments whose flag has another name.
_RENAMED = {"memory": "max_memory", "precision": "dtype", "num_clusters": "num_groups"}
_WHOLE_WORDS: dict[str, Any] = {"break_long_words": False, "break_on_hyphens": False}  # as paths


def in_flags(text: str, command: Any) -> str:
    """A message of the library with the flags of `command` in place of Python arguments."""
    flags = {parameter.name: parameter.opts[0] for parameter in command.params}

    def translate(match: re.Match[str]) -> str:
        name, word, value = match.groups()
        value = word or value  # a word needs no quotes in a shell
        if name in _FLAGLESS:
            return _FLAGLESS[name]
        flag = flags.get(_RENAMED.get(name, name), "")
        if not flag.startswith("--"):  # such as the field of a kernel, which flags spell alike
            return match[0]
        if value in (None, "True"):
            return flag
        return f"{flag} {value}"

    text = re.sub(r"\b(outputs|prompts) `[xt]`", r"\1", text)  # the noun is there already
    text = re.sub(r"`(\w+)(?:=(?:'([\w.-]+)'|([^`]*)))?`", translate, text)
    return text.replace("math.inf", "inf")


def echo(text: object) -> None:
    """Print a line of a result to stdout."""
    put(f"{text}\n")


def say(lines: Iterable[object], quiet: bool = False) -> None:
    """Print lines to stderr, none of which can control the terminal; long ones break at blanks."""
    for line in lines:
        text = re.sub(r"(\S{200})\S{200,}", r"\1...", escaped(line))  # no name is that long
        if sys.stderr.isatty():
            text = textwrap.fill(text, terminal_width(), subsequent_indent="  ", **_WHOLE_WORDS)
        if not quiet:
            put_error(f"{text}\n")


def warn(context: typer.Context, notices: Iterable[Notice]) -> None:
    """Print the warnings about a result."""
    say(f"warning: {in_flags(str(notice), context.command)}" for notice in notices)


@contextmanager
def working(quiet: bool, command: Any) -> Iterator[Callable[[str, float], None] | None]:
    """A function for `progress=`: a bar on a terminal, else the plan of each step as a line."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", BandwidthWarning)  # printed with the other warnings
        if quiet:
            yield None
        elif sys.stderr.isatty():
            with progress_bar() as update:
                yield lambda text, fraction: update(in_flags(text, command), fraction)
        else:  # a fraction of 0 announces a step
            yield lambda text, fraction: say([in_flags(text, command)], quiet=fraction > 0)
