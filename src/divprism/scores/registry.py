"""Names of things: the only home of strings that choose something.

A thing is spelled by its name and its fields, as in `gaussian(bandwidth=25.0)`; a name alone stands for the defaults.
"""

import ast
import dataclasses
import importlib.metadata
import math
import re
from collections.abc import Callable
from typing import Any

from divprism.core.kernels import Categorical, Cosine, Gaussian, Kernel, Polynomial, Precomputed
from divprism.embedders import (
    EfficientNetLite0,
    Embedder,
    FrameMean,
    Inception,
    OpenAI,
    SentenceTransformers,
    Transformers,
    WordLlama,
)
from divprism.embedders.torch_models import ALIASES
from divprism.errors import ArgumentError
from divprism.estimators import Auto, Dual, Exact, Fourier, Lanczos, Nystrom, Subsample
from divprism.scores.bandwidth import MedianDistance, StableScore

__all__ = [
    "ALIASES",
    "BANDWIDTH_RULES",
    "EMBEDDERS",
    "ESTIMATORS",
    "KERNELS",
    "embedder",
    "is_registered",
    "kernel",
    "keywords",
    "parse",
    "plugins",
    "spell",
    "summary",
]

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

BANDWIDTH_RULES: dict[str, type] = {"stable": StableScore, "median": MedianDistance}

EMBEDDERS: dict[str, type[Embedder]] = {
    "wordllama": WordLlama,
    "efficientnet-lite0": EfficientNetLite0,
    "efficientnet-lite0-frames": FrameMean,
    "sentence-transformers": SentenceTransformers,
    "transformers": Transformers,
    "inception": Inception,
    "openai": OpenAI,
}
"""Embedders by the name before the colon; what follows it is their first field. Short names of models: `ALIASES`."""


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
    values = keywords(match[2] or "", text, what)
    unknown = [name for name in values if name not in fields]
    if unknown:
        takes = ", ".join(fields) or "no settings"
        raise ArgumentError(f"{what} {match[1]} has no setting {unknown[0]!r}; it takes {takes}.")
    missing = [
        name
        for name, field in fields.items()
        if field.default is dataclasses.MISSING and name not in values
    ]
    if missing:
        raise ArgumentError(
            f"{what} {match[1]} needs {missing[0]}, as in {match[1]}({missing[0]}=...)."
        )
    return kind(**values)


def keywords(text: str, whole: str, what: str) -> dict[str, Any]:
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
        return {str(word.arg): _literal(word.value) for word in call.keywords}
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise ArgumentError(
            f"cannot read the settings of {what} {whole!r}; write them as name(setting=value)."
        ) from None


def _literal(node: ast.expr) -> Any:
    return math.inf if isinstance(node, ast.Name) and node.id == "inf" else ast.literal_eval(node)


def spell(thing: Any) -> str:
    """The spelling of an object: `parse` gives an equal one back.

    >>> spell(Gaussian(25.0)), spell(Cosine())
    ('gaussian(bandwidth=25.0)', 'cosine')
    """
    name = _name(type(thing))
    fields = ", ".join(
        f"{field.name}={getattr(thing, field.name)!r}" for field in dataclasses.fields(thing)
    )
    return f"{name}({fields})" if fields else name


def kernel(name: str | None, bandwidth: float | None, side: str) -> Kernel | None:
    """The kernel of one side from its name and its bandwidth; None leaves the bandwidth to the rule.

    >>> kernel("gaussian", 2.0, "x"), kernel(None, None, "x")
    (Gaussian(bandwidth=2.0), None)
    """
    if name is None or name == "gaussian":
        if bandwidth is None:
            return None
        return Gaussian(bandwidth)
    if bandwidth is not None:
        raise ArgumentError(
            f"the bandwidth of `{side}` goes with a kernel that has one; its kernel is {name!r}."
        )
    parsed: Kernel = parse(name, KERNELS, "kernel")
    return parsed


def is_registered(value: object) -> bool:
    """Whether a kernel, an estimator or a rule has a name here, so that it can be spelled."""
    tables = (KERNELS, ESTIMATORS, BANDWIDTH_RULES)
    return any(type(value) in table.values() for table in tables)


def _name(kind: type) -> str:
    for table in (KERNELS, ESTIMATORS, BANDWIDTH_RULES):
        for name, entry in table.items():
            if entry is kind:
                return name
    return kind.__name__


def summary(kind: type) -> str:
    """First line of the documentation of a registered class."""
    return (kind.__doc__ or "").strip().splitlines()[0]


def plugins() -> dict[str, Callable[..., Embedder]]:
    """Embedders of other packages: entry points of the group `divprism.embedders`."""
    return {
        point.name: point.load
        for point in importlib.metadata.entry_points(group="divprism.embedders")
    }


def embedder(text: str, **options: Any) -> Embedder:
    """The embedder that a spelling stands for: `wordllama`, `dinov2`, `sentence-transformers:name or path`.

    `options` are fields such as `device` or `batch_size`; those that an embedder does not have, or that are None, are left out.

    >>> embedder("wordllama", batch_size=64, device=None)
    WordLlama(batch_size=64)
    """
    name, _, argument = text.partition(":")
    given = {key: value for key, value in options.items() if value is not None}
    if name in ALIASES:
        kind: Any = Transformers
        given = ALIASES[name] | given | ({"model": argument} if argument else {})
    elif name in EMBEDDERS:
        kind = EMBEDDERS[name]
        given |= _first_field(kind, name, argument)
    elif name in (found := plugins()):
        kind = found[name]()
        given |= (
            _first_field(kind, name, argument)
            if dataclasses.is_dataclass(kind)
            else {"argument": argument or None}
        )
    else:
        names = ", ".join([*EMBEDDERS, *ALIASES, *found])
        raise ArgumentError(f"there is no embedder {text!r}; choose from {names}.")
    if dataclasses.is_dataclass(kind):
        fields = {field.name for field in dataclasses.fields(kind)}
        given = {key: value for key, value in given.items() if key in fields}
    made: Embedder = kind(**given)
    return made


def _first_field(kind: Any, name: str, argument: str) -> dict[str, str]:
    """What follows the colon, as the first field where that has no default."""
    field = dataclasses.fields(kind)[0]
    if field.default is not dataclasses.MISSING or field.default_factory is not dataclasses.MISSING:
        if argument:
            raise ArgumentError(f"embedder {name} takes nothing after a colon; got {argument!r}.")
        return {}
    if not argument:
        raise ArgumentError(
            f"embedder {name} needs its {field.name} after a colon, as in {name}:NAME_OR_PATH."
        )
    return {field.name: argument}
