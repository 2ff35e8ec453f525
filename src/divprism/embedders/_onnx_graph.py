"""ONNX files as untrusted data: what a graph may consist of, before onnxruntime sees it.

A graph that passes is a plain list of arithmetic operators with its weights inside the file. It has
no loops, no functions, no operators of other publishers, and names no other file. The program in
`_onnx_program` imports this module by its path, so it needs nothing but the standard library.
"""

import math
from collections.abc import Iterable
from typing import Any

__all__ = ["OPERATORS", "RefusedError", "check_graph"]

_NAMES = """
    Abs Acos Acosh Add And ArgMax ArgMin Asin Asinh Atan Atanh Attention AveragePool
    BatchNormalization BitwiseAnd BitwiseNot BitwiseOr Cast CastLike Ceil Celu Clip Concat Constant
    ConstantOfShape Conv ConvInteger ConvTranspose Cos Cosh CumSum DepthToSpace DequantizeLinear Div
    Dropout DynamicQuantizeLinear Einsum Elu Equal Erf Exp Expand EyeLike Flatten Floor GRU Gather
    GatherElements GatherND Gelu Gemm GlobalAveragePool GlobalLpPool GlobalMaxPool Greater
    GreaterOrEqual GroupNormalization HardSigmoid HardSwish Identity InstanceNormalization IsInf
    IsNaN LRN LSTM LayerNormalization LeakyRelu Less LessOrEqual Log LogSoftmax LpNormalization
    LpPool MatMul MatMulInteger Max MaxPool Mean MeanVarianceNormalization Min Mish Mod Mul Neg
    NonZero Not Or PRelu Pad Pow QLinearConv QLinearMatMul QuantizeLinear RMSNormalization
    RNN Range Reciprocal ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean
    ReduceMin ReduceProd ReduceSum ReduceSumSquare Relu Reshape Resize RotaryEmbedding Round
    ScatterElements ScatterND Selu Shape Shrink Sigmoid Sign Sin Sinh Size Slice Softmax Softplus
    Softsign SpaceToDepth Split Sqrt Squeeze Sub Sum Swish Tan Tanh ThresholdedRelu Tile TopK
    Transpose Trilu Unsqueeze Upsample Where Xor
"""
OPERATORS = frozenset(_NAMES.split())
"""Operators of ONNX that a graph may use: arithmetic on tensors, the same for every run."""

# Left out although it is arithmetic: OneHot, which in onnxruntime 1.31 reads beyond an empty input.
_DOMAINS = ("", "ai.onnx")
_MAX_NODES = 50_000
_MAX_AXES = 16
# Bytes of an entry and the field that holds entries one by one, by the number of the type.
_TYPES = {
    1: (4, "float_data"),
    2: (1, "int32_data"),
    3: (1, "int32_data"),
    4: (2, "int32_data"),
    5: (2, "int32_data"),
    6: (4, "int32_data"),
    7: (8, "int64_data"),
    9: (1, "int32_data"),
    10: (2, "int32_data"),
    11: (8, "double_data"),
    12: (4, "uint64_data"),
    13: (8, "uint64_data"),
    16: (2, "int32_data"),
}
# What an attribute may hold beside numbers, texts and one tensor.
_NESTED = ("g", "sparse_tensor", "tp")
_REPEATED = ("graphs", "tensors", "sparse_tensors", "type_protos")


class RefusedError(Exception):
    """A model that is not run; the text is the reason."""


def check_graph(model: Any) -> None:
    """Check a parsed model, and remove from it what a run does not need.

    Parameters
    ----------
    model : onnx.ModelProto
        Changed in place: shapes of inner values, which may lie, and descriptions are dropped.

    Raises
    ------
    RefusedError
        If the graph may do more than arithmetic on its input, or contradicts itself.
    """
    graph = model.graph
    if len(graph.node) == 0:
        raise RefusedError("it is not an ONNX model, or an empty one")
    if len(model.functions) > 0:
        raise RefusedError(
            "it defines functions of its own; export it with torch.onnx.export(..., optimize=True)"
        )
    if len(graph.node) > _MAX_NODES:
        raise RefusedError(f"it has {len(graph.node):,} operators; at most {_MAX_NODES:,} are run")
    if len(graph.sparse_initializer) > 0:
        raise RefusedError("it has sparse tensors, which are not read")
    _check_tensors(graph.initializer)
    for node in graph.node:
        _check_node(node)
    for field in ("functions", "metadata_props", "training_info"):
        model.ClearField(field)
    for field in ("value_info", "quantization_annotation", "metadata_props"):
        if field in graph.DESCRIPTOR.fields_by_name:
            graph.ClearField(field)
    # Exporters also list domains that no operator is from.
    kept = [entry for entry in model.opset_import if entry.domain in _DOMAINS]
    versions = [entry.version for entry in kept]
    model.ClearField("opset_import")
    model.opset_import.add(domain="", version=max(versions, default=1))
    # What newer versions of the format add is unknown here, so onnxruntime must not see it.
    model.DiscardUnknownFields()


def _check_node(node: Any) -> None:
    name = node.op_type
    if node.domain not in _DOMAINS:
        raise RefusedError(
            f"it uses the operator {_shown(name)} of {_shown(node.domain)}; only operators of ONNX "
            "itself are run"
        )
    if name not in OPERATORS:
        raise RefusedError(
            f"it uses the operator {_shown(name)}, which is not run: loops, random numbers and "
            "operators of other publishers are refused"
        )
    # A third input switches training on, which is random.
    if name == "Dropout" and any(node.input[2:]):
        raise RefusedError("its dropout is that of training; export it after model.eval()")
    for attribute in node.attribute:
        nested = [field for field in _NESTED if attribute.HasField(field)]
        nested += [field for field in _REPEATED if len(getattr(attribute, field)) > 0]
        if nested or attribute.ref_attr_name:
            raise RefusedError(f"its operator {_shown(name)} has a graph inside")
        if attribute.HasField("t"):
            _check_tensors([attribute.t])


def _check_tensors(tensors: Iterable[Any]) -> None:
    for tensor in tensors:
        _check_tensor(tensor)


def _check_tensor(tensor: Any) -> None:
    """Refuse a tensor in another file, or of another size than its shape says."""
    name = _shown(tensor.name)
    # The names of these files could also lead anywhere, memory of this process included.
    if tensor.data_location != 0 or len(tensor.external_data) > 0:
        raise RefusedError(
            "its weights are in another file; export it with torch.onnx.export(..., "
            "external_data=False), or join the files: onnx.save(onnx.load('model.onnx'), "
            "'joined.onnx')"
        )
    if tensor.data_type not in _TYPES or tensor.HasField("segment"):
        raise RefusedError(f"its tensor {name} is of a type that is not read")
    width, field = _TYPES[tensor.data_type]
    shape = list(tensor.dims)
    if len(shape) > _MAX_AXES or any(length < 0 for length in shape):
        raise RefusedError(f"its tensor {name} has an impossible shape")
    expected = math.prod(shape)
    found = len(getattr(tensor, field))
    if tensor.HasField("raw_data"):
        found, expected = len(tensor.raw_data), expected * width
    if found != expected:
        raise RefusedError(f"its tensor {name} has another size than its shape says")


def _shown(text: object) -> str:
    """Return the beginning of a text of the file, in ASCII."""
    return ascii(str(text)[:60])
