"""The choice itself: group by group, with the scores that it is compared with."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from divprism.analysis.content_order import prompts_of, side_hashes
from divprism.analysis.selection.greedy import Pool, choose
from divprism.analysis.selection.near_duplicates import without_near_copies
from divprism.analysis.selection.request import Request, Rows
from divprism.analysis.selection.scoring import (
    NUM_DRAWS,
    RandomSubsets,
    log_score,
    random_log_scores,
)
from divprism.analysis.selection.similarities import Similarities
from divprism.core.arrays import scrambled
from divprism.data.inputs import as_arrays
from divprism.data.items import Item, Text
from divprism.data.samples import Samples
from divprism.engines import Resources
from divprism.errors import DataError
from divprism.scores.problem import Problem

__all__ = ["MOST_OF_ALL", "Choice", "exact_prompts"]

MOST_OF_ALL = 10_000
"""Outputs up to which the score of all of them is computed beside that of the subset."""

_MOST_RANDOM = 3000  # outputs of a random subset that is scored
_MOST_DENSE = 3000  # outputs of a group whose score at order 1 is computed from a whole matrix


@dataclass(frozen=True, eq=False)
class _Group:
    """One group that outputs are chosen from."""

    positions: np.ndarray


@dataclass(frozen=True, eq=False)
class _ByContent:
    """Hashes of the content, which settle ties and order groups.

    Attributes
    ----------
    pairs, prompts : ndarray of uint64
        Of each output with its prompt, and of the prompt alone (of the output without prompts).
    """

    pairs: np.ndarray
    prompts: np.ndarray

    @classmethod
    def of(cls, problem: Problem, embedded: Samples) -> "_ByContent":
        """The hashes of what a problem was posed with. They do not depend on other rows."""
        rows = np.arange(problem.n)
        outputs = side_hashes(embedded.outputs, problem.x, rows)
        if problem.t is None:
            return cls(scrambled(outputs), outputs)
        prompts = side_hashes(prompts_of(embedded), problem.t, rows)
        return cls(scrambled(scrambled(prompts) + outputs), prompts)

    def ranks(self, items: Samples, quality: np.ndarray | None) -> np.ndarray:
        """The position of each output in the order by content.

        Equal pairs are ordered from the highest quality down, and then by their models and by the
        texts or files behind equal vectors.
        """
        if quality is None:
            quality = np.zeros(self.pairs.size)
        order = np.lexsort((-quality, self.pairs))
        ranks = np.empty(order.size, int)
        ranks[order] = np.arange(order.size)
        if not _are_named(items):
            return ranks
        # Runs of equal hashes and qualities in the sorted order.
        is_new = (np.diff(self.pairs[order]) != 0) | (np.diff(quality[order]) != 0)
        cuts = np.flatnonzero(is_new) + 1
        for members in np.split(order, cuts):
            if members.size > 1:
                own = np.sort(ranks[members])
                ranks[sorted(members.tolist(), key=lambda row: _name_of(items, row))] = own
        return ranks

    def groups(self, problem: Problem, items: Samples, per: str | None) -> list[_Group]:
        """The groups that outputs are chosen from, in an order that does not depend on rows."""
        if per is None:
            return [_Group(np.arange(problem.n))]
        if per == "model":
            models = np.array(items.models, dtype=object)
            return [_Group(np.flatnonzero(models == name)) for name in sorted(set(models))]
        prompts = exact_prompts(problem, items)
        by_prompt = np.argsort(prompts, kind="stable")
        parts = np.split(by_prompt, np.flatnonzero(np.diff(prompts[by_prompt])) + 1)
        # Texts that share a vector stay in the order of the texts, which their numbers have.
        parts.sort(key=lambda part: int(self.prompts[part].min()))
        return [_Group(part) for part in parts]


def exact_prompts(problem: Problem, items: Samples) -> np.ndarray:
    """A number for each distinct prompt: texts that share a vector are different prompts."""
    assert problem.t is not None
    prompts = items.prompts
    if isinstance(prompts, tuple) and all(isinstance(prompt, Text) for prompt in prompts):
        texts = np.array([prompt.label for prompt in prompts], dtype=object)
        return np.unique(texts, return_inverse=True)[1]
    return problem.t.index


def _are_named(items: Samples) -> bool:
    return items.models is not None or isinstance(items.outputs, tuple)


def _name_of(items: Samples, row: int) -> tuple[str, str]:
    model, label = "", ""
    if items.models is not None:
        model = items.models[row]
    output = items.outputs[row]
    if isinstance(output, Item):
        label = output.label
    return model, label


@dataclass(frozen=True, eq=False)
class Choice:
    """What was chosen, group by group, and what it is compared with.

    Attributes
    ----------
    positions : list of int
        Outputs in order of choice.
    scores, gains : list of float
        After each choice, in its group.
    log_subset, log_all : float or None
        Mean over groups of the logarithm of the score of what was chosen, and of all outputs.
    random : RandomSubsets or None
        The same of random subsets.
    num_near_copies : int or None
        Outputs dropped as near-copies.
    num_small : int
        Groups with fewer outputs than were asked for.
    sizes : tuple of int
        Outputs chosen in each group.
    """

    positions: list[int]
    scores: list[float]
    gains: list[float]
    log_subset: float | None
    log_all: float | None
    random: RandomSubsets | None
    num_near_copies: int | None
    num_small: int
    sizes: tuple[int, ...]

    @classmethod
    def of(
        cls,
        problem: Problem,
        embedded: Samples,
        request: Request,
        rows: Rows,
        resources: Resources,
    ) -> "Choice":
        """Choose outputs of a problem; `embedded` is what it was posed with."""
        by_content = _ByContent.of(problem, as_arrays(embedded))
        given = embedded.given or embedded
        ranks = by_content.ranks(given, rows.quality)
        groups = by_content.groups(problem, given, request.per)
        results = []
        rng = np.random.default_rng(problem.settings.rng)
        what = f"choosing from {problem.n:,} outputs"
        resources.report_progress(what, 0.0)
        total = sum(_aim(request, group.positions.size) for group in groups)
        progress = _Progress(resources, what, total)
        for group in groups:
            candidates = _Candidates.of(group, problem, request, rows, ranks)
            results.append(_choose_in(candidates, problem, request, rng, progress))
        resources.report_progress(what, 1.0)
        filled = [result for result in results if result.rows.size]
        if not filled:
            raise DataError("no output is left to choose from: `drop` names all of them.")
        small = 0
        if request.k is not None:
            small = sum(result.rows.size < request.k for result in results)
        copies = None
        if request.threshold is not None:
            copies = sum(result.num_near_copies for result in results)
        random = None
        of_random = [result.random for result in filled if result.random is not None]
        if len(of_random) == len(filled):
            random = RandomSubsets.of(np.mean(of_random, axis=0))
        return cls(
            positions=[int(row) for result in filled for row in result.rows],
            scores=[score for result in filled for score in result.scores],
            gains=[gain for result in filled for gain in result.gains],
            log_subset=_mean(result.log_subset for result in filled),
            log_all=_mean(result.log_all for result in filled),
            random=random,
            num_near_copies=copies,
            num_small=small,
            sizes=tuple(result.rows.size for result in filled),
        )


def _mean(values: Iterable[float | None]) -> float | None:
    """The mean of numbers; None if one of them is."""
    known = []
    for value in values:
        if value is None:
            return None
        known.append(value)
    return math.fsum(known) / len(known)


def _aim(request: Request, available: int) -> int:
    if request.k is None:
        return available
    return min(request.k, available)


class _Progress:
    """Reports of the share of outputs that have been chosen, at most a hundred of them."""

    def __init__(self, resources: Resources, text: str, total: int) -> None:
        self._resources = resources
        self._text = text
        self._total = total
        self._done = 0

    def step(self) -> None:
        """Count one more."""
        self._done += 1
        if self._done % max(1, self._total // 100) == 0 and self._done < self._total:
            self._resources.report_progress(self._text, self._done / self._total)


@dataclass(frozen=True, eq=False)
class _Result:
    """What was chosen in one group; `random` holds the logarithms of random scores."""

    rows: np.ndarray
    scores: list[float]
    gains: list[float]
    log_subset: float | None
    log_all: float | None
    random: np.ndarray | None
    num_near_copies: int


@dataclass(frozen=True, eq=False)
class _Candidates:
    """The outputs of one group, numbered within it.

    Attributes
    ----------
    positions : ndarray of int
        Their positions among all outputs.
    similarities : dict of Similarities
        By operator of the score.
    ranks, quality : ndarray, ndarray or None
        Their order by content, and their quality.
    first, others : ndarray of int
        Those that must be chosen, and those that may be, in the order of content.
    """

    positions: np.ndarray
    similarities: dict[str, Similarities]
    ranks: np.ndarray
    quality: np.ndarray | None
    first: np.ndarray
    others: np.ndarray

    @classmethod
    def of(
        cls, group: _Group, problem: Problem, request: Request, rows: Rows, ranks: np.ndarray
    ) -> "_Candidates":
        """The candidates of a group."""
        own = group.positions
        similarities: dict[str, Similarities] = {}
        for name in request.spec.terms:
            operator = problem.operator(name)
            assert operator is not None
            similarities[name] = Similarities.of(operator, own)
        quality = None
        if rows.quality is not None:
            quality = rows.quality[own]
        by_content = np.argsort(ranks[own], kind="stable")
        is_first = np.isin(own, rows.keep)[by_content]
        is_open = ~np.isin(own, rows.drop)[by_content] & ~is_first
        first = by_content[is_first]
        request.require_room(first.size)
        return cls(own, similarities, ranks[own], quality, first, by_content[is_open])

    def without_near_copies(self, problem: Problem, threshold: float) -> "_Candidates":
        """The candidates with one of each group of near-copies among `others`, or none."""
        outputs = self.similarities.get("x") or Similarities.of(problem.x, self.positions)
        preferred = self.others
        if self.quality is not None:
            # Stable: those of equal quality stay in the order of content.
            preferred = preferred[np.argsort(-self.quality[preferred], kind="stable")]
        visited = np.concatenate([self.first, preferred])
        left = without_near_copies(outputs, visited, threshold, self.first.size)
        return replace(self, others=left[self.first.size :])

    @property
    def everything(self) -> np.ndarray:
        """What must and what may be chosen, in the order of content."""
        both = np.concatenate([self.first, self.others])
        return both[np.argsort(self.ranks[both], kind="stable")]

    def choose(
        self, terms: Mapping[str, int], order: float, k: int, step: Callable[[], None]
    ) -> tuple[np.ndarray, list[float]]:
        """Up to k candidates, greedily, and the logarithm of the score after each choice."""
        is_open = np.zeros(self.positions.size, bool)
        is_open[self.others] = True
        first = tuple(self.first.tolist())
        quality = self.quality
        if quality is not None and quality.any():
            # Their scale changes no choice, and sums of huge or tiny numbers are not exact.
            quality = quality / quality.max()
        pool = Pool(self.similarities, self.ranks, quality, is_open, first)
        chosen = choose(pool, terms, order, k, step=step)
        return np.array(chosen.rows, dtype=int), chosen.log_scores


def _choose_in(
    candidates: _Candidates,
    problem: Problem,
    request: Request,
    rng: np.random.Generator,
    progress: _Progress,
) -> _Result:
    """Choose outputs of one group."""
    left = candidates
    if request.threshold is not None:
        left = candidates.without_near_copies(problem, request.threshold)
    terms, order = request.spec.terms, request.order
    measured = _Measured(candidates.similarities, terms, order)
    if request.k is None:
        chosen, log_scores = np.sort(left.everything), list[float]()
        log_subset = measured.of(chosen)
    else:
        chosen, log_scores = left.choose(terms, order, request.k, progress.step)
        log_subset = log_scores[-1] if log_scores else None
    log_all = None
    if request.per is not None:  # all outputs together are scored by an estimator
        log_all = measured.of(np.arange(candidates.positions.size))
    scores = [math.exp(value) for value in log_scores]
    return _Result(
        rows=candidates.positions[chosen],
        scores=scores,
        gains=np.diff([0.0, *scores]).tolist(),
        log_subset=log_subset,
        log_all=log_all,
        # By content, so that random subsets do not depend on the order of rows either.
        random=measured.of_random(candidates.everything, chosen.size, rng),
        num_near_copies=candidates.others.size - left.others.size,
    )


@dataclass(frozen=True, eq=False)
class _Measured:
    """The score of rows of one group, where it takes no longer than the selection."""

    similarities: Mapping[str, Similarities]
    terms: Mapping[str, int]
    order: float

    def of(self, rows: np.ndarray) -> float | None:
        """The logarithm of the score; None for too many rows, or none."""
        if rows.size == 0:
            return None
        most = _MOST_DENSE
        if self.order == 2:
            most = MOST_OF_ALL
        if rows.size > most:
            return None
        return log_score(self.similarities, self.terms, self.order, rows)

    def of_random(
        self, candidates: np.ndarray, size: int, rng: np.random.Generator
    ) -> np.ndarray | None:
        """The logarithms of the scores of random subsets; None for too many rows, or none."""
        if not 0 < size <= _MOST_RANDOM:
            return None
        draws = list(_draws(candidates, size, rng))
        return random_log_scores(self.similarities, self.terms, self.order, draws)


def _draws(candidates: np.ndarray, size: int, rng: np.random.Generator) -> Iterator[np.ndarray]:
    for _ in range(NUM_DRAWS):
        yield rng.permutation(candidates)[:size]
