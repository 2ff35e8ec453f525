"""Traces of functions of a kernel matrix, and how one more item changes them.

Of a subset of m items with kernel matrix K (unit diagonal), the entropy of K / m is a function of m
and of one number, which it grows with:

    order q:         F = (tr K^q - m) / (1 - q),   H = log m + log(1 + (1 - q) F / m) / (1 - q),
    order 1, limit:  F = -tr K log K,              H = log m + F / m,
    order infinity:  F = -largest eigenvalue,      H = log m - log(-F).

An item adds a row b to K. With K = U diag(l) U' and z = U' b, the bordered matrix A and
A_0 = diag(K, 1) have the same trace, F(A_0) = F(K), and by the Schur complement of the corner

    L(s) = log( det(A + s) / det(A_0 + s) ) = log( 1 - q(s) / (1 + s) ),
    q(s) = sum_j z_j^2 / (l_j + s).

**Orders in (0, 2).** x^q is an integral of log(x + s) over s > 0 (for q > 1 up to a linear term,
which the traces cancel), so that the gain is

    F(A) - F(K) = sinc(1 - q) q * integral_0^inf s^(q - 1) L(s) ds,    sinc(x) = sin(pi x) / (pi x),

at order 1 the integral of L. With s = e^u the integrand is analytic within pi of the real axis (all
zeros and poles are at negative s), so the trapezoidal rule with step h errs by about
exp(-2 pi^2 / h), 6e-14 at h = 0.65. Below the first node L is constant and above the last one
it falls as 1 / s^2, so the rest of the sum is two geometric series. The weights are positive and L
is submodular, so F is too: what an item added to a smaller subset bounds what it adds now.
(Equivalently: S -> tr f(K_S) is supermodular where f' is operator monotone, Friedland and Gaubert,
2013, Linear Algebra and its Applications 438.)
A bound in O(1): 1 / (l + s) is convex in l, so q(s) >= c / (mu + s) with c = sum z_j^2 and any mu
from the mean of l under z^2 to the largest eigenvalue. So the gain is at most that of the matrix
[[mu, sqrt c], [sqrt c, 1]], whose two eigenvalues have a closed form.

**Finite orders above 2.** The integral diverges. Cauchy's formula for f(x) = x^q on a circle around
all eigenvalues, of radius R and cut at the negative axis, gives

    tr A^q - tr A_0^q = sin(pi q) q / pi * integral_0^R s^(q - 1) L(s) ds
                        - R^q q / pi * Re integral_0^pi e^(i q theta) L(-R e^(i theta)) dtheta,

both smooth: Gauss-Legendre rules. x^(q - 1) is not operator monotone, and F is not submodular. For
integer q it is where all similarities are at least 0: tr K^q is then a sum of products of them.
A bound for any kernel: tr A^q - tr A_0^q = q (q - 1) * integral x^(q - 2) X(x) dx with X >= 0,
because the eigenvalues of A majorise those of A_0. Its moments at q = 2 and 3 are c and
(c + b'Kb) / 2, and K >= bb' gives b'Kb >= c^2. So by Jensen the change is at least
q (q - 1) c ((1 + c) / 2)^(q - 2) for q >= 3. For q in [2, 3] it is at least
(1 + c)^q - c^q - 1, the change where K = bb', because x^(q - 1) is operator convex there.

**Order infinity.** The largest eigenvalue of A is at least 1 + c, and the largest root of
x - 1 - sum z_j^2 / (x - l_j), which is looked for by halving an interval.
"""

import itertools
import math
from abc import ABC, abstractmethod

import numpy as np

__all__ = ["LARGEST_ORDER", "SMALLEST_ORDER", "Trace", "neg_entropy_trace", "trace_of_order"]

SMALLEST_ORDER, LARGEST_ORDER = 0.1, 16.0
"""Finite orders between these have gains that are exact to rounding."""

_STEP = 0.65
_NODES = np.exp(np.arange(-34.0, 34.0, _STEP))

# q / (1 + s) is below one; for copies of members rounding may take it there.
_MOST = 1 - 1e-16

# Rounding of a gain, or of a bound on it: candidates that differ by less are equally good.
_SLACK = 1e-10

_EPS = float(np.finfo(np.float64).eps)
_TINY = float(np.finfo(np.float64).tiny)

# Orders above 2: radius over the largest eigenvalue. A larger one takes fewer nodes, and loses more
# digits: the integrals are of size radius^order, and what is left of them is smaller.
_RADIUS = 1.5
_ON_CIRCLE = np.polynomial.legendre.leggauss(64)
_IN_PANEL = np.polynomial.legendre.leggauss(16)
_PANEL = 4.0  # width of a panel in log s
_REACH = 40.0  # e^-40 of the integral along the cut is left out

_HALVINGS = 56  # of the interval that the largest eigenvalue of the bordered matrix is in


def neg_entropy_trace(eigenvalues: np.ndarray) -> float:
    """-sum l log l of eigenvalues; those that rounding took below zero count as zero.

    >>> neg_entropy_trace(np.array([1.0, 1.0, 0.0]))
    0.0
    """
    positive = eigenvalues[eigenvalues > 0]
    return -float(positive @ np.log(positive)) + 0.0


class Trace(ABC):
    """The number F of a kernel matrix at one order; gains are changes of it, at most zero.

    Attributes
    ----------
    order : float
        The order of the entropy.
    """

    def __init__(self, order: float) -> None:
        self.order = order

    def is_submodular(self, nonnegative: bool) -> bool:
        """Whether a gain is never larger for a larger subset, if similarities are at least 0."""
        return self.order < 2 or (nonnegative and float(self.order).is_integer())

    def total(self, eigenvalues: np.ndarray) -> float:
        """F, from the eigenvalues of K."""
        if self.order == 1:
            return neg_entropy_trace(eigenvalues)
        floor = 0.0
        if self.order < 1:
            # Zeros that rounding has moved count here as if they were eigenvalues.
            floor = eigenvalues.size * _EPS * float(eigenvalues[-1])
        positive = eigenvalues[eigenvalues > floor]
        # x^q - x without cancellation near order 1; the eigenvalues sum to m.
        powers = positive * np.expm1((self.order - 1) * np.log(positive))
        return float(powers.sum()) / (1 - self.order)

    def entropy(self, total: float, size: int) -> float:
        """The entropy of K / m, from F and m."""
        if self.order == 1:
            return math.log(size) + total / size
        rest = 1 - self.order
        return math.log(size) + math.log1p(rest * total / size) / rest

    def rises(self, gains: np.ndarray, total: float, size: int) -> np.ndarray:
        """m + 1 times what gains change in the entropy of m + 1 items: at order 1 the gains."""
        if self.order == 1:
            return gains
        rest = 1 - self.order
        return np.asarray((size + 1) / rest * np.log1p(rest * gains / (size + 1 + rest * total)))

    def largest_fall(self, error: float, total: float, size: int) -> float:
        """m + 1 times how far the entropy of m + 1 items may fall if F is wrong by an error."""
        if error == 0:
            return 0.0
        rest = 1 - self.order
        share = rest * error / (size + 1 + rest * total)
        # Entropies are from 0 to log(m + 1). The error may exceed all that the eigenvalues have:
        # of copies at the lowest orders nothing is left but rounding.
        most = (size + 1) * math.log(size + 1)
        if share >= 1:
            return most
        return min(most, -(size + 1) / rest * math.log1p(-share))

    def rounding(self, eigenvalues: np.ndarray, squares: np.ndarray) -> float:
        """How far rounding may move F, or the gain of an item, beyond what counts as a tie.

        `squares` are those of the item, or none. Small eigenvalues count almost as fully as all
        others at orders below 1, and rounding of the kernel moves each of them.
        """
        if self.order >= 1:
            return 0.0
        error = _EPS * float(eigenvalues[-1])
        smallest = np.maximum(eigenvalues, error)
        if squares.size:
            # The Schur complement of the corner is at least the smallest eigenvalue with the item.
            rest = 1 - float((squares / smallest).sum())
            smallest = np.append(smallest, max(rest, error))
        slopes = smallest ** (self.order - 1)
        return -math.log(_EPS) * error * float(slopes.sum())

    @abstractmethod
    def gains(self, eigenvalues: np.ndarray, squares: np.ndarray) -> np.ndarray:
        """F(A) - F(K) for each column z^2 of `squares`. O(m) each."""

    @abstractmethod
    def bounds(self, largest: float, coupling: np.ndarray) -> np.ndarray:
        """Upper bounds of gains from the largest eigenvalue and from c = sum z^2."""


class _BelowTwo(Trace):
    """Orders in (0, 2): an integral of logarithms of determinants."""

    def __init__(self, order: float) -> None:
        super().__init__(order)
        weights = _STEP * _NODES**order  # s^(q - 1) ds = s^q du
        weights[0] /= -math.expm1(-order * _STEP)
        weights[-1] /= -math.expm1(-(2 - order) * _STEP)
        factor = order * float(np.sinc(1 - order))
        self._weights = factor * weights
        # For copies, L falls further below the first node: what the bound may leave out of it.
        self._slack = max(_SLACK, factor * float(_NODES[0]) ** order / order**2)

    def gains(self, eigenvalues: np.ndarray, squares: np.ndarray) -> np.ndarray:
        q = squares.T @ (1.0 / (eigenvalues[:, None] + _NODES))
        q /= 1.0 + _NODES
        logs = np.log1p(-np.minimum(q, _MOST, out=q))
        return np.asarray(np.minimum(logs @ self._weights, 0.0))

    def bounds(self, largest: float, coupling: np.ndarray) -> np.ndarray:
        upper = _largest_of_two(largest, coupling)
        # By the determinant, without cancellation; at most rounding below zero.
        lower = np.maximum((largest - coupling) / upper, 0.0)
        fresh = self._scalar(upper) + self._scalar(lower) - self._scalar(np.array(largest))
        return np.asarray(fresh + self._slack)

    def _scalar(self, x: np.ndarray) -> np.ndarray:
        """F of a matrix with one row that is x, up to a linear term."""
        logs = np.log(np.maximum(x, _TINY))
        if self.order == 1:
            return np.asarray(-x * logs)
        return np.asarray(x * np.expm1((self.order - 1) * logs) / (1 - self.order))


class _AboveTwo(Trace):
    """Finite orders above 2: Cauchy's formula on a circle that is cut at the negative axis."""

    def gains(self, eigenvalues: np.ndarray, squares: np.ndarray) -> np.ndarray:
        order, largest = self.order, float(eigenvalues[-1])
        # The largest eigenvalue of any of the bordered matrices is at most that of a 2 x 2 one.
        radius = _RADIUS * float(_largest_of_two(largest, squares.sum(axis=0)).max())

        angles, weights = _gauss_legendre(_ON_CIRCLE, 0.0, math.pi)
        points = radius * np.exp(1j * angles)
        q = squares.T @ (1.0 / (points - eigenvalues[:, None]))
        logs = np.log1p(-q / (points - 1))
        changes = (logs @ (weights * np.exp(1j * order * angles))).real
        changes *= -order / math.pi * radius**order

        exponents, weights = _panels(_REACH / order)
        points = radius * np.exp(exponents)
        q = squares.T @ (1.0 / (points + eigenvalues[:, None]))
        logs = np.log1p(-np.minimum(q / (1 + points), _MOST))
        sine = math.sin(math.pi * math.fmod(order, 2))
        changes += order / math.pi * sine * (logs @ (weights * points**order))
        return np.asarray(np.minimum(changes / (1 - order), 0.0))

    def bounds(self, largest: float, coupling: np.ndarray) -> np.ndarray:
        order = self.order
        if order <= 3:
            change = (1 + coupling) ** order - coupling**order - 1
        else:
            change = order * (order - 1) * coupling * (0.5 * (1 + coupling)) ** (order - 2)
        # Relative to powers of the largest eigenvalue, whose rounding the gains have.
        slack = _SLACK * largest**order
        return np.asarray((change - slack) / (1 - order))


class _Infinite(Trace):
    """Order infinity: the largest eigenvalue."""

    def is_submodular(self, nonnegative: bool) -> bool:
        return False

    def total(self, eigenvalues: np.ndarray) -> float:
        return -float(eigenvalues[-1])

    def entropy(self, total: float, size: int) -> float:
        return math.log(size) - math.log(-total)

    def rises(self, gains: np.ndarray, total: float, size: int) -> np.ndarray:
        return np.asarray(-(size + 1) * np.log1p(gains / total))

    def gains(self, eigenvalues: np.ndarray, squares: np.ndarray) -> np.ndarray:
        largest = float(eigenvalues[-1])
        low = np.zeros(squares.shape[1])
        high = _largest_of_two(largest, squares.sum(axis=0)) - largest
        for _ in range(_HALVINGS):
            middle = 0.5 * (low + high)
            # Middles are above zero, so that no difference is below it.
            gaps = np.maximum(largest - eigenvalues[:, None] + middle, _TINY)
            is_low = largest + middle - 1 < (squares / gaps).sum(axis=0)
            low = np.where(is_low, middle, low)
            high = np.where(is_low, high, middle)
        return -low

    def bounds(self, largest: float, coupling: np.ndarray) -> np.ndarray:
        return np.asarray(_SLACK - np.maximum(1 + coupling - largest, 0.0))


def _largest_of_two(corner: float, coupling: np.ndarray) -> np.ndarray:
    """The largest eigenvalue of [[corner, sqrt c], [sqrt c, 1]]."""
    root = np.sqrt((1 - corner) ** 2 + 4 * coupling)
    return np.asarray(0.5 * (1 + corner + root))


def _gauss_legendre(
    rule: tuple[np.ndarray, np.ndarray], low: float, high: float
) -> tuple[np.ndarray, np.ndarray]:
    """Nodes and weights on an interval."""
    half = 0.5 * (high - low)
    return low + half * (rule[0] + 1), half * rule[1]


def _panels(reach: float) -> tuple[np.ndarray, np.ndarray]:
    """Nodes and weights on [-reach, 0] in panels."""
    cuts = np.linspace(-reach, 0.0, math.ceil(reach / _PANEL) + 1)
    nodes, weights = [], []
    for low, high in itertools.pairwise(cuts.tolist()):
        points, shares = _gauss_legendre(_IN_PANEL, low, high)
        nodes.append(points)
        weights.append(shares)
    return np.concatenate(nodes), np.concatenate(weights)


def trace_of_order(order: float) -> Trace:
    """How the entropy of an order other than 2 is computed."""
    if math.isinf(order):
        return _Infinite(order)
    if order > 2:
        return _AboveTwo(order)
    return _BelowTwo(order)
