"""Thumbnails for a page: encoded anew from the pixels, so that no byte of the file is copied."""

import base64
import io

from divprism.data.media import without_warnings
from divprism.data.samples import Image, Item, Video

__all__ = ["is_thumbnail", "thumbnail"]

_SIDE = 160  # pixels of the longer side
# At this quality an image takes about 6 kB of the page, so 240 of them take 1.5 MB.
_QUALITY = 72
_JPEG_START = b"\xff\xd8\xff"


def thumbnail(item: Item) -> str | None:
    """Return a JPEG of at most 160 x 160 pixels in base64: of an image, or of the middle frame.

    None for a text.
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
    """Return whether a value is base64 of bytes that begin as a JPEG does.

    Result documents come from files: whatever else stands there must not enter the page.
    """
    if not isinstance(text, str):
        return False
    try:
        # Without `validate` letters outside of the alphabet are skipped, and markup could hide
        # among them.
        content = base64.b64decode(text, validate=True)
    except ValueError:
        return False
    return content.startswith(_JPEG_START)
