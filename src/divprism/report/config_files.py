"""Config files: scoring settings from a JSON file that anybody may have written.

A config is data. `--config` takes the result of somebody else, so a file may only set what is in
`ALLOWED`: how scores are computed. Where to write, what to read, and which models and servers get
the texts is decided on the command line alone.
"""

import dataclasses
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from divprism.data.wording import escaped
from divprism.embedders.transformer_models import ALIASES
from divprism.errors import ArgumentError, DataError
from divprism.report.checks import (
    Check,
    boolean,
    list_of,
    number,
    one_of,
    positive,
    refuse,
    text,
    whole,
)
from divprism.report.result_files import read_result
from divprism.scores import registry
from divprism.scores.presets import PRESETS
from divprism.scores.settings import AUTO, UNITS

__all__ = ["ALLOWED", "Config", "check_embedder", "check_value", "read_config"]

_LONGEST = 1000  # letters of a text; ours have fewer than a hundred
# Whole numbers of an estimator or a bandwidth rule: matrices of that size take a minute.
_LARGEST_SETTING = 4096
_LARGEST_SETTINGS = {"num_rows": 100_000}  # of which only a few tiles are in memory
_LARGEST_SEED = 2**63 - 1
# Embedders that are installed with packages: no file names them, and they send nothing.
_INSTALLED = ("wordllama", "multilingual", "efficientnet-lite0", "efficientnet-lite0-frames")


def _short_text(value: object, path: str) -> None:
    text(value, path)
    if len(str(value)) > _LONGEST:
        refuse(path, f"a text of at most {_LONGEST:,} letters", value)


def _spelling(table: dict[str, type], noun: str) -> Check:
    """Return a check for an object that bounds its whole numbers, and so memory and time."""

    def check(value: object, path: str) -> None:
        _short_text(value, path)
        try:
            chosen = registry.parse(str(value), table, noun)
        except ArgumentError:
            return  # refused where it is used, in the words for a flag
        for field in dataclasses.fields(chosen):
            setting = getattr(chosen, field.name)
            most = _LARGEST_SETTINGS.get(field.name, _LARGEST_SETTING)
            if isinstance(setting, int) and setting > most:
                refuse(f"{path} {field.name}", f"at most {most:,} in a config", setting)

    return check


def _check_order(value: object, path: str) -> None:
    if value != "inf":
        positive(value, path)


def _check_unit(value: object, path: str) -> None:
    if value not in UNITS:
        refuse(path, " or ".join(UNITS), value)


def _check_dtype(value: object, path: str) -> None:
    if value not in ("float32", "float16", "bfloat16"):
        refuse(path, "float32, float16 or bfloat16", value)


def _between(low: int, high: int) -> Check:
    """Return a check for whole numbers; the upper end bounds the work that a file can ask for."""

    def check(value: object, path: str) -> None:
        whole(low)(value, path)
        if not isinstance(value, int) or value > high:
            refuse(path, f"a whole number from {low} to {high:,}", value)

    return check


def _check_truncation(value: object, path: str) -> None:
    if value != AUTO:
        _between(1, 10**9)(value, path)


def _check_numbers(value: object, path: str) -> None:
    """Require numbers as a flag spells them, or a list of them."""
    if isinstance(value, str):
        _short_text(value, path)
    else:
        list_of(positive, 1)(value, path)


def _check_seed(value: object, path: str) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _LARGEST_SEED:
        refuse(path, "a whole number from 0 to 2^63 - 1", value)


def _check_true(value: object, path: str) -> None:
    """Require true: a file may ask for more care, never for less."""
    if value is not True:
        refuse(path, "true, where a config has it at all", value)


ALLOWED: dict[str, Check] = {
    "kernel_x": _short_text,
    "kernel_t": _short_text,
    "bandwidth_x": positive,
    "bandwidth_t": positive,
    "bandwidth_rule": _spelling(registry.BANDWIDTH_RULES, "bandwidth rule"),
    "order": _check_order,
    "truncation": _check_truncation,
    "interval": number(0.0, 1.0),
    "unit": _check_unit,
    "num_permutations": _between(0, 100_000),
    "estimator": _spelling(registry.ESTIMATORS, "estimator"),
    "rng": _check_seed,
    "preset": one_of(*PRESETS),
    "normalize": boolean,
    "normalize_x": boolean,
    "normalize_t": boolean,
    "embedder_x": _short_text,
    "embedder_t": _short_text,
    "dtype": _check_dtype,
    # Flags of single commands.
    "by": _short_text,
    "sizes": _check_numbers,
    "num_repeats": _between(1, 1000),
    "tolerance": positive,
    "bandwidths_x": _check_numbers,
    "bandwidths_t": _check_numbers,
    "max_rows": _between(2, 100_000),
    "num_groups": _between(1, 10_000),
    "min_size": _between(2, 10**9),
    "nested": _check_true,
    # What can only make a command stricter.
    "fail_under": list_of(_short_text),
    "strict": _check_true,
    "offline": _check_true,
}
"""What a config may set, and the check of each value; a flag that is not here is refused."""


@dataclass(frozen=True)
class Config:
    """The content of a config file.

    Attributes
    ----------
    values : dict
        All keys of the file, with underscores, and their values as they are.
    is_result : bool
        Whether the file is a result of divprism, and not a list of flags.
    is_curve : bool
        Whether it is a result of `converge`.
    """

    values: dict[str, Any]
    is_result: bool
    is_curve: bool


def read_config(path: Path) -> Config:
    """Return the settings of a result, or the flags of a JSON file, without a check of them."""
    content: Any = read_result(path)
    is_result, is_curve = "schema" in content, "curves" in content
    if isinstance(content.get("models"), dict) and content["models"]:
        content = next(iter(content["models"].values()))  # models share their settings
    if isinstance(content, dict):
        content = content.get("settings", content)
    if not isinstance(content, dict):
        raise DataError(f"`settings` in {escaped(path)} must be a JSON object.")
    values = {str(key).replace("-", "_"): value for key, value in content.items()}
    return Config(values, is_result, is_curve)


def check_value(key: str, value: object, path: Path) -> None:
    """Refuse a value of the wrong type or size."""
    try:
        ALLOWED[key](value, key)
    except DataError as error:
        _, _, requirement = str(error).partition(": ")
        raise ArgumentError(f"{escaped(path)}: {requirement}") from None


def check_embedder(spelling: str, name: str) -> None:
    """Refuse an embedder that a file chose, and that loads files or sends texts to a server."""
    if not _is_harmless(spelling):
        raise ArgumentError(
            f"the config asks for the embedder {escaped(spelling)[:80]}, which loads a model or "
            f"sends texts to a server; pass it as `{name}` if you trust it."
        )


def _is_harmless(spelling: str) -> bool:
    """Whether an embedder is installed with divprism, or a model that has a short name here."""
    known = [alias["model"] for alias in ALIASES.values()]
    kind, _, model = spelling.partition(":")
    if kind == "transformers" and model in known:
        # A folder of this name would be loaded in place of the model.
        return not os.path.lexists(model)
    if spelling in ALIASES:
        return not os.path.lexists(ALIASES[spelling]["model"])
    return spelling in _INSTALLED
