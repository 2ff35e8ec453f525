"""Paired samples: outputs, the prompts that they were drawn under, and where each came from."""

import hashlib
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from divprism.data.files import file_digest
from divprism.data.media import MAX_BYTES, evenly_spaced, open_image, open_video
from divprism.errors import ArgumentError, DataError

__all__ = [
    "MODALITIES",
    "Video",
    "Item",
    "Image",
    "Samples",
    "Text",
    "clean_text",
    "is_empty",
    "texts",
]

MODALITIES = ("text", "image", "video")


class Item(ABC):
    """One thing to embed: it can say what it is, hash its bytes, and open itself."""

    modality: ClassVar[str]
    where: str

    @abstractmethod
    def content(self, num_frames: int) -> Any:
        """What an embedder is given: a string, a picture, or `num_frames` pictures of a clip."""

    @abstractmethod
    def digest(self) -> bytes:
        """SHA-256 of the bytes, 32 of them."""


@dataclass(frozen=True)
class Text(Item):
    """A text, and the file and line that it was read from."""

    modality: ClassVar[str] = "text"
    text: str
    where: str = ""

    def content(self, num_frames: int = 0) -> str:
        """The text itself."""
        return self.text

    def digest(self) -> bytes:
        """SHA-256 of the text in UTF-8."""
        return hashlib.sha256(self.text.encode("utf-8")).digest()


@dataclass(frozen=True)
class Image(Item):
    """A picture: a file, or the bytes of one that a table held."""

    modality: ClassVar[str] = "image"
    source: Path | bytes = field(repr=False)
    where: str = ""

    def content(self, num_frames: int = 0) -> Any:
        """The decoded picture, in RGB."""
        return open_image(_bytes(self.source, self.where), self.where)

    def digest(self) -> bytes:
        """SHA-256 of the file."""
        return hashlib.sha256(_bytes(self.source, self.where)).digest()


@dataclass(frozen=True)
class Video(Item):
    """A video: a file, or its frames as pictures in order."""

    modality: ClassVar[str] = "video"
    source: Path | tuple[Path, ...]
    where: str = ""

    def content(self, num_frames: int) -> list[Any]:
        """Pictures evenly spaced over the clip."""
        if isinstance(self.source, Path):
            return open_video(self.source, num_frames, self.where)
        chosen = [self.source[place] for place in evenly_spaced(len(self.source), num_frames)]
        opened = {
            path: open_image(_bytes(path, str(path)), str(path)) for path in dict.fromkeys(chosen)
        }
        return [opened[path] for path in chosen]

    def digest(self) -> bytes:
        """SHA-256 of the file; of frames, that of their hashes in order."""
        if isinstance(self.source, Path):
            try:
                return file_digest(self.source)
            except OSError as error:
                raise DataError(f"cannot read {self.where}: {error.strerror}.") from None
        parts = (hashlib.sha256(_bytes(path, str(path))).digest() for path in self.source)
        return hashlib.sha256(b"frames;" + b"".join(parts)).digest()


def _bytes(source: Path | bytes, where: str) -> bytes:
    if isinstance(source, bytes):
        return source
    try:
        size = source.stat().st_size
        if size > MAX_BYTES:
            raise DataError(
                f"{where} has {size:,} bytes; pictures of at most {MAX_BYTES:,} are read."
            )
        return source.read_bytes()
    except OSError as error:
        raise DataError(f"cannot read {where}: {error.strerror}.") from None


Side = tuple[Item, ...] | np.ndarray


@dataclass(frozen=True, eq=False)
class Samples:
    """Outputs and their prompts, row by row, as they were read or already embedded.

    Attributes
    ----------
    outputs : tuple of Item, or array (n, d)
        What a model made.
    prompts : tuple of Item, array (n, d), flat array of n group ids, or None
        What it was made from.
    models : tuple of str, or None
        Which model made each output; None if the source does not tell.
    source : str
        Where all this was read.
    notes : tuple of str
        How the source was understood: fields, layout, pairing.
    warnings : tuple of str
        What a reader of the scores should know: surplus files, names that differ by case only, ...
    skipped : int
        Outputs left out because they were empty.
    embedders : tuple of dict
        How arrays were made, if divprism made them.
    skipped_models : tuple of str
        Which model made each of the outputs left out, where the source tells.
    given : Samples, optional
        The texts, pictures and clips that arrays were made from, row by row.
    """

    outputs: Side
    prompts: Side | None = None
    models: tuple[str, ...] | None = None
    source: str = "memory"
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    skipped: int = 0
    embedders: tuple[dict[str, Any], ...] = ()
    skipped_models: tuple[str, ...] = ()
    given: "Samples | None" = field(default=None, repr=False)

    def __len__(self) -> int:
        return len(self.outputs)

    def select(self, places: Sequence[int]) -> "Samples":
        """The pairs at some places, in that order."""
        return replace(
            self,
            outputs=_pick(self.outputs, places),
            prompts=None if self.prompts is None else _pick(self.prompts, places),
            models=None if self.models is None else tuple(self.models[place] for place in places),
            given=None if self.given is None else self.given.select(places),
        )

    def by_model(self) -> dict[str, "Samples"]:
        """The samples of each model, in order of first appearance.

        >>> both = Samples(texts(["a", "b", "c"]), models=("first", "second", "first"))
        >>> {name: len(one) for name, one in both.by_model().items()}
        {'first': 2, 'second': 1}
        """
        if self.models is None:
            raise ArgumentError(
                f"{self.source} does not say which model made an output; name the field that does: model_field=."
            )
        places: dict[str, list[int]] = {}
        for place, model in enumerate(self.models):
            places.setdefault(model, []).append(place)
        counts = Counter(self.skipped_models)
        return {
            model: replace(
                self.select(rows), skipped=counts[model], skipped_models=(model,) * counts[model]
            )
            for model, rows in places.items()
        }

    def without_empty(self) -> "Samples":
        """Without pairs whose output or prompt is a blank text; how many there were is added to `skipped`."""
        blank = set(self.empty_places())
        if not blank:
            return self
        if len(blank) == len(self):
            raise DataError("every output, or its prompt, is empty; there is nothing to score.")
        kept = self.select([place for place in range(len(self)) if place not in blank])
        told = f"{len(blank):,} outputs were skipped: they, or their prompts, are empty."
        models = () if self.models is None else tuple(self.models[place] for place in sorted(blank))
        return replace(
            kept,
            skipped=self.skipped + len(blank),
            skipped_models=(*self.skipped_models, *models),
            warnings=(*self.warnings, told),
        )

    def empty_places(self) -> list[int]:
        """Where the output or its prompt is a blank text."""
        sides = [side for side in (self.outputs, self.prompts) if isinstance(side, tuple)]
        return sorted(
            {place for side in sides for place, item in enumerate(side) if is_empty(item)}
        )

    def with_prompt_ids(self) -> "Samples":
        """With a number in place of each prompt text: equal texts, equal numbers."""
        if not isinstance(self.prompts, tuple) or not all(
            isinstance(prompt, Text) for prompt in self.prompts
        ):
            return self
        numbers: dict[bytes, int] = {}
        ids = [numbers.setdefault(prompt.digest(), len(numbers)) for prompt in self.prompts]
        return replace(self, prompts=np.array(ids), given=self.given or self)

    def head(self, limit: int) -> "Samples":
        """The first `limit` pairs of each model."""
        seen: dict[str, int] = {}
        keep = []
        for place in range(len(self)):
            model = "" if self.models is None else self.models[place]
            seen[model] = seen.get(model, 0) + 1
            if seen[model] <= limit:
                keep.append(place)
        return self.select(keep)


def _pick(side: Side, places: Sequence[int]) -> Side:
    if isinstance(side, tuple):
        return tuple(side[place] for place in places)
    return side[np.asarray(places, dtype=int)]


def is_empty(item: Any) -> bool:
    """Whether an item is a blank text."""
    return isinstance(item, Text) and not item.text.strip()


def texts(values: Sequence[str], name: str = "text") -> tuple[Text, ...]:
    """Strings as items; half a surrogate pair, which no encoding can hold, becomes U+FFFD."""
    return tuple(Text(clean_text(value), f"{name} {place}") for place, value in enumerate(values))


def clean_text(value: str) -> str:
    """A string that every encoder takes."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return value
