"""Names of kernels, estimators, bandwidth rules and embedders.

Outside of this module and the command line nothing is chosen by a string. An object is spelled by
its name and its fields, as in `gaussian(bandwidth=25.0)`; a name alone stands for the defaults.
"""

import ast
import dataclasses
import importlib.metadata
import json
import math
import re
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

from divprism import estimators
from divprism.core import kernels
from divprism.core.kernels import Kernel
from divprism.data.wording import escaped
from divprism.embedders import (
    EfficientNetLite0,
    Embedder,
    FrameMean,
    Inception,
    LogMel,
    Multilingual,
    Onnx,
    OpenAI,
    SentenceTransformers,
    SpeechEmbedding,
    Transformers,
    WordLlama,
)
from divprism.embedders.transformer_models import ALIASES
from divprism.errors import ArgumentError
from divprism.estimators import Estimator
from divprism.judges import Judge, QualityModel, RewardModel
from divprism.scores.bandwidth import DistinctPrompts, MedianDistance, StableScore

__all__ = [
    "ALIASES",
    "BANDWIDTH_RULES",
    "EMBEDDERS",
    "ESTIMATORS",
    "KERNELS",
    "QUALITY_MODELS",
    "embedder",
    "formula",
    "is_registered",
    "kernel",
    "keywords",
    "numbers_by_name",
    "numbers_of",
    "parse",
    "plugins",
    "purpose",
    "quality_model",
    "quality_model_of",
    "short_rule",
    "spell",
    "spell_kernel",
    "temperature",
    "truncation",
    "without_bandwidth",
]

# Points of a curve.
_MOST_NUMBERS = 1000


def _by_class_name(room: ModuleType, contract: type) -> dict[str, Any]:
    """The classes of a room that fulfil a contract, by their names in lower case."""
    exported = [getattr(room, name) for name in room.__all__]
    kinds = [kind for kind in exported if issubclass(kind, contract) and kind is not contract]
    return {kind.__name__.lower(): kind for kind in kinds}


KERNELS: dict[str, type[Kernel]] = _by_class_name(kernels, Kernel)
ESTIMATORS: dict[str, type[Estimator]] = _by_class_name(estimators, Estimator)

BANDWIDTH_RULES: dict[str, type] = {
    "distinct": DistinctPrompts,
    "stable": StableScore,
    "median": MedianDistance,
}

EMBEDDERS: dict[str, type[Embedder]] = {
    "wordllama": WordLlama,
    "multilingual": Multilingual,
    "efficientnet-lite0": EfficientNetLite0,
    "efficientnet-lite0-frames": FrameMean,
    "logmel": LogMel,
    "speech-embedding": SpeechEmbedding,
    "sentence-transformers": SentenceTransformers,
    "transformers": Transformers,
    "inception": Inception,
    "onnx": Onnx,
    "openai": OpenAI,
}
"""Embedders by the name before the colon; the text after it is their first field.

Short names of models are in `ALIASES`.
"""

QUALITY_MODELS: dict[str, type[QualityModel]] = {kind.kind: kind for kind in (Judge, RewardModel)}
"""Models that rate outputs, by the name before the colon; the text after it is their model."""

# Names that stand for embedders elsewhere, and why there are none here.
_REFUSED = {
    "torchscript": (
        "TorchScript files are programs, and torch has no safe way to load one, so there is no "
        "embedder torchscript; export the model by torch.onnx.export and pass onnx:PATH "
        "(docs/how-to/onnx.md)."
    ),
}


# Embedders are not in it: they spell themselves (`Embedder.spelling`).
_NAMES = {kind: name for name, kind in (KERNELS | ESTIMATORS | BANDWIDTH_RULES).items()}


def parse(text: str, table: dict[str, type], noun: str, **given: Any) -> Any:
    """The object that a spelling stands for; `noun` names its kind in messages.

    `given` are settings that the spelling leaves out.

    >>> parse("polynomial(degree=2)", KERNELS, "kernel")
    Polynomial(degree=2, scale=None, offset=1.0)
    """
    match = re.fullmatch(r"\s*([a-z_]+)\s*(?:\((.*)\))?\s*", text)
    if match is None or match[1] not in table:
        raise ArgumentError(f"there is no {noun} {text!r}; choose from {', '.join(table)}.")
    name, arguments = match[1], match[2] or ""
    kind = table[name]
    fields = {field.name: field for field in dataclasses.fields(kind)}
    spelled = keywords(arguments, text, noun)
    for key, value in given.items():
        # The same value twice is no contradiction.
        if spelled.get(key, value) != value:
            raise ArgumentError(
                f"{noun} {text!r} has the {key} {spelled[key]!r}, and {value!r} is given beside "
                "it; leave out one of them."
            )
    values = spelled | given
    for key in values:
        if key not in fields:
            takes = ", ".join(fields) or "no settings"
            raise ArgumentError(f"{noun} {name} has no setting {key!r}; it takes {takes}.")
    # Checked here, because the TypeError of the constructor would not show how to write it.
    for key, field in fields.items():
        if field.default is dataclasses.MISSING and key not in values:
            raise ArgumentError(f"{noun} {name} needs {key}, as in {name}({key}=...).")
    return kind(**values)


def keywords(text: str, whole: str, noun: str) -> dict[str, Any]:
    """`degree=2, offset=0.5` as a dictionary of literals; nothing is evaluated."""
    try:
        call = ast.parse(f"f({text})", mode="eval").body
        return _literals(call)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        # The parser raises the last two on deeply nested input.
        raise ArgumentError(
            f"cannot read the settings of {noun} {whole!r}; write them as name(setting=value)."
        ) from None


def _literals(call: ast.expr) -> dict[str, Any]:
    """The keywords of a call; ValueError for anything but keywords with literal values."""
    # A second pair of parentheses would make the function a call itself.
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name) or call.args:
        raise ValueError
    values = {}
    for word in call.keywords:
        if word.arg is None:  # **mapping
            raise ValueError
        values[word.arg] = _literal(word.value)
    return values


def _literal(node: ast.expr) -> Any:
    # `spell` writes repr(math.inf), which is a name and no literal.
    if isinstance(node, ast.Name) and node.id == "inf":
        return math.inf
    return ast.literal_eval(node)


def spell(value: Any, leave_out: str | None = None) -> str:
    """The spelling of an object, without one of its settings: `parse` turns it back.

    >>> spell(kernels.Gaussian(25.0)), spell(kernels.Cosine())
    ('gaussian(bandwidth=25.0)', 'cosine')
    """
    name = _name(type(value))
    arguments = []
    for field in dataclasses.fields(value):
        if field.name != leave_out:
            # repr keeps every digit of a float, so that `parse` returns an equal object.
            arguments.append(f"{field.name}={getattr(value, field.name)!r}")
    if not arguments:
        return name
    return f"{name}({', '.join(arguments)})"


def short_rule(spelling: str) -> str:
    """The spelling of a bandwidth rule without the settings that have their default.

    A spelling that is not ours stays as it is.

    >>> short_rule("median(max_rows=2000)"), short_rule("median(max_rows=500)")
    ('median', 'median(max_rows=500)')
    """
    try:
        rule = parse(spelling, BANDWIDTH_RULES, "bandwidth rule")
    except (ArgumentError, TypeError, ValueError):
        return spelling
    arguments = []
    for field in dataclasses.fields(rule):
        value = getattr(rule, field.name)
        if value != field.default:
            arguments.append(f"{field.name}={value!r}")
    name = _name(type(rule))
    if not arguments:
        return name
    return f"{name}({', '.join(arguments)})"


def kernel(name: str | None, bandwidth: float | None) -> Kernel | None:
    """The kernel of one side from its name and its bandwidth.

    None leaves the bandwidth of a Gaussian kernel to the rule.

    >>> kernel("gaussian", 2.0), kernel(None, None)
    (Gaussian(bandwidth=2.0), None)
    """
    if bandwidth is None:
        if name is None or name == "gaussian":
            return None
        parsed: Kernel = parse(name, KERNELS, "kernel")
        return parsed
    with_bandwidth: Kernel = parse(name or "gaussian", KERNELS, "kernel", bandwidth=bandwidth)
    return with_bandwidth


def spell_kernel(kernel: Kernel) -> tuple[str, float | None]:
    """The name of a kernel and its bandwidth, which `kernel` takes back.

    >>> spell_kernel(kernels.Gaussian(2.0)), spell_kernel(kernels.Cosine())
    (('gaussian', 2.0), ('cosine', None))
    """
    return spell(kernel, leave_out="bandwidth"), kernel.bandwidth


def without_bandwidth(name: str | None) -> str | None:
    """The spelling of a kernel whose bandwidth is given beside it.

    >>> without_bandwidth("gaussian(bandwidth=3)"), without_bandwidth("cosine")
    ('gaussian', 'cosine')
    """
    spelled = kernel(name, None)
    if spelled is None:
        return name
    plain, _ = spell_kernel(spelled)
    return plain


def numbers_of(text: str | None, name: str) -> list[float] | None:
    """The numbers of a flag, separated by commas.

    >>> numbers_of("5,0.5", "--sizes")
    [5, 0.5]
    """
    if text is None:
        return None
    try:
        numbers = list(json.loads(f"[{text}]"))  # JSON keeps 5, a size, apart from 5.0
    except (ValueError, RecursionError):
        numbers = [None]
    # By the exact type: true and false are integers in Python.
    if any(type(number) not in (int, float) for number in numbers):
        raise ArgumentError(f"{name} must be numbers separated by commas; got {text[:80]!r}.")
    # A config may hold a hundred thousand, each of which takes a computation of its own.
    if len(numbers) > _MOST_NUMBERS:
        raise ArgumentError(
            f"{name} must be at most {_MOST_NUMBERS:,} numbers; got {len(numbers):,}."
        )
    return numbers


def numbers_by_name(texts: Sequence[str] | None, flag: str) -> dict[str, float] | None:
    """The number of each name, from the values of a flag; None without any.

    >>> numbers_by_name(["first=0.8", "runs/a=b=1"], "--quality")
    {'first': 0.8, 'runs/a=b': 1.0}
    """
    numbers: dict[str, float] = {}
    for text in texts or ():
        # At the last sign: names of models are often paths, which may contain one.
        name, _, value = text.rpartition("=")
        try:
            number = float(value)
        except ValueError:
            name = ""
        if not name:
            raise ArgumentError(
                f"{flag} must be MODEL=NUMBER, such as first=0.8; got {escaped(text)[:80]}."
            )
        if name in numbers:
            raise ArgumentError(f"{flag} gives a model two numbers: {escaped(name)[:80]}.")
        numbers[name] = number
    return numbers or None


def truncation(text: str) -> int | str:
    """A number of eigenvalues as it is typed, or "auto" (see `Settings`).

    >>> truncation("10"), truncation("auto")
    (10, 'auto')
    """
    if text == "auto":
        return text
    try:
        return int(text)
    except ValueError:
        raise ArgumentError(
            f"`truncation` must be a whole number, or auto; got {text!r}."
        ) from None


def formula(spelling: str) -> str:
    """What the bandwidth of a kernel means: its formula; empty for a kernel that is not ours.

    >>> formula("gaussian")
    'exp(-d^2 / (2 bandwidth^2))'
    """
    name, _, _ = spelling.partition("(")
    kind = KERNELS.get(name, Kernel)
    return str(kind.formula)


def is_registered(value: object) -> bool:
    """Whether a kernel, an estimator or a rule has a name here, so that it can be spelled."""
    return type(value) in _NAMES


def _name(kind: type) -> str:
    """The name of a class; classes of other packages go by their own name."""
    return _NAMES.get(kind, kind.__name__)


def purpose(kind: type) -> str:
    """First line of the documentation of a registered class."""
    return (kind.__doc__ or "").strip().splitlines()[0]


def plugins() -> dict[str, Callable[..., Embedder]]:
    """Embedders of other packages: entry points of the group `divprism.embedders`."""
    entry_points = importlib.metadata.entry_points(group="divprism.embedders")
    # Not loaded yet: a list of names must not import every package that offers an embedder.
    return {point.name: point.load for point in entry_points}


def embedder(text: str, **options: Any) -> Embedder:
    """The embedder that a spelling stands for.

    A spelling is a name such as `wordllama` or `dinov2`, or a name and an argument such as
    `sentence-transformers:name-or-path`. `options` are fields such as `device` or `batch_size`;
    those that are None, or that the embedder does not have, are ignored.

    >>> embedder("wordllama", batch_size=64, device=None)
    WordLlama(batch_size=64)
    """
    name, _, argument = text.partition(":")
    if name in _REFUSED:
        raise ArgumentError(_REFUSED[name])
    values = {key: value for key, value in options.items() if value is not None}
    if name in ALIASES:
        kind: Any = Transformers
        # In this order, so that options of the call override those of the alias.
        values = ALIASES[name] | values
        if argument:
            values["model"] = argument
    elif name in EMBEDDERS:
        kind = EMBEDDERS[name]
        values |= _first_field(kind, name, argument)
    else:
        kind = _plugin(name, text)
        if dataclasses.is_dataclass(kind):
            values |= _first_field(kind, name, argument)
        else:
            values["argument"] = argument or None
    if dataclasses.is_dataclass(kind):
        # Some fields follow from others, and are no arguments.
        fields = {field.name for field in dataclasses.fields(kind) if field.init}
        values = {key: value for key, value in values.items() if key in fields}
    created: Embedder = kind(**values)
    return created


def quality_model(text: str, **of_judge: Any) -> QualityModel:
    """The model that rates outputs that a spelling stands for; a judge has further fields.

    >>> quality_model("judge:qwen3:8b").model
    'qwen3:8b'
    """
    name, _, model = text.partition(":")
    if name not in QUALITY_MODELS or not model:
        spellings = " or ".join(f"{kind}:MODEL" for kind in QUALITY_MODELS)
        raise ArgumentError(f"`quality_from` must be {spellings}; got {text[:80]!r}.")
    if not of_judge:
        return QUALITY_MODELS[name](model)
    if name != Judge.kind:
        given = " and ".join(f"`{field}`" for field in of_judge)
        raise ArgumentError(f"{given} would be for a judge, and {text[:80]!r} is none.")
    return Judge(model, **of_judge)


def temperature(text: str) -> float | None:
    """The temperature of a judge as it is typed; None for that of the server.

    >>> temperature("0.5"), temperature("server")
    (0.5, None)
    """
    if text == "server":
        return None
    try:
        return float(text)
    except ValueError:
        raise ArgumentError(
            f"--judge-temperature must be a number, or server; got {text[:80]!r}."
        ) from None


def quality_model_of(plain: object) -> QualityModel:
    """The model that rates outputs from a spelling, or from what `QualityModel.to_dict` returns.

    The address in it is that of an earlier run; requests go to the one in the environment.

    >>> quality_model_of(Judge("m", temperature=None).to_dict()) == Judge("m", temperature=None)
    True
    """
    if isinstance(plain, str):
        return quality_model(plain)
    if not isinstance(plain, dict) or not isinstance(plain.get("id"), str):
        shortened = repr(plain)[:80]
        raise ArgumentError(
            f"`quality_from` must be a name, or an object with one; got {shortened}."
        )
    chosen = quality_model(plain["id"])
    fields = {field.name for field in dataclasses.fields(chosen) if field.init}
    given = {name: value for name, value in plain.items() if name in fields - {"model"}}
    return dataclasses.replace(chosen, **given)


def _plugin(name: str, text: str) -> Any:
    """The class or function of another package that makes an embedder."""
    others = plugins()
    if name not in others:
        names = ", ".join([*EMBEDDERS, *ALIASES, *others])
        raise ArgumentError(f"there is no embedder {text!r}; choose from {names}.")
    return others[name]()


def _first_field(kind: Any, name: str, argument: str) -> dict[str, str]:
    """The text after the colon as the first field, if that has no default."""
    field = next(iter(dataclasses.fields(kind)), None)
    if field is None or _has_default(field):
        if argument:
            raise ArgumentError(f"embedder {name} takes nothing after a colon; got {argument!r}.")
        return {}
    if not argument:
        raise ArgumentError(
            f"embedder {name} needs its {field.name} after a colon, as in {name}:NAME_OR_PATH."
        )
    return {field.name: argument}


def _has_default(field: dataclasses.Field[Any]) -> bool:
    defaults = (field.default, field.default_factory)
    return any(default is not dataclasses.MISSING for default in defaults)
