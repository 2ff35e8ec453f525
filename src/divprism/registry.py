"""Names of things: the only home of strings that choose something.

A thing is spelled by its name and its fields, as in `gaussian(bandwidth=25.0)`; a name alone stands for the defaults.
"""

import ast
import dataclasses
import re
from typing import Any

from divprism.bandwidth import MedianDistance
from divprism.errors import ArgumentError
from divprism.estimators import Auto, Dual, Exact, Fourier, Lanczos, Nystrom, Subsample
from divprism.kernels import Categorical, Cosine, Gaussian, Polynomial, Precomputed

__all__ = ["BANDWIDTH_RULES", "ESTIMATORS", "KERNELS", "SCORES", "parse", "spell", "summary"]

KERNELS: dict[str, type] = {
    "gaussian": Gaussian,
    "cosine": Cosine,
    "polynomial": Polynomial,
    "categorical": Categorical,
    "precomputed": Precomputed,
}

ESTIMATORS: dict[str, type] = {
    "auto": Auto,
    "exact": Exact,
    "dual": Dual,
    "lanczos": Lanczos,
    "nystrom": Nystrom,
    "fourier": Fourier,
    "subsample": Subsample,
}

BANDWIDTH_RULES: dict[str, type] = {"median": MedianDistance}

SCORES: dict[str, str] = {
    "vendi": "effective number of distinct outputs",
    "conditional_vendi": "distinct outputs per kind of prompt: the model's own diversity",
    "information_vendi": "how much of the diversity follows the prompts",
    "rke": "distinct outputs, order 2",
    "conditional_rke": "distinct outputs per kind of prompt, order 2",
    "information_rke": "how much follows the prompts, order 2",
    "cluster_vendi": "mean diversity inside given groups of prompts",
    "cluster_rke": "mean diversity inside given groups, order 2",
}
"""What each score tells, in a few words."""


def parse(text: str, table: dict[str, type], what: str) -> Any:
    """The object that a spelling stands for.

    >>> parse("polynomial(degree=2)", KERNELS, "kernel")
    Polynomial(degree=2, scale=None, offset=1.0)
    """
    match = re.fullmatch(r"\s*([a-z_]+)\s*(?:\((.*)\))?\s*", text)
    if match is None or match[1] not in table:
        raise ArgumentError(f"there is no {what} {text!r}; choose from {', '.join(table)}.")
    kind = table[match[1]]
    fields = {field.name: field for field in dataclasses.fields(kind)}
    values = _keywords(match[2] or "", text, what)
    unknown = [name for name in values if name not in fields]
    if unknown:
        takes = ", ".join(fields) or "no settings"
        raise ArgumentError(f"{what} {match[1]} has no setting {unknown[0]!r}; it takes {takes}.")
    missing = [name for name, field in fields.items() if field.default is dataclasses.MISSING and name not in values]
    if missing:
        raise ArgumentError(f"{what} {match[1]} needs {missing[0]}, as in {match[1]}({missing[0]}=...).")
    return kind(**values)


def _keywords(text: str, whole: str, what: str) -> dict[str, Any]:
    """`degree=2, offset=0.5` as a dictionary of literals; nothing is evaluated."""
    try:
        call = ast.parse(f"f({text})", mode="eval").body
        if (
            not isinstance(call, ast.Call)
            or not isinstance(call.func, ast.Name)
            or call.args
            or any(word.arg is None for word in call.keywords)
        ):
            raise ValueError
        return {str(word.arg): ast.literal_eval(word.value) for word in call.keywords}
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise ArgumentError(f"cannot read the settings of {what} {whole!r}; write them as name(setting=value).") from None


def spell(thing: Any) -> str:
    """The spelling of an object: `parse` gives an equal one back.

    >>> spell(Gaussian(25.0)), spell(Cosine())
    ('gaussian(bandwidth=25.0)', 'cosine')
    """
    name = _name(type(thing))
    fields = ", ".join(f"{field.name}={getattr(thing, field.name)!r}" for field in dataclasses.fields(thing))
    return f"{name}({fields})" if fields else name


def _name(kind: type) -> str:
    for table in (KERNELS, ESTIMATORS, BANDWIDTH_RULES):
        for name, entry in table.items():
            if entry is kind:
                return name
    return kind.__name__


def summary(kind: type) -> str:
    """First line of the documentation of a registered class."""
    return (kind.__doc__ or "").strip().splitlines()[0]
