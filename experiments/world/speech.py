"""Sentences spoken by voices of eSpeak NG, whose words and speaker are known.

Needs the package espeakng-loader, which brings the library and its voices.
"""

import ctypes
from functools import cache
from typing import Any

import numpy as np

from divprism.data.sounds import encode_sound, open_sound

__all__ = ["SENTENCES", "VOICES", "spoken"]

SENTENCES = (
    "open the window",
    "play some music",
    "what is the weather",
    "turn off the light",
    "call my mother",
    "set an alarm for seven",
    "where is the station",
    "good morning everyone",
    "thank you very much",
    "close the garage door",
)
VOICES = ("en+m1", "en+m3", "en+f2", "en+f4", "en-us+m7", "en-us+f5")
RATE = 16_000
_SYNCHRONOUS = 2  # speech goes to the callback, and the call returns when it is complete
_UTF_8 = 1
_SPEED, _PITCH = 1, 3  # numbers of the parameters
_HEARD: list[np.ndarray] = []


@ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_short), ctypes.c_int, ctypes.c_void_p)
def _hear(samples: Any, count: int, _: Any) -> int:
    if samples and count > 0:
        _HEARD.append(np.ctypeslib.as_array(samples, (count,)).copy())
    return 0


@cache
def _library() -> tuple[Any, int]:
    import espeakng_loader

    library = ctypes.CDLL(espeakng_loader.get_library_path())
    folder = espeakng_loader.get_data_path().encode()
    rate = library.espeak_Initialize(_SYNCHRONOUS, 0, folder, 0)
    library.espeak_SetSynthCallback(_hear)
    return library, rate


def spoken(sentence: str, voice: str, speed: int = 160, pitch: int = 50) -> np.ndarray:
    """Return a sentence as samples, 16,000 per second."""
    library, rate = _library()
    _HEARD.clear()
    if library.espeak_SetVoiceByName(voice.encode()) != 0:
        raise ValueError(f"there is no voice {voice!r}")
    library.espeak_SetParameter(_SPEED, speed, 0)
    library.espeak_SetParameter(_PITCH, pitch, 0)
    text = sentence.encode()
    library.espeak_Synth(text, len(text) + 1, 0, 0, 0, _UTF_8, None, None)
    library.espeak_Synchronize()
    samples = np.concatenate(_HEARD).astype(np.float32) / 32768
    return open_sound(encode_sound(samples, rate), RATE, sentence)
