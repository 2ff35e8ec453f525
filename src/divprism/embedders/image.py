"""The default image embedder, and its mean over frames for videos."""

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from divprism.embedders import _efficientnet
from divprism.embedders._bundled import EFFICIENTNET_LITE0
from divprism.embedders.base import (
    Content,
    Embedder,
    Prepared,
    check_at_least,
    runtime_of,
)
from divprism.errors import ArgumentError, MissingExtraError

if TYPE_CHECKING:
    from PIL.Image import Image

__all__ = ["EfficientNetLite0", "FrameMean"]

# The usual evaluation crop: resize the shorter side to 256, keep the central 224.
_CROP = _efficientnet.SIDE / 256


@dataclass(frozen=True)
class EfficientNetLite0(Embedder):
    """Pooled ImageNet features of EfficientNet-Lite0, 1280 wide, raw; no download, no torch.

    Pick it for a first look at natural images; DINOv2 distinguishes more. Embeds about 60 images
    per second and core. Each image runs on its own and on a single thread, so its vector depends
    neither on its batch nor on the number of threads.
    """

    modality: ClassVar[str] = "image"
    batch_size: int = 32

    def __post_init__(self) -> None:
        check_at_least("batch_size", self.batch_size)

    @property
    def name(self) -> str:
        """Name in results and on the command line."""
        return "efficientnet-lite0"

    @cached_property
    def revision(self) -> str:
        """Hash of the weight file."""
        return f"sha256:{EFFICIENTNET_LITE0.verify()}"

    @property
    def dimension(self) -> int:
        """Always 1280, the width of the last layer before the classifier."""
        return _efficientnet.DIMENSION

    @property
    def preprocessing(self) -> str:
        """Cropping, resizing and scaling of an image, and pooling of its features."""
        return (
            "RGB on white, centre square of 0.875 of the shorter side to 224 px bicubic, "
            "(x - 127) / 128; pooled, raw"
        )

    @property
    def runtime(self) -> str:
        """Versions of the inference engine and of the library that resizes."""
        return runtime_of("onnxruntime", "pillow")

    def prepare(self, content: "Image") -> np.ndarray:
        """Crop and resize an image to bytes (224, 224, 3)."""
        from PIL import Image

        width, height = content.size
        half = _CROP * min(width, height) / 2
        box = (width / 2 - half, height / 2 - half, width / 2 + half, height / 2 + half)
        size = (_efficientnet.SIDE, _efficientnet.SIDE)
        # One resampling from the crop box, rather than a resize to 256 followed by a crop.
        return np.asarray(content.resize(size, Image.Resampling.BICUBIC, box=box))

    def embed_batch(self, batch: Sequence[np.ndarray]) -> np.ndarray:
        """Return the features of prepared images; the images of a batch run in parallel."""
        session = self._session

        # A batch of one: the engine may sum in another order for another batch size.
        def features(pixels: np.ndarray) -> np.ndarray:
            (rows,) = session.run(None, {"pixels": pixels[None]})
            return rows

        return np.concatenate(list(self._threads.map(features, batch)))

    @cached_property
    def _threads(self) -> ThreadPoolExecutor:
        # Threads are enough for parallel work: the engine releases the interpreter lock.
        return ThreadPoolExecutor(os.cpu_count() or 1, thread_name_prefix="efficientnet")

    @cached_property
    def _session(self) -> Any:
        """The inference session of onnxruntime."""
        try:
            import onnx  # noqa: F401 - `_efficientnet.graph` needs it
            import onnxruntime
        except ImportError:
            raise MissingExtraError(
                "Embedding images needs onnx and onnxruntime, which are not installed: "
                "pip install 'divprism[images]'."
            ) from None
        options = onnxruntime.SessionOptions()
        # One thread per image: the order of sums depends on the threads inside an operator.
        options.intra_op_num_threads = 1
        options.inter_op_num_threads = 1
        options.log_severity_level = 3  # errors only
        # The file is a pickle, so it must not be opened unless its content is the known one.
        weights = _efficientnet.read_weights(EFFICIENTNET_LITE0.content())
        graph = _efficientnet.graph(weights)
        return onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])


@dataclass(frozen=True)
class FrameMean(Embedder):
    """Mean of an image embedder over evenly spaced frames: what a video shows, not how it moves.

    Pick it for a first look at videos; a video model (videomae, xclip) also sees the order of
    frames.

    Attributes
    ----------
    frames : Embedder
        Embeds the single frames.
    num_frames : int
        Number of frames per video.
    """

    modality: ClassVar[str] = "video"
    frames: Embedder = field(default_factory=EfficientNetLite0)
    num_frames: int = 8
    batch_size: int = 4

    def __post_init__(self) -> None:
        check_at_least("batch_size", self.batch_size)
        if self.frames.modality != "image":
            raise ArgumentError(
                f"`frames` must be an image embedder; {self.frames.name} embeds "
                f"{self.frames.modality}."
            )
        check_at_least("num_frames", self.num_frames)

    @property
    def name(self) -> str:
        """Name of the image embedder, followed by `-frames`."""
        return f"{self.frames.name}-frames"

    @property
    def spelling(self) -> str:
        """Spelling of the image embedder, which is wrapped again wherever outputs are videos."""
        return self.frames.spelling

    @property
    def revision(self) -> str | None:
        """Revision of the image embedder."""
        return self.frames.revision

    @property
    def dimension(self) -> int:
        """Width of the image embedder, since averaging keeps it."""
        return self.frames.dimension

    @property
    def known_dimension(self) -> int | None:
        """Width of the image embedder, if that is known in advance."""
        return self.frames.known_dimension

    @property
    def preprocessing(self) -> str:
        """How frames are chosen, and the preprocessing of each."""
        return (
            f"mean over the middles of {self.num_frames} equal parts; "
            f"each frame: {self.frames.preprocessing}"
        )

    @property
    def precision(self) -> str:
        """Precision of the image embedder."""
        return self.frames.precision

    @property
    def runtime(self) -> str:
        """Runtime of the image embedder, and the version of the video decoder."""
        parts = [self.frames.runtime, runtime_of("av")]
        return ", ".join(part for part in parts if part)

    def prepare(self, content: Sequence[Content]) -> list[Prepared]:
        """Prepare every frame; a frame that a short video repeats is prepared once."""
        # Repeated frames are one object, both here and in `embed_batch`.
        prepared: dict[int, Prepared] = {}
        for frame in content:
            if id(frame) not in prepared:
                prepared[id(frame)] = self.frames.prepare(frame)
        return [prepared[id(frame)] for frame in content]

    def embed_batch(self, batch: Sequence[Sequence[Prepared]]) -> np.ndarray:
        """Return one mean per video; the distinct frames of the batch are embedded together."""
        distinct: dict[int, Prepared] = {}
        for video in batch:
            distinct.update((id(frame), frame) for frame in video)
        row_of = {key: row for row, key in enumerate(distinct)}
        vectors = self.frames.embed_batch(list(distinct.values()))
        means = []
        for video in batch:
            rows = [row_of[id(frame)] for frame in video]
            means.append(vectors[rows].mean(axis=0))
        return np.stack(means)
