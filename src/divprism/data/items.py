"""Items to embed: texts, images, videos and sounds, each with its content, hash and name."""

import hashlib
import os
import stat
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Self, TypeAlias

import numpy as np

from divprism.data.files import file_digest
from divprism.data.media import MAX_BYTES, chosen_frames, open_image, open_video
from divprism.data.sounds import open_sound
from divprism.data.wording import escaped, reason
from divprism.errors import ArgumentError, DataError

if TYPE_CHECKING:
    from PIL.Image import Image as PILImage

__all__ = [
    "MODALITIES",
    "WAY_OUT_OF_WAVEFORMS",
    "Audio",
    "Image",
    "Item",
    "Media",
    "Text",
    "Video",
    "clean_text",
    "is_empty",
    "texts",
]

# Embedders declare one of these; items carry theirs.
MODALITIES = ("text", "image", "video", "audio")

WAY_OUT_OF_WAVEFORMS = (
    'pass files, or a table with {"array": waveform, "sampling_rate": 16000} in its column of '
    "sounds"
)
"""How messages end that refuse arrays of samples."""


class Item(ABC):
    """One text, image, video or sound to embed: it knows its modality, hash and content."""

    modality: ClassVar[str]
    where: str

    @abstractmethod
    def content(self, num_frames: int, stride: int = 0, sample_rate: int = 0) -> object:
        """Return what an embedder receives: a string, an image, `num_frames` images, or samples.

        With a stride, images are every `stride`-th frame of the middle of a video. The samples of
        a sound are floats, `sample_rate` of them per second.
        """

    @abstractmethod
    def digest(self) -> bytes:
        """Return the SHA-256 of the content, 32 bytes."""

    def snapshot(self) -> "Item":
        """Return the item with its bytes in memory, so that hash and content agree."""
        return self

    @property
    @abstractmethod
    def label(self) -> str:
        """The text itself, or the name of the file, for tables."""


@dataclass(frozen=True)
class Text(Item):
    """A text, and the file and line that it was read from.

    Attributes
    ----------
    text : str
        The text.
    where : str
        Its name in messages.
    """

    modality: ClassVar[str] = "text"
    text: str
    where: str = ""

    def content(self, num_frames: int = 0, stride: int = 0, sample_rate: int = 0) -> str:
        """Return the text."""
        return self.text

    def digest(self) -> bytes:
        """Return the SHA-256 of the text in UTF-8."""
        return hashlib.sha256(self.text.encode("utf-8")).digest()

    @property
    def label(self) -> str:
        """The text."""
        return self.text


@dataclass(frozen=True)
class _Encoded(Item):
    """An item that is one file, or the encoded bytes that a table contains."""

    source: Path | bytes = field(repr=False)
    where: str = ""
    _target: Path | bytes = field(init=False, repr=False, compare=False, default=b"")

    def __post_init__(self) -> None:
        target: Path | bytes = self.source
        if isinstance(target, Path):
            target = _resolved(target)
        # The dataclass is frozen, so this field cannot be assigned.
        object.__setattr__(self, "_target", target)

    def digest(self) -> bytes:
        """Return the SHA-256 of the file."""
        return hashlib.sha256(self._bytes()).digest()

    def snapshot(self) -> Self:
        """Return the item with the bytes of its file, which may change at any time."""
        return replace(self, source=self._bytes())

    @property
    def label(self) -> str:
        """The path of the file, or where the bytes were read."""
        if isinstance(self.source, Path):
            return str(self.source)
        return self.where

    def _bytes(self) -> bytes:
        return _read_bytes(self._target, self.where)


@dataclass(frozen=True)
class Image(_Encoded):
    """An image: a file, or the encoded bytes that a table contains.

    Attributes
    ----------
    source : Path or bytes
        The image file, or its content.
    where : str
        Its name in messages.
    """

    modality: ClassVar[str] = "image"

    def content(self, num_frames: int = 0, stride: int = 0, sample_rate: int = 0) -> "PILImage":
        """Return the decoded image in RGB."""
        # Decoded at each call: thousands of decoded images would not fit in memory.
        return open_image(self._bytes(), self.where)


@dataclass(frozen=True)
class Video(Item):
    """A video: a file, or its frames as image files in order.

    Attributes
    ----------
    source : Path or tuple of Path
        The video file, or its frames.
    where : str
        Its name in messages.
    """

    modality: ClassVar[str] = "video"
    source: Path | tuple[Path, ...]
    where: str = ""
    _target: Path | tuple[Path, ...] = field(init=False, repr=False, compare=False, default=())

    def __post_init__(self) -> None:
        target: Path | tuple[Path, ...]
        if isinstance(self.source, tuple):
            target = tuple(map(_resolved, self.source))
        else:
            target = _resolved(self.source)
        object.__setattr__(self, "_target", target)

    def content(self, num_frames: int, stride: int = 0, sample_rate: int = 0) -> "list[PILImage]":
        """Return `num_frames` images: evenly spaced, or with a stride from the middle."""
        if isinstance(self._target, Path):
            _require_no_link(self._target, self.where)
            # Frames are chosen by count, so that long and short videos weigh the same.
            return open_video(self._target, num_frames, self.where, stride)
        indices = chosen_frames(len(self._target), num_frames, stride)
        chosen = [self._target[index] for index in indices]
        # A frame that stands for several is decoded once.
        images = {}
        for path in dict.fromkeys(chosen):
            name = escaped(path)
            images[path] = open_image(_read_bytes(path, name), name)
        return [images[path] for path in chosen]

    def digest(self) -> bytes:
        """Return the SHA-256 of the file, or of the hashes of the frames in order."""
        if isinstance(self._target, Path):
            _require_no_link(self._target, self.where)
            try:
                return file_digest(self._target)
            except OSError as error:
                raise DataError(f"cannot read {self.where}: {error.strerror}.") from None
        # The prefix keeps a video of one frame apart from an image of the same bytes.
        digest = hashlib.sha256(b"frames;")
        for path in self._target:
            digest.update(hashlib.sha256(_read_bytes(path, escaped(path))).digest())
        return digest.digest()

    @property
    def label(self) -> str:
        """The path of the file, or of the folder of the frames."""
        if isinstance(self.source, Path):
            return str(self.source)
        return str(self.source[0].parent)


@dataclass(frozen=True)
class Audio(_Encoded):
    """A sound: a file, or the encoded bytes that a table contains.

    Attributes
    ----------
    source : Path or bytes
        The sound file, or its content.
    where : str
        Its name in messages.
    """

    modality: ClassVar[str] = "audio"

    def __post_init__(self) -> None:
        given: object = self.source
        if not isinstance(given, Path | bytes):
            raise ArgumentError(
                f"`source` of a sound must be a Path or the bytes of a file; got "
                f"{type(given).__name__}. To score waveforms, {WAY_OUT_OF_WAVEFORMS}."
            )
        super().__post_init__()

    def content(
        self, num_frames: int = 0, stride: int = 0, sample_rate: int = 16_000
    ) -> np.ndarray:
        """Return the sound as one channel: floats (n,), `sample_rate` of them per second."""
        return open_sound(self._bytes(), sample_rate, self.where)


Media: TypeAlias = Image | Video | Audio
"""The items that are files, or their content."""


def _resolved(path: Path) -> Path:
    """Return a link as the path that it leads to now, when its target is checked."""
    if os.path.islink(path):
        return Path(os.path.realpath(path))
    return path


def _require_no_link(path: Path, where: str) -> None:
    """Raise an error for a file that became a link since its path was resolved."""
    if os.path.islink(path):
        raise DataError(f"{where} was replaced by a link after it was checked; it is not read.")


def _read_bytes(source: Path | bytes, where: str) -> bytes:
    if isinstance(source, bytes):
        return source
    _require_no_link(source, where)
    try:
        # Without following links, as one may appear at any time; Windows has no such flag.
        # Without blocking, because a pipe may appear, too.
        flags = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
        handle = os.open(source, os.O_RDONLY | flags | getattr(os, "O_BINARY", 0))
        with os.fdopen(handle, "rb") as file:
            status = os.fstat(handle)
            if not stat.S_ISREG(status.st_mode):
                raise DataError(f"{where} is not a regular file.")
            # The size is checked first, so that a huge (or sparse) file is not read into memory.
            if status.st_size > MAX_BYTES:
                raise DataError(
                    f"{where} has {status.st_size:,} bytes; files of at most {MAX_BYTES:,} bytes "
                    "are read."
                )
            return file.read(MAX_BYTES + 1)
    except OSError as error:
        raise DataError(f"cannot read {where}: {reason(error)}.") from None


def is_empty(item: object) -> bool:
    """Whether an item is a blank text."""
    return isinstance(item, Text) and not item.text.strip()


def texts(values: Sequence[str], name: str = "text") -> tuple[Text, ...]:
    """Return strings as items, named after their rows in messages."""
    return tuple(Text(clean_text(value), f"{name} {row}") for row, value in enumerate(values))


def clean_text(value: str) -> str:
    r"""Return a string that can be encoded: lone surrogates become U+FFFD.

    >>> clean_text("cut \ud83d") == "cut \ufffd"
    True
    """
    try:
        value.encode()
    except UnicodeEncodeError:
        # UTF-16 joins surrogates that do form a pair, which "replace" in UTF-8 would lose.
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return value
