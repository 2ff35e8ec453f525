"""Mel spectrograms, in the conventions of the networks that take them."""

from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

__all__ = ["mel_filters", "mel_spectrogram"]

_BLOCK = 2048  # frames transformed at a time: half an hour of sound would take gigabytes
_KNEE = 1000.0  # Hz; below it the scale of Slaney is linear
_PER_MEL = 200.0 / 3
_LOG_STEP = np.log(6.4) / 27


def mel_filters(
    num_bands: int, fft: int, sample_rate: int, low: float, high: float, *, scale: str
) -> np.ndarray:
    """Return triangular filters (bands, fft // 2 + 1), evenly spaced in mel from low to high Hz.

    Parameters
    ----------
    num_bands, fft, sample_rate : int
        Number of filters, length of the Fourier transform, and samples per second.
    low, high : float
        Frequencies at which the first filter begins and the last one ends.
    scale : str
        "htk": mel = 2595 log10(1 + Hz / 700), and filters have the height 1. "slaney": linear
        below 1 kHz and logarithmic above, and filters have the area 1, as librosa's default.
    """
    to_mel, to_hertz = _htk, _htk_to_hertz
    if scale == "slaney":
        to_mel, to_hertz = _slaney, _slaney_to_hertz
    ends = to_mel(np.array([low, high], dtype=np.float64))
    edges = to_hertz(np.linspace(ends[0], ends[1], num_bands + 2))
    frequencies = np.arange(fft // 2 + 1) * (sample_rate / fft)
    rising = (frequencies - edges[:-2, None]) / np.diff(edges)[:-1, None]
    falling = (edges[2:, None] - frequencies) / np.diff(edges)[1:, None]
    filters = np.maximum(0, np.minimum(rising, falling))
    if scale == "slaney":
        filters *= 2 / (edges[2:] - edges[:-2])[:, None]
    return filters


def mel_spectrogram(
    sound: np.ndarray, filters: Any, *, window: int, hop: int, fft: int, exponent: int
) -> np.ndarray:
    """Return the filtered spectrogram of a sound, (bands, frames), in double precision.

    Frames are whole windows (periodic Hann), without padding at the ends; a sound shorter than
    one window is padded with silence to one frame.

    Parameters
    ----------
    sound : ndarray (n,)
        Samples.
    filters : array (bands, fft // 2 + 1)
        As `mel_filters` returns them, or sparse.
    window, hop, fft : int
        Samples of a window, from one to the next, and of the transform.
    exponent : int
        1 for magnitudes, 2 for power.
    """
    missing = max(0, window - len(sound))
    padded = np.pad(sound, (0, missing))
    frames = sliding_window_view(padded, window)[::hop]
    weights = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(window) / window)
    bands = []
    for start in range(0, len(frames), _BLOCK):
        block = frames[start : start + _BLOCK].astype(np.float64) * weights
        spectrum = np.abs(np.fft.rfft(block, fft, axis=1)) ** exponent
        bands.append(filters @ spectrum.T)
    return np.concatenate(bands, axis=1)


def _htk(hertz: np.ndarray) -> np.ndarray:
    return 2595.0 * np.log10(1 + hertz / 700.0)


def _htk_to_hertz(mel: np.ndarray) -> np.ndarray:
    return 700.0 * (10 ** (mel / 2595.0) - 1)


def _slaney(hertz: np.ndarray) -> np.ndarray:
    logarithmic = _KNEE / _PER_MEL + np.log(np.maximum(hertz, _KNEE) / _KNEE) / _LOG_STEP
    return np.where(hertz < _KNEE, hertz / _PER_MEL, logarithmic)


def _slaney_to_hertz(mel: np.ndarray) -> np.ndarray:
    beyond = np.maximum(mel - _KNEE / _PER_MEL, 0)
    return np.where(beyond > 0, _KNEE * np.exp(_LOG_STEP * beyond), mel * _PER_MEL)
