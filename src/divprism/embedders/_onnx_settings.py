"""What an ONNX file does not say: how its input is prepared, and which output is the vector."""

import json
import math
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import Any

from divprism.data.files import read_file
from divprism.data.strict_json import refuse_constant, unique_keys
from divprism.data.wording import NOUNS, escaped, first_line
from divprism.embedders._mel_settings import MelSettings
from divprism.embedders._setting_checks import (
    is_whole,
    require,
    require_number,
    require_whole,
)
from divprism.embedders.base import check_rate
from divprism.errors import ArgumentError, DataError

__all__ = ["OnnxSettings"]

_LAYOUTS = {
    "image": ("nchw", "nhwc"),
    "video": ("ncthw", "ntchw", "nthwc"),
    "audio": ("nt", "t", "nct"),
    "mel": ("nctf", "ncft", "ntf", "nft"),
}
_POOLINGS = {
    "image": ("none", "mean", "first"),
    "video": ("none", "mean", "first"),
    "text": ("none", "mean", "first", "last"),
    "audio": ("none", "mean", "first"),
}
_INTERPOLATIONS = ("bilinear", "bicubic")
# Settings that one kind of input has; the others have them all.
_OF_PIXELS = ("size", "resize", "mean", "std")
_NEEDED = {
    "image": _OF_PIXELS,
    "video": (*_OF_PIXELS, "num_frames"),
    "text": ("max_tokens",),
    "audio": ("sample_rate", "seconds"),
}
_OPTIONAL = {
    "image": ("interpolation", "layout"),
    "video": ("interpolation", "layout", "stride"),
    "text": ("pad_id",),
    "audio": ("mel", "layout", "windows"),
}
_MODALITIES = "image, video, text or audio"
_MAX_SIDE = 2048
_MAX_FRAMES = 1024
_MAX_STRIDE = 1000
_MAX_PIXELS = 1 << 28
_MAX_TOKENS = 1 << 16
_MAX_FILE = 1 << 16
_MAX_SECONDS = 60
_MAX_WINDOWS = 100


@dataclass(frozen=True)
class OnnxSettings:
    """Preprocessing of an ONNX model, and where its vector is; as in the JSON file beside it.

    Attributes
    ----------
    modality : str
        "image", "video", "text" or "audio".
    size : int or tuple of int
        Side of the square that the model takes, or its height and width, in pixels.
    resize : int or str
        Length that the shorter side gets before the centre is cut out, as in torchvision; or
        "stretch": the whole image is resized to `size`, whatever its proportions.
    mean, std : tuple of float
        For red, green and blue: the model gets (pixel / 255 - mean) / std.
    interpolation : str, optional
        "bilinear" (default) or "bicubic".
    layout : str, optional
        Order of the axes: "nchw" (default) or "nhwc" for images; "ncthw" (default), "ntchw" or
        "nthwc" for videos; "nt" (default), "t" or "nct" for the samples of sounds; "nctf"
        (default), "ncft", "ntf" or "nft" for their spectrograms, f the bands and c one channel.
    num_frames : int
        Number of frames of a video.
    stride : int, optional
        Take every n-th frame of the middle of the video. Default: frames are evenly spaced over
        the whole video.
    max_tokens : int
        Longer texts are cut at this number of tokens, special ones included.
    pad_id : int, optional
        Pad texts to `max_tokens` with this token, for models of a fixed length. Default: a text
        runs at its own length.
    sample_rate : int
        Samples per second of a sound, which is the mean of its channels.
    seconds : float
        Length of the input. Shorter sounds are padded with silence.
    windows : int, optional
        Longer sounds become at most this number of windows of `seconds`, evenly spaced from
        start to end, and their vector is the mean. Default: 8.
    mel : MelSettings, optional
        The log-mel spectrogram that the model takes, in JSON an object. Default: the model takes
        samples from -1 to 1.
    output : str, optional
        Name of the output that has the vector. Default: the only output.
    pooling : str, optional
        "none" (default): the output is a vector. "mean": the mean over tokens of an output
        (1, tokens, width), or over positions of one (1, width, ...). "first", "last": that token.
    normalize : bool, optional
        Scale vectors to unit length. Default: False.

    Raises
    ------
    ArgumentError
        If a value is missing, unknown or out of range, or belongs to another modality.
    """

    modality: str
    size: int | tuple[int, int] | None = None
    resize: int | str | None = None
    mean: tuple[float, float, float] | None = None
    std: tuple[float, float, float] | None = None
    interpolation: str | None = None
    layout: str | None = None
    num_frames: int | None = None
    stride: int | None = None
    max_tokens: int | None = None
    pad_id: int | None = None
    sample_rate: int | None = None
    seconds: float | None = None
    windows: int | None = None
    mel: MelSettings | None = None
    output: str | None = None
    pooling: str = "none"
    normalize: bool = False

    def __post_init__(self) -> None:
        require(self.modality in tuple(_NEEDED), "modality", _MODALITIES, self.modality)
        self._check_fields()
        if self.modality == "text":
            self._check_text()
        elif self.modality == "audio":
            self._check_sound()
        else:
            self._check_pixels()
        is_name = self.output is None or (isinstance(self.output, str) and self.output != "")
        require(is_name, "output", "the name of an output", self.output)
        poolings = _POOLINGS[self.modality]
        require(self.pooling in poolings, "pooling", " or ".join(poolings), self.pooling)
        require(isinstance(self.normalize, bool), "normalize", "true or false", self.normalize)

    @classmethod
    def read(cls, path: Path) -> "OnnxSettings":
        """Return the settings in a JSON file that anybody may have written.

        Raises
        ------
        DataError
            If the file cannot be read, or contains anything but valid settings.
        """
        name = escaped(path.name)[:100]
        try:
            content = json.loads(
                read_file(path, _MAX_FILE, name).decode("utf-8"),
                object_pairs_hook=unique_keys,
                parse_constant=refuse_constant,
            )
        except DataError:  # which is a ValueError, too
            raise
        except (ValueError, RecursionError) as error:
            raise DataError(f"{name} is not valid JSON: {first_line(error)}.") from None
        try:
            return cls(**_known(content))
        except ArgumentError as error:
            raise DataError(f"{name}: {error}") from None

    @property
    def height_and_width(self) -> tuple[int, int]:
        """Height and width of the pixels that the model takes."""
        if isinstance(self.size, tuple):
            return self.size
        assert self.size is not None
        return self.size, self.size

    @property
    def axes(self) -> str:
        """Order of the axes of the input, without the batch: "chw", for example."""
        layout = self.layout or self._layouts[0]
        return layout[1:]

    @property
    def num_samples(self) -> int:
        """Number of samples of a window of sound."""
        return round((self.seconds or 0) * (self.sample_rate or 0))

    @property
    def sound_shape(self) -> list[int]:
        """Shape of the input that a window of sound becomes."""
        sizes = {"n": 1, "c": 1, "t": self.num_samples}
        if self.mel is not None:
            sizes |= {"t": self.mel.num_frames(self.num_samples), "f": self.mel.bands}
        return [sizes[axis] for axis in self.layout or self._layouts[0]]

    @property
    def _layouts(self) -> tuple[str, ...]:
        if self.mel is not None:
            return _LAYOUTS["mel"]
        return _LAYOUTS[self.modality]

    def describe(self) -> str:
        """Return all settings that are given, in one line; part of cache keys."""
        parts = []
        for field in fields(self):
            value = getattr(self, field.name)
            if value is not None and field.name != "modality":
                parts.append(f"{field.name} {_spelled(value)}")
        return ", ".join(parts)

    def _check_fields(self) -> None:
        """Require what the modality needs, and refuse what belongs to another one."""
        needed = _NEEDED[self.modality]
        allowed = (*needed, *_OPTIONAL[self.modality], "modality", "output", "pooling", "normalize")
        for field in fields(self):
            value = getattr(self, field.name)
            if value is None and field.name in needed:
                raise ArgumentError(f"`{field.name}` is needed for the modality {self.modality}.")
            if value is not None and field.name not in allowed:
                raise ArgumentError(f"`{field.name}` does not apply to {NOUNS[self.modality]}s.")

    def _check_text(self) -> None:
        require_whole("max_tokens", self.max_tokens, 1, _MAX_TOKENS)
        if self.pad_id is not None:
            require_whole("pad_id", self.pad_id, 0, 2**31 - 1)

    def _check_pixels(self) -> None:
        size: Any = self.size
        if isinstance(size, list | tuple):
            require(len(size) == 2, "size", "a side, or a height and a width", size)
            # JSON has lists, which have no hash.
            object.__setattr__(self, "size", tuple(size))
        else:
            size = [size]
        for side in size:
            require_whole("size", side, 1, _MAX_SIDE)
        if self.resize != "stretch":
            largest = max(self.height_and_width)
            requirement = f'"stretch", or a whole number from {largest} to {_MAX_SIDE}'
            require(is_whole(self.resize, largest, _MAX_SIDE), "resize", requirement, self.resize)
        object.__setattr__(self, "mean", _three("mean", self.mean))
        object.__setattr__(self, "std", _three("std", self.std))
        assert self.std is not None
        require(min(self.std) > 0, "std", "positive", self.std)
        if self.interpolation is not None:
            choices = _INTERPOLATIONS
            is_known = self.interpolation in choices
            require(is_known, "interpolation", " or ".join(choices), self.interpolation)
        if self.layout is not None:
            self._check_layout()
        self._check_frames()

    def _check_layout(self) -> None:
        layouts = self._layouts
        require(self.layout in layouts, "layout", " or ".join(layouts), self.layout)

    def _check_sound(self) -> None:
        mel: Any = self.mel
        assert self.sample_rate is not None and self.seconds is not None
        check_rate("sample_rate", self.sample_rate)
        require_number("seconds", self.seconds)
        requirement = f"above 0, and at most {_MAX_SECONDS}"
        require(0 < self.seconds <= _MAX_SECONDS, "seconds", requirement, self.seconds)
        if self.windows is not None:
            require_whole("windows", self.windows, 1, _MAX_WINDOWS)
        if isinstance(mel, Mapping):
            mel = MelSettings(**_known(mel, MelSettings, "mel."))
            object.__setattr__(self, "mel", mel)
        require(mel is None or isinstance(mel, MelSettings), "mel", "settings", mel)
        longest = self.num_samples
        if self.mel is not None:
            half = self.sample_rate / 2
            requirement = f"at most half of `sample_rate`, {half:g}"
            require(self.mel.high <= half, "mel.high", requirement, self.mel.high)
            # Also what mirrors half a transform at the ends.
            requirement = f"at most the samples in `seconds`, {longest:,}"
            require(self.mel.window <= longest, "mel.window", requirement, self.mel.window)
        require(longest >= 1, "seconds", "at least one sample", self.seconds)
        if self.layout is not None:
            self._check_layout()

    def _check_frames(self) -> None:
        if self.modality != "video":
            return
        require_whole("num_frames", self.num_frames, 1, _MAX_FRAMES)
        if self.stride is not None:
            require_whole("stride", self.stride, 1, _MAX_STRIDE)
        height, width = self.height_and_width
        pixels = height * width * (self.num_frames or 1)
        requirement = f"at most {_MAX_PIXELS:,} pixels in all frames"
        require(pixels <= _MAX_PIXELS, "size", requirement, self.size)


def _known(content: object, kind: type = OnnxSettings, prefix: str = "") -> dict[str, Any]:
    """Return the settings in a JSON object, all of whose keys are known, and none is missing."""
    if not isinstance(content, Mapping):
        raise ArgumentError("the settings must be a JSON object.")
    names = [field.name for field in fields(kind)]
    for key in content:
        if key not in names:
            raise ArgumentError(
                f"there is no setting {prefix + escaped(key)[:60]!r}; choose from "
                f"{', '.join(names)}."
            )
    if kind is OnnxSettings and "modality" not in content:
        raise ArgumentError(f"`modality` is needed: {_MODALITIES}.")
    for field in fields(kind):
        if field.default is MISSING and field.name not in content:
            raise ArgumentError(f"`{prefix}{field.name}` is needed.")
    return dict(content)


def _three(name: str, value: Any) -> tuple[float, ...]:
    """Return three finite numbers as a tuple."""
    requirement = "three finite numbers, for red, green and blue"
    require(isinstance(value, list | tuple) and len(value) == 3, name, requirement, value)
    for number in value:
        is_number = isinstance(number, int | float) and not isinstance(number, bool)
        # A whole number of a thousand digits is no float.
        require(is_number and abs(number) < 1e6, name, requirement, value)
        require(math.isfinite(number), name, requirement, value)
    return tuple(float(number) for number in value)


def _spelled(value: object) -> str:
    if isinstance(value, tuple):
        return " ".join(map(str, value))
    if isinstance(value, MelSettings):
        return f"({value.describe()})"
    return str(value)
