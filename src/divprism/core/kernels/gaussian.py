"""The Gaussian kernel, the usual choice for embeddings."""

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from divprism.core.arrays import Array, array_namespace, exp_in_place, machine_epsilon
from divprism.core.distances import EXPONENT_ERROR, gaussian_exponents
from divprism.core.kernels.base import Kernel, positive_number, resolution
from divprism.core.kernels.points import Points, StoredPoints
from divprism.core.tiles import row_blocks
from divprism.errors import DataError

__all__ = ["Gaussian"]

# Entries of a file that are read together.
_CHUNK_ENTRIES = 1 << 20

# Rounding of a float32 exponent beyond which blocks are computed in float64.
_WORST_SINGLE = 1e-4


@dataclass(frozen=True)
class Gaussian(Kernel):
    """Similar when close: ``k(a, b) = exp(-|a - b|^2 / (2 bandwidth^2))``, on raw features.

    Conditional Vendi, Sec. 3.2; Truncated Vendi, eq. 5. The usual choice for embeddings.
    `bandwidth` is the distance at which similarity has fallen to exp(-1/2), 0.61.

    >>> Gaussian.from_gamma(0.5)
    Gaussian(bandwidth=1.0)
    """

    # field() without a default hides the class attribute of Kernel from the constructor.
    bandwidth: float = field()
    # No annotations, which would make these fields.
    has_fourier_features = True
    formula = "exp(-d^2 / (2 bandwidth^2))"

    def __post_init__(self) -> None:
        bandwidth = positive_number(self.bandwidth, "bandwidth")
        object.__setattr__(self, "bandwidth", bandwidth)

    @classmethod
    def from_gamma(cls, gamma: float) -> "Gaussian":
        """The kernel exp(-gamma d^2) of scikit-learn: bandwidth = 1 / sqrt(2 gamma)."""
        return cls(1 / math.sqrt(2 * positive_number(gamma, "gamma")))

    def points(self, x: Array, dtype: Any, name: str) -> Points:
        """Rows around their mean, in units of the bandwidth."""
        # Without centring, squared distances of data far from the origin would cancel.
        xp = array_namespace(x)
        # Overflow is detected below, by the largest norm.
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            # In double precision: a million half-precision rows would overflow their sum.
            centre = xp.sum(x, axis=0, dtype=xp.float64) / x.shape[0]
            z = (xp.astype(x, dtype) - xp.astype(centre, dtype)) / self.bandwidth
            half = 0.5 * xp.sum(z * z, axis=1)
        largest = float(xp.max(half))
        # By the triangle inequality |a - b|^2 / 2 is at most 4 times the largest |a|^2 / 2.
        rounding = 4 * machine_epsilon(z) * largest
        is_double = z.dtype == xp.float64
        if not is_double and not rounding <= _WORST_SINGLE:
            # Overflow included: its rounding is infinite or NaN.
            return self.points(x, xp.float64, name)
        if not math.isfinite(largest):
            raise DataError(
                f"squared distances of `{name}` overflow at bandwidth {self.bandwidth:g}. "
                "Rescale the data, or use a larger bandwidth."
            )
        # Refined exponents are accurate to EXPONENT_ERROR however large the norms are.
        noises = xp.clip(resolution(x) * half, max=EXPONENT_ERROR / 2)
        return Points(
            z,
            half,
            noise=2 * float(xp.max(noises)),
            refine=is_double and rounding > EXPONENT_ERROR,
            noises=noises,
        )

    def stored_points(self, x: Array, dtype: Any, name: str) -> Points:
        """Points of rows that stay on disk: one pass for the centre, one for the largest norm."""
        chunks = list(row_blocks(x.shape[0], max(1, _CHUNK_ENTRIES // x.shape[1])))
        centre = sum(x[rows, :].sum(axis=0, dtype=np.float64) for rows in chunks) / x.shape[0]
        make = _AroundCentre(centre, self.bandwidth, dtype)
        largest = max(_largest_half_square(make(x[rows, :])) for rows in chunks)
        # Not refined: a refinement would visit points that are no longer in memory.
        acceptable = EXPONENT_ERROR
        if dtype == np.float32:
            acceptable = _WORST_SINGLE
        if math.isfinite(largest) and 4 * np.finfo(dtype).eps * largest <= acceptable:
            return StoredPoints(x, noise=2 * resolution(x) * largest, make=make)
        if dtype == np.float32:
            return self.stored_points(x, np.float64, name)
        raise DataError(
            f"distances of `{name}` cannot be resolved at bandwidth {self.bandwidth:g} from a file "
            "larger than the memory budget. Use a larger bandwidth, or load the data."
        )

    def block(self, a: Points, b: Points) -> Array:
        """``exp(a.b - |a|^2/2 - |b|^2/2)``, by one matrix product."""
        assert a.half_squares is not None and b.half_squares is not None
        exponents = gaussian_exponents(
            a.rows, b.rows, a.half_squares, b.half_squares, refine=a.refine
        )
        return exp_in_place(exponents)


@dataclass(frozen=True)
class _AroundCentre:
    """rows of a file -> points around a given centre."""

    centre: np.ndarray
    bandwidth: float
    dtype: Any

    def __call__(self, rows: Array) -> Points:
        # One copy, changed in place: several threads hold a block each at the same time.
        z = rows.astype(self.dtype)
        z -= self.centre.astype(self.dtype)
        z /= self.dtype(self.bandwidth)
        return Points(z, 0.5 * np.einsum("ij,ij->i", z, z))


def _largest_half_square(points: Points) -> float:
    return float(np.asarray(points.half_squares).max())
