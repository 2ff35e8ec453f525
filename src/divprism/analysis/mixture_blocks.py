"""The connected parts of a mixture at order 1: entropies, slopes and curvatures of its weights.

A part has points phi_i with masses w_i, and the state rho = sum w_i phi_i phi_i'. Its entropy is
that of the matrix W^(1/2) K W^(1/2), or of the moment F' W F where the kernel has few features F.
"""

from abc import ABC, abstractmethod

import numpy as np

from divprism.analysis.model_states import ModelStates
from divprism.core.arrays import plain_mode, to_numpy
from divprism.core.kernels import Categorical
from divprism.core.operators import Operator, dense

__all__ = [
    "SMALL_BLOCK",
    "Block",
    "FeatureBlock",
    "KernelBlock",
    "block_of",
    "feature_width",
    "landmark_block",
]

SMALL_BLOCK = 3000
"""Points up to which a kernel matrix is kept, and features up to which they replace it."""

_CHUNK = 256  # eigenvectors whose products with all others are held together
_CLOSE = 1e-7  # relative difference of eigenvalues that count as equal in a divided difference


class Block(ABC):
    """A connected part of the points of a mixture."""

    def __init__(self) -> None:
        self._points = np.zeros(0, int)
        self._values = np.zeros(0)
        self._coordinates = np.zeros((0, 0))

    @abstractmethod
    def entropy(self, masses: np.ndarray) -> float:
        """-tr rho log rho; masses may be zero."""

    @abstractmethod
    def slopes(self, masses: np.ndarray) -> tuple[float, np.ndarray]:
        """The entropy, and -<phi_i, log rho phi_i> of each point (zero of points without mass)."""

    def curvature(self, by_model: np.ndarray) -> np.ndarray:
        """The second derivatives of the entropy in the weights, at the masses of `slopes` before.

        Entry (l, m) is -sum_jk f_jk <v_j, rho_l v_k> <v_j, rho_m v_k> over eigenvectors v_j of rho,
        with f_jk the divided difference of the logarithm at the eigenvalues j and k.

        Parameters
        ----------
        by_model : ndarray, shape (m, points)
            The mass of each point in each model.
        """
        # Of each model only its own points, as long as the copies take no more than the original:
        # of models that share most of their points, they would take many times as much.
        parts, copied = [], 0
        for masses in by_model[:, self._points]:
            own = np.flatnonzero(masses)
            copied += own.size
            if copied <= self._points.size:
                parts.append((self._coordinates[own], masses[own]))
            else:
                parts.append((self._coordinates, masses))
        curvature = np.zeros((len(parts), len(parts)))
        for start in range(0, self._values.size, _CHUNK):
            chunk = slice(start, start + _CHUNK)
            products = []
            for coordinates, masses in parts:
                weighted = coordinates[:, chunk] * masses[:, None]
                products.append(weighted.T @ coordinates[:, start:])
            factors = _divided_logarithms(self._values[chunk], self._values[start:])
            # Each pair of different chunks stands for its mirror image too.
            factors[:, _CHUNK:] *= 2
            flat = np.stack(products).reshape(len(parts), -1)
            curvature -= (flat * factors.ravel()) @ flat.T
        self.forget()
        return curvature

    def forget(self) -> None:
        """Free what `curvature` needs: a matrix of the size of the spectrum."""
        self._keep(np.zeros(0, int), np.zeros(0), np.zeros((0, 0)))

    def _keep(self, points: np.ndarray, values: np.ndarray, coordinates: np.ndarray) -> None:
        """Keep eigenvalues, and the coordinates <v_k, phi_i> of some points, for `curvature`."""
        self._points, self._values, self._coordinates = points, values, coordinates


class KernelBlock(Block):
    """A part by its kernel matrix: O(n^3) for each spectrum of n points.

    Up to 3,000 points the kernel matrix is kept, beyond it is computed again for each spectrum.
    """

    def __init__(self, states: ModelStates, rows: np.ndarray) -> None:
        super().__init__()
        self.states = states
        self.rows = rows
        self.kernel: np.ndarray | None = None
        if rows.size <= SMALL_BLOCK:
            self.kernel = self._kernel(np.arange(rows.size))

    def _kernel(self, points: np.ndarray) -> np.ndarray:
        """The kernel matrix of some of the points."""
        with plain_mode():
            operator = _operator(self.states, self.rows[points])
            matrix = np.asarray(to_numpy(next(dense([operator]))), np.float64)
        matrix *= points.size  # the operator has equal masses
        return matrix

    def _matrix(self, points: np.ndarray, masses: np.ndarray) -> np.ndarray:
        """W^(1/2) K W^(1/2) of some of the points, which the caller may overwrite."""
        if self.kernel is not None:
            matrix = self.kernel[np.ix_(points, points)]
        else:
            matrix = self._kernel(points)
        roots = np.sqrt(masses[points])
        matrix *= roots[:, None]
        matrix *= roots[None, :]
        return matrix

    def entropy(self, masses: np.ndarray) -> float:
        """-tr rho log rho; masses may be zero."""
        points = np.flatnonzero(masses > 0)
        values = np.linalg.eigvalsh(self._matrix(points, masses))
        return float(_entropy_terms(values).sum())

    def slopes(self, masses: np.ndarray) -> tuple[float, np.ndarray]:
        """The entropy, and -<phi_i, log rho phi_i> of each point."""
        self.forget()
        points = np.flatnonzero(masses > 0)
        values, vectors = _eigenvectors(self._matrix(points, masses))
        terms = _entropy_terms(values)
        slopes = np.zeros(masses.size)
        slopes[points] = np.einsum("ik,ik,k->i", vectors, vectors, terms) / masses[points]
        # <v_k, phi_i> = l_k^(1/2) v_ik / w_i^(1/2), in place.
        vectors *= np.sqrt(np.maximum(values, 0.0))[None, :]
        vectors /= np.sqrt(masses[points])[:, None]
        self._keep(points, values, vectors)
        return float(terms.sum()), slopes


class FeatureBlock(Block):
    """A part by features of its points: O(n D^2 + D^3) for each spectrum of n points."""

    def __init__(self, features: np.ndarray) -> None:
        super().__init__()
        self.features = features

    def _moment(self, masses: np.ndarray) -> np.ndarray:
        return (self.features * masses[:, None]).T @ self.features

    def entropy(self, masses: np.ndarray) -> float:
        """-tr rho log rho; masses may be zero."""
        return float(_entropy_terms(np.linalg.eigvalsh(self._moment(masses))).sum())

    def slopes(self, masses: np.ndarray) -> tuple[float, np.ndarray]:
        """The entropy, and -<phi_i, log rho phi_i> of each point."""
        values, vectors = np.linalg.eigh(self._moment(masses))
        coordinates = self.features @ vectors
        # Points have no part in the eigenvectors of eigenvalues that are zero up to rounding.
        logarithms = np.log(np.maximum(values, np.finfo(np.float64).tiny))
        slopes = -np.einsum("ik,ik,k->i", coordinates, coordinates, logarithms)
        self._keep(np.arange(masses.size), values, coordinates)
        return float(_entropy_terms(values).sum()), np.where(masses > 0, slopes, 0.0)


def feature_width(states: ModelStates, rows: np.ndarray) -> int | None:
    """The number of features of connected rows, if these are cheaper than their kernel matrix."""
    width = _operator(states, rows).feature_dimension
    if width is None or width >= rows.size or width > SMALL_BLOCK:
        return None
    return width


def block_of(states: ModelStates, rows: np.ndarray) -> Block:
    """The block of some rows of the problem that are distinct and connected, by the cheaper way."""
    if feature_width(states, rows) is None:
        return KernelBlock(states, rows)
    with plain_mode():
        given = _operator(states, rows).features(slice(0, rows.size))
    features = np.asarray(to_numpy(given), np.float64)
    # Points are unit vectors: this divides out the masses, and the rounding of single precision.
    return FeatureBlock(features / np.linalg.norm(features, axis=1)[:, None])


def landmark_block(states: ModelStates, rows: np.ndarray, chosen: np.ndarray) -> FeatureBlock:
    """A block by the projections of its points onto some of them, which are never longer than one.

    `chosen` are indices into `rows`. Memory O(n k) for k chosen points.
    """
    operator = _operator(states, rows)
    with plain_mode():
        columns = np.asarray(to_numpy(operator.columns(chosen)(slice(0, rows.size))), np.float64)
    values, vectors = np.linalg.eigh(columns[chosen])
    kept = values > _CLOSE * values[-1]
    return FeatureBlock(columns @ (vectors[:, kept] / np.sqrt(values[kept])))


def _operator(states: ModelStates, rows: np.ndarray) -> Operator:
    """The operator of distinct rows, which are sorted by code as its points are."""
    operator = states.state(rows)
    if isinstance(operator.right.kernel, Categorical):
        # Rows that are connected have one prompt, so there is a single part: that of the outputs.
        [part] = operator.parts()
        return part
    return operator


def _eigenvectors(matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Eigenvalues and eigenvectors of a symmetric matrix, which may be overwritten."""
    if len(matrix) <= SMALL_BLOCK:
        return np.linalg.eigh(matrix)
    from scipy.linalg import eigh

    # As fast as the default, which holds two matrices more. LAPACK overwrites columns, so the
    # transpose, which is the same matrix, saves a copy.
    return eigh(matrix.T, driver="evr", overwrite_a=True, check_finite=False)


def _entropy_terms(eigenvalues: np.ndarray) -> np.ndarray:
    """-l log l of each eigenvalue, and zero of those that rounding made negative."""
    positive = np.maximum(eigenvalues, np.finfo(np.float64).tiny)
    return np.where(eigenvalues > 0, -eigenvalues * np.log(positive), 0.0)


def _divided_logarithms(some: np.ndarray, others: np.ndarray) -> np.ndarray:
    """(log a - log b) / (a - b) for each pair, and zero if one of them is zero up to rounding."""
    least = np.finfo(np.float64).eps * others.size * float(others.max(initial=0.0))
    left, right = np.maximum(some, least)[:, None], np.maximum(others, least)[None, :]
    difference, total = left - right, left + right
    close = np.abs(difference) <= _CLOSE * total
    divided = np.log(left / right) / np.where(close, 1.0, difference)
    divided = np.where(close, 2 / total, divided)
    return np.where((left > least) & (right > least), divided, 0.0)
