"""Feature maps: phi with k(a, b) about, or exactly, phi(a) . phi(b), also for the product of two kernels."""

from dataclasses import dataclass

import numpy as np

from divprism.core.arrays import Array, array_namespace, upload
from divprism.core.kernels import Gaussian, Kernel, Points
from divprism.errors import ArgumentError

__all__ = ["FourierMap", "draw_frequencies", "require_gaussian"]


def draw_frequencies(width: int, count: int, rng: np.random.Generator) -> np.ndarray:
    """Frequencies of random Fourier features of a Gaussian kernel of bandwidth one: normal, shape (width, count)."""
    return rng.standard_normal((width, count))


def require_gaussian(*kernels: Kernel) -> None:
    """Random Fourier features stand for Gaussian kernels only."""
    for kernel in kernels:
        if not isinstance(kernel, Gaussian):
            raise ArgumentError(
                f"Fourier features stand for Gaussian kernels; got {type(kernel).__name__}. Use Auto(), Lanczos() or Nystrom()."
            )


@dataclass(frozen=True, eq=False)
class FourierMap:
    """Random Fourier features [cos(z . w), sin(z . w)] / sqrt(r) of points z in units of the bandwidth.

    Truncated Vendi, eq. 12 (FKEA).

    The product of two Gaussian kernels is one Gaussian kernel on the concatenation [x / s_x, t / s_t]: its phases are the sums
    of theirs, so that it needs no frequencies of its own.
    """

    frequencies: np.ndarray

    def phases(self, points: Points) -> Array:
        """z . w, shape (len(points), r)."""
        rows = points.rows
        return rows @ array_namespace(rows).astype(upload(self.frequencies, rows), rows.dtype)

    @staticmethod
    def features(phases: Array) -> Array:
        """Features of given phases, shape (n, 2 r); rows have norm one."""
        xp = array_namespace(phases)
        return xp.concat([xp.cos(phases), xp.sin(phases)], axis=1) / phases.shape[1] ** 0.5
