"""The completions of a step of training, by prompt, and what each adds to its group."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from divprism.core.entropy import matrix_entropy
from divprism.core.kernels import Kernel
from divprism.integrations._gathering import gathered

__all__ = ["Batch", "Group", "hash_table"]

_HASH_COLUMNS = 2  # 16 bytes, as two integers


@dataclass(frozen=True, eq=False)
class Batch:
    """Completions as tables, one row each: their prompts, texts, masses and vectors."""

    groups: np.ndarray
    copies: np.ndarray
    masses: np.ndarray
    vectors: np.ndarray

    def of_all_processes(self) -> tuple["Batch", int]:
        """The completions of all processes, and the index of the first own one."""
        hashes, start = gathered(np.hstack([self.groups, self.copies]))
        numbers, _ = gathered(np.hstack([self.masses[:, None], self.vectors]))
        groups, copies = hashes[:, :_HASH_COLUMNS], hashes[:, _HASH_COLUMNS:]
        return Batch(groups, copies, numbers[:, 0], numbers[:, 1:]), start

    def group(self, indices: list[int], kernel: Kernel) -> "Group":
        """The completions of one prompt, those without mass left out."""
        masses: dict[tuple[int, ...], Counter[float]] = {}
        texts: dict[int, tuple[int, ...]] = {}
        first: dict[tuple[int, ...], int] = {}
        for index in indices:
            if self.masses[index] > 0:
                text = tuple(self.copies[index].tolist())
                texts[index] = text
                first.setdefault(text, index)
                masses.setdefault(text, Counter())[float(self.masses[index])] += 1
        # Sorted by content, so that not a single bit depends on the order of completions.
        distinct = sorted(masses)
        matrix = np.zeros((0, 0))
        if distinct:
            rows = self.vectors[[first[text] for text in distinct]]
            points = kernel.points(kernel.clean(rows, "completions"), np.float64, "completions")
            matrix = np.array(kernel.block(points, points))
            np.fill_diagonal(matrix, 1.0)
        return Group(
            matrix,
            [masses[text] for text in distinct],
            {index: distinct.index(text) for index, text in texts.items()},
            {index: float(self.masses[index]) for index in texts},
        )


@dataclass(frozen=True, eq=False)
class Group:
    """The distinct completions of a prompt.

    Attributes
    ----------
    matrix : ndarray
        Kernel values between them.
    masses : list of Counter
        The masses of the copies of each, and how often each mass occurs.
    position, mass : dict
        By the index of a completion: which of the distinct ones it is, and its own mass.
    """

    matrix: np.ndarray
    masses: list[Counter[float]]
    position: dict[int, int]
    mass: dict[int, float]

    def score(self, order: float) -> float:
        """The effective number of distinct completions; 0 if there are none."""
        return self._score_of(_totals(self.masses), order)

    def gains(self, order: float) -> dict[int, float]:
        """By completion: the score less that without it, which is in [-1, 1].

        The masses of the others count as at least its own.
        """
        # Nothing to differ from: the gain is 0, as where all completions are the same.
        if len(self.position) < 2:
            return dict.fromkeys(self.position, 0.0)
        known: dict[tuple[int, float], float] = {}
        gains = {}
        for index, position in self.position.items():
            key = position, self.mass[index]
            if key not in known:
                known[key] = self._gain(*key, order)
            gains[index] = known[key]
        return gains

    def _gain(self, position: int, mass: float, order: float) -> float:
        """What a completion of this text and mass adds to the score."""
        # With its own masses, one good completion among poor ones would dominate the score, and
        # lower it just because the others are worse. No share is larger than that of any other,
        # so a completion unlike all others never has a gain below 0, nor below that of a worse one.
        raised = [_at_least(masses, mass) for masses in self.masses]
        score = self._score_of(_totals(raised), order)
        # One copy of this mass there is: the completion itself.
        raised[position] = raised[position] - Counter([mass])
        gain = score - self._score_of(_totals(raised), order)
        # At most 1 on paper: with one more item the score is V + 1 at the highest, where that is
        # unlike all others and has the share 1 / (V + 1) (Hoelder's inequality).
        return min(max(gain, -1.0), 1.0)

    def _score_of(self, totals: np.ndarray, order: float) -> float:
        if not totals.any():
            return 0.0
        return math.exp(matrix_entropy(self.matrix, totals, order))


def _at_least(masses: Counter[float], lowest: float) -> Counter[float]:
    """Masses, those below the lowest raised to it."""
    raised: Counter[float] = Counter()
    for mass, count in masses.items():
        raised[max(mass, lowest)] += count
    return raised


def _totals(masses: Sequence[Counter[float]]) -> np.ndarray:
    # Each sum is rounded once, so it does not depend on the order of the masses.
    return np.array([math.fsum(each.elements()) for each in masses])


def hash_table(digests: list[bytes]) -> np.ndarray:
    """Hashes as rows of integers, which processes can exchange."""
    return np.frombuffer(b"".join(digests), np.int64).reshape(len(digests), _HASH_COLUMNS)
