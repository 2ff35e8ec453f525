"""The contract of a kernel, and the checks that kernels share."""

import math
from abc import ABC, abstractmethod
from functools import partial
from typing import Any, ClassVar

import numpy as np

from divprism.core.arrays import (
    Array,
    array_namespace,
    device_of,
    distinct_rows,
    machine_epsilon,
    to_numpy,
    upload,
)
from divprism.core.kernels.points import Points, StoredPoints
from divprism.core.validation import as_float, clean_rows
from divprism.errors import ArgumentError, DataError

__all__ = [
    "Kernel",
    "finite_number",
    "positive_number",
    "require_directions",
    "resolution",
    "unit_rows",
]


class Kernel(ABC):
    """Similarity of two items: k(a, b), positive semidefinite, with k(a, a) = 1.

    A new kernel defines `points` and `block`. One with a finite feature map also defines
    `feature_dimension` and `features`, and the dual estimator then supports it.

    Attributes
    ----------
    bandwidth : float or None
        Distance over which similarity falls; None for a kernel without such a length.
    has_fourier_features : bool
        Whether normal frequencies over the bandwidth give random Fourier features of the kernel.
    formula : str
        For a kernel with a bandwidth: k in terms of the distance d, printed beside the number.
    """

    # A plain attribute and not a property: a property here would also serve as the default of the
    # dataclass field of the same name in a subclass, and could not be set on its instances.
    bandwidth: float | None = None
    has_fourier_features: ClassVar[bool] = False
    formula: ClassVar[str] = ""

    @abstractmethod
    def points(self, x: Array, dtype: Any, name: str) -> Points:
        """Items prepared for `block`, in the precision `dtype`; messages call the data `name`."""

    def stored_points(self, x: Array, dtype: Any, name: str) -> Points:
        """Points of rows that stay on disk; override it where a row depends on the others."""
        # Where rows are independent, the noise depends on the dtype only, so one row shows it.
        first = self.points(x[:1, :], dtype, name)
        return StoredPoints(x, noise=first.noise, make=partial(self.points, dtype=dtype, name=name))

    @abstractmethod
    def block(self, a: Points, b: Points) -> Array:
        """Kernel values between two sets of points, shape (len(a), len(b))."""

    def feature_dimension(self, width: int) -> int | None:
        """Length of phi with k(a, b) = phi(a) . phi(b) for rows of `width`; None if infinite."""
        return None

    def features(self, points: Points) -> Array:
        """phi of each point, shape (len(points), feature_dimension); only if that is finite."""
        raise ArgumentError(
            f"{type(self).__name__} has no finite feature map, so it has no dual form. "
            "Use Exact() or Auto()."
        )

    def clean(self, x: object, name: str) -> Array:
        """Validate user input and return the array that `points` takes."""
        return clean_rows(x, name)

    def pick(self, x: Array, index: np.ndarray) -> Array:
        """Items of validated data at the positions `index`."""
        return array_namespace(x).take(x, upload(index, x), axis=0)

    def merge(self, x: Array) -> tuple[Array, np.ndarray]:
        """Distinct items of `x`, and for each item the position of its equal among them."""
        first, inverse = distinct_rows(x)
        if first.size == x.shape[0]:
            return x, inverse
        return self.pick(x, first), inverse


def resolution(x: Array) -> float:
    """Smallest relative eigenvalue that data stored in the dtype of `x` can resolve.

    Rounding a coordinate by eps moves a point by eps, which adds eigenvalues of eps squared. They
    cannot fall below the eps of double precision, in which spectra are computed.
    """
    return max(float(np.finfo(np.float64).eps), machine_epsilon(x) ** 2)


def finite_number(value: object, name: str, requirement: str) -> float:
    """`value` as a finite float, or an ArgumentError that states the requirement."""
    try:
        number = as_float(value)
    except (OverflowError, TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number):
        raise ArgumentError(f"`{name}` must be {requirement}; got {value!r}.")
    return number


def positive_number(value: object, name: str) -> float:
    """`value` as a positive, finite float, or an ArgumentError."""
    requirement = "positive and finite"
    number = finite_number(value, name, requirement)
    if number <= 0:
        raise ArgumentError(f"`{name}` must be {requirement}; got {value!r}.")
    return number


def require_directions(x: Array, name: str) -> Array:
    """Return `x`, or raise DataError if a row is all zeros and so has no direction."""
    xp = array_namespace(x)
    zero = np.flatnonzero(to_numpy(xp.max(xp.abs(x), axis=1)) == 0)
    if zero.size:
        raise DataError(
            f"row {zero[0]} of `{name}` is all zeros, so its cosine with any row is undefined. "
            "Drop it, or use Gaussian."
        )
    return x


def unit_rows(x: Array, dtype: Any, augment: float = 0.0) -> Array:
    """Rows of [x, augment] divided by their norms."""
    xp = array_namespace(x)
    x = xp.astype(x, dtype)
    # Dividing by the largest entry first keeps squares from overflowing or vanishing.
    scale = xp.max(xp.abs(x), axis=1, keepdims=True)
    if augment > 0:
        column = xp.full((x.shape[0], 1), augment, dtype=dtype, device=device_of(x))
        x = xp.concat([x, column], axis=1)
        scale = xp.maximum(scale, xp.full_like(scale, augment))
    # Two divisions: the norm of the scaled row is between one and sqrt(d).
    x = x / scale
    return x / xp.sqrt(xp.sum(x * x, axis=1, keepdims=True))
