"""From what a user passes to embedded samples and pooled bandwidths: steps that analyses share."""

import textwrap
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from divprism.core.kernels import Gaussian, Kernel
from divprism.data.inputs import as_samples
from divprism.data.quality import with_quality
from divprism.data.readers.fields import Fields
from divprism.data.readers.guards import shown
from divprism.data.samples import Samples
from divprism.data.wording import counted
from divprism.embedders.embedding import embed, resolve_embedder, try_embedders
from divprism.engines import Resources
from divprism.errors import ArgumentError, DataError
from divprism.judges import QualityModel
from divprism.judges.asking import rated
from divprism.scores.departures import departures, open_sides
from divprism.scores.normalization import normalized
from divprism.scores.problem import choose_truncation
from divprism.scores.settings import Settings

__all__ = [
    "as_samples",
    "describe_source",
    "embed_model",
    "embed_samples",
    "named_model",
    "pool_bandwidths",
    "rate_samples",
    "read_samples",
    "require_embedders",
    "require_model",
    "require_one_model",
    "require_some_quality",
    "with_quality_model",
    "with_rule_of",
    "with_truncation",
]


def read_samples(
    x: object, t: object, kernel_t: Kernel | None, columns: Fields, quality: object
) -> Samples:
    """The samples that a user passes, with the quality of each output if that is given.

    A column that `quality` names is one of `columns`. `rate_samples` asks a model that rates.
    """
    samples = as_samples(x, t, kernel_t, columns)
    if isinstance(quality, QualityModel):
        # Asked later, when everything else has been accepted.
        return replace(samples, quality=None)
    return with_quality(samples, quality, are_given=isinstance(x, Samples))


def with_quality_model(settings: Settings, quality: object) -> Settings:
    """Settings with the model that rates the outputs, if `quality` is one.

    Numbers, a column or a function take the place of the model of earlier settings.
    """
    if isinstance(quality, QualityModel):
        return replace(settings, quality_from=quality)
    if quality is not None:
        return replace(settings, quality_from=None)
    return settings


def require_embedders(samples: Samples, settings: Settings, resources: Resources) -> None:
    """Refuse an embedder that is missing before a model rates, which may cost money."""
    if settings.quality_from is None or samples.quality is not None:
        return
    cache: Any = resources.cache
    chosen = settings.embedder_x, settings.embedder_t
    try_embedders(samples, *chosen, cache=cache, engine=resources.engine)


def rate_samples(
    samples: Samples, settings: Settings, resources: Resources
) -> tuple[Samples, Settings]:
    """The samples with the ratings of the model in the settings, if there is one.

    A quality that the samples hold already is kept, and the settings then name no model.
    """
    if settings.quality_from is None:
        return samples, settings
    if samples.quality is not None:
        return samples, replace(settings, quality_from=None)
    # A copy for each result: it records the address that was asked.
    model = replace(settings.quality_from)
    found = rated(samples, model, cache=resources.cache, progress=resources.progress)
    return found, replace(settings, quality_from=model)


def require_some_quality(by_model: Mapping[str, Samples]) -> None:
    """Refuse a model whose outputs all have quality 0: before the embedding, and by its name."""
    for model, part in by_model.items():
        if part.quality is not None and not part.quality.any():
            raise DataError(
                f"all {counted(len(part), 'output', 'outputs')} of the model {model!r} that would "
                "be scored have quality 0, so every score with it would be 0 whatever the outputs "
                "are: leave the quality out, or this model."
            )


def embed_samples(
    samples: Samples, settings: Settings, resources: Resources
) -> tuple[Samples, Settings]:
    """The samples as vectors, and the settings with the embedders that made them.

    This is also where a preset chooses bandwidths, which depend on the embedder, and where rows are
    scaled to norm one.
    """
    # Default embedders are resolved here, so that the settings of a result name the ones used.
    settings = replace(
        settings,
        embedder_x=resolve_embedder(settings.embedder_x, samples.outputs, "x"),
        embedder_t=resolve_embedder(settings.embedder_t, samples.prompts, "t"),
    )
    cache: Any = resources.cache
    embedded = embed(
        samples,
        settings.embedder_x,
        settings.embedder_t,
        cache=cache,
        num_workers=resources.num_workers,
        progress=resources.progress,
        engine=resources.engine,
    )
    embedded, settings = _as_in_paper(embedded, settings)
    x, t, settings = normalized(embedded.outputs, embedded.prompts, settings)
    return replace(embedded, outputs=x, prompts=t), settings


def _as_in_paper(embedded: Samples, settings: Settings) -> tuple[Samples, Settings]:
    """The settings with the bandwidths of a preset, and the samples with warnings about it."""
    paper = settings.paper
    if paper is None:
        return embedded, settings
    unknown: dict[str, str | None] = {}
    for side in open_sides(embedded.outputs, embedded.prompts, settings):
        record = _record_of(embedded, side)
        known = paper.bandwidth_of(record)
        # Rows that were scaled on request have another scale than those of the paper.
        if known is None or (settings.normalizes(side) and not known.unit_norm):
            unknown[side] = record.get("id")
            continue
        changes: dict[str, Any] = {f"kernel_{side}": Gaussian(known.bandwidth)}
        if known.unit_norm:
            changes[f"normalize_{side}"] = True
        settings = replace(settings, **changes)
    notices = departures(paper, settings, unknown, _most_pairs(embedded))
    return replace(embedded, warnings=(*embedded.warnings, *notices)), settings


def _record_of(embedded: Samples, side: str) -> dict[str, Any]:
    """How the vectors of a side were made; empty if that is unknown."""
    for record in embedded.embedders:
        if record.get("side") == side:
            return dict(record)
    return {}


def _most_pairs(embedded: Samples) -> int:
    """The number of pairs of the largest model."""
    if embedded.models is None:
        return len(embedded)
    return max(Counter(embedded.models).values())


def embed_model(
    samples: Samples, model: str | None, purpose: str, settings: Settings, resources: Resources
) -> tuple[Samples, Settings]:
    """The outputs of one model as vectors, with bandwidths that are chosen on all models.

    So a score of the model is the one that `evaluate_models` gives. Without `model` the samples
    have to be of one model; `purpose` says in the message of which.
    """
    if model is None:
        require_one_model(samples, purpose)
        embedded, settings = embed_samples(samples, settings, resources)
        return embedded, with_truncation(embedded, settings)
    require_model(samples, model)
    embedded, settings = embed_samples(samples, settings, resources)
    return embedded.by_model()[model], pool_bandwidths(embedded, settings)


def require_model(samples: Samples, model: str) -> None:
    """Refuse the name of a model that the samples do not hold."""
    models = list(samples.by_model())
    if model not in models:
        names = ", ".join(map(repr, models))
        raise ArgumentError(f"`model` must be one of {names}; got {model!r}.")


def with_rule_of(pooled: Settings, resolved: Settings) -> Settings:
    """Resolved settings that name the rule which chose the bandwidths of all models.

    A model is posed with bandwidths given, so posing it records no rule.
    """
    return replace(resolved, bandwidth_rule=pooled.bandwidth_rule)


def pool_bandwidths(embedded: Samples, settings: Settings) -> Settings:
    """The settings with bandwidths chosen on all models together, where they were left open.

    Models that are compared must share their bandwidths: a score depends on them.
    """
    # Results record the rule only where it chose a bandwidth.
    rule_used = None
    kernels = {"x": settings.kernel_x, "t": settings.kernel_t}
    for side, data in (("x", embedded.outputs), ("t", embedded.prompts)):
        # Flat ids have no distances; `pose` compares them as ids.
        is_matrix = getattr(data, "ndim", 0) == 2
        if kernels[side] is None and is_matrix:
            rule_used = settings.rule
            bandwidth = rule_used.side_bandwidth(side, data, models=embedded.models)
            kernels[side] = Gaussian(bandwidth)
    pooled = replace(
        settings, kernel_x=kernels["x"], kernel_t=kernels["t"], bandwidth_rule=rule_used
    )
    return with_truncation(embedded, pooled)


def with_truncation(embedded: Samples, settings: Settings) -> Settings:
    """The settings with the truncation chosen, if that is left open: one number for all models.

    It is the smallest that a model asks for, so that the scores of all have settled, unless that
    says too little about one of them.
    """
    if not settings.auto_truncation:
        return settings
    parts = [embedded]
    if embedded.models is not None:
        parts = list(embedded.by_model().values())
    ranges = [choose_truncation(part.outputs, part.prompts, settings) for part in parts]
    highest = min(each.highest for each in ranges)
    lowest = max(each.lowest for each in ranges)
    return replace(settings, truncation=max(highest, lowest))


def describe_source(samples: Samples) -> dict[str, Any]:
    """Where samples come from: the source, the model, and how many outputs were left out."""
    model = None
    if samples.models is not None:
        model = samples.models[0]
    return {"source": samples.source, "model": model, "skipped": samples.skipped}


def require_one_model(samples: Samples, purpose: str) -> None:
    """Refuse outputs of several models where the answer is about one."""
    if samples.models is None or len(set(samples.models)) < 2:
        return
    count = len(set(samples.models))
    raise DataError(
        f"{samples.source} contains outputs of {count:,} models, but {purpose} of one model: "
        "select it with dp.load(...).by_model()[name], or score each with dp.evaluate_models."
    )


def named_model(samples: Samples, model: str | None) -> str | None:
    """The model, which must be named where there are several; None where there is one."""
    if model is None and len(set(samples.models or [])) < 2:
        return None
    parts = samples.by_model()
    if model in parts:
        return model
    names = textwrap.shorten(", ".join(map(shown, parts)), 300, placeholder=" ...")
    raise ArgumentError(f"`model` must be one of the models of {samples.source}: {names}.")
