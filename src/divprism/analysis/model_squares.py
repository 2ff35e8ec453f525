"""Sums of squared kernel values between models, by prompt: all that order 2 needs.

One pass over the kernel values of all outputs gives the inner products of the states of the models,
<rho_l, rho_m> = sum of squared values / n^2, the same without each prompt, inside each prompt, and
under exchanges of outputs between models. Exchanges give the outputs of a prompt to the models at
random, the same number to each: if models are interchangeable, the given assignment is one of them.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from divprism.analysis.model_states import ModelStates
from divprism.core.arrays import plain_mode, to_numpy
from divprism.core.operators import HadamardOperator
from divprism.core.sweep import sources_of
from divprism.core.tiles import row_blocks

__all__ = ["ModelSquares", "exchanged_members", "mean_within", "model_squares", "random_deals"]

_BLOCK_ENTRIES = 1 << 21  # kernel values that are squared together: 16 MB

# Outputs of all models up to which the exchange of all of them is as frequent as that of pairs. The
# cost is m times that of a pass over the kernel values, for each exchange.
_MANY_OUTPUTS = 5000
_FEW_EXCHANGES = 19  # the fewest that can reach a p-value of 0.05


@dataclass(frozen=True, eq=False)
class ModelSquares:
    """Sums of squared kernel values k_ij^2 between the outputs of m models.

    Attributes
    ----------
    by_prompt : ndarray, shape (prompts, m, m)
        Entry (p, l, k): over outputs i of model l to prompt p, and all outputs j of model k.
    within : ndarray, shape (prompts, m, m)
        The same over outputs j to prompt p.
    counts : ndarray of int
        Number of outputs of each model by prompt.
    pair_exchanges : ndarray, shape (m, m, exchanges)
        For each exchange of outputs between two models the sum inside both of them.
    joint_exchanges : ndarray
        The same where all models exchange outputs.
    """

    by_prompt: np.ndarray
    within: np.ndarray
    counts: np.ndarray
    pair_exchanges: np.ndarray
    joint_exchanges: np.ndarray

    @property
    def total(self) -> np.ndarray:
        """The sums over all prompts, shape (m, m)."""
        total = self.by_prompt.sum(axis=0)
        return np.asarray((total + total.T) / 2)

    @property
    def gram(self) -> np.ndarray:
        """Inner products of the states of the models, shape (m, m)."""
        return np.asarray(self.total / float(self.counts.sum()) ** 2)

    def without_prompts(self) -> np.ndarray:
        """`total` without each of the prompts in turn, shape (prompts, m, m)."""
        # Rows and columns of the prompt go; what is in both is subtracted twice, so added once.
        both = self.by_prompt + self.by_prompt.transpose(0, 2, 1)
        return np.asarray(self.total - both + self.within)

    def exchanges_of(self, members: Sequence[int]) -> np.ndarray:
        """The sums inside two models, or all, under exchanges between them."""
        if len(members) == 2:
            return np.asarray(self.pair_exchanges[members[0], members[1]])
        return self.joint_exchanges

    def mean_exchange(self, members: Sequence[int]) -> float:
        """The mean of the sum inside some models over all exchanges between them.

        Two different outputs of a prompt belong to the same model in (k - 1) / (m k - 1) of the
        exchanges, those of two prompts in 1 / m.
        """
        rows, columns = np.ix_(members, members)
        everything = float(self.total[rows, columns].sum())
        inside = self.within[:, rows, columns].sum(axis=(1, 2))
        same = mean_within(inside, self.counts, len(members))
        return float(same.sum()) + (everything - float(inside.sum())) / len(members)


def mean_within(inside: np.ndarray, counts: np.ndarray, num_models: int) -> np.ndarray:
    """By prompt, the mean sum inside models over all exchanges, from the sum over all outputs."""
    # An output always meets itself, with a kernel value of one.
    themselves = num_models * counts
    return themselves + (inside - themselves) * (counts - 1) / (themselves - 1)


def exchanged_members(states: ModelStates, members: Sequence[int], deals: np.ndarray) -> np.ndarray:
    """Which of `members` gets each of their outputs, shape (members, n, exchanges).

    Outputs are dealt out in the order of their content, so that neither the order of the models nor
    that of their rows changes the set of exchanges.
    """
    count = len(members)
    prompts = np.tile(states.prompts, count)
    order = np.lexsort((states.contents[list(members)].ravel(), prompts))
    dealt = np.empty_like(deals)
    dealt[order] = deals
    return dealt.reshape(count, states.num_outputs, -1)


def random_deals(states: ModelStates, num_models: int, num_exchanges: int) -> np.ndarray:
    """Random deals of the outputs of each prompt to models, the outputs sorted by prompt.

    Shape (num_models n, exchanges); the same for all sets of `num_models` models.
    """
    rng = np.random.default_rng(states.problem.settings.rng)
    prompts = np.repeat(np.arange(states.counts.size), num_models * states.counts)
    starts = np.cumsum(num_models * states.counts) - num_models * states.counts
    # The first k places of a prompt belong to the first model, the next k to the second.
    models = (np.arange(prompts.size) - starts[prompts]) // states.counts[prompts]
    dealt = np.empty((prompts.size, num_exchanges), np.int16)
    for exchange in range(num_exchanges):
        shuffled = np.lexsort((rng.random(prompts.size), prompts))
        dealt[shuffled, exchange] = models
    return dealt


def model_squares(states: ModelStates, num_exchanges: int) -> ModelSquares:
    """Sums of squares between models, and under exchanges of outputs.

    O(N^2 d) time for N outputs of all models, N^2 num_exchanges operations for the exchanges
    between pairs, and m times that for those between all; memory of blocks, and n m (m + 4) bytes
    for each exchange.
    """
    one_pass = _Pass(states, num_exchanges)
    count = states.num_models
    pairs = [(first, second) for first in range(count) for second in range(first, count)]
    for done, (first, second) in enumerate(pairs, start=1):
        one_pass.visit(first, second)
        states.problem.resources.report_progress("sums of squares", done / len(pairs))
    return one_pass.result()


class _Pass:
    """One pass over the squared kernel values between all models."""

    def __init__(self, states: ModelStates, num_exchanges: int) -> None:
        count, size = states.num_models, states.counts.size
        self.states = states
        self.by_prompt = np.zeros((size, count, count))
        self.within = np.zeros((size, count, count))
        self.quadratic = np.zeros((count, count, num_exchanges))
        self.signs: dict[tuple[int, int], np.ndarray] = {}
        deals = random_deals(states, 2, num_exchanges)
        for first, second in combinations(range(count), 2):
            dealt = exchanged_members(states, (first, second), deals)
            signs = (1 - 2 * dealt).astype(np.int8)
            self.signs[first, second], self.signs[second, first] = signs
        number = num_exchanges
        if states.rows.size > _MANY_OUTPUTS:
            number = min(number, _FEW_EXCHANGES)
        self.joint = np.zeros(number)
        # Of two models the exchanges of all are those of the pair.
        self.dealt = None
        if count > 2:
            deals = random_deals(states, count, number)
            self.dealt = exchanged_members(states, range(count), deals)
        everything = np.ravel(states.rows)
        x, t = states.problem.x, states.prompt_state
        weights = np.full(everything.size, 1 / everything.size)
        # Outputs in the order of `rows`, equal ones apart.
        layout = HadamardOperator(x, t, weights, x.index[everything], t.index[everything])
        self.sources = sources_of([layout])[0]

    def visit(self, first: int, second: int) -> None:
        """Add what the kernel values between two models, or inside one, contribute."""
        starts, prompts = self.states.starts, self.states.prompts
        for rows, squares in self._blocks(first, second):
            sums = np.add.reduceat(squares, starts, axis=1)
            of_prompts = prompts[rows]
            own = sums[np.arange(of_prompts.size), of_prompts]
            np.add.at(self.by_prompt[:, first, second], of_prompts, sums.sum(axis=1))
            np.add.at(self.within[:, first, second], of_prompts, own)
            if first != second:
                other = np.add.reduceat(squares.sum(axis=0), starts)
                self.by_prompt[:, second, first] += other
                np.add.at(self.within[:, second, first], of_prompts, own)
            self._add_exchanges(first, second, rows, squares)

    def _blocks(self, first: int, second: int) -> Iterator[tuple[slice, np.ndarray]]:
        """Blocks of rows of the squared kernel values between the outputs of two models."""
        columns = self.states.num_outputs
        right = slice(second * columns, (second + 1) * columns)
        for rows in row_blocks(columns, max(1, _BLOCK_ENTRIES // columns)):
            left = slice(first * columns + rows.start, first * columns + rows.stop)
            with plain_mode():
                factors = [to_numpy(source(left, right)) for source in self.sources]
            values = np.asarray(math.prod(factors), np.float64)
            yield rows, values * values

    def _add_exchanges(self, first: int, second: int, rows: slice, squares: np.ndarray) -> None:
        if first == second:
            others = [other for other in range(self.states.num_models) if other != first]
            for other in others:
                signs = self.signs[first, other].astype(np.float64)
                form = np.einsum("ie,ie->e", signs[rows], squares @ signs)
                self.quadratic[first, other] += form
                self.quadratic[other, first] += form
        else:
            left = self.signs[first, second][rows].astype(np.float64)
            form = np.einsum("ie,ie->e", left, squares @ self.signs[second, first].astype(float))
            # The block and its mirror image.
            self.quadratic[first, second] += 2 * form
            self.quadratic[second, first] += 2 * form
        if self.dealt is not None:
            times = 1 + (first != second)
            for model in range(self.states.num_models):
                left = (self.dealt[first][rows] == model).astype(np.float64)
                right = (self.dealt[second] == model).astype(np.float64)
                self.joint += times * np.einsum("ie,ie->e", left, squares @ right)

    def result(self) -> ModelSquares:
        """All sums."""
        total = self.by_prompt.sum(axis=0)
        own = total.diagonal()
        together = own[:, None] + own[None, :] + total + total.T
        # With s = +1 for the outputs of one model and -1 for those of the other, s' Q s is the sum
        # inside both less the sum between them.
        pairs = (together[:, :, None] + self.quadratic) / 2
        joint = self.joint
        if self.dealt is None:
            joint = pairs[0, 1]
        return ModelSquares(self.by_prompt, self.within, self.states.counts, pairs, joint)
