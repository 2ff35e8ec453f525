"""What a report shows beyond the scores: spectra, a sweep, convergence, and groups of prompts."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias, TypedDict

import numpy as np

from divprism.analysis.bandwidth_sweep import bandwidth_sweep
from divprism.analysis.comparison import Comparison
from divprism.analysis.convergence import converge
from divprism.analysis.differences import Differences, Novelty
from divprism.analysis.evaluation import SCHEMA, Evaluation, Results
from divprism.analysis.groups import LabelGrouping, prompt_groups
from divprism.analysis.mixture_result import Mixture
from divprism.analysis.overlap_result import Overlap
from divprism.analysis.selection import Selection
from divprism.core.arrays import to_numpy
from divprism.core.kernels import Gaussian
from divprism.core.spectrum import Spectrum
from divprism.data.samples import Samples
from divprism.errors import ArgumentError, DataError
from divprism.estimators.base import whole_number
from divprism.report.difference_details import difference_details
from divprism.report.difference_views import MAX_IMAGES
from divprism.report.documents import Document
from divprism.report.page import report_page
from divprism.report.plots import rank_curve
from divprism.report.repetition import ExactPrompts, side_by_side
from divprism.report.selection_details import MAX_SHOWN, selection_details
from divprism.report.thumbnails import preview
from divprism.scores.bandwidth import BandwidthRule
from divprism.scores.settings import Progress, Settings

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = ["DetailOptions", "detailed", "details", "html_report"]

MAX_THUMBNAILS = 240
"""Thumbnails of one model by default: about 1.5 MB of the page."""
_PAGE_THUMBNAILS = 480  # of the sections of all models of a page: about 3 MB
_BESIDE_THUMBNAILS = 160  # of the models side by side: about 1 MB
_MAX_POINTS = 150  # of a spectrum: more cannot be distinguished in a plot
_FEW_UNITS = 20  # prompts; of fewer, a random subset of pairs represents the data better


Reported: TypeAlias = (
    Evaluation
    | Comparison
    | Mapping[str, Evaluation]
    | Selection
    | Mixture
    | Overlap
    | Differences
    | Novelty
)
"""A result with a page."""
_WITHOUT_SCORES = (Selection, Mixture, Overlap, Differences, Novelty)


class DetailOptions(TypedDict, total=False):
    """Keywords of `details`."""

    num_groups: int
    num_modes: int
    num_examples: int
    max_thumbnails: int
    max_rows: int
    num_repeats: int
    max_pairs: int
    progress: Progress | None


def html_report(
    result: Reported,
    labels: Any = None,
    **options: "Unpack[DetailOptions]",
) -> str:
    """Return one self-contained HTML page about a result.

    The page shows the scores in words, plots, groups of prompts with examples, settings and
    warnings. It loads nothing from a network, and nothing in it that comes from the data can run.

    Parameters
    ----------
    result : Evaluation, Comparison, Results, dict of Evaluation, or another result
        As `evaluate`, `compare`, `evaluate_models`, `select`, `mixture`, `overlap`, `diff` and
        `novelty` return them. The page of the last two shows examples side by side.
    labels, **options
        As in `details`. Of a selection and of the last two, `max_thumbnails` only; of a mixture
        and an overlap, none.

    Examples
    --------
    >>> import numpy as np, divprism as dp
    >>> prompts = np.repeat(np.arange(4), 5)
    >>> page = dp.html_report(dp.evaluate(np.eye(20), prompts, kernel_x=dp.Cosine()))
    >>> "amount to 20 distinct outputs" in page
    True
    """
    return report_page(detailed(result, labels, **options))


def detailed(
    result: Reported,
    labels: Any = None,
    **options: "Unpack[DetailOptions]",
) -> dict[str, Any]:
    """Return the result document with the `details` of each model; see `html_report`."""
    if isinstance(result, _WITHOUT_SCORES):
        if labels is not None:
            raise ArgumentError("`labels` belong to an evaluation, and this result has no groups.")
        return _without_scores(result, options.get("max_thumbnails"))
    results = _as_results(result)
    if labels is not None and len(results) > 1:
        raise ArgumentError(
            f"`labels` belong to one model, and this result is of {len(results):,} models."
        )
    total = options.get("max_thumbnails")
    # Pages of many models would otherwise grow beyond what a mail takes.
    options["max_thumbnails"] = _thumbnails_each(total, len(results))
    documents, exact = {}, {}
    for model, evaluation in results.items():
        samples = _scored_samples(evaluation)
        exact[model] = ExactPrompts.of(samples, _settings_for_vectors(evaluation))
        parts = details(evaluation, labels, exact=exact[model], **options)
        documents[model] = evaluation.to_dict() | {"details": parts}
    if len(documents) == 1 and not isinstance(result, Comparison):
        return next(iter(documents.values()))
    document = {"schema": SCHEMA}
    if isinstance(result, Comparison):
        document = result.to_dict()
    beside = side_by_side(exact)
    if beside is not None:
        _add_thumbnails_beside(beside, exact, _thumbnails_beside(total))
    return document | {"models": documents, "side_by_side": beside}


def _without_scores(
    result: Selection | Mixture | Overlap | Differences | Novelty, most: int | None
) -> dict[str, Any]:
    """Return the document of a result with a page of its own, with at most so many images."""
    if isinstance(result, Selection):
        return selection_details(result, MAX_SHOWN if most is None else most)
    if isinstance(result, Differences | Novelty):
        return difference_details(result, MAX_IMAGES if most is None else most)
    return result.to_dict() | {"runtime": {}}


def _as_results(result: object) -> Results:
    """Return the evaluations by model, whatever the result is: the one place that decides it."""
    if isinstance(result, Evaluation):
        return Results.of(result)
    if isinstance(result, Comparison):
        return result.results
    if isinstance(result, Mapping) and result:
        evaluations = dict(result)
        if all(isinstance(evaluation, Evaluation) for evaluation in evaluations.values()):
            return Results(evaluations)
    raise ArgumentError(
        "`result` must be an Evaluation, a Comparison or a dict of Evaluation; got "
        f"{type(result).__name__}."
    )


def _thumbnails_each(total: int | None, num_models: int) -> int:
    """Return the number of thumbnails for each model, where `total` is for the page."""
    if total is None:
        return min(MAX_THUMBNAILS, _PAGE_THUMBNAILS // num_models)
    return total // num_models


def _thumbnails_beside(total: int | None) -> int:
    """Return the number of thumbnails of the models side by side, as many as a model has."""
    if total is None:
        return _BESIDE_THUMBNAILS
    return min(total, _BESIDE_THUMBNAILS)


def details(
    result: Evaluation,
    labels: Any = None,
    *,
    num_groups: int = 10,
    num_modes: int = 3,
    num_examples: int = 4,
    max_thumbnails: int = MAX_THUMBNAILS,
    max_rows: int = 500,
    num_repeats: int = 3,
    max_pairs: int = 1000,
    progress: Progress | None = None,
    exact: ExactPrompts | None = None,
) -> dict[str, Any]:
    """Return spectra, sweep, convergence and groups of an evaluation: plain values for a page.

    All of them use the kernels of the evaluation. Costs a sweep of `max_rows` pairs, about six
    evaluations of `max_pairs`, and the groups: some ten seconds by default.

    Parameters
    ----------
    result : Evaluation
        Of outputs with equal weights: `evaluate` without `weights`.
    labels : flat collection of n labels, optional
        Groups of prompts. Default: as in `prompt_groups`, the `num_groups` least diverse.
    num_groups, num_modes, num_examples : int
        As in `prompt_groups`.
    max_thumbnails : int
        Images to embed, shared out over groups and modes; the other examples show a file name.
    max_rows : int
        Largest number of pairs in the sweep of bandwidths.
    num_repeats : int
        As in `converge`.
    max_pairs : int
        Largest number of pairs in the convergence curves. Of more, a random subset is used: what
        suffices there also suffices for the whole sample.
    exact : ExactPrompts, optional
        The exact prompts of the evaluation, where they are known already.

    Returns
    -------
    dict
        With the keys spectra, sweep, convergence, groups and most_repeated, the outputs that occur
        most often. A part that the data do not allow is None, with the reason under `absent`. Where
        prompts repeat, also `least_diverse_prompts`: the exact prompts with the lowest score.
    """
    samples = _scored_samples(result)
    num_groups = whole_number(num_groups, "num_groups", 1)
    settings = _settings_for_vectors(result)
    if exact is None:
        exact = ExactPrompts.of(samples, settings)
    grouping = None
    if labels is not None:
        grouping = LabelGrouping(labels)

    def groups() -> dict[str, Any]:
        split = prompt_groups(
            samples,
            grouping=grouping,
            num_groups=num_groups,
            num_modes=num_modes,
            num_examples=num_examples,
            progress=progress,
            settings=settings,
        )
        document = split.to_dict()
        if labels is None:
            # There may be thousands of exact prompts; the least diverse come first.
            document["num_hidden"] = max(len(document["groups"]) - num_groups, 0)
            document["groups"] = document["groups"][:num_groups]
        _add_thumbnails(document, split.items, max_thumbnails)
        return document

    # Functions, not values: a part that the data do not allow must not stop the others.
    parts: dict[str, Callable[[], dict[str, Any]]] = {
        "sweep": lambda: _sweep(samples, settings, max_rows),
        "convergence": lambda: _convergence(samples, settings, num_repeats, max_pairs, progress),
        "groups": groups,
    }
    spectra = {name: _points(spectrum) for name, spectrum in result.spectra.items()}
    computed = {"spectra": spectra, **_computed_parts(parts)}
    if "per_prompt_vendi" in result.scores:
        computed["least_diverse_prompts"] = exact.least_diverse()
    computed["most_repeated"] = exact.most_repeated()
    return computed


def _settings_for_vectors(result: Evaluation) -> Settings:
    # The samples are vectors already; an embedder would be refused for them.
    return replace(result.settings, embedder_x=None, embedder_t=None)


def _scored_samples(result: Evaluation) -> Samples:
    """Return what an evaluation scored; refuse one that does not hold it, or has weights."""
    if result.samples is None:
        raise ArgumentError(
            "`result` does not hold the samples that it scored; use the result of `evaluate`."
        )
    if result.data.get("weighted"):
        raise ArgumentError(
            "details need outputs with equal weights, and this evaluation has `weights`: evaluate "
            "without them."
        )
    return result.samples


def _computed_parts(parts: Mapping[str, Callable[[], dict[str, Any]]]) -> dict[str, Any]:
    """Return every part, or None and the reason where the data do not allow it.

    Only `DataError` is such a reason: a wrong argument stays an error.
    """
    computed: dict[str, Any] = {}
    absent: dict[str, str] = {}
    for name, compute in parts.items():
        try:
            computed[name] = compute()
        except DataError as error:
            computed[name] = None
            absent[name] = str(error)
    return computed | {"absent": absent}


def _points(spectrum: Spectrum) -> dict[str, list[float]]:
    """Return a spectrum thinned to what log axes can show: the first eigenvalues, then fewer.

    The multiplicity of an eigenvalue that is left out goes to the next one kept, so that ranks
    stay the same.
    """
    ranks, values = rank_curve(spectrum.values, spectrum.weights)
    kept = np.arange(ranks.size)
    if kept.size > _MAX_POINTS:
        # Equal steps on a log axis; the first ranks round to the same integers.
        kept = np.unique(np.geomspace(1, kept.size, _MAX_POINTS).round().astype(int)) - 1
    weights = np.diff(ranks[kept], prepend=0.0)
    return {"values": values[kept].tolist(), "weights": weights.tolist()}


@dataclass(frozen=True)
class _GivenBandwidths(BandwidthRule):
    """The bandwidths that an evaluation used, so that the sweep marks these."""

    bandwidths: tuple[tuple[str, float], ...]

    def bandwidth(self, x: Any, *, name: str = "x") -> float:
        """Return the bandwidth of the side called `name`."""
        return dict(self.bandwidths)[name]


def _sweep(samples: Samples, settings: Settings, max_rows: int) -> dict[str, Any]:
    bandwidths = []
    for side, data in (("x", samples.outputs), ("t", samples.prompts)):
        if data is None:
            continue
        kernel = settings.kernel(side)
        if not isinstance(kernel, Gaussian):
            # DataError, so that the page shows this reason in place of the sweep.
            raise DataError(
                "a sweep needs Gaussian bandwidths on both sides, and one side has another kernel."
            )
        bandwidths.append((side, kernel.bandwidth))
    sweep = bandwidth_sweep(
        samples.outputs,
        samples.prompts,
        max_rows=max_rows,
        settings=replace(settings, bandwidth_rule=_GivenBandwidths(tuple(bandwidths))),
    )
    return sweep.to_dict()


def _convergence(
    samples: Samples,
    settings: Settings,
    num_repeats: int,
    max_pairs: int,
    progress: Progress | None,
) -> dict[str, Any]:
    rows = _subset_rows(samples, max_pairs, settings.rng)
    outputs, prompts = samples.outputs, samples.prompts
    if rows.size < len(samples):
        # Kernels pick rows themselves: of a kernel matrix, rows and columns go together.
        assert settings.kernel_x is not None
        outputs = settings.kernel_x.pick(outputs, rows)
        if settings.kernel_t is not None:
            prompts = settings.kernel_t.pick(prompts, rows)
    curves = converge(
        outputs, prompts, num_repeats=num_repeats, progress=progress, settings=settings
    )
    # The page compares this with `n`, and claims no more than a subset can show.
    return curves.to_dict() | {"drawn_from": len(samples)}


def _subset_rows(samples: Samples, most: int, seed: int) -> np.ndarray:
    """Return the rows of at most `most` pairs: all, or those of random prompts.

    Prompts keep all their outputs, because a conditional score depends on how many there are.
    """
    count = len(samples)
    if count <= most:
        return np.arange(count)
    units = np.arange(count)
    if samples.prompts is not None:
        prompts = to_numpy(samples.prompts)
        # NumPy 2.0 returns the inverse as a column, all others as a flat array.
        units = np.unique(prompts, axis=0, return_inverse=True)[1].reshape(-1)
    rng = np.random.default_rng(seed)
    order = rng.permutation(int(units.max()) + 1)
    fits = np.cumsum(np.bincount(units)[order]) <= most
    if fits.sum() < _FEW_UNITS:
        # A few large prompts: a part of each of them says more than a handful of whole ones.
        return np.sort(np.random.default_rng(seed).choice(count, most, replace=False))
    return np.flatnonzero(np.isin(units, order[fits]))


def _add_thumbnails_beside(
    beside: dict[str, Any], exact: Mapping[str, ExactPrompts], most: int
) -> None:
    """Add at most `most` thumbnails to the outputs of models side by side, first ones first."""
    cells = []
    for shown in beside["prompts"]:
        for model, cell in shown["models"].items():
            cells.append((exact[model].items.outputs, cell["outputs"]))
    num_embedded = 0
    # In rounds, as in galleries: no model gets a second image before each has its first.
    for index in range(max((len(outputs) for _, outputs in cells), default=0)):
        for given, outputs in cells:
            if num_embedded >= most:
                return
            if index >= len(outputs) or not isinstance(given, tuple):
                continue
            drawn = preview(given[outputs[index]["row"]])
            outputs[index] |= drawn
            num_embedded += bool(drawn)


def _add_thumbnails(document: Document, items: Samples, most: int) -> None:
    """Add at most `most` thumbnails to the examples of a groups document.

    A row that occurs twice is embedded once, where it occurs first.
    """
    embedded: set[tuple[str, int]] = set()
    for side, entry in _entries_by_rank(document):
        if len(embedded) >= most:
            return
        given, key = getattr(items, side), (side, entry["row"])
        # Only items that were files or images are kept as a tuple; arrays have no images.
        if key in embedded or not isinstance(given, tuple):
            continue
        drawn = preview(given[entry["row"]])
        entry |= drawn
        if drawn:
            embedded.add(key)


def _entries_by_rank(document: Document) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the side and the entry of examples, the most important first.

    First a prompt of each group, then the first output of every mode, then the second of every
    mode, and so on.
    """
    modes = []
    for group in document["groups"]:
        for entry in group["prompts"][:1]:
            yield "prompts", entry
        modes += [mode["outputs"] for mode in group["modes"]]
    # In rounds over all modes: none gets a second image before each has its first.
    longest = max(map(len, modes), default=0)
    for index in range(longest):
        for outputs in modes:
            if index < len(outputs):
                yield "outputs", outputs[index]
