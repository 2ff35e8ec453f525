"""Bank: a sliding window of earlier samples and their prompts, for new ones to be told apart from."""

import json
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
from divprism.core.tiles import row_blocks
from divprism.core.validation import check_pairing, like
from divprism.data.files import open_archive, write_whole
from divprism.errors import ArgumentError, DataError
from divprism.guidance._inputs import (
    Prompts,
    clean_prompts,
    flat_rows,
    require_shape,
    require_together,
)
from divprism.guidance._pairs import Measure, cosines

__all__ = ["Bank"]

_FORMAT = 1
_DTYPES = ("float16", "float32", "float64")
_FIRST_ROOM = 16
_TABLE_ROWS = 256  # rows of a table that are computed together
_KEPT = 8  # numbers that are kept for other kernels before they are dropped


class Bank:
    """The last `capacity` samples and their prompts, in a ring.

    Appending is O(1) a sample. What new samples are compared with is kept from one step to the next: the squared distances (or
    cosines) between the samples in the bank. They are brought up to date when a gradient first asks for them, in O(n d) for
    each sample that has come in since, so that another bandwidth costs O(n^2) and not O(n^2 d). They take 8 n^2 bytes, and as
    many for prompts: no more than the samples themselves in single precision as long as n <= d / 4.

    Samples live in the library and on the device of the first ones appended, flat; their shape is remembered.

    Parameters
    ----------
    capacity : int
        Number of samples in the window; 300 in Conditional Vendi, App. E.2.
    dtype : str
        "float32", "float16" or "float64": what samples and embeddings are stored in.

    Examples
    --------
    >>> bank = Bank(capacity=3)
    >>> bank.append(np.zeros((2, 4, 8, 8)), prompts=["a dog", "a cat"])
    >>> bank.append(np.ones((2, 4, 8, 8)), prompts=["a dog", "a cat"])
    >>> len(bank), bank.shape, bank.arrived
    (3, (4, 8, 8), 4)
    """

    def __init__(self, capacity: int = 300, *, dtype: Any = "float32") -> None:
        if not isinstance(capacity, int | np.integer) or isinstance(capacity, bool) or capacity < 1:
            raise ArgumentError(
                f"`capacity` must be a whole number of at least 1; got {capacity!r}."
            )
        name = getattr(dtype, "__name__", str(dtype)).split(".")[-1]
        if name not in _DTYPES:
            raise ArgumentError(f"`dtype` must be one of {', '.join(_DTYPES)}; got {dtype!r}.")
        self._capacity, self._dtype = int(capacity), name
        self.clear()

    @property
    def capacity(self) -> int:
        """Number of samples that the window holds."""
        return self._capacity

    @property
    def dtype(self) -> str:
        """What samples and embeddings are stored in."""
        return self._dtype

    def clear(self) -> None:
        """Forget everything, the shape of the samples included."""
        self.arrived = 0
        self.shape: tuple[int, ...] | None = None
        self._latents: Array = None
        self._prompts: Array = None
        self._kind: str | None = None  # what prompts were given as
        self._arrivals = np.zeros(0, np.int64)
        self._written = np.zeros(0, np.int64)  # the append that each place was last written by
        self._appends = 0
        self._used = self._next = 0
        self._tables: dict[tuple[str, Measure], tuple[int, Array]] = {}
        self._numbers: dict[Hashable, Any] = {}

    @classmethod
    def around(cls, rows: Array, shape: tuple[int, ...], prompts: Prompts | None = None) -> "Bank":
        """A bank that is full with clean arrays of the user's, held as they are: to be read only, and once."""
        bank = cls(int(rows.shape[0]))
        bank._dtype = str(rows.dtype).split(".")[-1]
        bank._adopt(rows, prompts, shape)
        return bank

    def _adopt(
        self,
        rows: Array,
        prompts: Prompts | None,
        shape: tuple[int, ...],
        arrivals: np.ndarray | None = None,
    ) -> None:
        """Take arrays for the ring, oldest first."""
        size = int(rows.shape[0])
        self.clear()
        if prompts is not None:
            check_pairing(size, prompts.rows.shape[0], "t")
            self._prompts, self._kind = like(prompts.rows, rows, "t"), prompts.kind
        self.shape, self._latents, self._used = shape, rows, size
        self._next = size % self.capacity
        self._arrivals = np.arange(size) if arrivals is None else arrivals
        self.arrived = int(self._arrivals.max()) + 1
        self._appends, self._written = 1, np.ones(size, np.int64)

    def __len__(self) -> int:
        return self._used

    def __repr__(self) -> str:
        return f"Bank({len(self)} of {self.capacity}, shape={self.shape}, dtype={self.dtype!r})"

    @property
    def latents(self) -> Array:
        """The samples, oldest first, in their own shape."""
        self._require_samples()
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
        return None if self._prompts is None else self._in_order(self._prompts)

    def _order(self) -> np.ndarray:
        """Places of the ring, oldest sample first."""
        return (np.arange(len(self)) + (self._next if len(self) == self.capacity else 0)) % max(
            1, len(self)
        )

    def _in_order(self, ring: Array) -> Array:
        return array_namespace(ring).take(ring, upload(self._order(), ring), axis=0)

    def _require_samples(self) -> None:
        if not len(self):
            raise DataError("the bank is empty: call append first.")

    def append(self, latents: Any, prompts: Any = None) -> None:
        """Put samples into the window, in the order of their rows; the oldest leave it.

        Parameters
        ----------
        latents : array, shape (b, ...)
            Finite numbers, each sample as long as the first.
        prompts : array, shape (b, ...), or ids, length b, or None
            Embeddings, or whole numbers or texts that are equal for equal prompts; for all samples of a bank or for none.
        """
        with plain_mode():
            self._append(latents, prompts)

    def _append(self, latents: Any, prompts: Any) -> None:
        rows, shape = flat_rows(latents, "latents")
        given = None if prompts is None else clean_prompts(prompts, "prompts")
        self.require_fit(rows, shape, given)
        rows = self.stored(rows, "latents")
        texts = None if given is None else self.stored(like(given.rows, rows, "prompts"), "prompts")
        if not len(self):  # rings in the library and on the device of the first samples
            self.shape, self._latents = shape, rows[:0, :]
            self._prompts, self._kind = (
                None if texts is None else texts[:0, ...],
                None if given is None else given.kind,
            )
        size = int(rows.shape[0])
        self._make_room(len(self) + size)
        self._appends += 1
        self._numbers.clear()
        first = max(0, size - self.capacity)  # of more than fit only the last are kept
        while first < size:
            last = min(size, first + self._arrivals.size - self._next)
            there = slice(self._next, self._next + last - first)
            self._latents[there, :] = rows[first:last, :]
            if texts is not None:
                self._prompts[there, ...] = texts[first:last, ...]
            self._arrivals[there] = self.arrived + np.arange(first, last)
            self._written[there] = self._appends
            self._used = max(self._used, there.stop)
            self._next = there.stop % self.capacity
            first = last
        self.arrived += size

    def require_fit(self, rows: Array, shape: tuple[int, ...], prompts: Prompts | None) -> None:
        """Refuse samples that cannot be appended to those in the bank."""
        if prompts is not None:
            check_pairing(rows.shape[0], prompts.rows.shape[0], "t")
        if not len(self):
            return
        require_shape(shape, self.shape)
        if (prompts is None) != (self._prompts is None):
            has = "has no prompts" if self._prompts is None else "has prompts"
            raise DataError(
                f"the bank {has}, so new samples must {'not ' if self._prompts is None else ''}bring them too."
            )
        if prompts is not None:
            self.require_prompts(prompts)
        require_together(rows, self._latents)

    def require_prompts(self, prompts: Prompts) -> None:
        """Refuse prompts of another kind than those in the bank."""
        prompts.require_kind(self._kind, self._prompts.shape[1:])

    def stored(self, rows: Array, name: str) -> Array:
        """Rows in the precision of the bank, if they fit in; ids as they are."""
        if rows.ndim == 1:
            return rows
        xp = array_namespace(rows)
        dtype = getattr(xp, self.dtype, None)
        if dtype is None:
            raise DataError(
                f"{xp.__name__} has no {self.dtype}. Make the bank with dtype='float32'."
            )
        with np.errstate(over="ignore"):
            stored = xp.astype(rows, dtype)
        if not bool(xp.all(xp.isfinite(stored))):
            raise DataError(
                f"some `{name}` are too large for {self.dtype}. Make the bank with dtype='float32'."
            )
        return stored

    def _make_room(self, size: int) -> None:
        """Rings for at least so many samples, or for all that the window holds; they grow by doubling."""
        have, need = self._arrivals.size, min(self.capacity, size)
        if need <= have:
            return
        more = min(self.capacity, max(need, 2 * have, _FIRST_ROOM)) - have
        self._latents = _extended(self._latents, more)
        self._prompts = None if self._prompts is None else _extended(self._prompts, more)
        self._arrivals, self._written = (
            _extended(self._arrivals, more),
            _extended(self._written, more),
        )
        self._next = len(self)

    def rows(self, side: str) -> Array:
        """Samples ("x") or prompts ("t") as they lie in the ring, in no particular order; not a copy."""
        return (self._latents if side == "x" else self._prompts)[: len(self), ...]

    def table(self, side: str, measure: Measure) -> Array:
        """A measure between all samples ("x") or all prompts ("t") of the bank, shape (n, n), in the order of `rows`.

        Kept, and only computed for what was appended since the last call: O(n d) for each of those.
        """
        with plain_mode():
            return self._table(side, measure)

    def _table(self, side: str, measure: Measure) -> Array:
        n, rows = len(self), self.rows(side)
        xp = array_namespace(rows)
        seen, table = self._tables.get(
            (side, measure), (0, xp.zeros((0, 0), dtype=xp.float64, device=device_of(rows)))
        )
        if table.shape[0] < n:
            grown = self._arrivals.size
            old, size = table, table.shape[0]
            table = xp.zeros((grown, grown), dtype=xp.float64, device=device_of(rows))
            table[:size, :size] = old
        stale = self._written[:n] > seen
        fresh = n - int(np.argmin(np.append(stale[::-1], False)))  # from here on all are stale
        runs = _runs(np.flatnonzero(stale))
        if runs and measure is cosines:
            Cosine().clean(rows, "bank")
        for run in runs:
            stop = (
                run.stop if run.start >= fresh else n
            )  # pairs with rows that are still to come are left to those
            block = measure(rows[run, ...], rows[:stop, ...], xp.float64)
            table[run, :stop] = block
            table[:stop, run] = block.T
        self._tables[side, measure] = self._appends, table
        return table[:n, :n]

    def kept(self, key: Hashable, compute: Callable[[], Any]) -> Any:
        """A number that depends on the samples in the bank and on `key`: computed once, until the next append."""
        if key not in self._numbers:
            value = compute()
            if len(self._numbers) >= _KEPT:
                self._numbers.clear()
            self._numbers[key] = value
        return self._numbers[key]

    def merge(self, other: "Bank") -> None:
        """Take in the samples of another bank, as those of another process or GPU.

        Both count their samples as they arrive; the windows are put together in the order of these numbers, this bank first
        where they are equal, and the last `capacity` are kept. So banks that are filled in step share the window equally, in
        whatever order they are merged. Samples that are in both count twice: merge into a fresh bank, again and again, rather
        than into one that is filled further. Those of another library or device are copied to this one's.
        """
        if not isinstance(other, Bank):
            raise ArgumentError(f"only a Bank can be merged; got {type(other).__name__}.")
        if len(other):
            with plain_mode():
                self._merge(other)

    def _merge(self, other: "Bank") -> None:
        assert other.shape is not None
        rows, prompts, arrived = (
            other._in_order(other._latents),
            other.prompts,
            max(self.arrived, other.arrived),
        )
        arrivals = other._arrivals[other._order()]
        if len(self):
            rows, prompts = (
                None if a is None else _moved(a, self._latents, self.dtype) for a in (rows, prompts)
            )
        given = None if prompts is None else Prompts(prompts, str(other._kind))
        self.require_fit(rows, other.shape, given)
        rows = self.stored(rows, "latents")
        prompts = None if prompts is None else self.stored(prompts, "prompts")
        if len(self):
            xp = array_namespace(rows)
            rows = xp.concat([self._in_order(self._latents), rows])
            prompts = None if prompts is None else xp.concat([self.prompts, prompts])
            arrivals = np.concatenate([self._arrivals[self._order()], arrivals])
        last = np.argsort(arrivals, kind="stable")[-self.capacity :]
        rows, prompts = (
            None if a is None else array_namespace(a).take(a, upload(last, a), axis=0)
            for a in (rows, prompts)
        )
        self._adopt(
            rows,
            None if prompts is None else Prompts(prompts, str(other._kind)),
            other.shape,
            arrivals[last],
        )
        self.arrived = arrived

    def save(self, path: str | Path) -> None:
        """Write the bank to a file, in one step: an archive of plain arrays (.npz), to be read by `load`."""
        target = Path(path)
        header = {
            "format": _FORMAT, "capacity": self.capacity, "dtype": self.dtype, "shape": self.shape, "arrived": self.arrived,
            "kind": self._kind,
        }  # fmt: skip
        arrays = {"header": np.array(json.dumps(header))}
        if len(self):
            arrays |= {
                "latents": to_numpy(self._in_order(self._latents)),
                "arrivals": self._arrivals[self._order()],
            }
            arrays |= {} if self._prompts is None else {"prompts": to_numpy(self.prompts)}
        try:
            write_whole(target, lambda file: np.savez(file, allow_pickle=False, **arrays))
        except OSError as error:
            raise DataError(f"cannot write {target}: {error.strerror}.") from None

    @classmethod
    def load(cls, path: str | Path, *, like: Any = None) -> "Bank":
        """A bank that `save` wrote, in NumPy or in the library and on the device of the array `like`.

        Nothing in the file is executed, and no more memory taken than its size.
        """
        if like is not None and not is_array_api_obj(like):
            raise ArgumentError(
                f"`like` must be an array in whose library the bank is to live; got {type(like).__name__}."
            )
        with open_archive(path, _FORMAT, "a bank") as (header, archive):
            bank = cls(header["capacity"], dtype=header["dtype"])
            bank._restore(header, archive)
        if like is not None and len(bank):
            with plain_mode():
                bank._latents = _moved(bank._latents, like, bank.dtype)
                bank._prompts = (
                    None if bank._prompts is None else _moved(bank._prompts, like, bank.dtype)
                )
        return bank

    def _restore(self, header: dict[str, Any], archive: Any) -> None:
        arrived, sides, kind = header["arrived"], header["shape"], header["kind"]
        if type(arrived) is not int or not 0 <= arrived < 2**53:
            raise ValueError("its header does not fit")
        if arrived == 0:
            return
        latents, arrivals = archive["latents"], archive["arrivals"]
        prompts = archive.get("prompts")
        shape = (
            tuple(sides)
            if sides and all(type(side) is int and side > 0 for side in sides)
            else (0,)
        )
        floats = [latents] if prompts is None or prompts.ndim == 1 else [latents, prompts]
        if (
            latents.ndim != 2
            or latents.shape[1] != np.prod(shape, dtype=float)
            or not 0 < len(latents) <= self.capacity
        ):
            raise ValueError("its header does not fit its arrays")
        if any(
            a.dtype != self.dtype or a.ndim != 2 or 0 in a.shape or not np.isfinite(a).all()
            for a in floats
        ):
            raise ValueError(f"its samples or prompts are not finite rows of {self.dtype}")
        if prompts is not None and (
            len(prompts) != len(latents) or (prompts.ndim == 1 and prompts.dtype != np.int64)
        ):
            raise ValueError("its prompts do not fit its samples")
        if kind not in (
            (None,)
            if prompts is None
            else ("embeddings",)
            if prompts.ndim == 2
            else ("numbers", "texts")
        ):
            raise ValueError("its prompts are not what its header says")
        if (
            arrivals.dtype != np.int64
            or arrivals.shape != (len(latents),)
            or (np.diff(arrivals) < 0).any()
        ):
            raise ValueError("its times of arrival do not fit")
        if arrivals[0] < 0 or arrivals[-1] >= arrived:
            raise ValueError("its times of arrival do not fit")
        self._adopt(latents, None if prompts is None else Prompts(prompts, kind), shape, arrivals)
        self.arrived = arrived


def _extended(a: Array, more: int) -> Array:
    xp = array_namespace(a)
    return xp.concat([a, xp.zeros((more, *a.shape[1:]), dtype=a.dtype, device=device_of(a))])


def _moved(a: Array, other: Array, dtype: str) -> Array:
    """`a` in the library and on the device of another array; floats in a dtype that it has."""
    if array_namespace(a) is array_namespace(other) and device_of(a) == device_of(other):
        return a
    host = to_numpy(a)
    if host.dtype.kind == "f" and not hasattr(array_namespace(other), str(host.dtype)):
        host = host.astype(dtype)
    if not hasattr(array_namespace(other), str(host.dtype)):
        raise DataError(
            f"{array_namespace(other).__name__} has no {host.dtype}. Make the bank with dtype='float32'."
        )
    return upload(host, other)


def _runs(places: np.ndarray) -> list[slice]:
    """Increasing places as slices of neighbours, none longer than a table computes together."""
    if not places.size:
        return []
    breaks = np.flatnonzero(np.diff(places) > 1) + 1
    runs = [slice(int(run[0]), int(run[-1]) + 1) for run in np.split(places, breaks)]
    return [
        slice(run.start + part.start, run.start + part.stop)
        for run in runs
        for part in row_blocks(run.stop - run.start, _TABLE_ROWS)
    ]
