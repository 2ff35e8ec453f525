"""Models of transformers and sentence-transformers, which run in torch, from a folder, the hub cache or the hub.

Files are looked for in a folder of that name, then in the hub cache, and only then on the hub: what was downloaded once is used
as it is. Weights are read as safetensors, or as pickles by torch's restricted reader; code in a repository is never run.
"""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from divprism.core.arrays import to_numpy
from divprism.embedders._hub import (
    Source,
    check_running,
    device_of,
    import_library,
    loading,
    quiet,
    read_json,
)
from divprism.embedders.base import Embedder, runtime_of
from divprism.errors import ArgumentError

__all__ = ["ALIASES", "SentenceTransformers", "Transformers"]

ALIASES: dict[str, dict[str, str]] = {
    "dinov2": {"model": "facebook/dinov2-base", "modality": "image"},
    "clip": {"model": "openai/clip-vit-base-patch32", "modality": "image"},
    "siglip": {"model": "google/siglip-base-patch16-224", "modality": "image"},
    "videomae": {"model": "MCG-NJU/videomae-base", "modality": "video"},
    "xclip": {"model": "microsoft/xclip-base-patch32", "modality": "video"},
}
"""Short names, and the `Transformers` that they stand for."""

# How a vector is taken from a model: what is said about it, and what is done.


@dataclass(frozen=True)
class _Vector:
    says: str
    take: Callable[[Any, dict[str, Any]], Any]
    width: tuple[str, ...] = ("hidden_size",)  # where the configuration keeps it


def _first(model: Any, inputs: dict[str, Any]) -> Any:
    return model(**inputs).last_hidden_state[:, 0]


def _pooled(model: Any, inputs: dict[str, Any]) -> Any:
    return model(**inputs).pooler_output


def _mean(model: Any, inputs: dict[str, Any]) -> Any:
    hidden = model(**inputs).last_hidden_state.float()
    if "attention_mask" not in inputs:
        return hidden.mean(1)
    mask = inputs["attention_mask"][:, :, None].float()
    return (hidden * mask).sum(1) / mask.sum(1)


def _features(kind: str, *width: str) -> _Vector:
    def take(model: Any, inputs: dict[str, Any]) -> Any:
        found = getattr(model, f"get_{kind}_features")(**inputs)
        return getattr(found, "pooler_output", found)  # transformers 4 gave the tensor itself

    return _Vector(f"get_{kind}_features", take, width)


_CLS = {"image": _Vector("first token (CLS) of the last layer after its norm", _first)}
_HEAD = {"image": _Vector("pooler_output", _pooled)}
_TOKENS = {
    "text": _Vector(
        "mean of the last layer over all tokens, special ones included, padding not", _mean
    )
}
_VECTORS: dict[str, dict[str, _Vector]] = {
    "clip": {
        "image": _features("image", "projection_dim"),
        "text": _features("text", "projection_dim"),
    },
    "siglip": {
        "image": _features("image", "vision_config", "hidden_size"),
        "text": _features("text", "text_config", "projection_size"),
    },
    "xclip": {
        "video": _features("video", "projection_dim"),
        "text": _features("text", "projection_dim"),
    },
    "videomae": {"video": _Vector("mean of the last layer over all patches", _mean)},
    **dict.fromkeys(("clip_vision_model", "siglip_vision_model"), _HEAD),
    **dict.fromkeys(("deit", "dinov2", "dinov2_with_registers", "vit"), _CLS),
    **dict.fromkeys(
        (
            "albert",
            "bert",
            "distilbert",
            "electra",
            "modernbert",
            "mpnet",
            "roberta",
            "xlm-roberta",
        ),
        _TOKENS,
    ),
}
"""Per type of model, in order of preference: what its vector is. A type that is not here is refused, not guessed at."""
_SHIFTED = {"mpnet", "roberta", "xlm-roberta"}  # their positions count from 2


@dataclass(frozen=True)
class Transformers(Embedder):
    """A model of the transformers library: CLIP, SigLIP, DINOv2 and other ViTs, VideoMAE, X-CLIP, BERT and its kin.

    Pick it where the embedded default sees too little. What the vector is follows from the type of model and is part of
    `preprocessing`; it is not scaled to unit length. In float32 a vector depends on the rest of its batch by rounding only; in
    half precision that rounding shows. Pictures go through the model's own processor, its Pillow version even where torchvision
    is installed.

    Attributes
    ----------
    model : str
        A folder (`save_pretrained`), or a name on the hub.
    modality : str
        Which of its inputs to use; default: pictures for CLIP and SigLIP, videos for X-CLIP; the others have one.
    device : str
        "auto" takes cuda, then mps, then cpu.
    precision : str
        "float32", "float16" or "bfloat16".
    offline : bool
        Never ask the hub.
    num_frames : int
        For videos: as the model was trained.

    Raises
    ------
    ArgumentError
        If the model is of a type that is not known here, or does not take that modality.
    MissingModelError
        If its configuration is not to be had. The weights are looked for when they, or their hash, are first needed.
    """

    model: str
    modality: str = ""  # type: ignore[misc]
    device: str = "auto"
    precision: str = "float32"
    batch_size: int = 32
    offline: bool = False
    num_frames: int = field(init=False, compare=False, default=0)

    def __post_init__(self) -> None:
        check_running(self.device, self.precision, self.batch_size)
        kind = str(self._config.get("model_type"))
        if kind not in _VECTORS:
            raise ArgumentError(
                f"{self.model} is a model of type {kind}, and divprism does not know which of its numbers are the vector; "
                f"known are {', '.join(_VECTORS)}. Wrap it in divprism.embedders.Function."
            )
        modality = self.modality or next(iter(_VECTORS[kind]))
        if modality not in _VECTORS[kind]:
            raise ArgumentError(
                f"{self.model} ({kind}) embeds {' or '.join(_VECTORS[kind])}, not {modality}."
            )
        object.__setattr__(self, "modality", modality)
        if modality == "video":
            where = ("vision_config", "num_frames") if kind == "xclip" else ("num_frames",)
            object.__setattr__(self, "num_frames", self._setting(*where))

    @property
    def name(self) -> str:
        """Its name on the hub, or that of its folder."""
        return f"transformers:{self._source.name}"

    @property
    def spelling(self) -> str:
        """With the model as it was given."""
        return f"transformers:{self.model}"

    @cached_property
    def revision(self) -> str:
        """Hash of weights, configuration, tokenizer and processor; torch is not needed for it."""
        return self._source.hash()

    @cached_property
    def dimension(self) -> int:
        """From the configuration; no weights are loaded for it."""
        return self._setting(*self._vector.width)

    @property
    def preprocessing(self) -> str:
        """What goes in, and which of the model's numbers come out."""
        vector = f"{self._vector.says}, not normalised"
        if self.modality == "text":
            padding = ", padded to that" if self._kind == "siglip" else ""
            return f"cut at {self._max_tokens} tokens{padding}; {vector}"
        frames = (
            f"middles of {self.num_frames} equal parts; each frame: "
            if self.modality == "video"
            else ""
        )
        return f"{frames}RGB, the model's image processor, Pillow version; {vector}"

    @property
    def runtime(self) -> str:
        """Packages, and the type of device."""
        used = {"text": ("tokenizers",), "image": ("pillow",), "video": ("pillow", "av")}[
            self.modality
        ]
        return f"{runtime_of('torch', 'transformers', *used)}, {device_of(self.device).partition(':')[0]}"

    def prepare(self, content: Any) -> Any:
        """Pictures as the model wants them, (channels, height, width) or one such per frame; texts as they are."""
        if self.modality == "text":
            return content
        with quiet("transformers"):  # it logs of pictures that look odd to it
            pixels = np.asarray(
                self._processor(content, return_tensors="np")["pixel_values"], np.float32
            )
        return (
            pixels.reshape(self.num_frames, *pixels.shape[-3:])
            if self.modality == "video"
            else pixels[0]
        )

    def embed_batch(self, batch: Sequence[Any]) -> np.ndarray:
        """Vectors as the model gives them, in single precision."""
        model = self._model
        torch = import_library("torch")
        with torch.inference_mode(), quiet("transformers"):
            if self.modality == "text":
                inputs = self._tokens(batch)
            else:
                inputs = {"pixel_values": torch.from_numpy(np.stack(batch)).to(model.dtype)}
            found = self._vector.take(
                model, {key: value.to(model.device) for key, value in inputs.items()}
            )
            return to_numpy(found.float())

    def _tokens(self, batch: Sequence[str]) -> dict[str, Any]:
        # SigLIP was trained on texts padded to full length, without a mask: its vector is read off the last place
        full = self._kind == "siglip"
        found = self._processor(
            list(batch),
            padding="max_length" if full else True,
            truncation=True,
            max_length=self._max_tokens,
            return_tensors="pt",
        )
        return {"input_ids": found["input_ids"]} if full else dict(found)

    @cached_property
    def _source(self) -> Source:
        needs: tuple[str, ...] = ("preprocessor_config.json", "processor_config.json")
        if self.modality == "text":
            needs = ("tokenizer.json", "tokenizer_config.json", "vocab.txt", "vocab.json")
        return Source(
            self.model,
            ("config.json",),
            needs if self.modality else (),
            self.modality,
            self.offline,
        )

    @cached_property
    def _config(self) -> dict[str, Any]:
        # Before the modality is known, so from a source of its own: the weights may still be far away
        return Source(self.model, ("config.json",), (), self.modality, self.offline).anchor()

    @property
    def _kind(self) -> str:
        return str(self._config["model_type"])

    @property
    def _vector(self) -> _Vector:
        return _VECTORS[self._kind][self.modality]

    def _setting(self, *path: str) -> int:
        """A number of the configuration: from its file if it is there, else the default that transformers has for it."""
        value: Any = self._config
        for part in path:
            value = value.get(part) if isinstance(value, dict) else None
        if value is None:
            with loading(self._source, "transformers") as transformers:
                value = transformers.AutoConfig.from_pretrained(
                    self._source.config_folder(), trust_remote_code=False
                )
            for part in path:
                value = getattr(value, part)
        if not isinstance(value, int):
            raise self._source.missing(
                f"{'.'.join(path)} in its config.json is {value!r}, not a number"
            )
        return value

    @cached_property
    def _max_tokens(self) -> int:
        inner = ("text_config",) if len(_VECTORS[self._kind]) > 1 else ()
        positions = self._setting(*inner, "max_position_embeddings") - 2 * (self._kind in _SHIFTED)
        stated = read_json(self._source.folder() / "tokenizer_config.json").get("model_max_length")
        return min(positions, int(stated)) if isinstance(stated, int | float) else positions

    @cached_property
    def _processor(self) -> Any:
        """The tokenizer, or the image processor; made once, whichever thread is first."""
        with loading(self._source, "transformers") as transformers:
            if "_processor" in self.__dict__:
                return self.__dict__["_processor"]
            options = {"local_files_only": True, "trust_remote_code": False}
            if self.modality == "text":
                return transformers.AutoTokenizer.from_pretrained(self._source.folder(), **options)
            return transformers.AutoImageProcessor.from_pretrained(
                self._source.folder(), backend="pil", **options
            )

    @cached_property
    def _model(self) -> Any:
        with loading(self._source, "torch", "transformers") as transformers:
            model, report = transformers.AutoModel.from_pretrained(
                self._source.folder(),
                dtype=self.precision,
                local_files_only=True,
                trust_remote_code=False,
                weights_only=True,
                output_loading_info=True,
            )
            uses_pooler = self._vector.take not in (_first, _mean)
            missing = sorted(
                key for key in report["missing_keys"] if uses_pooler or "pooler" not in key
            )
            if missing:
                raise ValueError(
                    f"its weight file lacks {len(missing)} tensors, the first {missing[0]}"
                )
            return model.to(device_of(self.device)).eval()


@dataclass(frozen=True)
class SentenceTransformers(Embedder):
    """A text model of the sentence-transformers library, with the pooling and scaling that its makers chose.

    Pick it to tell paraphrases from different texts (`all-MiniLM-L6-v2` is small and good). Equals `SentenceTransformer(model)
    .encode(texts)`, the model's default prompt included. In float32 a vector depends on the rest of its batch by rounding only.

    Attributes
    ----------
    model : str
        A folder, or a name on the hub; a name without an owner is looked for under sentence-transformers/.
    device, precision, offline
        As in `Transformers`.
    """

    modality: ClassVar[str] = "text"
    model: str
    device: str = "auto"
    precision: str = "float32"
    batch_size: int = 32
    offline: bool = False

    def __post_init__(self) -> None:
        check_running(self.device, self.precision, self.batch_size)

    @property
    def name(self) -> str:
        """Its name on the hub, or that of its folder."""
        return f"sentence-transformers:{self._source.name}"

    @property
    def spelling(self) -> str:
        """With the model as it was given."""
        return f"sentence-transformers:{self.model}"

    @cached_property
    def revision(self) -> str:
        """Hash of weights, configuration and tokenizer; torch is not needed for it."""
        return self._source.hash()

    @cached_property
    def dimension(self) -> int:
        """From the configuration of the last module that has a width; else the model is loaded and asked."""
        last = next(
            (
                module
                for module in reversed(self._modules)
                if not module["type"].endswith(".Normalize")
            ),
            None,
        )
        if last is not None:
            config = read_json(self._source.folder() / last.get("path", "") / "config.json")
            width = _module_width(last["type"].rpartition(".")[2], config)
            if width is not None:
                return width
        return int(self._model.encode(["a"], show_progress_bar=False).shape[1])

    @property
    def preprocessing(self) -> str:
        """How long a text may be, and the modules that it goes through."""
        folder = self._source.folder()
        first = self._modules[0].get("path", "") if self._modules else ""
        length = read_json(folder / first / "sentence_bert_config.json").get("max_seq_length")
        length = length or read_json(folder / first / "tokenizer_config.json").get(
            "model_max_length"
        )
        cut = (
            f"cut at {length} tokens"
            if isinstance(length, int) and length < 1e9
            else "cut where the model's files say"
        )
        steps = [module["type"].rpartition(".")[2] for module in self._modules] or [
            "Transformer",
            "Pooling (mean)",
        ]
        return f"{cut}; {', '.join(steps)}"

    @property
    def runtime(self) -> str:
        """Packages, and the type of device."""
        packages = runtime_of("torch", "transformers", "sentence-transformers", "tokenizers")
        return f"{packages}, {device_of(self.device).partition(':')[0]}"

    def embed_batch(self, batch: Sequence[str]) -> np.ndarray:
        """Vectors as the model's modules give them, in single precision."""
        model = self._model
        with quiet("transformers", "sentence_transformers"):
            found = model.encode(
                list(batch), batch_size=len(batch), show_progress_bar=False, convert_to_tensor=True
            )
        return to_numpy(found.float())

    @cached_property
    def _source(self) -> Source:
        needs = ("tokenizer.json", "tokenizer_config.json", "vocab.txt", "modules.json")
        model = self.model
        if "/" not in model and not Path(model).is_dir() and os.sep not in model:
            model = f"sentence-transformers/{model}"
        return Source(model, ("modules.json", "config.json"), needs, "text", self.offline)

    @cached_property
    def _modules(self) -> list[dict[str, str]]:
        modules: list[dict[str, str]] = read_json(self._source.folder() / "modules.json", list)
        kinds = [str(module.get("type")) if isinstance(module, dict) else "?" for module in modules]
        foreign = [kind for kind in kinds if not kind.startswith("sentence_transformers.")]
        if foreign:
            raise self._source.missing(
                f"it asks for code of its own ({foreign[0]}), which is never run"
            )
        return modules

    @cached_property
    def _model(self) -> Any:
        assert isinstance(self._modules, list)  # looked at first: foreign code is refused there
        with loading(self._source, "torch", "sentence_transformers") as library:
            return library.SentenceTransformer(
                str(self._source.folder()),
                device=device_of(self.device),
                local_files_only=True,
                trust_remote_code=False,
                model_kwargs={"dtype": self.precision},
            ).eval()


def _module_width(kind: str, config: dict[str, Any]) -> int | None:
    """Width of what a module of sentence-transformers gives, if its configuration tells."""
    if kind == "Dense":
        return int(config["out_features"])
    if kind == "Pooling":
        width = config.get("embedding_dimension", config.get("word_embedding_dimension"))
        mode = config.get(
            "pooling_mode",
            [key for key in config if key.startswith("pooling_mode_") and config[key]],
        )
        return int(width) * (1 if isinstance(mode, str) else len(mode)) if width and mode else None
    return None
