"""Models that were exported to ONNX: I3D, SwAV, or any other network, run by onnxruntime.

A file is untrusted data: its graph is checked, and runs in a process of its own that can open no
file and has limits of memory and time. See `_onnx_graph` and `_onnx_program`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from divprism.data.files import open_file, read_file
from divprism.data.wording import NOUNS
from divprism.embedders._hub import Source, running
from divprism.embedders._model_files import UnsafeModelError, check_link
from divprism.embedders._onnx_process import Runner
from divprism.embedders._onnx_settings import OnnxSettings
from divprism.embedders._tokenizer_files import check_tokenizer
from divprism.embedders.base import (
    Content,
    Embedder,
    Prepared,
    characters_for,
    check_at_least,
    file_hash,
    package_folder,
    runtime_of,
)
from divprism.engines import cores
from divprism.errors import DataError, MissingExtraError

if TYPE_CHECKING:
    from PIL.Image import Image
    from tokenizers import Tokenizer

__all__ = ["Onnx"]

_PREPARED_BY = {"text": ("tokenizers",), "image": ("pillow",), "video": ("pillow", "av")}
_PREPARED_BY["audio"] = ("av", "numpy")
_MAX_FILE = (1 << 31) - 1  # of the format itself
_MAX_TOKENIZER = 48 << 20
_MAX_THREADS = 16
_MAX_WINDOWS = 8  # of a sound, by default


@dataclass(frozen=True)
class Onnx(Embedder):
    """A network in an ONNX file, for images, videos, texts or sounds: I3D, SwAV or VGGish.

    Pick it for a network that no other embedder has. Preprocessing and output are settings, in a
    JSON file beside the model (`model.json` for `model.onnx`); the model of a text also needs its
    `tokenizer.json`. Each item runs on its own and on a single thread of the CPU, so its vector
    depends neither on its batch nor on the number of threads.

    Attributes
    ----------
    model : str
        Path of the file. Its weights are inside; graphs with loops, random numbers, or operators
        of other publishers are refused.
    settings : OnnxSettings, optional
        Default: those in the JSON file beside the model.

    Raises
    ------
    MissingModelError
        If the file or its settings are missing or refused. The graph is checked before the first
        item is embedded.
    """

    model: str
    settings: OnnxSettings | None = None
    batch_size: int = 32
    # These follow from the settings, so they are no arguments.
    modality: str = field(init=False, compare=False, default="")  # type: ignore[misc]
    num_frames: int = field(init=False, compare=False, default=0)
    frame_stride: int = field(init=False, compare=False, default=0)
    sample_rate: int = field(init=False, compare=False, default=0)

    def __post_init__(self) -> None:
        check_at_least("batch_size", self.batch_size)
        settings = self.settings or self._read_settings()
        # The dataclass is frozen, so these fields cannot be assigned.
        object.__setattr__(self, "settings", settings)
        object.__setattr__(self, "modality", settings.modality)
        object.__setattr__(self, "num_frames", settings.num_frames or 0)
        object.__setattr__(self, "frame_stride", settings.stride or 0)
        object.__setattr__(self, "sample_rate", settings.sample_rate or 0)

    @property
    def name(self) -> str:
        """The name of the file, without its folder: the hash in `revision` identifies the model."""
        return f"onnx:{self._path.name}"

    @property
    def spelling(self) -> str:
        """The model as it was given."""
        return f"onnx:{self.model}"

    @cached_property
    def revision(self) -> str:
        """Hash of the model, and for texts of the tokenizer."""
        if self.modality != "text":
            return f"sha256:{self._hash}"
        # Half of each hash keeps the text short, and 128 bits still identify a file.
        return f"sha256:{self._hash[:32]}+{file_hash(self._beside('tokenizer.json'))[:32]}"

    @cached_property
    def dimension(self) -> int:
        """Width of the vector of a blank item: graphs need not state it."""
        if self.modality == "text":
            blank: Prepared = "a"
        elif self.modality == "audio":
            blank = self._windows(np.zeros(1, np.float32))
        else:
            blank = np.zeros(self._shape, np.uint8)
        return int(self.embed_batch([blank]).shape[1])

    @property
    def known_dimension(self) -> None:
        """None: only the vectors themselves reveal it."""
        return

    @property
    def max_characters(self) -> int | None:
        """For texts: many times the characters that the tokens of the model have room for."""
        if self.modality != "text":
            return None
        return characters_for(self._settings.max_tokens)

    @property
    def preprocessing(self) -> str:
        """The settings."""
        return f"{self._settings.describe()}; each {NOUNS[self.modality]} alone"

    @property
    def runtime(self) -> str:
        """Versions of the inference engine and of the libraries that prepare items."""
        return runtime_of("onnxruntime", *_PREPARED_BY[self.modality])

    def prepare(self, content: Content) -> Prepared:
        """Return an image as bytes (height, width, 3), a video as one array of such frames.

        A sound becomes its windows, each as the model takes it.
        """
        if self.modality == "text":
            return super().prepare(content)
        if self.modality == "image":
            return self._pixels(content)
        if self.modality == "audio":
            return self._windows(content)
        # A frame that a short video repeats is one object, and resized once.
        resized: dict[int, np.ndarray] = {}
        for frame in content:
            if id(frame) not in resized:
                resized[id(frame)] = self._pixels(frame)
        return np.stack([resized[id(frame)] for frame in content])

    def embed_batch(self, batch: Sequence[Prepared]) -> np.ndarray:
        """Return the vectors of prepared items; items of a batch run in parallel."""
        if self.modality == "audio":
            return self._means(batch)
        if self.modality == "text":
            items = [self._tokens(text) for text in batch]
        else:
            items = [np.ascontiguousarray(pixels, np.uint8).tobytes() for pixels in batch]
        return self._vectors(items)

    def _vectors(self, items: Sequence[bytes]) -> np.ndarray:
        with self._source.refusals():
            try:
                return self._runner.vectors(items)
            except BaseException:
                # Its process has ended; the next batch starts another.
                self.__dict__.pop("_runner", None)
                raise

    def _pixels(self, image: "Image") -> np.ndarray:
        """Resize and crop an image as torchvision does, in one resampling."""
        from PIL import Image

        settings = self._settings
        height, width = settings.height_and_width
        method = Image.Resampling.BILINEAR
        if settings.interpolation == "bicubic":
            method = Image.Resampling.BICUBIC
        if not isinstance(settings.resize, int):
            return np.asarray(image.resize((width, height), method))
        shorter = min(image.size)
        # The size that the whole image would get, and where the part that is kept lies in it.
        whole = [int(settings.resize * side / shorter) for side in image.size]
        box = []
        for kept, total, side in zip((width, height), whole, image.size, strict=True):
            start = round((total - kept) / 2)
            box.append((start * side / total, (start + kept) * side / total))
        (left, right), (top, bottom) = box
        # Only the part that is kept is resampled: a line of 30,000 pixels would become a billion.
        return np.asarray(image.resize((width, height), method, box=(left, top, right, bottom)))

    def _windows(self, sound: np.ndarray) -> list[np.ndarray]:
        """Return the windows of a sound, evenly spaced, as the model takes them."""
        settings = self._settings
        length = settings.num_samples
        most = settings.windows or _MAX_WINDOWS
        sound = np.pad(sound, (0, max(0, length - len(sound))))
        # Enough windows to cover the sound, if that many are allowed.
        count = min(most, -(-len(sound) // length))
        last = len(sound) - length
        starts = np.linspace(0, last, count).round().astype(int)
        if count == 1:
            starts[0] = last // 2  # the middle
        windows = []
        for start in starts:
            values = sound[start : start + length]
            if settings.mel is not None:
                values = settings.mel.spectrogram(values, self.sample_rate)
                # Bands x frames, unless the layout has the frames first.
                if settings.axes.index("t") < settings.axes.index("f"):
                    values = values.T
            windows.append(np.ascontiguousarray(values, "<f4"))
        return windows

    def _means(self, batch: Sequence[Sequence[np.ndarray]]) -> np.ndarray:
        """Return for each sound the mean of the vectors of its windows."""
        rows = self._vectors([window.tobytes() for windows in batch for window in windows])
        means = []
        start = 0
        for windows in batch:
            own = rows[start : start + len(windows)].astype(np.float64)
            start += len(windows)
            mean = own.mean(axis=0)
            if self._settings.normalize:
                # Unit vectors that cancel have no direction, and stay zero.
                mean /= np.linalg.norm(mean) or 1.0
            means.append(mean.astype(np.float32))
        return np.stack(means)

    def _tokens(self, text: str) -> bytes:
        with running(self._source):
            ids = self._tokenizer.encode(text[: self.max_characters]).ids
        if not ids:
            raise DataError(f"the text {text[:40]!r} has no token, so {self.name} has no vector.")
        return np.array(ids, "<u4").tobytes()

    @property
    def _settings(self) -> OnnxSettings:
        assert self.settings is not None
        return self.settings

    @property
    def _source(self) -> Source:
        # For its error messages, and because paths may start with "~": nothing is downloaded.
        return Source(self.model, anchors=(), needs=(), modality=self.modality, offline=True)

    @property
    def _path(self) -> Path:
        return self._source.path

    @property
    def _shape(self) -> tuple[int, ...]:
        """Shape of the prepared pixels."""
        shape = (*self._settings.height_and_width, 3)
        if self.modality == "video":
            return (self.num_frames, *shape)
        return shape

    def _read_settings(self) -> OnnxSettings:
        path = self._path.with_suffix(".json")
        if not self._path.is_file():
            raise self._source.missing("there is no such file")
        if not path.exists():
            raise self._source.missing(
                f"it needs its settings in {path.name!r} beside it; docs/how-to/onnx.md lists them"
            )
        try:
            return OnnxSettings.read(self._beside(path.name))
        except DataError as error:
            raise self._source.missing(str(error).rstrip(".")) from None

    def _beside(self, name: str) -> Path:
        """Return a file in the folder of the model, which must not be a link out of it."""
        path = self._path.parent / name
        with self._source.refusals():
            if not path.is_file():
                raise UnsafeModelError(f"it needs {name} beside it")
            check_link(path, path.parent)
        return path

    @cached_property
    def _hash(self) -> str:
        try:
            with open_file(self._path) as file:
                size = file.seek(0, 2)
        except DataError as error:
            raise self._source.missing(str(error).rstrip(".")) from None
        if size > _MAX_FILE:
            raise self._source.missing(f"it has {size / 1e9:,.1f} GB; ONNX files have at most 2 GB")
        return file_hash(self._path)

    @cached_property
    def _tokenizer(self) -> "Tokenizer":
        try:
            from tokenizers import Tokenizer
        except ImportError:
            raise MissingExtraError(
                "Embedding texts needs tokenizers, which is not installed: "
                "pip install 'divprism[onnx]'."
            ) from None
        path = self._beside("tokenizer.json")
        try:
            content = read_file(path, _MAX_TOKENIZER, path.name)
        except DataError as error:
            raise self._source.missing(str(error).rstrip(".")) from None
        with self._source.refusals():
            check_tokenizer(path)
        with running(self._source):
            tokenizer = Tokenizer.from_str(content.decode())
            tokenizer.no_padding()
            tokenizer.enable_truncation(self._settings.max_tokens or 1)
        return tokenizer

    @cached_property
    def _runner(self) -> Runner:
        for module in ("onnx", "onnxruntime"):
            package_folder(module, "onnx", "Running ONNX models", module)
        settings = self._settings
        threads = min(cores(), _MAX_THREADS)
        task: dict[str, Any] = {
            "path": str(self._path.absolute()),
            "sha256": self._hash,
            "threads": threads,
            "modality": self.modality,
            "max_tokens": settings.max_tokens,
            "pad_id": settings.pad_id,
            "output": settings.output,
            "pooling": settings.pooling,
            "normalize": settings.normalize,
        }
        if self.modality == "audio":
            task["shape"] = settings.sound_shape
            task["has_batch"] = (settings.layout or "n")[0] == "n"
        elif self.modality != "text":
            given = "thwc"[-len(self._shape) :]
            task["axes"] = [given.index(axis) for axis in settings.axes]
            task["shape"] = self._shape
            task["mean"], task["std"] = settings.mean, settings.std
        return Runner(task, self._path.stat().st_size)
