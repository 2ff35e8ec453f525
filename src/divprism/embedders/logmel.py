"""The default embedder of sounds: statistics of a log-mel spectrogram, without weights."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np

from divprism.embedders._mel import mel_filters, mel_spectrogram
from divprism.embedders.base import Embedder, check_at_least, runtime_of

__all__ = ["LogMel"]

_RATE = 16_000
_WINDOW, _HOP, _FFT = 400, 160, 512  # 25 ms every 10 ms
_BANDS, _LOW, _HIGH = 40, 60.0, 7_000.0
_FLOOR = 1e-3  # of the mean power: 30 dB below it counts as silence
_QUIET = 1e-4  # of the mean power of a frame: below it, both ends of a sound are cut off
_GROUPS = 10  # groups of bands whose modulation is measured
# Means vary most from sound to sound and differences least: without weights, the vectors would
# hear pitch and hardly any rhythm (experiments/audio.py).
_MEANS_WEIGHT, _DIFFERENCES_WEIGHT = 0.3, 4.0
# Hz; below lies the course of the whole sound, above the roughness of a single tone.
_MODULATION = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0)
_DIMENSION = 3 * _BANDS + _GROUPS * (len(_MODULATION) - 1)


@dataclass(frozen=True)
class LogMel(Embedder):
    """Timbre and rhythm of a sound: statistics of its log-mel spectrogram, 170 wide; no weights.

    Pick it for a first look at sounds, and for music or noises that differ in instrument, pitch
    range or tempo. It has learned nothing: it does not know what is said, sung or meant, hears no
    melody (the order of notes is lost) and no loudness, and it compares voices and rooms as much
    as words. For these pass a network (`Onnx`), or a function of your own (`Function`).

    With P[b, t] the power in mel band b and frame t (40 bands from 60 to 7,000 Hz; a frame of
    25 ms every 10 ms; silence at both ends, frames 40 dB below the mean, is cut off), and
    L = ln(max(P / mean(P), 0.001)). The vector has, in this order, for each band 0.3 times the
    mean of L over time, the mean absolute deviation from that mean, and four times the mean of
    ``|L[b, t + 1] - L[b, t]|``; then, for the mean of L over each of 10 groups of four neighbouring
    bands, the amplitude (root of the power) of its changes over time at 0.5-1, 1-2, 2-4, 4-8 and
    8-16 Hz. Silence is the vector of zeros. Cost: about 1 ms per second of sound.
    """

    modality: ClassVar[str] = "audio"
    blind_to: ClassVar[str] = (
        "compares timbre and rhythm and not meaning: sounds of one instrument or voice are alike "
        "to it whatever they play or say"
    )
    batch_size: int = 32

    def __post_init__(self) -> None:
        check_at_least("batch_size", self.batch_size)

    @property
    def name(self) -> str:
        """Name in results and on the command line."""
        return "logmel"

    @property
    def revision(self) -> str:
        """Version of the formula, which has no weights."""
        return "formula 1"

    @property
    def dimension(self) -> int:
        """Always 170: 40 means, 40 deviations, 40 of differences, and 50 of modulation."""
        return _DIMENSION

    @property
    def preprocessing(self) -> str:
        """How the sound is decoded, and the formula."""
        return (
            "16000 Hz, mean of the channels, ends below -40 dB cut; 40 log-mel bands relative to "
            "the mean power; 0.3 mean, absolute deviation, 4 absolute differences, and "
            "modulation at 0.5 to 16 Hz in 10 groups"
        )

    @property
    def precision(self) -> str:
        """Sums are computed in double precision and rounded to single."""
        return "float64"

    @property
    def runtime(self) -> str:
        """Versions of the decoder and of the libraries that compute."""
        return runtime_of("av", "numpy", "scipy")

    def prepare(self, content: np.ndarray) -> np.ndarray:
        """Return the vector of a sound: decoding threads compute it, each sound alone."""
        return _statistics(_log_mel(content))

    def embed_batch(self, batch: Sequence[np.ndarray]) -> np.ndarray:
        """Return the vectors that `prepare` computed, one per row."""
        return np.stack(batch)


def _log_mel(sound: np.ndarray) -> np.ndarray:
    """Return the logarithm of power over its mean (bands, frames); zeros for silence."""
    power = mel_spectrogram(sound, _filters(), window=_WINDOW, hop=_HOP, fft=_FFT, exponent=2)
    frames = power.sum(axis=0)
    if frames.sum() <= 0:
        return np.zeros_like(power)
    # Encoders add some silence, and generators more or less of it: that is no difference in sound.
    (loud,) = np.nonzero(frames > _QUIET * frames.mean())
    kept = power[:, loud[0] : loud[-1] + 1]
    return np.log(np.maximum(kept / kept.mean(), _FLOOR))


@cache
def _filters() -> Any:
    import scipy.sparse

    filters = mel_filters(_BANDS, _FFT, _RATE, _LOW, _HIGH, scale="htk")
    # Sparse: the products then have a fixed order of sums, whatever the number of threads.
    return scipy.sparse.csr_array(filters)


def _statistics(levels: np.ndarray) -> np.ndarray:
    # Absolute values rather than squares: the click at an abrupt end is one large jump.
    differences = np.abs(np.diff(levels, axis=1))
    if differences.shape[1] == 0:
        differences = np.zeros((_BANDS, 1))
    groups = levels.reshape(_GROUPS, -1, levels.shape[1]).mean(axis=1)
    means = levels.mean(axis=1)
    parts = [
        _MEANS_WEIGHT * means,
        np.abs(levels - means[:, None]).mean(axis=1),
        _DIFFERENCES_WEIGHT * differences.mean(axis=1),
        _modulation(groups).reshape(-1),
    ]
    return np.concatenate(parts).astype(np.float32)


def _modulation(groups: np.ndarray) -> np.ndarray:
    """Return the amplitude of changes over time, (groups, bands of modulation).

    By Parseval's identity their squares add up to the variance over time, but for what lies
    outside of 0.5 to 16 Hz.
    """
    num_frames = groups.shape[1]
    spectrum = np.fft.rfft(groups, axis=1) / num_frames
    power = 2 * np.abs(spectrum) ** 2  # a frequency and its negative
    frequencies = np.fft.rfftfreq(num_frames, _HOP / _RATE)
    amplitudes = np.zeros((len(groups), len(_MODULATION) - 1))
    for index, (low, high) in enumerate(pairwise(_MODULATION)):
        inside = (frequencies >= low) & (frequencies < high)
        amplitudes[:, index] = np.sqrt(power[:, inside].sum(axis=1))
    return amplitudes
