"""The default text embedder: static token vectors that are installed with a package."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from divprism.embedders._bundled import WORDLLAMA_TOKENIZER, WORDLLAMA_WEIGHTS
from divprism.embedders.base import Embedder, check_at_least, runtime_of
from divprism.errors import DataError, MissingExtraError

if TYPE_CHECKING:
    from tokenizers import Tokenizer

__all__ = ["WordLlama"]

# A text is summed in pieces of this many tokens, so that a very long one does not fill memory.
_CHUNK_TOKENS = 1 << 16
# The tokenizer holds a hundred bytes for each character that it is given at once.
_MAX_CHARACTERS = 1_000_000


@dataclass(frozen=True)
class WordLlama(Embedder):
    """Mean of static token vectors, unit length, 256 wide; no download, no torch, very fast.

    Pick it for a first look or for very many texts: it embeds thousands of texts per second. A
    sentence-transformers model recognises paraphrases better and takes word order into account.
    Equals `WordLlama.load().embed(texts, norm=True)` of the wordllama package; it reads the
    weights and the tokenizer of that package but does not import it.
    """

    modality: ClassVar[str] = "text"
    # Trained on English. Greek, Arabic, Thai and the like become single letters or bytes, Chinese
    # and Korean mostly bytes.
    scripts: ClassVar[frozenset[str] | None] = frozenset({"LATIN"})
    batch_size: int = 256

    def __post_init__(self) -> None:
        check_at_least("batch_size", self.batch_size)

    @property
    def name(self) -> str:
        """Name in results and on the command line."""
        return "wordllama"

    @cached_property
    def revision(self) -> str:
        """Hashes of the weights and of the tokenizer."""
        # Half of each hash keeps the text short, and 128 bits still identify a file.
        return f"sha256:{WORDLLAMA_WEIGHTS.verify()[:32]}+{WORDLLAMA_TOKENIZER.verify()[:32]}"

    @property
    def dimension(self) -> int:
        """Always 256."""
        return 256

    @property
    def max_characters(self) -> int:
        """A million: a text of thirty million would take a minute and gigabytes."""
        return _MAX_CHARACTERS

    @property
    def preprocessing(self) -> str:
        """Tokenization, pooling and scaling."""
        return "mean of token vectors, no special tokens, unit length"

    @property
    def runtime(self) -> str:
        """Version of the tokenizer library; the rest is NumPy sums."""
        return runtime_of("tokenizers")

    def embed_batch(self, batch: Sequence[str]) -> np.ndarray:
        """Return one unit vector per text.

        Raises
        ------
        DataError
            If a text has no token that the model knows.
        """
        tokenizer, _ = self._model
        rows = np.empty((len(batch), self.dimension), np.float32)
        row = 0
        for part in _parts(batch):
            for encoding in tokenizer.encode_batch(part, add_special_tokens=False):
                rows[row] = self._unit_vector(encoding.ids, batch[row])
                row += 1
        return rows

    def _unit_vector(self, tokens: list[int], text: str) -> np.ndarray:
        _, table = self._model
        ids = np.array(tokens, dtype=np.intp)
        total = np.zeros(self.dimension, np.float32)
        for start in range(0, ids.size, _CHUNK_TOKENS):
            total += table[ids[start : start + _CHUNK_TOKENS]].sum(axis=0)
        # The sum and the mean have the same direction, so the mean is never formed.
        length = float(np.linalg.norm(total.astype(np.float64)))
        if length == 0:
            raise DataError(
                f"the text {text[:40]!r} has no token, so wordllama has no vector for it."
            )
        return total / length

    @cached_property
    def _model(self) -> "tuple[Tokenizer, np.ndarray]":
        """The tokenizer, and the table of token vectors."""
        try:
            from safetensors.numpy import load
            from tokenizers import Tokenizer
        except ImportError:
            raise MissingExtraError(
                "Embedding texts needs tokenizers and safetensors, which are not installed: "
                "pip install 'divprism[text]'."
            ) from None
        # The file holds one tensor, in half precision.
        (table,) = load(WORDLLAMA_WEIGHTS.content()).values()
        tokenizer = Tokenizer.from_str(WORDLLAMA_TOKENIZER.content().decode())
        # A tokenizer file may switch these on: padding adds tokens to the sum, truncation loses
        # some of them.
        tokenizer.no_padding()
        tokenizer.no_truncation()
        return tokenizer, table.astype(np.float32)


def _parts(batch: Sequence[str]) -> Iterator[list[str]]:
    """Yield the texts of a batch in runs of at most a million characters, or of one text."""
    part: list[str] = []
    size = 0
    for text in batch:
        if part and size + len(text) > _MAX_CHARACTERS:
            yield part
            part = []
            size = 0
        # Again, because not every caller prepares texts.
        part.append(text[:_MAX_CHARACTERS])
        size += len(part[-1])
    if part:
        yield part
