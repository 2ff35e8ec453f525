"""Models against each other on the same prompts: paired differences, and a ranking that owns up to ties."""

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from divprism.analysis.evaluation import SCHEMA, SHOWN_MODELS, Evaluation, Results, assess
from divprism.analysis.inputs import as_samples, embed_samples, pool_bandwidths
from divprism.analysis.intervals import SamplingError, quantile
from divprism.core.arrays import to_numpy
from divprism.core.kernels import Precomputed
from divprism.data.files import write_text
from divprism.data.samples import Item, Samples, Text
from divprism.errors import ArgumentError, DataError, Notice
from divprism.scores.settings import EvaluationOptions, Settings, read_options
from divprism.scores.spec import LABELS, SCORES, ScoreSpec, score_spec

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from typing_extensions import Unpack

__all__ = ["Comparison", "Difference", "compare"]

_LEVEL = 0.95  # of the intervals, if no other is given
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


@dataclass(frozen=True, eq=False, repr=False)
class Comparison:
    """Scores of several models on the same prompts.

    Attributes
    ----------
    results : Results
        By model, from the highest score to the lowest.
    score : str
        The score that models are ranked by.
    ranks : dict of (int, int)
        By model, the best and the worst rank that its differences leave open: (1, 2) and (1, 2)
        are a tie.
    differences : tuple of Difference
        Of each pair of models, in the order of the ranking.
    lengths : dict of float
        By model, the mean number of words of an output; empty unless outputs are texts.
    length_correlation : float or None
        Spearman's correlation of score and length over models; None below three models.
    notes : tuple
        What was left out to make the models comparable.
    warnings : tuple of Notice
        What a reader should know.
    """

    results: Results
    score: str
    ranks: dict[str, tuple[int, int]]
    differences: tuple[Difference, ...]
    lengths: dict[str, float]
    length_correlation: float | None
    notes: tuple[Notice, ...]
    warnings: tuple[Notice, ...]

    @property
    def settings(self) -> Settings:
        """The settings that all models share."""
        return self.results.settings

    def plot(self, ax: "Axes | None" = None) -> "tuple[Figure, Axes]":
        """Plot the score of each model with its interval, the best on top.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Where to draw; default a new figure.

        Returns
        -------
        (Figure, Axes)
        """
        from divprism.report.plots import plot_comparison

        return plot_comparison(self, ax)

    def __repr__(self) -> str:
        from divprism.report.table import terminal_width
        from divprism.report.tables import comparison_table

        table = comparison_table(self.to_dict())
        return table.head(SHOWN_MODELS).to_text(terminal_width())

    def _repr_html_(self) -> str:
        from divprism.report.tables import comparison_table

        return comparison_table(self.to_dict()).to_html()

    def to_frame(self) -> Any:
        """The ranking as a data frame, a row per model (pandas or polars)."""
        from divprism.report.tables import comparison_table

        return comparison_table(self.to_dict(), wide=True).to_frame()

    def to_dict(self) -> dict[str, Any]:
        """The result document: plain values only, every number finite."""
        differences = [
            asdict(difference) | {"clear": difference.clear} for difference in self.differences
        ]
        return {
            "schema": SCHEMA,
            "score": self.score,
            "models": {model: result.to_dict() for model, result in self.results.items()},
            "ranks": {model: list(rank) for model, rank in self.ranks.items()},
            "differences": differences,
            "lengths": self.lengths,
            "length_correlation": self.length_correlation,
            "settings": self.settings.to_dict(),
            "notes": [str(note) for note in self.notes],
            "warnings": [notice.to_dict() for notice in self.warnings],
        }

    def to_json(self) -> str:
        """The result document as JSON text."""
        return json.dumps(self.to_dict(), indent=2, allow_nan=False, ensure_ascii=False)

    def save(self, path: str | Path) -> None:
        """Write the result document to a JSON file, in one step."""
        write_text(path, self.to_json() + "\n")


def compare(
    models: Samples | str | Path | Mapping[str, Any],
    *,
    by: str = "conditional_vendi",
    **options: "Unpack[EvaluationOptions]",
) -> Comparison:
    """Rank models by a score, on the same prompts and with the same number of outputs for each.

    Prompts that not all models have are left out. Where models have different numbers of outputs
    for a prompt, a seeded random choice keeps as many as the model with the fewest has. Bandwidths
    are chosen on all models together. Differences are paired by prompt.

    Parameters
    ----------
    models : Samples, path, or mapping of name to Samples or path
        Samples, or a file, that name a model for each output; or one source per model.
    by : str, optional
        Score to rank by.
    interval : float, optional
        Level of all intervals; default 0.95.
    **options
        Keywords of `evaluate`.

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
    >>> comparison = dp.compare({"fixed": fixed, "free": free}, kernel_x=dp.Cosine())
    >>> comparison.ranks, round(comparison.differences[0].ratio, 9)
    ({'free': (1, 1), 'fixed': (2, 2)}, 2.0)
    """
    spec = score_spec(by, "by")
    settings, resources = read_options(options, EvaluationOptions, "compare")
    if settings.interval is None:
        settings = replace(settings, interval=_LEVEL)
    _require_comparable(spec, settings)
    by_model, notes = _matched(_apart(models), settings.rng)
    pooled = _pooled(by_model)
    embedded, settings = embed_samples(pooled, settings, resources)
    settings = pool_bandwidths(embedded, settings)
    evaluations: dict[str, Evaluation] = {}
    errors: dict[str, SamplingError] = {}
    for model, part in embedded.by_model().items():
        # What was embedded and how files were read is said once, for all models.
        quiet = replace(part, notes=(), warnings=())
        result, sampling = assess(quiet, settings, resources)
        assert sampling is not None
        resolved = replace(result.settings, bandwidth_rule=settings.bandwidth_rule)
        evaluations[model] = replace(result, settings=resolved)
        errors[model] = sampling
    ranked = sorted(evaluations, key=lambda model: -evaluations[model].scores[by])
    results = Results({model: evaluations[model] for model in ranked})
    differences = _differences(results, errors, by)
    lengths = _lengths(by_model)
    return Comparison(
        results=results,
        score=by,
        ranks=_ranks(ranked, differences),
        differences=differences,
        lengths={model: lengths[model] for model in ranked if lengths},
        length_correlation=_correlation(results, by, lengths),
        notes=(*notes, *embedded.notes),
        warnings=(*embedded.warnings, *results.warnings),
    )


def _require_comparable(spec: ScoreSpec, settings: Settings) -> None:
    """Refuse what cannot be compared before anything is computed."""
    if LABELS in spec.needs:
        names = ", ".join(other.name for other in SCORES if LABELS not in other.needs)
        raise ArgumentError(f"`by` must be one of {names}; got {spec.name!r}.")
    for side in ("x", "t"):
        if isinstance(settings.kernel(side), Precomputed):
            raise ArgumentError(
                f"`kernel_{side}` is Precomputed(), and a comparison takes rows that can be "
                "matched, left out and pooled: give vectors, or evaluate each model alone."
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


def _matched(apart: dict[str, Samples], rng: int) -> tuple[dict[str, Samples], list[Notice]]:
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
            text = (
                f"{model}: {len(kept):,} of {len(samples):,} outputs kept, to have the same number "
                "for each prompt as the other models"
            )
            notes.append(Notice("outputs-left-out", text, "note"))
    every = len({key for found in counts.values() for key in found})
    if len(common) < every:
        text = f"{every - len(common):,} of {every:,} prompts left out, which not all models have"
        notes.append(Notice("prompts-left-out", text, "note"))
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


def _differences(
    results: Results, errors: Mapping[str, SamplingError], by: str
) -> tuple[Difference, ...]:
    """The difference of every pair of models, in the order of the ranking."""
    level = results.settings.interval
    assert level is not None
    differences = []
    for first, second in combinations(results, 2):
        ahead, behind = results[first].scores[by], results[second].scores[by]
        gap = ahead.entropy - behind.entropy
        # The same parts of both samples are the same prompts: what they share cancels.
        spread = errors[first].deviations[by] - errors[second].deviations[by]
        of_estimator = [score.standard_error / score.value for score in (ahead, behind)]
        error = math.hypot(float(np.linalg.norm(spread)), *of_estimator)
        reach = quantile(spread.size, level) * error
        ends = math.exp(gap - reach), math.exp(gap + reach)
        differences.append(Difference(first, second, math.exp(gap), *ends))
    return tuple(differences)


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


def _correlation(results: Results, by: str, lengths: Mapping[str, float]) -> float | None:
    """Spearman's correlation; None below three models or where one side is constant."""
    if len(lengths) < 3:
        return None
    from scipy.stats import spearmanr

    scores = [result.scores[by].value for result in results.values()]
    words = [lengths[model] for model in results]
    if np.ptp(scores) == 0 or np.ptp(words) == 0:
        return None
    return float(spearmanr(scores, words).statistic)
