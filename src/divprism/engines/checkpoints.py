"""Checkpoints: finished passes kept in a folder, so that an interrupted computation continues."""

import contextlib
import hashlib
import io
import os
import pickle
import secrets
import stat
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import FunctionType
from typing import Any, TypeVar

import numpy as np
from array_api_compat import is_torch_array

from divprism.engines.base import Engine, Report, Shared, Total
from divprism.errors import ArgumentError

__all__ = ["Checkpoints", "checked_folder"]

T = TypeVar("T")

# Changes whenever the same data and settings may give other bits or another layout.
_FORMAT = b"divprism checkpoint 1"

_DIGEST_BYTES = 32

# Windows has a flag for bytes, since it opens files as text by default, and none of the others.
_BINARY = getattr(os, "O_BINARY", 0)
_NO_LINK_NO_WAIT = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)

# Packages whose code changes with their versions only.
_LIBRARIES = {"divprism", "numpy", "torch", "array_api_compat", "array_api_strict"}
_KNOWN = _LIBRARIES | sys.stdlib_module_names - {"__main__"}


class Checkpoints(Engine):
    """An engine that looks for each total in a folder before it computes it.

    The name of a file is a hash of all that its total depends on: data, kernel, masses, and the
    vectors of the pass. A computation that is repeated thus finds what it has finished, whoever
    computed it, and nothing else.

    Parameters
    ----------
    engine : Engine
        Where totals are computed that are not found.
    folder : Path
        Folder of the files; see `checked_folder`.
    """

    def __init__(self, engine: Engine, folder: Path) -> None:
        self.engine, self.folder = engine, folder

    @property
    def num_workers(self) -> int:
        """Number of parts that the engine computes at the same time."""
        return self.engine.num_workers

    @property
    def num_processes(self) -> int:
        """Number of processes of the engine that keep values between passes."""
        return self.engine.num_processes

    def share(self, value: T) -> "_Hashed[T]":
        """Make a value known to all workers of the engine."""
        return _Hashed(self.engine.share(value))

    def kept_bytes(self, room: int, needed: int) -> int:
        """Bytes that the engine lets each process keep between passes."""
        return self.engine.kept_bytes(room, needed)

    def total(
        self,
        job: Shared[Any],
        inputs: Any,
        bundles: Sequence[Sequence[Any]],
        report: Report,
    ) -> Any:
        """The sum of the parts of all items, from the folder if it is there."""
        assert isinstance(job, _Hashed)
        path = self.folder / f"{job.digest(inputs, bundles)}.checkpoint"
        items = [item for bundle in bundles for item in bundle]
        found = _read(path, job.value.empty(inputs, items))
        if found is not None:
            report(1.0)
            return found
        total = self.engine.total(job.inner, inputs, bundles, report)
        _write(path, total)
        return total


class _Hashed(Shared[T]):
    """A shared job, and the hash of what its parts depend on."""

    def __init__(self, inner: Shared[T]) -> None:
        super().__init__(inner.value)
        self.inner = inner
        self._hash: Any = None

    def digest(self, *more: Any) -> str:
        """The hash of the job and of more values."""
        # Hashed once: the points may be gigabytes.
        if self._hash is None:
            self._hash = hashlib.sha256(_FORMAT)
            _update(self._hash, self.value.content)  # type: ignore[attr-defined]  # T is a job
        whole = self._hash.copy()
        _update(whole, more)
        return str(whole.hexdigest())


class _Pickler(pickle.Pickler):
    """Pickles rows in files by their content, since a file may change under its name."""

    def __init__(self, file: io.BytesIO, hash_: Any, buffers: list[pickle.PickleBuffer]) -> None:
        super().__init__(file, protocol=5, buffer_callback=buffers.append)
        self._stored = hash_

    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, type | FunctionType) and _is_foreign(value):
            raise ArgumentError(
                f"`resume` cannot tell whether the code of {value.__qualname__} is still the same: "
                "it works with the kernels of divprism only."
            )
        if hasattr(value, "content_chunks"):
            for chunk in value.content_chunks():
                self._stored.update(chunk)
            # A constant in their place: the hash has their content.
            return str, ("rows in a file",)
        if is_torch_array(value):
            # Torch numbers its storage anew in each process.
            array = value.detach().cpu().numpy()
            self._stored.update(array.tobytes())
            return str, (f"{array.dtype} {array.shape} {value.device}",)
        return NotImplemented


def _is_foreign(value: type | FunctionType) -> bool:
    """Whether a class or function is neither ours nor of a library that we depend on."""
    root, _, _ = (value.__module__ or "").partition(".")
    return root not in _KNOWN


def _update(hash_: Any, value: Any) -> None:
    """Add a value to a hash. It is pickled and never unpickled."""
    file, buffers = io.BytesIO(), []  # type: ignore[var-annotated]
    try:
        _Pickler(file, hash_, buffers).dump(value)
    except (pickle.PicklingError, TypeError, AttributeError) as error:
        raise ArgumentError(
            f"`resume` needs data and kernels that can be pickled: {error}"
        ) from None
    hash_.update(file.getbuffer())
    for buffer in buffers:
        hash_.update(buffer.raw())


def checked_folder(path: str | Path) -> Path:
    """The folder of checkpoints, created if need be; refuses one that cannot be written."""
    if not str(path):
        raise ArgumentError("`resume` must be a folder to write to: the name is empty.")
    folder = Path(path)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ArgumentError(f"`resume` must be a folder to write to: {reason}.") from None
    return folder


def _write(path: Path, total: Total) -> None:
    """Write a total. A process that ends meanwhile leaves nothing under this name."""
    file = io.BytesIO()
    for array in total.arrays():
        file.write(_header(array))
        file.write(np.ascontiguousarray(array).tobytes())
    content = file.getbuffer()
    # A name that nobody can foresee, and no file or link that exists: others may write to the
    # folder, and a link under a known name would lead to a file of their choice.
    unfinished = path.with_suffix(f".{secrets.token_hex(8)}")
    try:
        descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _BINARY, 0o666)
        with os.fdopen(descriptor, "wb") as target:
            target.write(hashlib.sha256(content).digest())
            target.write(content)
            target.flush()
            os.fsync(target.fileno())
        unfinished.replace(path)
    except OSError:
        # A full disk, or a folder that is gone, takes the checkpoint and not the computation.
        with contextlib.suppress(OSError):
            unfinished.unlink()


def _read(path: Path, empty: Total) -> Total | None:
    """A total as large as `empty`; None without a whole file of it."""
    expected = empty.arrays()
    size = _DIGEST_BYTES + sum(len(_header(like)) + like.nbytes for like in expected)
    content = _content(path, size)
    if content is None:
        return None
    digest, payload = content[:_DIGEST_BYTES], content[_DIGEST_BYTES:]
    # Damaged since it was written: its total is computed again.
    if hashlib.sha256(payload).digest() != digest:
        return None
    arrays, position = [], 0
    for like in expected:
        header = _header(like)
        start = position + len(header)
        end = start + like.nbytes
        # Compared with what we would have written, rather than parsed.
        if payload[position:start] != header or len(payload) < end:
            return None
        array = np.frombuffer(payload, like.dtype, like.size, start)
        # A copy, which can be written to.
        arrays.append(array.reshape(like.shape).copy())
        position = end
    return empty.with_arrays(arrays)


def _content(path: Path, size: int) -> bytes | None:
    """The content of a regular file of a size; None for anything else under its name."""
    try:
        # A pipe could wait for ever, and a link lead to a device that never ends. Without a flag
        # for links (on Windows) they are recognised by name.
        if path.is_symlink():
            return None
        descriptor = os.open(path, os.O_RDONLY | _BINARY | _NO_LINK_NO_WAIT)
        with os.fdopen(descriptor, "rb") as file:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode) or status.st_size != size:
                return None
            return file.read(size)
    except OSError:
        return None


def _header(array: np.ndarray) -> bytes:
    """The header that a .npy file of the array would have."""
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(file, np.lib.format.header_data_from_array_1_0(array))
    return file.getvalue()
