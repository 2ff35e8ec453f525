"""Pictures and clips from strangers: decoded within limits, or refused in one sentence."""

import io
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from divprism.errors import DataError, MissingExtraError

if TYPE_CHECKING:
    from PIL.Image import Image

__all__ = [
    "IMAGE_SUFFIXES",
    "MAX_BYTES",
    "MAX_FRAMES",
    "MAX_PIXELS",
    "VIDEO_SUFFIXES",
    "evenly_spaced",
    "open_image",
    "open_video",
    "without_warnings",
]

IMAGE_SUFFIXES = frozenset(
    {
        ".avif",
        ".bmp",
        ".jfif",
        ".jp2",
        ".jpe",
        ".jpeg",
        ".jpg",
        ".pgm",
        ".png",
        ".ppm",
        ".tif",
        ".tiff",
        ".webp",
    }
)
VIDEO_SUFFIXES = frozenset(
    {".avi", ".gif", ".m4v", ".mkv", ".mov", ".mp4", ".mpeg", ".mpg", ".webm"}
)
MAX_PIXELS = 100_000_000
"""Larger pictures and frames are refused before they are decoded."""
MAX_BYTES = 512 << 20
"""Larger files of pictures are refused before they are read."""
MAX_FRAMES = 100_000
"""Longer clips are refused: an hour at 25 frames a second fits."""
# Pillow also reads formats for which it starts other programs (EPS: Ghostscript), and PyAV scripts that name other files
# (HLS, concat); these are not for strangers' files.
_PICTURES = ("AVIF", "BMP", "GIF", "JPEG", "JPEG2000", "PNG", "PPM", "TIFF", "WEBP")
_CONTAINERS = "avi,gif,matroska,webm,mov,mp4,m4a,3gp,3g2,mj2,mpeg,mpegts,mpegvideo,m4v,ogg,asf,flv"


@contextmanager
def without_warnings() -> Iterator[None]:
    """Keeps Pillow from warning of odd metadata, and of sizes that are refused here; around all decoding, for it is global."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module=r"PIL\.")
        yield


def open_image(content: bytes, where: str) -> "Image":
    """A picture as a person sees it, in RGB: turned as its camera says, transparency on white, 16 bits scaled to 8."""
    try:
        from PIL import Image, ImageOps, UnidentifiedImageError
    except ImportError:
        raise MissingExtraError(
            "Reading images needs Pillow, which is not installed: pip install 'divprism[images]'."
        ) from None
    if not content:
        raise DataError(f"{where} is empty (0 bytes).")
    try:
        Image.init()
        with Image.open(
            io.BytesIO(content), formats=[name for name in _PICTURES if name in Image.OPEN]
        ) as picture:
            _check_pixels(picture.width, picture.height, where)
            if picture.mode == "F" or (
                picture.mode == "I" and picture.format != "PNG"
            ):  # their black and white are anywhere
                raise DataError(
                    f"{where} has pixels of 32 bits, whose range nobody can know; save it with 8 or 16 bits."
                )
            picture.load()
            return _as_seen(ImageOps.exif_transpose(picture))
    except DataError:
        raise
    except Image.DecompressionBombError:
        raise DataError(
            f"{where} declares too many pixels (at most {MAX_PIXELS:,} are read)."
        ) from None
    except UnidentifiedImageError:
        raise DataError(
            f"{where} is not a picture of a known kind ({', '.join(_PICTURES)})."
        ) from None
    except Exception as error:  # decoders of a dozen formats let through whatever broke them
        raise DataError(
            f"{where} is a broken or truncated picture: {_first_line(error)}."
        ) from None


def _check_pixels(width: int, height: int, where: str) -> None:
    if width * height > MAX_PIXELS:
        raise DataError(
            f"{where} is {width:,} x {height:,} pixels; at most {MAX_PIXELS:,} pixels are read."
        )


def _as_seen(picture: Any) -> "Image":
    from PIL import Image

    if picture.mode.startswith("I"):  # 16 bits a channel: Pillow would cut rather than scale
        picture = (
            picture.point(lambda value: value / 256).convert("L")
            if picture.mode == "I"
            else picture.convert("I")
        )
        if picture.mode == "I":
            return _as_seen(picture)
    if "A" in picture.getbands() or "transparency" in picture.info:
        picture = picture.convert("RGBA")
        white = Image.new("RGBA", picture.size, "white")
        picture = Image.alpha_composite(white, picture)
    return picture if picture.mode == "RGB" else picture.convert("RGB")


def evenly_spaced(total: int, count: int) -> list[int]:
    """The middles of `count` equal parts of `total` frames; frames repeat where there are fewer.

    >>> evenly_spaced(100, 4), evenly_spaced(2, 4)
    ([12, 37, 62, 87], [0, 0, 1, 1])
    """
    return [(2 * place + 1) * total // (2 * count) for place in range(count)]


def open_video(path: Path, count: int, where: str) -> "list[Image]":
    """`count` frames of a video file, evenly spaced over its length, in RGB.

    One pass over the packets counts the frames (headers lie or are silent), a second decodes up to the last one wanted.
    """
    with _video(path, where) as (container, stream):
        total = 0
        for packet in container.demux(stream):
            total += packet.size > 0
            if total > MAX_FRAMES:
                raise DataError(f"{where} has more than {MAX_FRAMES:,} frames.")
    if total == 0:
        raise DataError(f"{where} holds no frame.")
    wanted = evenly_spaced(total, count)
    frames: dict[int, Any] = {}
    with _video(path, where) as (container, stream):
        _check_pixels(stream.codec_context.width, stream.codec_context.height, where)
        for place, frame in enumerate(container.decode(stream)):
            if place in wanted:
                _check_pixels(frame.width, frame.height, where)
                frames[place] = frame.to_image().convert("RGB")
            if place >= wanted[-1]:
                break
    if len(frames) < len(set(wanted)):
        raise DataError(
            f"{where} is truncated: fewer frames can be decoded than its {total:,} packets promise."
        )
    return [frames[place] for place in wanted]


@contextmanager
def _video(path: Path, where: str) -> Iterator[tuple[Any, Any]]:
    try:
        import av
    except ImportError:
        raise MissingExtraError(
            "Reading videos needs PyAV, which is not installed: pip install 'divprism[video]'."
        ) from None
    av.logging.set_level(av.logging.PANIC)  # what is wrong with a file is told by our one sentence
    try:
        options = {"format_whitelist": _CONTAINERS}
        with av.open(str(path.absolute()), metadata_errors="replace", options=options) as container:
            if not container.streams.video:
                raise DataError(f"{where} holds no video stream.")
            stream = container.streams.video[0]
            if stream.codec_context is None:
                raise DataError(f"{where} is packed by a codec that PyAV does not know.")
            yield container, stream
    except DataError:
        raise
    except (
        av.error.FFmpegError,
        OSError,
        ValueError,
        OverflowError,
        MemoryError,
        UnicodeError,
    ) as error:
        raise DataError(f"{where} is not a readable video: {_first_line(error)}.") from None


def _first_line(error: BaseException) -> str:
    lines = str(error).splitlines()
    return lines[0].rstrip(".") if lines and lines[0] else type(error).__name__
