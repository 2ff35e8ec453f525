"""A function of the user's own as an embedder."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from divprism.core.arrays import to_numpy
from divprism.data.samples import MODALITIES
from divprism.embedders.base import Embedder
from divprism.errors import ArgumentError, DataError

__all__ = ["Function"]


@dataclass(frozen=True)
class Function(Embedder):
    """What a function of your own returns for a list of items: an array of any library, a row per item.

    Pick it for a model that divprism does not know. Nobody can tell what a function depends on, so its vectors are kept in the
    cache only under a `version` that you give, and change when the function does.

    Attributes
    ----------
    function : callable
        Gets a list of strings, pictures (PIL, RGB) or lists of pictures, at most `batch_size` long.
    modality : str
        "text", "image" or "video".
    label : str, optional
        Its name in results; default: that of the function.
    version : str, optional
        Stands for the weights. None: not cached.
    num_frames : int
        For videos: how many evenly spaced frames of a clip the function gets.

    Examples
    --------
    >>> lengths = Function(lambda texts: [[len(text), text.count(" ")] for text in texts], label="lengths")
    >>> lengths.embed_batch(["a cat", "dogs"])
    array([[5., 1.],
           [4., 0.]], dtype=float32)
    """

    function: Callable[[Sequence[Any]], Any]
    modality: str = "text"  # type: ignore[misc]
    label: str | None = None
    version: str | None = None
    batch_size: int = 64
    num_frames: int = 8

    def __post_init__(self) -> None:
        if not callable(self.function):
            raise ArgumentError(f"`function` must be callable; got {self.function!r}.")
        if self.modality not in MODALITIES:
            raise ArgumentError(
                f"`modality` must be one of {', '.join(MODALITIES)}; got {self.modality!r}."
            )
        for name in ("batch_size", "num_frames"):
            if getattr(self, name) < 1:
                raise ArgumentError(f"`{name}` must be at least 1; got {getattr(self, name)}.")
        if self.version is not None and self.name == "<lambda>":
            raise ArgumentError(
                "a lambda with a `version` needs a `label` too: its vectors are kept under that name."
            )

    @property
    def name(self) -> str:
        """The label, else the function's name, else that of its class."""
        return self.label or str(getattr(self.function, "__name__", type(self.function).__name__))

    @property
    def revision(self) -> str | None:
        """The version, if one was given."""
        return None if self.version is None else f"version {self.version}"

    @cached_property
    def dimension(self) -> int:
        """Width of what the function returns for one blank item."""
        return int(self.embed_batch([self._blank()]).shape[1])

    @property
    def known_dimension(self) -> int | None:
        """Whatever the function returns is right, as long as it is always the same."""
        return None

    @property
    def preprocessing(self) -> str:
        """All that is known: how a clip is cut."""
        return (
            f"middles of {self.num_frames} equal parts; the function's own"
            if self.modality == "video"
            else "the function's own"
        )

    @property
    def precision(self) -> str:
        """Not known."""
        return "the function's own"

    def embed_batch(self, batch: Sequence[Any]) -> np.ndarray:
        """What the function returns, on the host; numbers that are not floating become so."""
        found = self.function(list(batch))
        try:
            rows = to_numpy(found)
        except (TypeError, ValueError):
            raise DataError(
                f"embedder {self.name} must return rows of numbers of one length; it did not."
            ) from None
        if rows.dtype.kind not in "fiub":
            raise DataError(
                f"embedder {self.name} must return real numbers; it returned {rows.dtype}."
            )
        return rows if rows.dtype.kind == "f" else rows.astype(np.float32)

    def _blank(self) -> Any:
        if self.modality == "text":
            return "a"
        from PIL import Image

        picture = Image.new("RGB", (64, 64))
        return picture if self.modality == "image" else [picture] * self.num_frames
