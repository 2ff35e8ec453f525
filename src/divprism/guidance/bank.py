"""Bank: a sliding window of earlier samples and their prompts, to compare new samples with."""

from collections.abc import Callable, Hashable
from pathlib import Path
from typing import Any

import numpy as np

from divprism.core.arrays import (
    Array,
    array_namespace,
    device_of,
    is_array_api_obj,
    plain_mode,
    to_numpy,
    upload,
)
from divprism.core.kernels import Cosine
from divprism.core.validation import check_pairing, like, require_dense, whole_number
from divprism.data.archives import open_archive, write_archive
from divprism.errors import ArgumentError, DataError
from divprism.guidance._bank_files import checked_content
from divprism.guidance._inputs import (
    Prompts,
    clean_prompts,
    flat_rows,
    require_shape,
    require_together,
)
from divprism.guidance._pairs import Measure, cosines
from divprism.guidance._rings import extended, map_optional, moved, runs

__all__ = ["Bank"]

_FORMAT = 1
_DTYPES = ("float16", "float32", "float64")
# A bank that is filled one sample at a time would otherwise grow at each of the first appends.
_SMALLEST_RING = 16
_MAX_KEPT = 8  # values kept for different kernels before all of them are dropped


class Bank:
    """The last `capacity` samples and their prompts, in a ring buffer.

    Appending costs O(1) per sample. The bank keeps the squared distances (or cosines) between its
    samples from one call to the next. It updates them when a gradient first asks for them, in
    O(n d) for each sample that has come in since, so another bandwidth costs O(n^2) and not
    O(n^2 d). These distances take 8 n^2 bytes, and prompts take the same again: no more than the
    samples themselves in single precision as long as n <= d / 4.

    Samples live as flat rows in the library and on the device of the first ones appended; the bank
    remembers their shape.

    Parameters
    ----------
    capacity : int
        Number of samples in the window; 300 in Conditional Vendi, App. E.3.
    dtype : str
        Precision in which samples and embeddings are stored: "float32", "float16" or "float64".

    Examples
    --------
    >>> bank = Bank(capacity=3)
    >>> bank.append(np.zeros((2, 4, 8, 8)), prompts=["a dog", "a cat"])
    >>> bank.append(np.ones((2, 4, 8, 8)), prompts=["a dog", "a cat"])
    >>> len(bank), bank.shape, bank.arrived
    (3, (4, 8, 8), 4)
    """

    def __init__(self, capacity: int = 300, *, dtype: object = "float32") -> None:
        self._capacity = whole_number(capacity, "capacity", 1)
        # Dtypes of NumPy and torch are accepted too: np.float16, torch.float16.
        name = getattr(dtype, "__name__", str(dtype)).split(".")[-1]
        if name not in _DTYPES:
            raise ArgumentError(f"`dtype` must be one of {', '.join(_DTYPES)}; got {dtype!r}.")
        self._dtype = name
        self.clear()

    @property
    def capacity(self) -> int:
        """Number of samples that the window holds."""
        return self._capacity

    @property
    def dtype(self) -> str:
        """Precision in which samples and embeddings are stored."""
        return self._dtype

    def clear(self) -> None:
        """Remove all samples and forget their shape."""
        self.arrived = 0
        self.shape: tuple[int, ...] | None = None
        # Rings: rows [0, _used) are filled, and the next sample goes to row _next.
        self._latents: Array = None
        self._prompts: Array = None
        self._kind: str | None = None
        self._arrivals = np.zeros(0, np.int64)
        self._written = np.zeros(0, np.int64)  # number of the append that last wrote each row
        self._appends = 0
        self._used = 0
        self._next = 0
        # (side, measure) -> (number of the last append it includes, table)
        self._tables: dict[tuple[str, Measure], tuple[int, Array]] = {}
        self._kept: dict[Hashable, object] = {}

    @classmethod
    def around(cls, rows: Array, shape: tuple[int, ...], prompts: Prompts | None = None) -> "Bank":
        """Return a full bank that shares clean arrays with the user: read it, never append."""
        # A capacity of just these rows: the ring is full, and its order is that of the rows.
        bank = cls(int(rows.shape[0]))
        bank._dtype = str(rows.dtype).split(".")[-1]
        bank._adopt(rows, prompts, shape, np.arange(rows.shape[0]))
        return bank

    def _adopt(
        self, rows: Array, prompts: Prompts | None, shape: tuple[int, ...], arrivals: np.ndarray
    ) -> None:
        """Use these arrays, oldest row first, as the rings."""
        size = int(rows.shape[0])
        self.clear()
        if prompts is not None:
            check_pairing(size, prompts.rows.shape[0], "t")
            self._prompts, self._kind = like(prompts.rows, rows, "t"), prompts.kind
        self.shape = shape
        self._latents = rows
        self._used = size
        self._next = size % self.capacity
        self._arrivals = arrivals
        self.arrived = int(arrivals.max()) + 1
        # All rows count as written by append number 1, after the 0 of a new table.
        self._appends = 1
        self._written = np.ones(size, np.int64)

    def __len__(self) -> int:
        return self._used

    def __repr__(self) -> str:
        return f"Bank({len(self)} of {self.capacity}, shape={self.shape}, dtype={self.dtype!r})"

    @property
    def latents(self) -> Array:
        """The samples, oldest first, in their original shape."""
        if not len(self):
            raise DataError("the bank is empty: call append first.")
        rows = self._in_order(self._latents)
        assert self.shape is not None
        return array_namespace(rows).reshape(rows, (len(self), *self.shape))

    @property
    def has_prompts(self) -> bool:
        """Whether samples came with their prompts."""
        return self._prompts is not None

    @property
    def prompts(self) -> Array:
        """Embeddings (flat) or ids of the prompts, oldest first; None if there are none."""
        return map_optional(self._in_order, self._prompts)

    def _order(self) -> np.ndarray:
        """Row numbers of the ring, oldest sample first."""
        rows = np.arange(len(self))
        # Until the window is full, rows lie in the order of arrival.
        if len(self) < self.capacity:
            return rows
        return np.roll(rows, -self._next)

    def _in_order(self, ring: Array) -> Array:
        return array_namespace(ring).take(ring, upload(self._order(), ring), axis=0)

    def append(self, latents: Array, prompts: Array = None) -> None:
        """Put samples into the window in the order of their rows; the oldest leave it.

        Parameters
        ----------
        latents : array, shape (b, ...)
            Finite numbers; every sample has the shape of the first.
        prompts : array, shape (b, ...), or ids, length b, or None
            Embeddings, or whole numbers or texts that are equal for equal prompts; either for all
            samples of a bank or for none.
        """
        with plain_mode():
            rows, shape = flat_rows(latents, "latents")
            given = None
            if prompts is not None:
                given = clean_prompts(prompts, "prompts")
            # All checks come before the first write: a refused batch leaves the bank as it was.
            self.require_fit(rows, shape, given)
            rows = self.stored(rows, "latents")
            prompt_rows = None
            if given is not None:
                prompt_rows = self.stored(like(given.rows, rows, "prompts"), "prompts")
                self._kind = given.kind
            if not len(self):
                # The first samples decide the library and the device of the rings.
                self.shape = shape
                self._latents = rows[:0, :]
                self._prompts = map_optional(lambda a: a[:0, ...], prompt_rows)
            self._write(rows, prompt_rows)

    def _write(self, rows: Array, prompts: Array) -> None:
        """Write rows that fit the rings, and grow these where there is room."""
        size = int(rows.shape[0])
        self._make_room(len(self) + size)
        self._appends += 1
        # Tables are updated row by row, but sums over the bank must be computed again.
        self._kept.clear()
        # Of more rows than the window holds only the last ones stay. The loop wraps around at the
        # end of the ring.
        first = max(0, size - self.capacity)
        while first < size:
            last = min(size, first + self._arrivals.size - self._next)
            target = slice(self._next, self._next + last - first)
            self._latents[target, :] = rows[first:last, :]
            if prompts is not None:
                self._prompts[target, ...] = prompts[first:last, ...]
            self._arrivals[target] = self.arrived + np.arange(first, last)
            self._written[target] = self._appends
            self._used = max(self._used, target.stop)
            self._next = target.stop % self.capacity
            first = last
        self.arrived += size

    def require_fit(self, rows: Array, shape: tuple[int, ...], prompts: Prompts | None) -> None:
        """Refuse samples that cannot join those in the bank."""
        if prompts is not None:
            check_pairing(rows.shape[0], prompts.rows.shape[0], "t")
        # The first samples decide what fits.
        if not len(self):
            return
        require_shape(shape, self.shape)
        if prompts is None and self.has_prompts:
            raise DataError("the bank has prompts, so new samples must come with prompts too.")
        if prompts is not None and not self.has_prompts:
            raise DataError("the bank has no prompts, so new samples must come without prompts.")
        if prompts is not None:
            self.require_prompts(prompts)
        require_together(rows, self._latents)

    def require_prompts(self, prompts: Prompts) -> None:
        """Refuse prompts of another kind than those in the bank."""
        prompts.require_kind(self._kind, self._prompts.shape[1:])

    def stored(self, rows: Array, name: str) -> Array:
        """Return rows in the precision of the bank, if they are in its range; ids unchanged."""
        if rows.ndim == 1:
            return rows
        xp = array_namespace(rows)
        dtype = getattr(xp, self.dtype, None)
        if dtype is None:
            raise DataError(
                f"{xp.__name__} has no {self.dtype}. Create the bank with dtype='float32'."
            )
        # Overflow becomes infinity, which the check below reports.
        with np.errstate(over="ignore"):
            stored = xp.astype(rows, dtype)
        if not bool(xp.all(xp.isfinite(stored))):
            raise DataError(
                f"some `{name}` are too large for {self.dtype}. "
                "Create the bank with dtype='float32'."
            )
        return stored

    def _make_room(self, size: int) -> None:
        """Grow the rings by doubling until they hold `size` samples, or the whole window."""
        length = self._arrivals.size
        needed = min(self.capacity, size)
        if needed <= length:
            return
        more = min(self.capacity, max(needed, 2 * length, _SMALLEST_RING)) - length
        self._latents = extended(self._latents, more)
        self._prompts = map_optional(lambda a: extended(a, more), self._prompts)
        self._arrivals = extended(self._arrivals, more)
        self._written = extended(self._written, more)
        # A ring that can grow has never been full, so its rows are in order and end here.
        self._next = len(self)

    def rows(self, side: str) -> Array:
        """Return the samples ("x") or prompts ("t") in the order of the ring, as a view."""
        ring = {"x": self._latents, "t": self._prompts}[side]
        return ring[: len(self), ...]

    def table(self, side: str, measure: Measure) -> Array:
        """Return a measure between all samples ("x") or prompts ("t"), shape (n, n), as in `rows`.

        The bank keeps the table and computes only rows written since the last call, in O(n d) each.
        """
        with plain_mode():
            seen, table = self._stored_table(side, measure)
            self._update(table, self.rows(side), measure, seen)
            self._tables[side, measure] = self._appends, table
            return table[: len(self), : len(self)]

    def _stored_table(self, side: str, measure: Measure) -> tuple[int, Array]:
        """Return a table as large as the ring, and the number of the last append it includes."""
        rows = self.rows(side)
        xp = array_namespace(rows)
        length = self._arrivals.size
        seen, old = self._tables.get((side, measure), (0, None))
        if old is not None and old.shape[0] >= len(self):
            return seen, old
        table = xp.zeros((length, length), dtype=xp.float64, device=device_of(rows))
        if old is not None:
            table[: old.shape[0], : old.shape[0]] = old
        return seen, table

    def _update(self, table: Array, rows: Array, measure: Measure, seen: int) -> None:
        """Compute the rows and columns of samples written after the append number `seen`."""
        n = len(self)
        stale = self._written[:n] > seen
        stale_runs = runs(np.flatnonzero(stale))
        # Rows of zeros have no direction; distances accept them.
        if stale_runs and measure is cosines:
            Cosine().clean(rows, "bank")
        # All rows from `tail` on are stale. A run in this tail skips pairs with later rows: the
        # runs of those rows compute them, and the table is symmetric.
        tail = n - int(np.argmin(np.append(stale[::-1], False)))
        for run in stale_runs:
            stop = n
            if run.start >= tail:
                stop = run.stop
            block = measure(rows[run, ...], rows[:stop, ...], array_namespace(rows).float64)
            table[run, :stop] = block
            table[:stop, run] = block.T

    def kept(self, key: Hashable, compute: Callable[[], object]) -> Any:
        """Return a value that depends on the samples and on `key`, computed once per append."""
        if key not in self._kept:
            value = compute()
            # Bandwidths by the median rule change with every call, so keys never come back.
            if len(self._kept) >= _MAX_KEPT:
                self._kept.clear()
            self._kept[key] = value
        return self._kept[key]

    def merge(self, other: "Bank") -> None:
        """Add the samples of another bank, for example from another process or GPU.

        Both banks number their samples as they arrive. The merged window is ordered by these
        numbers, this bank first where they are equal, and keeps the last `capacity` samples. So
        banks that fill at the same pace share the window equally, whatever the order of merging.
        Samples that are in both banks count twice: merge into a fresh bank each time, not into one
        that keeps filling. Samples of another library or device are copied to this one's.
        """
        if not isinstance(other, Bank):
            raise ArgumentError(f"`other` must be a Bank; got {type(other).__name__}.")
        if len(other):
            with plain_mode():
                self._merge(other)

    def _merge(self, other: "Bank") -> None:
        assert other.shape is not None
        arrived = max(self.arrived, other.arrived)
        latents, prompts = other._in_order(other._latents), other.prompts
        arrivals = other._arrivals[other._order()]
        if len(self):
            latents = moved(latents, self._latents, self.dtype)
            prompts = map_optional(lambda a: moved(a, self._latents, self.dtype), prompts)
        # Nothing of this bank has changed yet: a refused merge leaves it as it was.
        self.require_fit(latents, other.shape, _typed(prompts, other._kind))
        latents = self.stored(latents, "latents")
        prompts = map_optional(lambda a: self.stored(a, "prompts"), prompts)
        if len(self):
            xp = array_namespace(latents)
            latents = xp.concat([self._in_order(self._latents), latents])
            prompts = map_optional(lambda a: xp.concat([self.prompts, a]), prompts)
            arrivals = np.concatenate([self._arrivals[self._order()], arrivals])
        # A stable sort keeps this bank first among equal arrivals.
        last = np.argsort(arrivals, kind="stable")[-self.capacity :]

        def chosen(a: Array) -> Array:
            return array_namespace(a).take(a, upload(last, a), axis=0)

        prompts = _typed(map_optional(chosen, prompts), other._kind)
        self._adopt(chosen(latents), prompts, other.shape, arrivals[last])
        # Both banks may have counted samples that have left their windows since.
        self.arrived = arrived

    def save(self, path: str | Path) -> None:
        """Write the bank to a file that `load` reads: an archive of plain arrays (.npz).

        The file appears complete or not at all.
        """
        header = {
            "format": _FORMAT,
            "capacity": self.capacity,
            "dtype": self.dtype,
            "shape": self.shape,
            "arrived": self.arrived,
            "kind": self._kind,
        }
        arrays = {}
        if len(self):
            arrays["latents"] = to_numpy(self._in_order(self._latents))
            arrays["arrivals"] = self._arrivals[self._order()]
        if self.has_prompts:
            arrays["prompts"] = to_numpy(self.prompts)
        write_archive(path, header, arrays)

    @classmethod
    def load(cls, path: str | Path, *, like: Array = None) -> "Bank":
        """Read a bank that `save` wrote, as NumPy or in the library and on the device of `like`.

        Nothing in the file is executed, and reading takes no more memory than the file is large.
        """
        if like is not None and not is_array_api_obj(like):
            raise ArgumentError(
                "`like` must be an array of the library in which the bank is to live; "
                f"got {type(like).__name__}."
            )
        if like is not None:
            require_dense(like, "like")
        with open_archive(path, _FORMAT, "a bank") as (header, archive):
            bank = cls(header["capacity"], dtype=header["dtype"])
            content = checked_content(header, archive, bank.capacity, bank.dtype)
            if content is not None:
                prompts = _typed(content.prompts, content.kind)
                bank._adopt(content.latents, prompts, content.shape, content.arrivals)
                # Later samples may have arrived and left before the bank was saved.
                bank.arrived = content.arrived
        if like is not None and len(bank):
            with plain_mode():
                bank._latents = moved(bank._latents, like, bank.dtype)
                bank._prompts = map_optional(lambda a: moved(a, like, bank.dtype), bank._prompts)
        return bank


def _typed(prompts: Array, kind: str | None) -> Prompts | None:
    if prompts is None:
        return None
    return Prompts(prompts, str(kind))
