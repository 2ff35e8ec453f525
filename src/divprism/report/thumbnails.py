"""Previews for a page: made anew from pixels and samples, so that no byte of a file is copied."""

import base64
import io
from typing import Any

import numpy as np

from divprism.data.items import Audio, Image, Item, Video
from divprism.data.media import without_warnings

__all__ = ["is_thumbnail", "is_waveform", "preview", "thumbnail", "waveform"]

_SIDE = 160  # pixels of the longer side
# At this quality an image takes about 6 kB of the page, so 240 of them take 1.5 MB.
_QUALITY = 72
_LONGEST = 100_000  # letters in base64; ours, even of noise, have less than half
_JPEG_START = b"\xff\xd8\xff"
_BARS = 64  # of a waveform
_FULL = 100  # height of the loudest bar
_RATE = 8_000


def preview(item: Item) -> dict[str, Any]:
    """Return what a page shows of an item beside its name: a thumbnail, a waveform, or nothing."""
    if isinstance(item, Audio):
        return {"waveform": waveform(item)}
    image = thumbnail(item)
    if image is None:
        return {}
    return {"thumbnail": image}


def waveform(item: Audio) -> list[int]:
    """Return the largest amplitudes in equal parts of a sound, the loudest of them 100.

    Silence is 64 zeros.
    """
    amplitudes = np.abs(item.content(sample_rate=_RATE))
    # Fewer samples than parts: each part has at least one.
    ends = np.linspace(0, len(amplitudes), _BARS + 1).astype(int)
    starts = np.minimum(ends[:-1], len(amplitudes) - 1)
    peaks = np.maximum.reduceat(amplitudes, starts)
    loudest = float(peaks.max())
    if loudest == 0:
        return [0] * _BARS
    return [round(float(peak) / loudest * _FULL) for peak in peaks]


def is_waveform(value: object) -> bool:
    """Return whether a value is what `waveform` returns.

    Result documents come from files: whatever else stands there must not enter the page.
    """
    if not isinstance(value, list) or len(value) != _BARS:
        return False
    are_whole = all(type(height) is int for height in value)
    return are_whole and all(0 <= height <= _FULL for height in value)


def thumbnail(item: Item) -> str | None:
    """Return a JPEG of at most 160 x 160 pixels in base64: of an image, or of the middle frame.

    None for anything else.
    """
    if not isinstance(item, Image | Video):
        return None
    # Pillow's warnings about odd metadata would appear far from the file they are about.
    with without_warnings():
        image = item.content() if isinstance(item, Image) else item.content(1)[0]
    image.thumbnail((_SIDE, _SIDE))
    pixels = image.copy()
    # Pillow would otherwise save comments, colour profiles and GPS data along with the pixels.
    pixels.info.clear()
    buffer = io.BytesIO()
    pixels.save(buffer, "JPEG", quality=_QUALITY, optimize=True)
    return base64.b64encode(buffer.getvalue()).decode("ascii")


def is_thumbnail(text: object) -> bool:
    """Return whether a value is base64 of bytes that begin as a JPEG does, no longer than ours.

    Result documents come from files: whatever else stands there must not enter the page.
    """
    if not isinstance(text, str) or len(text) > _LONGEST:
        return False
    try:
        # Without `validate` letters outside of the alphabet are skipped, and markup could hide
        # among them.
        content = base64.b64decode(text, validate=True)
    except ValueError:
        return False
    return content.startswith(_JPEG_START)
