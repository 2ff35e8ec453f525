"""The other columns of the papers' tables: outputs against real data, and cosines of outputs."""

from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from divprism.analysis.fidelity import (
    KernelDistance,
    alignment,
    coverage,
    in_batch_similarity,
    kernel_distance,
    recall,
)
from divprism.core.arrays import Array, array_namespace, distinct_rows, to_numpy
from divprism.core.kernels import Precomputed
from divprism.core.validation import clean_ids, clean_rows
from divprism.data.inputs import as_samples
from divprism.data.samples import Samples
from divprism.embedders.embedding import embed
from divprism.engines import Resources
from divprism.errors import ArgumentError, DataError
from divprism.scores.normalization import normalized
from divprism.scores.settings import Settings

__all__ = ["Fidelity", "embed_reference", "fidelity_of"]


@dataclass(frozen=True)
class Fidelity:
    """Metrics of outputs beside real data; a metric that the data do not allow is None.

    Attributes
    ----------
    kernel_distance : KernelDistance
        Distance of the outputs from the real data.
    recall, coverage : float
        Shares of the real data that outputs reach, with 3 and 5 neighbours.
    alignment : float or None
        Where outputs and prompts were embedded by one model.
    in_batch_similarity : float or None
        Mean cosine inside a batch, averaged over batches.
    batches : str
        What a batch is: "prompt" for the outputs of a prompt; "all" for all outputs, where no
        prompt has two. That is the expectation over random batches of any size.
    absent : dict of str
        Why a metric is None.
    """

    kernel_distance: KernelDistance
    recall: float
    coverage: float
    alignment: float | None
    in_batch_similarity: float | None
    batches: str
    absent: dict[str, str]

    def to_dict(self) -> dict[str, Any]:
        """Plain values, as in result files."""
        return asdict(self)


def embed_reference(
    reference: object, embedded: Samples, settings: Settings, resources: Resources
) -> Array:
    """Real data as vectors, by the embedder of the outputs and scaled as these are."""
    if isinstance(settings.kernel_x, Precomputed):
        raise ArgumentError("`reference` needs vectors, and a precomputed kernel has none.")
    samples = replace(as_samples(reference, None, None), prompts=None)
    if isinstance(samples.outputs, tuple):
        if settings.embedder_x is None:
            raise ArgumentError(
                "`reference` must be vectors as the outputs are; embed it by the same model first."
            )
        cache: Any = resources.cache
        samples = embed(
            samples,
            settings.embedder_x,
            cache=cache,
            num_workers=resources.num_workers,
            progress=resources.progress,
        )
    ours, theirs = _model_of(embedded, "x"), _model_of(samples, "x")
    if ours and theirs and ours != theirs:
        raise DataError(
            f"`reference` must come from the embedder of the outputs, {ours}; got {theirs}."
        )
    rows, _, _ = normalized(samples.outputs, None, settings)
    return rows


def _model_of(samples: Samples, side: str) -> str:
    """The embedder of a side; empty if that is unknown."""
    for record in samples.embedders:
        if record.get("side") == side:
            return str(record["id"])
    return ""


def fidelity_of(embedded: Samples, reference: Array) -> Fidelity:
    """All metrics of one model. O((n + m)^2 d) for n outputs and m real items."""
    x, t = clean_rows(embedded.outputs, "x"), embedded.prompts
    absent: dict[str, str] = {}
    aligned = similar = None
    batches = "all"
    if t is not None and _repeats(t):
        batches = "prompt"
    if _has_zeros(x):
        absent["in_batch_similarity"] = "an output is all zeros, which has no cosine"
    elif x.shape[0] < 2:
        absent["in_batch_similarity"] = "there is a single output"
    elif batches == "prompt":
        similar = in_batch_similarity(x, t)
    else:
        similar = in_batch_similarity(x)
    reason = _not_aligned(embedded)
    if reason:
        absent["alignment"] = reason
    else:
        aligned = alignment(x, t)
    return Fidelity(
        kernel_distance=kernel_distance(x, reference),
        recall=recall(x, reference),
        coverage=coverage(x, reference),
        alignment=aligned,
        in_batch_similarity=similar,
        batches=batches,
        absent=absent,
    )


def _repeats(t: Array) -> bool:
    """Whether a prompt has two outputs."""
    codes = clean_ids(t, "t")
    if codes is None:
        _, codes = distinct_rows(clean_rows(t, "t"))
    return np.unique(codes).size < codes.size


def _has_zeros(rows: Array) -> bool:
    xp = array_namespace(rows)
    return bool((to_numpy(xp.max(xp.abs(rows), axis=1)) == 0).any())


def _not_aligned(embedded: Samples) -> str:
    """Why there is no alignment; empty where outputs and prompts share a space."""
    models = {_model_of(embedded, side) for side in ("x", "t")}
    # Vectors of equal width need not share a space, so unknown ones are not compared.
    if len(models) != 1 or "" in models:
        return "outputs and prompts were not embedded by one model"
    if _has_zeros(embedded.outputs) or _has_zeros(embedded.prompts):
        return "a row is all zeros, which has no cosine"
    return ""
