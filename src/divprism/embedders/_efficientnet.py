"""EfficientNet-Lite0 (arXiv:1905.11946, lite variant) as an ONNX graph.

The weights come with a package, in a pickle of torch's legacy format. The file is opened only if
its hash is the known one, and then by an unpickler that resolves four names and calls nothing
else. Batch normalization is folded into the convolutions. Scaling the pixels is part of the
graph, so that its input is bytes.
"""

import collections
import io
import pickle  # used with a restricted unpickler, after the hash of the file was checked
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from onnx import NodeProto, TensorProto

__all__ = ["DIMENSION", "SIDE", "graph", "read_weights"]

SIDE, DIMENSION = 224, 1280

_EPSILON = 1e-3  # of the batch normalization
_PIXEL_MEAN, _PIXEL_SCALE = 127.0, 128.0
# Number of blocks, stride of the first block, expansion. Widths and kernel sizes follow from the
# shapes of the weights.
_STAGES = [
    (1, 1, 1),
    (2, 2, 6),
    (2, 2, 6),
    (3, 2, 6),
    (3, 1, 6),
    (4, 2, 6),
    (1, 1, 6),
]
_DTYPES: dict[str, np.dtype] = {"FloatStorage": np.dtype("<f4"), "LongStorage": np.dtype("<i8")}

_Size = tuple[int, ...]
_LazyTensor = tuple[str, int, _Size, _Size]  # storage, offset, size, stride


def read_weights(content: bytes) -> dict[str, np.ndarray]:
    """Return the tensors of the weight file by name; the caller must have checked its hash."""
    # The legacy format is a sequence of pickles (magic number, protocol version, word sizes,
    # tensors, keys of the storages), followed by the bytes of each storage after its length.
    with io.BytesIO(content) as file:
        for _ in range(3):
            _Unpickler(file).load()
        unpickler = _Unpickler(file)
        tensors = unpickler.load()
        storages = {}
        for key in _Unpickler(file).load():
            size = int.from_bytes(file.read(8), "little")
            dtype = unpickler.dtypes[key]
            storages[key] = np.frombuffer(file.read(size * dtype.itemsize), dtype)
    weights = {}
    for name, (key, offset, size, stride) in tensors.items():
        weights[name] = _strided(storages[key], offset, size, stride)
    return weights


class _Unpickler(pickle.Unpickler):
    """Resolves tensors, their storages and ordered dictionaries, and rejects every other name."""

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file)
        self.dtypes: dict[str, np.dtype] = {}

    def find_class(self, module: str, name: str) -> str | type | Callable[..., _LazyTensor]:
        # No name leads to code of torch: a file cannot do more than describe its tensors.
        if (module, name) == ("collections", "OrderedDict"):
            return collections.OrderedDict
        if (module, name) == ("torch._utils", "_rebuild_tensor_v2"):
            return _lazy_tensor
        if module == "torch" and name in _DTYPES:
            return name
        raise pickle.UnpicklingError(f"{module}.{name} is not part of a weight file")

    def persistent_load(self, pid: tuple[str, str, str, str, int]) -> str:
        # (the word "storage", type, key, device, number of entries)
        _, storage_type, key, *_ = pid
        self.dtypes[key] = _DTYPES[storage_type]
        return str(key)


def _lazy_tensor(key: str, offset: int, size: _Size, stride: _Size, *_: object) -> _LazyTensor:
    """Stand in for torch's constructor: the bytes of the storage come later in the file."""
    return key, offset, size, stride


def _strided(storage: np.ndarray, offset: int, size: _Size, stride: _Size) -> np.ndarray:
    # torch counts strides in entries, NumPy in bytes.
    byte_strides = tuple(step * storage.itemsize for step in stride)
    return np.lib.stride_tricks.as_strided(storage[offset:], size, byte_strides, writeable=False)


def graph(weights: dict[str, np.ndarray]) -> bytes:
    """Return the network as a serialized ONNX model.

    It maps bytes (n, 224, 224, 3) to the features (n, 1280) that are pooled before the classifier.
    """
    from onnx import TensorProto, helper

    net = _Net(weights)
    value = net.node("Cast", ["pixels"], to=TensorProto.FLOAT)
    value = net.node("Transpose", [value], perm=[0, 3, 1, 2])
    value = net.node("Sub", [value, net.constant(np.float32(_PIXEL_MEAN))])
    value = net.node("Div", [value, net.constant(np.float32(_PIXEL_SCALE))])
    value = net.convolution(value, "_conv_stem", "_bn0", stride=2)
    value = _add_stages(net, value)
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
    # Old versions of operator set and format, which every supported onnxruntime reads.
    model = helper.make_model(body, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    return bytes(model.SerializeToString())


def _add_stages(net: "_Net", value: str) -> str:
    """Add the seven stages of inverted bottlenecks; blocks are numbered through all stages."""
    index = 0
    for num_blocks, first_stride, expansion in _STAGES:
        value = _add_block(net, value, index, expansion, stride=first_stride, skip=False)
        index += 1
        for _ in range(num_blocks - 1):
            value = _add_block(net, value, index, expansion, stride=1, skip=True)
            index += 1
    return value


def _add_block(
    net: "_Net", value: str, index: int, expansion: int, *, stride: int, skip: bool
) -> str:
    """Add an inverted bottleneck: widen, filter each channel, narrow.

    With `skip`, the input is added to the result: both have the same shape except in the first
    block of a stage.
    """
    prefix = f"_blocks.{index}"
    inner = value
    if expansion > 1:
        inner = net.convolution(inner, f"{prefix}._expand_conv", f"{prefix}._bn0")
    inner = net.convolution(inner, f"{prefix}._depthwise_conv", f"{prefix}._bn1", stride=stride)
    inner = net.convolution(inner, f"{prefix}._project_conv", f"{prefix}._bn2", linear=True)
    if skip:
        return net.node("Add", [inner, value])
    return inner


class _Net:
    """Nodes and constants of a graph under construction; values are referred to by name."""

    def __init__(self, weights: dict[str, np.ndarray]) -> None:
        self.weights = weights
        self.nodes: list[NodeProto] = []
        self.constants: list[TensorProto] = []

    def constant(self, values: np.ndarray | np.float32) -> str:
        """Add a constant, and return its name."""
        from onnx import numpy_helper

        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.ascontiguousarray(values), name))
        return name

    def node(
        self,
        operator: str,
        inputs: list[str],
        output: str | None = None,
        **attributes: Any,
    ) -> str:
        """Add an operator, and return the name of its result."""
        from onnx import helper

        name = output or f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, inputs, [name], **attributes))
        return name

    def convolution(
        self, value: str, layer: str, norm: str, *, stride: int = 1, linear: bool = False
    ) -> str:
        """Add a convolution with folded batch normalization, then ReLU6 unless it is linear."""
        # norm(conv(x)) = gain * (w * x) + (bias - gain * mean), with gain = scale / std.
        # Folding in double precision keeps the rounding below that of the network itself.
        weight = self.weights[f"{layer}.weight"].astype(np.float64)
        mean = self.weights[f"{norm}.running_mean"].astype(np.float64)
        variance = self.weights[f"{norm}.running_var"].astype(np.float64)
        gain = self.weights[f"{norm}.weight"] / np.sqrt(variance + _EPSILON)
        bias = self.weights[f"{norm}.bias"] - mean * gain
        folded = (weight * gain[:, None, None, None]).astype(np.float32)
        inputs = [value, self.constant(folded), self.constant(bias.astype(np.float32))]
        # A depthwise convolution has one input channel per filter, hence one group per channel.
        groups = 1
        if folded.shape[1] == 1:
            groups = folded.shape[0]
        # The weights were trained in TensorFlow, which pads the odd pixel at the end.
        strides = [stride, stride]
        value = self.node("Conv", inputs, auto_pad="SAME_UPPER", strides=strides, group=groups)
        if linear:
            return value
        limits = [self.constant(np.float32(0)), self.constant(np.float32(6))]
        return self.node("Clip", [value, *limits])
