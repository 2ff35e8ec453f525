"""The result of `select`: which outputs were chosen, in which order, and what they score."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from divprism.analysis.evaluation import SCHEMA
from divprism.analysis.groups.result import describe_row
from divprism.analysis.saved import Saved
from divprism.analysis.selection.scoring import RandomSubsets
from divprism.data.samples import Samples
from divprism.errors import Notice
from divprism.scores.settings import Settings

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["Selection"]


@dataclass(frozen=True, eq=False, repr=False)
class Selection(Saved):
    """A diverse subset of outputs.

    Attributes
    ----------
    indices : tuple of int
        Rows of the source, counted from 0, in order of choice. With `per`, one group after the
        other. Empty outputs count as rows.
    scores : tuple of float
        The score of its group after each choice. Empty where nothing but near-copies was dropped.
    gains : tuple of float
        What each choice added to `scores`: 1 for the first, about 1 for an output unlike all
        others, about 0 for a copy.
    score : float or None
        The score of the subset; with `per` the geometric mean over the groups. None where only
        near-copies were dropped and too many outputs are left to score in passing.
    score_of_all : float or None
        The same of all outputs; None beyond 10,000.
    random : RandomSubsets or None
        The same of random subsets of this size: what the selection is to be compared with, since
        larger sets score higher. None for more than 3,000 outputs in a group.
    by, per : str, str or None
        The score that was maximised, and within what.
    k : int or None
        Number of outputs asked for, of each group with `per`.
    counts : dict
        How many were chosen of how many: "models" and "prompts" map to a list of entries with
        `chosen` and `of`.
    quality : dict or None
        Mean quality of the subset, and of all outputs.
    num_near_copies : int or None
        Outputs that were dropped as near-copies of others; None where none were looked for.
    positions : tuple of int
        As `indices`, in `items`, which do not hold empty outputs.
    items : Samples
        All outputs as they were given.
    settings, data, warnings, notes, embedders
        As in `Evaluation`. Pass the settings to `evaluate` to score the subset with the same
        bandwidths.
    group_sizes : tuple of int
        Number of outputs chosen in each group, in the order of `indices`.
    origin : str, Path or None
        The file or folder that was read, for `write`.
    joined : bool
        Whether the prompts were read from elsewhere.
    """

    indices: tuple[int, ...]
    scores: tuple[float, ...]
    gains: tuple[float, ...]
    score: float | None
    score_of_all: float | None
    random: RandomSubsets | None
    by: str
    per: str | None
    k: int | None
    counts: dict[str, list[dict[str, Any]]]
    quality: dict[str, float] | None
    num_near_copies: int | None
    positions: tuple[int, ...]
    items: Samples
    settings: Settings
    data: dict[str, Any]
    warnings: tuple[Notice, ...] = ()
    notes: tuple[Notice, ...] = ()
    embedders: tuple[dict[str, Any], ...] = ()
    group_sizes: tuple[int, ...] = ()
    origin: str | Path | None = None
    joined: bool = False

    @property
    def samples(self) -> Samples:
        """The outputs that were chosen, with their prompts, in order of choice."""
        return self.items.select(self.positions)

    @property
    def curves(self) -> list[tuple[float, ...]]:
        """The part of `scores` of each group."""
        curves = []
        start = 0
        for size in self.group_sizes:
            curves.append(self.scores[start : start + size])
            start += size
        return [curve for curve in curves if curve]

    def __len__(self) -> int:
        return len(self.indices)

    def __repr__(self) -> str:
        from divprism.report.selection_tables import selection_table
        from divprism.report.table import terminal_width

        return selection_table(self.to_dict()).to_text(terminal_width()).rstrip()

    def _repr_html_(self) -> str:
        from divprism.report.selection_tables import selection_table

        return selection_table(self.to_dict()).to_html()

    def to_frame(self) -> Any:
        """The choices as a data frame, a row each in order of choice (pandas or polars)."""
        from divprism.report.selection_tables import selection_records

        return selection_records(self.to_dict()).to_frame()

    def plot(self, ax: "Axes | None" = None) -> "tuple[Figure, Axes]":
        """Plot the score after each choice, beside that of random subsets.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Axes to plot into. Default: a new figure.

        Returns
        -------
        (Figure, Axes)
        """
        from divprism.report.selection_plots import plot_selection

        return plot_selection(self, ax)

    def to_dict(self) -> dict[str, Any]:
        """The result document: plain values only, every number finite."""
        random = None
        if self.random is not None:
            random = asdict(self.random)
        return {
            "schema": SCHEMA,
            "score": self.by,
            "per": self.per,
            "k": self.k,
            "indices": list(self.indices),
            "gains": list(self.gains),
            "scores_after": list(self.scores),
            "score_of_subset": self.score,
            "score_of_all": self.score_of_all,
            "random": random,
            "outputs": [self._describe(position) for position in self.positions],
            "counts": self.counts,
            "quality": self.quality,
            "near_copies": self.num_near_copies,
            "data": self.data,
            "settings": self.settings.to_dict(),
            "embedders": list(self.embedders),
            "notes": [note.to_dict() for note in self.notes],
            "warnings": [notice.to_dict() for notice in self.warnings],
        }

    def _describe(self, position: int) -> dict[str, Any]:
        """What was chosen: the text, the file or the row, and its model."""
        entry = describe_row(self.items.outputs, position)
        entry.pop("row")  # `indices` say it, counted in the source
        if self.items.models is not None:
            entry["model"] = self.items.models[position]
        return entry

    def write(self, path: str | Path) -> tuple[Notice, ...]:
        """Write the chosen outputs in the layout that they came in, in the order of the source.

        Lines of JSONL and CSV files are copied byte by byte, rows of Parquet files and arrays as
        they are, images and videos into a folder with the same names. What has no such layout
        becomes JSONL with `prompt`, `output` and `model`.

        Parameters
        ----------
        path : str or Path
            A new file, or a new folder for a folder of images or videos.

        Returns
        -------
        tuple of Notice
            What was written, and what had to change.

        Raises
        ------
        DataError
            If the target exists, is inside the source, or cannot be written.
        """
        from divprism.data.subsets import write_subset

        positions = sorted(self.positions)
        return write_subset(self.origin, self.items, positions, path, joined=self.joined)
