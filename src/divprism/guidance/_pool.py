"""New samples next to the bank, validated and compared: the data that a gradient is computed from.

Everything here runs on the libraries of the array API standard; only index arrays live on the host.
"""

import math
from dataclasses import dataclass

import numpy as np

from divprism.core.arrays import (
    Array,
    array_namespace,
    fill_diagonal,
    middle,
    outer_take,
    to_numpy,
    upload,
)
from divprism.core.kernels import Categorical, Cosine, Gaussian, Kernel
from divprism.core.validation import check_pairing, like
from divprism.errors import ArgumentError, DataError
from divprism.guidance._inputs import clean_prompts, flat_rows, require_shape, require_together
from divprism.guidance._pairs import DType, Measure, measure_of, similarities, squared_distances
from divprism.guidance.bank import Bank
from divprism.guidance.objectives import Objective
from divprism.scores.bandwidth import MedianDistance

__all__ = ["Pool", "PooledSide", "pose"]


@dataclass(frozen=True, eq=False)
class PooledSide:
    """Samples ("x") or prompts ("t") under their kernel.

    `values` are the kernel values between the b new items and all n, those of the bank first.
    """

    name: str
    kernel: Kernel
    measure: Measure
    values: Array


@dataclass(frozen=True, eq=False)
class Pool:
    """New samples as flat rows, the bank unless it is empty, and the kernel values between them."""

    new: Array
    shape: tuple[int, ...]
    bank: Bank | None
    score: Objective
    x: PooledSide
    t: PooledSide | None

    @property
    def m(self) -> int:
        """Number of samples in the bank."""
        if self.bank is None:
            return 0
        return len(self.bank)

    @property
    def n(self) -> int:
        """Number of samples in bank and batch together."""
        return self.m + int(self.new.shape[0])

    @property
    def sides(self) -> list[PooledSide]:
        """The sides whose kernels multiply to the joint kernel."""
        if self.t is None:
            return [self.x]
        return [self.x, self.t]

    @property
    def precision(self) -> DType:
        """The dtype in which weighted rows are summed."""
        return _precision(self.new, self.score)

    @property
    def joint(self) -> Array:
        """Joint kernel values between the new samples and all, shape (b, n)."""
        if self.t is None:
            return self.x.values
        return self.x.values * self.t.values

    def bank_block(self, sides: list[PooledSide], rows: slice, columns: slice) -> Array:
        """A block of the kernel matrix inside the bank: the product over some sides."""
        assert self.bank is not None
        block: Array = 1.0
        for side in sides:
            measured = self.bank.table(side.name, side.measure)[rows, columns]
            block = block * similarities(side.kernel, measured)
        return block

    def trace_one_matrix(self, sides: list[PooledSide], values: Array) -> Array:
        """The kernel matrix of all n samples divided by n, from `values` of the new rows."""
        if self.m == 0:
            return values / self.n
        xp = array_namespace(values)
        every = slice(0, self.m)
        bank = self.bank_block(sides, every, every)
        upper = xp.concat([bank, values[:, : self.m].T], axis=1)
        return xp.concat([upper, values]) / self.n


def _precision(new: Array, score: Objective) -> DType:
    """Single precision only at order 2 and only if the samples are not double.

    The weights of eigenvectors with tiny eigenvalues are large and cancel over copies of a sample:
    in single precision that cancellation would leave noise.
    """
    xp = array_namespace(new)
    if new.dtype == xp.float64 or not score.by_squares:
        return xp.float64
    return xp.float32


def pose(
    x: Array,
    t: Array,
    bank: object,
    score: Objective,
    kernel_x: Kernel | None,
    kernel_t: Kernel | None,
) -> Pool:
    """Validate the arguments of a gradient, choose kernels, compare the new samples with all."""
    new, shape = flat_rows(x, "x")
    earlier = _filled_bank(bank, new, shape)
    if earlier is not None:
        new = _rounded(new, earlier)
    side_x = _side("x", new, earlier, kernel_x, _precision(new, score))
    if not score.conditional:
        if kernel_t is not None:
            raise ArgumentError(
                "`kernel_t` was given, but the score does not use prompts. "
                "Drop it, or choose a conditional score."
            )
        return Pool(new, shape, earlier, score, side_x, None)
    prompts = _prompt_rows(t, new, earlier)
    # Always double: prompts are narrow, and their distances are cheap next to those of samples.
    side_t = _side("t", prompts, earlier, kernel_t, array_namespace(new).float64)
    return Pool(new, shape, earlier, score, side_x, side_t)


def _prompt_rows(t: Array, new: Array, bank: Bank | None) -> Array:
    """Return the prompts of the new samples, rounded as those in the bank are."""
    if t is None:
        raise DataError("a conditional score needs the prompts `t` of the new samples.")
    if isinstance(t, Bank):
        raise ArgumentError(
            "`t` must be the prompts of the new samples; got a Bank, which is passed as bank=..."
        )
    prompts = clean_prompts(t, "t")
    check_pairing(new.shape[0], prompts.rows.shape[0], "t")
    rows = like(prompts.rows, new, "t")
    if bank is None:
        return rows
    if not bank.has_prompts:
        raise DataError(
            "a conditional score needs prompts in the bank too: "
            "append them together with the samples."
        )
    bank.require_prompts(prompts)
    return bank.stored(rows, "t")


def _filled_bank(bank: object, new: Array, shape: tuple[int, ...]) -> Bank | None:
    """Return the bank, or None if it is empty, checked against the new samples."""
    if bank is None:
        return None
    if not isinstance(bank, Bank):
        bank = _bank_of_arrays(bank, new)
    if not len(bank):
        return None
    stored = bank.rows("x")
    require_together(new, stored)
    # Flat rows carry no shape of their own: they fit any bank of the same width.
    if len(shape) > 1 or stored.shape[1] != new.shape[1]:
        require_shape(shape, bank.shape)
    return bank


def _bank_of_arrays(arrays: Array, new: Array) -> Bank:
    """Return a bank around an array of samples, or around a pair of samples and prompts."""
    # A list of two is a batch of two samples; only a tuple is a pair.
    if isinstance(arrays, tuple) and len(arrays) == 2:
        samples, prompts = arrays
    else:
        samples, prompts = arrays, None
    flat, shape = flat_rows(samples, "bank")
    rows = like(flat, new, "bank")
    if prompts is None:
        return Bank.around(rows, shape)
    return Bank.around(rows, shape, clean_prompts(prompts, "bank"))


def _rounded(new: Array, bank: Bank) -> Array:
    """Round new samples as the bank rounds its own, so that copies of stored samples are equal."""
    xp = array_namespace(new)
    dtype = bank.rows("x").dtype
    stored, given = xp.finfo(dtype), xp.finfo(new.dtype)
    if stored.eps <= given.eps and stored.smallest_normal <= given.smallest_normal:
        return new
    with np.errstate(over="ignore"):
        rounded = xp.astype(xp.astype(new, dtype), new.dtype)
    # Entries beyond the range of the bank keep their value: no stored sample equals them anyway.
    return xp.where(xp.isfinite(rounded), rounded, new)


def _side(
    name: str, rows: Array, bank: Bank | None, kernel: Kernel | None, dtype: DType
) -> PooledSide:
    """Compare the new samples, or prompts, with all; None chooses a kernel."""
    xp = array_namespace(rows)
    if kernel is None and rows.ndim == 1:
        kernel = Categorical()
    measure: Measure = squared_distances
    if kernel is not None:
        measure = measure_of(kernel, rows, f"kernel_{name}")
    if isinstance(kernel, Cosine):
        kernel.clean(rows, name)
        if bank is not None:
            # Building the table refuses rows of zeros in the bank, which have no direction.
            bank.table(name, measure)
    blocks = []
    if bank is not None:
        blocks.append(measure(rows, bank.rows(name), dtype))
    blocks.append(measure(rows, rows, dtype))
    measured = xp.concat(blocks, axis=1)
    if kernel is None:
        kernel = Gaussian(_median_distance(name, measured, bank))
    b, n = measured.shape
    # k(a, a) is one on paper, and must stay one to the bit: sums of squares rely on it.
    values = fill_diagonal(similarities(kernel, measured), 0, n - b, b)
    return PooledSide(name, kernel, measure, values)


def _median_distance(name: str, measured: Array, bank: Bank | None) -> float:
    """Return the bandwidth of `MedianDistance` for bank and new samples together.

    Of more distinct samples than that rule looks at, the latest ones count. No new distances are
    needed: `measured` holds the squared distances of the new rows, and the bank keeps a table of
    its own.
    """
    xp = array_namespace(measured)
    b, n = measured.shape
    m = n - b
    # New row i is row m + i of all: only zeros left of its diagonal mark an earlier copy.
    copies = to_numpy(xp.any(xp.tril(measured == 0, k=m - 1), axis=1))
    distinct = m + np.flatnonzero(~copies)
    if bank is not None:
        table = bank.table(name, squared_distances)
        stored = bank.kept(("distinct", name), lambda: _distinct(table))
        distinct = np.concatenate([stored, distinct])
    # Without two distinct samples every bandwidth gives the same kernel.
    if distinct.size < 2:
        return 1.0
    limit = MedianDistance().max_rows
    if distinct.size > limit:
        # The latest samples: they are the ones that guidance compares a new sample with longest.
        distinct = distinct[-limit:]
    new = upload(distinct[distinct >= m] - m, measured)
    squares = xp.take(xp.take(measured, new, axis=0), upload(distinct, measured), axis=1)
    if bank is not None:
        old = upload(distinct[distinct < m], measured)
        upper = xp.concat([outer_take(table, old), squares[:, : old.shape[0]].T], axis=1)
        squares = xp.concat([upper, squares])
    # In rising order the zeros of the diagonal come first, then every pair twice.
    count = distinct.size
    return math.sqrt(middle(squares, count + count * (count - 1) // 2 - 1))


def _distinct(table: Array) -> np.ndarray:
    """Return the indices of the samples that are not copies of an earlier one."""
    xp = array_namespace(table)
    copies = xp.any(xp.tril(table == 0, k=-1), axis=1)
    return np.flatnonzero(~to_numpy(copies))
