"""Mergeable states: second moments of features, updated a chunk at a time. update -> merge -> spectra."""

from dataclasses import dataclass, field, replace

import numpy as np

from divprism.core.arrays import Array, array_namespace, eigvalsh, to_numpy, upload
from divprism.core.spectrum import Spectrum

__all__ = ["FeatureMoments"]

_PARTS = 8  # of the random features, left out in turn
_LEVELS = 2  # halvings of the number of random features, to see how the answer grows with it


@dataclass
class FeatureMoments:
    """Sum of w phi phi' over weighted items: all that a spectrum needs, whatever the number of items.

    Attributes
    ----------
    size : int
        Number of features.
    is_random : bool
        Whether they are random Fourier features, cosines first and sines after; else the kernel's own.
    total : ndarray (size, size)
        The sum, in double precision.
    mass : float
        Sum of the weights.
    """

    size: int
    is_random: bool
    total: np.ndarray = field(init=False)
    mass: float = 0.0

    def __post_init__(self) -> None:
        self.total = np.zeros((self.size, self.size))

    def update(self, features: Array, weights: np.ndarray) -> None:
        """Add items, a row of features each."""
        scaled = (
            features
            * array_namespace(features).astype(upload(np.sqrt(weights), features), features.dtype)[
                :, None
            ]
        )
        self.total += to_numpy(scaled.T @ scaled)
        self.mass += float(weights.sum())

    def merge(self, other: "FeatureMoments") -> None:
        """Add the items of another state over the same features."""
        self.total += other.total
        self.mass += other.mass

    def spectrum(self, noise: float = 0.0) -> Spectrum:
        """Eigenvalues of the mean; for random features also those of parts of them, to extrapolate and to tell the error."""
        everything = np.arange(self.size)
        if not self.is_random:
            return self._spectrum(everything, 0, noise)
        count = self.size // 2
        parts = np.array_split(np.arange(count), min(_PARTS, count))
        without = [np.setdiff1d(np.arange(count), part) for part in parts]
        left_out = tuple(
            self._spectrum(np.concatenate([rest, count + rest]), 0, noise) for rest in without
        )
        return replace(self._spectrum(everything, _LEVELS, noise), left_out=left_out)

    def _spectrum(self, chosen: np.ndarray, levels: int, noise: float) -> Spectrum:
        matrix = self.total[np.ix_(chosen, chosen)] * (self.size / (chosen.size * self.mass))
        found = Spectrum.from_eigenvalues(
            eigvalsh(matrix), noise=noise, method="fourier" if self.is_random else "dual"
        )
        if levels == 0:
            return found
        return replace(
            found, coarse=tuple(self._spectrum(half, levels - 1, noise) for half in _halves(chosen))
        )


def _halves(chosen: np.ndarray) -> list[np.ndarray]:
    """The first and the second half of the frequencies, each with its cosines and sines."""
    count = chosen.size // 2
    cosines, sines = chosen[:count], chosen[count:]
    return [
        np.concatenate([cosines[part], sines[part]]) for part in np.array_split(np.arange(count), 2)
    ]
