"""What several commands share: settings from a file, progress and notes on stderr, output to a file."""

import json
import math
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from divprism.analysis.evaluation import SCHEMA, Evaluation
from divprism.analysis.jackknife import UNITS
from divprism.data.files import write_whole
from divprism.data.readers.guards import MAX_JSON, shown
from divprism.errors import ArgumentError, DataError, GateError
from divprism.scores.registry import SCORES

__all__ = [
    "Config",
    "FailUnder",
    "NumPermutations",
    "Output",
    "Quiet",
    "Unit",
    "check_gates",
    "check_possible",
    "choice",
    "load_config",
    "parse_gates",
    "progress_on_stderr",
    "read_object",
    "read_result",
    "say",
    "typed",
    "write_result",
]

Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Neither notes nor progress on stderr.")]
Output = Annotated[
    Path | None, typer.Option("--output", "-o", help="Write to a file in place of stdout.")
]
FailUnder = Annotated[
    list[str] | None,
    typer.Option(
        "--fail-under",
        help="End with exit code 5 if a score is below, as conditional_vendi=4.5; may be repeated.",
    ),
]
Unit = Annotated[
    str | None,
    typer.Option(
        "--unit",
        help="What was drawn at random; default prompt where at least 20 repeat, else pair.",
        metavar="|".join(UNITS),
    ),
]
NumPermutations = Annotated[
    int | None,
    typer.Option(
        "--num-permutations",
        min=0,
        help="Random pairings to compare Information with, 0 for none; default some where prompts have few outputs.",
    ),
]


def say(lines: Any, quiet: bool, prefix: str = "") -> None:
    """Lines on stderr, none of which can drive the terminal."""
    if not quiet:
        for line in lines:
            typer.echo(shown(f"{prefix}{line}"), err=True)


_OFF = {
    "score": "interval"
}  # None in a result: there was none, which this command's flag says by 0


def read_object(path: Path) -> dict[str, Any]:
    """The JSON object in a file."""
    try:
        if path.stat().st_size > MAX_JSON:
            raise DataError(f"{path} is larger than {MAX_JSON:,} bytes; that is none of our files.")
        content = json.loads(path.read_text(encoding="utf-8-sig"), parse_constant=_refuse_constant)
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}.") from None
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path} is not a JSON file: {error}.") from None
    if not isinstance(content, dict):
        raise DataError(f"{path} must hold a JSON object; it holds a {type(content).__name__}.")
    return content


def read_result(path: Path) -> dict[str, Any]:
    """The result in a file: a JSON object of the schema that this version writes."""
    content = read_object(path)
    if (schema := content.get("schema", SCHEMA)) != SCHEMA:
        raise DataError(
            f"{path} is of schema {shown(str(schema)[:20])}, and this version reads {SCHEMA}: use the one that wrote it."
        )
    return content


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no number of JSON")


def load_config(context: typer.Context, path: Path | None) -> Path | None:
    """Take defaults from a JSON file: the flags of the command as keys, or a result of this or another command."""
    if path is None:
        return None
    content = read_result(path)
    models = content.get("models")
    if isinstance(models, dict) and models:  # a result of several: they share their settings
        content = next(iter(models.values()))
        content = content if isinstance(content, dict) else {}
    settings = content.get("settings", content)
    if not isinstance(settings, dict):
        raise DataError(
            f"`settings` in {path} must be a JSON object; it is a {type(settings).__name__}."
        )
    options = _options(context.command)
    values = {str(key).replace("-", "_"): value for key, value in settings.items()}
    if (
        "schema" in content and "settings" in content
    ):  # of a result, what only other commands know is not ours to judge
        root = context.find_root().command
        commands = root.commands.values() if isinstance(root, TyperGroup) else ()
        others = {name for command in commands for name in _options(command)} - set(options)
        off = _OFF.get(context.command.name or "")
        values = {
            key: 0 if value is None and key == off else value
            for key, value in values.items()
            if key not in others
        }
        if (
            "curves" in content
            and context.command.name != "converge"
            and values.pop("truncation", None) is not None
        ):
            say(
                [f"the truncation of {path} is that of its truncated scores, and left out."],
                False,
                "warning: ",
            )
    unknown = sorted(set(values) - (set(options) - {"config"}))
    if unknown:
        raise ArgumentError(f"{path} sets {unknown[0]!r}, which {context.info_name} does not know.")
    context.default_map = {
        options[key].name: _as_typed(value, options[key])
        for key, value in values.items()
        if value is not None
    }
    return path


def _options(command: Any) -> dict[str, Any]:
    """The options of a command, by their flags with underscores."""
    return {
        flag.lstrip("-").replace("-", "_"): option
        for option in command.params
        for flag in option.opts
    }


def _as_typed(value: Any, option: Any) -> Any:
    """A value as text, so that it is judged as if it had been typed (an integer flag would cut 2.5 to 2)."""
    several = isinstance(value, list) and (option.nargs == -1 or getattr(option, "multiple", False))
    return [str(one) for one in value] if several else str(value)


Config = Annotated[
    Path | None,
    typer.Option(
        "--config",
        help="JSON file with these flags as keys, or an earlier result.",
        callback=load_config,
        is_eager=True,
    ),
]


@contextmanager
def progress_on_stderr(quiet: bool) -> Iterator[Callable[[str, float], None] | None]:
    """A listener for `progress=`: plans as lines, and on a terminal a bar with the time left."""
    if quiet:
        yield None
        return
    if not sys.stderr.isatty():
        yield lambda text, fraction: say([text] if fraction == 0 else [], quiet=False)
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True, highlight=False)
    columns = TextColumn("{task.description}", markup=False), BarColumn(), TimeRemainingColumn()
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("", total=1.0, visible=False)

        def tell(text: str, fraction: float) -> None:
            if fraction == 0:
                console.print(text, markup=False)
            else:
                bar.update(task, description=text, completed=fraction, visible=True)

        yield tell


def typed(context: typer.Context, name: str) -> bool:
    """Whether an option stood on the command line, rather than in a config file or nowhere."""
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def write_result(text: str, output: Path | None) -> None:
    """Print, or replace a file in one step so that a reader never sees half of it."""
    if output is None:
        typer.echo(text, nl=False)
        return
    target = output.resolve()  # a link stays a link
    try:
        if target.exists() and not target.is_file():
            target.write_text(
                text, encoding="utf-8"
            )  # a pipe or a device is written to, never replaced
            return
        write_whole(target, lambda file: file.write(text.encode()))
    except OSError as error:
        raise DataError(f"cannot write {output}: {error.strerror}.") from None


def choice(value: Any, allowed: Any, flag: str) -> Any:
    """Refuse a value that is not among those allowed."""
    if value not in allowed:
        raise ArgumentError(f"{flag} must be one of {', '.join(allowed)}; got {value!r}.")
    return value


def parse_gates(texts: list[str] | None) -> dict[str, float]:
    """Scores and the least that they may be, from `--fail-under`."""
    gates = {}
    for text in texts or []:
        name, _, number = (part.strip() for part in text.partition("="))
        if name in gates:
            raise ArgumentError(f"--fail-under names {name} twice.")
        try:
            gates[name] = float(number)
        except ValueError:
            gates[name] = math.nan
        if not math.isfinite(gates[name]):
            raise ArgumentError(
                f"--fail-under must be a score and a number, as conditional_vendi=4.5; got {text!r}."
            )
        if name not in SCORES:
            raise ArgumentError(
                f"there is no score {name!r} (--fail-under); choose from {', '.join(SCORES)}."
            )
    return gates


def check_possible(gates: dict[str, float], *, labels: bool, prompts: bool = True) -> None:
    """Refuse gates on scores that will not be computed, before anything is."""
    for score in gates:
        lacking = "labels" if score.startswith("cluster") and not labels else ""
        lacking = lacking or (
            "prompts" if score.startswith(("conditional", "information")) and not prompts else ""
        )
        if lacking:
            raise ArgumentError(
                f"--fail-under asks for {score}, which is not computed here: it needs {lacking}."
            )


def check_gates(results: dict[str, Evaluation], gates: dict[str, float]) -> None:
    """Refuse results with a score below what was asked for, or without it: a gate that nothing was held to is not passed."""
    for score, least in gates.items():
        found = {
            model: float(result.scores[score])
            for model, result in results.items()
            if score in result.scores
        }
        if len(found) < len(results):
            needs = "labels" if score.startswith("cluster") else "prompts"
            raise ArgumentError(
                f"--fail-under asks for {score}, which was not computed: it needs {needs}."
            )
        low = [model for model, value in found.items() if value < least]
        if low:
            whose = f" of {shown(low[0])}" if low[0] else ""
            more = f", as for {len(low):,} of {len(results):,} models" if len(low) > 1 else ""
            raise GateError(
                f"{score}{whose} is {found[low[0]]:.4g}, below {least:g}{more} (--fail-under)."
            )
