"""Small pictures for a page, made anew from the pixels: no byte of a stranger's file goes into it."""

import base64
import io

from divprism.data.media import without_warnings
from divprism.data.samples import Image, Item, Video

__all__ = ["is_thumbnail", "thumbnail"]

_SIDE = 160  # pixels of the longer side
_QUALITY = 72
_START = b"\xff\xd8\xff"  # of every JPEG


def thumbnail(item: Item) -> str | None:
    """A picture, or the middle frame of a clip, as a JPEG of at most 160 pixels in base64; None for a text."""
    if not isinstance(item, Image | Video):
        return None
    with without_warnings():
        content = item.content(1)
    picture = content[0] if isinstance(content, list) else content
    picture.thumbnail((_SIDE, _SIDE))
    pixels = picture.copy()
    pixels.info.clear()  # comments, profiles and places would be saved along
    buffer = io.BytesIO()
    pixels.save(buffer, "JPEG", quality=_QUALITY, optimize=True)
    return base64.b64encode(buffer.getvalue()).decode("ascii")


def is_thumbnail(text: object) -> bool:
    """Whether a value of a result document is what `thumbnail` makes: base64 of something that starts as a JPEG does."""
    try:
        return isinstance(text, str) and base64.b64decode(text, validate=True).startswith(_START)
    except ValueError:
        return False
