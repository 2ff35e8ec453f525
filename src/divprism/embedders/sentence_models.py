"""Text models of sentence-transformers, which run in torch; files as in `transformer_models`."""

import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, TypeAlias

import numpy as np

from divprism.core.arrays import to_numpy
from divprism.embedders._hub import (
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
from divprism.embedders._model_files import Json, UnsafeModelError, quoted
from divprism.embedders._model_names import TEXT_TYPES, Module, sentence_modules
from divprism.embedders._weight_files import check_model, check_numbers, shapes_of
from divprism.embedders.base import Embedder, characters_for, runtime_of

__all__ = ["SentenceTransformers"]

_Model: TypeAlias = Any
"""A model of sentence-transformers."""
_MAX_WIDTH = 1 << 20


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
        # These modules keep the width of the module before them.
        keeping = ("Dropout", "LayerNorm", "Normalize")
        modules = [module for module in self._steps if module.kind not in keeping]
        cut = read_json(self._source.folder() / "config_sentence_transformers.json")
        if modules and cut.get("truncate_dim") is None:
            config = read_json(modules[-1].folder / "config.json")
            width = self._width(modules[-1].kind, config)
            if width is not None:
                return width
        return int(self.embed_batch(["a"]).shape[1])

    def _width(self, kind: str, config: Json) -> int | None:
        width = _module_width(kind, config)
        if width is None:
            return None
        if not isinstance(width, int) or not 1 <= width <= _MAX_WIDTH:
            raise self._source.missing(f"its module {kind} has the width {quoted(width)}")
        return width

    @property
    def preprocessing(self) -> str:
        """The longest text, and the modules that a text passes through."""
        # What the library does with a plain transformers model.
        steps = ["Transformer", "Pooling (mean)"]
        if self._steps:
            steps = [module.kind for module in self._steps]
        limit = "cut where the model's files say"
        if self._max_tokens is not None:
            limit = f"cut at {self._max_tokens} tokens"
        return f"{limit}; {', '.join(steps)}"

    @property
    def max_characters(self) -> int:
        """Many times the characters that the tokens of the model have room for."""
        return characters_for(self._max_tokens)

    @cached_property
    def _max_tokens(self) -> int | None:
        """The longest text in tokens, if the files of the first module state it."""
        folder = self._source.folder()
        if self._steps:
            folder = self._steps[0].folder
        length = read_json(folder / "sentence_bert_config.json").get("max_seq_length")
        length = length or read_json(folder / "tokenizer_config.json").get("model_max_length")
        # Tokenizers without a limit state a huge number.
        if isinstance(length, int) and 0 < length < 1e9:
            return length
        return None

    @property
    def runtime(self) -> str:
        """Package versions and the type of device."""
        packages = runtime_of("torch", "transformers", "sentence-transformers", "tokenizers")
        return f"{packages}, {device_type(self.device)}"

    def embed_batch(self, batch: Sequence[str]) -> np.ndarray:
        """Return the vectors of texts in single precision."""
        model = self._model
        # The whole batch at once: the library would otherwise split it into batches of its own.
        with running(self._source), quiet("transformers", "sentence_transformers"):
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
    def _modules(self) -> list[Module]:
        """The modules of the model; those of classes that are not known to be safe are refused."""
        with self._source.refusals():
            return sentence_modules(self._source.folder())

    @property
    def _steps(self) -> list[Module]:
        """The modules that every text passes through."""
        return [module for module in self._modules if not module.is_inner]

    def _check_parts(self) -> None:
        """Check the configuration of each module against its weights."""
        libraries = (import_library("torch"), import_library("transformers"))
        # What the library loads where there is no list of modules.
        root = Module("Transformer", self._source.folder(), False)
        for module in self._modules or [root]:
            if module.kind == "Transformer":
                kind = read_json(module.folder / "config.json").get("model_type")
                if kind not in TEXT_TYPES:
                    raise UnsafeModelError(f"models of type {quoted(kind)} are not supported")
                check_model(module.folder, self.precision, libraries)
            elif module.kind in ("Dense", "LayerNorm", "StaticEmbedding"):
                config = read_json(module.folder / "config.json")
                check_numbers(config, shapes_of(module.folder))

    @cached_property
    def _model(self) -> _Model:
        # Checked before the library sees the folder: `_modules` rejects foreign code.
        assert isinstance(self._modules, list)
        with loading(self._source, "torch", "sentence_transformers") as library:
            self._check_parts()
            with _no_random_weights():
                model = library.SentenceTransformer(
                    str(self._source.folder()),
                    device=resolve_device(self.device),
                    local_files_only=True,
                    trust_remote_code=False,
                    model_kwargs={"dtype": self.precision},
                )
            return model.eval()


@contextmanager
def _no_random_weights() -> Iterator[None]:
    """Refuse weights that lack tensors, which transformers initializes at random.

    transformers only logs their names, and sentence-transformers offers no way to ask for them. So
    for this thread, the method that both load weights with also asks for the report.
    """
    base = import_library("transformers").PreTrainedModel
    original = base.__dict__["from_pretrained"]
    thread = threading.get_ident()

    def from_pretrained(cls: type, *args: Any, **options: Any) -> Any:
        load = original.__get__(None, cls)
        if threading.get_ident() != thread or options.get("output_loading_info"):
            return load(*args, **options)
        model, report = load(*args, **options, output_loading_info=True)
        # Vectors are pooled from tokens; many checkpoints have no pooler.
        missing = [key for key in report["missing_keys"] if "pooler" not in key]
        if missing:
            raise UnsafeModelError(
                f"its weights lack {len(missing)} tensors, such as {quoted(min(missing))}"
            )
        return model

    base.from_pretrained = classmethod(from_pretrained)
    try:
        yield
    finally:
        base.from_pretrained = original


def _module_width(kind: str, config: Json) -> object:
    """Return the output width of a sentence-transformers module, if its configuration has it."""
    if kind == "Dense":
        return config.get("out_features")
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
    if not isinstance(modes, list) or not isinstance(width, int):
        return width
    # The results of several pooling modes are concatenated.
    return width * len(modes)
