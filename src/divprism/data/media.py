"""Images and videos from untrusted files: decoded within limits, or refused in one sentence."""

import io
import logging
import os
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from divprism.data.wording import first_line
from divprism.errors import DataError, MissingExtraError

if TYPE_CHECKING:
    from PIL.Image import Image as PILImage

__all__ = [
    "AUDIO_SUFFIXES",
    "IMAGE_SUFFIXES",
    "MAX_BYTES",
    "MAX_FRAMES",
    "MAX_FRAME_PIXELS",
    "MAX_PIXELS",
    "MAX_SCANS",
    "MAX_SIDE",
    "MEDIA_SUFFIXES",
    "VIDEO_SUFFIXES",
    "chosen_frames",
    "evenly_spaced",
    "is_still",
    "is_video",
    "media_kind",
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
# GIF is here: an animation is a video, and a still one is a video of one frame.
VIDEO_SUFFIXES = frozenset(
    {".avi", ".gif", ".m4v", ".mkv", ".mov", ".mp4", ".mpeg", ".mpg", ".webm"}
)
AUDIO_SUFFIXES = frozenset(
    {".aac", ".aif", ".aiff", ".flac", ".m4a", ".mp3", ".oga", ".ogg", ".opus", ".wav"}
)
MEDIA_SUFFIXES = {"image": IMAGE_SUFFIXES, "video": VIDEO_SUFFIXES, "audio": AUDIO_SUFFIXES}
"""Suffixes of the files of each modality."""
MAX_PIXELS = 100_000_000
"""Larger images are refused before they are decoded."""
MAX_FRAME_PIXELS = 40_000_000
"""Videos of larger frames are refused; 8K has 33 million pixels. Several are held at a time."""
MAX_SIDE = 100_000
"""Images of more rows or columns are refused: Pillow keeps a pointer for each row."""
MAX_BYTES = 512 << 20
"""Larger image files are refused before they are read."""
MAX_FRAMES = 100_000
"""Longer videos are refused; an hour at 25 frames per second fits."""

MAX_SCANS = 100
"""JPEG files of more scans are refused; programs write about ten."""

_MAX_VISITS = 3 * 10**9  # pixels times scans of a JPEG file
_MAX_SEGMENTS = 10_000
_MAX_FILLING = 100_000  # bytes between the segments of a JPEG file, of which none are needed
_JPEG_START = b"\xff\xd8"
_PLAIN_PPM = (b"P1", b"P2", b"P3")
_MAX_COMMENTS = 1_000
# Not after a marker: the byte 0 that data have behind 255, restarts, the start, and filling.
_JPEG_MARKER = re.compile(rb"\xff[^\x00\x01\xd0-\xd8\xff]", re.DOTALL)
_JPEG_SCAN, _JPEG_END = 0xDA, 0xD9

# Frames times pixels of a video that are always decoded, and how many a byte of the file allows:
# an hour of a still screen, well compressed, has 10,000.
_FREE_VISITS = 2 * 10**9
_VISITS_PER_BYTE = 20_000

# Decoders of these formats hold several copies of an image, and so do those of JPEG files with more
# than one scan: their images are limited as frames of videos are.
_COPYING_FORMATS = ("AVIF", "JPEG2000", "WEBP")
_STRIP = 1_000_000  # pixels converted at a time

_MAX_PATH = 4096  # characters: a longer string is a text, whatever it ends in

# Allow lists, because Pillow starts other programs for some formats (Ghostscript for EPS), and
# FFmpeg follows scripts that name other files (HLS, concat). Untrusted files must do neither.
_IMAGE_FORMATS = ("AVIF", "BMP", "GIF", "JPEG", "JPEG2000", "PNG", "PPM", "TIFF", "WEBP")
_CONTAINERS = "avi,gif,matroska,webm,mov,mp4,m4a,3gp,3g2,mj2,mpeg,mpegts,mpegvideo,m4v,ogg,asf,flv"


def is_video(path: Path) -> bool:
    """Whether a file is a video by its suffix."""
    return path.suffix.lower() in VIDEO_SUFFIXES


def is_still(path: Path) -> bool:
    """Whether a file is an image by its suffix, which may be a frame of a video."""
    return path.suffix.lower() in IMAGE_SUFFIXES


def media_kind(name: object) -> str | None:
    """Return "image", "video" or "audio" for a string that looks like the name of such a file.

    >>> media_kind("cats/1.PNG"), media_kind("rain.wav"), media_kind("A cat.")
    ('image', 'audio', None)
    """
    if not isinstance(name, str) or len(name) >= _MAX_PATH:
        return None
    # A text of several lines may end so, too.
    if "\n" in name:
        return None
    suffix = os.path.splitext(name)[1].lower()
    for kind, suffixes in MEDIA_SUFFIXES.items():
        if suffix in suffixes:
            return kind
    return None


@contextmanager
def without_warnings() -> Iterator[None]:
    """Silence Pillow's warnings about odd metadata and about sizes that are refused here.

    Warning filters belong to the process, not to a thread: enter this once around all decoding.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module=r"PIL\.")
        yield


def open_image(content: bytes, where: str) -> "PILImage":
    """Return an encoded image in RGB as a viewer shows it.

    The image is rotated as its EXIF data ask for, transparency is put on white, and 16-bit
    channels are scaled to 8 bits.

    Parameters
    ----------
    content : bytes
        The encoded image.
    where : str
        Its name in messages.

    Raises
    ------
    DataError
        If the image is damaged, too large, or in an unsupported format.
    MissingExtraError
        If Pillow is not installed.
    """
    try:
        from PIL import Image, UnidentifiedImageError
    except ImportError:
        raise MissingExtraError(
            "Reading images needs Pillow, which is not installed: pip install 'divprism[images]'."
        ) from None
    _keep_pillow_silent()
    # Pillow would call an empty file "unidentified", which hides the cause.
    if not content:
        raise DataError(f"{where} is empty (0 bytes).")
    try:
        return _decoded(content, where)
    except DataError:
        raise
    # Pillow has a limit of its own, above ours, that it checks while it parses the header.
    except Image.DecompressionBombError:
        raise DataError(
            f"{where} declares too many pixels; at most {MAX_PIXELS:,} are read."
        ) from None
    except UnidentifiedImageError:
        formats = ", ".join(_IMAGE_FORMATS)
        raise DataError(f"{where} is not an image in a supported format ({formats}).") from None
    except Exception as error:  # the decoders of a dozen formats let any exception through
        raise DataError(f"{where} is a corrupt or truncated image: {first_line(error)}.") from None


@cache
def _keep_pillow_silent() -> None:
    """Give Pillow's logger a handler: Python would print its errors beside our sentence."""
    logging.getLogger("PIL").addHandler(logging.NullHandler())


def _decoded(content: bytes, where: str) -> "PILImage":
    from PIL import Image, ImageOps

    Image.init()
    # Pillow builds differ in the codecs they include; naming one that is missing is an error.
    available = [name for name in _IMAGE_FORMATS if name in Image.OPEN]
    _check_comments(content, where)
    num_scans = _num_scans(content, where)
    with Image.open(io.BytesIO(content), formats=available) as image:
        # The header is parsed, no pixel is decoded yet.
        limit = MAX_PIXELS
        if image.format in _COPYING_FORMATS or num_scans > 1:
            limit = MAX_FRAME_PIXELS
        _check_pixels(image.width, image.height, where, limit)
        if num_scans * image.width * image.height > _MAX_VISITS:
            raise DataError(_too_many_scans(num_scans, where))
        if _has_unknown_range(image):
            raise DataError(
                f"{where} has 32-bit pixels, whose range is not defined; save it with 8 or 16 "
                "bits per channel."
            )
        # Pillow decodes lazily; from here on, errors of the decoder surface.
        image.load()
        # In place: with a copy, a file of some kilobytes would take twice the memory.
        ImageOps.exif_transpose(image, in_place=True)
        return _as_displayed(image)


def _check_pixels(width: int, height: int, where: str, limit: int = MAX_PIXELS) -> None:
    if max(width, height) > MAX_SIDE:
        raise DataError(
            f"{where} is {width:,} x {height:,} pixels; at most {MAX_SIDE:,} on a side are read."
        )
    if width * height > limit:
        raise DataError(
            f"{where} is {width:,} x {height:,} pixels; at most {limit:,} pixels are read."
        )


def _check_comments(content: bytes, where: str) -> None:
    """Refuse a plain PPM file of many comments: Pillow copies the rest of a block for each."""
    if content.startswith(_PLAIN_PPM) and content.count(b"#") > _MAX_COMMENTS:
        raise DataError(f"{where} is a PPM file of more than {_MAX_COMMENTS:,} comments.")


def _num_scans(content: bytes, where: str) -> int:
    """Count the scans of a JPEG file, 0 for other formats; refuse too many before any decoding.

    A scan of a progressive file may be empty, a few bytes, and still visit every pixel. Pillow
    reads segments, and the filling between them, step by step when it opens a file.
    """
    num_scans = 0
    position = len(_JPEG_START)
    if not content.startswith(_JPEG_START):
        return 0
    for _ in range(_MAX_SEGMENTS):
        marker = _JPEG_MARKER.search(content, position)
        gap = len(content) - position
        if marker is not None:
            gap = marker.start() - position
        if num_scans == 0 and gap > _MAX_FILLING:
            raise DataError(f"{where} is a JPEG file with {gap:,} bytes between its segments.")
        if marker is None or marker[0][1] == _JPEG_END:
            return num_scans
        # Any other segment states its length; after the header of a scan come its data, in which
        # the pattern of a marker does not occur.
        start = marker.end()
        position = start + int.from_bytes(content[start : start + 2], "big")
        num_scans += marker[0][1] == _JPEG_SCAN
        if num_scans > MAX_SCANS:
            raise DataError(_too_many_scans(num_scans, where))
    raise DataError(f"{where} is a JPEG file of more than {_MAX_SEGMENTS:,} segments.")


def _too_many_scans(num_scans: int, where: str) -> str:
    return (
        f"{where} is a JPEG file of {num_scans:,} scans or more; at most {MAX_SCANS} are read, and "
        f"fewer of an image above {_MAX_VISITS // MAX_SCANS:,} pixels."
    )


def _has_unknown_range(image: "PILImage") -> bool:
    """Whether black and white could be at any value: floats, and integers of 32 bits."""
    if image.mode == "I":
        # Pillow opens 16-bit PNG files in mode "I" too, and their range is known.
        return image.format != "PNG"
    return image.mode == "F"


def _as_displayed(image: "PILImage") -> "PILImage":
    """Convert any mode to RGB, some rows at a time: a conversion takes up to four copies."""
    from PIL import Image

    width, height = image.size
    # At least ten: MAX_SIDE is a tenth of a strip.
    num_rows = _STRIP // width
    # Most images are one strip.
    if height <= num_rows:
        return _in_rgb(image.copy())
    displayed = Image.new("RGB", image.size)
    for top in range(0, height, num_rows):
        box = (0, top, width, min(top + num_rows, height))
        displayed.paste(_in_rgb(image.crop(box)), box)
    return displayed


def _in_rgb(image: "PILImage") -> "PILImage":
    """Convert any mode to RGB the way a viewer does."""
    from PIL import Image

    if image.mode.startswith("I"):
        # 16 bits per channel: Pillow's own conversion to 8 bits clips instead of scaling.
        if image.mode != "I":
            image = image.convert("I")
        image = image.point(lambda value: value / 256).convert("L")
    if "A" in image.getbands() or "transparency" in image.info:
        # Converting straight to RGB would show the colour hidden under transparent pixels.
        white = Image.new("RGBA", image.size, "white")
        image = Image.alpha_composite(white, image.convert("RGBA"))
    if image.mode != "RGB":
        image = image.convert("RGB")
    return image


def evenly_spaced(total: int, count: int) -> list[int]:
    """Return the middle frame of each of `count` equal parts of `total` frames.

    Frames repeat where there are fewer than `count`.

    >>> evenly_spaced(100, 4), evenly_spaced(2, 4)
    ([12, 37, 62, 87], [0, 0, 1, 1])
    """
    # Integer arithmetic: floats would round differently for very long videos.
    return [(2 * part + 1) * total // (2 * count) for part in range(count)]


def chosen_frames(total: int, count: int, stride: int = 0) -> list[int]:
    """Return `count` of `total` frames: every `stride`-th of the middle, or evenly spaced.

    A video that is too short for the stride gives evenly spaced frames.

    >>> chosen_frames(100, 4), chosen_frames(100, 4, 2), chosen_frames(5, 4, 2)
    ([12, 37, 62, 87], [46, 48, 50, 52], [0, 1, 3, 4])
    """
    # Frames from the first to the last that is chosen.
    span = (count - 1) * stride + 1
    if stride == 0 or span > total:
        return evenly_spaced(total, count)
    start = (total - span) // 2
    return list(range(start, start + span, stride))


def open_video(path: Path, count: int, where: str, stride: int = 0) -> "list[PILImage]":
    """Return `count` frames of a video file in RGB, as `chosen_frames` chooses them.

    Parameters
    ----------
    path : Path
        The video file.
    count : int
        Number of frames.
    where : str
        Its name in messages.
    stride : int
        Distance of the frames; 0 spaces them evenly over the video.

    Raises
    ------
    DataError
        If the video is damaged, too long, too large, or in an unsupported format.
    MissingExtraError
        If PyAV is not installed.
    """
    # Two passes: one over the packets to count, one that decodes up to the last frame wanted.
    total = _num_frames(path, where)
    wanted = chosen_frames(total, count, stride)
    frames: dict[int, PILImage] = {}
    with _video_stream(path, where) as (container, stream):
        width, height = stream.codec_context.width, stream.codec_context.height
        _check_pixels(width, height, where, MAX_FRAME_PIXELS)
        # All frames before the last one wanted are decoded, too.
        _check_visits(wanted[-1] * width * height, path, where)
        for index, frame in enumerate(container.decode(stream)):
            if index in wanted:
                # A stream may change its size midway.
                _check_pixels(frame.width, frame.height, where, MAX_FRAME_PIXELS)
                frames[index] = frame.to_image().convert("RGB")
            # The rest of a long video need not be decoded.
            if index >= wanted[-1]:
                break
    if len(frames) < len(set(wanted)):
        raise DataError(
            f"{where} is truncated: it has {total:,} packets, but not all of them can be decoded."
        )
    return [frames[index] for index in wanted]


def _check_visits(visits: int, path: Path, where: str) -> None:
    """Refuse more pixels than a file can hold: a frame that repeats takes almost no space."""
    size = path.stat().st_size
    if visits > max(_FREE_VISITS, _VISITS_PER_BYTE * size):
        raise DataError(
            f"{where} unpacks to {visits:,} pixels from {size:,} bytes, too many to be a real "
            "video."
        )


def _num_frames(path: Path, where: str) -> int:
    """Count packets with content: the frame count in a header may be wrong or missing."""
    total = 0
    with _video_stream(path, where) as (container, stream):
        for packet in container.demux(stream):
            # The last packet of a stream is an empty one that flushes the decoder.
            total += packet.size > 0
            if total > MAX_FRAMES:
                raise DataError(f"{where} has more than {MAX_FRAMES:,} frames.")
    if total == 0:
        raise DataError(f"{where} contains no frames.")
    return total


def _check_canvas(path: Path, where: str) -> None:
    """Refuse a GIF file of too many pixels: FFmpeg decodes its first frame when it opens it."""
    with path.open("rb") as file:
        start = file.read(10)
    if start.startswith(b"GIF8"):
        width, height = (int.from_bytes(start[at : at + 2], "little") for at in (6, 8))
        _check_pixels(width, height, where, MAX_FRAME_PIXELS)


@contextmanager
def _video_stream(path: Path, where: str) -> Iterator[tuple[Any, Any]]:
    """Open a video file and yield its container and its first video stream."""
    try:
        import av
    except ImportError:
        raise MissingExtraError(
            "Reading videos needs PyAV, which is not installed: pip install 'divprism[video]'."
        ) from None
    # FFmpeg would print to stderr what the one sentence of the DataError already covers.
    av.logging.set_level(av.logging.PANIC)
    try:
        _check_canvas(path, where)
        options = {"format_whitelist": _CONTAINERS}
        # An absolute path cannot be mistaken for a URL such as "http:..." or "concat:...".
        with av.open(str(path.absolute()), metadata_errors="replace", options=options) as container:
            if not container.streams.video:
                raise DataError(f"{where} contains no video stream.")
            stream = container.streams.video[0]
            # Without this check, decoding would fail with an AttributeError.
            if stream.codec_context is None:
                raise DataError(f"{where} uses a codec that PyAV does not support.")
            yield container, stream
    except DataError:
        raise
    except (av.error.FFmpegError, OSError, ValueError, OverflowError, MemoryError) as error:
        raise DataError(f"{where} is not a readable video: {first_line(error)}.") from None
