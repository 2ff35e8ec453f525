"""`--config`: scoring flags from a JSON file, or the settings of an earlier result."""

from pathlib import Path
from typing import Any

import typer

from divprism.cli.messages import say
from divprism.data.wording import escaped
from divprism.errors import ArgumentError
from divprism.report.config_files import ALLOWED, Config, check_value, read_config

Values = dict[str, Any]
# Settings that change the scores: a command that does not have them reports that.
_SIDES = ("kernel_x", "bandwidth_x", "normalize_x", "kernel_t", "bandwidth_t", "normalize_t")
_REPORTED = (*_SIDES, "truncation")


def typed(context: typer.Context, name: str) -> bool:
    """Whether an option was given on the command line, not in a config file or by default."""
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def load_config(context: typer.Context, path: Path | None) -> Path | None:
    """Take the defaults of a command from a JSON file: scoring flags as keys, or any result."""
    if path is None:
        return None
    config = read_config(path)
    options, refused = _options(context.command), []
    context.default_map = {}
    for key, value in _usable(config, context, path).items():
        if key not in options or key == "config":
            name = escaped(repr(key[:60]))
            raise ArgumentError(f"{path} sets {name}, which {context.info_name} does not have.")
        if value is None:
            continue
        if key in ALLOWED:
            check_value(key, value, path)
            context.default_map[options[key].name] = _as_typed(value, options[key])
        else:
            refused.append(key)
    if refused:
        names = " and ".join(refused)
        say([f"warning: config: {names} of {path} ignored: only the command line sets them."])
    return path


def _usable(config: Config, context: typer.Context, path: Path) -> Values:
    """The settings of a result that this command has, and those that no command has."""
    values = config.values
    if not config.is_result:
        return values
    name, options = context.command.name, _options(context.command)
    group: Any = context.find_root().command
    known = {key for command in group.commands.values() for key in _options(command)}
    kept = {key: value for key, value in values.items() if key in options or key not in known}
    if config.is_curve and name != "converge":
        # A curve has truncated scores beside the plain ones: its truncation is not that of all.
        kept.pop("truncation", None)
    ignored = [key for key in _REPORTED if values.get(key) and key not in kept]
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
