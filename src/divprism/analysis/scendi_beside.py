"""Scendi beside the scores of an evaluation, with its vectors and kernels."""

from dataclasses import replace

from divprism.analysis.evaluation import Evaluation, Results
from divprism.errors import ArgumentError
from divprism.scores.scendi import scendi

__all__ = ["with_scendi"]

_MOST_OUTPUTS = 10_000  # it is exact, and takes n^3 time


def with_scendi(results: Results) -> Results:
    """Return evaluations with the field `scendi`, of order 1 and without truncation."""
    return Results({model: _with_scendi(result) for model, result in results.items()})


def _with_scendi(result: Evaluation) -> Evaluation:
    size, samples = result.data["n"], result.samples
    if size > _MOST_OUTPUTS:
        raise ArgumentError(
            f"scendi takes up to {_MOST_OUTPUTS:,} outputs of a model; got {size:,}: `limit` them."
        )
    assert samples is not None  # `evaluate` keeps them
    # What a preset stands for is in the other settings already, but for what scendi does not take.
    plain = replace(result.settings, order=1.0, truncation=None, preset=None)
    settings = replace(plain, embedder_x=None, embedder_t=None)  # the samples are vectors
    score = scendi(samples.outputs, samples.prompts, settings=settings)
    warnings = tuple(dict.fromkeys([*result.warnings, *score.warnings]))
    return replace(result, scendi=score, warnings=warnings)
