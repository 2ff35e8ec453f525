"""evaluate: every score of a set of outputs and their prompts, from one pass over the pairs."""

import hashlib
import json
import math
import time
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any
from warnings import warn

import numpy as np

from divprism.analysis.baseline import ShuffledBaseline, default_permutations, shuffled_from
from divprism.analysis.bounds import Bound, bounds_of
from divprism.analysis.intervals import Interval, SamplingError, check_level, sampling_error
from divprism.core.arrays import to_numpy
from divprism.core.kernels import Gaussian, Kernel
from divprism.core.spectrum import Spectrum
from divprism.data.samples import Samples
from divprism.embedders.embedding import as_arrays, as_samples, embed, resolve_embedder
from divprism.errors import BandwidthWarning, DataError
from divprism.estimators import Estimator
from divprism.scores import registry
from divprism.scores.bandwidth import BandwidthRule, StableScore
from divprism.scores.cluster import cluster_score_from
from divprism.scores.problem import Problem, entropies, pose
from divprism.scores.score import COMBINATIONS, SATURATED, Score, score_from
from divprism.version import __version__

__all__ = ["SCHEMA", "Evaluation", "around", "evaluate", "evaluate_models", "pooled_kernels"]

SCHEMA = 1
"""Version of the result document that `to_dict` and `to_json` write."""


@dataclass(frozen=True)
class Evaluation:
    """All scores of one set of outputs, and everything needed to compute them again.

    Attributes
    ----------
    vendi, rke : Score
        Diversity of the outputs.
    conditional_vendi, conditional_rke, information_vendi, information_rke : Score or None
        Its two factors; None without prompts.
    cluster_vendi, cluster_rke : Score or None
        Mean diversity inside the groups given as `labels`; None without.
    settings : dict
        Keyword arguments that give this evaluation again: `evaluate(x, t, **evaluation.settings)`.
    data : dict
        Number of pairs, of distinct outputs and prompts, and a hash of the input.
    runtime : dict
        Seconds spent and versions used.
    warnings : tuple of str
        What a reader of the numbers should know.
    embedders : tuple of dict
        How vectors were made of texts, pictures and clips; empty for arrays of your own.
    notes : tuple of str
        How files were understood, and what was embedded.
    intervals : dict of Interval
        Per score, if asked for: where its expectation lies, by the sample.
    bounds : dict of Bound
        With the intervals, for independent pairs: where the score of infinitely many samples lies whatever their law, for
        those scores that a theorem of the papers covers.
    baseline : ShuffledBaseline, optional
        Where prompts have few outputs, or if asked for: Information beyond that of outputs paired with prompts at random.
    samples : Samples, optional
        What was scored, as vectors, and what these were made from.
    """

    vendi: Score
    rke: Score
    conditional_vendi: Score | None
    information_vendi: Score | None
    conditional_rke: Score | None
    information_rke: Score | None
    cluster_vendi: Score | None
    cluster_rke: Score | None
    settings: dict[str, Any]
    data: dict[str, Any]
    runtime: dict[str, Any] = field(repr=False)
    warnings: tuple[str, ...] = ()
    embedders: tuple[dict[str, Any], ...] = ()
    notes: tuple[str, ...] = field(default=(), repr=False)
    intervals: dict[str, Interval] = field(default_factory=dict)
    baseline: ShuffledBaseline | None = None
    bounds: dict[str, Bound] = field(default_factory=dict)
    samples: Samples | None = field(default=None, repr=False, compare=False)

    @property
    def scores(self) -> dict[str, Score]:
        """The scores that were computed, by name."""
        return {
            name: score for name in registry.SCORES if (score := getattr(self, name)) is not None
        }

    @property
    def excess_information(self) -> float | None:
        """Information beyond that of random pairings, in nats; None without `baseline`."""
        return None if self.baseline is None else self.baseline.excess_information

    @property
    def spectra(self) -> dict[str, Spectrum]:
        """Eigenvalues of the outputs ("x"), the prompts ("t") and the pairs ("joint"); empty where none were needed."""
        return {name: one for score in self.scores.values() for name, one in score.spectra.items()}

    def plot(self, ax: Any = None) -> tuple[Any, Any]:
        """Draw how vendi splits into conditional and information, as a bar on a log axis; without prompts, the spectrum.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Where to draw; default a new figure.

        Returns
        -------
        (Figure, Axes)
        """
        from divprism.report.plots import draw_factors, new_axes

        if self.conditional_vendi is None:
            return self.vendi.plot(ax)
        figure, ax = new_axes(ax, height=1.8)
        draw_factors(ax, {self.data.get("model") or "": self.to_dict()})
        return figure, ax

    def to_dict(self) -> dict[str, Any]:
        """The result document: plain values only, every number finite."""
        return {
            "schema": SCHEMA,
            "scores": {
                name: _score_entry(score, self.intervals.get(name), self.bounds.get(name))
                for name, score in self.scores.items()
            },
            "baseline": None
            if self.baseline is None
            else asdict(self.baseline) | {"order": _finite(self.baseline.order)},
            "data": self.data,
            "settings": registry.spell_settings(self.settings),
            "embedders": list(self.embedders),
            "runtime": self.runtime,
            "warnings": list(self.warnings),
        }

    def to_json(self) -> str:
        """The result document as JSON text."""
        return json.dumps(self.to_dict(), indent=2, allow_nan=False, ensure_ascii=False)


def _finite(value: float) -> float | str:
    return value if math.isfinite(value) else "inf"


def _score_entry(score: Score, interval: Interval | None, bound: Bound | None) -> dict[str, Any]:
    return {
        "value": score.value,
        "standard_error": score.standard_error,
        "entropy": score.entropy,
        "order": _finite(score.order),
        "truncation": score.truncation,
        "method": score.method,
        "interval": None if interval is None else asdict(interval),
        "bound": None if bound is None else bound.to_dict(),
    }


def _digest(*arrays: Any) -> str:
    """SHA-256 over the dtypes, shapes and bytes of the input: equal hashes mean that two results saw the same data."""
    digest = hashlib.sha256()
    for array in arrays:
        values = None if array is None else np.ascontiguousarray(to_numpy(array))
        if values is None:
            digest.update(b"none;")
            continue
        if values.dtype == object:
            values = values.astype(str)
        digest.update(f"{values.dtype.str}{values.shape};".encode())
        digest.update(values.data if values.dtype.kind != "U" else values.tobytes())
    return f"sha256:{digest.hexdigest()}"


def evaluate(
    x: Any,
    t: Any = None,
    labels: Any = None,
    *,
    kernel_x: Kernel | None = None,
    kernel_t: Kernel | None = None,
    bandwidth_rule: BandwidthRule | None = None,
    order: float = 1.0,
    truncation: int | None = None,
    weights: Any = None,
    estimator: Estimator | None = None,
    rng: Any = 0,
    memory: Any = None,
    executor: Executor | None = None,
    progress: Callable[[str, float], None] | None = None,
    embedder_x: Any = None,
    embedder_t: Any = None,
    cache: Any = None,
    num_workers: int | None = None,
    interval: float | None = None,
    unit: str | None = None,
    num_permutations: int | None = None,
) -> Evaluation:
    """All scores at once: each kernel matrix is computed once, and its spectrum serves all orders.

    Costs what `information_vendi` costs alone (with `labels`, plus the cluster scores). At `order=2` no eigenvalue is computed.

    Parameters
    ----------
    x : array (n, d), list of n texts or PIL pictures, Samples, or path
        The outputs. What is not a vector yet is embedded; a path is read by `load`, with its prompts.
    t : array (n, d_t), list of n texts or pictures, flat collection of n group ids, or path, optional
        The prompt of each output, as in `conditional_vendi`. Texts are embedded, unless `kernel_t=Categorical()` takes them as
        ids. Without prompts only `vendi` and `rke` are computed.
    labels : flat collection of n integers or strings, optional
        Groups of prompts; adds `cluster_vendi` and `cluster_rke`.
    kernel_x, kernel_t, bandwidth_rule, order, truncation, weights, estimator, rng, memory, executor, progress
        As in `conditional_vendi`. The rke scores are the same at order 2, with the same truncation.
    embedder_x, embedder_t, cache, num_workers
        As in `embed`.
    interval : float, optional
        Level of the intervals, such as 0.95: where the scores would lie for other samples of this size. Costs twenty times the
        scores of 500 pairs (forty where prompts are drawn and have more than 25 outputs), and twenty times the cluster scores
        of at most 500 pairs of each cluster. In simulations 90 to 98 of 100 intervals of 95 % hold; 86 to 95 where a few
        prompts or outputs are far from all others (heavy tails), and up to all where few prompts have two outputs each. Of a
        score within a percent of its end (Information where all prompts are told apart) as few as half, of tiny intervals.
    unit : "pair" or "prompt", optional
        What was drawn at random, for the intervals. Default: prompts, where there are at least 20 and they repeat. Of pairs
        whose prompts repeat in even numbers, the prompts are taken as given and the outputs as drawn.
    num_permutations : int, optional
        Compare Information with that of so many random pairings (`shuffled_baseline`), each of which costs a joint spectrum;
        0 for none. Default: where prompts have fewer than five outputs on average 19 up to 1,000 pairs, 5 up to 5,000.

    Returns
    -------
    Evaluation

    Examples
    --------
    Four prompts, five outputs each, all different: five of the twenty are the model's own.

    >>> import numpy as np, divprism as dp
    >>> r = dp.evaluate(np.eye(20), np.repeat(np.arange(4), 5), kernel_x=dp.Cosine())
    >>> [round(float(s), 9) for s in (r.vendi, r.conditional_vendi, r.information_vendi)]
    [20.0, 5.0, 4.0]
    """
    start = time.perf_counter()
    interval = None if interval is None else check_level(interval)
    samples = as_samples(x, t, kernel_t)
    _require_one_model(samples, aligned=labels is None and weights is None)
    embedders = {
        "embedder_x": resolve_embedder(embedder_x, samples.outputs, "x"),
        "embedder_t": resolve_embedder(embedder_t, samples.prompts, "t"),
    }
    embedded = embed(samples, **embedders, cache=cache, num_workers=num_workers, progress=progress)
    x, t = embedded.outputs, embedded.prompts
    problem = pose(
        x,
        t,
        labels,
        kernel_x=kernel_x,
        kernel_t=kernel_t,
        bandwidth_rule=bandwidth_rule,
        order=order,
        truncation=truncation,
        weights=weights,
        estimator=estimator,
        rng=rng,
        memory=memory,
        executor=executor,
        progress=progress,
    )
    scores = _scores(problem)
    errors = (
        None if interval is None or problem.n < 2 else sampling_error(problem, unit)
    )  # a single pair has no spread
    beside = {} if errors is None or interval is None else around(problem, scores, errors, interval)
    unchecked: tuple[str, ...] = ()
    if num_permutations is None:
        num_permutations, unchecked = default_permutations(problem)
    num_permutations = (
        int(num_permutations) if isinstance(num_permutations, np.integer) else num_permutations
    )
    baseline = None if num_permutations == 0 else shuffled_from(problem, num_permutations)
    warnings = _collected(embedded, scores, unchecked)
    runtime = {
        "seconds": round(time.perf_counter() - start, 6),
        "divprism": __version__,
        "numpy": np.__version__,
    }
    return Evaluation(
        **scores,
        settings=problem.settings
        | embedders
        | {"interval": interval, "unit": unit, "num_permutations": num_permutations},
        data=_data(problem, samples)
        | {"hash": _digest(x, t, labels, weights), "weighted": weights is not None},
        runtime=runtime,
        warnings=warnings,
        embedders=embedded.embedders,
        notes=embedded.notes,
        **beside,
        baseline=baseline,
        samples=as_arrays(embedded),
    )


def _require_one_model(samples: Samples, aligned: bool) -> None:
    """Refuse outputs of several models, and labels or weights that no longer fit because outputs were left out."""
    if samples.skipped and not aligned:
        raise DataError(
            f"{samples.skipped:,} outputs are empty and left out, so labels and weights do not fit: drop them first."
        )
    if samples.models is not None and len(set(samples.models)) > 1:
        raise DataError(
            f"{samples.source} holds outputs of {len(set(samples.models)):,} models, and a score is of one: "
            "use evaluate_models, or dp.load(...).by_model()[name]."
        )


def _collected(embedded: Samples, scores: dict[str, Any], more: tuple[str, ...]) -> tuple[str, ...]:
    """All warnings, each once; those about a bandwidth are also given to Python."""
    found = [
        *embedded.warnings,
        *(text for score in scores.values() if score is not None for text in score.warnings),
        *more,
    ]
    warnings = tuple(dict.fromkeys(found))
    for text in warnings:
        if text.startswith(SATURATED):
            warn(text, BandwidthWarning, stacklevel=3)
    return warnings


def _data(problem: Problem, samples: Samples) -> dict[str, Any]:
    return {
        "n": problem.n,
        "outputs": problem.x.size,
        "prompts": None if problem.t is None else problem.t.size,
        "hash": None,
        "source": samples.source,
        "model": None if samples.models is None else samples.models[0],
        "skipped": samples.skipped,
        "weighted": False,
    }


def around(
    problem: Problem, scores: dict[str, Any], errors: SamplingError, level: float
) -> dict[str, Any]:
    """The fields `intervals` and `bounds` of an evaluation; no bounds where outputs of a prompt were drawn together."""
    return {
        "intervals": {
            name: errors.interval(
                name, scores[name].entropy, level, scores[name].standard_error / scores[name].value
            )
            for name in errors.deviations
        },
        "bounds": bounds_of(problem, scores, errors.norms, level) if errors.unit == "pair" else {},
    }


def _scores(problem: Problem) -> dict[str, Any]:
    """Every score that the problem has the operators for."""
    order = problem.settings["order"]
    operators = ["x"] if problem.joint is None else ["x", "t", "joint"]
    at_order, at_two = entropies(problem, operators, [order, 2.0])
    scores: dict[str, Any] = dict.fromkeys(registry.SCORES)
    for name, terms in COMBINATIONS.items():
        if set(terms) <= set(operators):
            second = name.endswith("rke")
            scores[name] = score_from(
                name, at_two if second else at_order, problem, 2.0 if second else order
            )
    if problem.grouped is not None:
        scores["cluster_vendi"] = cluster_score_from("cluster_vendi", problem, order)
        scores["cluster_rke"] = cluster_score_from("cluster_rke", problem, 2.0)
    return scores


def evaluate_models(
    x: str | Path | Samples,
    t: str | Path | None = None,
    *,
    kernel_x: Kernel | None = None,
    kernel_t: Kernel | None = None,
    bandwidth_rule: BandwidthRule | None = None,
    embedder_x: Any = None,
    embedder_t: Any = None,
    cache: Any = None,
    num_workers: int | None = None,
    **settings: Any,
) -> dict[str, Evaluation]:
    """`evaluate` for each model of a file, with one embedding and one bandwidth for all, so that scores can be compared.

    A bandwidth that is left to the rule is chosen on the outputs, and on the prompts, of all models together.

    Parameters
    ----------
    x : path or Samples
        With a model for each output.
    t : path, optional
        Prompts kept elsewhere.
    kernel_x, kernel_t, bandwidth_rule, embedder_x, embedder_t, cache, num_workers, **settings
        As in `evaluate`.

    Returns
    -------
    dict
        An Evaluation for each model, in order of first appearance.
    """
    samples = as_samples(x, t, kernel_t)
    samples.by_model()  # refuses samples without models before anything is embedded
    embedders = {
        "embedder_x": resolve_embedder(embedder_x, samples.outputs, "x"),
        "embedder_t": resolve_embedder(embedder_t, samples.prompts, "t"),
    }
    embedded = embed(
        samples,
        **embedders,
        cache=cache,
        num_workers=num_workers,
        progress=settings.get("progress"),
    )
    kernels = pooled_kernels(
        embedded, {"x": kernel_x, "t": kernel_t}, bandwidth_rule, settings.get("rng", 0)
    )
    chosen = {"bandwidth_rule": kernels.get("bandwidth_rule")}
    results = {}
    for model, one in embedded.by_model().items():
        result = evaluate(one, **kernels, **settings)
        results[model] = replace(result, settings=result.settings | chosen | embedders)
    return results


def pooled_kernels(
    embedded: Samples, given: dict[str, Kernel | None], rule: BandwidthRule | None, rng: int
) -> dict[str, Any]:
    """The kernels of both sides, and the rule that chose a bandwidth on all models together, where one was left open."""
    chosen = StableScore() if rule is None else rule
    kernels: dict[str, Any] = {}
    for side, data in (("x", embedded.outputs), ("t", embedded.prompts)):
        kernel = given[side]
        if kernel is None and getattr(data, "ndim", 0) == 2:
            kernel = Gaussian(chosen.bandwidth(data, rng=rng, name=side))
            kernels["bandwidth_rule"] = chosen
        kernels[f"kernel_{side}"] = kernel
    return kernels
