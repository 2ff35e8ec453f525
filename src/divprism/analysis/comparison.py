"""Models compared on the same prompts: paired differences, and a ranking that shows ties."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from divprism.analysis.assess import assess_models
from divprism.analysis.evaluation import SCHEMA, SHOWN_MODELS, Evaluation, Results
from divprism.analysis.inputs import with_quality_model, with_rule_of
from divprism.analysis.intervals import SamplingError
from divprism.analysis.matched_models import matched_models
from divprism.analysis.model_ratios import Difference, differences_of
from divprism.analysis.model_states import refuse_truncation
from divprism.analysis.overlap import overlap_of
from divprism.analysis.overlap_result import Overlap
from divprism.analysis.pareto_front import DIVERSITY, ParetoFront, front_of
from divprism.analysis.saved import Saved
from divprism.analysis.stability import Range, ScaledScores
from divprism.data.items import Text
from divprism.data.quality import column_of_quality
from divprism.data.readers.fields import Fields
from divprism.data.samples import Samples
from divprism.errors import ArgumentError, DataError, Notice
from divprism.scores.settings import EvaluationOptions, Settings, read_options
from divprism.scores.spec import LABELS, QUALITY, SCORES, ScoreSpec, score_spec

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from typing_extensions import Unpack

__all__ = ["Comparison", "Difference", "compare"]

_LEVEL = 0.95  # default level of the intervals

# The fewest models for a correlation. Of the m! orders of m models two are perfectly correlated
# with a given one. Chance meets these in 2 of 6 cases for three models, in 2 of 24 for four, and in
# 2 of 120 for five, the first below 5 %.
_MIN_MODELS = 5


@dataclass(frozen=True, eq=False, repr=False)
class Comparison(Saved):
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
        Spearman's correlation of score and length over models; None below five models, because
        even a perfect order of four is met by chance in 8 of 100 cases (2 / 4!).
    stable_range : dict of (float, float)
        By side with a bandwidth ("x" outputs, "t" prompts): the multiples of the bandwidth, from
        0.5 to 2, between which no two models change places. The changes of the scores are computed
        on at most 500 pairs of each model, the same prompts for all.
    notes : tuple
        What was left out to make the models comparable.
    warnings : tuple of Notice
        What a reader should know.
    errors : dict of SamplingError or None
        By model, what parts of its sample contribute to the errors of its scores.
    overlap : Overlap, optional
        What the models share, if asked for.
    """

    results: Results
    score: str
    ranks: dict[str, tuple[int, int]]
    differences: tuple[Difference, ...]
    lengths: dict[str, float]
    length_correlation: float | None
    stable_range: dict[str, Range]
    notes: tuple[Notice, ...]
    warnings: tuple[Notice, ...]
    errors: dict[str, SamplingError | None] = field(default_factory=dict)
    overlap: Overlap | None = None

    @property
    def front(self) -> ParetoFront | None:
        """Which models no other one exceeds in quality and diversity; None without a quality.

        Diversity is the score that models are ranked by if that is one, else Conditional-Vendi.
        """
        diversity = "conditional_vendi"
        if score_spec(self.score).family in DIVERSITY:
            diversity = self.score
        if any("quality" not in result.scores for result in self.results.values()):
            return None
        axes = {}
        for name in ("quality", diversity):
            axes[name] = differences_of(self.results, self.errors, name)
        return front_of(self.results, axes, is_paired=True)

    @property
    def settings(self) -> Settings:
        """The settings that all models share."""
        return self.results.settings

    def plot(self, ax: "Axes | None" = None) -> "tuple[Figure, Axes]":
        """Plot the score of each model with its interval, the best on top.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Axes to plot into. Default: a new figure.

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
        return table.head(SHOWN_MODELS).to_text(terminal_width()).rstrip()

    def _repr_html_(self) -> str:
        from divprism.report.notebooks import with_bars
        from divprism.report.tables import comparison_table

        # From the first rank to the last, as in the table.
        documents = self.results.documents()
        ranked = {model: documents[model] for model in self.ranks}
        return with_bars(comparison_table(self.to_dict()), ranked)

    def to_frame(self) -> Any:
        """The ranking as a data frame, a row per model (pandas or polars)."""
        from divprism.report.tables import comparison_table

        return comparison_table(self.to_dict(), wide=True).to_frame()

    def to_dict(self) -> dict[str, Any]:
        """The result document: plain values only, every number finite."""
        differences = [
            asdict(difference)
            | {"clear": difference.clear, "stable_range": _plain_ranges(difference.stable_range)}
            for difference in self.differences
        ]
        document = {
            "schema": SCHEMA,
            "score": self.score,
            "models": {model: result.to_dict() for model, result in self.results.items()},
            "ranks": {model: list(rank) for model, rank in self.ranks.items()},
            "differences": differences,
            "lengths": self.lengths,
            "length_correlation": self.length_correlation,
            "stable_range": _plain_ranges(self.stable_range),
            "settings": self.settings.to_dict(),
            "notes": [note.to_dict() for note in self.notes],
            "warnings": [notice.to_dict() for notice in self.warnings],
        }
        # Only where there is a quality: most results have none.
        front = self.front
        if front is not None:
            document["front"] = front.to_dict()
        # Only if asked for, so that documents without it stay as they are.
        if self.overlap is not None:
            document["overlap"] = self.overlap.to_dict()
        return document


def _plain_ranges(ranges: Mapping[str, Range]) -> dict[str, list[float]]:
    """Ranges as lists, as they are in JSON."""
    return {side: list(ends) for side, ends in ranges.items()}


def compare(
    models: object,
    *,
    by: str = "conditional_vendi",
    overlap: bool = False,
    prompt: str | None = None,
    output: str | None = None,
    model: str | None = None,
    quality: object = None,
    **options: "Unpack[EvaluationOptions]",
) -> Comparison:
    """Rank models by a score, on the same prompts and with the same number of outputs for each.

    Prompts that not all models have are left out. Where models have different numbers of outputs
    for a prompt, the smallest of these numbers is kept, chosen by a hash of the outputs: the choice
    depends neither on a seed nor on the order of rows. Bandwidths are chosen on all models
    together. Differences are paired by prompt. The ranking is repeated at half to twice the
    bandwidth of either side (`stable_range`), which costs some 60 ms of one core for each model.

    Parameters
    ----------
    models : Samples, path, table, or mapping of name to any of these
        Samples, a file or a table, as in `evaluate`, that name a model for each output; or one
        source per model.
    by : str, optional
        Score to rank by.
    overlap : bool, optional
        Whether to add what the models share (see `dp.overlap`).
    prompt, output, model : str, optional
        Columns of the tables or files, recognised by their names if not given.
    quality : str, callable, QualityModel, array (n,), or mapping of name to array, optional
        How good each output is, as in `evaluate`: the name of a column, a function, a model to ask,
        or numbers; for a mapping of models a mapping to numbers. Adds scores, and the `front` of
        the models that no other one exceeds in both quality and diversity (`pareto`).
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
    settings, resources = read_options(options, EvaluationOptions, "compare", rates=True)
    # A ranking without errors would hide ties, so intervals are always computed.
    if settings.interval is None:
        settings = replace(settings, interval=_LEVEL)
    _require_no_labels(spec)
    if overlap:
        refuse_truncation(settings, "overlap")
    settings = with_quality_model(settings, quality)
    columns = Fields(output, prompt, model, suffix="", quality=column_of_quality(quality))
    kept = matched_models(models, settings, resources, columns, quality)
    settings = kept.settings
    evaluations: dict[str, Evaluation] = {}
    errors: dict[str, SamplingError | None] = {}
    for model, (result, error) in assess_models(kept.embedded, settings, resources).items():
        _require_score(by, result)
        errors[model] = error
        resolved = with_rule_of(settings, result.settings)
        evaluations[model] = replace(result, settings=resolved)
    results = _ranked(evaluations, by)
    scaled = ScaledScores.of(results, spec)
    differences = differences_of(results, errors, by, scaled)
    # Long texts tend to differ more, so a ranking by diversity may be one by length. Lengths are
    # those of the texts; the embedded samples hold vectors.
    lengths = _mean_lengths(kept.given)
    shared = None
    warnings = (*kept.warnings, *results.warnings)
    if overlap:
        shared = overlap_of(kept, resources)
        warnings = tuple(dict.fromkeys([*warnings, *shared.warnings]))
    return Comparison(
        results=results,
        score=by,
        ranks=_ranks(list(results), differences),
        differences=differences,
        lengths={model: lengths[model] for model in results if lengths},
        length_correlation=_correlation(results, by, lengths),
        stable_range=scaled.range_of_order(),
        notes=kept.notes,
        warnings=warnings,
        errors=errors,
        overlap=shared,
    )


def _require_no_labels(spec: ScoreSpec) -> None:
    """Refuse scores inside labels, before anything is computed."""
    # Labels belong to the rows of one model, and matching drops rows, so `compare` takes none.
    if LABELS in spec.needs:
        names = ", ".join(other.name for other in SCORES if LABELS not in other.needs)
        raise ArgumentError(f"`by` must be one of {names}; got {spec.name!r}.")


def _require_score(by: str, result: Evaluation) -> None:
    if by in result.scores:
        return
    if QUALITY in score_spec(by).needs:
        raise ArgumentError(
            f"{by} needs {QUALITY}: give it as `quality`, or rank by conditional_vendi."
        )
    raise DataError(
        f"every prompt has one output, so {by} cannot be computed; rank by another score, such as "
        "conditional_vendi."
    )


def _ranked(evaluations: Mapping[str, Evaluation], by: str) -> Results:
    """The evaluations from the highest score to the lowest."""
    # The sort is stable: models of equal score keep the order in which they were given.
    ranked = sorted(evaluations, key=lambda model: -evaluations[model].scores[by])
    return Results({model: evaluations[model] for model in ranked})


def _ranks(order: list[str], differences: Sequence[Difference]) -> dict[str, tuple[int, int]]:
    """The best and the worst rank of each model that the clear differences leave open."""
    # Each difference is judged alone, at the level of its interval: among many models some clear
    # differences are due to chance.
    num_above, num_below = Counter[str](), Counter[str]()
    for difference in differences:
        if difference.clear:
            num_above[difference.second] += 1
            num_below[difference.first] += 1
    return {model: (1 + num_above[model], len(order) - num_below[model]) for model in order}


def _mean_lengths(by_model: dict[str, Samples]) -> dict[str, float]:
    """Mean number of words of the outputs of each model; empty unless all outputs are texts."""
    lengths = {}
    for model, part in by_model.items():
        if not isinstance(part.outputs, tuple) or not isinstance(part.outputs[0], Text):
            return {}
        texts = [item.text for item in part.outputs if isinstance(item, Text)]
        lengths[model] = float(np.mean([len(text.split()) for text in texts]))
    return lengths


def _correlation(results: Results, by: str, lengths: Mapping[str, float]) -> float | None:
    """Spearman's correlation; None below five models or where one side is constant."""
    if len(lengths) < _MIN_MODELS:
        return None
    from scipy.stats import spearmanr

    scores = [result.scores[by].value for result in results.values()]
    words = [lengths[model] for model in results]
    # Ranks of a constant are not defined, and SciPy would warn and return NaN.
    if np.ptp(scores) == 0 or np.ptp(words) == 0:
        return None
    return float(spearmanr(scores, words).statistic)
