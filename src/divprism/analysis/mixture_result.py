"""Mixture: the best weights over models, as a result."""

from dataclasses import asdict, dataclass
from typing import Any

from divprism.analysis.evaluation import SCHEMA
from divprism.analysis.saved import Saved
from divprism.errors import Notice
from divprism.scores.settings import Settings

__all__ = ["GroupMixture", "Mixture"]


@dataclass(frozen=True)
class GroupMixture:
    """The best weights for a group of prompts.

    Attributes
    ----------
    group : str
        The name of the group, or the prompt.
    num_prompts : int
        Number of its prompts.
    weights : dict of float
        By model.
    score : float
        Score of the mixture on these prompts.
    best : str
        The best single model on these prompts.
    gain : float
        Score of the mixture over that of the best single model, at least 1.
    chance : float or None
        As in `Mixture`; at order 2 only.
    """

    group: str
    num_prompts: int
    weights: dict[str, float]
    score: float
    best: str
    gain: float
    chance: float | None


@dataclass(frozen=True, eq=False, repr=False)
class Mixture(Saved):
    """The weights over models that maximise a score, with a certificate.

    Attributes
    ----------
    by : str
        The score.
    weights : dict of float
        By model: the probability with which an output comes from it. They sum to one.
    score : float
        Score of the mixture.
    alone : dict of float
        By model, its score alone.
    best : str
        The best single model (with `min_quality`, among those of that quality).
    gain : float
        Score of the mixture over that of the best single model, at least 1.
    low, high : float or None
        Interval of the gain, by a jackknife over prompts. None for fewer than five prompts.
    chance : float or None
        The gain of the same weights if all models were one: that of more outputs. None without
        exchanges.
    gap : float
        Certificate: no weights are better by more than this, in nats (at order 2 of the squared
        norm, relative to it).
    num_iterations : int
        Steps that were taken; at order 1 the spectra of all outputs that they needed.
    per_group : tuple of GroupMixture
        The weights for each group of prompts, if asked for.
    quality : float or None
        Mean quality of the mixture, if given.
    num_prompts, num_outputs : int
        Number of prompts, and of outputs of each model.
    settings : Settings
        With all defaults resolved.
    notes, warnings : tuple of Notice
        What was left out to match the models, and what a reader should know.
    """

    by: str
    weights: dict[str, float]
    score: float
    alone: dict[str, float]
    best: str
    gain: float
    low: float | None
    high: float | None
    chance: float | None
    gap: float
    num_iterations: int
    per_group: tuple[GroupMixture, ...]
    quality: float | None
    num_prompts: int
    num_outputs: int
    settings: Settings
    notes: tuple[Notice, ...] = ()
    warnings: tuple[Notice, ...] = ()

    @property
    def gain_beyond_chance(self) -> float | None:
        """The gain over what more outputs of one model would gain; None without exchanges."""
        if self.chance is None:
            return None
        return self.gain / self.chance

    def __repr__(self) -> str:
        from divprism.report.mixture_tables import mixture_table
        from divprism.report.table import terminal_width

        return mixture_table(self.to_dict()).to_text(terminal_width()).rstrip()

    def _repr_html_(self) -> str:
        from divprism.report.mixture_tables import mixture_table

        return mixture_table(self.to_dict()).to_html()

    def to_frame(self) -> Any:
        """The weights as a data frame, a row per model, and per group (pandas or polars)."""
        from divprism.report.mixture_tables import mixture_records

        return mixture_records(self.to_dict()).to_frame()

    def to_dict(self) -> dict[str, Any]:
        """The result document: plain values only, every number finite."""
        return {
            "schema": SCHEMA,
            "by": self.by,
            "weights": self.weights,
            "score": self.score,
            "alone": self.alone,
            "best": self.best,
            "gain": self.gain,
            "low": self.low,
            "high": self.high,
            "chance": self.chance,
            "gain_beyond_chance": self.gain_beyond_chance,
            "gap": self.gap,
            "num_iterations": self.num_iterations,
            "per_group": [asdict(group) for group in self.per_group],
            "quality": self.quality,
            "num_prompts": self.num_prompts,
            "num_outputs": self.num_outputs,
            "settings": self.settings.to_dict(),
            "notes": [note.to_dict() for note in self.notes],
            "warnings": [notice.to_dict() for notice in self.warnings],
        }
