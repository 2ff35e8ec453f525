"""Values on their way to the workers of a cluster."""

import pickle
import threading
import uuid
from typing import Any
from weakref import WeakValueDictionary

import numpy as np

__all__ = ["Packed", "bytes_of"]


class Packed:
    """A value whose arrays arrive aligned in memory, and once in each process.

    Dask places the bytes of arrays at any address. NumPy copies arrays at odd addresses before it
    multiplies them, and then no longer sees that a matrix is multiplied by its own transpose: it
    calls another routine of BLAS, with other bits.
    """

    def __init__(self, value: Any, token: str = "") -> None:
        self.value = value
        self.token = token or uuid.uuid4().hex

    def __reduce__(self) -> tuple[Any, ...]:
        import cloudpickle

        buffers: list[pickle.PickleBuffer] = []
        # Plain pickle cannot send a kernel that is defined in a notebook.
        frame = cloudpickle.dumps(self.value, protocol=5, buffer_callback=buffers.append)
        return _unpack, (self.token, frame, *buffers)

    def __sizeof__(self) -> int:
        # Dask decides by this where to compute and what to move to disk.
        return bytes_of(self.value)


# What this process has, so that a copy from another worker is that with the tiles kept here.
_unpacked: WeakValueDictionary[str, Packed] = WeakValueDictionary()
_unpacking = threading.Lock()


def _unpack(token: str, frame: bytes, *buffers: Any) -> Packed:
    with _unpacking:
        packed = _unpacked.get(token)
        if packed is None:
            aligned = [_aligned(buffer) for buffer in buffers]
            # What a scheduler sends to its workers is trusted: Dask itself unpickles it.
            value = pickle.loads(frame, buffers=aligned)  # noqa: S301
            packed = _unpacked[token] = Packed(value, token)
    return packed


def _aligned(buffer: Any) -> np.ndarray:
    """The bytes, at an address that is a multiple of 16."""
    content = np.frombuffer(buffer, np.uint8)
    if content.ctypes.data % 16:
        # NumPy's own memory is aligned.
        content = content.copy()
    return content


def bytes_of(value: Any) -> int:
    """Bytes of the arrays in a value."""
    import cloudpickle

    buffers: list[pickle.PickleBuffer] = []
    # Arrays are handed over rather than copied.
    cloudpickle.dumps(value, protocol=5, buffer_callback=buffers.append)
    return sum(buffer.raw().nbytes for buffer in buffers)
