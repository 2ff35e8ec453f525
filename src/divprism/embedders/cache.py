"""A cache of vectors on disk: shards named by the hash of their bytes, one folder per embedder.

A vector is looked up by the hash of its item, in a folder named by the hash of everything about
the embedder that its numbers depend on. A shard is written to a temporary file and renamed, so it
exists completely or not at all. Its name is the hash of its bytes, so corruption is detected.
Processes share a cache without locks: each adds its own shards, and no shard is ever modified.

Others may write to the folder, too. Only files that have the name of a shard, in folders that have
the name of a key, are read or removed; links are not followed, and nothing else is touched.
"""

import contextlib
import hashlib
import io
import json
import os
import re
import stat
import time
import zipfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import platformdirs

from divprism.data.archives import UNREADABLE
from divprism.data.files import TEMPORARY, read_file, write_whole
from divprism.data.wording import escaped, reason
from divprism.data.zip_files import open_zip
from divprism.errors import DataError, Notice

__all__ = ["Cache", "Description", "Entry", "Store", "default_folder"]

Description = dict[str, str | None]
"""What the vectors of an embedder depend on, as `Embedder.describe()` returns it."""

_SUFFIX = ".npz"
_DESCRIPTION_FILE = "embedder.json"
_DIGEST_BYTES = 32  # SHA-256
# Names of our folders (`Embedder.key`) and files.
_KEY_NAME = re.compile(r"[0-9a-f]{32}")
_SHARD_NAME = re.compile(r"[0-9a-f]{64}\.npz")
_TEMPORARY_NAME = re.compile(rf"\.[a-z0-9_]+{re.escape(TEMPORARY)}")
_MAX_SHARD = 1 << 30  # bytes; we write 4,096 vectors at most
_MAX_DESCRIPTION = 1 << 16  # bytes
# Temporary files older than this (in seconds) belong to a process that was killed.
_STALE_AFTER = 3600.0


def default_folder() -> Path:
    """Return `DIVPRISM_CACHE` if that is set, else `divprism` in the user's cache folder.

    Raises
    ------
    DataError
        If the user has no home folder, as in containers that run under a number without a name.
    """
    configured = os.environ.get("DIVPRISM_CACHE")
    if configured:
        return Path(configured)
    # Without appauthor=False, Windows would repeat the name: divprism\divprism\Cache.
    try:
        folder = platformdirs.user_cache_path("divprism", appauthor=False)
    except RuntimeError:
        folder = Path("~")
    # Without a home folder some versions return "~" unchanged: that would be a folder right here.
    if not folder.is_absolute():
        raise DataError("there is no home folder for the cache: set HOME or DIVPRISM_CACHE.")
    return folder


@dataclass(frozen=True)
class Entry:
    """The contents of the cache for one embedder.

    Attributes
    ----------
    key : str
        Name of its folder.
    embedder : dict
        What the vectors depend on (`Embedder.describe()`).
    items, shards, bytes : int
        Number of vectors, number of files, and size of the files.
    """

    key: str
    embedder: Description
    items: int
    shards: int
    bytes: int


Warn = Callable[[Notice], None]


class Cache:
    """A folder of vectors that all runs and processes share.

    Parameters
    ----------
    folder : path, optional
        Default: `default_folder()`. The folder is created when the first vector is stored.
    """

    def __init__(self, folder: str | Path | None = None) -> None:
        if folder is None:
            folder = default_folder()
        self.folder = Path(folder)

    def store(self, key: str, description: Description, warn: Warn) -> "Store":
        """Open the vectors of one embedder; `warn` is called for each damaged shard."""
        return Store(self.folder / key, description, warn)

    def entries(self) -> list[Entry]:
        """Return the contents of the cache, one entry per embedder.

        Raises
        ------
        DataError
            If the folder exists and cannot be listed.
        """
        return [_entry(folder) for folder in self._folders()]

    def verify(self) -> list[str]:
        """Remove every shard whose checksum is wrong, and return a sentence for each.

        Removed vectors are computed again when they are next needed.
        """
        problems = []
        for folder in self._folders():
            for path in _shards(folder):
                # A shard that is gone by now was removed by another process: no damage.
                if _load(path) is None and path.exists():
                    _require_readable(path)
                    _remove(path)
                    problems.append(_damage_message(path))
            _remove_stale(folder)
        return problems

    def clear(self, name: str | None = None) -> int:
        """Remove the vectors of one embedder (by id or key), or all; returns the shards removed."""
        removed = 0
        for folder in self._folders():
            if name is None or name in (folder.name, _description(folder).get("id")):
                removed += _clear_folder(folder)
        return removed

    def _folders(self) -> list[Path]:
        """Folders that belong to an embedder; other folders in the cache are left alone."""
        try:
            with os.scandir(self.folder) as entries:
                names = [entry.name for entry in entries if _is_own_folder(entry)]
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            place = escaped(self.folder)[:200]
            raise DataError(f"cannot list the cache {place}: {reason(error)}.") from None
        folders = [self.folder / name for name in sorted(names)]
        return [folder for folder in folders if _is_regular(folder / _DESCRIPTION_FILE)]


class Store:
    """The cached vectors of one embedder, by the hash of the item."""

    def __init__(self, folder: Path, description: Description, warn: Warn) -> None:
        self.folder = folder
        self.description = description
        self.warn = warn
        # Which shard has which item; the vectors stay on disk until they are fetched.
        self._index: dict[bytes, Path] = {}
        self._pending: dict[bytes, np.ndarray] = {}
        # Vectors that could not be written: they last as long as this object.
        self._unwritten: dict[bytes, np.ndarray] = {}
        for path in _shards(folder):
            keys = _keys(path)
            if keys is None:
                self._drop(path)
                continue
            for key in keys:
                self._index[key.tobytes()] = path

    def __contains__(self, digest: bytes) -> bool:
        return digest in self._index or digest in self._unwritten

    def fetch(self, digests: Sequence[bytes]) -> Iterator[tuple[int, np.ndarray]]:
        """Yield (position in `digests`, vector) for those that are stored, shard by shard.

        A shard with a wrong checksum is dropped, and its vectors are not yielded.
        """
        positions_by_shard: dict[Path, list[int]] = {}
        for position, digest in enumerate(digests):
            if digest in self._unwritten:
                yield position, self._unwritten[digest]
            elif digest in self._index:
                positions_by_shard.setdefault(self._index[digest], []).append(position)
        # Each shard is read once, however its vectors are spread over the items.
        for path, positions in positions_by_shard.items():
            shard = _load(path)
            if shard is None:
                self._drop(path)
                continue
            keys, vectors = shard
            rows = {key.tobytes(): row for row, key in enumerate(keys)}
            for position in positions:
                row = rows.get(digests[position])
                if row is not None:
                    yield position, vectors[row]

    def width(self) -> int | None:
        """Return the number of entries of the stored vectors, or None if there are none."""
        # One item of each shard: if a shard turns out to be damaged, the next one is asked.
        digests = {path: digest for digest, path in self._index.items()}
        for digest in digests.values():
            for _, vector in self.fetch([digest]):
                return len(vector)
        return None

    def add(self, digest: bytes, vector: np.ndarray) -> None:
        """Add a vector; the next flush writes it to disk."""
        self._pending[digest] = vector

    @property
    def pending(self) -> int:
        """Number of vectors that the next flush writes."""
        return len(self._pending)

    def flush(self) -> None:
        """Write the added vectors as one shard; if the disk refuses, keep them in memory."""
        if not self._pending:
            return
        content = _encode(self._pending)
        # Two processes that write equal vectors write the same file, so neither can harm the other.
        path = self.folder / f"{hashlib.sha256(content).hexdigest()}{_SUFFIX}"
        try:
            self._write(path, content)
        except OSError as error:
            # A full disk costs the cache, not the run. One warning is enough.
            if not self._unwritten:
                text = (
                    f"cannot write vectors to {self.folder}: {reason(error)}. This run continues "
                    "without a cache; pass another folder as `cache`, or set DIVPRISM_CACHE."
                )
                self.warn(Notice("cache-not-written", text))
            self._unwritten |= self._pending
        else:
            self._index |= dict.fromkeys(self._pending, path)
        self._pending = {}

    def _write(self, path: Path, content: bytes) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        description_file = self.folder / _DESCRIPTION_FILE
        # First, because `Cache` lists only folders with a description: no shard is ever orphaned.
        if not description_file.exists():
            text = json.dumps(self.description, indent=1)
            write_whole(description_file, lambda file: file.write(text.encode()), sync=True)
        # Synced before it gets its name, so that not even a power failure leaves half a shard.
        write_whole(path, lambda file: file.write(content), sync=True)

    def _drop(self, path: Path) -> None:
        """Forget a shard that could not be read, and remove it if it is damaged."""
        self._index = {key: shard for key, shard in self._index.items() if shard != path}
        # Gone by now: another process removed it, which is no damage.
        if not path.exists():
            return
        outcome = _REMOVED
        try:
            _remove(path)
        except DataError as error:
            # It is enough to forget the file for this run.
            outcome = f"the vectors are computed again, but {str(error).rstrip('.')}"
        self.warn(Notice("cache-damaged", _damage_message(path, outcome)))


_REMOVED = "removed the file, and its vectors will be computed again"


def _damage_message(path: Path, outcome: str = _REMOVED) -> str:
    return f"the cached vectors in {path} are damaged or do not match their checksum; {outcome}."


def _encode(vectors: dict[bytes, np.ndarray]) -> bytes:
    """Return the bytes of a shard: an .npz archive of item hashes and vectors."""
    keys = np.frombuffer(b"".join(vectors), np.uint8).reshape(-1, _DIGEST_BYTES)
    buffer = io.BytesIO()
    np.savez(buffer, keys=keys, vectors=np.stack(list(vectors.values())))
    return buffer.getvalue()


def _entry(folder: Path) -> Entry:
    shards = _shards(folder)
    num_items = 0
    num_bytes = 0
    for path in shards:
        keys = _keys(path)
        if keys is not None:
            num_items += len(keys)
        num_bytes += _size(path)
    return Entry(folder.name, _description(folder), num_items, len(shards), num_bytes)


def _clear_folder(folder: Path) -> int:
    """Remove the files of one embedder; returns the number of shards removed."""
    shards = _shards(folder)
    for path in [*shards, *_own_files(folder, _TEMPORARY_NAME)]:
        _remove(path)
    # Last, because `Cache` lists only folders with a description: an interrupted clear can resume.
    _remove(folder / _DESCRIPTION_FILE)
    # Fails if the user keeps other files here, and those stay.
    with contextlib.suppress(OSError):
        folder.rmdir()
    return len(shards)


def _remove(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise DataError(f"cannot remove {path}: {reason(error)}.") from None


def _require_readable(path: Path) -> None:
    """Refuse to call a shard damaged that only cannot be read."""
    try:
        with path.open("rb"):
            pass
    except FileNotFoundError:
        pass
    except OSError as error:
        raise DataError(f"cannot read {path}: {reason(error)}.") from None


def _shards(folder: Path) -> list[Path]:
    return _own_files(folder, _SHARD_NAME)


def _own_files(folder: Path, name: re.Pattern[str]) -> list[Path]:
    """Return the regular files of a folder that have a name of ours; [] if it cannot be listed."""
    try:
        with os.scandir(folder) as entries:
            names = [entry.name for entry in entries if _is_own_file(entry, name)]
    except OSError:
        return []
    return [folder / found for found in sorted(names)]


def _is_own_folder(entry: os.DirEntry[str]) -> bool:
    return _KEY_NAME.fullmatch(entry.name) is not None and entry.is_dir(follow_symlinks=False)


def _is_own_file(entry: os.DirEntry[str], name: re.Pattern[str]) -> bool:
    return name.fullmatch(entry.name) is not None and entry.is_file(follow_symlinks=False)


def _is_regular(path: Path) -> bool:
    """Whether a path is a file itself, and not a link to one."""
    try:
        return stat.S_ISREG(os.lstat(path).st_mode)
    except OSError:
        return False


def _remove_stale(folder: Path) -> None:
    """Remove temporary files that a killed process left behind."""
    for path in _own_files(folder, _TEMPORARY_NAME):
        # The process that writes a file may rename it at any moment.
        with contextlib.suppress(OSError):
            if time.time() - path.stat().st_mtime > _STALE_AFTER:
                path.unlink()


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        # Another process removed the file since it was listed.
        return 0


def _description(folder: Path) -> Description:
    try:
        content = json.loads(read_file(folder / _DESCRIPTION_FILE, _MAX_DESCRIPTION))
    # A lost or edited description does not make the vectors useless; it only hides their origin.
    except (OSError, ValueError, RecursionError):
        content = None
    if isinstance(content, dict):
        return content
    return {"id": "unknown"}


def _keys(path: Path) -> np.ndarray | None:
    """Return the item hashes of a shard without reading its vectors; None if it is damaged."""
    # The checksum is not verified here, since that means reading the whole file: `_load` does it.
    try:
        with open_zip(path) as archive:
            _require_stored(archive)
            with archive.open("keys.npy") as member:
                keys = np.lib.format.read_array(member, allow_pickle=False)
    except FileNotFoundError:
        # Another process removed the shard since it was listed: it holds nothing, and that is fine.
        return np.empty((0, _DIGEST_BYTES), np.uint8)
    except UNREADABLE:
        return None
    if not _are_hashes(keys):
        return None
    return keys


def _load(path: Path) -> tuple[np.ndarray, np.ndarray] | None:
    """Return the item hashes and vectors of a shard; None if it is damaged or not ours."""
    try:
        content = read_file(path, _MAX_SHARD)
        if hashlib.sha256(content).hexdigest() != path.stem:
            return None
        # The folder may be shared with others, so a shard must not be able to run code.
        with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
            _require_stored(arrays.zip)
            keys, vectors = arrays["keys"], arrays["vectors"]
    except UNREADABLE:
        return None
    # The name proves that the bytes are those that were written, not that we wrote them.
    is_table = vectors.ndim == 2 and vectors.dtype.kind == "f" and len(vectors) == len(keys)
    if not is_table or not _are_hashes(keys):
        return None
    # No score is defined for such vectors: computed again, they may be others.
    if vectors.shape[1] == 0 or not np.isfinite(vectors).all():
        return None
    return keys, vectors


def _are_hashes(keys: np.ndarray) -> bool:
    return keys.dtype == np.uint8 and keys.ndim == 2 and keys.shape[1] == _DIGEST_BYTES


def _require_stored(archive: zipfile.ZipFile) -> None:
    # Ours are not compressed, so nothing in them can be larger than the file.
    entries = archive.infolist()
    stored = sum(entry.file_size for entry in entries)
    if any(entry.compress_type != zipfile.ZIP_STORED for entry in entries) or stored > _MAX_SHARD:
        raise ValueError("the arrays are compressed")
