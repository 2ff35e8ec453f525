"""The weight files of a model as untrusted data: what their headers state, and what fits them.

A configuration of a few bytes can ask for any number of layers of any width. It is compared with
the shapes in the weight files, which cost as many bytes as they claim, before a model is built.
"""

import importlib.metadata
import json
import math
import os
import re
import zipfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import psutil

from divprism.data.zip_files import open_zip
from divprism.embedders._model_files import (
    Json,
    UnsafeModelError,
    quoted,
    read_dictionary,
)

__all__ = ["Shapes", "check_model", "check_numbers", "check_pickle", "shapes_of"]

_MAX_HEADER = 16 << 20  # bytes; thousands of tensors need one megabyte
_BITS = {
    **dict.fromkeys(("F64", "I64", "U64", "C64"), 64),
    **dict.fromkeys(("F32", "I32", "U32"), 32),
    **dict.fromkeys(("F16", "BF16", "I16", "U16"), 16),
    **dict.fromkeys(("I8", "U8", "BOOL", "F8_E4M3", "F8_E5M2", "F8_E8M0"), 8),
}
# Unpickling "weights only" ran code before this version (CVE-2025-32434).
_SAFE_TORCH = (2, 6)

_LAYERS = re.compile(
    r".*(layers?|depths?|blocks?|groups?|group_num|experts?|stages?|attention_types)"
)
_MAX_LAYERS = 1000
_SIZES = re.compile(
    r"d_(model|kv|ff|inner|embed|head)|.*(size|dims?|width|dimension|heads?|channels|features"
    r"|embd|inner|rank|frames)"
)
_LABELS = re.compile(r".*labels?")
_POSITIONS = re.compile(r".*(position|length)\w*")
# Sizes of images, patches, kernels and windows have no dimension of their own in the weights.
_SMALL_SIZE = 4096
_MAX_POSITIONS = 1 << 24
_MAX_PATCHES = 1 << 14  # of an image or a video; some models compute a table of them in Python
_MAX_NUMBER = 1 << 40
_MAX_LABELS = 1 << 20  # transformers makes a name for each, whatever the weights have
_MAX_WIDTH = 1 << 24  # of a model whose weights are not known yet
# Weights left out of files, such as poolers and tied embeddings, and tables computed from settings.
_SIZE_FACTOR, _SIZE_MARGIN = 4, 1 << 24


@dataclass(frozen=True)
class Shapes:
    """What the weights of a model consist of.

    Attributes
    ----------
    tensors : int
        Number of tensors with at least one entry.
    entries : int
        Number of entries of all tensors.
    largest : int
        Largest dimension of any tensor.
    """

    tensors: int
    entries: int
    largest: int


def shapes_of(folder: Path) -> Shapes:
    """Return the shapes in the weight files of a folder, not of the folders inside it.

    Raises
    ------
    UnsafeModelError
        If a file is truncated, contradicts itself, or is a pickle that may run code.
    """
    shapes: list[tuple[int, ...]] = []
    files = sorted(folder.glob("*.safetensors"))
    for path in files:
        shapes += _safetensors_shapes(path)
    if not files:
        for path in sorted(folder.glob("pytorch_model*.bin")):
            shapes += _pickled_shapes(path)
    return _summary(shapes)


def _summary(shapes: Iterable[tuple[int, ...]]) -> Shapes:
    tensors = entries = largest = 0
    for shape in shapes:
        # Dimensions of an empty tensor cost nothing, so they prove nothing.
        count = math.prod(shape)
        if count:
            tensors += 1
            entries += count
            largest = max(largest, *shape, 1)
    return Shapes(tensors, entries, largest)


def _safetensors_shapes(path: Path) -> list[tuple[int, ...]]:
    name = quoted(path.name)
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            if length > min(_MAX_HEADER, size - 8):
                raise UnsafeModelError(f"its weight file {name} is truncated or has no header")
            header = json.loads(file.read(length))
    except UnsafeModelError:
        raise
    except (OSError, ValueError, RecursionError):
        raise UnsafeModelError(f"its weight file {name} cannot be read") from None
    if not isinstance(header, dict):
        raise UnsafeModelError(f"its weight file {name} cannot be read")
    header.pop("__metadata__", None)
    shapes = []
    end_of_all = 0
    for entry in header.values():
        shape, end = _entry(entry, name)
        shapes.append(shape)
        end_of_all = max(end_of_all, end)
    if end_of_all != size - 8 - length:
        raise UnsafeModelError(f"its weight file {name} is truncated, or longer than it states")
    return shapes


def _entry(entry: Any, name: str) -> tuple[tuple[int, ...], int]:
    """Return the shape of a tensor in a header, and where its bytes end."""
    try:
        shape = tuple(entry["shape"])
        start, end = entry["data_offsets"]
        bits = _BITS.get(entry["dtype"])
    except (TypeError, ValueError, KeyError):
        raise UnsafeModelError(f"the header of its weight file {name} is broken") from None
    numbers = (*shape, start, end)
    are_counts = all(type(number) is int and number >= 0 for number in numbers)
    # Types of less than a byte are left to the library.
    if not are_counts or (bits is not None and 8 * (end - start) != math.prod(shape) * bits):
        raise UnsafeModelError(f"the header of its weight file {name} contradicts itself")
    return shape, end


def check_pickle(path: Path) -> None:
    """Raise an error for a pickle of weights that is compressed, or for a torch that is too old.

    torch's restricted unpickler opens the file afterwards.
    """
    version = importlib.metadata.version("torch")
    numbers = re.findall(r"\d+", version)[:2]
    if tuple(map(int, numbers)) < _SAFE_TORCH:
        raise UnsafeModelError(
            f"its weights are pickled, and torch {version} may run code in them; use safetensors, "
            "or torch 2.6 or later"
        )
    if not zipfile.is_zipfile(path):
        return
    try:
        with open_zip(path) as archive:
            unpacked = sum(entry.file_size for entry in archive.infolist())
    except zipfile.BadZipFile as error:
        raise UnsafeModelError(f"its weight file {quoted(path.name)} is damaged: {error}") from None
    # torch stores tensors as they are: a compressed file could unpack to any size.
    if unpacked > os.path.getsize(path):
        raise UnsafeModelError(f"its weight file {quoted(path.name)} is compressed")


def _pickled_shapes(path: Path) -> list[tuple[int, ...]]:
    import torch

    check_pickle(path)
    # On this device tensors have shapes only, and no bytes of them are read.
    state = torch.load(path, map_location="meta", weights_only=True)
    if not isinstance(state, dict):
        raise UnsafeModelError(f"its weight file {quoted(path.name)} has no tensors")
    tensors = [value for value in state.values() if isinstance(value, torch.Tensor)]
    return [tuple(tensor.shape) for tensor in tensors]


def check_numbers(config: Json, shapes: Shapes | None, where: str = "config.json") -> None:
    """Check the numbers of a configuration against the shapes of the weights.

    None stands for weights that are not known yet: only numbers that no model has are refused.

    Raises
    ------
    UnsafeModelError
        For a number that the weights rule out, or that is not finite.
    """
    for key, value in config.items():
        if isinstance(value, dict):
            check_numbers(value, shapes, where)
            continue
        for number in _flat(value):
            if isinstance(number, dict):
                check_numbers(number, shapes, where)
            else:
                _check_number(str(key), number, shapes, where)
    # Layers inside layers, in ALBERT.
    layers = _number(config, "num_hidden_groups") * _number(config, "inner_group_num")
    if layers > _MAX_LAYERS:
        raise UnsafeModelError(f"{where} asks for {layers:,} layers")
    if "image_size" in config or "patch_size" in config:
        side = _number(config, "image_size", 224) / max(_number(config, "patch_size", 16), 1)
        if side**2 * _number(config, "num_frames") > _MAX_PATCHES:
            raise UnsafeModelError(f"{where} asks for more than {_MAX_PATCHES:,} patches")


def _flat(value: object) -> Iterator[object]:
    """Yield what is inside a list of lists; the depth of them was checked before."""
    if not isinstance(value, list):
        yield value
        return
    for item in value:
        yield from _flat(item)


def _number(config: Json, key: str, default: int = 1) -> float:
    """Return a setting as a number; the largest of a list, the default for anything else."""
    numbers = [item for item in _flat(config.get(key)) if isinstance(item, int | float)]
    return max(numbers, default=default)


def _check_number(key: str, number: object, shapes: Shapes | None, where: str) -> None:
    if isinstance(number, bool) or not isinstance(number, int | float):
        return
    limits = [_MAX_NUMBER]
    is_count = True
    reason = "which no model has"
    most_layers, widest = _MAX_LAYERS, _MAX_WIDTH
    if shapes is not None:
        reason = (
            f"which does not fit its weights ({shapes.tensors:,} tensors, the largest dimension is "
            f"{shapes.largest:,})"
        )
        most_layers = min(_MAX_LAYERS, max(shapes.tensors, 1))
        widest = max(shapes.largest, _SMALL_SIZE)
    if _LAYERS.fullmatch(key):
        limits.append(most_layers)
    elif _LABELS.fullmatch(key):
        limits.append(min(widest, _MAX_LABELS))
    elif _POSITIONS.fullmatch(key):
        limits.append(_MAX_POSITIONS)
    elif _SIZES.fullmatch(key):
        limits.append(widest)
    else:
        is_count = False
    if not math.isfinite(number) or number > min(limits) or (is_count and number < -1):
        raise UnsafeModelError(f"{quoted(key)} in {where} is {quoted(number)}, {reason}")


def check_model(folder: Path, precision: str, libraries: tuple[ModuleType, ModuleType]) -> None:
    """Check the configuration of a transformers model against its weights, which are not loaded.

    Parameters
    ----------
    folder : Path
        The folder with both.
    precision : str
        Floating-point type that the model will be loaded in.
    libraries : tuple of module
        torch and transformers.

    Raises
    ------
    UnsafeModelError
        If the model would be larger than its weights, or than the memory that is available.
    """
    torch, transformers = libraries
    shapes = shapes_of(folder)
    _check_memory(shapes, precision)
    check_numbers(read_dictionary(folder / "config.json"), shapes)
    options = {"local_files_only": True, "trust_remote_code": False}
    config = transformers.AutoConfig.from_pretrained(folder, **options)
    # Tensors on this device have shapes only, so that building a model is cheap.
    with torch.device("meta"):
        model = transformers.AutoModel.from_config(config, trust_remote_code=False)
    entries = sum(tensor.numel() for tensor in (*model.parameters(), *model.buffers()))
    if entries > _SIZE_FACTOR * shapes.entries + _SIZE_MARGIN:
        raise UnsafeModelError(
            f"its configuration asks for {entries:,} numbers, and its weights have "
            f"{shapes.entries:,}"
        )


def _check_memory(shapes: Shapes, precision: str) -> None:
    """Raise an error if the weights do not fit in the memory that is available."""
    width = 2
    if precision == "float32":
        width = 4
    needed = shapes.entries * width
    available = psutil.virtual_memory().available
    if needed > available:
        raise UnsafeModelError(
            f"its weights need {needed / 1e9:,.1f} GB of memory, and {available / 1e9:,.1f} GB are "
            "available"
        )
