"""evaluate: every score of a set of outputs and their prompts, from one pass over the pairs."""

import hashlib
import time
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from warnings import warn

import numpy as np

from divprism.analysis.baseline import ShuffledBaseline, default_permutations, shuffled_from
from divprism.analysis.bounds import Bound, bounds_of
from divprism.analysis.content_order import ContentOrder
from divprism.analysis.evaluation import Evaluation, Results, runtime_since
from divprism.analysis.inputs import (
    as_samples,
    describe_source,
    embed_samples,
    pool_bandwidths,
    require_one_model,
    with_rule_of,
)
from divprism.analysis.intervals import (
    Interval,
    SamplingError,
    sampling_error,
    too_few_units,
)
from divprism.analysis.matching import inequality_warnings
from divprism.analysis.prompt_kinds import kinds_as_ids, merged_prompts, nearly_equal_prompts
from divprism.analysis.reference import Fidelity, embed_reference, fidelity_of
from divprism.analysis.sensitivity import sensitivity_of
from divprism.core.arrays import is_numpy_array, to_numpy
from divprism.data.inputs import as_arrays
from divprism.data.samples import Samples
from divprism.data.wording import counted
from divprism.engines import Resources, cores, side_by_side
from divprism.errors import ArgumentError, BandwidthWarning, DataError, Notice
from divprism.scores.problem import Problem, pose
from divprism.scores.score import SATURATION, Score, Solved, assemble_all, solve
from divprism.scores.settings import EvaluationOptions, Settings, read_options
from divprism.scores.spec import available

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = ["Assessment", "assess", "assess_models", "evaluate", "evaluate_models"]

Assessment = tuple[Evaluation, SamplingError | None]
"""An evaluation and, where it has intervals, the sampling errors behind them."""

# Outputs of a model up to which several models are evaluated at the same time: matrices of this
# size are solved whole, and larger ones use all cores by themselves.
_MOST_OUTPUTS = 3000

# Matrices of n x n numbers that one evaluation holds at most: of X, T and (X, T), and a copy.
_MATRICES = 4


def evaluate(
    x: object,
    t: object = None,
    labels: object = None,
    *,
    weights: object = None,
    reference: object = None,
    **options: "Unpack[EvaluationOptions]",
) -> Evaluation:
    """All scores at once: each kernel matrix is computed once, and its spectrum serves all orders.

    Costs what `information_vendi` costs alone (with `labels`, plus the cluster scores). At
    `order=2` no eigenvalue is computed. How much each score depends on the bandwidths
    (`sensitivity`) is computed when it is read or printed, from eigenvectors of at most 500 pairs.

    Parameters
    ----------
    x : array (n, d), list of n texts, paths or PIL images, Samples, or path
        The outputs. Texts, images and videos are embedded; a single path is read by `load`, with
        its prompts. A column of pandas, polars, pyarrow or NumPy counts as the list of its values,
        and a list of paths of images or videos as these.
    t : array (n, d_t), list of n texts or images, flat collection of n ids, or path, optional
        The prompt of each output, as in `conditional_vendi`. Texts are embedded, unless
        `kernel_t=Categorical()` compares them as ids. Without prompts only scores of the outputs
        are computed.
    labels : flat collection of n integers or strings, optional
        Groups of prompts; adds `cluster_vendi` and `cluster_rke`.
    weights : array (n,), optional
        Sample weights that sum to one. Default: equal.
    reference : as `x`, optional
        Real data, embedded as the outputs are; adds `fidelity`: kernel distance, recall and
        coverage, in-batch similarity and, where one model embedded outputs and prompts, alignment.
        Its own prompts are ignored.
    kernel_x, kernel_t, bandwidth_rule, order, truncation, estimator, rng, memory, executor,
    progress
        As in `conditional_vendi`. The rke scores use order 2 whatever `order` is, with the same
        truncation; they can rank models differently.
    embedder_x, embedder_t, cache, num_workers
        As in `embed`.
    interval : float, optional
        Level of the intervals, such as 0.95: where the scores of other samples of this size would
        lie. None where the sample is too small for them, with a warning (`too-few-for-interval`):
        fewer than ten prompts, and fewer than ten outputs beyond the first of each. Costs twenty
        times the scores of 500 pairs (forty where prompts are resampled and have more than 25
        outputs), and twenty times the cluster scores of at most 500 pairs of each cluster. In
        simulations 90 to 98 of 100 intervals of 95 % cover; 86 to 95 where a few prompts or outputs
        are far from all others (heavy tails), and up to all where few prompts have two outputs
        each. At order infinity one prompt decides the scores per exact prompt, and their intervals
        cover in 67 to 78 of 100. Scores within a percent of their limit (Information where no two
        prompts are alike) are covered only half of the time in the worst case, by tiny intervals.
    unit : "pair" or "prompt", optional
        What the intervals resample. Default: prompts, where there are at least 20 and they repeat.
        Where prompts repeat in even numbers and pairs are resampled, the prompts are taken as
        given and the outputs as random.
    num_permutations : int, optional
        Compare Information with that of this many random pairings (`shuffled_baseline`), of which
        five or a few more cost a joint spectrum; 0 for none. Default: where prompts have fewer than
        five outputs on average, 99 up to 1,000 pairs and 19 up to 5,000.
    preset : "conditional-vendi" or "truncated-vendi", optional
        What a paper uses stands in for what is not given: its truncation, and its bandwidths where
        its embedder was used. See docs/reference/command-line.md.
    normalize : bool, optional
        Scale rows to norm one first; `normalize_x` and `normalize_t` scale one side.
    settings : Settings, optional
        Settings of an earlier result; keywords override them.

    Returns
    -------
    Evaluation

    Examples
    --------
    Four prompts, five outputs each, all different: five of the twenty are the model's own.

    >>> import numpy as np, divprism as dp
    >>> r = dp.evaluate(np.eye(20), np.repeat(np.arange(4), 5), kernel_x=dp.Cosine())
    >>> [round(s, 9) for s in (r.vendi, r.conditional_vendi, r.information_vendi)]
    [20.0, 5.0, 4.0]
    """
    start = time.perf_counter()
    settings, resources = read_options(options, EvaluationOptions, "evaluate")
    # The prompt kernel decides whether texts are embedded or compared as ids.
    samples = as_samples(x, t, settings.kernel_t)
    # Everything that can be refused is refused before the expensive embedding.
    _require_aligned(samples, labels, weights)
    require_one_model(samples, "an evaluation is")
    if reference is not None and weights is not None:
        raise ArgumentError("`reference` does not go with `weights`: its metrics have none.")
    embedded, settings = embed_samples(samples, settings, resources)
    fidelity = None
    if reference is not None:
        fidelity = fidelity_of(embedded, embed_reference(reference, embedded, settings, resources))
    result, _ = assess(embedded, settings, resources, labels=labels, weights=weights)
    _warn_of_bandwidths(result.warnings)
    # This includes the time of the embedding, which `assess` does not see.
    return replace(result, fidelity=fidelity, runtime=runtime_since(start))


def evaluate_models(
    x: str | Path | Samples,
    t: str | Path | None = None,
    *,
    reference: object = None,
    **options: "Unpack[EvaluationOptions]",
) -> Results:
    """`evaluate` for each model of a file, with the same embedders and bandwidths for all.

    A bandwidth that is left to the rule is chosen on the outputs, and on the prompts, of all
    models together, so that their scores can be compared.

    Parameters
    ----------
    x : path or Samples
        With a model for each output.
    t : path, optional
        Prompts kept in another file.
    reference : as in `evaluate`, optional
        Real data, the same for all models.
    **options
        Keywords of `evaluate`.

    Returns
    -------
    Results
        An Evaluation for each model, in order of first appearance.
    """
    settings, resources = read_options(options, EvaluationOptions, "evaluate_models")
    samples = as_samples(x, t, settings.kernel_t)
    by_model = samples.by_model()  # refuses samples without models before anything is embedded
    unequal = inequality_warnings(by_model)
    embedded, settings = embed_samples(samples, settings, resources)
    parts = embedded.by_model()
    fidelity: dict[str, Fidelity] = {}
    if reference is not None:
        real = embed_reference(reference, embedded, settings, resources)
        fidelity = {model: fidelity_of(part, real) for model, part in parts.items()}
    settings = pool_bandwidths(embedded, settings)
    evaluations = {}
    # The embedding is shared by all models, and counts in the runtime of none.
    for model, (result, _) in assess_models(parts, settings, resources).items():
        evaluations[model] = replace(
            result,
            fidelity=fidelity.get(model),
            settings=with_rule_of(settings, result.settings),
            warnings=(*result.warnings, *unequal),
        )
    results = Results(evaluations)
    _warn_of_bandwidths(results.warnings)
    return results


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
    problem = pose(x, t, labels, settings=settings, weights=weights, resources=resources)
    specs = available(problem.operators)
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
        data=_describe(problem, embedded) | {"hash": _digest(x, t, labels, weights)},
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
    return result, errors


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


def _require_aligned(samples: Samples, labels: object, weights: object) -> None:
    """Refuse labels or weights that no longer fit because empty outputs were dropped."""
    if samples.skipped and (labels is not None or weights is not None):
        raise DataError(
            f"{counted(samples.skipped, 'output is', 'outputs are')} empty and left out, so labels "
            "and weights do not fit: drop these outputs first."
        )


def _collect_warnings(
    embedded: Samples, scores: Mapping[str, Score], more: Iterable[Notice]
) -> tuple[Notice, ...]:
    """All warnings, each once."""
    warnings = list(embedded.warnings)
    for score in scores.values():
        warnings += score.warnings
    return tuple(dict.fromkeys([*warnings, *more]))


def _warn_of_bandwidths(warnings: Iterable[Notice]) -> None:
    """Raise Python warnings about saturated bandwidths: such scores carry no information."""
    for notice in warnings:
        if notice.code in SATURATION:
            # Level 3 is the line that calls `evaluate` or `evaluate_models`.
            warn(str(notice), BandwidthWarning, stacklevel=3)


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
