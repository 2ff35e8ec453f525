"""Settings: everything that determines an answer, in one frozen object that travels whole.

Public functions take the fields of `Settings` and `Resources` as keywords. The lists of keywords
are the typed dictionaries below, written once and shared by all signatures.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal, TypedDict

import numpy as np

from divprism.core.kernels import Gaussian, Kernel
from divprism.core.kernels.base import positive_number
from divprism.core.validation import (
    check_memory,
    check_order,
    check_seed,
    check_truncation,
    whole_number,
)
from divprism.embedders import Embedder
from divprism.engines import Progress, Resources, as_engine, as_progress, checked_folder
from divprism.errors import ArgumentError
from divprism.estimators import Auto, Estimator
from divprism.judges import QualityModel
from divprism.scores import registry
from divprism.scores.bandwidth import BandwidthRule, DistinctPrompts, StableScore
from divprism.scores.presets import PRESETS, Preset, check_preset

__all__ = [
    "AUTO",
    "AssessmentOptions",
    "EmbeddedPairOptions",
    "EmbeddingOptions",
    "EvaluationOptions",
    "PairOptions",
    "Progress",
    "ResourceOptions",
    "ScoreOptions",
    "Settings",
    "UNITS",
    "check_level",
    "check_unit",
    "read_options",
]

EmbedFunction = Callable[..., Any]
"""A function of a batch of items that returns a row of numbers for each."""

AUTO = "auto"
"""The truncation that is chosen from the data."""

UNITS = ("pair", "prompt")
"""What may be resampled: pairs, or prompts with all their outputs."""


def check_level(level: object) -> float:
    """The level of an interval as a float between 0 and 1."""
    if not isinstance(level, float | np.floating) or not 0 < level < 1:
        raise ArgumentError(
            f"`interval` must be a level between 0 and 1, such as 0.95; got {level!r}."
        )
    return float(level)


def check_unit(unit: object) -> str | None:
    """What is resampled: "pair", "prompt", or None for the default."""
    if unit is None or (isinstance(unit, str) and unit in UNITS):
        return unit
    raise ArgumentError(f"`unit` must be pair or prompt; got {unit!r}.")


@dataclass(frozen=True)
class Settings:
    """How scores are computed and assessed: kernels, order, estimator, intervals, baseline.

    Every result holds the settings that it was computed with, all defaults resolved; pass them
    back as `settings=` to compute it again.

    Attributes
    ----------
    kernel_x, kernel_t : Kernel or None
        Kernels of outputs and prompts; None for a Gaussian whose bandwidth the rule chooses.
    bandwidth_rule : BandwidthRule or None
        How a bandwidth that is not given is chosen; None for `DistinctPrompts()`. In a result: the
        rule that was used, None if all bandwidths were given.
    order : float
        Order of the Renyi entropy, above 0; math.inf allowed.
    truncation : int or None
        Number of eigenvalues kept of each spectrum; None for all, or until it is chosen. "auto" is
        read as the field below.
    estimator : Estimator
        How spectra are computed.
    rng : int
        Seed of everything random.
    embedder_x, embedder_t : Embedder, callable or None
        What turns texts, images and videos into vectors; None for the default of the modality.
    interval : float or None
        Level of the intervals, such as 0.95; None for no intervals.
    unit : "pair", "prompt" or None
        What intervals and convergence resample; None for the default (see `evaluate`).
    num_permutations : int or None
        Number of random pairings in the shuffled baseline, 0 for none; None for the default.
    preset : str or None
        A paper whose settings stand in for those that are None: "conditional-vendi" or
        "truncated-vendi" (see `scores.presets`). In a result all of them are resolved.
    normalize_x, normalize_t : bool
        Whether rows of outputs and prompts are scaled to norm one before anything else.
    auto_truncation : bool
        Whether the truncation is still to be chosen from the data (see `scores.truncation`). In a
        result it has been.
    quality_from : QualityModel or None
        The model that rated the outputs, or that is asked to, if no quality is given otherwise.
    """

    kernel_x: Kernel | None = None
    kernel_t: Kernel | None = None
    bandwidth_rule: BandwidthRule | None = None
    order: float = 1.0
    truncation: int | None = None
    estimator: Estimator = field(default_factory=Auto)
    rng: int = 0
    embedder_x: Embedder | EmbedFunction | None = None
    embedder_t: Embedder | EmbedFunction | None = None
    interval: float | None = None
    unit: str | None = None
    num_permutations: int | None = None
    preset: str | None = None
    normalize_x: bool = False
    normalize_t: bool = False
    auto_truncation: bool = False
    quality_from: QualityModel | None = None

    def __post_init__(self) -> None:
        for side in ("x", "t"):
            kernel = getattr(self, f"kernel_{side}")
            if kernel is not None and not isinstance(kernel, Kernel):
                raise ArgumentError(
                    f"the kernel of `{side}` must be an object such as dp.Gaussian(1.0); "
                    f"got {kernel!r}."
                )
        rule = self.bandwidth_rule
        if rule is not None:
            _check_instance(rule, BandwidthRule, "bandwidth_rule", "dp.StableScore()")
        # `estimator=None` is accepted as a keyword, where it stands for the default.
        if self.estimator is None:
            self._set("estimator", Auto())  # type: ignore[unreachable]
        _check_instance(self.estimator, Estimator, "estimator", "dp.Auto()")
        self._set("order", check_order(self.order))
        self._set_truncation()
        self._set("rng", check_seed(self.rng))
        self._set("unit", check_unit(self.unit))
        self._set("preset", check_preset(self.preset))
        for name in ("normalize_x", "normalize_t"):
            self._set(name, _check_switch(getattr(self, name), name))
        if self.quality_from is not None:
            example = 'dp.Judge("gpt-4o-mini")'
            _check_instance(self.quality_from, QualityModel, "quality_from", example)
        if self.interval is not None:
            self._set("interval", check_level(self.interval))
        if self.num_permutations is not None:
            count = whole_number(self.num_permutations, "num_permutations", 0)
            self._set("num_permutations", count)

    def _set_truncation(self) -> None:
        given: object = self.truncation
        if isinstance(given, str) and given == AUTO:
            self._set("truncation", None)
            self._set("auto_truncation", True)
        elif given is not None:
            # A number replaces the choice.
            self._set("truncation", check_truncation(given))
            self._set("auto_truncation", False)

    def _set(self, name: str, value: object) -> None:
        # The way around a frozen dataclass, for values that validation normalises.
        object.__setattr__(self, name, value)

    @property
    def rule(self) -> BandwidthRule:
        """The bandwidth rule, default resolved."""
        if self.bandwidth_rule is not None:
            return self.bandwidth_rule
        if self.preset is not None:
            return StableScore()
        return DistinctPrompts()

    @property
    def paper(self) -> Preset | None:
        """The preset itself; None without one."""
        if self.preset is None:
            return None
        return PRESETS[self.preset]

    def normalizes(self, side: str) -> bool:
        """Whether rows of the outputs ("x") or of the prompts ("t") are scaled to norm one."""
        if side == "x":
            return self.normalize_x
        return self.normalize_t

    def kernel(self, side: str) -> Kernel | None:
        """The kernel of the outputs ("x") or of the prompts ("t")."""
        if side == "x":
            return self.kernel_x
        return self.kernel_t

    def to_dict(self) -> dict[str, Any]:
        """Plain values, as in result files and as flags of the command line.

        A bandwidth has a key of its own beside the name of its kernel.

        >>> from divprism import Gaussian
        >>> plain = Settings(kernel_x=Gaussian(2.0), order=math.inf).to_dict()
        >>> plain["kernel_x"], plain["bandwidth_x"], plain["order"], plain["estimator"]
        ('gaussian', 2.0, 'inf', 'auto(tolerance=0.001)')
        """
        plain: dict[str, Any] = {}
        for side in ("x", "t"):
            name, bandwidth = _spell_kernel(self.kernel(side))
            plain[f"kernel_{side}"] = name
            plain[f"bandwidth_{side}"] = bandwidth
        plain["bandwidth_rule"] = _spell_or_none(self.bandwidth_rule)
        plain["order"] = self.order
        if math.isinf(self.order):
            plain["order"] = "inf"
        plain["truncation"] = self.truncation
        if self.auto_truncation:
            plain["truncation"] = AUTO
        plain["estimator"] = registry.spell(self.estimator)
        plain["rng"] = self.rng
        plain |= self._embedders_to_dict()
        plain["interval"] = self.interval
        plain["unit"] = self.unit
        plain["num_permutations"] = self.num_permutations
        plain["preset"] = self.preset
        plain["normalize_x"] = self.normalize_x
        plain["normalize_t"] = self.normalize_t
        # Only where there is one: most results have no quality.
        if self.quality_from is not None:
            plain["quality_from"] = self.quality_from.to_dict()
        return plain

    def _embedders_to_dict(self) -> dict[str, str | None]:
        plain: dict[str, str | None] = {"embedder_x": None, "embedder_t": None}
        for name in ("embedder_x", "embedder_t"):
            embedder = getattr(self, name)
            # A function of the user has no spelling.
            if isinstance(embedder, Embedder):
                plain[name] = embedder.spelling
                if embedder.precision in ("float16", "bfloat16"):
                    plain["dtype"] = embedder.precision
        return plain

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> "Settings":
        """Settings from the plain values of `to_dict`; keys that are absent keep their defaults.

        >>> from divprism import Gaussian
        >>> settings = Settings(kernel_x=Gaussian(2.0), truncation=50)
        >>> Settings.from_dict(settings.to_dict()) == settings
        True
        """
        # `to_dict` writes the bandwidths and the precision apart from kernels and embedders.
        known = {field.name for field in fields(cls)} | {"bandwidth_x", "bandwidth_t", "dtype"}
        known -= {"auto_truncation"}  # spelled as a truncation
        unknown = sorted(set(plain) - known)
        if unknown:
            raise ArgumentError(f"there is no setting {unknown[0]!r}.")
        # None stands for a default; a field without a value keeps the default of the class.
        values = {name: value for name, value in plain.items() if value is not None}
        precision = values.pop("dtype", None)
        for side in ("x", "t"):
            name = values.pop(f"kernel_{side}", None)
            bandwidth = values.pop(f"bandwidth_{side}", None)
            if bandwidth is not None:
                # Checked here, where the side is known: a kernel would only name `bandwidth`.
                positive_number(bandwidth, f"bandwidth_{side}")
            values[f"kernel_{side}"] = registry.kernel(name, bandwidth)
            if f"embedder_{side}" in values:
                text = values[f"embedder_{side}"]
                values[f"embedder_{side}"] = registry.embedder(text, precision=precision)
        if isinstance(values.get("truncation"), str):
            values["truncation"] = registry.truncation(values["truncation"])
        rules, estimators = registry.BANDWIDTH_RULES, registry.ESTIMATORS
        if "bandwidth_rule" in values:
            text = values["bandwidth_rule"]
            values["bandwidth_rule"] = registry.parse(text, rules, "bandwidth rule")
        if "quality_from" in values:
            values["quality_from"] = registry.quality_model_of(values["quality_from"])
        if "estimator" in values:
            values["estimator"] = registry.parse(values["estimator"], estimators, "estimator")
        return cls(**values)


def _check_instance(value: object, kind: type, name: str, example: str) -> None:
    if not isinstance(value, kind):
        raise ArgumentError(f"`{name}` must be an object such as {example}; got {value!r}.")


def _check_switch(value: object, name: str) -> bool:
    if isinstance(value, bool | np.bool_):
        return bool(value)
    raise ArgumentError(f"`{name}` must be True or False; got {value!r}.")


def _spell_kernel(kernel: Kernel | None) -> tuple[str | None, float | None]:
    if kernel is None:
        return None, None
    return registry.spell_kernel(kernel)


def _spell_or_none(value: object | None) -> str | None:
    # A rule of the user has no spelling; the bandwidths that it chose are recorded anyway.
    if value is None or not registry.is_registered(value):
        return None
    return registry.spell(value)


class ResourceOptions(TypedDict, total=False):
    """Keywords that never change an answer (see `Resources`)."""

    memory: int | str | None
    engine: object
    progress: Progress | bool | None
    resume: object


class _SharedOptions(ResourceOptions, total=False):
    """Keywords of every score."""

    settings: Settings | None
    bandwidth_rule: BandwidthRule | None
    truncation: int | Literal["auto"] | None
    estimator: Estimator | None
    rng: int | np.random.Generator
    preset: str | None
    normalize: bool
    normalize_x: bool
    normalize_t: bool


class ScoreOptions(_SharedOptions, total=False):
    """Keywords of a score as a function, beside its kernels and its order."""

    weights: object


class PairOptions(_SharedOptions, total=False):
    """Keywords of functions that score pairs of outputs and prompts."""

    kernel_x: Kernel | None
    kernel_t: Kernel | None
    order: float | str


class EmbeddingOptions(TypedDict, total=False):
    """Keywords of functions that embed texts, images and videos."""

    embedder_x: Embedder | EmbedFunction | None
    embedder_t: Embedder | EmbedFunction | None
    cache: object
    num_workers: int | None


class AssessmentOptions(TypedDict, total=False):
    """Keywords about intervals and baselines."""

    interval: float | None
    unit: str | None
    num_permutations: int | None


class EmbeddedPairOptions(PairOptions, EmbeddingOptions, total=False):
    """Keywords of functions that embed pairs before they score them."""


class EvaluationOptions(EmbeddedPairOptions, AssessmentOptions, total=False):
    """Keywords of `evaluate`."""


_RESOURCE_NAMES = ("memory", "engine", "progress", "cache", "num_workers", "resume")


def read_options(
    options: Mapping[str, Any], accepted: type, function: str, *, rates: bool = False
) -> tuple[Settings, Resources]:
    """Settings and resources from the keywords of a public function.

    `accepted` is the typed dictionary of its keywords. Keywords override the fields of `settings`.
    A function that takes a quality has `rates`; for others the model that rates is dropped.
    """
    # Python cannot check **options at run time, so this repeats what it does for named arguments.
    # The annotations of a TypedDict, unlike those of other classes, include those of its bases.
    unknown = [name for name in options if name not in accepted.__annotations__]
    if unknown:
        hint = ""
        if "bandwidth" in unknown[0]:
            hint = "; a bandwidth belongs to its kernel, as in dp.Gaussian(2.0)"
        raise TypeError(f"{function}() got an unexpected keyword argument {unknown[0]!r}{hint}")
    given = dict(options)
    # Taken out first: what is left are fields of Settings and Resources, by their own names.
    base = given.pop("settings", None)
    if base is None:
        base = Settings()
    _check_instance(base, Settings, "settings", "dp.Settings()")
    resources = _read_resources(
        {name: given.pop(name) for name in _RESOURCE_NAMES if name in given}
    )
    # Both sides at once, unless a side has its own keyword.
    both = given.pop("normalize", None)
    if both is not None:
        both = _check_switch(both, "normalize")
        given = {"normalize_x": both, "normalize_t": both} | given
    if "truncation" in given:
        # None replaces "auto" as well.
        given.setdefault("auto_truncation", False)
    if given.get("bandwidth_rule") is not None:
        given = _without_chosen(base) | given
    settings = replace(base, **given)
    if not rates:
        settings = replace(settings, quality_from=None)
    # Here and not in `Settings`: analyses compute some of their scores without truncation.
    is_open = settings.truncation is None and not settings.auto_truncation
    if is_open and settings.paper is not None:
        settings = replace(settings, truncation=settings.paper.truncation)
    return settings, resources


def _without_chosen(base: Settings) -> dict[str, Any]:
    """No kernel for each side whose bandwidth is in earlier settings: a rule chooses it anew."""
    sides = ("kernel_x", "kernel_t")
    return {name: None for name in sides if isinstance(getattr(base, name), Gaussian)}


def _read_resources(given: dict[str, Any]) -> Resources:
    as_engine(given.get("engine"))  # refuses what is none
    given["progress"] = as_progress(given.get("progress"))
    if given.get("resume") is not None:
        given["resume"] = checked_folder(given["resume"])
    return Resources(**(given | {"memory": check_memory(given.get("memory"))}))
