"""Field values as items: texts, chats, files, embedded images and vectors, alone or in lists."""

import io
import math
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from divprism.core.validation import MAX_QUALITY
from divprism.data.items import Audio, Image, Item, Text, Video, clean_text
from divprism.data.readers.guards import Root, is_url, shown
from divprism.data.sounds import MAX_CHANNELS, MAX_RATE, MIN_RATE, encode_sound
from divprism.data.wording import NOUNS
from divprism.errors import DataError

if TYPE_CHECKING:
    import PIL.Image

__all__ = [
    "MISSING",
    "Place",
    "Value",
    "as_file",
    "image_item",
    "is_blank",
    "is_image",
    "is_waveform",
    "has_other_parts",
    "message_text",
    "outputs_in",
    "prompt_in",
    "qualities_in",
]

MISSING = object()
"""The value of a field that a record does not have."""

Value = Item | list[float]
"""What a field contains: an item to embed, or an embedding."""


def is_blank(value: object) -> bool:
    """Whether a field is missing or empty; tables store missing values as NaN."""
    if value is MISSING or value is None:
        return True
    if isinstance(value, float):
        return value != value
    return value == "" or value == []


class Place(NamedTuple):
    """Where a value is, for messages and for the files that it names.

    A tuple, because each value has one: a frozen dataclass made reading four percent slower.

    Attributes
    ----------
    where : str
        The record.
    root : Root
        The folder that file names are relative to.
    field : str
        The name of the field.
    keyword : str
        What names another field instead, such as "output_field".
    noun : str
        What messages call a field: tables in memory have columns.
    """

    where: str
    root: Root
    field: str
    keyword: str
    noun: str = "field"

    def problem(self, text: str) -> DataError:
        """Return an error about the value, which names its field and how to name another."""
        return DataError(
            f"{self.where} has {text}, in the {self.noun} {self.field!r}; name another "
            f"{self.noun}, or a part of it as {self.field + '.NAME'!r}, with `{self.keyword}`."
        )


def qualities_in(value: object, count: int, place: Place) -> list[float]:
    """Return the quality of each of the outputs of a record: one number for all, or a list."""
    values = [value] * count
    if isinstance(value, list) and value:
        values = value
    if len(values) != count:
        raise DataError(
            f"{place.where} has {len(values):,} qualities for {count:,} outputs, in the "
            f"{place.noun} {place.field!r}; give one number for each, or one for all."
        )
    return [_quality_in(each, place) for each in values]


def _quality_in(value: object, place: Place) -> float:
    """Return the quality of an output: finite and not negative."""
    if is_blank(value):
        raise DataError(
            f"{place.where} has no quality, in the {place.noun} {place.field!r}; add it, leave the "
            f"record out, or name another {place.noun} with `{place.keyword}`."
        )
    try:
        # CSV has texts only. Truth values are those of a check that passes or fails.
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        raise place.problem(f"a quality that is no number, {shown(str(value)[:40])}") from None
    if not 0 <= number < math.inf:
        raise place.problem(f"a quality of {number:g}, which must be finite and at least 0")
    if number > MAX_QUALITY:
        raise place.problem(f"a quality of {number:g}, which must be at most {MAX_QUALITY:g}")
    return number


def prompt_in(value: object, kind: str, place: Place) -> Value:
    """Return the prompt that a field contains; a chat is joined to one text.

    Parameters
    ----------
    value : object
        The value of the field.
    kind : str
        "text", "image", "video", "audio" or "embedding".
    place : Place
        Where it is.
    """
    prompts = list(outputs_in(_joined_chat(value), kind, place))
    # Which of several prompts an output belongs to cannot be guessed.
    if len(prompts) > 1:
        raise place.problem(
            f"{len(prompts)} prompts in one {place.noun} where one text, image, video, sound or "
            "vector is expected"
        )
    return prompts[0]


def _joined_chat(value: object) -> object:
    """Return the texts of chat messages as one text; any other value unchanged.

    Images and tool calls in messages are left out.
    """
    if not isinstance(value, list) or not value:
        return value
    # A list of objects without "content" may be files as `datasets` stores them.
    if not all(isinstance(message, dict) and "content" in message for message in value):
        return value
    contents = [message_text(message["content"]) for message in value]
    # Messages without text would leave blank lines between the others.
    return "\n".join(filter(None, contents))


def message_text(content: object) -> str:
    """Return the text of a message: a string, or the texts among its parts."""
    if content is None:  # an assistant message that only calls a tool
        return ""
    if not isinstance(content, list):
        return str(content)
    parts = [part.get("text") for part in content if isinstance(part, dict)]
    return "\n".join(text for text in parts if isinstance(text, str))


def has_other_parts(chat: object) -> bool:
    """Whether messages contain images or other parts beside texts, which are not read.

    >>> has_other_parts([{"role": "user", "content": [{"type": "image_url"}]}])
    True
    """
    if not isinstance(chat, list):
        return False
    contents = [message.get("content") for message in chat if isinstance(message, dict)]
    parts = [part for content in contents if isinstance(content, list) for part in content]
    return any(isinstance(part, dict) and "text" not in part for part in parts)


def outputs_in(value: object, kind: str, place: Place, *, frames: bool = False) -> Iterator[Value]:
    """Yield the outputs that a field contains: one, or those of a list.

    Parameters
    ----------
    value : object
        The value of the field.
    kind : str
        "text", "image", "video", "audio" or "embedding".
    place : Place
        Where it is.
    frames : bool, optional
        Whether a list of image files is one video.

    Yields
    ------
    Item or list of float
        An empty value of any kind is yielded as an empty text, so that rows stay aligned until
        empty ones are skipped.
    """
    value = _joined_chat(value)
    if kind == "embedding":
        yield from _vectors(value, place)
    elif isinstance(value, list):
        yield from _from_list(value, kind, place, frames)
    elif kind == "text":
        yield _text(value, place)
    elif is_blank(value):
        yield Text("", place.where)
    # Before the check for a file name: `datasets` stores images as objects.
    elif isinstance(value, dict):
        yield _embedded_file(value, kind, place)
    elif kind == "image" and is_image(value):
        yield image_item(value, place.where)
    else:
        yield as_file(_file(value, place), kind, place.where)


def _from_list(values: list[object], kind: str, place: Place, frames: bool) -> Iterator[Value]:
    if not values:
        yield Text("", place.where)
    elif kind == "video" and frames and not isinstance(values[0], list):
        paths = [_file(name, place) for name in values]
        yield Video(tuple(paths), place.where)
    else:
        # A list of lists of frames is several videos; below any other list, lists are outputs.
        inner_frames = kind == "video" and frames
        for value in values:
            yield from outputs_in(value, kind, place, frames=inner_frames)


def _vectors(value: object, place: Place) -> Iterator[list[float]]:
    if not isinstance(value, list) or not value:
        raise place.problem("no list of numbers where an embedding is expected")
    if isinstance(value[0], list):
        for vector in value:
            yield from _vectors(vector, place)
    elif all(_is_number(number) for number in value):
        if not _all_finite(value):
            raise DataError(f"{place.where} has an embedding with NaN or infinite values.")
        yield value
    else:
        raise place.problem("an embedding with values that are not numbers")


def _is_number(value: object) -> bool:
    # In Python, True is an int; in an embedding it is a mistake.
    return isinstance(value, float | int) and not isinstance(value, bool)


def _all_finite(vector: list[float]) -> bool:
    # NaN and infinity stay in a sum, which is faster than a look at each number.
    try:
        total = sum(vector)
        if total - total == 0:
            return True
        return all(map(math.isfinite, vector))
    except OverflowError:
        return True  # an integer too large for a float, which is reported later


def _text(value: object, place: Place) -> Text:
    if isinstance(value, dict):
        value = _text_of_object(value)
    if is_blank(value):
        return Text("", place.where)
    # str() of these would score the notation of Python instead of a text.
    if isinstance(value, dict | list | bytes | bytearray | set | frozenset):
        raise place.problem(f"a {type(value).__name__} where a text is expected")
    return Text(clean_text(str(value)), place.where)


def _text_of_object(value: dict[str, Any]) -> object:
    """Return the text of a single chat message or part; any other object unchanged."""
    for name in ("text", "content"):
        if name in value:
            return message_text(value[name])
    return value


def _embedded_file(value: dict[str, Any], kind: str, place: Place) -> Item:
    """Return a file inside a table as Hugging Face datasets stores it: its bytes or its path."""
    content = value.get("bytes")
    if kind == "audio" and is_waveform(value):
        return _sound(value, place)
    # Not videos: `Video` takes files, which it opens once to count and once to decode.
    if isinstance(content, bytes) and kind == "image":
        return Image(content, place.where)
    if isinstance(content, bytes) and kind == "audio":
        return Audio(content, place.where)
    path = value.get("path")
    if isinstance(path, str):
        return as_file(_file(path, place), kind, place.where)
    if isinstance(content, bytes):
        raise place.problem("the bytes of a video, and videos are read from files only")
    raise place.problem(f"neither the bytes nor the path of the {NOUNS[kind]}")


def is_waveform(value: dict[str, Any]) -> bool:
    """Whether an object is a decoded sound as Hugging Face datasets gives it."""
    return "array" in value and "sampling_rate" in value


def _sound(value: dict[str, Any], place: Place) -> Audio:
    """Return a decoded sound as an item with the bytes of a lossless file."""
    rate = value["sampling_rate"]
    if isinstance(rate, bool) or not isinstance(rate, int) or not MIN_RATE <= rate <= MAX_RATE:
        raise place.problem(
            f"a sound whose sampling_rate is no whole number from {MIN_RATE:,} to {MAX_RATE:,}"
        )
    try:
        samples = np.asarray(value["array"])
        # Whole numbers have an unknown full scale; in JSON, silence may be a list of zeros.
        is_float = samples.dtype.kind == "f" or not samples.any()
        samples = samples.astype(np.float32)
    except (TypeError, ValueError):
        is_float = False
    if not is_float or samples.ndim not in (1, 2) or len(np.atleast_2d(samples)) > MAX_CHANNELS:
        raise place.problem(
            "a sound whose array is not samples (n,) or (channels, n) of floats from -1 to 1"
        )
    return Audio(encode_sound(samples, rate), place.where)


def is_image(value: object) -> bool:
    """Whether a value is an image of Pillow."""
    # Judged by the name of the module, so that Pillow is not imported for other values.
    return type(value).__module__.startswith("PIL.")


def image_item(image: Any, where: str) -> Image:
    """Return an image of Pillow as an item with the bytes of a lossless file."""
    return Image(_png_bytes(image), where)


def _png_bytes(image: "PIL.Image.Image") -> bytes:
    # Other modes (palettes, grey levels, alpha) all fit into RGBA.
    if image.mode != "RGB":
        image = image.convert("RGBA")
    buffer = io.BytesIO()
    # The bytes are hashed and decoded once, so compressing them would only cost time.
    image.save(buffer, "PNG", compress_level=0)
    return buffer.getvalue()


def _file(value: object, place: Place) -> Path:
    """Return the file that a value names."""
    if isinstance(value, Path):  # in tables in memory
        value = str(value)
    if not isinstance(value, str):
        raise place.problem(f"a {type(value).__name__} where a file name is expected")
    if is_url(value):
        raise DataError(
            f"{place.where} names {shown(value[:200])}, in the {place.noun} {place.field!r}: "
            "nothing is downloaded. Download the files, and name them instead."
        )
    return place.root.find(value, place.where)


def as_file(path: Path, kind: str, where: str = "") -> Item:
    """Return the image, video or sound in a file; messages name the file and the record."""
    label = shown(path)
    # The record helps to fix the table, the path to look at the file.
    if where:
        label = f"{label} ({where})"
    if kind == "video":
        return Video(path, label)
    if kind == "audio":
        return Audio(path, label)
    return Image(path, label)
