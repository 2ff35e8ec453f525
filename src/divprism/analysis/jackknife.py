"""What parts of a sample do to its entropies: a jackknife.

At order 2 a score is a ratio of sums over pairs of samples, and what each sample adds to it is known in closed form; at other
orders samples are left out by groups, twenty at most, and the scores computed again. So are the cluster scores, at every order:
what a sample adds to the score of a small cluster is not all that it does to it.

Where the prompts are those of a design (`design_of`), only their outputs are drawn: what differs between prompts is no error.
There contributions are told from the mean of their prompt, groups take a like share of every prompt, and a prompt keeps its
share of all when some of its outputs are left out.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from divprism.core.arrays import to_numpy
from divprism.core.entropy import matrix_entropy, renyi_entropy
from divprism.core.operators import HadamardOperator, KernelOperator, Operator, dense
from divprism.core.spectrum import Spectrum
from divprism.core.tiles import row_blocks
from divprism.engines import one_blas_thread
from divprism.errors import ArgumentError, DataError
from divprism.scores.problem import Problem

__all__ = ["Sample", "design_of", "units_of"]

_FEW_PROMPTS = 20  # fewer are taken as given, not as drawn
_FEW_OUTPUTS = 3  # what two outputs of a prompt have in common is no part of what either adds: errors would be too small
_EVEN = 0.05  # chance of numbers of outputs so even, if prompts were drawn: at most so many draws pass for a design
_GROUPS = 20
_OF_PROMPTS = ("t", "prompt_ids")  # operators that outputs have no part in
_BLOCKED = ("prompt_ids", "within_prompts")  # operators with a block for each prompt
_MAX_PAIRS = 500  # pairs that are left out by groups; of more, a draw stands for all: errors fall with the root of their number
_MAX_OUTPUTS = _MAX_PAIRS // _GROUPS  # of a prompt in a draw, so that a draw holds enough prompts
_BLOCK_ENTRIES = 1 << 23


@dataclass(frozen=True, eq=False)
class _Draw:
    """Pairs that stand for others: their places, what they weigh, and the factor that the absence of the others asks for."""

    pairs: np.ndarray
    weights: np.ndarray
    scale: float


@dataclass(frozen=True, eq=False)
class _Groups:
    """Groups of units that are left out one after another: that of each pair, and how many units each has."""

    of_pair: np.ndarray
    sizes: np.ndarray


@dataclass(frozen=True, eq=False)
class Sample:
    """Pairs of a problem: which point of each operator a pair is, which unit it belongs to, what it weighs.

    `design`: which prompt of a design a pair has; None where there is none. `alone`: whether pairs are independent.
    """

    operators: dict[str, Operator]
    places: dict[str, np.ndarray]
    units: np.ndarray
    weights: np.ndarray
    unit: str
    rng: int
    design: np.ndarray | None
    alone: bool

    @classmethod
    def of(cls, problem: Problem, unit: str | None) -> "Sample":
        """The sample of a problem, in units of `unit`."""
        # Inside labels the jackknife goes cluster by cluster (`inside`).
        operators = {
            name: operator
            for name, operator in problem.operators.items()
            if name != "within_labels"
        }
        places = {name: _point_index(operator) for name, operator in operators.items()}
        chosen, units = units_of(problem, unit)
        if units.max() < 1:
            raise DataError(f"an interval needs at least two {chosen}s; got one.")
        even = chosen == "pair" and problem.t is not None and _even(np.bincount(problem.t.index))
        design = design_of(problem, chosen)
        return cls(
            operators,
            places,
            units,
            problem.weights,
            chosen,
            problem.settings.rng,
            design,
            chosen == "pair" and not even,
        )

    @property
    def num_units(self) -> int:
        """Number of units in the sample."""
        return int(self.units.max()) + 1

    def unbiased(self, similar: dict[str, np.ndarray]) -> dict[str, tuple[float, np.ndarray]]:
        """Entropies of order 2 from sums over different pairs only, and what each adds.

        Under a design a pair meets others of its prompt as often as all of them together weigh. None where outputs of a
        prompt were drawn together.
        """
        if self.design is None and not self.alone:
            return {}
        alone = float(self.weights @ self.weights)
        near = {} if self.design is None or not similar else self._within(self.design)
        found = {}
        for name, similarities in similar.items():
            whole, others = 1 - alone, similarities - self.weights
            if self.design is not None:
                mass = np.bincount(self.design, weights=self.weights)[self.design]
                whole, inside = 1.0, near["t" if name in _OF_PROMPTS else "x"]
                others = (
                    similarities - inside + (inside - self.weights) * mass / (mass - self.weights)
                )
            total = float(self.weights @ others)
            if total <= 1e-9 * alone:  # no two pairs have anything in common
                continue
            found[name] = -math.log(total / whole), self.shares(others)
        return found

    def _within(self, design: np.ndarray) -> dict[str, np.ndarray]:
        """For each pair i the sum over all j of its prompt of w_j k_ij^2, for outputs (as for pairs) and for prompts."""
        sums = np.zeros(design.size)
        for members in _parts(design):
            points, kernel = self._kernel("x", members)
            masses = np.bincount(points, weights=self.weights[members], minlength=kernel.shape[0])
            sums[members] = (kernel**2 @ masses)[points]
        return {"x": sums, "t": np.bincount(design, weights=self.weights)[design]}

    def similarities(self, name: str) -> np.ndarray:
        """For each pair i the sum over all j of w_j k_ij^2."""
        if name in _BLOCKED:
            # Pairs of different prompts have nothing in common, so no other pair is visited.
            inside = self._within(self.places["prompt_ids"])
            return inside["t" if name in _OF_PROMPTS else "x"]
        operator = self.operators[name]
        sums = np.concatenate([_square_sums(operator, rows) for rows in _blocks(operator)])
        return np.asarray((sums / operator.masses)[self.places[name]])

    def shares(self, similarities: np.ndarray) -> np.ndarray:
        """What each unit adds to an entropy of order 2, -log sum_ij w_i w_j k_ij^2: its derivative by the weights is closed."""
        added = -2 * (similarities / float(self.weights @ similarities) - 1)
        total = np.bincount(self.units, weights=self.weights * added)
        if self.design is None:
            return math.sqrt(total.size / (total.size - 1)) * total
        counts = np.bincount(self.design)
        centred = total - (np.bincount(self.design, weights=total) / counts)[self.design]
        return np.asarray(np.sqrt(counts / (counts - 1))[self.design] * centred)

    def left_out(self, name: str, order: float, truncation: int | None) -> np.ndarray:
        """What each group of units contributes to the error of an entropy: the jackknife that leaves out one after another."""
        drawn = self._drawn(np.arange(self.units.size))
        groups = self._dealt(drawn.pairs)
        whole, without = self._without(
            name, drawn.pairs, drawn.weights, self._left(drawn, groups), order, truncation
        )
        return drawn.scale * self._factor(drawn) * _jackknifed(whole, without, groups)

    def left_out_within(self, name: str, order: float, truncation: int | None) -> np.ndarray:
        """The same for outputs of the prompts that `left_out` draws, as if these were given: the part that outputs have."""
        drawn = self._drawn(np.arange(self.units.size))
        given = replace(self, design=self.units, units=np.arange(self.units.size))
        groups = given._dealt(drawn.pairs)
        whole, without = given._without(
            name, drawn.pairs, drawn.weights, given._left(drawn, groups), order, truncation
        )
        return drawn.scale * given._factor(drawn) * _jackknifed(whole, without, groups)

    def outputs_lost(self) -> float:
        """Share of the outputs of the prompts in a draw that are not in it."""
        if self.unit != "prompt":
            return 0.0
        drawn = self._drawn(np.arange(self.units.size)).pairs
        return 1 - drawn.size / int(np.isin(self.units, self.units[drawn]).sum())

    def inside(self, labels: np.ndarray, order: float, truncation: int | None) -> np.ndarray:
        """What each group of units contributes to the error of the logarithm of a cluster score: the same jackknife.

        A draw of all pairs would leave small clusters with too few, so every cluster keeps its pairs; of one with more than
        `_MAX_PAIRS` a draw stands for all in its entropy, whose change is scaled as in `left_out`, but not in its share. The
        score of a small cluster is far from linear in its pairs: with five of them the error comes out a sixth too large.
        """
        everything = _Draw(np.arange(self.units.size), self.weights, 1.0)
        groups = self._dealt(everything.pairs)
        left = self._left(everything, groups)
        total, all_of_it = np.zeros(groups.sizes.size), 0.0
        for members in _parts(labels):
            drawn = self._drawn(members)
            part = left[:, drawn.pairs] * (drawn.weights / self.weights[drawn.pairs])
            whole, without = self._without("x", drawn.pairs, drawn.weights, part, order, truncation)
            total += left[:, members].sum(axis=1) * np.exp(whole + drawn.scale * (without - whole))
            all_of_it += float(self.weights[members].sum()) * math.exp(whole)
        whole = math.log(all_of_it / float(self.weights.sum()))
        return self._factor(everything) * _jackknifed(
            whole, np.log(total / left.sum(axis=1)), groups
        )

    def _dealt(self, pairs: np.ndarray) -> _Groups:
        """Units in random order, dealt out to twenty groups; those of a design prompt by prompt, a like share to each group."""
        distinct, place = np.unique(self.units[pairs], return_inverse=True)
        order = np.random.default_rng(self.rng).permutation(distinct.size)
        if self.design is not None:  # a unit is a pair
            order = order[np.argsort(self.design[pairs][order], kind="stable")]
        groups = np.empty(distinct.size, int)
        groups[order] = np.arange(distinct.size) % min(distinct.size, _GROUPS)
        return _Groups(groups[place], np.bincount(groups))

    def _left(self, drawn: _Draw, groups: _Groups) -> np.ndarray:
        """For each group a row: what pairs weigh without it. Under a design prompts keep what they weigh."""
        left = drawn.weights * (groups.of_pair != np.arange(groups.sizes.size)[:, None])
        if self.design is not None:
            prompts = np.unique(self.design[drawn.pairs], return_inverse=True)[1]
            before = np.bincount(prompts, weights=drawn.weights)
            for row in left:
                after = np.bincount(prompts, weights=row)
                row *= (before / np.where(after > 0, after, 1.0))[prompts]
        return left

    def _factor(self, drawn: _Draw) -> float:
        """What the shares of a design change about the jackknife: one of few outputs of a prompt weighs on few others."""
        if self.design is None:
            return 1.0
        per_prompt = drawn.pairs.size / np.unique(self.design[drawn.pairs]).size
        return math.sqrt(min(1.0, (1 - 1 / per_prompt) / (1 - 1 / _GROUPS)))

    def _drawn(self, members: np.ndarray) -> _Draw:
        """A draw of at most `_MAX_PAIRS` of some pairs: of prompts, and of outputs of those that have many."""
        weights = self.weights[members]
        if members.size <= _MAX_PAIRS:
            return _Draw(members, weights, 1.0)
        generator = np.random.default_rng(self.rng)
        distinct, block = np.unique(
            (self.units if self.design is None else self.design)[members], return_inverse=True
        )
        sizes = np.bincount(block)
        order = generator.permutation(distinct.size)
        few = np.cumsum(np.minimum(sizes, _MAX_OUTPUTS)[order]) <= _MAX_PAIRS
        chosen = np.zeros(distinct.size, bool)
        chosen[order[few]] = True
        most = next(
            most
            for most in range(_MAX_PAIRS, 0, -1)
            if np.minimum(sizes[chosen], most).sum() <= _MAX_PAIRS
        )
        rank = _ranks_within(block, generator)
        kept = np.flatnonzero(chosen[block] & (rank < most))
        grown = np.bincount(block, weights=weights) / np.maximum(
            np.bincount(block[kept], weights[kept], distinct.size), 1e-300
        )
        share = chosen.mean() if self.design is None else kept.size / members.size
        return _Draw(members[kept], (weights * grown[block])[kept], math.sqrt(share))

    def _kernel(self, name: str, pairs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Which of the points of some pairs each is, and the kernel values of these points."""
        points, places = np.unique(self.places[name][pairs], return_inverse=True)
        operator = self.operators[name].sample(points, double=True)
        roots = np.sqrt(operator.masses)
        return places, np.asarray(to_numpy(next(dense([operator]))), np.float64) / np.outer(
            roots, roots
        )

    def _without(
        self,
        name: str,
        pairs: np.ndarray,
        weights: np.ndarray,
        left: np.ndarray,
        order: float,
        truncation: int | None,
    ) -> tuple[float, np.ndarray]:
        """Entropy of some pairs, and with the weights of each row; one that changes or leaves nothing counts as no change."""
        places, kernel = self._kernel(name, pairs)

        blocks = None
        if name in _BLOCKED:
            blocks = np.empty(kernel.shape[0], int)
            blocks[places] = self.places["prompt_ids"][pairs]

        def entropy(weights: np.ndarray) -> float:
            masses = np.bincount(places, weights=weights, minlength=kernel.shape[0])
            if blocks is None:
                return matrix_entropy(kernel, masses, order, truncation)
            return _entropy_of_blocks(kernel, blocks, masses, order, truncation)

        whole = entropy(weights)
        same = [not row.any() or np.array_equal(row, weights) for row in left]
        return whole, np.array(
            [
                whole if as_before else entropy(row)
                for row, as_before in zip(left, same, strict=True)
            ]
        )


def _entropy_of_blocks(
    kernel: np.ndarray,
    blocks: np.ndarray,
    masses: np.ndarray,
    order: float,
    truncation: int | None,
) -> float:
    """`matrix_entropy` of a block-diagonal kernel matrix: the spectra of the blocks, joined."""
    roots = np.sqrt(masses / masses.sum())
    values = []
    for members in _parts(blocks):
        block = kernel[np.ix_(members, members)]
        with one_blas_thread():
            values.append(np.linalg.eigvalsh(block * np.outer(roots[members], roots[members])))
    spectrum = Spectrum.from_eigenvalues(np.concatenate(values), noise=0.0, method="exact")
    return renyi_entropy(spectrum, order, truncation)


def _jackknifed(whole: float, without: np.ndarray, groups: _Groups) -> np.ndarray:
    """Contributions to the error of a number, from what it is without each group of units.

    By pseudo-values, so that groups may differ in size: what a number gains as samples grow is the same for all of them, and no
    error (Busing, Meijer and van der Leeden 1999). Of equal groups it is the plain jackknife.
    """
    times = groups.sizes.sum() / groups.sizes
    pseudo = times * whole - (times - 1) * without
    return np.asarray(
        (pseudo - np.average(pseudo, weights=1 / times)) / np.sqrt(times.size * (times - 1))
    )


def _parts(codes: np.ndarray) -> list[np.ndarray]:
    """Places of each code."""
    order = np.argsort(codes, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(codes[order])) + 1)


def _ranks_within(blocks: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """A random order of the members of each block: their ranks, from 0."""
    ranks = np.empty(blocks.size, int)
    for members in _parts(blocks):
        ranks[members] = generator.permutation(members.size)
    return ranks


def _point_index(operator: Operator) -> np.ndarray:
    """For each pair, the point of an operator that it was merged into."""
    if isinstance(operator, HadamardOperator):
        codes = operator.left.index * operator.right.size + operator.right.index
        distinct = operator.left_index * operator.right.size + operator.right_index
        return np.searchsorted(distinct, codes)
    assert isinstance(operator, KernelOperator)
    return operator.index


def units_of(problem: Problem, unit: str | None) -> tuple[str, np.ndarray]:
    """What was drawn at random, "pair" or "prompt", and which one each pair of a problem belongs to.

    Where nothing is said it is prompts, if they repeat and there are at least 20: outputs of one prompt are alike. Fewer
    prompts are the fixed categories of a design rather than a sample, and there it is pairs.
    """
    pairs = np.arange(problem.x.index.size)
    if problem.t is None:
        if unit == "prompt":
            raise ArgumentError("`unit` is prompt, but there are no prompts.")
        return "pair", pairs
    chosen = unit or ("prompt" if _FEW_PROMPTS <= problem.t.size < pairs.size else "pair")
    return chosen, problem.t.index if chosen == "prompt" else pairs


def design_of(problem: Problem, unit: str) -> np.ndarray | None:
    """Which prompt each pair has, where pairs are the units and the prompts those of a design; None elsewhere.

    Numbers of outputs tell: of prompts that were drawn with their outputs, some come more often than others. Where they differ
    less than those of such a draw in nineteen of twenty cases, somebody chose them. With a prompt of fewer than three outputs
    pairs count as if drawn, whatever the prompts: intervals are too wide there, up to twice as wide. From three to some ten
    outputs those of Conditional still err to the safe side: 98 to 99 of 100 intervals of 95 % hold.
    """
    if unit != "pair" or problem.t is None:
        return None
    counts = np.bincount(problem.t.index)
    return problem.t.index if _even(counts) and counts.min() >= _FEW_OUTPUTS else None


def _even(counts: np.ndarray) -> bool:
    """Whether some numbers that are not all 1 vary less than those of a draw would in all but a few cases."""
    from scipy.special import chdtri

    if counts.size < 2 or counts.max() < 2:
        return False
    mean = counts.mean()
    return bool(((counts - mean) ** 2).sum() / mean <= chdtri(counts.size - 1, 1 - _EVEN))


def _blocks(operator: Operator) -> Iterator[slice]:
    return row_blocks(operator.size, max(1, _BLOCK_ENTRIES // operator.size))


def _square_sums(operator: Operator, rows: slice) -> np.ndarray:
    block = np.asarray(to_numpy(operator.rows(rows)), np.float64)
    return np.asarray(np.einsum("ij,ij->i", block, block))
