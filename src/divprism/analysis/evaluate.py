"""evaluate: every score of a set of outputs and their prompts, from one pass over the pairs."""

import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, overload
from warnings import warn

from divprism.analysis.assess import assess, assess_models
from divprism.analysis.evaluation import Evaluation, Results, runtime_since
from divprism.analysis.inputs import (
    embed_samples,
    pool_bandwidths,
    rate_samples,
    read_samples,
    require_embedders,
    require_one_model,
    require_some_quality,
    with_quality_model,
    with_rule_of,
)
from divprism.analysis.matching import inequality_warnings
from divprism.analysis.reference import Fidelity, embed_reference, fidelity_of
from divprism.core.validation import check_pairing, check_weights
from divprism.data.inputs import as_samples, model_keyword
from divprism.data.quality import column_of_quality
from divprism.data.readers.fields import Fields
from divprism.data.samples import Samples
from divprism.data.wording import counted
from divprism.engines import Resources
from divprism.errors import ArgumentError, BandwidthWarning, DataError, Notice
from divprism.scores.problem import clean_labels
from divprism.scores.score import SATURATION
from divprism.scores.settings import EvaluationOptions, Settings, read_options

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = ["evaluate", "evaluate_models"]


@overload
def evaluate(
    x: object,
    t: object = None,
    labels: object = None,
    *,
    prompt: str | None = None,
    output: str | None = None,
    model: None = None,
    weights: object = None,
    quality: object = None,
    reference: object = None,
    **options: "Unpack[EvaluationOptions]",
) -> Evaluation: ...


@overload
def evaluate(
    x: object,
    t: object = None,
    labels: object = None,
    *,
    prompt: str | None = None,
    output: str | None = None,
    model: str,
    weights: object = None,
    quality: object = None,
    reference: object = None,
    **options: "Unpack[EvaluationOptions]",
) -> Results: ...


def evaluate(
    x: object,
    t: object = None,
    labels: object = None,
    *,
    prompt: str | None = None,
    output: str | None = None,
    model: str | None = None,
    weights: object = None,
    quality: object = None,
    reference: object = None,
    **options: "Unpack[EvaluationOptions]",
) -> Evaluation | Results:
    """All scores at once: each kernel matrix is computed once, and its spectrum serves all orders.

    Costs what `information_vendi` costs alone (with `labels`, plus the cluster scores). At
    `order=2` no eigenvalue is computed. How much each score depends on the bandwidths
    (`sensitivity`) is computed when it is read or printed, from eigenvectors of at most 500 pairs.

    Parameters
    ----------
    x : array (n, d), list of n texts, paths or PIL images, Samples, path, or table
        The outputs. Texts, images and videos are embedded; a single path is read by `load`, with
        its prompts, and so is a table: a data frame of any library, a Hugging Face data set, a
        list of dicts. A column of pandas, polars, pyarrow or NumPy counts as the list of its
        values, and a list of paths of images or videos as these.
    t : array (n, d_t), list of n texts or images, flat collection of n ids, or path, optional
        The prompt of each output, as in `conditional_vendi`. Texts are embedded, unless
        `kernel_t=Categorical()` compares them as ids. Without prompts only scores of the outputs
        are computed.
    labels : flat collection of n integers or strings, optional
        Groups of prompts; adds `cluster_vendi` and `cluster_rke`.
    prompt, output, model : str, optional
        Columns of the table or file `x`, recognised by their names if not given. With `model` there
        is an evaluation for each model, by the rules of `evaluate_models`.
    weights : array (n,), optional
        Sample weights that sum to one. Default: equal.
    quality : array (n,), str, callable or QualityModel, optional
        How good each output is, numbers of at least zero: an array, the name of a column of the
        table or file `x`, a function that gets the outputs and the prompts (lists of strings or
        paths, or arrays) and returns them, or a model to ask, `Judge` or `RewardModel`. Adds
        `quality`, their mean, and its products with diversity, `quality_conditional_vendi` and
        `quality_vendi` (docs/how-to/quality.md).
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
    Evaluation, or Results if `model` is given
        Results map each name in the column `model`, even if it is only one, to its Evaluation.

    Examples
    --------
    Four prompts, five outputs each, all different: five of the twenty are the model's own.

    >>> import numpy as np, divprism as dp
    >>> r = dp.evaluate(np.eye(20), np.repeat(np.arange(4), 5), kernel_x=dp.Cosine())
    >>> [round(s, 9) for s in (r.vendi, r.conditional_vendi, r.information_vendi)]
    [20.0, 5.0, 4.0]
    """
    start = time.perf_counter()
    settings, resources = read_options(options, EvaluationOptions, "evaluate", rates=True)
    settings = with_quality_model(settings, quality)
    columns = Fields(output, prompt, model, suffix="", quality=column_of_quality(quality))
    # The prompt kernel decides whether texts are embedded or compared as ids.
    samples = read_samples(x, t, settings.kernel_t, columns, quality)
    if model is not None:
        _require_no_rows(labels, weights)
        samples.require_models(model_keyword(x))
        results = _evaluate_each(samples, reference, settings, resources)
        _warn_of_bandwidths(results.warnings)
        return results
    # Everything that can be refused is refused before the expensive embedding.
    _require_aligned(samples, labels, weights)
    require_one_model(samples, "an evaluation is")
    if reference is not None and weights is not None:
        raise ArgumentError("`reference` does not go with `weights`: its metrics have none.")
    reference = _read_reference(reference)
    require_embedders(samples, settings, resources)
    samples, settings = rate_samples(samples, settings, resources)
    embedded, settings = embed_samples(samples, settings, resources)
    fidelity = None
    if reference is not None:
        fidelity = fidelity_of(embedded, embed_reference(reference, embedded, settings, resources))
    result, _ = assess(embedded, settings, resources, labels=labels, weights=weights)
    _warn_of_bandwidths(result.warnings)
    # This includes the time of the embedding, which `assess` does not see.
    return replace(result, fidelity=fidelity, runtime=runtime_since(start))


def evaluate_models(
    x: object,
    t: str | Path | None = None,
    *,
    prompt: str | None = None,
    output: str | None = None,
    model: str | None = None,
    quality: object = None,
    reference: object = None,
    **options: "Unpack[EvaluationOptions]",
) -> Results:
    """`evaluate` for each model of a file or table, with the same embedders and bandwidths for all.

    A bandwidth that is left to the rule is chosen on the outputs, and on the prompts, of all
    models together, so that their scores can be compared.

    Parameters
    ----------
    x : path, table or Samples
        With a model for each output.
    t : path, optional
        Prompts kept in another file.
    prompt, output, model : str, optional
        Columns of the table or file, recognised by their names if not given.
    quality : array (n,), str, callable or QualityModel, optional
        As in `evaluate`; a function is called once, with the outputs of all models.
    reference : as in `evaluate`, optional
        Real data, the same for all models.
    **options
        Keywords of `evaluate`.

    Returns
    -------
    Results
        An Evaluation for each model, in order of first appearance.
    """
    settings, resources = read_options(options, EvaluationOptions, "evaluate_models", rates=True)
    settings = with_quality_model(settings, quality)
    columns = Fields(output, prompt, model, suffix="", quality=column_of_quality(quality))
    samples = read_samples(x, t, settings.kernel_t, columns, quality)
    samples.require_models(model_keyword(x))
    results = _evaluate_each(samples, reference, settings, resources)
    _warn_of_bandwidths(results.warnings)
    return results


def _evaluate_each(
    samples: Samples, reference: object, settings: Settings, resources: Resources
) -> Results:
    """The evaluation of each model of some samples."""
    reference = _read_reference(reference)
    require_embedders(samples, settings, resources)
    samples, settings = rate_samples(samples, settings, resources)
    by_model = samples.by_model()
    require_some_quality(by_model)
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
    return Results(evaluations)


def _require_aligned(samples: Samples, labels: object, weights: object) -> None:
    """Refuse labels or weights that no longer fit because empty outputs were dropped."""
    if samples.skipped and (labels is not None or weights is not None):
        raise DataError(
            f"{counted(samples.skipped, 'output is', 'outputs are')} empty and left out, so labels "
            "and weights do not fit: drop these outputs first."
        )
    if not isinstance(samples.outputs, tuple):
        return  # vectors are scored at once, and what does not fit them is refused there
    check_weights(weights, len(samples))
    if labels is not None:
        check_pairing(len(samples), clean_labels(labels).size, "labels")


def _read_reference(reference: object) -> Samples | None:
    """Real data, read before anything is embedded or rated."""
    if reference is None:
        return None
    return as_samples(reference, None, None)


def _require_no_rows(labels: object, weights: object) -> None:
    """Refuse labels and weights, which belong to the rows of one model."""
    for name, value in (("labels", labels), ("weights", weights)):
        if value is not None:
            raise ArgumentError(
                f"`{name}` does not go with `model`: evaluate each model alone, with dp.load(x, "
                "model_field=...).by_model()[name]."
            )


def _warn_of_bandwidths(warnings: Iterable[Notice]) -> None:
    """Raise Python warnings about saturated bandwidths: such scores carry no information."""
    for notice in warnings:
        if notice.code in SATURATION:
            # Level 3 is the line that calls `evaluate` or `evaluate_models`.
            warn(str(notice), BandwidthWarning, stacklevel=3)
