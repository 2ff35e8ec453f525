"""Text models of sentence-transformers, which run in torch; files as in `transformer_models`."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, TypeAlias

import numpy as np

from divprism.core.arrays import to_numpy
from divprism.embedders._hub import (
    Json,
    Source,
    check_torch_settings,
    device_type,
    loading,
    quiet,
    read_json,
    read_json_list,
    resolve_device,
)
from divprism.embedders.base import Embedder, runtime_of

__all__ = ["SentenceTransformers"]

_Model: TypeAlias = Any
"""A model of sentence-transformers."""


@dataclass(frozen=True)
class SentenceTransformers(Embedder):
    """A sentence-transformers text model, with the pooling and scaling that its authors chose.

    Pick it to distinguish paraphrases from different texts (`all-MiniLM-L6-v2` is small and good).
    Equals `SentenceTransformer(model).encode(texts)`, including the model's default prompt. In
    float32, a vector depends on the rest of its batch by rounding only.

    Attributes
    ----------
    model : str
        A folder, or a name on the hub; a name without an owner belongs to sentence-transformers/.
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
        check_torch_settings(self.device, self.precision, self.batch_size)

    @property
    def name(self) -> str:
        """The name on the hub, or the name of the folder."""
        return f"sentence-transformers:{self._source.name}"

    @property
    def spelling(self) -> str:
        """The model as it was given."""
        return f"sentence-transformers:{self.model}"

    @cached_property
    def revision(self) -> str:
        """Hash of weights, configuration and tokenizer; computed without torch."""
        return self._source.hash()

    @cached_property
    def dimension(self) -> int:
        """Width of the last module that changes it; loads the model if no file contains it."""
        # Normalize modules keep the width of the module before them.
        modules = [module for module in self._modules if _class_name(module) != "Normalize"]
        if modules:
            last = modules[-1]
            config = read_json(self._source.folder() / last.get("path", "") / "config.json")
            width = _module_width(_class_name(last), config)
            if width is not None:
                return width
        return int(self._model.encode(["a"], show_progress_bar=False).shape[1])

    @property
    def preprocessing(self) -> str:
        """The longest text, and the modules that a text passes through."""
        # What the library does with a plain transformers model.
        steps = ["Transformer", "Pooling (mean)"]
        if self._modules:
            steps = [_class_name(module) for module in self._modules]
        length = self._max_tokens()
        limit = "cut where the model's files say"
        # Tokenizers without a limit state a huge number.
        if isinstance(length, int) and length < 1e9:
            limit = f"cut at {length} tokens"
        return f"{limit}; {', '.join(steps)}"

    def _max_tokens(self) -> object:
        """Return the longest text in tokens, as the files of the first module state it."""
        folder = self._source.folder()
        if self._modules:
            folder /= self._modules[0].get("path", "")
        length = read_json(folder / "sentence_bert_config.json").get("max_seq_length")
        return length or read_json(folder / "tokenizer_config.json").get("model_max_length")

    @property
    def runtime(self) -> str:
        """Package versions and the type of device."""
        packages = runtime_of("torch", "transformers", "sentence-transformers", "tokenizers")
        return f"{packages}, {device_type(self.device)}"

    def embed_batch(self, batch: Sequence[str]) -> np.ndarray:
        """Return the vectors of texts in single precision."""
        model = self._model
        # The whole batch at once: the library would otherwise split it into batches of its own.
        with quiet("transformers", "sentence_transformers"):
            vectors = model.encode(
                list(batch), batch_size=len(batch), show_progress_bar=False, convert_to_tensor=True
            )
        return to_numpy(vectors.float())

    @cached_property
    def _source(self) -> Source:
        needs = ("tokenizer.json", "tokenizer_config.json", "vocab.txt", "modules.json")
        model = self.model
        # A bare name is neither a folder here nor a path, so it lacks its owner.
        if "/" not in model and not Path(model).is_dir() and os.sep not in model:
            model = f"sentence-transformers/{model}"
        return Source(model, ("modules.json", "config.json"), needs, "text", self.offline)

    @cached_property
    def _modules(self) -> list[dict[str, str]]:
        """The modules of the model; modules whose code is in the repository are rejected."""
        modules = []
        for module in read_json_list(self._source.folder() / "modules.json"):
            kind = "?"
            if isinstance(module, dict):
                kind = str(module.get("type"))
                modules.append(module)
            if not kind.startswith("sentence_transformers."):
                raise self._source.missing(f"it requires its own code ({kind}), which is never run")
        return modules

    @cached_property
    def _model(self) -> _Model:
        # Checked before the library sees the folder: `_modules` rejects foreign code.
        assert isinstance(self._modules, list)
        with loading(self._source, "torch", "sentence_transformers") as library:
            return library.SentenceTransformer(
                str(self._source.folder()),
                device=resolve_device(self.device),
                local_files_only=True,
                trust_remote_code=False,
                model_kwargs={"dtype": self.precision},
            ).eval()


def _class_name(module: dict[str, str]) -> str:
    return module["type"].rpartition(".")[2]


def _module_width(kind: str, config: Json) -> int | None:
    """Return the output width of a sentence-transformers module, if its configuration has it."""
    if kind == "Dense":
        return int(config["out_features"])
    if kind != "Pooling":
        return None
    # Newer versions of the library renamed the first key, and replaced the flags of the single
    # pooling modes by one key with a name or a list of names.
    width = config.get("embedding_dimension", config.get("word_embedding_dimension"))
    modes = config.get("pooling_mode")
    if modes is None:
        modes = [key for key in config if key.startswith("pooling_mode_") and config[key]]
    if not width or not modes:
        return None
    if isinstance(modes, str):
        return int(width)
    # The results of several pooling modes are concatenated.
    return int(width) * len(modes)
