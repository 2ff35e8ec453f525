"""New samples beside the bank: what a gradient is computed from. Arguments are checked and kernels chosen here."""

import math
from dataclasses import dataclass
from typing import Any

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
from divprism.guidance._pairs import Measure, measure_of, similarities, squared_distances
from divprism.guidance.bank import Bank
from divprism.guidance.objectives import Objective
from divprism.scores.bandwidth import MedianDistance

__all__ = ["Pool", "Side", "pose"]


@dataclass(frozen=True, eq=False)
class Side:
    """Samples or prompts under their kernel: `values` between the new ones and all, those of the bank first, shape (b, n)."""

    name: str
    kernel: Kernel
    measure: Measure
    values: Array


@dataclass(frozen=True, eq=False)
class Pool:
    """New samples (flat rows), the bank if it holds any, and the kernel values that tell them apart."""

    new: Array
    shape: tuple[int, ...]
    bank: Bank | None
    score: Objective
    x: Side
    t: Side | None

    @property
    def m(self) -> int:
        """Number of samples in the bank."""
        return len(self.bank) if self.bank is not None else 0

    @property
    def n(self) -> int:
        """Number of all samples."""
        return self.m + int(self.new.shape[0])

    @property
    def sides(self) -> list[Side]:
        """What samples are told apart by."""
        return [self.x] if self.t is None else [self.x, self.t]

    @property
    def precision(self) -> Any:
        """What rows are added up in: weights of eigenvectors with tiny eigenvalues are large, and cancel over copies."""
        xp = array_namespace(self.new)
        return (
            xp.float64 if self.new.dtype == xp.float64 or not self.score.by_squares else xp.float32
        )

    @property
    def joint(self) -> Array:
        """Kernel values between new samples and all, of samples times prompts."""
        return self.x.values if self.t is None else self.x.values * self.t.values

    def own(self, sides: list[Side], rows: slice, columns: slice) -> Array:
        """A part of the bank's own kernel matrix, the product of some sides."""
        assert self.bank is not None
        found: Any = 1.0
        for side in sides:
            found = found * similarities(
                side.kernel, self.bank.table(side.name, side.measure)[rows, columns]
            )
        return found

    def whole(self, sides: list[Side], values: Array) -> Array:
        """The kernel matrix of all samples, of trace one."""
        if self.m == 0:
            return values / self.n
        xp = array_namespace(values)
        every = slice(0, self.m)
        bank = self.own(sides, every, every)
        return xp.concat([xp.concat([bank, values[:, : self.m].T], axis=1), values]) / self.n


def pose(x: Any, t: Any, bank: Any, score: Objective, kernel_x: Any, kernel_t: Any) -> Pool:
    """Check that everything fits together, choose kernels, and compare the new samples with all."""
    new, shape = flat_rows(x, "x")
    earlier = _earlier(bank, new, shape)
    xp = array_namespace(new)
    new = new if earlier is None else _rounded(new, earlier)
    double = new.dtype == xp.float64 or not score.by_squares
    side_x = _side("x", new, earlier, kernel_x, xp.float64 if double else xp.float32)
    if not score.conditional:
        if kernel_t is not None:
            raise ArgumentError("`kernel_t` was given, but the score has no prompts in it.")
        return Pool(new, shape, earlier, score, side_x, None)
    if t is None:
        raise DataError("a conditional score needs the prompts `t` of the new samples.")
    if isinstance(t, Bank):
        raise ArgumentError(
            "`t` are the prompts of the new samples; got a Bank, which is passed as bank=..."
        )
    given = clean_prompts(t, "t")
    check_pairing(new.shape[0], given.rows.shape[0], "t")
    texts = like(given.rows, new, "t")
    if earlier is not None:
        if not earlier.has_prompts:
            raise DataError(
                "a conditional score needs prompts in the bank too: append them together with the samples."
            )
        earlier.require_prompts(given)
        texts = earlier.stored(texts, "t")  # rounded as those of the bank are
    return Pool(
        new, shape, earlier, score, side_x, _side("t", texts, earlier, kernel_t, xp.float64)
    )


def _earlier(bank: Any, new: Array, shape: tuple[int, ...]) -> Bank | None:
    """The bank, if there is anything in it, checked to go with the new samples."""
    if bank is None or (isinstance(bank, Bank) and not len(bank)):
        return None
    if not isinstance(bank, Bank):
        rows, prompts = bank if isinstance(bank, tuple) and len(bank) == 2 else (bank, None)
        flat, sides = flat_rows(rows, "bank")
        bank = Bank.around(
            like(flat, new, "bank"),
            sides,
            None if prompts is None else clean_prompts(prompts, "bank"),
        )
    there = bank.rows("x")
    require_together(new, there)
    if (
        len(shape) > 1 or there.shape[1] != new.shape[1]
    ):  # of flat rows only the width can be held against them
        require_shape(shape, bank.shape)
    return bank


def _rounded(new: Array, bank: Bank) -> Array:
    """New samples rounded as the bank has rounded its own: a copy of a sample in it is to be a copy."""
    xp, there = array_namespace(new), bank.rows("x").dtype
    stored, given = xp.finfo(there), xp.finfo(new.dtype)
    if stored.eps <= given.eps and stored.smallest_normal <= given.smallest_normal:
        return new
    with np.errstate(over="ignore"):
        rounded = xp.astype(xp.astype(new, there), new.dtype)
    return xp.where(xp.isfinite(rounded), rounded, new)


def _side(name: str, rows: Array, bank: Bank | None, kernel: Any, dtype: Any) -> Side:
    """Kernel values between new samples, or prompts, and all; a kernel that was left open is chosen."""
    xp = array_namespace(rows)
    if kernel is None and rows.ndim == 1:
        kernel = Categorical()
    measure = squared_distances if kernel is None else measure_of(kernel, rows, f"kernel_{name}")
    if isinstance(kernel, Cosine):
        kernel.clean(rows, name)
        if bank is not None:
            bank.table(name, measure)  # looks for zeros in the bank
    earlier = [] if bank is None else [measure(rows, bank.rows(name), dtype)]
    measured = xp.concat([*earlier, measure(rows, rows, dtype)], axis=1)
    if kernel is None:
        kernel = Gaussian(_median_distance(name, measured, bank))
    b, n = measured.shape
    return Side(name, kernel, measure, fill_diagonal(similarities(kernel, measured), 0, n - b, b))


def _median_distance(name: str, measured: Array, bank: Bank | None) -> float:
    """The bandwidth of `MedianDistance` for bank and new samples together, from squared distances that are there already."""
    xp = array_namespace(measured)
    b, n = measured.shape
    m = n - b
    copies = to_numpy(xp.any(xp.tril(measured == 0, k=m - 1), axis=1))  # of a sample before it
    first = m + np.flatnonzero(~copies)
    if bank is not None:
        table = bank.table(name, squared_distances)
        first = np.concatenate([bank.kept(("distinct", name), lambda: _distinct(table)), first])
    if first.size < 2:
        return 1.0
    limit = MedianDistance().max_rows
    if first.size > limit:
        first = np.sort(np.random.default_rng(0).choice(first, limit, replace=False))
    new = upload(first[first >= m] - m, measured)
    squares = xp.take(xp.take(measured, new, axis=0), upload(first, measured), axis=1)
    if bank is not None:
        old = upload(first[first < m], measured)
        size = old.shape[0]
        squares = xp.concat(
            [xp.concat([outer_take(table, old), squares[:, :size].T], axis=1), squares]
        )
    # sorted, the zeros of the diagonal come first, then every pair twice
    return math.sqrt(middle(squares, first.size + first.size * (first.size - 1) // 2 - 1))


def _distinct(table: Array) -> np.ndarray:
    """Places of the samples that are no copies of one before them."""
    xp = array_namespace(table)
    return np.flatnonzero(~to_numpy(xp.any(xp.tril(table == 0, k=-1), axis=1)))
