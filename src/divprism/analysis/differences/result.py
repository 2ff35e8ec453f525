"""The results of `diff` and `novelty`."""

from dataclasses import asdict, dataclass, field, replace
from typing import Any

from divprism.analysis.evaluation import SCHEMA
from divprism.analysis.groups.result import describe_row
from divprism.analysis.saved import Saved
from divprism.data.samples import Samples
from divprism.errors import Notice
from divprism.scores.settings import Settings

__all__ = [
    "DifferenceMode",
    "Differences",
    "ModeExample",
    "GroupDifference",
    "mode_document",
]

_SHOWN_MODES = 10  # modes in the short text of a result


@dataclass(frozen=True)
class ModeExample:
    """An output that shows a mode, beside what the other sample has instead.

    Attributes
    ----------
    row : int
        Row of the output in the samples of its model.
    weight : float
        Its squared cosine with the direction of the mode, from 0 to 1.
    nearest : int or None
        Row of the most similar output of the other model to the same prompt; of `novelty`, of the
        most similar item of the reference.
    similarity : float or None
        Kernel value of these two.
    """

    row: int
    weight: float
    nearest: int | None
    similarity: float | None


@dataclass(frozen=True)
class DifferenceMode:
    """A kind of output that one model has more of.

    Attributes
    ----------
    model : str
        The model that has more of it.
    eigenvalue : float
        `share_first` - ratio x `share_second`; below 0 where the second model has more.
    share_first, share_second : float
        Mass of each model in the mode: the mean squared cosine of its outputs with the direction.
        Of the data that the mode was found on, so they differ more than those of other data.
    share_reference : float or None
        The same of the reference, where one was given.
    held_out : float
        The eigenvalue without that optimism: the direction of this rank is found on one half of
        the prompts, and the shares in it are measured on the other half. Which model's modes come
        first is still decided on all data, so the first mode of two samples of one model has a
        value somewhat above 0 on average.
    low, high : float or None
        Interval of `held_out`; None without a level or with too few outputs.
    agreement : float
        Mean squared cosine of these directions with the mode, from 0 to 1.
    p_value : float or None
        If both models were the same, the chance of a mode at least this large among all modes
        (exchanges of the models within prompts). None without exchanges.
    examples : tuple of ModeExample
        Outputs of `model` with the largest weights.
    """

    model: str
    eigenvalue: float
    share_first: float
    share_second: float
    share_reference: float | None
    held_out: float
    low: float | None
    high: float | None
    agreement: float
    p_value: float | None
    examples: tuple[ModeExample, ...]

    def is_clear(self, level: float) -> bool:
        """Whether chance makes no mode as large, and other prompts show the same difference."""
        if self.p_value is None or self.low is None or self.high is None:
            return False
        # 1 - 0.95 is above 0.05 by rounding.
        by_chance = self.p_value > round(1 - level, 9)
        is_same_sign = self.low > 0 if self.eigenvalue > 0 else self.high < 0
        return is_same_sign and not by_chance


@dataclass(frozen=True)
class GroupDifference:
    """How two models differ inside one group of prompts.

    Attributes
    ----------
    name : str
        The prompt, or a number by size.
    share : float
        Share of the pairs.
    size : int
        Number of outputs of each model.
    total, baseline, baseline_error, p_value
        As in `Differences`. P-values are of each group alone: of 100 groups of equal models five
        have 0.05 or less.
    modes : tuple of DifferenceMode
        The largest modes inside the group.
    """

    name: str
    share: float
    size: int
    total: float
    baseline: float | None
    baseline_error: float | None
    p_value: float | None
    modes: tuple[DifferenceMode, ...]

    @property
    def excess(self) -> float:
        """The total above its baseline."""
        return self.total - (self.baseline or 0.0)


@dataclass(frozen=True, eq=False, repr=False)
class Differences(Saved):
    """What two models have more of than each other, on the same prompts.

    Attributes
    ----------
    first, second : str
        The models.
    modes : tuple of DifferenceMode
        The modes of both models, the largest differences first.
    total : float
        Sum of the positive eigenvalues: the mass that the first model has where the second has
        none. 0 for equal outputs, 1 where no two outputs are alike. With `ratio` 1 it is the
        distance of the states (half their trace norm), and the same in both directions; of
        landmarks, a lower bound of it.
    baseline, baseline_error : float or None
        Mean total after exchanging the models within prompts at random, and the standard error of
        that mean: two samples of the same model have this total.
    p_value : float or None
        Share of the exchanges, the given models included, with at least this total.
    ratio : float
        Mode shares of the second model are multiplied by it.
    modes_of : str
        "pairs" or "outputs" (see `diff`).
    unit : str
        What is exchanged and what intervals resample: "prompt" or "pair".
    num_exchanges : int
        Exchanges behind the p-values.
    level : float
        Of the intervals and of what counts as clear.
    unseen : float
        Share of the outputs that lies outside of the landmarks; 0 up to 4,000 distinct pairs.
    groups : tuple of GroupDifference
        The largest differences above the baseline first; empty without a grouping.
    samples : dict of Samples
        By model, what was compared, as it was given; the rows of examples count in them.
    data : dict
        What was compared, in numbers.
    settings, embedders, notes, warnings
        As in `Evaluation`.
    """

    first: str
    second: str
    modes: tuple[DifferenceMode, ...]
    total: float
    baseline: float | None
    baseline_error: float | None
    p_value: float | None
    ratio: float
    modes_of: str
    unit: str
    num_exchanges: int
    level: float
    unseen: float
    groups: tuple[GroupDifference, ...]
    samples: dict[str, Samples]
    data: dict[str, Any]
    settings: Settings
    embedders: tuple[dict[str, Any], ...] = ()
    notes: tuple[Notice, ...] = ()
    warnings: tuple[Notice, ...] = field(default=())

    @property
    def clear_modes(self) -> tuple[DifferenceMode, ...]:
        """The modes that neither chance nor the choice of prompts explains."""
        return tuple(mode for mode in self.modes if mode.is_clear(self.level))

    def __repr__(self) -> str:
        from divprism.report.difference_tables import differences_table
        from divprism.report.table import terminal_width

        table = differences_table(self.to_dict())
        return table.head(_SHOWN_MODES).to_text(terminal_width()).rstrip()

    def _repr_html_(self) -> str:
        from divprism.report.difference_tables import differences_table

        return differences_table(self.to_dict()).to_html()

    def to_frame(self) -> Any:
        """The modes as a data frame, a row each (pandas or polars)."""
        from divprism.report.difference_tables import difference_records

        return difference_records(self.to_dict()).to_frame()

    def to_dict(self) -> dict[str, Any]:
        """The result document: plain values only, every number finite."""
        return {
            "schema": SCHEMA,
            "differences": {
                "first": self.first,
                "second": self.second,
                "modes": [self._mode_to_dict(mode) for mode in self.modes],
                "total": self.total,
                "baseline": self.baseline,
                "baseline_error": self.baseline_error,
                "p_value": self.p_value,
                "ratio": self.ratio,
                "modes_of": self.modes_of,
                "unit": self.unit,
                "num_exchanges": self.num_exchanges,
                "level": self.level,
                "unseen": self.unseen,
                "groups": [self._group_to_dict(group) for group in self.groups],
            },
            "data": self.data,
            "settings": self.settings.to_dict(),
            "embedders": list(self.embedders),
            "notes": [note.to_dict() for note in self.notes],
            "warnings": [notice.to_dict() for notice in self.warnings],
        }

    def _group_to_dict(self, group: GroupDifference) -> dict[str, Any]:
        modes = [self._mode_to_dict(mode) for mode in group.modes]
        return asdict(replace(group, modes=())) | {"excess": group.excess, "modes": modes}

    def _mode_to_dict(self, mode: DifferenceMode) -> dict[str, Any]:
        other = self.second
        if mode.model == self.second:
            other = self.first
        return mode_document(mode, self.samples, other, self.level)


def mode_document(
    mode: DifferenceMode, samples: dict[str, Samples], other: str, level: float
) -> dict[str, Any]:
    """A mode as plain values, with the texts or files of its examples.

    `other` is the sample that the nearest items are of.
    """
    own = samples[mode.model]
    examples = []
    for example in mode.examples:
        entry: dict[str, Any] = {
            "output": describe_row(own.outputs, example.row),
            "prompt": None,
            "nearest": None,
            "weight": example.weight,
            "similarity": example.similarity,
        }
        if own.prompts is not None:
            entry["prompt"] = describe_row(own.prompts, example.row)
        if example.nearest is not None:
            entry["nearest"] = describe_row(samples[other].outputs, example.nearest)
        examples.append(entry)
    plain = asdict(replace(mode, examples=()))
    return plain | {"clear": mode.is_clear(level), "examples": examples}
