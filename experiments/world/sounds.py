"""Short melodies whose instrument, rhythm and register are known: synthesised, no samples.

An instrument is a spectral envelope, the course of a note in time, and some noise. A rhythm is a
pattern of onsets in eighths of a bar of one second. A register is an octave from which the notes of
a melody are drawn at random.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

__all__ = [
    "INSTRUMENTS",
    "RATE",
    "REGISTERS",
    "RHYTHMS",
    "Instrument",
    "combinations",
    "melody",
]

RATE = 16_000
SECONDS = 2.0
REGISTERS = {"low": 110.0, "middle": 220.0, "high": 440.0}
"""The lowest note of each register in Hz."""
RHYTHMS = {
    "slow": (0, 8),
    "even": (0, 4, 8, 12),
    "dotted": (0, 3, 4, 7, 8, 11, 12, 15),
    "fast": tuple(range(16)),
}
"""Onsets in sixteenths of the two seconds."""
_SCALE = (0, 2, 4, 7, 9)  # semitones of a pentatonic scale
_MOST_HARMONICS = 40


@dataclass(frozen=True)
class Instrument:
    """How a note sounds: harmonics, attack and decay in seconds, noise, vibrato.

    Attributes
    ----------
    slope : float
        Harmonic k has the amplitude k ** -slope.
    even : float
        Factor of the even harmonics.
    formant : float
        Hz around which harmonics are stronger; 0 for none.
    attack, decay : float
        Seconds to rise, and to fall to a third.
    noise : float
        Share of noise in the amplitude.
    stretch : float
        Harmonic k lies at k ** stretch; 1 is harmonic, bells are not.
    vibrato : float
        Depth in semitones at 6 Hz.
    """

    slope: float
    even: float = 1.0
    formant: float = 0.0
    attack: float = 0.01
    decay: float = 10.0
    noise: float = 0.0
    stretch: float = 1.0
    vibrato: float = 0.0


INSTRUMENTS = {
    "flute": Instrument(3.0, attack=0.08, noise=0.05, vibrato=0.1),
    "clarinet": Instrument(1.2, even=0.05, attack=0.03),
    "violin": Instrument(1.0, attack=0.06, vibrato=0.4),
    "trumpet": Instrument(0.3, formant=1500.0, attack=0.03),
    "guitar": Instrument(1.3, attack=0.003, decay=0.25),
    "bell": Instrument(0.8, attack=0.001, decay=0.5, stretch=1.4),
    "voice": Instrument(0.8, formant=700.0, attack=0.05, vibrato=0.3, noise=0.02),
    "drum": Instrument(1.0, attack=0.001, decay=0.06, noise=0.7),
}


def melody(
    instrument: str, rhythm: str, register: str, rng: np.random.Generator, gain: float = 1.0
) -> np.ndarray:
    """Return a melody of random notes in single precision, (32000,)."""
    sound = np.zeros(int(RATE * SECONDS))
    onsets = RHYTHMS[rhythm]
    for onset, following in zip(onsets, (*onsets[1:], 16), strict=True):
        start = int(onset / 16 * len(sound))
        stop = int(following / 16 * len(sound))
        pitch = REGISTERS[register] * 2 ** (rng.choice(_SCALE) / 12)
        sound[start:stop] += _note(INSTRUMENTS[instrument], pitch, stop - start, rng)
    return np.asarray(gain * 0.3 * sound / np.abs(sound).max(), np.float32)


def _note(kind: Instrument, pitch: float, length: int, rng: np.random.Generator) -> np.ndarray:
    time = np.arange(length) / RATE
    bend = 2 ** (kind.vibrato / 12 * np.sin(2 * np.pi * 6 * time + rng.uniform(0, 6)))
    phase = 2 * np.pi * pitch * np.cumsum(bend) / RATE
    tone = np.zeros(length)
    for number in range(1, _MOST_HARMONICS + 1):
        factor = number**kind.stretch
        if factor * pitch > 0.45 * RATE:
            break
        amplitude = number**-kind.slope
        if number % 2 == 0:
            amplitude *= kind.even
        if kind.formant:
            amplitude *= 0.05 + np.exp(-((factor * pitch / kind.formant - 1) ** 2) / 0.2)
        tone += amplitude * np.sin(factor * phase + rng.uniform(0, 6))
    tone /= np.sqrt(np.mean(tone**2))
    mixed = (1 - kind.noise) * tone + kind.noise * rng.standard_normal(length)
    release = np.minimum(1, (length - np.arange(length)) / (0.01 * RATE))
    return mixed * np.minimum(1, time / kind.attack) * np.exp(-time / kind.decay) * release


def combinations() -> Sequence[tuple[str, str, str]]:
    """Return every instrument with every rhythm in every register."""
    found = []
    for instrument in INSTRUMENTS:
        for rhythm in RHYTHMS:
            found += [(instrument, rhythm, register) for register in REGISTERS]
    return found
