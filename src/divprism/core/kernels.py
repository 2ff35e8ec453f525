"""Kernels: when two items count as alike. Frozen descriptions that hold no data.

A kernel k has k(a, a) = 1 and is positive semidefinite, so that K / n is a trace-one matrix (Conditional Vendi, Sec. 3.2). It
turns items into `Points` once (centring, normalising, coding), and evaluates blocks of the kernel matrix between points.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations_with_replacement
from typing import Any

import numpy as np

from divprism.core.arrays import (
    Array,
    array_namespace,
    device_of,
    distinct_rows,
    exp_in_place,
    machine_epsilon,
    outer_take,
    to_numpy,
    upload,
)
from divprism.core.distances import EXPONENT_ERROR, gaussian_exponents
from divprism.core.tiles import row_blocks
from divprism.core.validation import clean_ids, clean_rows
from divprism.errors import ArgumentError, DataError

__all__ = [
    "Categorical",
    "Cosine",
    "Gaussian",
    "Kernel",
    "Points",
    "Polynomial",
    "Precomputed",
    "StoredPoints",
]


@dataclass(frozen=True, eq=False)
class Points:
    """Items made ready for one kernel: what its blocks are computed from.

    Attributes
    ----------
    rows : array
        One entry (a vector or a code) per point.
    half_squares : array or None
        Half the squared norm of each row, where the kernel needs it.
    table : array or None
        What all points share: the matrix behind `Precomputed`.
    noise : float
        Bound on the rounding error of a kernel entry: eigenvalues below it cannot be told from zero.
    refine : bool
        Whether some squared distances cancel so badly that they must be computed again from differences.
    """

    rows: Array
    half_squares: Array | None = None
    table: Array | None = None
    noise: float = 0.0
    refine: bool = False

    def __len__(self) -> int:
        return self.rows.shape[0]

    def __getitem__(self, index: slice) -> "Points":
        return self._map(lambda a: a[index] if a.ndim == 1 else a[index, :])

    def take(self, index: Array) -> "Points":
        """The points at the places `index` (an integer array), in that order."""
        return self._map(lambda a: array_namespace(a).take(a, index, axis=0))

    def double(self) -> "Points":
        """The same points, exactly, for blocks in double precision."""
        xp = array_namespace(self.rows)
        table = None if self.table is None else xp.astype(self.table, xp.float64)
        if self.rows.ndim == 1:  # codes
            return Points(self.rows, None, table, self.noise, self.refine)
        rows = xp.astype(self.rows, xp.float64)
        squares = None if self.half_squares is None else 0.5 * xp.sum(rows * rows, axis=1)
        return Points(rows, squares, table, self.noise, self.refine)

    def _map(self, pick: Any) -> "Points":
        squares = None if self.half_squares is None else pick(self.half_squares)
        return Points(pick(self.rows), squares, self.table, self.noise, self.refine)


@dataclass(frozen=True, eq=False)
class StoredPoints(Points):
    """Points that are made from rows on disk when they are asked for, a block at a time: data larger than memory.

    `make` turns some of the rows into points.
    """

    make: Callable[[Array], Points] = lambda rows: Points(rows)

    def __getitem__(self, index: slice) -> Points:
        return self.make(np.asarray(self.rows[index]))

    def take(self, index: Array) -> Points:
        """The points at some places, in memory."""
        return self.make(np.asarray(self.rows[index]))


class Kernel(ABC):
    """When two items count as alike: k(a, b) with k(a, a) = 1, positive semidefinite.

    A new kernel defines `points` and `block`; one with a finite feature map also `feature_dimension` and `features`, and is
    then served by the dual estimator.
    """

    @abstractmethod
    def points(self, x: Array, dtype: Any, name: str) -> Points:
        """Items ready for `block`; `dtype` is the precision to work in, `name` what messages call the data."""

    def stored_points(self, x: Array, dtype: Any, name: str) -> Points:
        """The same for rows that stay on disk; kernels that look at rows one by one need not say how."""
        first = self.points(x[:1, :], dtype, name)
        return StoredPoints(x, noise=first.noise, make=lambda rows: self.points(rows, dtype, name))

    @abstractmethod
    def block(self, a: Points, b: Points) -> Array:
        """Kernel values between two sets of points, shape (len(a), len(b))."""

    def feature_dimension(self, width: int) -> int | None:
        """Length of phi with k(a, b) = phi(a) . phi(b) for rows of a width, or None where it is infinite."""
        return None

    def features(self, points: Points) -> Array:
        """phi of each point, shape (len(points), feature_dimension); only where that is finite."""
        raise ArgumentError(
            f"{type(self).__name__} has no finite feature map, so it has no dual form. Use Exact() or Auto()."
        )

    def clean(self, x: Any, name: str) -> Array:
        """User input as the array that `points` takes."""
        return clean_rows(x, name)

    def pick(self, x: Array, places: np.ndarray) -> Array:
        """The items of clean data at some places."""
        return array_namespace(x).take(x, upload(places, x), axis=0)

    def merge(self, x: Array) -> tuple[Array, np.ndarray]:
        """Equal items as one: the distinct items, and for each item which of them it is."""
        first, inverse = distinct_rows(x)
        return (x if first.size == x.shape[0] else self.pick(x, first)), inverse


def _resolution(x: Array) -> float:
    """Smallest relative eigenvalue that data stored in the dtype of `x` can resolve, computing in double precision.

    Rounding a coordinate by eps moves a point by eps and so gives rise to eigenvalues of eps squared.
    """
    return max(float(np.finfo(np.float64).eps), machine_epsilon(x) ** 2)


def _require_directions(x: Array, name: str) -> Array:
    """`x`, unless a row is all zeros and so points nowhere."""
    xp = array_namespace(x)
    zero = np.flatnonzero(to_numpy(xp.max(xp.abs(x), axis=1)) == 0)
    if zero.size:
        raise DataError(
            f"row {zero[0]} of `{name}` is all zeros, so its cosine with any row is undefined. Drop it, or use Gaussian."
        )
    return x


def _number(value: Any, name: str, demand: str) -> float:
    """A setting as a finite float, or a sentence that says what it must be."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number):
        raise ArgumentError(f"`{name}` must be {demand}; got {value!r}.")
    return number


def _unit_rows(x: Array, dtype: Any, augment: float = 0.0) -> Array:
    """Rows of [x, augment] over their norms, scaled first so that no square overflows or underflows."""
    xp = array_namespace(x)
    x = xp.astype(x, dtype)
    scale = xp.max(xp.abs(x), axis=1, keepdims=True)
    if augment > 0:
        x = xp.concat(
            [x, xp.full((x.shape[0], 1), augment, dtype=dtype, device=device_of(x))], axis=1
        )
        scale = xp.maximum(scale, xp.full_like(scale, augment))
    x = x / scale
    return x / xp.sqrt(xp.sum(x * x, axis=1, keepdims=True))


@dataclass(frozen=True)
class Gaussian(Kernel):
    """Alike when close: k(a, b) = exp(-|a - b|^2 / (2 bandwidth^2)), on raw features.

    Conditional Vendi, Sec. 3.2; Truncated Vendi, eq. 5. The usual choice for embeddings. `bandwidth` is the distance at
    which similarity has fallen to exp(-1/2), 0.61.

    >>> Gaussian.from_gamma(0.5)
    Gaussian(bandwidth=1.0)
    """

    bandwidth: float

    def __post_init__(self) -> None:
        value = _number(self.bandwidth, "bandwidth", "positive and finite")
        if value <= 0:
            raise ArgumentError(f"`bandwidth` must be positive and finite; got {self.bandwidth!r}.")
        object.__setattr__(self, "bandwidth", value)

    @classmethod
    def from_gamma(cls, gamma: float) -> "Gaussian":
        """The same kernel written exp(-gamma d^2), as scikit-learn does: bandwidth = 1 / sqrt(2 gamma)."""
        value = _number(gamma, "gamma", "positive and finite")
        if value <= 0:
            raise ArgumentError(f"`gamma` must be positive and finite; got {gamma!r}.")
        return cls(1 / math.sqrt(2 * value))

    def points(self, x: Array, dtype: Any, name: str) -> Points:
        """Rows centred and divided by the bandwidth: far from the origin squared distances would cancel."""
        xp = array_namespace(x)
        resolution = _resolution(x)
        with np.errstate(
            over="ignore", invalid="ignore", divide="ignore"
        ):  # what overflows is looked for below
            centre = xp.sum(x, axis=0, dtype=xp.float64) / x.shape[0]
            z = (xp.astype(x, dtype) - xp.astype(centre, dtype)) / self.bandwidth
            half = 0.5 * xp.sum(z * z, axis=1)
        largest = float(xp.max(half))
        if not math.isfinite(largest):
            if z.dtype != xp.float64:
                return self.points(x, xp.float64, name)
            raise DataError(
                f"squared distances of `{name}` overflow at bandwidth {self.bandwidth:g}. Rescale the data, or widen it."
            )
        rounding = 4 * machine_epsilon(z) * largest
        if (
            rounding > _WORST_SINGLE and z.dtype != xp.float64
        ):  # single precision cannot hold these distances
            return self.points(x, xp.float64, name)
        noise = 2 * resolution * largest
        return Points(
            z,
            half,
            noise=min(noise, EXPONENT_ERROR),
            refine=z.dtype == xp.float64 and rounding > EXPONENT_ERROR,
        )

    def stored_points(self, x: Array, dtype: Any, name: str) -> Points:
        """Centre and largest norm are found in a pass each; blocks are then made on the way."""
        chunks = list(row_blocks(x.shape[0], max(1, _CHUNK_ENTRIES // x.shape[1])))
        centre = sum(x[rows, :].sum(axis=0, dtype=np.float64) for rows in chunks) / x.shape[0]

        def make(rows: Array) -> Points:
            z = rows.astype(
                dtype
            )  # a copy, worked on in place: blocks of several threads are held at once
            z -= centre.astype(dtype)
            z /= dtype(self.bandwidth)
            return Points(z, 0.5 * np.einsum("ij,ij->i", z, z))

        largest = max(float(np.asarray(make(x[rows, :]).half_squares).max()) for rows in chunks)
        if not math.isfinite(largest) or 4 * np.finfo(dtype).eps * largest > (
            _WORST_SINGLE if dtype == np.float32 else EXPONENT_ERROR
        ):
            if dtype == np.float32:
                return self.stored_points(x, np.float64, name)
            raise DataError(
                f"distances of `{name}` cannot be resolved at bandwidth {self.bandwidth:g} from a file larger than the memory "
                "budget. Widen the bandwidth, or load the data."
            )
        return StoredPoints(x, noise=2 * _resolution(x) * largest, make=make)

    def block(self, a: Points, b: Points) -> Array:
        """exp(a.b - |a|^2/2 - |b|^2/2) by one matrix product."""
        assert a.half_squares is not None and b.half_squares is not None
        return exp_in_place(
            gaussian_exponents(a.rows, b.rows, a.half_squares, b.half_squares, refine=a.refine)
        )


_CHUNK_ENTRIES = 1 << 20  # of a file that are looked at together
_WORST_SINGLE = 1e-4  # rounding of a float32 exponent beyond which blocks are computed in float64


@dataclass(frozen=True)
class Cosine(Kernel):
    """Alike when pointing the same way: the cosine of the angle between two rows.

    Its feature map is the normalised row itself, so d-dimensional data have at most d non-zero eigenvalues and the dual
    estimator needs a d x d problem only.
    """

    def clean(self, x: Any, name: str) -> Array:
        """Rows that point somewhere."""
        return _require_directions(clean_rows(x, name), name)

    def points(self, x: Array, dtype: Any, name: str) -> Points:
        """Rows divided by their norms."""
        return Points(_unit_rows(x, dtype), noise=_resolution(x))

    def block(self, a: Points, b: Points) -> Array:
        """Inner products of unit rows."""
        return a.rows @ b.rows.T

    def feature_dimension(self, width: int) -> int:
        """d."""
        return width

    def features(self, points: Points) -> Array:
        """The unit rows."""
        return points.rows


@dataclass(frozen=True)
class Polynomial(Kernel):
    """Alike in products of up to `degree` features: (scale a.b + offset)^degree, divided by its value at a = b.

    Dividing by sqrt(k(a, a) k(b, b)) makes the diagonal one. It is then the cosine of the rows [sqrt(scale) a, sqrt(offset)]
    to the power `degree`. `scale=None` means 1 / d, the default of scikit-learn and of the kernel distance (KID).
    """

    degree: int = 3
    scale: float | None = None
    offset: float = 1.0

    def __post_init__(self) -> None:
        if (
            not isinstance(self.degree, int | np.integer)
            or isinstance(self.degree, bool)
            or self.degree < 1
        ):
            raise ArgumentError(
                f"`degree` must be a whole number of at least 1; got {self.degree!r}."
            )
        object.__setattr__(self, "degree", int(self.degree))
        if self.scale is not None:
            scale = _number(self.scale, "scale", "positive and finite, or None for 1 / d")
            if scale <= 0:
                raise ArgumentError(
                    f"`scale` must be positive and finite, or None for 1 / d; got {self.scale!r}."
                )
            object.__setattr__(self, "scale", scale)
        offset = _number(self.offset, "offset", "finite and not negative")
        if offset < 0:
            raise ArgumentError(
                f"`offset` must be finite and not negative, or the kernel is indefinite; got {self.offset!r}."
            )
        object.__setattr__(self, "offset", offset)

    def clean(self, x: Any, name: str) -> Array:
        """Rows that point somewhere, once the offset has joined them."""
        x = clean_rows(x, name)
        return x if self.offset > 0 else _require_directions(x, name)

    def points(self, x: Array, dtype: Any, name: str) -> Points:
        """Unit rows of [a, sqrt(offset / scale)]."""
        scale = 1 / x.shape[1] if self.scale is None else self.scale
        rows = _unit_rows(x, dtype, augment=math.sqrt(self.offset / scale))
        return Points(rows, noise=self.degree * _resolution(x))

    def block(self, a: Points, b: Points) -> Array:
        """Inner products of unit rows, to the power `degree`."""
        return (a.rows @ b.rows.T) ** self.degree

    def feature_dimension(self, width: int) -> int:
        """Number of monomials of degree `degree` in the unit row's entries, the offset being one of them."""
        return math.comb(width + (self.offset > 0) + self.degree - 1, self.degree)

    def features(self, points: Points) -> Array:
        """All monomials, each with the square root of its multinomial coefficient."""
        xp = array_namespace(points.rows)
        monomials, roots = _monomials(points.rows.shape[1], self.degree)
        product = upload(roots, points.rows)[None, :]
        for factor in range(self.degree):
            product = product * xp.take(
                points.rows, upload(monomials[:, factor], points.rows), axis=1
            )
        return product


@lru_cache(maxsize=4)
def _monomials(width: int, degree: int) -> tuple[np.ndarray, np.ndarray]:
    """The factors of every monomial, and the square root of the number of orders that they can be written in."""
    monomials = np.array(list(combinations_with_replacement(range(width), degree)))
    powers = [np.unique(row, return_counts=True)[1] for row in monomials]
    orders = [
        math.factorial(degree) // math.prod(math.factorial(int(p)) for p in row) for row in powers
    ]
    return monomials, np.sqrt(np.array(orders, np.float64))


@dataclass(frozen=True)
class Categorical(Kernel):
    """Alike when equal: one for equal items, zero otherwise. Prompts as group ids.

    Its kernel matrix is block diagonal, so scores under it split into the groups and cost the sum of the groups' costs.
    """

    def clean(self, x: Any, name: str) -> Array:
        """A column of codes from flat ids; rows of numbers as they are."""
        codes = clean_ids(x, name)
        return clean_rows(x, name) if codes is None else codes[:, None]

    def points(self, x: Array, dtype: Any, name: str) -> Points:
        """Codes: `merge` has made every item that is left a group of its own."""
        xp = array_namespace(x)
        return Points(
            xp.arange(x.shape[0], dtype=xp.int64, device=device_of(x)),
            table=xp.ones((1,), dtype=dtype, device=device_of(x)),
        )

    def block(self, a: Points, b: Points) -> Array:
        """Whether codes agree, as ones and zeros."""
        assert a.table is not None
        return array_namespace(a.rows).astype(a.rows[:, None] == b.rows[None, :], a.table.dtype)


@dataclass(frozen=True)
class Precomputed(Kernel):
    """A kernel matrix of the user's own, passed in place of the data: square, symmetric, unit diagonal, no negative eigenvalue.

    Symmetry and diagonal are checked to 1e-8 (for single precision to 1e-4, half 1e-2), eigenvalues to 1e-6 of the largest and
    the rounding of the entries.
    """

    def clean(self, x: Any, name: str) -> Array:
        """A finite, square, symmetric matrix with unit diagonal."""
        x = clean_rows(x, name)
        xp = array_namespace(x)
        n, d = x.shape
        if n != d:
            raise DataError(
                f"`{name}` must be a square kernel matrix under Precomputed(); got shape {(n, d)}."
            )
        tolerance = 1e-8 if x.dtype == xp.float64 else 1e-4 if machine_epsilon(x) < 1e-6 else 1e-2
        diagonal = to_numpy(xp.abs(xp.astype(xp.linalg.diagonal(x), xp.float64) - 1))
        worst = int(diagonal.argmax())
        if diagonal[worst] > tolerance:
            raise DataError(
                f"a kernel matrix must have ones on its diagonal (to {tolerance:g}); `{name}`[{worst}, {worst}] is "
                f"{float(x[worst, worst]):.6g}. Divide entry (i, j) by sqrt(K[i, i] K[j, j])."
            )
        gap = float(xp.max(xp.abs(x - x.T)))
        if gap > tolerance:
            raise DataError(
                f"a kernel matrix must be symmetric (to {tolerance:g}); `{name}` and its transpose differ by {gap:.3g}."
            )
        return x

    def points(self, x: Array, dtype: Any, name: str) -> Points:
        """Places in the matrix, and the matrix made exactly symmetric."""
        xp = array_namespace(x)
        # entries rounded by eps / 2 at random move the eigenvalues of K / n by up to eps / sqrt(n)
        noise = machine_epsilon(x) / math.sqrt(x.shape[0])
        matrix = xp.astype(x, dtype)
        matrix = 0.5 * (matrix + matrix.T)
        return Points(
            xp.arange(x.shape[0], dtype=xp.int64, device=device_of(x)), table=matrix, noise=noise
        )

    def block(self, a: Points, b: Points) -> Array:
        """Entries of the matrix."""
        assert a.table is not None
        xp = array_namespace(a.table)
        return xp.take(xp.take(a.table, a.rows, axis=0), b.rows, axis=1)

    def pick(self, x: Array, places: np.ndarray) -> Array:
        """Rows and columns go together. (Equal rows of a kernel matrix belong to equal items, so `merge` holds here too.)"""
        return outer_take(x, upload(places, x))
