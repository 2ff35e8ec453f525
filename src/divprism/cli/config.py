"""`--config`: flags from a JSON file, or the settings of an earlier result."""

import json
from pathlib import Path
from typing import Any

import typer

from divprism.analysis.evaluation import SCHEMA
from divprism.cli.messages import say
from divprism.data.readers.guards import MAX_JSON, shown
from divprism.errors import ArgumentError, DataError

__all__ = ["load_config", "read_result", "typed"]

# Settings of a result that change an answer: a command that has no such flag reports them.
_REPORTED = ("kernel_x", "bandwidth_x", "kernel_t", "bandwidth_t", "truncation")


def typed(context: typer.Context, name: str) -> bool:
    """Whether an option was given on the command line, not in a config file or by default."""
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def read_result(path: Path) -> dict[str, Any]:
    """The JSON object in a file, which must be of the schema that this version writes."""
    try:
        if path.stat().st_size > MAX_JSON:
            raise DataError(f"{path} is larger than {MAX_JSON:,} bytes, so it is no result.")
        text = path.read_text(encoding="utf-8-sig")
        content = json.loads(text, parse_constant=_refuse_constant)
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}.") from None
    except DataError:
        raise
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path} is not a JSON file: {error}.") from None
    if not isinstance(content, dict):
        raise DataError(f"{path} must hold a JSON object; it holds a {type(content).__name__}.")
    schema = content.get("schema", SCHEMA)
    if schema != SCHEMA:
        raise DataError(
            f"{path} is of schema {shown(str(schema)[:20])}, and this version reads {SCHEMA}: "
            "use the version that wrote it."
        )
    return content


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no number of JSON")


def load_config(context: typer.Context, path: Path | None) -> Path | None:
    """Take the defaults of a command from a JSON file: flags as keys, or a result of any command."""
    if path is None:
        return None
    content = read_result(path)
    options = _options(context.command)
    values = _settings_in(content, path)
    if "schema" in content:
        values = _usable(values, context, path, is_curve="curves" in content)
    unknown = sorted(set(values) - (set(options) - {"config"}))
    if unknown:
        raise ArgumentError(f"{path} sets {unknown[0]!r}, which {context.info_name} does not have.")
    defaults = {}
    for key, value in values.items():
        if value is not None:
            defaults[options[key].name] = _as_typed(value, options[key])
    context.default_map = defaults
    return path


def _settings_in(content: dict[str, Any], path: Path) -> dict[str, Any]:
    """The flags in a file. The models of a result share their settings."""
    models = content.get("models")
    if isinstance(models, dict) and models:
        content = next(iter(models.values()))
    settings = content
    if isinstance(content, dict):
        settings = content.get("settings", content)
    if not isinstance(settings, dict):
        raise DataError(
            f"`settings` in {path} must be a JSON object; it is a {type(settings).__name__}."
        )
    return {str(key).replace("-", "_"): value for key, value in settings.items()}


def _usable(
    values: dict[str, Any], context: typer.Context, path: Path, is_curve: bool
) -> dict[str, Any]:
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


def _options(command: Any) -> dict[str, Any]:
    """The parameters of a command by their flags, with underscores."""
    options = {}
    for parameter in command.params:
        for name in parameter.opts:
            options[name.lstrip("-").replace("-", "_")] = parameter
    return options


def _as_typed(value: object, option: Any) -> str | list[str]:
    """A value as it would be typed, so that it is checked as if it were: 2.5 is no integer."""
    if not isinstance(value, list):
        return str(value)
    texts = [str(item) for item in value]
    if option.nargs == -1 or getattr(option, "multiple", False):
        return texts
    return ",".join(texts)
