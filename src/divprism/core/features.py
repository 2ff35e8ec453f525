"""Random Fourier features: phi with k(a, b) about phi(a) . phi(b), also for products of kernels."""

from dataclasses import dataclass

import numpy as np

from divprism.core.arrays import Array, array_namespace, upload
from divprism.core.kernels import Kernel, Points
from divprism.errors import ArgumentError

__all__ = ["FourierMap", "draw_frequencies", "require_fourier_features"]


def draw_frequencies(width: int, count: int, rng: np.random.Generator) -> np.ndarray:
    """Random frequencies for a Gaussian kernel of bandwidth one: normal, shape (width, count)."""
    # By Bochner: the Fourier transform of a Gaussian of width one is a normal density.
    return rng.standard_normal((width, count))


def require_fourier_features(*kernels: Kernel) -> None:
    """Raise ArgumentError for a kernel that random Fourier features cannot approximate."""
    for kernel in kernels:
        if not kernel.has_fourier_features:
            raise ArgumentError(
                f"Fourier features need Gaussian kernels; got {type(kernel).__name__}. "
                "Use Auto(), Lanczos() or Nystrom()."
            )


@dataclass(frozen=True, eq=False)
class FourierMap:
    """Random Fourier features [cos(z . w), sin(z . w)] / sqrt(r) of points z over the bandwidth.

    The features of FKEA (Truncated Vendi, App. A.5).

    The product of two Gaussian kernels is one Gaussian kernel on the concatenation
    [x / s_x, t / s_t]. Its phases are the sums of theirs, so it needs no frequencies of its own.
    """

    frequencies: np.ndarray

    def phases(self, points: Points) -> Array:
        """z . w, shape (len(points), r)."""
        rows = points.rows
        frequencies = upload(self.frequencies, rows)
        return rows @ array_namespace(rows).astype(frequencies, rows.dtype)

    @staticmethod
    def features(phases: Array) -> Array:
        """Features of given phases, shape (n, 2 r); each row has norm one."""
        xp = array_namespace(phases)
        # cos^2 + sin^2 = 1, so each of the r frequencies adds 1 / r to the squared norm.
        return xp.concat([xp.cos(phases), xp.sin(phases)], axis=1) / phases.shape[1] ** 0.5
