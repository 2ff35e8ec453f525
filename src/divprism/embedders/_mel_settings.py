"""How the log-mel spectrogram of a network is computed, which its file does not say."""

from dataclasses import dataclass, fields

import numpy as np

from divprism.embedders._mel import mel_filters, mel_spectrogram
from divprism.embedders._setting_checks import require, require_number, require_whole

__all__ = ["MelSettings"]

_SCALES = ("htk", "slaney")
_LOGS = {"ln": 1.0, "log10": np.log(10), "db": np.log(10) / 10}  # what one unit is in nats
_MAX_FFT = 1 << 15
_MAX_BANDS = 512


@dataclass(frozen=True)
class MelSettings:
    """A log-mel spectrogram: (log(max(mel + offset, floor)) - mean) / std.

    Attributes
    ----------
    bands : int
        Number of mel bands.
    window, hop, fft : int
        Samples of a window (Hann), from one window to the next, and of the Fourier transform.
    low, high : float
        Hz at which the first band begins and the last one ends.
    scale : str
        "htk" or "slaney", as librosa's default, whose filters have the area 1.
    exponent : int
        2 (default): power; 1: magnitudes.
    log : str
        "ln" (default), "log10", or "db", which is ten times log10.
    offset, floor : float
        Added to the values (default 0), and their minimum then (default 1e-10).
    center : bool
        Whether half a transform is added at each end, mirrored, as librosa and torch.stft do by
        default. Default: False.
    mean, std : float
        Of the spectrograms that the network was trained on. Default: 0 and 1.
    """

    bands: int
    window: int
    hop: int
    fft: int
    low: float
    high: float
    scale: str = "htk"
    exponent: int = 2
    log: str = "ln"
    offset: float = 0.0
    floor: float = 1e-10
    center: bool = False
    mean: float = 0.0
    std: float = 1.0

    def __post_init__(self) -> None:
        require_whole("mel.bands", self.bands, 1, _MAX_BANDS)
        require_whole("mel.fft", self.fft, 2, _MAX_FFT)
        require_whole("mel.window", self.window, 2, self.fft)
        require_whole("mel.hop", self.hop, 1, _MAX_FFT)
        require_whole("mel.exponent", self.exponent, 1, 2)
        require(self.scale in _SCALES, "mel.scale", " or ".join(_SCALES), self.scale)
        require(self.log in tuple(_LOGS), "mel.log", " or ".join(_LOGS), self.log)
        require(isinstance(self.center, bool), "mel.center", "true or false", self.center)
        for name in ("low", "high", "offset", "floor", "mean", "std"):
            require_number(f"mel.{name}", getattr(self, name))
        require(0 <= self.low < self.high, "mel.high", "above `mel.low`, from 0", self.high)
        require(self.offset >= 0, "mel.offset", "at least 0", self.offset)
        require(self.floor > 0, "mel.floor", "positive", self.floor)
        require(self.std > 0, "mel.std", "positive", self.std)

    def describe(self) -> str:
        """Return all settings in one line; part of cache keys."""
        return " ".join(f"{field.name} {getattr(self, field.name)}" for field in fields(self))

    def num_frames(self, num_samples: int) -> int:
        """Return the number of frames of a sound."""
        if self.center:
            # Frames of the length of the transform, as in librosa, whatever the window is.
            return 1 + (num_samples + 2 * (self.fft // 2) - self.fft) // self.hop
        return 1 + max(0, num_samples - self.window) // self.hop

    def spectrogram(self, sound: np.ndarray, sample_rate: int) -> np.ndarray:
        """Return the log-mel spectrogram of a sound, (bands, frames), in single precision."""
        if self.center:
            sound = self._centred(sound)
        filters = self._filters(sample_rate)
        mel = mel_spectrogram(
            sound,
            filters,
            window=self.window,
            hop=self.hop,
            fft=self.fft,
            exponent=self.exponent,
        )
        levels = np.log(np.maximum(mel + self.offset, self.floor)) / _LOGS[self.log]
        return np.asarray((levels - self.mean) / self.std, np.float32)

    def _centred(self, sound: np.ndarray) -> np.ndarray:
        """A sound with mirrored ends, from the start of the first window to the end of the last."""
        padded = np.pad(sound, self.fft // 2, mode="reflect")
        # librosa puts a shorter window into the middle of a frame of the length of the transform.
        start = (self.fft - self.window) // 2
        length = (self.num_frames(len(sound)) - 1) * self.hop + self.window
        return padded[start : start + length]

    def _filters(self, sample_rate: int) -> np.ndarray:
        key = (self, sample_rate)
        if key not in _FILTERS:
            _FILTERS[key] = mel_filters(
                self.bands, self.fft, sample_rate, self.low, self.high, scale=self.scale
            )
        return _FILTERS[key]


_FILTERS: dict[tuple[MelSettings, int], np.ndarray] = {}
