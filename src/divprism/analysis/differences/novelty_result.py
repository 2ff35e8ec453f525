"""The result of `novelty`."""

from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from divprism.analysis.differences.result import DifferenceMode, mode_document
from divprism.analysis.evaluation import SCHEMA
from divprism.analysis.groups.result import describe_row
from divprism.analysis.saved import Saved
from divprism.data.samples import Samples
from divprism.errors import Notice
from divprism.scores.settings import Settings

__all__ = ["NearCopy", "Novelty"]

_SHOWN_MODES = 10  # modes in the short text of a result


@dataclass(frozen=True)
class NearCopy:
    """An output that is closer to an item of the reference than such items are to each other.

    Attributes
    ----------
    row : int
        Row of the output.
    reference_row : int
        Row of the nearest item of the reference.
    similarity : float
        Kernel value of the two, 1 for equal vectors.
    distance : float
        Distance of their vectors: in bandwidths of a Gaussian kernel, else of unit vectors.
    relative_distance : float
        The same over the distance from that item to its neighbours in the reference.
    """

    row: int
    reference_row: int
    similarity: float
    distance: float
    relative_distance: float


@dataclass(frozen=True, eq=False, repr=False)
class Novelty(Saved):
    """What outputs hold that a reference does not, and near-copies of it.

    Attributes
    ----------
    modes : tuple of DifferenceMode
        What outputs have more of than the reference, the largest first: the first share is that of
        the outputs, the second that of the reference.
    total, baseline, baseline_error, p_value : float
        As in `Differences`: the mass of the outputs where the reference has none, from 0 to 1;
        after exchanging outputs with items of the reference; and the share of exchanges with at
        least this total.
    ken : float
        Entropic novelty in nats (see `novelty`).
    num_kinds : float
        exp of the entropy of the positive eigenvalues: the effective number of novel modes; 0 where
        nothing is novel.
    novelty : ndarray
        For each output 1 - its largest similarity to the reference, from 0 to 1.
    nearest : ndarray of int
        Row of the nearest item of the reference.
    distance, relative_distance : ndarray
        Distance of that item, and the same over the distance from it to its neighbours in the
        reference: above 1, an output is further away than these.
    copies : tuple of NearCopy
        The outputs with a relative distance below `threshold`, the closest first.
    threshold, quantile : float
        The threshold, and the share of the reference that is that close to the rest of it.
    ratio, num_exchanges, level, unseen
        As in `Differences`.
    samples : dict of Samples
        "outputs" and "reference", as they were given; all rows count in them.
    data : dict
        What was compared, in numbers.
    settings, embedders, notes, warnings
        As in `Evaluation`.
    """

    modes: tuple[DifferenceMode, ...]
    total: float
    baseline: float | None
    baseline_error: float | None
    p_value: float | None
    ken: float
    num_kinds: float
    novelty: np.ndarray
    nearest: np.ndarray
    distance: np.ndarray
    relative_distance: np.ndarray
    copies: tuple[NearCopy, ...]
    threshold: float
    quantile: float
    ratio: float
    num_exchanges: int
    level: float
    unseen: float
    samples: dict[str, Samples]
    data: dict[str, Any]
    settings: Settings
    embedders: tuple[dict[str, Any], ...] = ()
    notes: tuple[Notice, ...] = ()
    warnings: tuple[Notice, ...] = ()

    def __repr__(self) -> str:
        from divprism.report.difference_tables import novelty_table
        from divprism.report.table import terminal_width

        table = novelty_table(self.to_dict())
        return table.head(_SHOWN_MODES).to_text(terminal_width()).rstrip()

    def _repr_html_(self) -> str:
        from divprism.report.difference_tables import novelty_table

        return novelty_table(self.to_dict()).to_html()

    def to_frame(self) -> Any:
        """A data frame with a row for each output: how novel it is (pandas or polars)."""
        from divprism.report.difference_tables import novelty_records

        return novelty_records(self.to_dict()).to_frame()

    def to_dict(self) -> dict[str, Any]:
        """The result document: plain values only, every number finite."""
        return {
            "schema": SCHEMA,
            "novelty": {
                "modes": [self._mode_to_dict(mode) for mode in self.modes],
                "total": self.total,
                "baseline": self.baseline,
                "baseline_error": self.baseline_error,
                "p_value": self.p_value,
                "ken": self.ken,
                "num_kinds": self.num_kinds,
                "outputs": self._outputs_to_dict(),
                "copies": [self._copy_to_dict(copy) for copy in self.copies],
                "threshold": _finite(self.threshold),
                "quantile": self.quantile,
                "ratio": self.ratio,
                "num_exchanges": self.num_exchanges,
                "level": self.level,
                "unseen": self.unseen,
            },
            "data": self.data,
            "settings": self.settings.to_dict(),
            "embedders": list(self.embedders),
            "notes": [note.to_dict() for note in self.notes],
            "warnings": [notice.to_dict() for notice in self.warnings],
        }

    def _mode_to_dict(self, mode: DifferenceMode) -> dict[str, Any]:
        return mode_document(mode, self.samples, "reference", self.level)

    def _outputs_to_dict(self) -> dict[str, list[Any]]:
        """For each output its novelty, in columns."""
        return {
            "novelty": self.novelty.tolist(),
            "nearest": self.nearest.tolist(),
            "distance": self.distance.tolist(),
            "relative_distance": [_finite(value) for value in self.relative_distance],
        }

    def _copy_to_dict(self, copy: NearCopy) -> dict[str, Any]:
        return asdict(replace(copy)) | {
            "relative_distance": _finite(copy.relative_distance),
            "output": describe_row(self.samples["outputs"].outputs, copy.row),
            "item": describe_row(self.samples["reference"].outputs, copy.reference_row),
        }


def _finite(value: float) -> float | None:
    """A number for JSON, which has no infinity: beside copies in the reference all else is far."""
    if not np.isfinite(value):
        return None
    return float(value)
