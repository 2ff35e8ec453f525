"""What rounding does to a spectrum: of kernel values, in full or in 16 bits, and of the data."""

import itertools
import math
from collections.abc import Sequence

import numpy as np

from divprism.core.arrays import Array, is_numpy_array, machine_epsilon, to_numpy
from divprism.core.kept_tiles import from_16_bits, in_16_bits
from divprism.core.operators import ColumnNoise, Operator
from divprism.core.tiles import row_blocks

__all__ = ["data_noise", "may_be_compact", "noise_entropy", "rounding"]

# Points whose kernel values are computed again in double precision.
_SAMPLE = 256

# Points from which on kernel values are rounded to 16 bits.
_COMPACT_SIZE = 30_000


def data_noise(operator: Operator) -> float:
    """Eigenvalues below this are rounding errors of the data."""
    columns = _spaced(operator.size)
    values_at, noise = operator.columns(columns), ColumnNoise.of(operator, columns)
    root, sums = np.sqrt(operator.masses), np.zeros((2, columns.size))
    for rows in row_blocks(operator.size):
        values = to_numpy(values_at(rows)).astype(np.float64)
        sums += noise.sums(rows, values * root[rows, None] * root[None, columns])
    return noise.total(sums)


def noise_entropy(operator: Operator, radius: float) -> float:
    """Entropy that rounding noise would add if all eigenvalues were zero."""
    return operator.size * radius / operator.masses.sum() * -math.log(radius)


def _spaced(size: int) -> np.ndarray:
    """Numbers of some points, evenly spaced."""
    return np.unique(np.linspace(0, size - 1, _SAMPLE).astype(np.int64))


def may_be_compact(operators: Sequence[Operator]) -> bool:
    """Whether 16 bits may do: by size alone, so that the memory of a machine changes no result."""
    is_large = max(operator.size for operator in operators) >= _COMPACT_SIZE
    factors = itertools.chain.from_iterable(operator.factors for operator in operators)
    return is_large and all(is_numpy_array(factor.points.rows) for factor in factors)


def rounding(operator: Operator, *, compact: bool = False) -> float:
    """Radius of the eigenvalues that rounding errors of the kernel values put in place of zeros.

    Independent errors of size e in the entries of K produce a cloud of eigenvalues of radius 2 e
    times the root of the largest mass. The size is measured, on a sample of the values that is
    computed again in double precision.
    """
    index = _spaced(operator.size)
    everything = slice(0, index.size)
    single = _sampled(operator.sample(index, double=False), compact)
    double = operator.sample(index, double=True).values(everything, everything)
    # The diagonal is exact.
    off_diagonal = ~np.eye(index.size, dtype=bool)
    computed = to_numpy(single)[off_diagonal]
    accurate = to_numpy(double)[off_diagonal].astype(np.float64)
    error = float(np.sqrt(((computed - accurate) ** 2).mean()))
    # Rounding of a typical value, in case the sample happens to be exact.
    typical = max(float(np.sqrt((accurate**2).mean())), math.sqrt(1 / operator.size))
    # A number rounds by up to half of epsilon, a quarter on average.
    least = machine_epsilon(single) * typical / 4
    return 2 * max(error, least) * math.sqrt(float(operator.masses.max()))


def _sampled(sample: Operator, compact: bool) -> Array:
    """The kernel values of a sample, as a sweep computes them."""
    everything = slice(0, sample.size)
    if not compact:
        return sample.values(everything, everything)
    values = np.ones((sample.size, sample.size), np.float32)
    for factor, index in sample.indexed_factors():
        tile = factor.values(slice(0, factor.size), slice(0, factor.size))
        values *= from_16_bits(in_16_bits(tile))[np.ix_(index, index)]
    return values
