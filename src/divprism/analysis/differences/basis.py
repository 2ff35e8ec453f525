"""Features of the points of an operator: the space in which two samples are compared.

phi_i . phi_j = k(i, j). In the coordinates of the span of all points the difference of two states
is an ordinary matrix, F' D F, with the features as rows of F and signed masses D. Up to some
thousand points the features are exact; of more points, they are what some landmarks see of them.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from divprism.core.arrays import to_numpy
from divprism.core.operators import Operator, dense, matrix_noise
from divprism.core.spectrum import spectral_floor
from divprism.core.tiles import row_blocks
from divprism.engines import Resources

__all__ = ["Basis", "first_points"]

_EXACT = 4000  # points up to which all directions are kept
_LANDMARKS = 1000
_BLOCK_ENTRIES = 1 << 22  # features held at a time: 32 MB
_NO_WIDTH = 1e-14  # of the widest direction: what rounding leaves of one without mass
_LARGEST_NOISE = 1e-10  # more is the rounding of data in half precision, which keeps its modes
_WAY_OUT = "take a part of the data"


@dataclass(frozen=True, eq=False)
class Basis:
    """Features of the points of an operator in orthogonal directions, the widest first.

    Attributes
    ----------
    size : int
        Number of points.
    rank : int
        Number of directions.
    unseen : float
        Share of the features, by the masses that were given, that lies outside of the directions;
        0 where it is exact.
    coordinates : callable
        slice -> what the features of some points are made from, shape (len(rows), any).
    maps : ndarray of shape (any, rank), or None
        Coordinates times `maps` are features; None where coordinates are features.
    """

    size: int
    rank: int
    unseen: float
    coordinates: Callable[[slice], np.ndarray]
    maps: np.ndarray | None = None

    @classmethod
    def of(
        cls,
        operator: Operator,
        masses: np.ndarray,
        landmarks: np.ndarray | None,
        resources: Resources,
    ) -> "Basis":
        """The features of all points, or what they have in common with some landmarks.

        `masses` are those of the points that are compared. Directions that only others have, such
        as real data beside two models, are left out.
        """
        if landmarks is None:
            return _exact(operator, masses, resources)
        return _from_landmarks(operator, masses, landmarks, resources)

    @staticmethod
    def needs_landmarks(size: int) -> bool:
        """Whether there are too many points for exact features."""
        return size > _EXACT

    def blocks(self) -> Iterator[tuple[slice, np.ndarray]]:
        """Some rows at a time, with their coordinates."""
        width = self.rank if self.maps is None else self.maps.shape[0]
        for block in row_blocks(self.size, max(1, _BLOCK_ENTRIES // width)):
            yield block, self.coordinates(block)

    def moments(self, signed: Sequence[np.ndarray]) -> list[np.ndarray]:
        """F' D F for some vectors of signed masses D, in one pass. O(n rank^2) each."""
        sums = [np.zeros((self.rank, self.rank)) for _ in signed]
        for block, coordinates in self.blocks():
            features = self._features(coordinates)
            for total, masses in zip(sums, signed, strict=True):
                used = np.flatnonzero(masses[block])
                part = features[used]
                total += part.T @ (masses[block][used, None] * part)
        return [0.5 * (total + total.T) for total in sums]

    def loadings(self, directions: np.ndarray) -> np.ndarray:
        """Inner products of the features of all points with some directions, (size, count)."""
        # Multiplied first: a few directions cost much less than all features.
        maps = directions if self.maps is None else self.maps @ directions
        return np.concatenate([coordinates @ maps for _, coordinates in self.blocks()])

    def leading(self, count: int) -> np.ndarray:
        """The features in the widest directions, shape (size, at most count)."""
        return self.loadings(np.eye(self.rank, count))

    def seen(self, masses: np.ndarray) -> float:
        """Share of the features, by some masses whose sum is 1, that lies in the directions."""
        total = 0.0
        for block, coordinates in self.blocks():
            total += float(masses[block] @ (self._features(coordinates) ** 2).sum(axis=1))
        return min(1.0, total)

    def _features(self, coordinates: np.ndarray) -> np.ndarray:
        if self.maps is None:
            return coordinates
        return coordinates @ self.maps


def _exact(operator: Operator, masses: np.ndarray, resources: Resources) -> Basis:
    """All directions: with M = W^(1/2) K W^(1/2) = V S V', the features are W^(-1/2) V S^(1/2)."""
    size = operator.size
    # The matrix, its eigenvectors, the features, and the matrix of a difference.
    resources.require(40 * size**2, f"a difference of {size:,} distinct items", _WAY_OUT)
    matrix = next(dense([operator]))
    noise = matrix_noise(operator, matrix)
    values, vectors = np.linalg.eigh(to_numpy(matrix))
    # Copies and rows that depend on each other leave eigenvalues that are rounding errors.
    floor = spectral_floor(values[-1], size, min(noise, _LARGEST_NOISE))
    kept = np.flatnonzero(values > floor)[::-1]
    features = vectors[:, kept] * np.sqrt(values[kept])
    features /= np.sqrt(operator.masses)[:, None]
    basis = Basis(size, kept.size, 0.0, features.__getitem__)
    if np.allclose(masses, operator.masses / operator.masses.sum(), rtol=1e-9, atol=0):
        return basis
    _, turn = _widest(basis, masses)
    features = features @ turn
    return Basis(size, turn.shape[1], 0.0, features.__getitem__)


def _from_landmarks(
    operator: Operator, masses: np.ndarray, landmarks: np.ndarray, resources: Resources
) -> Basis:
    """The projections on the span of some landmarks (Nystrom): C V S^(-1/2), with W = V S V'."""
    count = landmarks.size
    needed = 96 * count**2 + 16 * _BLOCK_ENTRIES
    resources.require(needed, f"a difference by {count:,} landmarks", _WAY_OUT)
    columns = operator.columns(landmarks)
    everything = slice(0, count)
    inner = to_numpy(operator.sample(landmarks, double=True).values(everything, everything))
    values, vectors = np.linalg.eigh(0.5 * (inner + inner.T))
    kept = values > count * np.finfo(float).eps * values[-1]
    maps = vectors[:, kept] / np.sqrt(values[kept])

    def coordinates(block: slice) -> np.ndarray:
        return to_numpy(columns(block)).astype(np.float64)

    basis = Basis(operator.size, maps.shape[1], 0.0, coordinates, maps)
    widths, turn = _widest(basis, masses)
    unseen = max(0.0, 1 - float(widths.sum()))
    return replace(basis, rank=turn.shape[1], unseen=unseen, maps=maps @ turn)


def _widest(basis: Basis, masses: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Widths and directions of a span by some masses, the widest first, without empty ones."""
    [moment] = basis.moments([masses])
    widths, turn = np.linalg.eigh(moment)
    kept = np.flatnonzero(widths > _NO_WIDTH * widths[-1])[::-1]
    return widths[kept], turn[:, kept]


def first_points(index: np.ndarray, ranks: np.ndarray) -> np.ndarray:
    """The points of the first rows by rank, 1,000 at most: landmarks of more points.

    `index` holds the point of each row.
    """
    points, firsts = np.unique(index[np.argsort(ranks, kind="stable")], return_index=True)
    return np.sort(points[np.argsort(firsts)][:_LANDMARKS])
