"""What an item adds to a subset: exact marginal gains, and upper bounds that cost less.

For a subset S of m items with kernel matrix K_S (unit diagonal), the entropy of K_S / m is

    H_1 = log m + F(S) / m          with F(S) = -tr K_S log K_S          at order 1,
    H_2 = 2 log m - log G(S)        with G(S) = |K_S|^2 (Frobenius)      at order 2,

so that of subsets of one size the one with the largest F, or the least G, has the highest score.

Order 2. Adding i changes G by 1 + 2 c_i with c_i = sum over j in S of K_ij^2. These sums are kept
for all items; a new member adds the squares of its kernel column. O(n d) per step, no matrix.

Order 1. Let K_S = U diag(l) U', z = U' K[S, i]. The bordered matrix A = K_{S + i} and
A_0 = diag(K_S, 1) have the same trace, and x log x = integral over s > 0 of
(x - 1) / (1 + s) + log(1 + s) - log(x + s) up to terms in the trace. So

    F(S + i) - F(S) = integral_0^inf log( det(A + s) / det(A_0 + s) ) ds
                    = integral_0^inf log( 1 - q(s) / (1 + s) ) ds,   q(s) = sum_j z_j^2 / (l_j + s)

by the Schur complement of the corner. With s = e^u the integrand is analytic within pi of the real
axis (all zeros and poles are at negative s), so the trapezoidal rule with step h errs by about
exp(-2 pi^2 / h), 6e-14 at h = 0.65. For all candidates this is two matrix products.

Bounds. F is submodular, since S -> tr f(K_S) is supermodular wherever f' is operator monotone
(Friedland and Gaubert, 2013, Linear Algebra and its Applications 438) and the derivative of x log x
is: what an item added to a smaller subset bounds what it adds now. And 1 / (l + s) is convex in l,
so that q(s) >= c / (mu + s) with c = sum z_j^2 = c_i and any mu from the mean of l under z^2 to the
largest eigenvalue: the gain is at most that of the matrix [[mu, sqrt c], [sqrt c, 1]], which has
two eigenvalues in closed form. It is always fresh and costs O(1) per item.
"""

from abc import ABC, abstractmethod

import numpy as np

from divprism.analysis.selection.similarities import Similarities

__all__ = ["SpectralTerm", "SquaresTerm", "Term", "neg_entropy_trace"]

_STEP = 0.65
_NODES = np.exp(np.arange(-34.0, 34.0, _STEP))
_WIDTHS = _STEP * _NODES  # ds = s du

# q / (1 + s) is below one; for copies of members rounding may take it there.
_MOST = 1 - 1e-16

# Rounding of a gain, or of a bound on it: candidates that differ by less are equally good.
_SLACK = 1e-10

_MOST_FEATURES = 1 << 27  # numbers in the features of all items, a gigabyte

_GROWTH = 64  # rows that a kernel matrix has room for at first; doubled when they are used up


def neg_entropy_trace(eigenvalues: np.ndarray) -> float:
    """-sum l log l of eigenvalues; those that rounding took below zero count as zero.

    >>> neg_entropy_trace(np.array([1.0, 1.0, 0.0]))
    0.0
    """
    positive = eigenvalues[eigenvalues > 0]
    return -float(positive @ np.log(positive)) + 0.0


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
    """Order 1: F(S) from the eigenvalues of K_S, or of the features where these are fewer.

    Attributes
    ----------
    total : float
        F(S) = -tr K_S log K_S.
    latest : ndarray
        For each item the gain that was computed last, an upper bound of the one now.
    """

    def __init__(self, similarities: Similarities, num_steps: int) -> None:
        super().__init__(similarities)
        self.total = 0.0
        self.latest = np.zeros(similarities.size)
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
        self.total = neg_entropy_trace(self._values)

    def entropy(self) -> float:
        """log m + F(S) / m."""
        m = self.num_members
        return float(np.log(m)) + self.total / m

    def gains(self, items: np.ndarray) -> np.ndarray:
        """F(S + i) - F(S) for some items, exact to rounding. O(m^2) each."""
        if not self._members:
            return np.zeros(items.size)
        squares = self._squared_projections(items)
        q = squares.T @ (1.0 / (self._values[:, None] + _NODES))
        q /= 1.0 + _NODES
        logs = np.log1p(-np.minimum(q, _MOST, out=q))
        gains = np.minimum(logs @ _WIDTHS, 0.0)
        self.latest[items] = gains
        return np.asarray(gains)

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
        """An upper bound of the gain of each item: the latest gain, and that of a 2 x 2 matrix."""
        if not self._members:
            return np.zeros(self.coupling.size)
        largest = self._values[-1]
        root = np.sqrt((1 - largest) ** 2 + 4 * self.coupling)
        upper = 0.5 * (1 + largest + root)
        # By the determinant, without cancellation; at most rounding below zero.
        lower = np.maximum((largest - self.coupling) / upper, 0.0)
        fresh = largest * np.log(largest) - upper * np.log(upper)
        fresh -= lower * np.log(np.maximum(lower, np.finfo(float).tiny))
        return np.minimum(self.latest, fresh + _SLACK)
