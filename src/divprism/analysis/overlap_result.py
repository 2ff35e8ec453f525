"""Overlap and its parts: what models share, as a result."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from divprism.analysis.evaluation import SCHEMA
from divprism.analysis.homogeneity import Homogeneity
from divprism.analysis.model_squares import ModelSquares, mean_within
from divprism.analysis.overlap_errors import information_of_squares
from divprism.analysis.saved import Saved
from divprism.errors import ArgumentError, Notice
from divprism.scores.settings import Settings

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["ModelOverlap", "Overlap", "PromptOverlap"]

_SHOWN_PROMPTS = 5  # of either end, in the document of a result


@dataclass(frozen=True)
class ModelOverlap:
    """How much two models, or all of them, differ in their outputs to the same prompts.

    Attributes
    ----------
    models : tuple of str
        The models.
    information : float
        Information between output and model given the prompt, in nats: 0 where models are
        interchangeable, the log of their number where they have nothing in common.
    union : float
        Conditional score of the outputs of all of them together, at the order of the settings.
    gain : float
        The union over the score of the most diverse of the models alone. It may be below 1: outputs
        of a model that repeats itself take half of the weight.
    low, high : float or None
        Interval of the Information: what other prompts of the same kind would give. None for fewer
        than five prompts.
    standard_error : float or None
        Of the Information, from sampling prompts and from the estimator. None without an interval.
    chance : float or None
        Mean Information after outputs to the same prompt were exchanged between the models at
        random: that of samples of one model. At order 2 it is the Information of the mean sum of
        squares, which is never less, and hardly more except for a few prompts. None without
        exchanges.
    chance_error : float
        Standard error of that mean; 0 at order 2, where the mean sum is known in closed form.
    p_value : float or None
        Share of exchanges, the given assignment included, whose Information of order 2 is at least
        the given one. Not corrected for the number of pairs of models.
    """

    models: tuple[str, ...]
    information: float
    union: float
    gain: float
    low: float | None = None
    high: float | None = None
    standard_error: float | None = None
    chance: float | None = None
    chance_error: float = 0.0
    p_value: float | None = None

    @property
    def factor(self) -> float:
        """exp of the Information: as how many models this sample counts, from 1 to their number."""
        return math.exp(self.information)

    @property
    def new_share(self) -> float:
        """(factor - 1) / (m - 1): 0 for interchangeable models, 1 for nothing in common."""
        return (self.factor - 1) / (len(self.models) - 1)

    @property
    def excess(self) -> float | None:
        """Information beyond that of samples of one model, in nats; about 0 if it is one."""
        if self.chance is None:
            return None
        return self.information - self.chance

    @property
    def distance(self) -> float:
        """What ranks and joins models: the excess, at least 0; without exchanges Information."""
        if self.excess is None:
            return self.information
        return max(0.0, self.excess)

    @property
    def counts_as(self) -> float:
        """As how many models they count beyond chance: exp of `distance`.

        The factor over that of samples of one model. Where models have nothing in common it is
        below their number, and approaches it with the number of outputs per prompt.
        """
        return math.exp(self.distance)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, every number finite."""
        names = ("counts_as", "factor", "new_share", "excess", "distance")
        derived = {name: getattr(self, name) for name in names}
        return asdict(self) | {"models": list(self.models)} | derived


@dataclass(frozen=True)
class PromptOverlap:
    """How much models differ in their outputs to one prompt, at order 2.

    Attributes
    ----------
    prompt : dict
        The text, the file or the id of the prompt.
    information : float
        Information between output and model for this prompt, in nats.
    excess : float
        The same less the log of what random exchanges of its outputs give on average.
    """

    prompt: dict[str, Any]
    information: float
    excess: float


@dataclass(frozen=True, eq=False, repr=False)
class Overlap(Saved):
    """How much models share: pairs of them, all together, and by prompt.

    Attributes
    ----------
    models : tuple of str
        The models, in the order in which they were given.
    pairs : tuple of ModelOverlap
        All pairs, from those that overlap most to those that overlap least.
    joint : ModelOverlap
        All models together.
    alone : dict of float
        By model, the conditional score of its own outputs, at the order of the settings.
    homogeneity : Homogeneity
        Mean similarity of two outputs to the same prompt, between and within models.
    num_prompts, num_outputs : int
        Number of prompts, and of outputs of each model.
    num_exchanges : int
        Number of random exchanges behind the p-values.
    settings : Settings
        With all defaults resolved.
    notes, warnings : tuple of Notice
        What was left out to match the models, and what a reader should know.
    """

    models: tuple[str, ...]
    pairs: tuple[ModelOverlap, ...]
    joint: ModelOverlap
    alone: dict[str, float]
    homogeneity: Homogeneity
    num_prompts: int
    num_outputs: int
    num_exchanges: int
    settings: Settings
    notes: tuple[Notice, ...] = ()
    warnings: tuple[Notice, ...] = ()
    squares: ModelSquares | None = field(default=None, repr=False)
    labels: tuple[dict[str, Any], ...] = field(default=(), repr=False)

    def pair(self, first: str, second: str) -> ModelOverlap:
        """The overlap of two models, in either order."""
        for each in self.pairs:
            if {first, second} == set(each.models) and first != second:
                return each
        names = ", ".join(map(repr, self.models))
        raise ArgumentError(
            f"`first` and `second` must be two of the models {names}; got {first!r}, {second!r}."
        )

    @property
    def information(self) -> np.ndarray:
        """Information of each pair of models in nats, shape (m, m), zero on the diagonal."""
        return self._matrix("information")

    @property
    def new_share(self) -> np.ndarray:
        """`ModelOverlap.new_share` of each pair: from 0 (the same) to 1 (nothing in common)."""
        return self._matrix("new_share")

    @property
    def excess(self) -> np.ndarray | None:
        """Information beyond chance of each pair, shape (m, m); None without exchanges."""
        if self.joint.excess is None:
            return None
        return self._matrix("excess")

    @property
    def distances(self) -> np.ndarray:
        """`ModelOverlap.distance` of each pair: what the tree joins models by."""
        return self._matrix("distance")

    def _matrix(self, name: str) -> np.ndarray:
        index = {model: number for number, model in enumerate(self.models)}
        matrix = np.zeros((len(self.models), len(self.models)))
        for each in self.pairs:
            first, second = (index[model] for model in each.models)
            matrix[first, second] = matrix[second, first] = getattr(each, name)
        return matrix

    def tree(self) -> np.ndarray:
        """The tree of the models by average linkage, as `scipy.cluster.hierarchy` writes it.

        Returns
        -------
        ndarray, shape (m - 1, 4)
            Rows of two clusters that are joined, their mean distance, and the number of models.
        """
        from divprism.analysis.model_tree import average_linkage

        return average_linkage(self.distances)

    def prompts(self, *models: str) -> tuple[PromptOverlap, ...]:
        """The prompts from the one on which models differ most to the one on which they agree most.

        At order 2, by the excess over exchanges of the outputs to the prompt. Only prompts with at
        least two outputs of each model: one output of each shows nothing beyond chance.

        Parameters
        ----------
        *models : str
            Which models; all of them by default.
        """
        assert self.squares is not None
        unknown = sorted(set(models) - set(self.models))
        if unknown or len(set(models)) == 1:
            names = ", ".join(map(repr, self.models))
            raise ArgumentError(f"`models` must be at least two of {names}; got {list(models)}.")
        members = [self.models.index(name) for name in models or self.models]
        rows, columns = np.ix_(members, members)
        within = self.squares.within[:, rows, columns]
        own = np.trace(within, axis1=1, axis2=2)
        expected = mean_within(within.sum(axis=(1, 2)), self.squares.counts, len(members))
        excess = np.log(own / expected)
        information = information_of_squares(self.squares.within, members)
        order = np.argsort(-excess, kind="stable")
        entries = []
        for prompt in order[self.squares.counts[order] > 1]:
            values = float(information[prompt]), float(excess[prompt])
            entries.append(PromptOverlap(self.labels[prompt], *values))
        return tuple(entries)

    def plot(self, axes: "Sequence[Axes] | None" = None) -> "tuple[Figure, Any]":
        """Plot a heat map of the pairs, and the tree of the models.

        Parameters
        ----------
        axes : two matplotlib Axes, optional
            Axes to plot into. Default: a new figure.
        """
        from divprism.report.overlap_plots import plot_overlap

        return plot_overlap(self, axes)

    def __repr__(self) -> str:
        from divprism.report.overlap_tables import overlap_table
        from divprism.report.table import terminal_width

        return overlap_table(self.to_dict()).to_text(terminal_width()).rstrip()

    def _repr_html_(self) -> str:
        from divprism.report.overlap_tables import overlap_table

        return overlap_table(self.to_dict()).to_html()

    def to_frame(self) -> Any:
        """The pairs as a data frame, a row each (pandas or polars)."""
        from divprism.report.overlap_tables import overlap_records

        return overlap_records(self.to_dict()).to_frame()

    def to_dict(self) -> dict[str, Any]:
        """The result document: plain values only, every number finite."""
        ranked = [asdict(each) for each in self.prompts()]
        return {
            "schema": SCHEMA,
            "models": list(self.models),
            "pairs": [each.to_dict() for each in self.pairs],
            "joint": self.joint.to_dict(),
            "alone": self.alone,
            "homogeneity": self.homogeneity.to_dict(),
            "prompts": {
                "most_apart": ranked[:_SHOWN_PROMPTS],
                "most_alike": ranked[::-1][:_SHOWN_PROMPTS],
            },
            "num_prompts": self.num_prompts,
            "num_outputs": self.num_outputs,
            "num_exchanges": self.num_exchanges,
            "settings": self.settings.to_dict(),
            "notes": [note.to_dict() for note in self.notes],
            "warnings": [notice.to_dict() for notice in self.warnings],
        }
