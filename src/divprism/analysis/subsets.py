"""Nested subsets of growing size: the ladder of sizes, and the pairs of each subset.

A repeat is one random order of the units, and its subsets are the first m units of that order.
Further stretches of the same order are used too. Halves, thirds and so on partition the data, so
most of the noise of a single subset cancels in their mean.
"""

import math
from collections.abc import Sequence

import numpy as np

from divprism.errors import ArgumentError, DataError
from divprism.estimators.base import whole_number

__all__ = ["ladder_of_sizes", "nested_subsets", "thinned_subsets"]

# From twelve units on the default ladder has the three sizes that fitting a law takes.
_FEWEST = 12  # units below which no curve can be read
_STEPS_EACH = 8  # outputs per prompt up to which a ladder has a step for each number of them
_STRETCHES = 8  # largest number of stretches of an order that are used for a size
_SPAN = 64  # ratio between the ends of the default ladder
_ROUNDING = 1e-9  # of positions in an order

Subsets = list[list[list[np.ndarray]]]
"""For each repeat, each size but the last, and each stretch of the order: rows of pairs."""


def ladder_of_sizes(
    sizes: Sequence[int] | None, total: int, noun: str, num_prompts: int = 0
) -> np.ndarray:
    """Increasing sizes that end with all units.

    With `num_prompts` the units are outputs under that many prompts, and every size holds at least
    one output of each. `noun` names the units in messages.
    """
    if total < _FEWEST:
        way_out = ""
        if noun == "prompts":
            way_out = " Resample pairs (`unit=pair`)."
        raise DataError(f"a curve needs at least {_FEWEST} {noun}; there are {total:,}.{way_out}")
    usual = _default_ladder(total, num_prompts)
    if sizes is None:
        return usual
    given = [whole_number(size, "sizes", 2) for size in sizes]
    if any(size > total for size in given):
        raise ArgumentError(f"`sizes` go up to {max(given):,}, but there are {total:,} {noun}.")
    ladder = np.unique([*given, total])
    # The sizes of a result, fed back, are accepted even where the checks below would refuse them.
    if np.array_equal(ladder, usual):
        return ladder
    if ladder[0] < num_prompts:
        raise ArgumentError(
            f"`sizes` must leave at least one output of each of {num_prompts:,} prompts; "
            f"got {given}."
        )
    # Verdicts compare the last two doublings, so a curve has to begin at a quarter or below.
    most = max(total // 4, num_prompts)
    if ladder.size < 4 or ladder[0] > most:
        raise ArgumentError(
            f"`sizes` must name at least 3 sizes below all {total:,} {noun}, the smallest at most "
            f"{most:,}; got {given}."
        )
    return ladder


def _default_ladder(total: int, num_prompts: int) -> np.ndarray:
    """All units, a half, and on by factors of sqrt(2); of few outputs per prompt every number."""
    if not num_prompts:
        sizes = _halving(total, total / 4)
        return np.unique([*np.round(sizes).astype(int), total])
    each = total / num_prompts
    counts = np.round(_halving(each, each))  # whole outputs of each prompt
    if each <= _STEPS_EACH:
        # Halving few outputs and rounding would repeat the same numbers and skip others.
        counts = np.arange(1, math.ceil(each))
    return np.unique([*np.round(counts * num_prompts).astype(int), total])


def _halving(whole: float, longest_span: float) -> np.ndarray:
    """A half of something, and on by factors of sqrt(2) over at most a given span."""
    # The small term keeps rounding from losing the last step of an exact power of two.
    steps = int(2 * math.log2(min(_SPAN, longest_span)) + 1e-9)
    return whole * 2.0 ** (-np.arange(2, steps + 1) / 2)


def nested_subsets(units: np.ndarray, ladder: np.ndarray, num_repeats: int, seed: int) -> Subsets:
    """The pairs of the first units of random orders, and of further stretches of these orders.

    The stretches have the same size and are spread evenly over the order. Where they partition all
    units, a sum over units has the mean that it has on all data, without noise.
    """
    rng = np.random.default_rng(seed)
    total = int(units.max()) + 1
    subsets = []
    for _ in range(num_repeats):
        # All pairs of a unit share its rank: a prompt enters a subset with all its outputs.
        rank = rng.permutation(total)[units]
        repeat = []
        for size in ladder[:-1].tolist():
            starts = np.linspace(0, total - size, _num_stretches(total, size)).astype(int)
            stretches = []
            for start in starts:
                stretches.append(np.flatnonzero((rank >= start) & (rank < start + size)))
            repeat.append(stretches)
        subsets.append(repeat)
    return subsets


def thinned_subsets(
    prompts: np.ndarray, ladder: np.ndarray, num_repeats: int, seed: int
) -> Subsets:
    """`nested_subsets` of outputs under the same prompts.

    A subset holds a similar share of the outputs of every prompt, at least one: stretches of a
    random order of the outputs of each.
    """
    rng = np.random.default_rng(seed)
    total = prompts.size
    subsets = []
    for _ in range(num_repeats):
        position = _positions_within(prompts, rng)
        repeat = []
        for size in ladder[:-1].tolist():
            starts = np.linspace(0, 1 - size / total, _num_stretches(total, size))
            stretches = []
            for start in starts:
                stretches.append(_stretch(prompts, position, start, start + size / total))
            repeat.append(stretches)
        subsets.append(repeat)
    return subsets


def _num_stretches(total: int, size: int) -> int:
    return min(_STRETCHES, math.ceil(total / size))


def _positions_within(prompts: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Position of each output in a random order of the outputs of its prompt, from 0 to 1."""
    counts = np.bincount(prompts)
    by_prompt = rng.permutation(prompts.size)
    by_prompt = by_prompt[np.argsort(prompts[by_prompt], kind="stable")]
    firsts = np.repeat(np.cumsum(counts) - counts, counts)
    rank = np.empty(prompts.size)
    rank[by_prompt] = np.arange(prompts.size) - firsts
    # Midpoints, so that a stretch of the share k / m holds k of m outputs wherever it starts.
    return np.asarray((rank + 0.5) / counts[prompts])


def _stretch(prompts: np.ndarray, position: np.ndarray, start: float, end: float) -> np.ndarray:
    """Outputs whose position lies in a stretch; of a prompt that has none there, the nearest."""
    is_inside = (position >= start - _ROUNDING) & (position < end - _ROUNDING)
    counts = np.bincount(prompts[is_inside], minlength=int(prompts.max()) + 1)
    for prompt in np.flatnonzero(counts == 0):
        members = np.flatnonzero(prompts == prompt)
        distances = np.abs(position[members] - (start + end) / 2)
        is_inside[members[np.argmin(distances)]] = True
    return np.flatnonzero(is_inside)
