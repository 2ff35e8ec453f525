"""Mergeable states: second moments of features, updated chunk by chunk (update, merge, spectra)."""

import copy
from dataclasses import dataclass, field, replace

import numpy as np

from divprism.core.arrays import Array, array_namespace, eigvalsh, to_numpy, upload
from divprism.core.spectrum import Spectrum

__all__ = ["FeatureMoments"]

# Times that the number of random features is halved, to measure how the result depends on it.
_LEVELS = 2


@dataclass
class FeatureMoments:
    """Sum of w phi phi' over weighted items: enough for a spectrum, whatever the number of items.

    Attributes
    ----------
    size : int
        Number of features.
    is_random : bool
        Whether they are random Fourier features, cosines first and then sines; otherwise they are
        the exact features of a kernel.
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
        roots = upload(np.sqrt(weights), features)
        roots = array_namespace(features).astype(roots, features.dtype)
        scaled = features * roots[:, None]
        # On the host and in double precision, so that states of different chunks and devices merge.
        self.total += to_numpy(scaled.T @ scaled)
        self.mass += float(weights.sum())

    def updated(self, features: Array) -> "FeatureMoments":
        """These moments and items of weight one, a row of features each, as a new object."""
        product = np.asarray(to_numpy(features.T @ features), np.float64)
        return self.restored(self.total + product, self.mass + features.shape[0])

    def merged(self, other: "FeatureMoments") -> "FeatureMoments":
        """These moments and those of other items over the same features, as a new object."""
        return self.restored(self.total + other.total, self.mass + other.mass)

    def restored(self, total: np.ndarray, mass: float) -> "FeatureMoments":
        """Other sums over the same features, as from a file, as a new object."""
        # A new object: whoever holds this one sees all of a chunk or nothing of it.
        moments = copy.copy(self)
        moments.total, moments.mass = total, mass
        return moments

    def spectrum(self, noise: float = 0.0) -> Spectrum:
        """Eigenvalues of the mean of phi phi'.

        For random features the spectrum also carries those of subsets of the features, from which
        an entropy is extrapolated and its error estimated.
        """
        everything = np.arange(self.size)
        if not self.is_random:
            return self._spectrum(everything, 0, noise)
        whole = self._spectrum(everything, _LEVELS, noise)
        return replace(whole, shares=self._shares(whole.values.size))

    def _shares(self, count: int) -> np.ndarray:
        """Share of each frequency in each of the largest `count` eigenvectors."""
        # The mass is a factor of the total, which leaves its eigenvectors as they are.
        _, vectors = np.linalg.eigh(self.total)
        squares = vectors[:, ::-1][:, :count] ** 2
        # A frequency takes its cosine and its sine along.
        half = self.size // 2
        return squares[:half] + squares[half:]

    def _spectrum(self, chosen: np.ndarray, levels: int, noise: float) -> Spectrum:
        # Features are scaled for all frequencies together: fewer of them need a larger factor.
        scale = self.size / (chosen.size * self.mass)
        eigenvalues = eigvalsh(self.total[np.ix_(chosen, chosen)] * scale)
        method = "dual"
        if self.is_random:
            method = "fourier"
        spectrum = Spectrum.from_eigenvalues(eigenvalues, noise=noise, method=method)
        if self.is_random:
            # An extrapolation needs the same eigenvalues at every order.
            spectrum = spectrum.above_floor()
        if levels == 0:
            return spectrum
        coarse = tuple(self._spectrum(half, levels - 1, noise) for half in _halves(chosen))
        return replace(spectrum, coarse=coarse)


def _halves(chosen: np.ndarray) -> list[np.ndarray]:
    """The first and the second half of the frequencies, each with its cosines and sines."""
    count = chosen.size // 2
    cosines, sines = chosen[:count], chosen[count:]
    # Disjoint halves are independent samples of the frequencies.
    halves = np.array_split(np.arange(count), 2)
    return [np.concatenate([cosines[half], sines[half]]) for half in halves]
