"""Operators as dense matrices, as second moments, in single precision, and their definiteness."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from divprism.core.arrays import Array, array_namespace, to_numpy, upload
from divprism.core.kernels import Precomputed
from divprism.core.operators.base import Operator
from divprism.core.operators.hadamard import HadamardOperator
from divprism.core.operators.kernel import KernelOperator
from divprism.core.tiles import row_blocks
from divprism.errors import DataError

__all__ = [
    "ColumnNoise",
    "dense",
    "in_single",
    "matrix_noise",
    "require_definite",
    "require_positive",
    "second_moment",
]

# Rows of a matrix whose errors are added up at a time.
_PANEL = 256

# Features held at a time: 32 MB of float64.
_FEATURE_ENTRIES = 1 << 22

# Share of the largest eigenvalue by which others may be negative without an error.
_DEFINITE_TOLERANCE = 1e-6


def in_single(operators: Sequence[Operator]) -> list[Operator]:
    """The same operators with kernel values in single precision; shared factors stay shared."""
    factors: dict[KernelOperator, KernelOperator] = {}

    def single(factor: KernelOperator) -> KernelOperator:
        # One replacement for each factor: sweeps recognise shared factors by identity.
        if factor not in factors:
            factors[factor] = replace(factor, dtype=factor.single)
        return factors[factor]

    converted: list[Operator] = []
    for operator in operators:
        if isinstance(operator, HadamardOperator):
            left, right = single(operator.left), single(operator.right)
            converted.append(replace(operator, left=left, right=right))
        else:
            converted.append(single(operator.factors[0]))
    return converted


def dense(operators: Sequence[Operator]) -> Iterator[Array]:
    """Yield the matrix M of each operator; a kernel matrix that two of them need is computed once.

    The caller may overwrite a matrix: the kernel matrices that later operators need are separate.
    """
    # A kernel matrix is dropped after its last use, to keep the peak of memory low.
    needed = [factor for operator in operators for factor in operator.factors]
    tables: dict[KernelOperator, Array] = {}
    for operator in operators:
        for factor in operator.factors:
            if factor not in tables:
                tables[factor] = factor.table()
        matrix = operator.combine([tables[factor] for factor in operator.factors])
        for factor in operator.factors:
            needed.remove(factor)
            if factor not in needed:
                del tables[factor]
        # The matrix of a KernelOperator is its table, which a later product may need unscaled.
        if any(matrix is table for table in tables.values()):
            matrix = array_namespace(matrix).asarray(matrix, copy=True)
        root = upload(np.sqrt(operator.masses), matrix)
        matrix *= root[:, None]
        matrix *= root[None, :]
        yield matrix


def matrix_noise(operator: Operator, matrix: Array) -> float:
    """Bound on the error of the eigenvalues of M from rounding of the data and of the exponents.

    `matrix` is M. Sharper than `Operator.noise` where rounding differs between points: those far
    from the centre round most, but a point that is far from all others is similar to none of them,
    and its row of M is zero, without error, beside the exact diagonal.
    """
    noise, noises = _noises(operator)
    if noises is not None:
        noise += _largest_row_error(matrix, array_namespace(noises).astype(noises, matrix.dtype))
    return noise


@dataclass(frozen=True, eq=False)
class ColumnNoise:
    """`matrix_noise` from some columns of M, block by block: the largest of their sums.

    Where these are a sample of all columns, the noise is that of typical columns. `common` is the
    noise of every entry, `noises` that of each point.
    """

    common: float
    noises: np.ndarray
    columns: np.ndarray
    diagonal: np.ndarray

    @classmethod
    def of(cls, operator: Operator, columns: np.ndarray) -> "ColumnNoise":
        """The noise of some columns of an operator."""
        common, given = _noises(operator)
        noises = np.zeros(operator.size)
        if given is not None:
            noises = to_numpy(given).astype(np.float64)
        return cls(common, noises, columns, operator.masses[columns])

    def sums(self, rows: slice, block: np.ndarray) -> np.ndarray:
        """What some rows of the columns add, shape (2, number of columns)."""
        sizes = np.abs(block)
        return np.stack([sizes.sum(axis=0), self.noises[rows] @ sizes])

    def total(self, sums: np.ndarray) -> float:
        """The noise, from the `sums` of all rows together."""
        # As in `_largest_row_error`; the diagonal of M are the masses, as that of K is one.
        own = self.noises[self.columns] * (sums[0] - 2 * self.diagonal)
        return self.common + max(0.0, float((own + sums[1]).max()))


def _noises(operator: Operator) -> tuple[float, Array | None]:
    """A noise common to all entries of M, and one for each point, or None without such."""
    # Kernel values are at most 1, so errors of both factors add up in their product.
    common, by_row = 0.0, []
    for factor, index in operator.indexed_factors():
        noises = factor.points.noises
        if noises is None:
            # Errors up to e in K are at most e tr(W) in the eigenvalues of W^(1/2) K W^(1/2).
            common += factor.noise * float(operator.masses.sum())
            continue
        xp = array_namespace(noises)
        of_rows = xp.take(noises, upload(index, noises), axis=0)
        by_row.append(xp.astype(of_rows, xp.float64))
    if not by_row:
        return common, None
    return common, sum(by_row)


def _largest_row_error(matrix: Array, noises: Array) -> float:
    """Largest row sum of |M_ij| (noises_i + noises_j): a bound on the norm of the error."""
    xp = array_namespace(matrix)
    diagonal = xp.linalg.diagonal(matrix)
    # No eigenvalue of a symmetric matrix exceeds its largest sum of absolute values in a row.
    largest = 0.0
    for rows in row_blocks(matrix.shape[0], _PANEL):
        block = xp.abs(matrix[rows, :])
        own = noises[rows]
        # The diagonal is exact, so row i sums up, over j other than i, |M_ij| (noises_i + noises_j)
        # = noises_i (sum_j |M_ij| - 2 M_ii) + sum_j |M_ij| noises_j, the last two over all j.
        sums = xp.sum(block, axis=1) - 2 * diagonal[rows]
        # Not a matrix product: threads of NumPy's BLAS would spin on while SciPy's solves M.
        weighted = xp.sum(block * noises[None, :], axis=1)
        largest = max(largest, float(xp.max(own * sums + weighted)))
    return largest


def second_moment(operator: Operator) -> Array:
    """F' F, which shares its non-zero eigenvalues and its norm with F F' = M."""
    total: Array = 0.0
    # Block by block, because F itself may be far larger than F' F.
    block_size = max(1, _FEATURE_ENTRIES // (operator.feature_dimension or 1))
    for rows in row_blocks(operator.size, block_size):
        features = operator.features(rows)
        total = total + features.T @ features
    return total


def require_definite(operator: KernelOperator) -> None:
    """Raise DataError for a precomputed matrix with negative eigenvalues.

    By a Cholesky factorisation, which is much faster than computing the eigenvalues.
    """
    if not isinstance(operator.kernel, Precomputed):
        return
    assert operator.points.table is not None
    matrix = to_numpy(operator.points.table)
    # No eigenvalue exceeds the largest row sum.
    largest = float(np.abs(matrix).sum(axis=0).max())
    # A factorisation exists if and only if no eigenvalue is below minus the slack.
    # Errors up to e in each entry move no eigenvalue by more than e n; twice that is allowed.
    slack = _DEFINITE_TOLERANCE * largest + 2 * operator.noise * operator.size
    try:
        np.linalg.cholesky(matrix + slack * np.eye(operator.size))
    except np.linalg.LinAlgError:
        raise DataError(_indefinite(operator)) from None


def require_positive(operator: Operator, eigenvalues: np.ndarray) -> None:
    """Raise DataError if an eigenvalue is negative beyond rounding."""
    rounding = 2 * operator.noise * operator.masses.sum()
    if eigenvalues.min() < -(_DEFINITE_TOLERANCE * eigenvalues.max() + rounding):
        raise DataError(_indefinite(operator))


def _indefinite(operator: Operator) -> str:
    names = " o ".join(f"`{factor.name}`" for factor in operator.factors)
    return (
        f"{names} is not a kernel matrix: it has eigenvalues below zero "
        f"(by more than {_DEFINITE_TOLERANCE:g} of the largest). "
        "Was it made from a similarity that is not positive semidefinite?"
    )
