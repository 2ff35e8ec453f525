"""A user's own function as an embedder."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from divprism.core.arrays import Array, to_numpy
from divprism.data.items import MODALITIES
from divprism.embedders.base import Content, Embedder, check_at_least, check_rate
from divprism.errors import ArgumentError, DataError

__all__ = ["Function"]


@dataclass(frozen=True)
class Function(Embedder):
    """Your own function from a list of items to an array (of any library) with a row per item.

    Pick it for a model that divprism does not support. What a function depends on is unknown, so
    its vectors are cached only if you give a `version`; change it whenever the function changes.

    Attributes
    ----------
    function : callable
        Receives a list of at most `batch_size` strings, PIL images in RGB, lists of PIL images, or
        arrays of samples.
    modality : str
        "text", "image", "video" or "audio".
    label : str, optional
        Name in results; default: the name of the function.
    version : str, optional
        Identifies the weights in the cache. None: vectors are not cached.
    num_frames : int
        For videos: number of evenly spaced frames that the function receives.
    sample_rate : int
        For sounds: samples per second that the function receives.

    Examples
    --------
    >>> def lengths(texts):
    ...     return [[len(text), text.count(" ")] for text in texts]
    >>> Function(lengths).embed_batch(["a cat", "dogs"])
    array([[5., 1.],
           [4., 0.]], dtype=float32)
    """

    function: Callable[[Sequence[Content]], Array]
    modality: str = "text"  # type: ignore[misc]
    label: str | None = None
    version: str | None = None
    batch_size: int = 64
    num_frames: int = 8
    sample_rate: int = 16_000

    def __post_init__(self) -> None:
        if not callable(self.function):
            raise ArgumentError(f"`function` must be callable; got {self.function!r}.")
        if self.modality not in MODALITIES:
            raise ArgumentError(
                f"`modality` must be one of {', '.join(MODALITIES)}; got {self.modality!r}."
            )
        check_at_least("batch_size", self.batch_size)
        check_at_least("num_frames", self.num_frames)
        check_rate("sample_rate", self.sample_rate)
        # All lambdas are called <lambda>: two of them would share their cached vectors.
        if self.version is not None and self.name == "<lambda>":
            raise ArgumentError(
                "`label` must be given for a lambda with a `version`: "
                "its vectors are cached under that name."
            )

    @property
    def name(self) -> str:
        """The label, else the name of the function, else the name of its class."""
        if self.label:
            return self.label
        # A callable object or functools.partial has no name of its own.
        return str(getattr(self.function, "__name__", type(self.function).__name__))

    @property
    def revision(self) -> str | None:
        """The version, or None if it was not given."""
        if self.version is None:
            return None
        return f"version {self.version}"

    @cached_property
    def dimension(self) -> int:
        """Width of the row that the function returns for one blank item."""
        return int(self.embed_batch([self._blank()]).shape[1])

    @property
    def known_dimension(self) -> int | None:
        """None: any width is accepted, as long as it stays the same."""
        return None

    @property
    def preprocessing(self) -> str:
        """How frames are chosen from a video, or the rate of a sound; the rest is its own."""
        if self.modality == "audio":
            return f"{self.sample_rate} Hz, one channel; the function's own"
        if self.modality == "video":
            return f"middles of {self.num_frames} equal parts; the function's own"
        return "the function's own"

    @property
    def precision(self) -> str:
        """Unknown: it is up to the function."""
        return "the function's own"

    def embed_batch(self, batch: Sequence[Content]) -> np.ndarray:
        """Return the result of the function as NumPy; integers and booleans become float32."""
        result = self.function(list(batch))
        try:
            rows = to_numpy(result)
        except (TypeError, ValueError):
            raise DataError(
                f"embedder {self.name} must return rows of numbers of equal length; "
                "its result is not such an array."
            ) from None
        # Floats, integers, unsigned integers and booleans; not complex numbers, texts or objects.
        if rows.dtype.kind not in "fiub":
            raise DataError(
                f"embedder {self.name} must return real numbers; it returned {rows.dtype}."
            )
        if rows.dtype.kind != "f":
            return rows.astype(np.float32)
        return rows

    def _blank(self) -> Content:
        """Return the simplest item of the modality."""
        if self.modality == "text":
            return "a"
        if self.modality == "audio":
            return np.zeros(self.sample_rate, np.float32)
        # Imported here, because texts need no Pillow.
        from PIL import Image

        image = Image.new("RGB", (64, 64))
        if self.modality == "image":
            return image
        return [image] * self.num_frames
