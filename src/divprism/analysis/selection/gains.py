"""What an item adds to a subset: exact marginal gains, and upper bounds that cost less.

For a subset S of m items with kernel matrix K_S (unit diagonal), the entropy of K_S / m is

    H_1 = log m + F(S) / m          with F(S) = -tr K_S log K_S          at order 1,
    H_2 = 2 log m - log G(S)        with G(S) = |K_S|^2 (Frobenius)      at order 2,

and at other orders grows with a similar F(S), so that of subsets of one size the one with the
largest F, or the least G, has the highest score.

Order 2. Adding i changes G by 1 + 2 c_i with c_i = sum over j in S of K_ij^2. These sums are kept
for all items; a new member adds the squares of its kernel column. O(n d) per step, no matrix.

Other orders. F(S) is of the eigenvalues l of K_S = U diag(l) U', and what i adds to it depends on
these and on the squares of z = U' K[S, i] alone: see `traces`, which has the formulas and upper
bounds of them that take c_i and O(1) per item.
"""

from abc import ABC, abstractmethod

import numpy as np

from divprism.analysis.selection.similarities import Similarities
from divprism.analysis.selection.traces import Trace

__all__ = ["SpectralTerm", "SquaresTerm", "Term"]

_MOST_FEATURES = 1 << 27  # numbers in the features of all items, a gigabyte

_GROWTH = 64  # rows that a kernel matrix has room for at first; doubled when they are used up


class Term(ABC):
    """One entropy of the subset, as members are added.

    Attributes
    ----------
    similarities : Similarities
        The kernel between the candidates.
    coupling : ndarray
        For each item c_i, the sum of its squared similarities to the members.
    num_members : int
        Members so far.
    """

    def __init__(self, similarities: Similarities) -> None:
        self.similarities = similarities
        self.coupling = np.zeros(similarities.size)
        self.num_members = 0

    def add(self, item: int) -> None:
        """Add an item to the subset."""
        column = self.similarities.column(item)
        self._extend(item, column)
        self.coupling += column * column
        self.num_members += 1

    @abstractmethod
    def _extend(self, item: int, column: np.ndarray) -> None:
        """Update the entropy by an item with this kernel column; `coupling` is still the old."""

    @abstractmethod
    def entropy(self) -> float:
        """The entropy of the kernel matrix of the members over their number."""


class SquaresTerm(Term):
    """Order 2: the squared Frobenius norm."""

    def __init__(self, similarities: Similarities) -> None:
        super().__init__(similarities)
        self.total = 0.0

    def _extend(self, item: int, column: np.ndarray) -> None:
        self.total += 1.0 + 2.0 * float(self.coupling[item])

    def entropy(self) -> float:
        """2 log m - log G(S)."""
        return 2 * float(np.log(self.num_members)) - float(np.log(self.total))

    def entropies_with(self) -> np.ndarray:
        """For each item, the entropy of the subset with it."""
        totals = self.total + 1.0 + 2.0 * self.coupling
        return np.asarray(2 * np.log(self.num_members + 1) - np.log(totals))


class SpectralTerm(Term):
    """Another order: F(S) from the eigenvalues of K_S, or of the features where these are fewer.

    Attributes
    ----------
    trace : Trace
        What F is at the order.
    total : float
        F(S).
    latest : ndarray
        For each item the gain that was computed last, where it is an upper bound of the one now.
    """

    def __init__(self, similarities: Similarities, num_steps: int, trace: Trace) -> None:
        super().__init__(similarities)
        self.trace = trace
        self.total = 0.0
        self.latest = np.zeros(similarities.size)
        self._nonnegative = True
        self._members: list[int] = []
        self._matrix = np.zeros((_GROWTH, _GROWTH))
        self._values = np.zeros(0)
        self._vectors = np.zeros((0, 0))
        features = similarities.num_features
        # From that many members on, the matrix of the features is the smaller one.
        self._switch = num_steps + 1
        if features is not None and features * similarities.size <= _MOST_FEATURES:
            self._switch = features
        self._features: np.ndarray | None = None

    def _extend(self, item: int, column: np.ndarray) -> None:
        m = len(self._members)
        if self._features is None:
            if m == self._matrix.shape[0]:
                larger = np.zeros((2 * m, 2 * m))
                larger[:m, :m] = self._matrix
                self._matrix = larger
            self._matrix[m, :m] = self._matrix[:m, m] = column[self._members]
            self._matrix[m, m] = 1.0
        self._members.append(item)
        self._nonnegative = self._nonnegative and bool(column.min() >= 0)
        if not self.trace.is_submodular(self._nonnegative):
            self.latest[:] = 0.0
        if self._features is None and m + 1 >= self._switch:
            self._features = self.similarities.features(np.arange(self.similarities.size))
            own = self._features[self._members]
            self._matrix = own.T @ own
        elif self._features is not None:
            own = self._features[item]
            self._matrix += np.outer(own, own)
        self._solve()

    def _solve(self) -> None:
        size = len(self._members)
        if self._features is not None:
            size = self._matrix.shape[0]
        values, self._vectors = np.linalg.eigh(self._matrix[:size, :size])
        self._values = np.maximum(values, 0.0)
        self.total = self.trace.total(self._values)

    def entropy(self) -> float:
        """The entropy of K_S / m."""
        return self.trace.entropy(self.total, self.num_members)

    def rounding(self, item: int | None = None) -> float:
        """How far rounding may move the entropy m times, or what an item adds, beyond a tie."""
        if not self._members:
            return 0.0
        squares = np.zeros(0)
        if item is not None and self.trace.order < 1:
            squares = self._squared_projections(np.array([item]))[:, 0]
        error = self.trace.rounding(self._values, squares)
        return self.trace.largest_fall(error, self.total, self.num_members)

    def rises(self, gains: np.ndarray) -> np.ndarray:
        """m + 1 times what gains change in the entropy of m + 1 items."""
        if not self._members:
            return gains
        return self.trace.rises(gains, self.total, self.num_members)

    def gains(self, items: np.ndarray) -> np.ndarray:
        """F(S + i) - F(S) for some items, exact to rounding. O(m^2) each."""
        if not self._members:
            return np.zeros(items.size)
        gains = self.trace.gains(self._values, self._squared_projections(items))
        self.latest[items] = gains
        return gains

    def _squared_projections(self, items: np.ndarray) -> np.ndarray:
        """z_j^2 for each eigenvalue and each of some items."""
        if self._features is not None:
            # K_S = Phi Phi' and C = Phi' Phi = V diag(l) V': U' Phi = diag(sqrt l) V'.
            projections = self._vectors.T @ self._features[items].T
            return np.asarray(self._values[:, None] * projections * projections)
        block = self.similarities.block(np.array(self._members), items)
        projections = self._vectors.T @ block.astype(np.float64, copy=False)
        return np.asarray(projections * projections)

    def bounds(self) -> np.ndarray:
        """An upper bound of the gain of each item: the latest one, and one from c_i."""
        if not self._members:
            return np.zeros(self.coupling.size)
        fresh = self.trace.bounds(float(self._values[-1]), self.coupling)
        return np.minimum(self.latest, fresh)
