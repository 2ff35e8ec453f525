"""What parts of a sample contribute to the errors of its entropies: a jackknife.

At order 2 a score is a ratio of sums over pairs of samples, so the contribution of each sample is
known in closed form. At other orders the samples are left out by groups, twenty at most, and the
entropies are computed again. The same holds for cluster scores at every order: the contribution of
a sample to the score of a small cluster is far from linear. Groups are dealt out by the content of
the samples (`ContentOrder`), so that no error depends on a seed or on the order of rows.

Where the prompts are those of a design (`design_of`), only their outputs are random: what differs
between prompts is no error. There contributions are measured from the mean of their prompt, each
group holds a similar share of every prompt, and a prompt keeps its weight when some of its outputs
are left out.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from divprism.analysis.blocks import entropy_of_blocks, members_by_code, stacks_of, whole_codes
from divprism.analysis.content_order import ContentOrder
from divprism.analysis.units import design_of, is_even, units_of
from divprism.core.arrays import to_numpy
from divprism.core.entropy import matrix_entropy
from divprism.core.norms import square_sums
from divprism.core.operators import HadamardOperator, KernelOperator, Operator, dense
from divprism.engines import Resources
from divprism.errors import DataError
from divprism.scores.problem import Problem

__all__ = ["Sample"]

_GROUPS = 20  # groups of units that are left out one after another
_BLOCK_PAIRS = 256  # pairs of small prompts whose kernel values are computed together

# More pairs than this are represented by a subset: errors fall with the root of the number of
# pairs, so those of the subset can be scaled. A prompt has at most `_MAX_OUTPUTS` outputs in the
# subset, so that it holds enough prompts.
_MAX_PAIRS = 500
_MAX_OUTPUTS = _MAX_PAIRS // _GROUPS

_OF_PROMPTS = ("t", "prompt_ids")  # operators of the prompts alone
_BLOCKED = ("prompt_ids", "within_prompts")  # operators with a block for each prompt


@dataclass(frozen=True, eq=False)
class _Subset:
    """Pairs that represent others.

    `scale` turns the errors of the subset, which has fewer pairs, into those of all pairs.
    """

    pairs: np.ndarray
    weights: np.ndarray
    scale: float


@dataclass(frozen=True, eq=False)
class _Groups:
    """Groups of units that are left out one after another: the group of each pair, and sizes."""

    of_pair: np.ndarray
    sizes: np.ndarray


@dataclass(frozen=True, eq=False)
class Sample:
    """The pairs of a problem as a random sample, in the order of their content.

    Attributes
    ----------
    operators : dict of Operator
        By name.
    points : dict of ndarray
        By operator, the point that each pair was merged into.
    units : ndarray of int
        The unit that each pair belongs to.
    weights : ndarray
        The weight of each pair.
    unit : str
        What the units are: "pair" or "prompt".
    design : ndarray of int, or None
        The prompt of each pair, where the prompts are those of a design.
    labels : ndarray of int, or None
        The group of each pair, where labels were given.
    independent : bool
        True if the pairs are independent of each other.
    quality : ndarray or None
        The quality of each pair, where it is given.
    """

    operators: dict[str, Operator]
    points: dict[str, np.ndarray]
    units: np.ndarray
    weights: np.ndarray
    unit: str
    design: np.ndarray | None
    labels: np.ndarray | None
    independent: bool
    quality: np.ndarray | None = None

    @classmethod
    def of(cls, problem: Problem, unit: str | None, order: ContentOrder | None = None) -> "Sample":
        """The sample of a problem, in units of `unit`; by default in the order of rows, mixed."""
        if order is None:
            order = ContentOrder.of_rows(problem)
        operators = dict(problem.operators)
        # Inside labels the jackknife goes cluster by cluster (`inside`).
        operators.pop("within_labels", None)
        chosen, units = units_of(problem, unit)
        if units.max() < 1:
            raise DataError(f"an interval needs at least two {chosen}s; got one.")
        design = design_of(problem, chosen)
        # Units and prompts are numbered in their order: the first ones are as good as any. Models
        # on the same prompts have the same order, so that their common errors cancel.
        if chosen == "prompt":
            assert order.prompts is not None
            units = order.prompts[units][order.pairs]
        if design is not None:
            assert order.prompts is not None
            design = order.prompts[design][order.pairs]
        labels = None
        if problem.within_labels is not None:
            # The right factor compares labels as ids; its index is the group of each pair.
            labels = problem.within_labels.right.index[order.pairs]
        points = {name: _point_index(each)[order.pairs] for name, each in operators.items()}
        # Prompts in even numbers were chosen, so their pairs are not independent, even where they
        # have too few outputs to be treated as a design.
        has_even_prompts = problem.t is not None and is_even(np.bincount(problem.t.index))
        quality = None
        if problem.quality is not None:
            quality = problem.quality[order.pairs]
        return cls(
            operators=operators,
            points=points,
            units=units,
            weights=problem.weights[order.pairs],
            unit=chosen,
            design=design,
            labels=labels,
            independent=chosen == "pair" and not has_even_prompts,
            quality=quality,
        )

    @property
    def terms(self) -> tuple[str, ...]:
        """The names of the operators and the means of the sample."""
        means: tuple[str, ...] = ()
        if self.quality is not None:
            means = ("quality",)
        return (*self.operators, *means)

    @property
    def num_units(self) -> int:
        """Number of units in the sample."""
        return int(self.units.max()) + 1

    def unbiased(
        self, similarities: Mapping[str, np.ndarray]
    ) -> dict[str, tuple[float, np.ndarray]]:
        """Entropies of order 2 from sums over different pairs only, and contributions to them.

        Takes what `similarities` returns for each operator. Under a design a pair meets the others
        of its prompt with the weight that all of them have together. Empty where outputs of a
        prompt were sampled together: no U-statistic is known there.
        """
        if self.design is None and not self.independent:
            return {}
        with_itself = float(self.weights @ self.weights)
        inside: dict[bool, np.ndarray] = {}
        if self.design is not None and similarities:
            inside = self._similarities_within(self.design)
        estimates = {}
        for name, sums in similarities.items():
            if self.design is None:
                # k_ii = 1, so a pair adds its own weight to its sum; what remains has the total
                # weight 1 - sum w_i^2.
                whole, others = 1 - with_itself, sums - self.weights
            else:
                # Within its prompt a pair meets the other outputs, raised by mass / (mass - w_i) to
                # the weight of all, so the total weight stays 1. A design has at least
                # three outputs of each prompt, which keeps the denominator positive.
                whole = 1.0
                own = inside[name in _OF_PROMPTS]
                mass = np.bincount(self.design, weights=self.weights)[self.design]
                others = sums - own + (own - self.weights) * mass / (mass - self.weights)
            total = float(self.weights @ others)
            # The logarithm of a rounding error would be taken for a population of many kinds.
            if total <= 1e-9 * with_itself:  # no two pairs have anything in common
                continue
            estimates[name] = -math.log(total / whole), self.shares(others)
        return estimates

    def _similarities_within(self, prompts: np.ndarray) -> dict[bool, np.ndarray]:
        """For each pair i the sum over all pairs j of its prompt of w_j k_ij^2.

        Under True with k the kernel of the prompts, which is 1 there; under False with that of the
        outputs, which is that of the pairs, too.
        """
        sums = np.zeros(prompts.size)
        # Small prompts are taken together: a kernel matrix costs less than a call for each of them.
        for members in whole_codes(prompts, _BLOCK_PAIRS):
            points, kernel = self._kernel("x", members)
            distinct, prompt = np.unique(prompts[members], return_inverse=True)
            # A column per prompt holds the masses of its outputs.
            masses = np.zeros((kernel.shape[0], distinct.size))
            np.add.at(masses, (points, prompt), self.weights[members])
            sums[members] = (kernel**2 @ masses)[points, prompt]
        return {False: sums, True: np.bincount(prompts, weights=self.weights)[prompts]}

    @cached_property
    def _within_units(self) -> dict[bool, np.ndarray]:
        # Units are prompts here, and the operators of exact prompts have visited them already.
        if "prompt_ids" in self.points:
            return self._within_ids
        return self._similarities_within(self.units)

    @cached_property
    def _within_ids(self) -> dict[bool, np.ndarray]:
        return self._similarities_within(self.points["prompt_ids"])

    def similarities(self, resources: Resources) -> dict[str, np.ndarray]:
        """For each operator and each pair i the sum over all pairs j of w_j k_ij^2."""
        visited = {}
        for name, operator in self.operators.items():
            if name not in _BLOCKED:
                visited[name] = operator
        found = dict(zip(visited, square_sums(list(visited.values()), resources), strict=True))
        sums = {}
        for name in self.operators:
            if name in found:
                sums[name] = found[name][self.points[name]]
            else:
                # Pairs of different prompts have nothing in common, so no other pair is visited.
                sums[name] = self._within_ids[name in _OF_PROMPTS]
        return sums

    def shares_of(self, name: str, similarities: np.ndarray) -> np.ndarray:
        """Contribution of each unit to the entropy of order 2 of an operator."""
        # Leaving out a unit takes away its pairs with others twice, as (i, j) and (j, i), and those
        # among its own outputs once. The derivative by its weight would count the latter twice, and
        # they may be most of the sum: where prompts differ in kind, all of it.
        if self.design is not None:
            # The weight of an output that is left out goes to outputs that may be like it.
            return self.shares(similarities)
        if self.unit != "prompt":
            own = self.weights  # a pair with itself, where k_ii = 1
        elif name in _BLOCKED:
            own = similarities
        else:
            own = self._within_units[name in _OF_PROMPTS]
        slopes = 2 - (2 * similarities - own) / float(self.weights @ similarities)
        total = np.bincount(self.units, weights=self.weights * slopes)
        return np.asarray(math.sqrt(total.size / (total.size - 1)) * (total - total.mean()))

    def shares(self, similarities: np.ndarray) -> np.ndarray:
        """Contribution of each unit to an entropy of order 2, -log sum_ij w_i w_j k_ij^2.

        The derivative by the weights is known in closed form.
        """
        # The -1 comes from weights that sum to one: the contributions of all pairs sum to zero.
        return self._shares_of_slopes(-2 * (similarities / float(self.weights @ similarities) - 1))

    def shares_of_mean(self) -> np.ndarray:
        """Contribution of each unit to the logarithm of the mean quality."""
        assert self.quality is not None
        return self._shares_of_slopes(self.quality / float(self.weights @ self.quality) - 1)

    def _shares_of_slopes(self, slopes: np.ndarray) -> np.ndarray:
        """Contribution of each unit, from the derivative of a number by the weight of each pair."""
        total = np.bincount(self.units, weights=self.weights * slopes)
        if self.design is None:
            return math.sqrt(total.size / (total.size - 1)) * total
        # Every prompt has a mean of its own, so every prompt loses a degree of freedom. What an
        # output leaves goes to the others of its prompt, so its slope counts from theirs. A unit
        # is a pair here.
        counts = np.bincount(self.design)
        masses = np.bincount(self.design, weights=self.weights)
        means = np.bincount(self.design, weights=total) / masses
        centred = total - self.weights * means[self.design]
        return np.asarray(np.sqrt(counts / (counts - 1))[self.design] * centred)

    def left_out(self, name: str, order: float, truncation: int | None) -> np.ndarray:
        """Contribution of each group of units to the error of an entropy, or of a mean.

        The jackknife that leaves out one group after another.
        """
        subset = self._subset(np.arange(self.units.size))
        return self._left_out_of(subset, name, order, truncation)

    def left_out_within(self, name: str, order: float, truncation: int | None) -> np.ndarray:
        """`left_out` with the prompts of its subset taken as given: the part of the outputs."""
        subset = self._subset(np.arange(self.units.size))
        given = replace(self, design=self.units, units=np.arange(self.units.size))
        return given._left_out_of(subset, name, order, truncation)

    def _left_out_of(
        self, subset: _Subset, name: str, order: float, truncation: int | None
    ) -> np.ndarray:
        groups = self._deal_groups(subset.pairs)
        remaining = self._remaining_weights(subset, groups)
        whole, without = self._entropies_without(name, subset, remaining, order, truncation)
        return subset.scale * self._design_factor(subset) * _jackknife(whole, without, groups)

    def outputs_lost(self) -> float:
        """Share of the outputs of the prompts in the subset that are not in it."""
        if self.unit != "prompt":
            return 0.0
        pairs = self._subset(np.arange(self.units.size)).pairs
        return 1 - pairs.size / int(np.isin(self.units, self.units[pairs]).sum())

    def inside(self, order: float, truncation: int | None) -> np.ndarray:
        """Contribution of each group of units to the error of the logarithm of a cluster score.

        A subset of all pairs would leave small clusters with too few, so every cluster keeps its
        pairs. A cluster with more than `_MAX_PAIRS` is represented by a subset in its entropy,
        whose change is scaled as in `left_out`, but not in its share. The score of a small cluster
        is far from linear in its pairs: with five of them the error is a sixth too large.
        """
        assert self.labels is not None
        everything = _Subset(np.arange(self.units.size), self.weights, 1.0)
        groups = self._deal_groups(everything.pairs)
        remaining = self._remaining_weights(everything, groups)
        totals = np.zeros(groups.sizes.size)
        total_of_all = 0.0
        for members in members_by_code(self.labels):
            subset = self._subset(members)
            # Kept pairs represent the others of their cluster, whichever group is left out.
            growth = subset.weights / self.weights[subset.pairs]
            part = remaining[:, subset.pairs] * growth
            whole, without = self._entropies_without("x", subset, part, order, truncation)
            # The change is scaled, not the score: a large cluster errs less than its subset.
            scores = np.exp(whole + subset.scale * (without - whole))
            totals += remaining[:, members].sum(axis=1) * scores
            total_of_all += float(self.weights[members].sum()) * math.exp(whole)
        log_mean = math.log(total_of_all / float(self.weights.sum()))
        log_means = np.log(totals / remaining.sum(axis=1))
        return self._design_factor(everything) * _jackknife(log_mean, log_means, groups)

    def _deal_groups(self, pairs: np.ndarray) -> _Groups:
        """Units in their order, dealt out to twenty groups.

        Under a design they are dealt out prompt by prompt, so that each group gets a similar share
        of every prompt.
        """
        distinct, unit_of_pair = np.unique(self.units[pairs], return_inverse=True)
        order = np.arange(distinct.size)
        if self.design is not None:  # here a unit is a pair
            # Sorted by prompt, neighbours in the order go to different groups.
            order = np.argsort(self.design[pairs], kind="stable")
        groups = np.empty(distinct.size, int)
        groups[order] = np.arange(distinct.size) % min(distinct.size, _GROUPS)
        return _Groups(groups[unit_of_pair], np.bincount(groups))

    def _remaining_weights(self, subset: _Subset, groups: _Groups) -> np.ndarray:
        """For each group a row: the weights of the pairs without it.

        Under a design every prompt keeps its weight.
        """
        is_kept = groups.of_pair != np.arange(groups.sizes.size)[:, None]
        remaining = subset.weights * is_kept
        if self.design is not None:
            prompts = np.unique(self.design[subset.pairs], return_inverse=True)[1]
            before = np.bincount(prompts, weights=subset.weights)
            for row in remaining:
                after = np.bincount(prompts, weights=row)
                # A prompt that loses all its outputs has nothing left to carry its weight.
                row *= (before / np.where(after > 0, after, 1.0))[prompts]
        return remaining

    def _design_factor(self, subset: _Subset) -> float:
        """Correction of the jackknife for prompts that keep their weight.

        With few outputs per prompt, leaving one out moves its weight to few others.
        """
        if self.design is None:
            return 1.0
        # An output differs from the mean of the k - 1 others of its prompt with a variance of
        # 1 / (1 - 1/k) times its own; the jackknife of G groups corrects for 1 / (1 - 1/G).
        per_prompt = subset.pairs.size / np.unique(self.design[subset.pairs]).size
        return math.sqrt(min(1.0, (1 - 1 / per_prompt) / (1 - 1 / _GROUPS)))

    def _subset(self, members: np.ndarray) -> _Subset:
        """At most `_MAX_PAIRS` of some pairs: the first prompts, and outputs of large ones."""
        weights = self.weights[members]
        if members.size <= _MAX_PAIRS:
            return _Subset(members, weights, 1.0)
        blocks = self.units
        if self.design is not None:
            blocks = self.design
        distinct, block = np.unique(blocks[members], return_inverse=True)
        sizes = np.bincount(block)
        chosen = np.cumsum(np.minimum(sizes, _MAX_OUTPUTS)) <= _MAX_PAIRS
        rank = np.empty(block.size, int)
        starts = np.repeat(np.cumsum(sizes) - sizes, sizes)
        rank[np.argsort(block, kind="stable")] = np.arange(block.size) - starts
        kept = np.flatnonzero(chosen[block] & (rank < _largest_number(sizes[chosen])))
        # The outputs that are kept of a prompt take over the weight of all of them.
        before = np.bincount(block, weights=weights)
        after = np.bincount(block[kept], weights[kept], distinct.size)
        # Prompts that were not chosen have no weight after; their growth is not used.
        growth = before / np.maximum(after, 1e-300)
        # Errors fall with the root of the number of random units: outputs under a design, and
        # prompts or pairs otherwise.
        share = kept.size / members.size
        if self.design is None:
            share = chosen.mean()
        return _Subset(members[kept], (weights * growth[block])[kept], math.sqrt(share))

    def _kernel(self, name: str, pairs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The point of each of some pairs, and the kernel matrix of these points."""
        distinct, points = np.unique(self.points[name][pairs], return_inverse=True)
        # Double precision, because the change by a group is a small difference of entropies.
        operator = self.operators[name].sample(distinct, double=True)
        roots = np.sqrt(operator.masses)
        matrix = np.asarray(to_numpy(next(dense([operator]))), np.float64)
        # Entries of an operator are scaled by the roots of the masses.
        return points, matrix / np.outer(roots, roots)

    def _entropies_without(
        self,
        name: str,
        subset: _Subset,
        remaining: np.ndarray,
        order: float,
        truncation: int | None,
    ) -> tuple[float, np.ndarray]:
        """The entropy of a subset, and its entropy with the weights of each row of `remaining`.

        A row that changes nothing, or leaves no pair, counts as no change.
        """
        if name == "quality":
            return self._means_without(subset, remaining)
        points, kernel = self._kernel(name, subset.pairs)
        stacks = None
        # Solving block by block costs the sum of the cubes of their sizes, not the cube of the sum.
        if name in _BLOCKED:
            blocks = np.empty(kernel.shape[0], int)
            blocks[points] = self.points["prompt_ids"][subset.pairs]
            stacks = stacks_of(kernel, blocks)

        def entropy(weights: np.ndarray) -> float:
            masses = np.bincount(points, weights=weights, minlength=kernel.shape[0])
            if stacks is None:
                return matrix_entropy(kernel, masses, order, truncation)
            return entropy_of_blocks(stacks, masses, order, truncation)

        whole = entropy(subset.weights)
        without = np.full(len(remaining), whole)
        for index, row in enumerate(remaining):
            if row.any() and not np.array_equal(row, subset.weights):
                without[index] = entropy(row)
        return whole, without

    def _means_without(self, subset: _Subset, remaining: np.ndarray) -> tuple[float, np.ndarray]:
        """The mean quality of a subset, and without each group, over the mean of all pairs.

        The change of a ratio to a number is that of its logarithm to first order. The logarithm
        itself has no value where the only outputs with a quality above zero are left out.
        """
        assert self.quality is not None
        quality = self.quality
        if self.unit == "prompt":
            # Prompts are left out as a whole, so the mean of all their outputs is known, those
            # that are not in the subset included.
            masses = np.bincount(self.units, weights=self.weights)
            sums_of_units = np.bincount(self.units, weights=self.weights * quality)
            quality = (sums_of_units / masses)[self.units]
        of_pairs = quality[subset.pairs] / float(self.weights @ quality)
        whole = float(subset.weights @ of_pairs) / float(subset.weights.sum())
        totals = remaining.sum(axis=1)
        sums = remaining @ of_pairs
        without = np.where(totals > 0, sums / np.where(totals > 0, totals, 1.0), whole)
        return whole, without


def _largest_number(sizes: np.ndarray) -> int:
    """The largest number of outputs per prompt at which all fit into a subset."""
    number = _MAX_PAIRS
    while np.minimum(sizes, number).sum() > _MAX_PAIRS:
        number -= 1
    return number


def _jackknife(whole: float, without: np.ndarray, groups: _Groups) -> np.ndarray:
    """Contributions to the error of a number, from its values without each group of units.

    By pseudo-values, so that groups may differ in size: the growth of a number with the sample is
    the same for all of them, and no error (Busing, Meijer and van der Leeden 1999). For equal
    groups it is the plain jackknife.
    """
    times = groups.sizes.sum() / groups.sizes
    pseudo_values = times * whole - (times - 1) * without
    # 1 / times is the share of the units: pseudo-values of large groups are less noisy.
    mean = np.average(pseudo_values, weights=1 / times)
    return np.asarray((pseudo_values - mean) / np.sqrt(times.size * (times - 1)))


def _point_index(operator: Operator) -> np.ndarray:
    """For each pair, the point of an operator that it was merged into."""
    if isinstance(operator, HadamardOperator):
        codes = operator.left.index * operator.right.size + operator.right.index
        distinct = operator.left_index * operator.right.size + operator.right_index
        # `HadamardOperator.of` sorts the distinct pairs by this code.
        return np.searchsorted(distinct, codes)
    assert isinstance(operator, KernelOperator)
    return operator.index
