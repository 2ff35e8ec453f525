"""A kernel matrix that the user has computed."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from divprism.core.arrays import (
    Array,
    array_namespace,
    device_of,
    machine_epsilon,
    outer_take,
    to_numpy,
    upload,
)
from divprism.core.kernels.base import Kernel
from divprism.core.kernels.points import Points
from divprism.core.validation import clean_rows
from divprism.errors import DataError

__all__ = ["Precomputed"]


@dataclass(frozen=True)
class Precomputed(Kernel):
    """A kernel matrix in place of the data: square, symmetric, unit diagonal, semidefinite.

    Symmetry and diagonal are checked to 1e-8 (1e-4 in single, 1e-2 in half precision), eigenvalues
    to 1e-6 of the largest plus the rounding of the entries.
    """

    def clean(self, x: object, name: str) -> Array:
        """Validate a finite, square, symmetric matrix with unit diagonal."""
        matrix = clean_rows(x, name)
        xp = array_namespace(matrix)
        n, d = matrix.shape
        if n != d:
            raise DataError(
                f"`{name}` must be a square kernel matrix under Precomputed(); got shape {(n, d)}."
            )
        # The diagonal first: an unnormalised kernel is the more common mistake.
        tolerance = _tolerance(matrix)
        diagonal = xp.astype(xp.linalg.diagonal(matrix), xp.float64)
        errors = to_numpy(xp.abs(diagonal - 1))
        worst = int(errors.argmax())
        if errors[worst] > tolerance:
            raise DataError(
                f"a kernel matrix must have ones on its diagonal (to {tolerance:g}); "
                f"`{name}`[{worst}, {worst}] is {float(matrix[worst, worst]):.6g}. "
                "Divide entry (i, j) by sqrt(K[i, i] K[j, j])."
            )
        asymmetry = float(xp.max(xp.abs(matrix - matrix.T)))
        if asymmetry > tolerance:
            raise DataError(
                f"a kernel matrix must be symmetric (to {tolerance:g}); "
                f"`{name}` and its transpose differ by {asymmetry:.3g}."
            )
        return matrix

    def points(self, x: Array, dtype: Any, name: str) -> Points:
        """Positions in the matrix, and the matrix made exactly symmetric."""
        xp = array_namespace(x)
        # Entries rounded by eps / 2 at random move the eigenvalues of K / n by up to eps / sqrt(n).
        noise = machine_epsilon(x) / math.sqrt(x.shape[0])
        matrix = xp.astype(x, dtype)
        # Eigensolvers read one triangle only; the mean uses both.
        matrix = 0.5 * (matrix + matrix.T)
        positions = xp.arange(x.shape[0], dtype=xp.int64, device=device_of(x))
        return Points(positions, table=matrix, noise=noise)

    def block(self, a: Points, b: Points) -> Array:
        """Entries of the matrix."""
        assert a.table is not None
        xp = array_namespace(a.table)
        return xp.take(xp.take(a.table, a.rows, axis=0), b.rows, axis=1)

    def pick(self, x: Array, index: np.ndarray) -> Array:
        """Rows and columns of the matrix at the positions `index`."""
        # Equal rows of a kernel matrix belong to equal items, so the inherited `merge` holds: where
        # rows i and j agree, k_ij = k_jj = 1.
        return outer_take(x, upload(index, x))


def _tolerance(matrix: Array) -> float:
    """Largest deviation from symmetry and unit diagonal that counts as rounding."""
    if matrix.dtype == array_namespace(matrix).float64:
        return 1e-8
    if machine_epsilon(matrix) < 1e-6:
        return 1e-4
    return 1e-2
