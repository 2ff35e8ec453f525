"""What grows along the curves of `converge`: the units, the subsets, and the weights of pairs."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from divprism.analysis.extrapolation import WINDOW, Curve
from divprism.analysis.subsets import Subsets, ladder_of_sizes, nested_subsets, thinned_subsets
from divprism.analysis.units import units_of
from divprism.analysis.verdicts import (
    Criteria,
    Verdict,
    noun,
    undetermined,
    verdict,
)
from divprism.data.samples import Samples
from divprism.engines import Resources
from divprism.scores.problem import Problem, pose
from divprism.scores.settings import Settings

__all__ = ["Plan", "question", "subset_weights"]

_FEWEST_EACH = 3  # outputs per prompt, on average, below which a curve of them cannot be read


@dataclass(frozen=True, eq=False)
class Plan:
    """What grows along the curves.

    Attributes
    ----------
    whole : Problem
        All data, without truncation.
    settings : Settings
        Of the curves: with the unit and the truncation of the truncated scores.
    units : ndarray of int
        The unit of each pair.
    thinned : ndarray of int, or None
        The prompt of each pair, where subsets thin out the outputs of repeated prompts.
    """

    whole: Problem
    settings: Settings
    units: np.ndarray
    thinned: np.ndarray | None

    @classmethod
    def of(
        cls, embedded: Samples, settings: Settings, resources: Resources, unit: str | None
    ) -> "Plan":
        """The plan for embedded samples; bandwidths are chosen here, once for all subsets."""
        # The curves hold plain and truncated scores; truncation is applied curve by curve.
        plain = replace(settings, truncation=None, auto_truncation=False)
        whole = pose(embedded.outputs, embedded.prompts, settings=plain, resources=resources)
        unit, units = units_of(whole, unit or settings.unit)
        truncation = _default_truncation(settings.truncation, whole)
        resolved = replace(whole.settings, unit=unit, truncation=truncation)
        # A single prompt is in every subset, and prompts of one output cannot be thinned out.
        thinned = None
        if unit == "pair" and whole.t is not None and 1 < whole.t.size < units.size:
            thinned = whole.t.index
        return cls(whole, resolved, units, thinned)

    @property
    def num_thinned(self) -> int:
        """Number of prompts whose outputs are thinned out."""
        if self.thinned is None:
            return 0
        return int(self.thinned.max()) + 1

    @property
    def is_readable(self) -> bool:
        """Whether prompts have enough outputs for curves of fewer outputs per prompt."""
        # Where nothing is thinned out the number of prompts is 0, and every curve is readable.
        return self.units.size >= _FEWEST_EACH * self.num_thinned

    @property
    def kept_shares(self) -> np.ndarray | None:
        """The prompt of each pair, where prompts keep their weights in every subset."""
        # With fewer outputs, subsets that keep one of every prompt would be nearly the whole
        # sample. Plain subsets are used instead, and the verdict stays open.
        if self.is_readable:
            return self.thinned
        return None

    def subsets(self, sizes: Sequence[int] | None, num_repeats: int) -> tuple[np.ndarray, Subsets]:
        """The ladder of sizes and the subsets of every repeat."""
        units_noun, seed = noun(self.settings), self.settings.rng
        if self.kept_shares is not None:
            ladder = ladder_of_sizes(sizes, self.units.size, units_noun, self.num_thinned)
            return ladder, thinned_subsets(self.kept_shares, ladder, num_repeats, seed)
        ladder = ladder_of_sizes(sizes, int(self.units.max()) + 1, units_noun)
        return ladder, nested_subsets(self.units, ladder, num_repeats, seed)

    def verdict(self, curve: Curve, criteria: Criteria) -> Verdict:
        """Whether a curve has converged."""
        if self.is_readable:
            return verdict(curve, criteria)
        return undetermined(curve)


def _default_truncation(given: int | None, whole: Problem) -> int | None:
    """The truncation given, or n / 8; none at order 2 unless given."""
    if given is not None:
        return given
    if whole.settings.order == 2:
        return None
    # The law is fitted beyond the cut only, and needs the whole window there.
    return math.ceil(whole.n / WINDOW)


def question(plan: Plan) -> str:
    """What grows towards a limit, in one sentence."""
    prompts = plan.whole.t
    if prompts is None:
        return "Limits are those of more outputs."
    if prompts.size == plan.whole.n:
        return "Limits are those of more prompts, with one output each."
    each = plan.whole.n / prompts.size
    if plan.settings.unit == "prompt":
        return (
            f"Limits are those of more prompts with {each:.3g} outputs each, as here; resample "
            "pairs for those of more outputs per prompt."
        )
    end = ""
    if not plan.is_readable:
        end = f"; with {each:.2g} of each here, both are undetermined"
    return (
        f"Limits and sampling errors are those of more outputs under the same {prompts.size:,} "
        f"prompts, not of other prompts{end}."
    )


def subset_weights(rows: np.ndarray, plan: Plan) -> np.ndarray:
    """Weights of all pairs that are zero outside a subset.

    Where prompts keep their shares, each has in the subset the weight that it has in all data.
    """
    # Weights rather than rows: a kernel matrix has no rows to select.
    weights = np.bincount(rows, minlength=plan.whole.n) / rows.size
    prompts = plan.kept_shares
    if prompts is None:
        return weights
    # No division by zero: a thinned subset holds at least one output of every prompt (`_stretch`).
    growth = np.bincount(prompts) / np.bincount(prompts, weights=weights)
    return np.asarray(weights * (growth[prompts] / plan.whole.n))
