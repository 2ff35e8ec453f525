"""Kernel values kept from one sweep to the next: in memory, and on disk where that is faster."""

import os
import shutil
import tempfile
import threading
import time
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from divprism.core.arrays import Array

__all__ = ["KeptTiles", "from_16_bits", "in_16_bits"]

# Kernel values are between -1 and 1, and rounded to a multiple of 1 / 32767, so that one, zero and
# minus one stay exact. The integers count down from one.
_LEVELS = np.float32(32767)

# Share of a disk that stays free.
_FREE_SHARE = 0.1

# Bytes that are written and read to measure a disk.
_TRIAL_BYTES = 1 << 24

# Kinds of file systems that are memory.
_MEMORY_SYSTEMS = {"tmpfs", "ramfs"}

Tiles = list[list[Array]]
"""For each tile of a task, the values of each source."""


def in_16_bits(tile: np.ndarray) -> np.ndarray:
    """Kernel values as 16-bit integers; their rounding error is 9e-6 (root mean square).

    >>> in_16_bits(np.array([1.0, 0.0, -1.0], np.float32))
    array([    0, 32767, 65534], dtype=uint16)
    """
    code = np.subtract(np.float32(1), tile, dtype=np.float32)
    code *= _LEVELS
    # Conversion to integers cuts off, so that a half more rounds to the nearest.
    code += np.float32(0.5)
    # A value may exceed one by its rounding error.
    np.clip(code, 0, 2 * _LEVELS, out=code)
    return code.astype(np.uint16)


def from_16_bits(code: np.ndarray) -> np.ndarray:
    """The kernel values of `in_16_bits`, in single precision."""
    tile = code.astype(np.float32)
    # Divided at last, since one and zero would not survive a product with the rounded reciprocal.
    np.subtract(_LEVELS, tile, out=tile)
    tile /= _LEVELS
    return tile


@dataclass(frozen=True)
class _Place:
    """Where the tiles of a task are in a file, and their shapes."""

    start: int
    layout: list[list[tuple[tuple[int, ...], np.dtype]]]


class _Scratch:
    """A file without a name in the folder for temporary files; it is gone when the process ends."""

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile(prefix="divprism-")  # noqa: SIM115 (closed below)
        weakref.finalize(self, self._file.close)
        self._end = 0
        self._lock = threading.Lock()

    def write(self, tiles: Tiles) -> _Place:
        """Append tiles. Raises OSError if the disk is full, or nearly."""
        needed = sum(part.nbytes for parts in tiles for part in parts)
        disk = shutil.disk_usage(tempfile.gettempdir())
        if disk.free - needed < _FREE_SHARE * disk.total:
            raise OSError("the disk is nearly full")
        with self._lock:
            start = self._end
            self._end += needed
        position, layout = start, []
        for parts in tiles:
            layout.append([(part.shape, part.dtype) for part in parts])
            for part in parts:
                self._write_bytes(np.ascontiguousarray(part).view(np.uint8).reshape(-1), position)
                position += part.nbytes
        return _Place(start, layout)

    def _write_bytes(self, content: np.ndarray, position: int) -> None:
        rest = content.data
        while rest:
            written = os.pwrite(self._file.fileno(), rest, position)
            rest, position = rest[written:], position + written

    def read(self, place: _Place) -> Tiles:
        """The tiles at a place."""
        position = place.start
        tiles = []
        for shapes in place.layout:
            parts = []
            for shape, dtype in shapes:
                part = np.empty(shape, dtype)
                self._read_bytes(part.view(np.uint8).reshape(-1).data, position)
                position += part.nbytes
                parts.append(part)
            tiles.append(parts)
        return tiles

    def _read_bytes(self, rest: memoryview, position: int) -> None:
        while rest:
            count = os.preadv(self._file.fileno(), [rest], position)
            if not count:
                raise OSError("the file has been cut off")
            rest, position = rest[count:], position + count

    def seconds_per_byte(self) -> float:
        """Time to read a byte from the disk itself rather than from memory."""
        # Random, because some disks compress.
        content = np.frombuffer(np.random.default_rng(0).bytes(_TRIAL_BYTES), np.uint8)
        place = self.write([[content]])
        descriptor = self._file.fileno()
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, place.start, _TRIAL_BYTES, os.POSIX_FADV_DONTNEED)
        start = time.perf_counter()
        self.read(place)
        return (time.perf_counter() - start) / _TRIAL_BYTES


class KeptTiles:
    """Tiles of tasks, by the number of the task: a cache that can be computed again.

    Parameters
    ----------
    room : int
        Bytes of memory. Beyond it a disk is used that reads a byte faster than it is computed.
    """

    def __init__(self, room: int) -> None:
        self.room = room
        self._forget()

    def _forget(self) -> None:
        self._in_memory: dict[int, Tiles] = {}
        self._on_disk: dict[int, _Place] = {}
        self._reserved = 0
        self._scratch: _Scratch | None = None
        self._is_tried = self._is_full = False
        self._lock = threading.Lock()

    def __getstate__(self) -> dict[str, Any]:
        # Tiles stay in their process: another one computes them anew.
        return {"room": self.room}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["room"])  # type: ignore[misc]

    def get(self, number: int) -> Tiles | None:
        """The tiles of a task, if they are kept."""
        place = self._on_disk.get(number)
        if place is None or self._scratch is None:
            return self._in_memory.get(number)
        try:
            return self._scratch.read(place)
        except OSError:
            # A broken disk: all is computed again, in later passes too.
            self._is_full = True
            self._on_disk = {}
            return None

    def keeper(
        self, needed: int, seconds_per_byte: Callable[[], float]
    ) -> Callable[[int, Tiles], None] | None:
        """A function that keeps tiles of `needed` bytes under a number; None without room.

        `seconds_per_byte` measures the time to compute a byte.
        """
        with self._lock:
            if self._reserved + needed <= self.room:
                self._reserved += needed
                return self._hold
        if self.uses_disk(seconds_per_byte) and not self._is_full:
            return self._write
        return None

    def _hold(self, number: int, tiles: Tiles) -> None:
        self._in_memory[number] = _together(tiles)

    def _write(self, number: int, tiles: Tiles) -> None:
        assert self._scratch is not None
        try:
            self._on_disk[number] = self._scratch.write(tiles)
        except OSError:
            # What does not fit is computed again.
            self._is_full = True

    def uses_disk(self, seconds_per_byte: Callable[[], float]) -> bool:
        """Whether tiles beyond the memory are kept on disk: measured once, at the first call."""
        with self._lock:
            if not self._is_tried:
                self._is_tried = True
                self._scratch = self._faster_scratch(seconds_per_byte)
        return self._scratch is not None

    def _faster_scratch(self, seconds_per_byte: Callable[[], float]) -> _Scratch | None:
        """A file on a disk that is faster than computing, or None."""
        # Without positions in a file, or on a disk that is memory, nothing is gained.
        if not self.room or not hasattr(os, "posix_fadvise") or _is_in_memory():
            return None
        try:
            scratch = _Scratch()
            if scratch.seconds_per_byte() < seconds_per_byte():
                return scratch
        except OSError:
            pass
        return None


def _together(tiles: Tiles) -> Tiles:
    """The same tiles in one piece of memory, if they are in 16 bits.

    Between thousands of tiles that stay, the memory of the larger ones that they were rounded from
    could not be used.
    """
    first = tiles[0][0]
    if not isinstance(first, np.ndarray) or first.dtype != np.uint16:
        return tiles
    needed = sum(_padded(part.nbytes) for parts in tiles for part in parts)
    whole = np.empty(needed, np.uint8)
    position, moved = 0, []
    for parts in tiles:
        copies = []
        for part in parts:
            copy = whole[position : position + part.nbytes].view(part.dtype).reshape(part.shape)
            copy[...] = part
            copies.append(copy)
            position += _padded(part.nbytes)
        moved.append(copies)
    return moved


def _padded(size: int) -> int:
    """The next multiple of 64, so that numbers of any size behind it are aligned."""
    return -(-size // 64) * 64


def _is_in_memory() -> bool:
    """Whether the folder for temporary files is on a disk that is memory."""
    import psutil

    folder = Path(tempfile.gettempdir()).resolve()
    holders = []
    for partition in psutil.disk_partitions(all=True):
        if folder.is_relative_to(partition.mountpoint):
            holders.append((len(partition.mountpoint), partition.fstype))
    return bool(holders) and max(holders)[1] in _MEMORY_SYSTEMS
