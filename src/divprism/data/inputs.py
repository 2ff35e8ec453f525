"""What a user passes as outputs and prompts, as `Samples`: paths, texts, images, ids or arrays."""

import io
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from divprism.core.arrays import Array, is_array_api_obj, to_numpy
from divprism.core.kernels import Categorical, Kernel
from divprism.core.validation import check_pairing, holds_text
from divprism.data.readers.load import load
from divprism.data.samples import Image, Item, Samples, texts
from divprism.errors import ArgumentError

if TYPE_CHECKING:
    import PIL.Image

__all__ = ["as_arrays", "as_items", "as_samples"]


def as_samples(x: object, t: object, kernel_t: Kernel | None) -> Samples:
    """Return outputs `x` and prompts `t` as samples, whatever their form.

    A path is read, texts and images become items, and arrays stay as they are. If `kernel_t`
    compares prompts as ids, prompt texts become numbers.
    """
    if isinstance(x, str | Path):
        if t is not None and not isinstance(t, str | Path):
            raise ArgumentError("`t` must be a path too if `x` is the path of a file or folder.")
        samples = load(x, t)
    elif isinstance(x, Samples):
        if t is not None:
            raise ArgumentError("`x` is Samples, which hold their own prompts; leave out `t`.")
        samples = x
    elif isinstance(x, Mapping):
        raise ArgumentError("`x` is a mapping; to score several models, pass it to dp.compare.")
    elif _is_pair(x) and t is None:
        raise ArgumentError("give outputs and prompts as dp.Samples(x, t), not as a tuple.")
    else:
        samples = _samples_in_memory(x, t)
    if isinstance(kernel_t, Categorical):
        return samples.with_prompt_ids()
    return samples


def _is_pair(x: object) -> bool:
    """Whether `x` is (outputs, prompts), which would otherwise be taken for two outputs."""
    return isinstance(x, tuple) and len(x) == 2 and all(hasattr(side, "ndim") for side in x)


def _samples_in_memory(x: Array, t: Array | None) -> Samples:
    outputs = as_items(x, "output")
    prompts = as_items(t, "prompt")
    has_items = outputs is not None or prompts is not None
    # Two arrays are checked later, together with their entries. Items have to be checked now,
    # because leaving out the pairs with blank texts needs sides of equal length.
    if has_items and t is not None:
        check_pairing(len(x), len(t), "t")
    samples = Samples(_items_or_data(outputs, x), _items_or_data(prompts, t))
    return samples.without_empty()


def _items_or_data(items: tuple[Item, ...] | None, data: Array) -> Array:
    if items is not None:
        return items
    # A tuple marks a side of items, so a tuple of rows or ids becomes a list.
    if isinstance(data, tuple):
        return list(data)
    return data


def as_items(values: object, name: str) -> tuple[Item, ...] | None:
    """Return strings or PIL images as items, or None for anything else, such as arrays."""
    # A column of a table arrives as an array of strings.
    if isinstance(values, np.ndarray) and values.ndim == 1 and holds_text(values):
        values = values.tolist()
    if not isinstance(values, Sequence) or isinstance(values, str | bytes) or len(values) == 0:
        return None
    if all(isinstance(value, Item) for value in values):
        return tuple(values)
    if all(isinstance(value, str) for value in values):
        return texts(values, name)
    # Judged by the name of the module, so that Pillow is not imported for arrays.
    if all(type(value).__module__.startswith("PIL.") for value in values):
        return tuple(
            Image(_image_bytes(image), f"{name} {index}") for index, image in enumerate(values)
        )
    return None


def _image_bytes(image: "PIL.Image.Image") -> bytes:
    """Return an image in memory as the bytes of a lossless file."""
    # Other modes (palettes, grey levels, alpha) all fit into RGBA.
    if image.mode != "RGB":
        image = image.convert("RGBA")
    buffer = io.BytesIO()
    # The bytes are hashed and decoded once, so compressing them would only cost time.
    image.save(buffer, "PNG", compress_level=0)
    return buffer.getvalue()


def as_arrays(samples: Samples) -> Samples:
    """Return the samples with lists and ids as NumPy; items and rows of numbers stay as they are.

    Rows stay in their library, because they are scored on the device where they are.
    """
    return replace(samples, outputs=_as_array(samples.outputs), prompts=_as_array(samples.prompts))


def _as_array(data: Array) -> Array:
    if data is None or isinstance(data, tuple):
        return data
    if not is_array_api_obj(data):
        return np.asarray(data)
    if data.ndim == 2:
        return data
    return to_numpy(data)


# A folder of vectors, which `load` reads.
