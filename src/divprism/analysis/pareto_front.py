"""The Pareto front of models: those that no other one exceeds in both quality and diversity."""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from divprism.analysis.evaluation import SHOWN_MODELS, Evaluation, Results
from divprism.analysis.intervals import SAME_RATIO
from divprism.analysis.model_ratios import Difference
from divprism.analysis.saved import Saved

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["DIVERSITY", "ParetoFront", "ParetoPoint", "front_of", "standing_below"]

DIVERSITY = ("conditional", "vendi", "per_prompt")
"""Families of scores that count distinct outputs, and can be an axis beside the quality."""

Ends = tuple[float, float]


@dataclass(frozen=True)
class ParetoPoint:
    """One model in the plane of quality and diversity.

    Attributes
    ----------
    model : str
        Its name.
    quality, diversity : float
        Its scores.
    quality_interval, diversity_interval : (float, float) or None
        Their intervals, where there are any.
    dominated_by : tuple of str
        Models that are at least as high in both scores, and higher in one.
    clearly_dominated_by : tuple of str
        Those of them for which that is no chance: each of the two differences is clear, or there
        is none at all. Each is judged at the level of the intervals, so the chance that a model is
        wrongly called dominated by one other is at most half of 1 - level.
    """

    model: str
    quality: float
    diversity: float
    quality_interval: Ends | None
    diversity_interval: Ends | None
    dominated_by: tuple[str, ...]
    clearly_dominated_by: tuple[str, ...]

    @property
    def on_front(self) -> bool:
        """Whether no other model dominates it by the scores at hand."""
        return not self.dominated_by

    @property
    def standing(self) -> str:
        """Return "front", "dominated" (clearly) or "open" (dominated, but not clearly)."""
        return standing_below(self.dominated_by, self.clearly_dominated_by)


def standing_below(dominated_by: Collection[str], clearly_dominated_by: Collection[str]) -> str:
    """The standing of a model below others: "front" where there are none."""
    if not dominated_by:
        return "front"
    if clearly_dominated_by:
        return "dominated"
    return "open"


@dataclass(frozen=True, eq=False, repr=False)
class ParetoFront(Saved):
    """Models by quality and diversity, and which of them are on the front.

    Attributes
    ----------
    points : tuple of ParetoPoint
        The models, from the highest quality to the lowest.
    quality, diversity : str
        The scores.
    level : float or None
        Level of the intervals; None without any.
    is_paired : bool
        Whether differences are taken prompt by prompt, as `compare` does. Intervals of models that
        were scored apart are taken as independent, so that fewer differences are clear.
    """

    points: tuple[ParetoPoint, ...]
    quality: str
    diversity: str
    level: float | None
    is_paired: bool

    @property
    def models(self) -> tuple[str, ...]:
        """The models on the front, from the highest quality to the highest diversity."""
        return tuple(point.model for point in self.points if point.on_front)

    def plot(self, ax: "Axes | None" = None) -> "tuple[Figure, Axes]":
        """Plot diversity against quality with intervals, the front as steps.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Axes to plot into. Default: a new figure.

        Returns
        -------
        (Figure, Axes)
        """
        from divprism.report.front_plots import plot_front

        return plot_front(self.to_dict(), ax)

    def __repr__(self) -> str:
        from divprism.report.front_tables import front_table
        from divprism.report.table import terminal_width

        return front_table(self.to_dict()).head(SHOWN_MODELS).to_text(terminal_width()).rstrip()

    def _repr_html_(self) -> str:
        from divprism.report.front_tables import front_table

        return front_table(self.to_dict()).to_html()

    def to_frame(self) -> Any:
        """The models as a data frame, a row each (pandas or polars)."""
        from divprism.report.front_tables import front_table

        return front_table(self.to_dict()).to_frame()

    def to_dict(self) -> dict[str, Any]:
        """The result document: plain values only, every number finite."""
        points = []
        for point in self.points:
            plain = asdict(point) | {"standing": point.standing}
            points.append({key: _listed(value) for key, value in plain.items()})
        return {
            "quality": self.quality,
            "diversity": self.diversity,
            "level": self.level,
            "is_paired": self.is_paired,
            "points": points,
        }


def _listed(value: Any) -> Any:
    """A tuple as a list, as it is in JSON."""
    if isinstance(value, tuple):
        return list(value)
    return value


def front_of(
    results: Results, axes: Mapping[str, Sequence[Difference]], *, is_paired: bool
) -> ParetoFront:
    """The front of some models.

    Parameters
    ----------
    results : Results
        Their scores.
    axes : mapping of str to sequence of Difference
        The scores of quality and of diversity, in this order, and the differences of all pairs of
        models in each.
    is_paired : bool
        Whether the differences are taken prompt by prompt.
    """
    quality, diversity = axes
    # A model is below another one in an axis by a sign: -1 clearly, 0 not at all.
    judged = {name: _signs(differences) for name, differences in axes.items()}
    points = []
    for model, result in results.items():
        dominating, clearly = [], []
        for other in results:
            if other == model:
                continue
            gaps = [_gap(results, name, other, model) for name in axes]
            if min(gaps) < 0 or max(gaps) == 0:
                continue
            dominating.append(other)
            signs = [judged[name].get((other, model)) for name in axes]
            if None not in signs and max(sign for sign in signs if sign is not None) > 0:
                clearly.append(other)
        points.append(
            ParetoPoint(
                model=model,
                quality=result.scores[quality].value,
                diversity=result.scores[diversity].value,
                quality_interval=_ends(result, quality),
                diversity_interval=_ends(result, diversity),
                dominated_by=tuple(dominating),
                clearly_dominated_by=tuple(clearly),
            )
        )
    points.sort(key=lambda point: (-point.quality, -point.diversity))
    levels = {result.settings.interval for result in results.values() if result.intervals}
    return ParetoFront(tuple(points), quality, diversity, next(iter(levels), None), is_paired)


def _gap(results: Results, name: str, first: str, second: str) -> int:
    """The sign of the difference of two models in a score: 0 where it is rounding."""
    ratio = results[first].scores[name].value / results[second].scores[name].value
    if abs(ratio - 1) <= SAME_RATIO:
        return 0
    return int(math.copysign(1, ratio - 1))


def _signs(differences: Sequence[Difference]) -> dict[tuple[str, str], int]:
    """By pair of models, 1 where the first is clearly higher, 0 where both are equal for certain.

    Pairs whose difference leaves that open are absent.
    """
    signs = {}
    for difference in differences:
        pair = difference.first, difference.second
        if difference.low is None or difference.high is None:
            continue
        if difference.low >= 1 - SAME_RATIO and difference.high <= 1 + SAME_RATIO:
            signs[pair] = signs[pair[::-1]] = 0
        elif difference.low > 1 + SAME_RATIO:
            signs[pair] = 1
        elif difference.high < 1 - SAME_RATIO:
            signs[pair[::-1]] = 1
    return signs


def _ends(result: Evaluation, name: str) -> Ends | None:
    interval = result.intervals.get(name)
    if interval is None:
        return None
    return float(interval.low), float(interval.high)
