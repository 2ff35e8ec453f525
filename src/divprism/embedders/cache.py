"""Vectors that survive: shards named by the hash of their bytes, in a folder per embedder.

A vector is found by the hash of its item, in the folder named by the hash of everything about the embedder that its numbers
depend on. A shard is written aside and renamed into place, so it is there as a whole or not at all; its name is the hash of its
bytes, so a flipped bit shows. Processes share a cache without locks: each adds shards of its own, and none is ever changed.
"""

import contextlib
import hashlib
import io
import json
import os
import time
import zipfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from divprism.data.files import TEMPORARY, write_whole
from divprism.errors import DataError

__all__ = ["Cache", "Entry", "Store", "default_folder"]

_SUFFIX = ".npz"
_STALE = 3600.0  # seconds after which what a killed process left half-written is swept away
_BROKEN = (
    OSError,
    ValueError,
    EOFError,
    KeyError,
    zipfile.BadZipFile,
    NotImplementedError,
    RuntimeError,
)


def default_folder() -> Path:
    """`DIVPRISM_CACHE` if set, else `divprism` in the user's cache folder."""
    named = os.environ.get("DIVPRISM_CACHE")
    if named:
        return Path(named)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "divprism"


@dataclass(frozen=True)
class Entry:
    """What the cache holds of one embedder.

    Attributes
    ----------
    key : str
        Name of its folder.
    embedder : dict
        What the vectors depend on (`Embedder.describe()`).
    items, shards, bytes : int
        Vectors, files, and their size.
    """

    key: str
    embedder: dict[str, Any]
    items: int
    shards: int
    bytes: int


class Cache:
    """A folder of embedded items, shared by all runs and processes.

    Parameters
    ----------
    folder : path, optional
        Default: `default_folder()`. It is made when something is first kept.
    """

    def __init__(self, folder: str | Path | None = None) -> None:
        self.folder = default_folder() if folder is None else Path(folder)

    def store(self, key: str, description: dict[str, Any], warn: Callable[[str], None]) -> "Store":
        """The vectors of one embedder; `warn` is told of shards that turn out broken."""
        return Store(self.folder / key, description, warn)

    def entries(self) -> list[Entry]:
        """What is there, by embedder."""
        found = []
        for folder in self._folders():
            shards = _shards(folder)
            sizes = [_size(path) for path in shards]
            items = sum(len(keys) for path in shards if (keys := _keys(path)) is not None)
            found.append(Entry(folder.name, _description(folder), items, len(shards), sum(sizes)))
        return found

    def verify(self) -> list[str]:
        """Check every shard against its name, and remove those that fail: a sentence for each.

        What is removed is computed again when it is next asked for.
        """
        problems = []
        for folder in self._folders():
            for path in _shards(folder):
                if _load(path) is None and path.exists():  # else another process removed it
                    _remove(path)
                    problems.append(_broken(path))
            _sweep(folder)
        return problems

    def clear(self, name: str | None = None) -> int:
        """Remove the vectors of one embedder (by its id or key), or all; the number of shards removed."""
        removed = 0
        for folder in self._folders():
            if name is not None and name not in (folder.name, _description(folder).get("id")):
                continue
            for path in [
                *_shards(folder),
                *folder.glob(f".*{TEMPORARY}"),
                folder / "embedder.json",
            ]:
                removed += path.suffix == _SUFFIX
                _remove(path)
            with contextlib.suppress(
                OSError
            ):  # something else was put there; it is not ours to remove
                folder.rmdir()
        return removed

    def _folders(self) -> list[Path]:
        """Folders that hold an embedder's vectors; anything else beside them is left alone."""
        if not self.folder.is_dir():
            return []
        return sorted(path.parent for path in self.folder.glob("*/embedder.json"))


class Store:
    """The vectors of one embedder: look up by item hash, add, flush a shard."""

    def __init__(
        self, folder: Path, description: dict[str, Any], warn: Callable[[str], None]
    ) -> None:
        self.folder, self.description, self.warn = folder, description, warn
        self._index: dict[bytes, Path] = {}
        self._pending: dict[bytes, np.ndarray] = {}
        self._unkept: dict[bytes, np.ndarray] = {}  # what the disk did not take
        for path in _shards(folder):
            keys = _keys(path)
            if keys is None:
                self._drop(path)
            else:
                self._index.update((key.tobytes(), path) for key in keys)

    def __contains__(self, digest: bytes) -> bool:
        return digest in self._index or digest in self._unkept

    def fetch(self, digests: Sequence[bytes]) -> Iterator[tuple[int, np.ndarray]]:
        """Place and vector of those that are there, shard by shard; a shard that fails its checksum is dropped."""
        wanted: dict[Path, list[int]] = {}
        for place, digest in enumerate(digests):
            if digest in self._unkept:
                yield place, self._unkept[digest]
            elif digest in self._index:
                wanted.setdefault(self._index[digest], []).append(place)
        for path, places in wanted.items():
            loaded = _load(path)
            if loaded is None:
                self._drop(path)
                continue
            keys, vectors = loaded
            rows = {key.tobytes(): row for row, key in enumerate(keys)}
            for place in places:
                if (row := rows.get(digests[place])) is not None:
                    yield place, vectors[row]

    def add(self, digest: bytes, vector: np.ndarray) -> None:
        """Keep a vector; it reaches the disk with the next flush."""
        self._pending[digest] = vector

    @property
    def pending(self) -> int:
        """How many vectors wait for the next flush."""
        return len(self._pending)

    def flush(self) -> None:
        """Write what was added as one shard."""
        if not self._pending:
            return
        buffer = io.BytesIO()
        keys = np.frombuffer(b"".join(self._pending), np.uint8).reshape(-1, 32)
        np.savez(buffer, keys=keys, vectors=np.stack(list(self._pending.values())))
        content = buffer.getvalue()
        path = self.folder / f"{hashlib.sha256(content).hexdigest()}{_SUFFIX}"
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            if not (self.folder / "embedder.json").exists():
                text = json.dumps(self.description, indent=1)
                write_whole(
                    self.folder / "embedder.json", lambda file: file.write(text.encode()), sync=True
                )
            write_whole(path, lambda file: file.write(content), sync=True)
        except OSError as error:
            if not self._unkept:
                reason = f"cannot keep vectors in {self.folder}: {error.strerror}"
                self.warn(
                    f"{reason}. This run goes on without; name another folder by --cache or DIVPRISM_CACHE."
                )
            self._unkept |= self._pending
        else:
            self._index.update((key, path) for key in self._pending)
        self._pending = {}

    def _drop(self, path: Path) -> None:
        self.warn(_broken(path))
        with contextlib.suppress(DataError):  # it is told of already, and not looked at again
            _remove(path)
        self._index = {key: where for key, where in self._index.items() if where != path}


def _broken(path: Path) -> str:
    return (
        f"the cached vectors in {path} do not match their checksum; removed, to be computed again."
    )


def _remove(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise DataError(f"cannot remove {path}: {error.strerror}.") from None


def _shards(folder: Path) -> list[Path]:
    return sorted(folder.glob(f"*{_SUFFIX}"))


def _sweep(folder: Path) -> None:
    for path in folder.glob(f".*{TEMPORARY}"):
        with contextlib.suppress(OSError):
            if time.time() - path.stat().st_mtime > _STALE:
                path.unlink()


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0  # another process removed it


def _description(folder: Path) -> dict[str, Any]:
    try:
        content = json.loads((folder / "embedder.json").read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {"id": "unknown"}
    return content if isinstance(content, dict) else {"id": "unknown"}


def _keys(path: Path) -> np.ndarray | None:
    """The item hashes of a shard, without its vectors; None if it cannot be read."""
    try:
        with zipfile.ZipFile(path) as archive, archive.open("keys.npy") as member:
            keys = np.lib.format.read_array(member, allow_pickle=False)
    except FileNotFoundError:
        return np.empty((0, 32), np.uint8)  # another process removed it
    except _BROKEN:
        return None
    return keys if keys.dtype == np.uint8 and keys.ndim == 2 and keys.shape[1] == 32 else None


def _load(path: Path) -> tuple[np.ndarray, np.ndarray] | None:
    """Keys and vectors of a shard; None if its bytes do not hash to its name."""
    try:
        content = path.read_bytes()
        if hashlib.sha256(content).hexdigest() != path.stem:
            return None
        with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
            return arrays["keys"], arrays["vectors"]
    except _BROKEN:
        return None
