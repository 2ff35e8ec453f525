"""Greedy selection: the candidate that raises the objective most, one after the other.

The objective is the logarithm of a score, a sum of entropies of the subset with signs, plus the
logarithm of its mean quality where qualities are given. Candidates that differ in nothing the
objective sees are one candidate with several rows.

At other orders than 2, candidates are visited from the highest upper bound of their gain downwards,
until the best exact gain is at least the next bound: the answer is that of evaluating all of them
(lazy greedy, Minoux, 1978). Entropies with a negative sign, such as that of the prompts in a
conditional score, are evaluated for all candidates: their bounds would point the wrong way.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from divprism.analysis.selection.gains import SpectralTerm, SquaresTerm, Term
from divprism.analysis.selection.similarities import Similarities
from divprism.analysis.selection.traces import trace_of_order

__all__ = ["Chosen", "Pool", "choose"]

# Objectives that differ by less than this are tied, and content decides. In single precision the
# squared similarities of a candidate have this relative error, and are one part in m of the total.
_TIE = 1e-9
_TIE_IN_SINGLE = 1e-5

_EVERY_START = 64  # rows up to which the choice is repeated from each of them

# Beyond: starts that are compared, and choices after which they are.
_STARTS = 16
_COMPARED = 8

_HOPS = 2  # from the first row by content to one at an edge

_BATCH = 32  # candidates evaluated at first; doubled until the best is known
_LARGEST_BATCH = 2048


# An empty subset of a pool, for the terms of a score and the number of outputs to choose.
_NewSubset = Callable[["Pool", Mapping[str, int], int], "_Subset"]


@dataclass(frozen=True, eq=False)
class Pool:
    """What can be chosen.

    Attributes
    ----------
    similarities : dict of Similarities
        By operator of the score, between the rows of the pool.
    ranks : ndarray of int
        For each row its position in the order by content, which settles ties.
    quality : ndarray or None
        For each row a positive number.
    is_open : ndarray of bool
        Rows that may be chosen.
    first : sequence of int
        Rows that are chosen before all others.
    """

    similarities: Mapping[str, Similarities]
    ranks: np.ndarray
    quality: np.ndarray | None
    is_open: np.ndarray
    first: Sequence[int] = ()


@dataclass(frozen=True, eq=False)
class Chosen:
    """Rows in order of choice, and the logarithm of the score after each.

    Attributes
    ----------
    rows : list of int
        Rows of the pool.
    log_scores : list of float
        After each step.
    objective : float
        After the last step: with quality, more than the score.
    rounding : float
        How far rounding may move the objective, where that is more than a tie.
    """

    rows: list[int]
    log_scores: list[float]
    objective: float
    rounding: float


def choose(
    pool: Pool,
    terms: Mapping[str, int],
    order: float,
    size: int,
    *,
    step: Callable[[], None] = lambda: None,
) -> Chosen:
    """Choose up to `size` rows of a pool greedily; `step` is called for each.

    Greedy choices are good but for the first one, which says nothing about the others. Where few
    can be chosen from, the choice is repeated from each of them. Beyond, from the first choices
    that it made itself, which are far apart, and the beginnings are compared.
    """
    kind = _subset_at(order)
    num_open = int(np.count_nonzero(pool.is_open))
    is_small = num_open <= _EVERY_START
    # The first choice by quality is a choice. Without it, all single outputs score the same.
    is_given = bool(pool.first) or (pool.quality is not None and not is_small)
    if is_given or not 1 < size < num_open:
        return _run(kind, pool, terms, size, None, step)
    compared = min(size, _COMPARED)
    if is_small:
        compared, starts = size, _Classes.of(pool).heads.tolist()
    else:
        starts = _run(kind, pool, terms, _STARTS, None).rows
    runs = [_run(kind, pool, terms, compared, row) for row in starts]
    objectives = np.array([run.objective for run in runs])
    tie = _TIE + max(run.rounding for run in runs)
    best = runs[int(np.flatnonzero(objectives >= objectives.max() - tie)[0])]
    if compared < size:
        return _run(kind, pool, terms, size, best.rows[0], step)
    for _ in best.rows:
        step()
    return best


def _run(
    kind: _NewSubset,
    pool: Pool,
    terms: Mapping[str, int],
    size: int,
    start: int | None,
    step: Callable[[], None] = lambda: None,
) -> Chosen:
    """One greedy choice, from a given row or from what the pool begins with."""
    subset = kind(pool, terms, size)
    classes = _Classes.of(pool)
    rows: list[int] = []
    log_scores: list[float] = []
    waiting = list(pool.first)
    if start is not None:
        waiting.append(int(start))
    elif not waiting and pool.quality is None and classes.any_open:
        waiting.append(_first_row(kind, pool, terms, classes))

    def add(row: int) -> None:
        subset.add(row)
        classes.take(row)
        rows.append(row)
        log_scores.append(subset.log_score())
        step()

    for row in waiting:
        add(row)
    while len(rows) < size and classes.any_open:
        # The row stands for its whole class, which the objective cannot tell apart.
        add(classes.next_row(subset.best(classes.heads)))
    return Chosen(rows, log_scores, subset.objective(), subset.rounding())


def _first_row(kind: _NewSubset, pool: Pool, terms: Mapping[str, int], classes: "_Classes") -> int:
    """The row to begin with, where every single output has the same score: 1.

    The first row by content may be in the middle of all others. What is the best beside it is at an
    edge, and what is the best beside that is at the opposite one, if there is one.
    """
    row = classes.next_row(0)
    for _ in range(_HOPS):
        alone = kind(pool, terms, 1)
        alone.add(row)
        row = classes.next_row(alone.best(classes.heads))
    return row


class _Classes:
    """Rows that are the same to the objective, each class in the order of its content.

    `heads` holds a row of each class that has rows left, in the order of content.
    """

    def __init__(self, queues: list[list[int]], of_row: np.ndarray, heads: np.ndarray) -> None:
        self._queues = queues
        self._of_row = of_row
        self.heads = heads

    @classmethod
    def of(cls, pool: Pool) -> "_Classes":
        keys = [each.item_of_row for each in pool.similarities.values()]
        if pool.quality is not None:
            keys.append(np.unique(pool.quality, return_inverse=True)[1])
        _, of_row = np.unique(np.stack(keys), axis=1, return_inverse=True)
        of_row = of_row.reshape(-1)
        open_rows = np.flatnonzero(pool.is_open)
        by_content = open_rows[np.argsort(pool.ranks[open_rows], kind="stable")]
        queues: list[list[int]] = [[] for _ in range(int(of_row.max()) + 1)]
        for row in by_content.tolist():
            queues[of_row[row]].append(row)
        _, firsts = np.unique(of_row[by_content], return_index=True)
        return cls(queues, of_row, by_content[np.sort(firsts)])

    @property
    def any_open(self) -> bool:
        return self.heads.size > 0

    def next_row(self, position: int) -> int:
        """The first row, by content, of the class at a position in `heads`."""
        return self._queues[self._of_row[self.heads[position]]][0]

    def take(self, row: int) -> None:
        """Remove a row."""
        queue = self._queues[self._of_row[row]]
        if row in queue:
            queue.remove(row)
        if not queue:
            self.heads = self.heads[self._of_row[self.heads] != self._of_row[row]]


class _Subset:
    """The subset so far, and what its next member would do to the objective."""

    def __init__(self, pool: Pool, terms: Mapping[str, int], size: int) -> None:
        self._signs = terms
        self._items = {name: each.item_of_row for name, each in pool.similarities.items()}
        self._terms: dict[str, Term] = {}
        self._quality = pool.quality
        self._sum_of_quality = 0.0
        self._num_members = 0

    def add(self, row: int) -> None:
        """Add a row to the subset."""
        for name, term in self._terms.items():
            term.add(int(self._items[name][row]))
        if self._quality is not None:
            self._sum_of_quality += float(self._quality[row])
        self._num_members += 1

    def log_score(self) -> float:
        """The logarithm of the score of the subset."""
        return sum(self._signs[name] * term.entropy() for name, term in self._terms.items())

    def objective(self) -> float:
        """The logarithm of the score plus that of the mean quality."""
        if self._num_members == 0:
            return -np.inf
        mean = 1.0
        if self._quality is not None:
            mean = max(self._sum_of_quality / self._num_members, float(np.finfo(float).tiny))
        return self.log_score() + float(np.log(mean))

    def rounding(self) -> float:
        """How far rounding may move the objective, where that is more than a tie."""
        return 0.0

    def best(self, rows: np.ndarray) -> int:
        """The position of the best of some rows, which are in the order of content."""
        raise NotImplementedError

    def _log_quality(self, rows: np.ndarray) -> np.ndarray | float:
        """The logarithm of the mean quality with each of some rows."""
        if self._quality is None:
            return 0.0
        mean = (self._sum_of_quality + self._quality[rows]) / (self._num_members + 1)
        # Where all are zero, the score decides: the logarithm stays finite.
        return np.asarray(np.log(np.maximum(mean, np.finfo(float).tiny)))


class _AtOrder2(_Subset):
    def __init__(self, pool: Pool, terms: Mapping[str, int], size: int) -> None:
        super().__init__(pool, terms, size)
        self._squares = {name: SquaresTerm(each) for name, each in pool.similarities.items()}
        self._terms = dict(self._squares)
        self._rounding = 0.0
        if any(each.is_single for each in pool.similarities.values()):
            self._rounding = _TIE_IN_SINGLE

    def rounding(self) -> float:
        """How far rounding may move the objective, where that is more than a tie."""
        return self._rounding / max(self._num_members, 1)

    def best(self, rows: np.ndarray) -> int:
        """The position of the best of some rows, which are in the order of content."""
        value = self._log_quality(rows) + np.zeros(rows.size)
        for name, term in self._squares.items():
            items = self._items[name][rows]
            value += self._signs[name] * term.entropies_with()[items]
        tie = max(_TIE, self._rounding / (self._num_members + 1))
        return int(np.flatnonzero(value >= value.max() - tie)[0])


class _AtOtherOrders(_Subset):
    def __init__(self, pool: Pool, terms: Mapping[str, int], size: int, order: float) -> None:
        super().__init__(pool, terms, size)
        trace = trace_of_order(order)
        self._spectral = {
            name: SpectralTerm(each, size, trace) for name, each in pool.similarities.items()
        }
        self._terms = dict(self._spectral)

    def rounding(self) -> float:
        """How far rounding may move the objective, where that is more than a tie."""
        moved = sum(term.rounding() for term in self._spectral.values())
        return moved / max(self._num_members, 1)

    def best(self, rows: np.ndarray) -> int:
        """The position of the best of some rows, which are in the order of content."""
        # Entropies count m + 1 times (`rises`), and so does the logarithm of quality.
        fixed = (self._num_members + 1) * (self._log_quality(rows) + np.zeros(rows.size))
        lazy: list[str] = []
        for name, term in self._spectral.items():
            if self._signs[name] > 0:
                lazy.append(name)
            else:
                fixed -= self._rises_of_all(term, self._items[name][rows])
        upper = fixed.copy()
        for name in lazy:
            term = self._spectral[name]
            upper += term.rises(term.bounds())[self._items[name][rows]]
        # Stable, and on a grid as fine as a tie: equal bounds stay in the order of content.
        visited = np.argsort(-np.round(upper / _TIE), kind="stable")
        exact = np.full(rows.size, -np.inf)
        best, start, length, margin = -np.inf, 0, _BATCH, -_TIE
        tie = _TIE
        while start < rows.size and best < upper[visited[start]] + margin:
            batch = visited[start : start + length]
            values = fixed[batch]
            for name in lazy:
                values = values + self._rises_of_all(
                    self._spectral[name], self._items[name][rows[batch]]
                )
            exact[batch] = values
            best = max(best, float(values.max()))
            start += length
            length = min(2 * length, _LARGEST_BATCH)
            rounding = self._rounding_of(rows[int(exact.argmax())])
            if rounding > 0:
                # Rounding moves bounds too, so everything that may be tied is evaluated.
                tie = margin = _TIE + rounding
        return int(np.flatnonzero(exact >= best - tie)[0])

    def _rounding_of(self, row: int) -> float:
        """How far rounding may move what a row adds, beyond a tie."""
        items = {name: int(self._items[name][row]) for name in self._spectral}
        return sum(term.rounding(items[name]) for name, term in self._spectral.items())

    def _rises_of_all(self, term: SpectralTerm, items: np.ndarray) -> np.ndarray:
        """What each of some items adds, each distinct item once."""
        distinct, index = np.unique(items, return_inverse=True)
        parts = []
        for start in range(0, distinct.size, _LARGEST_BATCH):
            gains = term.gains(distinct[start : start + _LARGEST_BATCH])
            parts.append(term.rises(gains))
        return np.concatenate(parts)[index]


def _subset_at(order: float) -> _NewSubset:
    if order == 2:
        return _AtOrder2
    return partial(_AtOtherOrders, order=order)
