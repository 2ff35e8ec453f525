"""The embedded default for texts: static token vectors that install with a package."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from divprism.embedders.base import (
    Embedder,
    check_batch_size,
    file_hash,
    package_folder,
    runtime_of,
)
from divprism.errors import DataError, MissingExtraError

__all__ = ["WordLlama"]

_CHUNK = 1 << 16  # tokens whose vectors are held at once


@dataclass(frozen=True)
class WordLlama(Embedder):
    """Mean of static token vectors, unit length, 256 wide: no download, no torch, thousands of texts a second.

    Pick it for a first look and for many texts; a sentence-transformers model tells paraphrases better, and sees the order of
    words. Equals `WordLlama.load().embed(texts, norm=True)` of the wordllama package, whose weights and tokenizer it reads;
    the package itself is not run.
    """

    modality: ClassVar[str] = "text"
    batch_size: int = 256

    def __post_init__(self) -> None:
        check_batch_size(self.batch_size)

    @property
    def name(self) -> str:
        """What the command line calls it."""
        return "wordllama"

    @cached_property
    def revision(self) -> str:
        """Hash of weights and tokenizer."""
        return f"sha256:{file_hash(self._weights)[:32]}+{file_hash(self._tokenizer)[:32]}"

    @property
    def dimension(self) -> int:
        """Width of a vector."""
        return 256

    @property
    def preprocessing(self) -> str:
        """What happens before and after the model."""
        return "mean of token vectors, no special tokens, unit length"

    @property
    def runtime(self) -> str:
        """Software that the numbers depend on."""
        return runtime_of("tokenizers")

    def embed_batch(self, batch: Sequence[str]) -> np.ndarray:
        """Unit vectors; a text without a single token has none and is refused."""
        tokenizer, table = self._model
        rows = np.empty((len(batch), self.dimension), np.float32)
        for row, text, encoding in zip(
            rows, batch, tokenizer.encode_batch(list(batch), add_special_tokens=False), strict=True
        ):
            ids = np.array(encoding.ids, dtype=np.intp)
            total = np.zeros(self.dimension, np.float32)
            for start in range(0, ids.size, _CHUNK):
                total += table[ids[start : start + _CHUNK]].sum(axis=0)
            length = float(np.linalg.norm(total.astype(np.float64)))
            if length == 0:
                raise DataError(
                    f"the text {text[:40]!r} has no token, so wordllama has no vector for it."
                )
            row[:] = total / length
        return rows

    @property
    def _folder(self) -> Path:
        return package_folder("wordllama", "text", "Embedding texts")

    @property
    def _weights(self) -> Path:
        return self._folder / "weights" / "l2_supercat_256.safetensors"

    @property
    def _tokenizer(self) -> Path:
        return self._folder / "tokenizers" / "l2_supercat_tokenizer_config.json"

    @cached_property
    def _model(self) -> tuple[Any, np.ndarray]:
        try:
            from safetensors.numpy import load_file
            from tokenizers import Tokenizer
        except ImportError:
            raise MissingExtraError(
                "Embedding texts needs tokenizers and safetensors: pip install 'divprism[text]'."
            ) from None
        (table,) = load_file(self._weights).values()
        tokenizer = Tokenizer.from_file(str(self._tokenizer))
        tokenizer.no_padding()
        tokenizer.no_truncation()
        return tokenizer, table.astype(np.float32)
