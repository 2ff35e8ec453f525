"""pareto: which models no other one exceeds in both quality and diversity."""

import math
from collections.abc import Sequence
from itertools import combinations

from divprism.analysis.comparison import Comparison
from divprism.analysis.evaluation import Evaluation, Results
from divprism.analysis.model_ratios import Difference, differences_of
from divprism.analysis.pareto_front import DIVERSITY, ParetoFront, front_of
from divprism.errors import ArgumentError
from divprism.scores.spec import QUALITY, SCORES, is_score, score_spec

__all__ = ["pareto"]


def pareto(
    models: Results | Comparison,
    *,
    diversity: str = "conditional_vendi",
    quality: str = "quality",
) -> ParetoFront:
    """The Pareto front of models: those that no other one exceeds in both quality and diversity.

    A model is dominated by another one that is at least as high in both scores and higher in one.
    It is clearly dominated where both differences are clear: the interval of each excludes 1. A
    `Comparison` has differences that are paired by prompt, so it distinguishes more models than
    `Results`, whose intervals are taken as independent. Nothing is scored again; O(m^2) for m
    models.

    Parameters
    ----------
    models : Comparison or Results
        Of `compare` or `evaluate_models` with a `quality`. Checkpoints, temperatures or any other
        settings are models with names.
    diversity : str, optional
        The score of the other axis, such as "vendi" or "per_prompt_vendi".
    quality : str, optional
        The score of the quality axis.

    Returns
    -------
    ParetoFront

    Raises
    ------
    ArgumentError
        If the models have no quality, or a score is unknown.

    Examples
    --------
    Rated outputs of three models; the last one repeats itself, and is rated no higher:

    >>> import numpy as np, divprism as dp
    >>> t, rng = np.repeat(np.arange(30), 2), np.random.default_rng(0)
    >>> rated = {"good": 0.9, "free": 0.5, "dull": 0.4}
    >>> free, fixed = np.eye(60), np.eye(60)[t]
    >>> outputs = {"good": fixed, "free": free, "dull": fixed}
    >>> models = {}
    >>> for name, mean in rated.items():
    ...     q = mean + rng.uniform(-0.1, 0.1, 60)
    ...     models[name] = dp.Samples(outputs[name], t, quality=q)
    >>> front = dp.pareto(dp.compare(models, kernel_x=dp.Cosine()))
    >>> front.models
    ('good', 'free')
    >>> front.points[-1].clearly_dominated_by
    ('free', 'good')
    """
    if not isinstance(models, Comparison | Results):
        raise ArgumentError(
            "`models` must be what compare or evaluate_models return; got a "
            f"{type(models).__name__}."
        )
    if not is_score(diversity) or score_spec(diversity).family not in DIVERSITY:
        names = ", ".join(spec.name for spec in SCORES if spec.family in DIVERSITY)
        raise ArgumentError(f"`diversity` must be one of {names}; got {diversity!r}.")
    if not is_score(quality) or QUALITY not in score_spec(quality).needs:
        names = ", ".join(spec.name for spec in SCORES if QUALITY in spec.needs)
        raise ArgumentError(f"`quality` must be one of {names}; got {quality!r}.")
    axes = (quality, diversity)
    if isinstance(models, Comparison):
        _require_scores(models.results, axes)
        paired = {axis: differences_of(models.results, models.errors, axis) for axis in axes}
        return front_of(models.results, paired, is_paired=True)
    _require_scores(models, axes)
    return front_of(models, {axis: _unpaired(models, axis) for axis in axes}, is_paired=False)


def _require_scores(results: Results, names: Sequence[str]) -> None:
    for model, result in results.items():
        for name in names:
            if name in result.scores:
                continue
            needs = " and ".join(score_spec(name).needs) or "outputs"
            raise ArgumentError(
                f"{model or 'the model'} has no {name}, which needs {needs}: pass `quality` to "
                "compare or evaluate_models, or name another score."
            )


def _unpaired(results: Results, name: str) -> tuple[Difference, ...]:
    """The differences of models whose errors are taken as independent."""
    differences = []
    for first, second in combinations(results, 2):
        ratio = results[first].scores[name].value / results[second].scores[name].value
        reaches = [_reach(results[model], name) for model in (first, second)]
        difference = Difference(first, second, ratio)
        known = [reach for reach in reaches if reach is not None]
        if len(known) == len(reaches):
            factor = math.exp(math.hypot(*known))
            difference = Difference(first, second, ratio, ratio / factor, ratio * factor)
        differences.append(difference)
    return tuple(differences)


def _reach(result: Evaluation, name: str) -> float | None:
    """How far the interval of a score reaches on the log scale; None without one."""
    interval = result.intervals.get(name)
    if interval is None:
        return None
    value = result.scores[name].value
    reach = interval.high / value
    # An interval may be cut at one end, where no score can be: the other one shows its reach.
    if interval.low > 0:
        reach = max(reach, value / interval.low)
    return math.log(max(1.0, reach))
