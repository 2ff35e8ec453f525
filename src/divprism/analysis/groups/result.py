"""The result of `prompt_groups`: groups of prompts, and the diversity inside each."""

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from divprism.analysis.evaluation import SCHEMA
from divprism.analysis.groups.inside import Mode
from divprism.analysis.saved import Saved
from divprism.data.items import Item, Media, Text
from divprism.data.samples import Samples
from divprism.errors import Notice
from divprism.scores.score import Score
from divprism.scores.settings import Settings

__all__ = ["PromptGroup", "PromptGroups", "describe_row"]

_SHOWN_GROUPS = 10  # groups in the short text of a result


@dataclass(frozen=True)
class PromptGroup:
    """One group of prompts and the outputs generated under them.

    Attributes
    ----------
    name : str
        The label or prompt, or a number by size.
    share : float
        Share of all outputs; for an eigendirection its eigenvalue.
    size : float
        Number of outputs; for an eigendirection the effective number, 1 / sum of squared masses.
    vendi, rke : float
        Effective number of distinct outputs inside the group, at the order of the settings and at
        order 2; from 1 to `size`.
    standard_error : float
        Error that a random estimator adds to `vendi`; 0 where it is exact.
    rarefied, rarefied_error : float or None
        Mean `vendi` of random subsets of `PromptGroups.equal_size` outputs, and its standard error.
        Ten outputs are at most ten kinds, so groups of different sizes are compared by this. Where
        all groups have the same size it is `vendi` itself. None for eigendirections and small
        groups.
    small : bool
        True if the group has fewer outputs than `min_size`, too few to compare it.
    num_prompts : int
        Number of distinct prompts; for an eigendirection those with a mass in it.
    prompts : tuple of int
        Rows of its most typical distinct prompts: the most similar to the whole group; for an
        eigendirection those of its largest entries.
    modes : tuple of Mode
        Its kinds of outputs, the largest first: at most `vendi`, rounded, and at most `num_modes`.
    """

    name: str
    share: float
    size: float
    vendi: float
    rke: float
    standard_error: float
    rarefied: float | None
    rarefied_error: float | None
    small: bool
    num_prompts: int
    prompts: tuple[int, ...]
    modes: tuple[Mode, ...]


@dataclass(frozen=True, eq=False, repr=False)
class PromptGroups(Saved):
    """Diversity group by group, the least diverse first and small groups last.

    Attributes
    ----------
    groups : tuple of PromptGroup
        Ordered by `rarefied`; eigendirections by `vendi`.
    coverage : float
        Sum of the shares: below 1 where directions are left out or prompts belong to no group.
    aggregate, aggregate_rke : float
        Aggregate of the groups (see `prompt_groups`), at the order of the settings and at order 2.
    gap, gap_rke : float
        Logarithm of the aggregate minus that of the conditional score, in nats: 0 where prompts of
        different groups have nothing in common and those of a group are equal. Below 0 the kernel
        separates fewer kinds of prompts than there are groups (use fewer groups, or a smaller
        bandwidth), above 0 more.
    conditional_vendi, conditional_rke : Score
        The conditional scores of all pairs.
    prompt_vendi : Score
        The number of kinds of prompt that they are per.
    cluster_vendi, cluster_rke : float or None
        Mean over groups, by share, of `vendi` and `rke` (Conditional Vendi, App. G); None for
        eigendirections.
    equal_size : int
        Number of outputs that groups are compared at; all of them where groups have the same size.
    min_size, num_small : int
        Number of outputs a group needs to be compared, and the number of groups with fewer.
    settings, data, warnings, embedders, notes
        As in `Evaluation`.
    items : Samples
        Outputs and prompts as they were given; the rows of groups and modes count in them.
    labels : tuple of str, or None
        The name of the group of each row, "" for none; None for eigendirections.
    """

    groups: tuple[PromptGroup, ...]
    coverage: float
    aggregate: float
    gap: float
    aggregate_rke: float
    gap_rke: float
    conditional_vendi: Score
    conditional_rke: Score
    prompt_vendi: Score
    cluster_vendi: float | None
    cluster_rke: float | None
    equal_size: int
    min_size: int
    num_small: int
    settings: Settings
    data: dict[str, Any]
    warnings: tuple[Notice, ...] = ()
    embedders: tuple[dict[str, Any], ...] = ()
    notes: tuple[Notice, ...] = ()
    items: Samples = field(default_factory=lambda: Samples(()))
    labels: tuple[str, ...] | None = None

    def __repr__(self) -> str:
        from divprism.report.table import terminal_width
        from divprism.report.tables import groups_table

        table = groups_table(self.to_dict())
        return table.head(_SHOWN_GROUPS).to_text(terminal_width()).rstrip()

    def _repr_html_(self) -> str:
        from divprism.report.tables import groups_table

        return groups_table(self.to_dict()).to_html()

    def to_frame(self) -> Any:
        """The groups as a data frame, a row each (pandas or polars, whichever is installed)."""
        from divprism.report.tables import groups_table

        return groups_table(self.to_dict()).to_frame()

    def to_dict(self) -> dict[str, Any]:
        """The result document: plain values only, every number finite.

        Rows of examples come with the text, the file or the id that they stand for.
        """
        return {
            "schema": SCHEMA,
            "groups": [self._group_to_dict(group) for group in self.groups],
            "coverage": self.coverage,
            "aggregate": self.aggregate,
            "gap": self.gap,
            "aggregate_rke": self.aggregate_rke,
            "gap_rke": self.gap_rke,
            "cluster_vendi": self.cluster_vendi,
            "cluster_rke": self.cluster_rke,
            "conditional_vendi": self.conditional_vendi.value,
            "conditional_rke": self.conditional_rke.value,
            "prompt_vendi": self.prompt_vendi.value,
            "equal_size": self.equal_size,
            "min_size": self.min_size,
            "num_small": self.num_small,
            "data": self.data,
            "settings": self.settings.to_dict(),
            "embedders": list(self.embedders),
            "warnings": [notice.to_dict() for notice in self.warnings],
        }

    def _group_to_dict(self, group: PromptGroup) -> dict[str, Any]:
        modes = []
        for mode in group.modes:
            outputs = [describe_row(self.items.outputs, row) for row in mode.outputs]
            modes.append({"share": mode.share, "outputs": outputs})
        prompts = [describe_row(self.items.prompts, row) for row in group.prompts]
        return asdict(group) | {"prompts": prompts, "modes": modes}


def describe_row(side: Any, row: int) -> dict[str, Any]:
    """Return a row of one side, with the text, the file or the id that it stands for."""
    entry: dict[str, Any] = {"row": row}
    if isinstance(side, tuple):
        item: Item = side[row]
        if isinstance(item, Text):
            entry["text"] = item.text
        else:
            entry |= _file_of(item)
        return entry | {"where": item.where}
    if side.ndim == 1:
        entry["id"] = str(side[row])
    return entry


def _file_of(item: Item) -> dict[str, str]:
    """The file of an image, a video (or of its first frame) or a sound.

    Empty where a table held the bytes themselves.
    """
    if not isinstance(item, Media):
        return {}
    source = item.source
    if isinstance(source, tuple):
        source = source[0]
    if isinstance(source, Path):
        return {"file": str(source)}
    return {}
