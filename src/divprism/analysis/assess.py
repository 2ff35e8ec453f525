"""The evaluation of embedded samples: scores, intervals, baseline and bounds of each model."""

import hashlib
import time
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from divprism.analysis.baseline import ShuffledBaseline, default_permutations, shuffled_from
from divprism.analysis.bounds import Bound, bounds_of
from divprism.analysis.content_order import ContentOrder
from divprism.analysis.evaluation import Evaluation, runtime_since
from divprism.analysis.inputs import describe_source
from divprism.analysis.intervals import (
    Interval,
    SamplingError,
    sampling_error,
    too_few_units,
)
from divprism.analysis.prompt_kinds import (
    kinds_as_ids,
    merged_prompts,
    nearly_equal_prompts,
    outputs_as_ids,
)
from divprism.analysis.sensitivity import sensitivity_of
from divprism.core.arrays import is_numpy_array, to_numpy
from divprism.data.inputs import as_arrays
from divprism.data.samples import Samples
from divprism.engines import Resources, cores, side_by_side
from divprism.errors import Notice
from divprism.scores.problem import Problem, pose
from divprism.scores.score import Score, Solved, assemble_all, solve
from divprism.scores.settings import Settings
from divprism.scores.spec import available

__all__ = ["Assessment", "assess", "assess_models"]

Assessment = tuple[Evaluation, SamplingError | None]
"""An evaluation and, where it has intervals, the sampling errors behind them."""

# Outputs of a model up to which several models are evaluated at the same time: matrices of this
# size are solved whole, and larger ones use all cores by themselves.
_MOST_OUTPUTS = 3000

# Matrices of n x n numbers that one evaluation holds at most: of X, T and (X, T), and a copy.
_MATRICES = 4


def assess_models(
    parts: Mapping[str, Samples], settings: Settings, resources: Resources
) -> dict[str, Assessment]:
    """`assess` for the embedded samples of each model."""

    def one(part: Samples) -> Assessment:
        return assess(part, settings, resources)

    if not _fit_side_by_side(list(parts.values()), resources):
        return {model: one(part) for model, part in parts.items()}
    # One model to a core takes less time than all cores on one model after the other. Beside other
    # busy processes the difference is fivefold: threads of BLAS that share the work on one matrix
    # wait for each other thousands of times.
    with resources.workers() as executor:
        assessed = side_by_side(one, parts.values(), executor)
    return dict(zip(parts, assessed, strict=True))


def _fit_side_by_side(parts: list[Samples], resources: Resources) -> bool:
    """Whether to evaluate several models at the same time, with one BLAS thread each."""
    # A given executor computes the tiles of each evaluation. If evaluations waited in its threads
    # for their tiles, there would be no thread left for these.
    if len(parts) < 2 or resources.engine is not None:
        return False
    if not all(is_numpy_array(part.outputs) for part in parts):
        return False
    largest = max(len(part) for part in parts)
    needed = 8 * _MATRICES * largest**2 * min(cores(), len(parts))
    return largest <= _MOST_OUTPUTS and needed <= resources.budget


def assess(
    embedded: Samples,
    settings: Settings,
    resources: Resources,
    *,
    labels: object = None,
    weights: object = None,
) -> Assessment:
    """The evaluation of embedded samples of one model; with an interval, also the sampling errors.

    The steps: pose, solve, assemble, then intervals, bounds, baseline and sensitivity. Nothing is
    computed twice.
    """
    start = time.perf_counter()
    x, t = embedded.outputs, embedded.prompts
    problem = pose(
        x,
        t,
        labels,
        settings=settings,
        weights=weights,
        quality=embedded.quality,
        resources=resources,
    )
    specs = available(problem.terms)
    solved = solve(problem, specs)
    scores = assemble_all(problem, specs, solved)
    arrays = as_arrays(embedded)
    errors, too_few = _sampling_error(problem, arrays, weights)
    intervals: dict[str, Interval] = {}
    bounds: dict[str, Bound] = {}
    level = problem.settings.interval
    if level is not None and errors is not None:
        intervals = errors.intervals(scores, level)
        if errors.unit == "pair":  # the theorems are about independent pairs
            bounds = bounds_of(problem, scores, errors.norms, level)
    # The default number of pairings depends on the data; the settings record what was used.
    baseline, problem, unchecked = _baseline(problem, solved)
    about_prompts = (*merged_prompts(problem, scores), *nearly_equal_prompts(problem))
    result = Evaluation(
        scores=scores,
        settings=problem.settings,
        data=_describe(problem, embedded) | {"hash": _hash_of(embedded, labels, weights)},
        runtime=runtime_since(start),
        warnings=_collect_warnings(embedded, scores, (*too_few, *unchecked, *about_prompts)),
        embedders=embedded.embedders,
        notes=embedded.notes,
        intervals=intervals,
        baseline=baseline,
        bounds=bounds,
        sensitivity=sensitivity_of(problem, specs, arrays, weights=weights),
        samples=arrays,
    )
    if weights is not None:
        result.data["weighted"] = True
        result.data["outputs_as_ids"] = outputs_as_ids(problem)
    return result, errors


def _hash_of(embedded: Samples, labels: object, weights: object) -> str:
    """The hash of what was scored."""
    arrays = [embedded.outputs, embedded.prompts, labels, weights]
    if embedded.quality is not None:
        # Data without qualities keep the hash that earlier versions gave them.
        arrays.append(embedded.quality)
    return _digest(*arrays)


def _sampling_error(
    problem: Problem, samples: Samples, weights: object
) -> tuple[SamplingError | None, tuple[Notice, ...]]:
    """The sampling errors if intervals are asked for, or a warning that the sample is too small."""
    settings = problem.settings
    if settings.interval is None:
        return None, ()
    too_few = too_few_units(problem, settings.unit)
    if too_few is not None:
        return None, (too_few,)
    order = ContentOrder.of(problem, samples, weights=weights)
    return sampling_error(problem, settings.unit, order), ()


def _baseline(
    problem: Problem, solved: Solved
) -> tuple[ShuffledBaseline | None, Problem, tuple[Notice, ...]]:
    """The shuffled baseline, the problem with its number of pairings, and warnings about it."""
    count = problem.settings.num_permutations
    warnings: tuple[Notice, ...] = ()
    if count is None:
        count, warnings = default_permutations(problem)
    settings = replace(problem.settings, num_permutations=count)
    problem = replace(problem, settings=settings)
    if count == 0:
        return None, problem, warnings
    # None if only scores of other orders were solved; the baseline then solves its own.
    entropies = solved.get(settings.order)
    return shuffled_from(problem, count, entropies), problem, warnings


def _collect_warnings(
    embedded: Samples, scores: Mapping[str, Score], more: Iterable[Notice]
) -> tuple[Notice, ...]:
    """All warnings, each once."""
    warnings = list(embedded.warnings)
    for score in scores.values():
        warnings += score.warnings
    return tuple(dict.fromkeys([*warnings, *more]))


def _describe(problem: Problem, samples: Samples) -> dict[str, Any]:
    """What was scored, in numbers."""
    counts: dict[str, Any] = {
        "n": problem.n,
        "outputs": problem.x.size,
        "prompts": None,
        "hash": None,
    }
    if problem.t is not None:
        of_prompts = np.bincount(problem.t.index)
        counts["prompts"] = problem.t.size
        counts["fewest_outputs"] = int(of_prompts.min())
        counts["most_outputs"] = int(of_prompts.max())
        counts["kinds_as_ids"] = kinds_as_ids(problem)
    return counts | describe_source(samples) | {"weighted": False}


def _digest(*arrays: Any) -> str:
    """SHA-256 of the dtypes, shapes and bytes of the input: equal hashes mean equal data."""
    digest = hashlib.sha256()
    for array in arrays:
        if array is None:
            digest.update(b"none;")
            continue
        # Contiguous, so that the layout in memory does not change the hash.
        values = np.ascontiguousarray(to_numpy(array))
        if values.dtype == object:
            # The bytes of an object array are addresses, which differ from process to process.
            values = values.astype(str)
        # Shape and dtype first: the same bytes in another shape are other data.
        digest.update(f"{values.dtype.str}{values.shape};".encode())
        if values.dtype.kind == "U":
            digest.update(values.tobytes())  # texts have no buffer interface
        else:
            digest.update(values.data)
    return f"sha256:{digest.hexdigest()}"
