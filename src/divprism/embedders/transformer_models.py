"""Models of transformers, which run in torch; those of sentence-transformers: `sentence_models`.

The files of a model come from a local folder, else from the hub cache, else from the hub: once
downloaded, they are used as they are. Weights are read as safetensors, or from pickles by torch's
restricted unpickler. Code in a repository is never run.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np

from divprism.core.arrays import Array, to_numpy
from divprism.embedders._hub import (
    Json,
    Source,
    check_torch_settings,
    device_type,
    import_library,
    loading,
    quiet,
    read_json,
    resolve_device,
    running,
)
from divprism.embedders._image_processors import IMAGE_FILES, image_processor, without_ends
from divprism.embedders._model_files import quoted
from divprism.embedders._weight_files import check_model, check_numbers
from divprism.embedders.base import Content, Embedder, Prepared, characters_for, runtime_of
from divprism.errors import ArgumentError

__all__ = ["ALIASES", "Transformers"]

ALIASES: dict[str, dict[str, str]] = {
    "dinov2": {"model": "facebook/dinov2-base", "modality": "image"},
    "clip": {"model": "openai/clip-vit-base-patch32", "modality": "image"},
    "siglip": {"model": "google/siglip-base-patch16-224", "modality": "image"},
    "dinov3": {"model": "facebook/dinov3-vitb16-pretrain-lvd1689m", "modality": "image"},
    "siglip2": {"model": "google/siglip2-base-patch16-224", "modality": "image"},
    "videomae": {"model": "MCG-NJU/videomae-base", "modality": "video"},
    "xclip": {"model": "microsoft/xclip-base-patch32", "modality": "video"},
}
"""Short names, and the arguments of `Transformers` that they stand for."""

_Model: TypeAlias = Any
"""A model of transformers or sentence-transformers."""
_Inputs: TypeAlias = dict[str, Array]
"""Tensors by the argument of the model that takes them."""


@dataclass(frozen=True)
class _Vector:
    """How a vector is taken from a model: a description, a function, and where its width is."""

    description: str  # part of cache keys
    take: Callable[[_Model, _Inputs], Array]
    width: tuple[str, ...] = ("hidden_size",)  # path in the configuration


def _first_token(model: _Model, inputs: _Inputs) -> Array:
    return model(**inputs).last_hidden_state[:, 0]


def _pooler_output(model: _Model, inputs: _Inputs) -> Array:
    return model(**inputs).pooler_output


def _mean_of_tokens(model: _Model, inputs: _Inputs) -> Array:
    hidden = model(**inputs).last_hidden_state.float()
    if "attention_mask" not in inputs:
        return hidden.mean(1)
    # The mask keeps padding out of the mean, so that a vector does not depend on its batch.
    mask = inputs["attention_mask"][:, :, None].float()
    return (hidden * mask).sum(1) / mask.sum(1)


def _features(kind: str, *width: str) -> _Vector:
    """The features that a model with several inputs defines for one of them."""
    method = f"get_{kind}_features"

    def take(model: _Model, inputs: _Inputs) -> Array:
        output = getattr(model, method)(**inputs)
        # transformers 4 returned the tensor itself.
        return getattr(output, "pooler_output", output)

    return _Vector(method, take, width)


_CLS = {"image": _Vector("first token (CLS) of the last layer after its norm", _first_token)}
_POOLED = {"image": _Vector("pooler_output", _pooler_output)}
_TOKEN_MEAN = {
    "text": _Vector(
        "mean of the last layer over all tokens, special ones included, padding not",
        _mean_of_tokens,
    )
}
_SIGLIP = {
    "image": _features("image", "vision_config", "hidden_size"),
    "text": _features("text", "text_config", "projection_size"),
}
_VECTORS: dict[str, dict[str, _Vector]] = {
    "clip": {
        "image": _features("image", "projection_dim"),
        "text": _features("text", "projection_dim"),
    },
    "siglip": _SIGLIP,
    "siglip2": _SIGLIP,
    "xclip": {
        "video": _features("video", "projection_dim"),
        "text": _features("text", "projection_dim"),
    },
    "videomae": {"video": _Vector("mean of the last layer over all patches", _mean_of_tokens)},
    "clip_vision_model": _POOLED,
    "siglip_vision_model": _POOLED,
    "deit": _CLS,
    "dinov2": _CLS,
    "dinov2_with_registers": _CLS,
    "dinov3_vit": _CLS,
    "vit": _CLS,
    "albert": _TOKEN_MEAN,
    "bert": _TOKEN_MEAN,
    "distilbert": _TOKEN_MEAN,
    "electra": _TOKEN_MEAN,
    "modernbert": _TOKEN_MEAN,
    "mpnet": _TOKEN_MEAN,
    "roberta": _TOKEN_MEAN,
    "xlm-roberta": _TOKEN_MEAN,
}
"""The vector of each type of model, by modality, the preferred modality first.

A type that is not listed is rejected: which of its numbers are the vector cannot be guessed.
"""
# These count positions from 2, because positions 0 and 1 are reserved for padding.
_SHIFTED_POSITIONS = {"mpnet", "roberta", "xlm-roberta"}
# Trained on texts in lower case, padded to full length, without a mask: their vector is that of the
# last position. The fixed-size checkpoints of SigLIP 2 are of the first type.
_FULL_LENGTH = {"siglip", "siglip2"}
# What a model of type siglip2 (NaFlex) takes of an image: its patches, padded, and how they lie.
_PATCHES = ("pixel_values", "pixel_attention_mask", "spatial_shapes")
# Beyond what a model has: its files are wrong.
_MAX_SETTING = 1 << 24
_MAX_FRAMES = 1024
_TEXT_FILES = ("tokenizer.json", "tokenizer_config.json", "vocab.txt", "vocab.json")
_PREPARED_BY = {"text": ("tokenizers",), "image": ("pillow",), "video": ("pillow", "av")}


@dataclass(frozen=True)
class Transformers(Embedder):
    """A transformers model: CLIP, SigLIP 1 and 2, DINOv2 and 3, VideoMAE, X-CLIP, BERT and more.

    Pick it where the default embedder distinguishes too little. Which numbers form the vector
    depends on the type of model and is part of `preprocessing`; the vector is not normalized. In
    float32, a vector depends on the rest of its batch by rounding only; in half precision the
    rounding is visible. Images go through the model's own processor, in its Pillow version even
    where torchvision is installed.

    Attributes
    ----------
    model : str
        A folder (`save_pretrained`), or a name on the hub.
    modality : str
        Which input of the model to use. Default: images for CLIP and SigLIP, videos for X-CLIP;
        the others have only one.
    device : str
        "auto" takes cuda, then mps, then cpu.
    precision : str
        "float32", "float16" or "bfloat16".
    offline : bool
        Never contact the hub.
    num_frames : int
        For videos: the number that the model was trained with.

    Raises
    ------
    ArgumentError
        If the type of model is not supported, or has no such modality.
    MissingModelError
        If the configuration is not available. The weights are located when they, or their hash,
        are first needed.
    """

    model: str
    modality: str = ""  # type: ignore[misc]
    device: str = "auto"
    precision: str = "float32"
    batch_size: int = 32
    offline: bool = False
    # Follows from the model, so it is no argument and takes no part in comparisons.
    num_frames: int = field(init=False, compare=False, default=0)

    def __post_init__(self) -> None:
        check_torch_settings(self.device, self.precision, self.batch_size)
        kind = str(self._config.get("model_type"))
        if kind not in _VECTORS:
            raise ArgumentError(
                f"`model` must be of a supported type ({', '.join(_VECTORS)}); {self.model} is of "
                f"type {quoted(kind)[1:-1]}. Wrap it in divprism.embedders.Function."
            )
        modalities = list(_VECTORS[kind])
        modality = self.modality or modalities[0]
        if modality not in modalities:
            raise ArgumentError(
                f"`modality` must be {' or '.join(modalities)} for {self.model} ({kind}); "
                f"got {modality}."
            )
        # The dataclass is frozen, so these fields cannot be assigned.
        object.__setattr__(self, "modality", modality)
        if modality == "video":
            object.__setattr__(self, "num_frames", self._trained_frames(kind))

    def _trained_frames(self, kind: str) -> int:
        path = ["num_frames"]
        if kind == "xclip":
            path = ["vision_config", *path]
        frames = self._setting(*path)
        if frames > _MAX_FRAMES:
            raise self._source.missing(
                f"it was trained on {frames:,} frames of a video, and at most {_MAX_FRAMES:,} "
                "are decoded"
            )
        return frames

    @property
    def name(self) -> str:
        """The name on the hub, or the name of the folder."""
        return f"transformers:{self._source.name}"

    @property
    def spelling(self) -> str:
        """The model as it was given."""
        return f"transformers:{self.model}"

    @cached_property
    def revision(self) -> str:
        """Hash of weights, configuration, tokenizer and processor; computed without torch."""
        return self._source.hash()

    @cached_property
    def dimension(self) -> int:
        """Width of the vector according to the configuration; no weights are loaded."""
        return self._setting(*self._vector.width)

    @property
    def max_characters(self) -> int | None:
        """For texts: many times the characters that the tokens of the model have room for."""
        if self.modality != "text":
            return None
        return characters_for(self._max_tokens)

    @property
    def preprocessing(self) -> str:
        """Processing of the input, and which numbers of the model form the vector."""
        vector = f"{self._vector.description}, not normalised"
        if self.modality == "text":
            length = f"cut at {self._max_tokens} tokens"
            if self._kind in _FULL_LENGTH:
                length = f"lower case, {length}, padded to that"
            return f"{length}; {vector}"
        image = f"RGB, the model's image processor, Pillow version; {vector}"
        if self.modality == "video":
            return f"middles of {self.num_frames} equal parts; each frame: {image}"
        return image

    @property
    def runtime(self) -> str:
        """Package versions and the type of device."""
        packages = runtime_of("torch", "transformers", *_PREPARED_BY[self.modality])
        return f"{packages}, {device_type(self.device)}"

    def prepare(self, content: Content) -> Prepared:
        """Return an image as (channels, height, width), a video with one such per frame.

        Texts are not tokenized here: a tokenizer is faster on a whole batch.
        """
        if self.modality == "text":
            return super().prepare(content)
        # Processors log warnings about images that look unusual to them, such as black ones.
        processor = self._processor
        if self.modality == "video":
            content = [without_ends(frame, processor) for frame in content]
        else:
            content = without_ends(content, processor)
        with running(self._source), quiet("transformers"):
            processed = processor(content, return_tensors="np")
            if self._kind == "siglip2":
                return tuple(np.asarray(processed[key])[0] for key in _PATCHES)
            pixels = np.asarray(processed["pixel_values"], np.float32)
            # Some processors return the frames as a batch, others as one video in a batch.
            if self.modality == "video":
                return pixels.reshape(self.num_frames, *pixels.shape[-3:])
            return pixels[0]

    def embed_batch(self, batch: Sequence[Prepared]) -> np.ndarray:
        """Return the vectors of prepared items in single precision."""
        model = self._model
        torch = import_library("torch")
        with running(self._source), torch.inference_mode(), quiet("transformers"):
            if self.modality == "text":
                inputs = self._tokens(batch)
            else:
                inputs = self._pixels(batch, model.dtype)
            on_device = {key: value.to(model.device) for key, value in inputs.items()}
            vectors = self._vector.take(model, on_device)
            # NumPy has no bfloat16, and single precision holds every half-precision number.
            return to_numpy(vectors.float())

    def _pixels(self, batch: Sequence[Prepared], dtype: Any) -> _Inputs:
        torch = import_library("torch")
        columns: list[Sequence[np.ndarray]] = [batch]
        if self._kind == "siglip2":
            columns = list(zip(*batch, strict=True))
        inputs = {}
        # All but NaFlex take the pixels alone.
        for name, column in zip(_PATCHES, columns, strict=False):
            inputs[name] = torch.from_numpy(np.stack(column))
        inputs["pixel_values"] = inputs["pixel_values"].to(dtype)
        return inputs

    def _tokens(self, batch: Sequence[str]) -> _Inputs:
        options = {"truncation": True, "max_length": self._max_tokens, "return_tensors": "pt"}
        if self._kind not in _FULL_LENGTH:
            return dict(self._processor(list(batch), padding=True, **options))
        # The tokenizer of SigLIP's first version does so itself; that of most checkpoints of the
        # second one does not.
        lower = [text.lower() for text in batch]
        tokens = self._processor(lower, padding="max_length", **options)
        return {"input_ids": tokens["input_ids"]}

    @cached_property
    def _source(self) -> Source:
        needs: tuple[str, ...] = IMAGE_FILES
        if self.modality == "text":
            needs = _TEXT_FILES
        return Source(self.model, ("config.json",), needs, self.modality, self.offline)

    @cached_property
    def _config(self) -> Json:
        # The modality, and hence `_source`, depends on the configuration. This source downloads
        # nothing but the configuration.
        return Source(self.model, ("config.json",), (), self.modality, self.offline).anchor()

    @property
    def _kind(self) -> str:
        return str(self._config["model_type"])

    @property
    def _vector(self) -> _Vector:
        return _VECTORS[self._kind][self.modality]

    def _setting(self, *path: str) -> int:
        """Return a number from the configuration file, else the default of transformers."""
        value: object = self._config
        for part in path:
            value = value.get(part) if isinstance(value, dict) else None
        # Files leave out settings that equal the default of their class.
        if value is None:
            with loading(self._source, "transformers") as transformers:
                # Building a configuration alone can fill the memory: it names every label.
                check_numbers(self._config, None)
                value = transformers.AutoConfig.from_pretrained(
                    self._source.config_folder(), trust_remote_code=False
                )
            for part in path:
                value = getattr(value, part)
        if not isinstance(value, int) or isinstance(value, bool) or not 0 < value <= _MAX_SETTING:
            raise self._source.missing(
                f"{'.'.join(path)} in its config.json is {quoted(value)}, not a number between 1 "
                f"and {_MAX_SETTING:,}"
            )
        return value

    @cached_property
    def _max_tokens(self) -> int:
        """Longest text that the model takes, in tokens."""
        # Models with several inputs keep the settings of each in a configuration of its own.
        path = ["max_position_embeddings"]
        if len(_VECTORS[self._kind]) > 1:
            path = ["text_config", *path]
        positions = self._setting(*path)
        if self._kind in _SHIFTED_POSITIONS:
            positions -= 2
        tokenizer = read_json(self._source.folder() / "tokenizer_config.json")
        stated = tokenizer.get("model_max_length")
        # Tokenizers without a limit state a huge number.
        if isinstance(stated, int | float) and 1 <= stated < positions:
            return int(stated)
        return positions

    @cached_property
    def _processor(self) -> Any:
        """The tokenizer or the image processor."""
        with loading(self._source, "transformers") as transformers:
            # Decoding threads arrive here together; the lock in `loading` lets one pass at a
            # time, and the others find its result.
            if "_processor" in self.__dict__:
                return self.__dict__["_processor"]
            if self.modality != "text":
                return image_processor(self._source, self._kind, transformers)
            # The folder is complete, so a look at the hub would only cost time; and code in a
            # repository is never run.
            return transformers.AutoTokenizer.from_pretrained(
                self._source.folder(), local_files_only=True, trust_remote_code=False
            )

    @cached_property
    def _model(self) -> _Model:
        with loading(self._source, "torch", "transformers") as transformers:
            libraries = (import_library("torch"), transformers)
            check_model(self._source.folder(), self.precision, libraries)
            # `weights_only` selects the restricted unpickler for pickled weights.
            model, report = transformers.AutoModel.from_pretrained(
                self._source.folder(),
                dtype=self.precision,
                local_files_only=True,
                trust_remote_code=False,
                weights_only=True,
                output_loading_info=True,
            )
            self._check_loaded(report["missing_keys"])
            return model.to(resolve_device(self.device)).eval()

    def _check_loaded(self, missing_keys: Sequence[str]) -> None:
        """Raise an error for missing tensors, which transformers initializes at random."""
        missing = set(missing_keys)
        # Many checkpoints have no pooler, and the vector of most types does not use it.
        if self._vector.take in (_first_token, _mean_of_tokens):
            missing = {key for key in missing if "pooler" not in key}
        if missing:
            raise ValueError(
                f"its weight file lacks {len(missing)} tensors, such as {min(missing)}"
            )
