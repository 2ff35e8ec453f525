"""Several models on the same prompts, as vectors: what every comparison of models begins with."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from divprism.analysis.inputs import (
    embed_samples,
    pool_bandwidths,
    rate_samples,
    read_samples,
    require_embedders,
    require_some_quality,
)
from divprism.analysis.matching import match_prompts
from divprism.core.arrays import to_numpy
from divprism.core.kernels import Categorical, Precomputed
from divprism.data.inputs import model_keyword
from divprism.data.readers.fields import Fields
from divprism.data.samples import Samples
from divprism.engines import Resources
from divprism.errors import ArgumentError, DataError, Notice
from divprism.judges import QualityModel
from divprism.scores.settings import Settings

__all__ = ["MatchedModels", "matched_models"]


@dataclass(frozen=True, eq=False)
class MatchedModels:
    """Models with the same prompts, and the same number of outputs for each.

    Rows of all models are in the same order of prompts: row i of one model has the prompt of row i
    of every other.

    Attributes
    ----------
    given : dict of Samples
        By model, the outputs that are compared, as they were given.
    embedded : dict of Samples
        The same as vectors.
    settings : Settings
        With bandwidths that are chosen on all outputs of all models, those left out included.
    notes : tuple of Notice
        What was left out to make the models comparable.
    warnings : tuple of Notice
        What a reader should know about the data.
    """

    given: dict[str, Samples]
    embedded: dict[str, Samples]
    settings: Settings
    notes: tuple[Notice, ...]
    warnings: tuple[Notice, ...]

    def pooled(self) -> Samples:
        """The vectors of all models, one model after the other."""
        return _pool(self.embedded)


def matched_models(
    models: object,
    settings: Settings,
    resources: Resources,
    columns: Fields,
    quality: object = None,
) -> MatchedModels:
    """The models of a source, or of a mapping of name to source, on the prompts that all have.

    `quality` is that of each output: numbers or a function, or for a mapping of models a mapping to
    numbers. One that is a column is named in `columns`.
    """
    _require_rows(settings)
    # Matched before the embedding, so that what cannot be compared is refused at once.
    given = _split_models(models, columns, quality)
    _require_one_quality(given)
    kept, notes = match_prompts(given, model_keyword(models))
    compared = {model: part.select(kept[model]) for model, part in given.items()}
    # Outputs that are left out take part in the choice of bandwidths, so that it is the choice of
    # `evaluate_models`, and a model has the same score in both.
    pooled = _pool(given)
    if isinstance(settings.kernel_t, Categorical):
        # Numbered for all models together, and not embedded: different texts may share a vector.
        pooled = pooled.with_prompt_ids()
    require_embedders(pooled, settings, resources)
    compared, notices, settings = _rated(compared, settings, resources)
    require_some_quality(compared)
    embedded, settings = embed_samples(pooled, settings, resources)
    settings = pool_bandwidths(embedded, settings)
    return MatchedModels(
        given=compared,
        embedded=_matched(embedded, kept, compared),
        settings=settings,
        notes=(*notes, *(each for each in notices if each.severity == "note"), *embedded.notes),
        warnings=(*embedded.warnings, *(each for each in notices if each.severity != "note")),
    )


def _require_rows(settings: Settings) -> None:
    """Refuse kernel matrices, before anything is computed."""
    for side in ("x", "t"):
        if isinstance(settings.kernel(side), Precomputed):
            raise ArgumentError(
                f"`kernel_{side}` is Precomputed(), and a comparison takes rows that can be "
                "matched, left out and pooled: give vectors, or evaluate each model alone."
            )


def _split_models(models: object, columns: Fields, quality: object) -> dict[str, Samples]:
    """Samples by model; a source that holds several models is split."""
    if not isinstance(models, Mapping):
        samples = read_samples(models, None, None, columns, quality)
        samples.require_models(model_keyword(models))
        return samples.by_model()
    by_model: dict[str, Samples] = {}
    for name, source in models.items():
        samples = read_samples(source, None, None, columns, _quality_of(name, models, quality))
        # Keys may be numbers, such as checkpoints; tables and documents take names.
        parts = {str(name): samples}
        if samples.models is not None and len(set(samples.models)) > 1:
            parts = samples.by_model()
        for model, part in parts.items():
            if model in by_model:
                raise DataError(f"two of the models are called {model!r}; rename one of them.")
            by_model[model] = part
    return by_model


def _quality_of(name: object, models: Mapping[Any, object], quality: object) -> object:
    """The quality of the outputs of one source among several."""
    if quality is None or isinstance(quality, str | QualityModel) or callable(quality):
        return quality
    if not isinstance(quality, Mapping):
        raise ArgumentError(
            "`quality` must be a mapping with the names of `models`, the name of a column, a "
            "function, or a model that rates, where `models` is a mapping; "
            f"got a {type(quality).__name__}."
        )
    differing = [each for each in (*models, *quality) if (each in models) != (each in quality)]
    if differing:
        raise ArgumentError(
            "`quality` must have the same names as `models`; only one of them has "
            f"{differing[0]!r}."
        )
    return quality[name]


def _require_one_quality(given: Mapping[str, Samples]) -> None:
    """Refuse models of which some have a quality and others have none."""
    without = [model for model, part in given.items() if part.quality is None]
    if without and len(without) < len(given):
        raise DataError(
            f"the outputs of {without[0]!r} have no quality, and those of other models do: give "
            "it for all models, or for none."
        )


def _rated(
    compared: dict[str, Samples], settings: Settings, resources: Resources
) -> tuple[dict[str, Samples], tuple[Notice, ...], Settings]:
    """The outputs that are compared, rated by the model in the settings if there is one.

    Outputs that were left out are not rated: their ratings would not enter any number.
    """
    if settings.quality_from is None:
        return compared, (), settings
    # The texts of vectors, which a model that rates reads.
    texts = {model: part.given or part for model, part in compared.items()}
    if any(part.quality is not None for part in compared.values()):
        texts = compared
    pooled = replace(_pool(texts), warnings=())
    found, settings = rate_samples(pooled, settings, resources)
    if settings.quality_from is None or found.quality is None:
        return compared, (), settings
    rated, start = {}, 0
    for model, part in compared.items():
        rated[model] = replace(part, quality=found.quality[start : start + len(part)])
        start += len(part)
    return rated, (*found.notes, *found.warnings), settings


def _matched(
    embedded: Samples, kept: Mapping[str, list[int]], compared: Mapping[str, Samples]
) -> dict[str, Samples]:
    """The vectors of the outputs of each model that are compared, with the quality of these."""
    matched = {}
    for model, part in embedded.by_model().items():
        # Notes about embedding and files are given once, for all models.
        matched[model] = replace(
            part.select(kept[model]), notes=(), warnings=(), quality=compared[model].quality
        )
    return matched


def _pool(by_model: dict[str, Samples]) -> Samples:
    """All models in one, so that they are embedded and given bandwidths together."""
    parts = list(by_model.values())
    for side in ("outputs", "prompts"):
        kinds = {isinstance(getattr(part, side), tuple) for part in parts}
        if len(kinds) > 1:
            raise DataError(
                "some of the models are vectors and others are not; embed all of them, or none."
            )
    models: list[str] = []
    for model, part in by_model.items():
        models += [model] * len(part)
    # Outputs that were skipped count once per source: its models share the number.
    by_source = {part.source: part for part in parts}
    warnings = [warning for part in parts for warning in part.warnings]
    return Samples(
        _concatenate([part.outputs for part in parts]),
        _concatenate(_in_one_precision([part.prompts for part in parts])),
        tuple(models),
        " and ".join(by_source),
        warnings=tuple(dict.fromkeys(warnings)),
        skipped=sum(part.skipped for part in by_source.values()),
        embedders=parts[0].embedders,
        quality=_pooled_quality(parts),
    )


def _pooled_quality(parts: Sequence[Samples]) -> np.ndarray | None:
    """The quality of the outputs of all models; None where they have none."""
    of_parts = [part.quality for part in parts if part.quality is not None]
    if len(of_parts) < len(parts):
        return None
    return np.concatenate(of_parts)


def _in_one_precision(sides: Sequence[Any]) -> list[Any]:
    """Prompts of all models, vectors in the lowest precision that any model has.

    Prompts are matched in that precision (`prompt_keys`); here they become equal, as they have to
    be for errors of prompts to cancel between models.
    """
    if isinstance(sides[0], tuple):
        return list(sides)
    arrays = [to_numpy(side) for side in sides]
    floating = [array.dtype for array in arrays if array.dtype.kind == "f"]
    if len(floating) < len(arrays):
        return arrays
    lowest = min(floating, key=lambda dtype: dtype.itemsize)
    return [array.astype(lowest, copy=False) for array in arrays]


def _concatenate(sides: Sequence[Any]) -> Any:
    """One side of all models: items, ids or vectors."""
    if isinstance(sides[0], tuple):
        return tuple(item for side in sides for item in side)
    arrays = [to_numpy(side) for side in sides]
    if len({array.shape[1:] for array in arrays}) > 1:
        raise DataError(
            "the vectors of the models differ in width, so they come from different embedders; "
            "use the same one for all models."
        )
    return np.concatenate(arrays)
