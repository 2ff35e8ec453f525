"""What chance makes of a difference: the modes of samples that are exchanged at random."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from divprism.analysis.differences.states import States

__all__ = ["Chance", "total_of"]

_TESTED = 200  # widest directions in which exchanged samples are compared
_TESTED_ENTRIES = 1 << 25  # and their features: of many points, fewer directions
_STEPS_WHILE = 0.1  # p-value up to which a mode counts as real when the next ones are tested
_UNASKED = 0.02  # the same for a side of which no p-values are given; more would lower the others
_ROUNDING = 1e-9  # eigenvalues of samples with the same items differ by no more


@dataclass(frozen=True, eq=False)
class Chance:
    """The difference, given and after exchanges, in the widest directions of all points.

    Exchanges leave the points where they are, so the directions are the same for all of them, and
    what is compared in these has the same distribution if the samples come from one model.

    Attributes
    ----------
    given : ndarray
        Eigenvalues of the given difference in these directions.
    exchanged : ndarray, shape (number of exchanges, rank, rank)
        The differences after exchanges, in the coordinates of the given eigenvectors.
    """

    given: np.ndarray
    exchanged: np.ndarray

    @cached_property
    def all_values(self) -> np.ndarray:
        """All eigenvalues of each exchange, a row each."""
        return np.array([np.linalg.eigvalsh(matrix) for matrix in self.exchanged])

    @classmethod
    def of(cls, states: States, weights: np.ndarray, exchanges: Sequence[np.ndarray]) -> "Chance":
        """The difference of the given weights of rows, and of the sides of each exchange."""
        if not exchanges:
            return cls(np.zeros(0), np.zeros((0, 0, 0)))
        features = states.basis.leading(min(_TESTED, 1 + _TESTED_ENTRIES // states.basis.size))
        masses = states.on_points(weights)
        values, vectors = np.linalg.eigh((features * masses[:, None]).T @ features)
        features = features @ vectors
        differences = []
        for side in exchanges:
            masses = states.on_points(states.weights(side))
            differences.append((features * masses[:, None]).T @ features)
        return cls(values, np.array(differences))

    def p_of_total(self, *, is_symmetric: bool) -> float | None:
        """Share of exchanges with at least the given total (see `total_of`)."""
        if not len(self.exchanged):
            return None
        given = float(total_of(self.given, is_symmetric=is_symmetric))
        return _share_above(given, total_of(self.all_values, is_symmetric=is_symmetric))

    def p_of_modes(
        self, signs: Sequence[int], count: int, *, is_symmetric: bool
    ) -> dict[int, list[float | None]]:
        """For each side the p-values of its largest modes: exchanges with any mode as large.

        Step by step: a mode that is real makes the exchanges differ more in its direction, and
        would hide smaller ones. So its direction is left out when the next ones are tested. No
        p-value is below that of a larger mode.
        """
        if not len(self.exchanged):
            return {sign: [None] * count for sign in signs}
        found: dict[int, list[float | None]] = {sign: [] for sign in signs}
        left = np.ones(self.given.size, dtype=bool)
        drawn = self._largest(left, signs, is_symmetric)
        # The sides of a ratio other than 1 have different scales and are tested apart.
        times = 1 if is_symmetric else len(signs)
        so_far = 0.0
        for number in np.argsort(-np.abs(self.given), kind="stable"):
            value = float(self.given[number])
            sign = -1 if value < 0 else 1
            share = min(1.0, times * _share_above(abs(value), drawn[sign]))
            next_p = max(so_far, share)
            if sign in signs:
                found[sign].append(next_p)
            elif next_p > _UNASKED:
                # The side that is not asked for: a direction that may be chance stays, because
                # exchanges are large in it by chance too.
                continue
            so_far = next_p
            if min(map(len, found.values())) >= count:
                break
            if so_far <= _STEPS_WHILE and np.count_nonzero(left) > 1:
                left[number] = False
                drawn = self._largest(left, signs, is_symmetric)
        # Fewer directions than modes: what is left of these is too small to be tested.
        return {sign: values + [1.0] * count for sign, values in found.items()}

    def _largest(
        self, left: np.ndarray, signs: Sequence[int], is_symmetric: bool
    ) -> dict[int, np.ndarray]:
        """For each side the largest eigenvalue of each exchange, in the directions that are left.

        With `is_symmetric` the largest of both sides.
        """
        values = self._eigenvalues(left)
        largest = {sign: (sign * values).max(axis=1) for sign in (1, -1)}
        if is_symmetric and len(signs) > 1:
            both = np.abs(values).max(axis=1)
            return dict.fromkeys((1, -1), both)
        return largest

    def _eigenvalues(self, left: np.ndarray) -> np.ndarray:
        """All eigenvalues of each exchange, in the given directions that are left."""
        kept = np.flatnonzero(left)
        if kept.size == left.size:
            return self.all_values
        parts = self.exchanged[:, kept[:, None], kept[None, :]]
        return np.array([np.linalg.eigvalsh(part) for part in parts])


def total_of(values: np.ndarray, *, is_symmetric: bool) -> np.ndarray:
    """The sum of the positive eigenvalues in each row; with `is_symmetric` of either sign.

    Both sums are equal where all directions are seen. Where some are left out, both are too small,
    and the larger one is nearer to the truth, whichever sample is called the first.
    """
    positive = np.maximum(values, 0).sum(axis=-1)
    if not is_symmetric:
        return np.asarray(positive)
    return np.asarray(np.maximum(positive, np.maximum(-values, 0).sum(axis=-1)))


def _share_above(given: float, drawn: np.ndarray) -> float:
    """Share of the values, the given one included, that are at least the given one."""
    at_least = np.count_nonzero(drawn >= given - _ROUNDING)
    return float(1 + at_least) / (1 + drawn.size)
