"""A small network of Google for speech, as installed with a package of LiveKit."""

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from divprism.embedders._bundled import SPEECH_EMBEDDING, SPEECH_MEL, Bundled
from divprism.embedders.base import Embedder, check_at_least, runtime_of
from divprism.errors import MissingExtraError

__all__ = ["SpeechEmbedding"]

_FRAMES = 76  # of a window of the network
_WINDOW, _STRIDE = 12_512, 2_560  # samples: 76 frames of 10 ms, and 160 ms
_MAX_WINDOWS = 60  # 10 seconds without gaps; windows of longer sounds are further apart
_FULL_SCALE = 32_767.0  # the network was trained on samples of 16 bits
_DIMENSION = 96


@dataclass(frozen=True)
class SpeechEmbedding(Embedder):
    """Words of spoken sounds: mean of Google's speech embedding over time, 96 wide; no download.

    Pick it for speech whose words matter and whose speaker does not: the network (330,000
    weights) was trained to recognise English keywords, so it hardly hears who speaks, and knows
    little of music and noises. The order of words is lost in the mean. A window of 0.78 s every
    0.16 s, at most 60 of them, evenly spaced. Each runs alone and on a single thread, so a vector
    depends neither on its batch nor on the number of threads. Cost: about 6 ms per second of
    sound on a core, at most 60 ms.
    """

    modality: ClassVar[str] = "audio"
    batch_size: int = 16

    def __post_init__(self) -> None:
        check_at_least("batch_size", self.batch_size)

    @property
    def name(self) -> str:
        """Name in results and on the command line."""
        return "speech-embedding"

    @cached_property
    def revision(self) -> str:
        """Hashes of both networks: the spectrogram, and what reads it."""
        # Half of each hash keeps the text short, and 128 bits still identify a file.
        return f"sha256:{SPEECH_MEL.verify()[:32]}+{SPEECH_EMBEDDING.verify()[:32]}"

    @property
    def dimension(self) -> int:
        """Always 96."""
        return _DIMENSION

    @property
    def preprocessing(self) -> str:
        """How the sound is decoded, cut into windows, and pooled."""
        return (
            f"16000 Hz, mean of the channels, scale of 16 bits; windows of {_WINDOW} samples every "
            f"{_STRIDE}, at most {_MAX_WINDOWS} evenly spaced; mean"
        )

    @property
    def runtime(self) -> str:
        """Versions of the decoder and of the inference engine."""
        return runtime_of("av", "onnxruntime")

    def prepare(self, content: np.ndarray) -> np.ndarray:
        """Return the windows of a sound, (windows, 12512)."""
        sound = np.pad(content, (0, max(0, _WINDOW - len(content)))) * np.float32(_FULL_SCALE)
        last = len(sound) - _WINDOW
        count = min(_MAX_WINDOWS, 1 + last // _STRIDE)
        starts = np.linspace(0, last, count).round().astype(int)
        return np.stack([sound[start : start + _WINDOW] for start in starts])

    def embed_batch(self, batch: Sequence[np.ndarray]) -> np.ndarray:
        """Return the mean vector of each sound; the sounds of a batch run in parallel."""
        mel, network = self._sessions

        def mean(windows: np.ndarray) -> np.ndarray:
            rows = []
            for window in windows:
                (levels,) = mel.run(None, {"input": window[None]})
                # The scaling that the network was trained with.
                frames = levels.reshape(1, -1, 32, 1)[:, :_FRAMES] / 10 + 2
                (vector,) = network.run(None, {"input_1": frames.astype(np.float32)})
                rows.append(vector.reshape(_DIMENSION))
            return np.asarray(np.mean(rows, axis=0, dtype=np.float64), np.float32)

        return np.stack(list(self._threads.map(mean, batch)))

    @cached_property
    def _threads(self) -> ThreadPoolExecutor:
        # Threads are enough for parallel work: the engine releases the interpreter lock.
        return ThreadPoolExecutor(os.cpu_count() or 1, thread_name_prefix="speech")

    @cached_property
    def _sessions(self) -> tuple[Any, Any]:
        return _session(SPEECH_MEL), _session(SPEECH_EMBEDDING)


def _session(file: Bundled) -> Any:
    content = file.content()
    try:
        import onnxruntime
    except ImportError:
        raise MissingExtraError(
            "Embedding speech needs onnxruntime, which is not installed: "
            "pip install 'divprism[audio]'."
        ) from None
    options = onnxruntime.SessionOptions()
    # One thread per sound: the order of sums depends on the threads inside an operator.
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    options.log_severity_level = 3  # errors only
    return onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
