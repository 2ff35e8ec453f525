"""Image processors of transformers models: the library's own in Pillow, and one that it lacks.

The processor of DINOv3 exists for torchvision only, which rounds differently from Pillow and would
be one more package to install. What it does is done here with Pillow.
"""

from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np

from divprism.embedders._hub import Json, Source, read_json
from divprism.embedders._model_files import quoted
from divprism.embedders.base import Content

__all__ = ["IMAGE_FILES", "Resized", "image_processor", "without_ends"]

IMAGE_FILES = ("preprocessor_config.json", "processor_config.json")
"""Files with the settings of an image processor, of which a model has at least one."""

# Of the longer side of an image to the shorter one, where only the middle is used.
_MAX_ASPECT = 64
# The defaults of DINOv3's processor, whose files may leave them out.
_DINOV3: Json = {
    "do_resize": True,
    "do_rescale": True,
    "do_normalize": True,
    "size": {"height": 224, "width": 224},
    "resample": 2,
    "rescale_factor": 1 / 255,
    "image_mean": [0.485, 0.456, 0.406],
    "image_std": [0.229, 0.224, 0.225],
}
_NUM_FILTERS = 6  # of Pillow


def image_processor(source: Source, kind: str, transformers: ModuleType) -> Any:
    """Return the processor of a model of some type, called with an image or a list of frames."""
    folder = source.folder()
    # As in transformers, the settings inside those of all inputs come first.
    settings = read_json(folder / IMAGE_FILES[1]).get("image_processor")
    if not isinstance(settings, dict):
        settings = read_json(folder / IMAGE_FILES[0])
    name = settings.get("image_processor_type")
    if str(name).startswith("DINOv3") or (name is None and kind == "dinov3_vit"):
        return Resized.from_settings(settings)
    # torchvision rounds differently: without a fixed backend, vectors would depend on whether it
    # is installed. Files are never looked up on the hub, and their code is never run.
    return transformers.AutoImageProcessor.from_pretrained(
        folder, backend="pil", local_files_only=True, trust_remote_code=False
    )


@dataclass(frozen=True)
class Resized:
    """Resizes an image to a fixed size, without rounding to whole numbers, and normalizes it.

    The order of DINOv3: first scaled to [0, 1], then resized, as torchvision does with floating
    point numbers and `antialias=True`. Pillow has the same filters.
    """

    size: tuple[int, int]  # height, width
    resample: int
    scale: float
    mean: tuple[float, ...]
    std: tuple[float, ...]

    @classmethod
    def from_settings(cls, settings: Json) -> "Resized":
        """Return the processor that a file describes.

        Raises
        ------
        ValueError
            If it asks for other steps, or its numbers are no numbers.
        """
        # Published files have null for what they do not use.
        given = {key: value for key, value in settings.items() if value is not None}
        merged = {**_DINOV3, **given}
        if not merged["do_resize"] or merged.get("do_center_crop"):
            raise ValueError("its images are not resized to one size, as those of DINOv3 are")
        if merged["resample"] not in range(_NUM_FILTERS):
            raise ValueError(f"resample of its images is {quoted(merged['resample'])}")
        mean: tuple[float, ...] = (0.0, 0.0, 0.0)
        std: tuple[float, ...] = (1.0, 1.0, 1.0)
        if merged["do_normalize"]:
            mean, std = _three_numbers(merged["image_mean"]), _three_numbers(merged["image_std"])
        scale = 1.0
        if merged["do_rescale"]:
            scale = float(merged["rescale_factor"])
        return cls(_two_sides(merged["size"]), int(merged["resample"]), scale, mean, std)

    def __call__(self, image: Content, return_tensors: str = "np") -> dict[str, np.ndarray]:
        """Return the pixels as (1, 3, height, width) in single precision."""
        import PIL.Image

        height, width = self.size
        pixels = np.asarray(image, np.float32) * np.float32(self.scale)
        channels = []
        for channel, mean, std in zip(np.moveaxis(pixels, 2, 0), self.mean, self.std, strict=True):
            # Pillow resizes an array of floating point numbers as one channel.
            resized = PIL.Image.fromarray(np.ascontiguousarray(channel)).resize(
                (width, height), PIL.Image.Resampling(self.resample)
            )
            channels.append((np.asarray(resized) - np.float32(mean)) / np.float32(std))
        return {"pixel_values": np.stack(channels)[None]}


def _two_sides(value: object) -> tuple[int, int]:
    if isinstance(value, dict):
        height, width = value.get("height"), value.get("width")
        # `type`, because True is an int.
        if type(height) is int and type(width) is int and height >= 1 and width >= 1:
            return height, width
    raise ValueError(f"size of its images is {quoted(value)}, not a height and a width")


def _three_numbers(value: object) -> tuple[float, ...]:
    numbers = list(value) if isinstance(value, list) else []
    if len(numbers) != 3 or not all(type(number) in (int, float) for number in numbers):
        raise ValueError(f"mean or deviation of its images is {quoted(value)}, not three numbers")
    return tuple(map(float, numbers))


def without_ends(image: Any, processor: Any) -> Any:
    """Return an image without the ends that a processor would enlarge and then cut off.

    Enlarged to a height of 224, a line of 30,000 pixels has 1.5 billion.
    """
    if not _keeps_proportions(processor):
        return image
    half = _MAX_ASPECT * min(image.size) // 2
    width, height = image.size
    left, top = max(width // 2 - half, 0), max(height // 2 - half, 0)
    if left == 0 and top == 0:
        return image
    return image.crop((left, top, width - left, height - top))


def _keeps_proportions(processor: Any) -> bool:
    """Whether a processor enlarges the shorter side of an image to a size, then cuts the middle."""
    size = getattr(processor, "size", None)
    # transformers 4 had a dict.
    if isinstance(size, dict):
        return bool(size.get("shortest_edge"))
    return bool(getattr(size, "shortest_edge", None))
