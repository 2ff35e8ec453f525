"""`truncation="auto"`: a number of eigenvalues chosen from the data.

The score that is tested is Conditional-Vendi of order 1, or Vendi where there are no prompts. It
grows with the number of pairs, the slower the fewer eigenvalues are kept. So the pairs are halved,
and t is the largest number of eigenvalues at which both halves score nearly as much as all pairs.
Which pairs go to which half is decided by their content: no seed and no order of rows matters.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from divprism.core.arrays import (
    Array,
    content_hashes,
    distinct_rows,
    eigvalsh,
    scrambled,
    single_hashes,
    to_numpy,
)
from divprism.core.entropy import renyi_entropy
from divprism.core.kernels import Categorical, Precomputed
from divprism.core.operators import KernelOperator
from divprism.core.spectrum import Spectrum
from divprism.engines import one_blas_thread

__all__ = ["LEVEL", "TruncationRange", "truncation_range"]

LEVEL = 0.9
"""Kept eigenvalues that count as this share of their number are nearly equal, and say little."""

MAX_PAIRS = 2000
"""Pairs that are looked at; of more, some that are chosen by their content.

The share of the eigenvalues that they ask for is then kept of all: the papers' bounds on the error
of a truncated score depend on t / n, but for logarithms.
"""

# A prompt keeps at least this number of outputs, so that what is diverse inside it stays so.
_OUTPUTS = 25

# A score settles at t where half of the pairs have at least this share less of it.
_TOLERANCE = 0.02

# Numbers of eigenvalues are tried from the largest down, each this share of the one before.
_STEP = 0.97

# Times that pairs learn what is in the groups of the pairs in their groups.
_ROUNDS = 2

Spectra = dict[str, Spectrum]
"""The spectra of the outputs ("x") and, with prompts, of these ("t") and of the pairs ("joint")."""


@dataclass(frozen=True)
class TruncationRange:
    """What the data say about the number of eigenvalues to keep.

    Attributes
    ----------
    lowest : int
        Below it, those kept are nearly equal and say little.
    highest : int
        Above it, the score has not settled.
    """

    lowest: int
    highest: int

    @property
    def number(self) -> int:
        """The number to keep: the highest, unless that says too little."""
        return max(self.lowest, self.highest)


def truncation_range(
    operators: Mapping[str, KernelOperator], data: Mapping[str, Array], weights: np.ndarray
) -> TruncationRange:
    """The range for operators of the sides "x" and perhaps "t", and the data they were made of.

    O(min(n, MAX_PAIRS)^3).
    """
    n = weights.size
    hashes = _hashes(operators, data, weights)
    chosen = np.arange(n)
    if n > MAX_PAIRS:
        chosen = _chosen_pairs(hashes, operators.get("t"))
    order = chosen[np.argsort(hashes[chosen], kind="stable")]
    tables = _tables(operators, order)
    masses = weights[order]
    every = np.arange(order.size)
    # Alternate pairs: equal ones, which are neighbours in this order, are in both halves.
    halves = [every[0::2], every[1::2]]
    with one_blas_thread():
        whole = _spectra(tables, masses, every)
        parts = [_spectra(tables, masses, half) for half in halves if half.size]
    found = (_lowest(whole, order.size), _highest(whole, parts, order.size))
    # The same share of all eigenvalues, rounded up in integers: floats might add one more.
    lowest, highest = (-(-number * n // order.size) for number in found)
    return TruncationRange(lowest, highest)


def _chosen_pairs(hashes: np.ndarray, prompts: KernelOperator | None) -> np.ndarray:
    """At most `MAX_PAIRS` pairs: those of the prompts with the smallest hashes.

    Whole prompts, because pairs chosen one by one would hardly have a prompt in common; but of
    prompts with many outputs, those with the smallest hashes.
    """
    if prompts is None:
        return np.argsort(hashes, kind="stable")[:MAX_PAIRS]
    codes = prompts.index
    counts = np.bincount(codes)
    by_prompt = np.lexsort((hashes, codes))
    # The number of each pair among those of its prompt, by their hashes.
    ranks = np.empty(codes.size, int)
    ranks[by_prompt] = np.arange(codes.size) - np.repeat(np.cumsum(counts) - counts, counts)
    kept = np.flatnonzero(ranks < max(_OUTPUTS, MAX_PAIRS // counts.size))
    of_prompts = _sums(codes, hashes)[codes]
    return kept[np.lexsort((hashes[kept], of_prompts[kept]))][:MAX_PAIRS]


def _highest(whole: Spectra, parts: list[Spectra], size: int) -> int:
    """The largest number at which the halves score as much as all pairs, within the tolerance."""
    number = size
    while number > 1:
        of_halves = float(np.mean([_log_score(part, number) for part in parts]))
        if _log_score(whole, number) - of_halves <= _TOLERANCE:
            break
        # At least one fewer: below 17 the rounded share is the number itself.
        number = min(number - 1, round(_STEP * number))
    return number


def _lowest(whole: Spectra, size: int) -> int:
    """The least number that keeps less than `LEVEL` of what the same number of equal ones has."""
    number = 1
    while 2 * number <= size and _level(whole, number) >= LEVEL:
        number = max(number + 1, round(number / _STEP))
    # The warning ends where most eigenvalues are kept.
    return min(number, size // 2 + 1)


def _log_score(spectra: Spectra, truncation: int) -> float:
    """Logarithm of Conditional-Vendi, or of Vendi without prompts."""
    if "joint" not in spectra:
        return renyi_entropy(spectra["x"], 1.0, truncation)
    joint = renyi_entropy(spectra["joint"], 1.0, truncation)
    return joint - renyi_entropy(spectra["t"], 1.0, truncation)


def _level(spectra: Spectra, truncation: int) -> float:
    entropies = [
        renyi_entropy(spectra[name], 1.0, truncation) for name in ("x", "joint") if name in spectra
    ]
    return math.exp(max(entropies)) / truncation


def _tables(operators: Mapping[str, KernelOperator], pairs: np.ndarray) -> dict[str, np.ndarray]:
    """The kernel values between some pairs, by side."""
    tables = {}
    for name, operator in operators.items():
        points, index = np.unique(operator.index[pairs], return_inverse=True)
        table = to_numpy(operator.sample(points, double=True).table())
        tables[name] = np.asarray(table, np.float64)[np.ix_(index, index)]
    return tables


def _spectra(tables: Mapping[str, np.ndarray], masses: np.ndarray, rows: np.ndarray) -> Spectra:
    """The spectra of some of the pairs, under their share of the masses."""
    kept = {name: table[np.ix_(rows, rows)] for name, table in tables.items()}
    if "t" in kept:
        kept["joint"] = kept["x"] * kept["t"]
    roots = np.sqrt(masses[rows] / masses[rows].sum())
    spectra = {}
    for name, table in kept.items():
        eigenvalues = eigvalsh(table * np.outer(roots, roots))
        spectra[name] = Spectrum.from_eigenvalues(eigenvalues, noise=0.0, method="exact")
    return spectra


def _hashes(
    operators: Mapping[str, KernelOperator], data: Mapping[str, Array], weights: np.ndarray
) -> np.ndarray:
    """A hash of each pair by its content, which no order of rows changes."""
    # The bits of the weights, so that pairs of different weights differ.
    hashes = weights.view(np.uint64)
    groups = []
    for name, operator in operators.items():
        if isinstance(operator.kernel, Categorical):
            groups.append(operator.index)
            continue
        hashes = scrambled(scrambled(hashes) + _row_hashes(operator, data[name]))
        if isinstance(operator.kernel, Precomputed):
            # Sorted rows do not tell items apart that are alike from others like them.
            groups.append(distinct_rows(np.asarray(to_numpy(data[name])))[1])
    # A group of all pairs says nothing about any.
    groups = [codes for codes in groups if codes.max() > 0]
    # Groups are known by their members: names must not matter, nor the numbers for them.
    for _ in range(_ROUNDS):
        for codes in groups:
            hashes = scrambled(scrambled(hashes) + _sums(codes, hashes)[codes])
    # Groups with equal members can be exchanged. They are kept apart, or their pairs would be dealt
    # to the halves in the order of rows.
    for codes in groups:
        ranks = _ranks_of_equal(_sums(codes, hashes), codes)[codes]
        hashes = scrambled(scrambled(hashes) + ranks)
    return hashes


def _ranks_of_equal(sums: np.ndarray, codes: np.ndarray) -> np.ndarray:
    """For each group its number among those with the same hash, in order of appearance."""
    present, first = np.unique(codes, return_index=True)
    appearance = np.full(sums.size, codes.size)
    appearance[present] = first
    order = np.lexsort((appearance, sums))
    # Where a run of equal hashes begins.
    is_new = np.append(True, np.diff(sums[order].view(np.int64)) != 0)
    starts = np.flatnonzero(is_new)[np.cumsum(is_new) - 1]
    ranks = np.empty(sums.size, np.uint64)
    ranks[order] = np.arange(sums.size) - starts
    return ranks


def _sums(codes: np.ndarray, hashes: np.ndarray) -> np.ndarray:
    """For each code a hash of its members; integers wrap around, so their order is irrelevant."""
    sums = np.zeros(int(codes.max()) + 1, np.uint64)
    np.add.at(sums, codes, scrambled(hashes))
    return sums


def _row_hashes(operator: KernelOperator, data: Array) -> np.ndarray:
    if isinstance(operator.kernel, Precomputed):
        # Sorted, because the columns of a kernel matrix are in the order of its rows.
        return content_hashes(np.sort(np.asarray(to_numpy(data), np.float64), axis=1))
    hashes, single = content_hashes(data), single_hashes(data)
    # Digits beyond single precision, which text files may lose, count only where rows need them.
    if np.unique(single).size == np.unique(hashes).size:
        return single
    return hashes
