"""Models against each other on the same prompts: paired differences, and a ranking that owns up to ties."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from divprism.analysis.evaluation import Evaluation, around, evaluate, pooled_kernels
from divprism.analysis.intervals import SamplingError, check_level, quantile, sampling_error
from divprism.core.arrays import to_numpy
from divprism.core.kernels import Kernel, Precomputed
from divprism.core.validation import check_seed
from divprism.data.samples import Item, Samples, Text
from divprism.embedders.embedding import as_samples, embed, resolve_embedder
from divprism.errors import ArgumentError, DataError
from divprism.scores.bandwidth import BandwidthRule
from divprism.scores.problem import Problem, pose
from divprism.scores.registry import SCORES, spell_settings

__all__ = ["Comparison", "Difference", "compare"]

_ROUNDING = 1e-6  # of a ratio: the same outputs in another order differ by less, and no two models by so little that it matters


@dataclass(frozen=True)
class Difference:
    """How many times as diverse one model is as another, on the same prompts.

    Attributes
    ----------
    first, second : str
        The models.
    ratio : float
        Score of the first over that of the second.
    low, high : float
        Its interval: from what the models do with the same prompts, so that what a prompt does to both cancels.
    """

    first: str
    second: str
    ratio: float
    low: float
    high: float

    @property
    def clear(self) -> bool:
        """Whether the interval leaves out 1, by more than rounding."""
        return self.low > 1 + _ROUNDING or self.high < 1 - _ROUNDING


@dataclass(frozen=True, eq=False)
class Comparison:
    """Scores of several models on the same prompts.

    Attributes
    ----------
    results : dict of Evaluation
        Per model, from the highest score to the lowest.
    score : str
        The score that models are ranked by.
    ranks : dict of (int, int)
        Per model, the best and the worst rank that its differences leave open: (1, 2) and (1, 2) are a tie.
    differences : tuple of Difference
        Of each pair of models, in the order of the ranking.
    lengths : dict of float
        Per model, the mean number of words of an output; empty unless outputs are texts.
    length_correlation : float or None
        Spearman's correlation of score and length over models; None below three models.
    notes, warnings : tuple of str
        What was left out to make the models comparable; what a reader should know.
    """

    results: dict[str, Evaluation]
    score: str
    ranks: dict[str, tuple[int, int]]
    differences: tuple[Difference, ...]
    lengths: dict[str, float]
    length_correlation: float | None
    notes: tuple[str, ...]
    warnings: tuple[str, ...]

    def plot(self, ax: Any = None) -> tuple[Any, Any]:
        """Draw the score of each model with its interval, the best on top.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Where to draw; default a new figure.

        Returns
        -------
        (Figure, Axes)
        """
        from divprism.report.plots import draw_ranking, new_axes

        figure, ax = new_axes(ax, height=1.2 + 0.32 * len(self.results))
        draw_ranking(ax, self.to_dict())
        return figure, ax

    def to_dict(self) -> dict[str, Any]:
        """Plain values only, every number finite."""
        return {
            "schema": 1,
            "score": self.score,
            "models": {model: result.to_dict() for model, result in self.results.items()},
            "ranks": {model: list(rank) for model, rank in self.ranks.items()},
            "differences": [asdict(one) | {"clear": one.clear} for one in self.differences],
            "lengths": self.lengths,
            "length_correlation": self.length_correlation,
            "settings": spell_settings(next(iter(self.results.values())).settings),
            "notes": list(self.notes),
            "warnings": list(self.warnings),
        }


def compare(
    models: Samples | str | Path | Mapping[str, Any],
    *,
    by: str = "conditional_vendi",
    interval: float = 0.95,
    unit: str | None = None,
    kernel_x: Kernel | None = None,
    kernel_t: Kernel | None = None,
    bandwidth_rule: BandwidthRule | None = None,
    embedder_x: Any = None,
    embedder_t: Any = None,
    cache: Any = None,
    num_workers: int | None = None,
    rng: Any = 0,
    **settings: Any,
) -> Comparison:
    """Rank models by a score, on the same prompts and with as many outputs for each.

    Prompts that not all models have are left out. Of a prompt for which models have different numbers of outputs, as many are
    kept as the model with the fewest has, by a seeded draw. Bandwidths are chosen on all models together. Differences are
    paired by prompt.

    Parameters
    ----------
    models : Samples, path, or mapping of name to Samples or path
        Samples, or a file, that name a model for each output; or models apart.
    by : str, optional
        Score to rank by.
    interval, unit : optional
        Level of all intervals, and what was drawn at random, as in `evaluate`.
    kernel_x, kernel_t, bandwidth_rule, embedder_x, embedder_t, cache, num_workers, rng, **settings
        As in `evaluate`.

    Raises
    ------
    DataError
        If there are fewer than two models, or no prompt that all have.

    Examples
    --------
    One model gives two answers to each prompt, the other the same one twice:

    >>> import numpy as np, divprism as dp
    >>> t = np.repeat(np.arange(30), 2)
    >>> free, fixed = dp.Samples(np.eye(60), t), dp.Samples(np.eye(60)[t], t)
    >>> found = dp.compare({"fixed": fixed, "free": free}, kernel_x=dp.Cosine())
    >>> found.ranks, round(found.differences[0].ratio, 9)
    ({'free': (1, 1), 'fixed': (2, 2)}, 2.0)
    """
    if by not in SCORES or by.startswith("cluster"):
        raise ArgumentError(
            f"`by` must be one of {', '.join(name for name in SCORES if 'cluster' not in name)}; got {by!r}."
        )
    for name in ("labels", "weights"):
        if settings.get(name) is not None:
            raise ArgumentError(
                f"a comparison takes no `{name}`: models are cut to the same prompts, and rows to match."
            )
    for side, kernel in (("x", kernel_x), ("t", kernel_t)):
        if isinstance(kernel, Precomputed):
            raise ArgumentError(
                f"`kernel_{side}` is Precomputed(), and a comparison takes rows that can be matched, left out and pooled: "
                "give vectors, or evaluate each model alone."
            )
    rng, interval = check_seed(rng), check_level(interval)
    apart, notes = _matched(_apart(models), rng)
    pooled = _pooled(apart)
    made = {
        "embedder_x": resolve_embedder(embedder_x, pooled.outputs, "x"),
        "embedder_t": resolve_embedder(embedder_t, pooled.prompts, "t"),
    }
    embedded = embed(
        pooled, **made, cache=cache, num_workers=num_workers, progress=settings.get("progress")
    )
    kernels = pooled_kernels(embedded, {"x": kernel_x, "t": kernel_t}, bandwidth_rule, rng)
    results, errors = {}, {}
    for model, part in embedded.by_model().items():
        found = evaluate(replace(part, notes=(), warnings=()), **kernels, rng=rng, **settings)
        problem = _posed(part, found)
        errors[model] = sampling_error(problem, unit)
        told = (
            found.settings
            | made
            | {"bandwidth_rule": kernels.get("bandwidth_rule"), "interval": interval, "unit": unit}
        )
        results[model] = replace(
            found, settings=told, **around(problem, found.scores, errors[model], interval)
        )
    order = sorted(results, key=lambda model: -float(results[model].scores[by]))
    results = {model: results[model] for model in order}
    differences = tuple(
        _difference(results, errors, first, second, by, interval)
        for place, first in enumerate(order)
        for second in order[place + 1 :]
    )
    lengths = _lengths(apart)
    warnings = dict.fromkeys(text for result in results.values() for text in result.warnings)
    return Comparison(
        results,
        by,
        _ranks(order, differences),
        differences,
        {model: lengths[model] for model in order if lengths},
        _correlation(results, by, lengths),
        (*notes, *embedded.notes),
        (*embedded.warnings, *warnings),
    )


def _apart(models: Any) -> dict[str, Samples]:
    """Samples per model; of a file with several, each is one."""
    if not isinstance(models, Mapping):
        return as_samples(models, None, None).by_model()
    apart: dict[str, Samples] = {}
    for name, one in models.items():
        samples = as_samples(one, None, None)
        several = samples.models is not None and len(set(samples.models)) > 1
        parts = samples.by_model() if several else {name: samples}
        for model, part in parts.items():
            if model in apart:
                raise DataError(f"two of the models are called {model!r}.")
            apart[model] = part
    return apart


def _keys(apart: dict[str, Samples]) -> dict[str, list[Any]]:
    """What makes the prompts of two models the same: contents, ids, or vectors in the least precision that a model has."""
    for samples in apart.values():
        if samples.prompts is None:
            raise DataError(
                f"{samples.source} holds no prompts, and models are compared on the same ones."
            )
    arrays = {
        model: to_numpy(one.prompts)
        for model, one in apart.items()
        if not isinstance(one.prompts, tuple)
    }
    floating = [array.dtype for array in arrays.values() if array.dtype.kind == "f"]
    coarsest = min(floating, key=lambda dtype: dtype.itemsize, default=np.dtype(float))
    keys: dict[str, list[Any]] = {}
    for model, samples in apart.items():
        if isinstance(samples.prompts, tuple):
            keys[model] = [
                prompt.text if isinstance(prompt, Text) else prompt.digest()
                for prompt in samples.prompts
            ]
        elif arrays[model].ndim == 1:
            keys[model] = arrays[model].tolist()
        else:
            rows = np.ascontiguousarray(arrays[model].astype(coarsest) + 0.0)  # minus zero is zero
            keys[model] = [row.tobytes() for row in rows]
    return keys


def _matched(apart: dict[str, Samples], rng: int) -> tuple[dict[str, Samples], list[str]]:
    """The same prompts for all, in the same order, and as many outputs of each."""
    if len(apart) < 2:
        raise DataError(f"a comparison needs at least two models; got {len(apart)}.")
    keys = _keys(apart)
    counts = {model: Counter(found) for model, found in keys.items()}
    common = [
        key
        for key in dict.fromkeys(keys[next(iter(keys))])
        if all(key in found for found in counts.values())
    ]
    if not common:
        raise DataError(
            "the models have no prompt in common; they can only be compared on the same ones."
        )
    least = {key: min(found[key] for found in counts.values()) for key in common}
    generator = np.random.default_rng(rng)
    matched, notes = {}, []
    for model, samples in apart.items():
        places: dict[Any, list[int]] = {}
        for place, key in enumerate(keys[model]):
            places.setdefault(key, []).append(place)
        kept = [
            place
            for key in common
            for place in sorted(generator.choice(places[key], least[key], replace=False).tolist())
        ]
        matched[model] = samples.select(kept)
        if len(kept) < len(samples):
            notes.append(
                f"{model}: {len(kept):,} of {len(samples):,} outputs kept, to have as many of each prompt as the others"
            )
    every = len({key for found in counts.values() for key in found})
    if len(common) < every:
        notes.append(
            f"{every - len(common):,} of {every:,} prompts left out, which not all models have"
        )
    return matched, notes


def _pooled(apart: dict[str, Samples]) -> Samples:
    """All models in one, so that they are embedded and given bandwidths together."""
    parts = list(apart.values())
    if (
        len({isinstance(part.outputs, tuple) for part in parts}) > 1
        or len({isinstance(p.prompts, tuple) for p in parts}) > 1
    ):
        raise DataError(
            "some of the models are vectors and others are not; embed all of them, or none."
        )

    def joined(sides: Sequence[Any]) -> Any:
        if isinstance(sides[0], tuple):
            return tuple(item for side in sides for item in side)
        arrays = [np.asarray(side) for side in sides]
        if len({array.shape[1:] for array in arrays}) > 1:
            raise DataError(
                "the vectors of the models differ in width; they are of different embedders."
            )
        return np.concatenate(arrays)

    return Samples(
        joined([part.outputs for part in parts]),
        joined([part.prompts for part in parts]),
        tuple(model for model, part in apart.items() for _ in range(len(part))),
        " and ".join(dict.fromkeys(part.source for part in parts)),
        warnings=tuple(dict.fromkeys(text for part in parts for text in part.warnings)),
        skipped=sum(part.skipped for part in {part.source: part for part in parts}.values()),
        embedders=parts[0].embedders,
    )


def _posed(part: Samples, found: Evaluation) -> Problem:
    """The problem of one model. Rows of all models are in the same order, so that parts of the sample are the same prompts."""
    names = ("kernel_x", "kernel_t", "order", "truncation", "estimator", "rng")
    return pose(part.outputs, part.prompts, **{name: found.settings[name] for name in names})


def _difference(
    results: dict[str, Evaluation],
    errors: dict[str, SamplingError],
    first: str,
    second: str,
    by: str,
    level: float,
) -> Difference:
    gap = results[first].scores[by].entropy - results[second].scores[by].entropy
    spread = errors[first].deviations[by] - errors[second].deviations[by]
    own = [
        score.standard_error / score.value
        for score in (results[first].scores[by], results[second].scores[by])
    ]
    reach = quantile(spread.size, level) * math.hypot(float(np.linalg.norm(spread)), *own)
    return Difference(first, second, math.exp(gap), math.exp(gap - reach), math.exp(gap + reach))


def _ranks(order: list[str], differences: Sequence[Difference]) -> dict[str, tuple[int, int]]:
    """For each model one more than the number of those clearly above, up to the number not clearly below."""
    above, below = Counter[str](), Counter[str]()
    for one in differences:
        if one.clear:
            above[one.second] += 1
            below[one.first] += 1
    return {model: (1 + above[model], len(order) - below[model]) for model in order}


def _lengths(apart: dict[str, Samples]) -> dict[str, float]:
    """Mean number of words of a model's outputs; empty unless all are texts."""

    def words(items: Sequence[Item]) -> float:
        return float(np.mean([len(item.text.split()) for item in items if isinstance(item, Text)]))

    worded = all(
        isinstance(part.outputs, tuple) and isinstance(part.outputs[0], Text)
        for part in apart.values()
    )
    return (
        {
            model: words(part.outputs)
            for model, part in apart.items()
            if isinstance(part.outputs, tuple)
        }
        if worded
        else {}
    )


def _correlation(
    results: dict[str, Evaluation], by: str, lengths: dict[str, float]
) -> float | None:
    """Spearman's, by ranks; None below three models or where one side is constant."""
    if len(lengths) < 3:
        return None
    from scipy.stats import rankdata

    sides = [
        rankdata([float(result.scores[by]) for result in results.values()]),
        rankdata([lengths[m] for m in results]),
    ]
    if any(np.ptp(side) == 0 for side in sides):
        return None
    return float(np.corrcoef(*sides)[0, 1])
