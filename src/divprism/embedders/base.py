"""What an embedder is: items of one modality in, one row of numbers each out."""

import hashlib
import importlib.metadata
import importlib.util
import json
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from divprism.data.files import file_digest
from divprism.errors import ArgumentError, MissingExtraError

__all__ = ["Embedder", "check_batch_size", "file_hash", "package_folder", "runtime_of"]


class Embedder(ABC):
    """Items of one modality to vectors; the vector of an item depends on nothing but the item.

    To write one, set `modality` and `batch_size`, and define `name`, `revision`, `dimension` and `embed_batch`. The rest is
    derived, and overridden where there is something to say.

    Attributes
    ----------
    modality : str
        "text", "image" or "video": `embed_batch` is given strings, pictures (PIL, RGB), or lists of pictures.
    batch_size : int
        How many items `embed_batch` is given at once; never part of the answer.
    num_frames : int
        For videos: how many evenly spaced frames of a clip are decoded.
    """

    modality: ClassVar[str]
    batch_size: int
    num_frames: int = 0

    @property
    @abstractmethod
    def name(self) -> str:
        """What results call it; the same wherever its files lie."""

    @property
    def spelling(self) -> str:
        """What the command line is to be given for this embedder again."""
        return self.name

    @property
    @abstractmethod
    def revision(self) -> str | None:
        """Hash of the weights; None if it cannot be known, and then vectors are not kept in the cache."""

    @property
    @abstractmethod
    def dimension(self) -> int:
        """Width of a vector."""

    @property
    def known_dimension(self) -> int | None:
        """`dimension` where it is known before the model has run: vectors are held to it. None where only they can tell."""
        return self.dimension

    @property
    def preprocessing(self) -> str:
        """What happens to an item before the model, and to the vector after it."""
        return "none"

    @property
    def precision(self) -> str:
        """In what kind of numbers the model computes."""
        return "float32"

    @property
    def runtime(self) -> str:
        """Software and device that the numbers depend on."""
        return ""

    def prepare(self, content: Any) -> Any:
        """The part of the work on one item that decoding threads can do ahead of the model."""
        return content

    @abstractmethod
    def embed_batch(self, batch: Sequence[Any]) -> np.ndarray:
        """A row per prepared item, in their order."""

    def describe(self) -> dict[str, Any]:
        """Everything that the numbers depend on; goes into results, and names the cache of these vectors."""
        return {
            "id": self.name,
            "revision": self.revision,
            "preprocessing": self.preprocessing,
            "precision": self.precision,
            "runtime": self.runtime,
        }

    def key(self) -> str:
        """Short hash of `describe()`."""
        text = json.dumps(self.describe(), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:32]


def check_batch_size(batch_size: int) -> None:
    """Refuse a batch without items."""
    if batch_size < 1:
        raise ArgumentError(f"`batch_size` must be at least 1; got {batch_size}.")


def package_folder(module: str, extra: str, what: str) -> Path:
    """Where an installed package lives; found without running it."""
    spec = importlib.util.find_spec(module)
    if spec is None or spec.origin is None:
        package = module.replace("_", "-")
        raise MissingExtraError(
            f"{what} needs {package}, which is not installed: pip install 'divprism[{extra}]'."
        )
    return Path(spec.origin).parent


def file_hash(path: Path) -> str:
    """SHA-256 of a file, in hexadecimal."""
    return file_digest(path).hex()


def runtime_of(*packages: str) -> str:
    """Names and versions of those packages that are installed, without importing them."""
    found = []
    for package in packages:
        try:
            found.append(f"{package} {importlib.metadata.version(package)}")
        except importlib.metadata.PackageNotFoundError:
            continue
    return ", ".join(found)
