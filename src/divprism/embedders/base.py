"""The contract of an embedder: items of one modality in, one vector per item out."""

import hashlib
import importlib.metadata
import importlib.util
import json
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, TypeAlias

import numpy as np

from divprism.core.validation import whole_number
from divprism.data.files import file_digest
from divprism.data.sounds import MAX_RATE, MIN_RATE
from divprism.errors import ArgumentError, MissingExtraError

__all__ = [
    "Content",
    "Embedder",
    "Prepared",
    "characters_for",
    "check_at_least",
    "check_rate",
    "file_hash",
    "package_folder",
    "runtime_of",
]

Content: TypeAlias = Any
"""An item after decoding: a string, a PIL image in RGB, a list of such images (a video), or an
array of samples (a sound)."""

Prepared: TypeAlias = Any
"""An item as `Embedder.prepare` returns it; its type is known to that embedder only."""


_MIN_CHARACTERS, _MAX_CHARACTERS = 10_000, 200_000


class Embedder(ABC):
    """Maps items of one modality to vectors; the vector of an item depends on that item only.

    To write an embedder, set `modality` and `batch_size`, and define `name`, `revision`,
    `dimension` and `embed_batch`. Everything else has a default; override it where it differs.

    Attributes
    ----------
    modality : str
        "text", "image", "video" or "audio": `prepare` receives strings, PIL images in RGB, lists
        of PIL images, or arrays (n,) of floats from -1 to 1, a sample each.
    batch_size : int
        Largest number of items that `embed_batch` receives at once. Never part of the answer.
    num_frames : int
        For videos: number of frames to decode.
    frame_stride : int
        For videos: every how many frames one is taken from the middle of the video; 0 spaces
        them evenly over the whole video.
    sample_rate : int
        For sounds: samples per second that `prepare` receives.
    scripts : frozenset of str, or None
        For texts: scripts that the model was trained on, as Unicode names them ("LATIN"); texts in
        others get a warning. None if unknown.
    blind_to : str
        What the vectors cannot distinguish although users may expect it; results warn of it.
        Empty: nothing in particular.
    """

    modality: ClassVar[str]
    scripts: ClassVar[frozenset[str] | None] = None
    blind_to: ClassVar[str] = ""
    batch_size: int
    num_frames: int = 0
    frame_stride: int = 0
    sample_rate: int = 16_000

    @property
    @abstractmethod
    def name(self) -> str:
        """Name in results; does not depend on where the model files are stored."""

    @property
    def spelling(self) -> str:
        """Text from which `registry.embedder` builds this embedder again."""
        return self.name

    @property
    @abstractmethod
    def revision(self) -> str | None:
        """Hash of the weights, or None if it is unknown; then vectors are not cached."""

    @property
    @abstractmethod
    def dimension(self) -> int:
        """Number of entries of a vector."""

    @property
    def known_dimension(self) -> int | None:
        """`dimension` if it is known before the model runs, and vectors are checked against it.

        None if only the vectors themselves reveal it.
        """
        return self.dimension

    @property
    def max_characters(self) -> int | None:
        """For texts: `prepare` cuts longer ones to this; None if it does not cut.

        A tokenizer reads a whole text before it keeps the tokens that the model has room for.
        """
        return None

    @property
    def preprocessing(self) -> str:
        """What happens to an item before the model, and to the vector after it."""
        return "none"

    @property
    def precision(self) -> str:
        """Floating-point type that the model computes in."""
        return "float32"

    @property
    def runtime(self) -> str:
        """Software versions and device type that the numbers depend on."""
        return ""

    def prepare(self, content: Content) -> Prepared:
        """Preprocess one item; decoding threads call this ahead of the model."""
        if self.max_characters is not None and isinstance(content, str):
            return content[: self.max_characters]
        return content

    @abstractmethod
    def embed_batch(self, batch: Sequence[Prepared]) -> np.ndarray:
        """Return one row per prepared item, in the same order."""

    def describe(self) -> dict[str, str | None]:
        """Return everything that the numbers depend on, for results and for the cache.

        The values are part of the cache key: rewording one discards the cached vectors.
        """
        return {
            "id": self.name,
            "revision": self.revision,
            "preprocessing": self.preprocessing,
            "precision": self.precision,
            "runtime": self.runtime,
        }

    def key(self) -> str:
        """Return a short hash of `describe()`, which names the cache folder of this embedder."""
        # Sorted, so that the order in which a subclass lists its fields does not matter.
        text = json.dumps(self.describe(), sort_keys=True)
        # 128 bits: collisions are out of reach, and folder names stay readable.
        return hashlib.sha256(text.encode()).hexdigest()[:32]


def characters_for(max_tokens: int | None) -> int:
    """Return how many characters of a text a tokenizer receives, for a model's tokens.

    A token of a real text has about four characters. The rest leaves room for blanks and rare
    words, and bounds the memory of the tokenizer.
    """
    if max_tokens is None:
        return _MAX_CHARACTERS
    return max(_MIN_CHARACTERS, min(100 * max_tokens, _MAX_CHARACTERS), 10 * max_tokens)


def check_at_least(name: str, value: int, minimum: int = 1) -> None:
    """Raise `ArgumentError` unless the argument `name` is a whole number of at least `minimum`."""
    # A batch of 2.5 items would never be full, so that all items would be one batch.
    whole_number(value, name, minimum)


def check_rate(name: str, value: int) -> None:
    """Raise `ArgumentError` for a sampling rate that sounds are not read at."""
    if isinstance(value, bool) or not isinstance(value, int) or not MIN_RATE <= value <= MAX_RATE:
        raise ArgumentError(
            f"`{name}` must be a whole number from {MIN_RATE:,} to {MAX_RATE:,}; got {value!r}."
        )


def package_folder(module: str, extra: str, purpose: str, package: str) -> Path:
    """Return the folder of a module that the distribution `package` installs.

    Raises
    ------
    MissingExtraError
        If the package is not installed; `purpose` and `extra` go into the message.
    """
    # find_spec locates a package without running it: only its data files are needed here.
    try:
        spec = importlib.util.find_spec(module)
    except ModuleNotFoundError:  # the package around it
        spec = None
    if spec is None or spec.origin is None:
        raise MissingExtraError(
            f"{purpose} needs {package}, which is not installed: pip install 'divprism[{extra}]'."
        )
    return Path(spec.origin).parent


def file_hash(path: Path) -> str:
    """Return the SHA-256 of a file in hexadecimal."""
    return file_digest(path).hex()


def runtime_of(*packages: str) -> str:
    """Return names and versions of the installed ones among `packages`, without importing them."""
    versions = []
    for package in packages:
        try:
            version = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
        versions.append(f"{package} {version}")
    return ", ".join(versions)
