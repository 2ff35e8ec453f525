"""From what a user passes to embedded samples and pooled bandwidths: steps that analyses share."""

from dataclasses import replace
from typing import Any

from divprism.core.kernels import Gaussian
from divprism.data.inputs import as_samples
from divprism.data.samples import Samples
from divprism.embedders.embedding import embed, resolve_embedder
from divprism.engines import Resources
from divprism.errors import DataError
from divprism.scores.settings import Settings

__all__ = [
    "as_samples",
    "describe_source",
    "embed_samples",
    "pool_bandwidths",
    "require_one_model",
]


def embed_samples(
    samples: Samples, settings: Settings, resources: Resources
) -> tuple[Samples, Settings]:
    """The samples as vectors, and the settings with the embedders that made them."""
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
    )
    return embedded, settings


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
    return replace(settings, kernel_x=kernels["x"], kernel_t=kernels["t"], bandwidth_rule=rule_used)


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
        "select it with dp.load(...).by_model()[name]."
    )
