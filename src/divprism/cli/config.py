"""`--config`: flags from a JSON file, or the settings of an earlier result."""

from pathlib import Path
from typing import Any

import typer

from divprism.cli.messages import say
from divprism.errors import ArgumentError, DataError
from divprism.report.result_files import read_result

Values = dict[str, Any]
# Settings that change the scores: a command that does not have them reports that.
_REPORTED = ("kernel_x", "bandwidth_x", "kernel_t", "bandwidth_t", "truncation")


def typed(context: typer.Context, name: str) -> bool:
    """Whether an option was given on the command line, not in a config file or by default."""
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def load_config(context: typer.Context, path: Path | None) -> Path | None:
    """Take the defaults of a command from a JSON file: flags as keys, or any result."""
    if path is None:
        return None
    content: Any = read_result(path)
    is_result, is_curve = "schema" in content, "curves" in content
    if isinstance(content.get("models"), dict) and content["models"]:
        content = next(iter(content["models"].values()))  # models share their settings
    if isinstance(content, dict):
        content = content.get("settings", content)
    if not isinstance(content, dict):
        raise DataError(f"`settings` in {path} must be a JSON object.")
    values = {str(key).replace("-", "_"): value for key, value in content.items()}
    if is_result:
        values = _usable(values, context, path, is_curve)
    options = _options(context.command)
    context.default_map = {}
    for key, value in values.items():
        if key not in options or key == "config":
            raise ArgumentError(f"{path} sets {key!r}, which {context.info_name} does not have.")
        if value is not None:
            context.default_map[options[key].name] = _as_typed(value, options[key])
    return path


def _usable(values: Values, context: typer.Context, path: Path, is_curve: bool) -> Values:
    """The settings of a result that this command has, and those that no command has."""
    name, options = context.command.name, _options(context.command)
    group: Any = context.find_root().command
    known = {key for command in group.commands.values() for key in _options(command)}
    kept = {key: value for key, value in values.items() if key in options or key not in known}
    if is_curve and name != "converge":
        # A curve has truncated scores beside the plain ones: its truncation is not that of all.
        kept.pop("truncation", None)
    ignored = [key for key in _REPORTED if values.get(key) is not None and key not in kept]
    if ignored:
        say([f"warning: config: {name} does not use {' and '.join(ignored)} of {path}."])
    if name == "score" and values.get("interval", 0) is None:
        kept["interval"] = 0  # how the flag of score spells "none"
    return kept


def _options(command: Any) -> Values:
    """The parameters of a command by their flags, with underscores."""
    flags = [(flag, parameter) for parameter in command.params for flag in parameter.opts]
    return {flag.lstrip("-").replace("-", "_"): parameter for flag, parameter in flags}


def _as_typed(value: object, option: Any) -> str | list[str]:
    """A value as it would be typed, so that it is checked as if it were: 2.5 is no integer."""
    if not isinstance(value, list):
        return str(value)
    texts = [str(item) for item in value]
    if option.nargs == -1 or getattr(option, "multiple", False):
        return texts
    return ",".join(texts)
