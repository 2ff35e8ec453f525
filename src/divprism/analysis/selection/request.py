"""What is asked of a selection, validated before anything is computed."""

import math
import operator
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from divprism.analysis.selection.traces import LARGEST_ORDER, SMALLEST_ORDER
from divprism.core.kernels.base import finite_number
from divprism.core.validation import whole_number
from divprism.data.samples import Samples
from divprism.errors import ArgumentError
from divprism.scores.settings import Settings
from divprism.scores.spec import LABELS, QUALITY, SCORES, ScoreSpec

__all__ = ["Request", "Rows"]

_WITHIN = ("prompt", "model")

# Beyond these a selection takes hours.
_MOST_BELOW_2 = 3000
_MOST_ABOVE_2 = 300  # all outputs have to be evaluated at each step, or nearly all


@dataclass(frozen=True)
class Request:
    """What is to be chosen.

    Attributes
    ----------
    spec : ScoreSpec
        The score to maximise.
    k : int or None
        Number of outputs; None to drop near-copies and nothing else.
    per : str or None
        "prompt" or "model": what outputs are chosen from, one after the other.
    threshold : float or None
        Similarity of near-copies.
    order : float
        Order of the score: from 0.1 to 16, or infinity.
    """

    spec: ScoreSpec
    k: int | None
    per: str | None
    threshold: float | None
    order: float

    @classmethod
    def of(
        cls,
        spec: ScoreSpec,
        k: int | None,
        per: str | None,
        near_duplicates: float | None,
        settings: Settings,
    ) -> "Request":
        """The request, or an ArgumentError for what is not possible."""
        possible = [other.name for other in SCORES if not {LABELS, QUALITY} & set(other.needs)]
        if spec.name not in possible:
            more = ""
            if QUALITY in spec.needs:
                more = " With `quality`, each of them counts times the mean quality."
            raise ArgumentError(
                f"`by` must be one of {', '.join(possible)}; got {spec.name!r}.{more}"
            )
        if per is not None and per not in _WITHIN:
            raise ArgumentError(f"`per` must be prompt or model; got {per!r}.")
        if k is None and near_duplicates is None:
            raise ArgumentError(
                "`k` must be the number of outputs to choose; leave it out only with "
                "`near_duplicates`, to drop near-copies and nothing else."
            )
        if k is not None:
            k = whole_number(k, "k", 1)
        if near_duplicates is not None:
            requirement = "a similarity above 0 and at most 1, such as 0.95"
            near_duplicates = finite_number(near_duplicates, "near_duplicates", requirement)
            if not 0 < near_duplicates <= 1:
                raise ArgumentError(
                    f"`near_duplicates` must be {requirement}; got {near_duplicates!r}."
                )
        order = spec.order_under(settings.order)
        if not math.isinf(order) and not SMALLEST_ORDER <= order <= LARGEST_ORDER:
            raise ArgumentError(
                f"`order` must be from {SMALLEST_ORDER:g} to {LARGEST_ORDER:g}, or inf: between "
                f"them gains are exact; got {order:g}."
            )
        if k is not None:
            _require_possible(spec, k, order, settings)
        return cls(spec, k, per, near_duplicates, order)

    def require_room(self, num_kept: int) -> None:
        """Refuse more outputs in `keep`, of one group, than are to be chosen from it."""
        if self.k is not None and num_kept > self.k:
            raise ArgumentError(
                f"`keep` names {num_kept:,} outputs of one {self.per or 'source'}, which is more "
                f"than the {self.k:,} to choose."
            )


def _require_possible(spec: ScoreSpec, k: int, order: float, settings: Settings) -> None:
    """Refuse what would take hours, or would maximise something else than it says."""
    if settings.truncation is not None and settings.truncation < k:
        raise ArgumentError(
            f"`truncation` must be at least `k`, because gains are those of whole spectra; got "
            f"{settings.truncation:,}, and k is {k:,}."
        )
    most, why = _MOST_BELOW_2, "the fourth power of it"
    if order > 2:
        most, why = _MOST_ABOVE_2, "its third power and the number of outputs"
    if order == 2 or k <= most:
        return
    way_out = "Choose `order=2`"
    at_order_2 = [other.name for other in SCORES if other.terms == spec.terms and other.order == 2]
    if at_order_2:
        way_out = f"Choose `by={at_order_2[0]}`, which is of order 2"
    raise ArgumentError(
        f"`k` must be at most {most:,} at order {order:g}, whose cost grows with {why}; got "
        f"{k:,}. {way_out}."
    )


@dataclass(frozen=True, eq=False)
class Rows:
    """What was said about single rows, by their position among the outputs that are not empty.

    Attributes
    ----------
    of_source : ndarray of int
        The row of the source of each position.
    quality : ndarray or None
        A number of at least 0 for each.
    keep, drop : ndarray of int
        Positions that must be chosen, and that must not.
    """

    of_source: np.ndarray
    quality: np.ndarray | None
    keep: np.ndarray
    drop: np.ndarray

    @classmethod
    def of(cls, items: Samples, keep: Iterable[int], drop: Iterable[int]) -> "Rows":
        """The rows that users name, as positions."""
        of_source = np.arange(len(items))
        if items.rows is not None:
            of_source = np.array(items.rows)
        kept = _positions(keep, "keep", of_source)
        dropped = _positions(drop, "drop", of_source)
        both = np.intersect1d(kept, dropped)
        if both.size:
            row = of_source[both[0]]
            raise ArgumentError(f"row {row:,} is in both `keep` and `drop`; leave it in one.")
        return cls(of_source, items.quality, kept, dropped)


def _positions(given: Iterable[int], name: str, of_source: np.ndarray) -> np.ndarray:
    """The positions of rows of the source."""
    if isinstance(given, str | bytes) or not hasattr(given, "__iter__"):
        raise ArgumentError(f"`{name}` must be rows, such as [0, 7]; got {given!r}.")
    position_of = {row: position for position, row in enumerate(of_source.tolist())}
    positions = []
    for value in given:
        try:
            row = operator.index(value)
        except TypeError:
            row = None
        if row is None or isinstance(value, bool):  # of a mask, which holds no rows
            raise ArgumentError(f"`{name}` must be rows, such as [0, 7]; got {value!r}.")
        if row not in position_of:
            raise ArgumentError(
                f"`{name}` names row {row:,}, which is not among the {of_source.size:,} outputs: "
                "rows are counted from 0, and empty outputs cannot be chosen."
            )
        positions.append(position_of[row])
    return np.unique(np.array(positions, dtype=int))
