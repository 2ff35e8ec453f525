"""The normalised polynomial kernel."""

import math
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations_with_replacement
from typing import Any

import numpy as np

from divprism.core.arrays import Array, array_namespace, upload
from divprism.core.kernels.base import (
    Kernel,
    finite_number,
    require_directions,
    resolution,
    unit_rows,
)
from divprism.core.kernels.points import Points
from divprism.core.validation import clean_rows, whole_number
from divprism.errors import ArgumentError

__all__ = ["Polynomial"]


# Beyond it, the rounding of a cosine is as large as its power: no similarity is left.
_MAX_DEGREE = 1_000_000

# From its inverse to itself, settings have a sqrt(offset / scale) that single precision holds: it
# must not overflow, nor vanish beside a row of zeros.
_LARGEST_SETTING = 1e30

# Above it, a multinomial coefficient may be larger than any float.
_MOST_BITS = 1000


@dataclass(frozen=True)
class Polynomial(Kernel):
    """Similar in products of up to `degree` features: (scale a.b + offset)^degree, normalised.

    Dividing by sqrt(k(a, a) k(b, b)) makes the diagonal one. The kernel is then the cosine of the
    rows [sqrt(scale) a, sqrt(offset)] to the power `degree`. `scale=None` means 1 / d, the default
    of scikit-learn and of the kernel distance (KID).
    """

    degree: int = 3
    scale: float | None = None
    offset: float = 1.0

    def __post_init__(self) -> None:
        degree = whole_number(self.degree, "degree", 1)
        if degree > _MAX_DEGREE:
            raise ArgumentError(f"`degree` must be at most {_MAX_DEGREE:,}.")
        object.__setattr__(self, "degree", degree)
        if self.scale is not None:
            requirement = "positive and finite, or None for 1 / d"
            scale = finite_number(self.scale, "scale", requirement)
            if scale <= 0:
                raise ArgumentError(f"`scale` must be {requirement}; got {self.scale!r}.")
            if not _is_moderate(scale):
                raise ArgumentError(
                    f"`scale` must be {_RANGE}, or None for 1 / d; got {self.scale!r}."
                )
            object.__setattr__(self, "scale", scale)
        offset = finite_number(self.offset, "offset", "finite and not negative")
        if offset < 0:
            raise ArgumentError(
                "`offset` must be finite and not negative, or the kernel is indefinite; "
                f"got {self.offset!r}."
            )
        if offset > 0 and not _is_moderate(offset):
            raise ArgumentError(f"`offset` must be 0, or {_RANGE}; got {self.offset!r}.")
        object.__setattr__(self, "offset", offset)

    def clean(self, x: object, name: str) -> Array:
        """Validate rows; without an offset, none may be all zeros."""
        rows = clean_rows(x, name)
        if self.offset > 0:
            return rows
        return require_directions(rows, name)

    def points(self, x: Array, dtype: Any, name: str) -> Points:
        """Unit rows of [a, sqrt(offset / scale)]."""
        scale = self.scale
        if scale is None:
            scale = 1 / x.shape[1]
        # The common factor sqrt(scale) of [sqrt(scale) a, sqrt(offset)] cancels in the cosine.
        rows = unit_rows(x, dtype, augment=math.sqrt(self.offset / scale))
        # A power multiplies the relative error of its base by the exponent.
        return Points(rows, noise=self.degree * resolution(x))

    def block(self, a: Points, b: Points) -> Array:
        """Inner products of unit rows, to the power `degree`."""
        return (a.rows @ b.rows.T) ** self.degree

    def feature_dimension(self, width: int) -> int | None:
        """Number of monomials of degree `degree` in the entries of a unit row.

        None where their coefficients may overflow: there are far too many of them, or the kernel is
        hardly more than equality.
        """
        # A positive offset adds an entry to every row.
        # Homogeneous: lower powers appear as products with the constant entry.
        entries = width + (self.offset > 0)
        # A coefficient is at most entries^degree. One entry more, because a factorial of a high
        # degree takes long even where the quotient is one.
        if self.degree * math.log2(entries + 1) > _MOST_BITS:
            return None
        return math.comb(entries + self.degree - 1, self.degree)

    def features(self, points: Points) -> Array:
        """All monomials, each times the square root of its multinomial coefficient."""
        xp = array_namespace(points.rows)
        monomials, roots = _monomials(points.rows.shape[1], self.degree)
        product = upload(roots, points.rows)[None, :]
        for factor in range(self.degree):
            columns = upload(monomials[:, factor], points.rows)
            product = product * xp.take(points.rows, columns, axis=1)
        return product


_RANGE = f"between {1 / _LARGEST_SETTING:g} and {_LARGEST_SETTING:g}"


def _is_moderate(setting: float) -> bool:
    return 1 / _LARGEST_SETTING <= setting <= _LARGEST_SETTING


@lru_cache(maxsize=4)
def _monomials(width: int, degree: int) -> tuple[np.ndarray, np.ndarray]:
    """The factors of every monomial, and the square root of its multinomial coefficient."""
    monomials = np.array(list(combinations_with_replacement(range(width), degree)))
    coefficients = []
    for row in monomials:
        # degree! over the factorials of the powers: the orders in which the factors can be written.
        _, powers = np.unique(row, return_counts=True)
        repeats = math.prod(math.factorial(int(power)) for power in powers)
        coefficients.append(math.factorial(degree) // repeats)
    return monomials, np.sqrt(np.array(coefficients, np.float64))
