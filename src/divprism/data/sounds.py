"""Sounds from untrusted files: decoded to one channel within limits, or refused in one sentence."""

import io
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from divprism.data.wording import first_line
from divprism.errors import DataError, MissingExtraError

__all__ = [
    "MAX_CHANNELS",
    "MAX_RATE",
    "MAX_SECONDS",
    "MIN_RATE",
    "encode_sound",
    "is_sound",
    "open_sound",
]

MIN_RATE, MAX_RATE = 2_000, 384_000
"""Sampling rates, in samples per second, that are read and that embedders may ask for."""
MAX_CHANNELS = 32
"""Sounds of more channels are refused."""
MAX_SECONDS = 1_800
"""Longer sounds are refused: a file of silence takes almost no space, whatever its length."""

_MAX_VALUES = 1 << 29  # samples times channels: half an hour of six channels at 48 kHz
# The resampler gets blocks of this many samples, whatever blocks a format has: the last bits of
# its sums may depend on them.
_BLOCK = 1 << 16
_UNKNOWN_SIZE = 0x7FFF0000  # programs that write to a pipe state such sizes, or none
_SLACK = 0.02  # share of the stated length that may be missing: encoders pad and trim
# Of FFmpeg, without scripts that name other files (HLS, concat).
_CONTAINERS = "wav,flac,mp3,ogg,mov,mp4,m4a,aac,aiff"
# Few decoders see untrusted bytes: a WAV file may name any codec that FFmpeg knows.
_CODECS = frozenset(
    (
        *("aac", "alac", "flac", "mp3", "mp3float", "opus", "vorbis"),
        *("adpcm_ima_wav", "adpcm_ms", "pcm_alaw", "pcm_mulaw", "pcm_u8", "pcm_s8"),
        *("pcm_s16le", "pcm_s24le", "pcm_s32le", "pcm_f32le", "pcm_f64le"),
        *("pcm_s16be", "pcm_s24be", "pcm_s32be", "pcm_f32be", "pcm_f64be"),
    )
)
# A cover is a video stream of one image.
_COVERS = frozenset(("bmp", "gif", "mjpeg", "png", "tiff", "webp"))
# Of WAV and AIFF: the form of the header of a chunk, and the name of the chunk with the sound.
_CHUNKS = {b"RIFF": ("<4sI", b"data"), b"FORM": (">4sI", b"SSND")}
_FLOAT_WAV = 3  # the code of floating-point samples in a WAV file


def is_sound(content: bytes) -> bool:
    r"""Whether bytes begin as a sound file does.

    >>> is_sound(b"fLaC\0\0"), is_sound(b"\x89PNG")
    (True, False)
    """
    if content[:4] in (b"RIFF", b"FORM"):
        return content[8:12] in (b"WAVE", b"AIFF", b"AIFC")
    if content[:4] in (b"fLaC", b"OggS") or content[:3] == b"ID3":
        return True
    if content[4:11] == b"ftypM4A":
        return True
    # Frames of MP3 and AAC begin with eleven bits that are one; those of JPEG have the next zero.
    return content[:1] == b"\xff" and len(content) > 1 and content[1] >= 0xE0


def open_sound(content: bytes, sample_rate: int, where: str) -> np.ndarray:
    """Return an encoded sound as one channel, the mean of its channels, in single precision.

    Full scale is from -1 to 1. Files of integers are read exactly, so that a sound and its copy
    in a lossless format are equal to the bit.

    Parameters
    ----------
    content : bytes
        The encoded sound.
    sample_rate : int
        Samples per second of the result.
    where : str
        Its name in messages.

    Raises
    ------
    DataError
        If the sound is damaged, too long, empty, or in an unsupported format, or has samples that
        are no finite numbers.
    MissingExtraError
        If PyAV is not installed.
    """
    if not content:
        raise DataError(f"{where} is empty (0 bytes).")
    _check_size_of_chunks(content, where)
    with _sound_stream(content, where) as (container, stream):
        rate = stream.codec_context.sample_rate
        chunks = _channel(container, stream, where)
        if rate != sample_rate:
            chunks = _resampled(chunks, rate, sample_rate)
        parts = list(chunks)
    if not parts:
        raise DataError(f"{where} contains no sound.")
    sound = np.concatenate(parts)
    if not np.isfinite(sound).all():
        raise DataError(f"{where} has samples that are NaN or infinite.")
    return sound


def encode_sound(samples: np.ndarray, sample_rate: int) -> bytes:
    """Return samples (n,) or (channels, n) of single precision as a WAV file."""
    channels = np.atleast_2d(samples)
    content = np.ascontiguousarray(channels.T, "<f4").tobytes()
    width = 4 * len(channels)
    form = (_FLOAT_WAV, len(channels), sample_rate, sample_rate * width, width, 32)
    header = b"WAVEfmt " + struct.pack("<IHHIIHH", 16, *form)
    header += b"data" + struct.pack("<I", len(content))
    return b"RIFF" + struct.pack("<I", len(header) + len(content)) + header + content


def _check_size_of_chunks(content: bytes, where: str) -> None:
    """Refuse WAV and AIFF files that end before the size in their header.

    FFmpeg reads them as shorter sounds.
    """
    # By the first chunk: how integers are stored, and which chunk holds the sound.
    layout, sound = _CHUNKS.get(content[:4], (None, None))
    if layout is None:
        return
    # Behind the name of the format, the size of all, and the kind of content.
    position = 12
    while (start := position + 8) <= len(content):
        name, size = struct.unpack_from(layout, content, position)
        if name == sound:
            if len(content) - start < size < _UNKNOWN_SIZE:
                raise DataError(
                    f"{where} is truncated: its header states {size:,} bytes of sound, and "
                    f"{len(content) - start:,} are there."
                )
            return
        # Chunks have an even length.
        position = start + size + size % 2


@contextmanager
def _sound_stream(content: bytes, where: str) -> Iterator[tuple[Any, Any]]:
    """Open a sound and yield its container and its only stream of sound."""
    try:
        import av
    except ImportError:
        raise MissingExtraError(
            "Reading sounds needs PyAV, which is not installed: pip install 'divprism[audio]'."
        ) from None
    # FFmpeg would print to stderr what the one sentence of the DataError already covers.
    av.logging.set_level(av.logging.PANIC)
    options = {"format_whitelist": _CONTAINERS, "codec_whitelist": ",".join(sorted(_CODECS))}
    try:
        # From memory: FFmpeg gets no name, and can open no other file.
        source = io.BytesIO(content)
        with av.open(source, metadata_errors="replace", options=options) as container:
            yield container, _only_stream(container, where)
    except DataError:
        raise
    except (av.error.FFmpegError, OSError, EOFError, ValueError, OverflowError) as error:
        raise DataError(f"{where} is not a readable sound: {_reason(error)}.") from None
    except MemoryError:
        raise DataError(f"{where} is not a readable sound: it needs too much memory.") from None


def _reason(error: Exception) -> str:
    """Return what FFmpeg says, without the file name that it does not have."""
    strerror = getattr(error, "strerror", None)
    return str(strerror or first_line(error)).rstrip(".")


def _only_stream(container: Any, where: str) -> Any:
    """Return the stream of sound; refuse files that are something else, and lying headers."""
    for stream in container.streams.video:
        codec = stream.codec_context
        # A motion JPEG video has the codec of a cover, but more images.
        if codec is None or codec.name not in _COVERS or stream.frames > 1:
            raise DataError(f"{where} is a video; its sound is read from a file of its own.")
    if not container.streams.audio:
        raise DataError(f"{where} contains no sound.")
    stream = container.streams.audio[0]
    if stream.codec_context is None or stream.codec_context.name not in _CODECS:
        raise DataError(f"{where} uses a codec that is not read; convert it to WAV or FLAC.")
    rate, channels = stream.codec_context.sample_rate, stream.codec_context.channels
    if not MIN_RATE <= rate <= MAX_RATE:
        raise DataError(
            f"{where} states {rate:,} samples per second; from {MIN_RATE:,} to {MAX_RATE:,} are "
            "read."
        )
    if not 1 <= channels <= MAX_CHANNELS:
        raise DataError(f"{where} states {channels:,} channels; from 1 to {MAX_CHANNELS} are read.")
    return stream


def _channel(container: Any, stream: Any, where: str) -> Iterator[np.ndarray]:
    """Yield the mean of the channels, frame by frame, as it is decoded."""
    codec = stream.codec_context
    rate, channels = codec.sample_rate, codec.channels
    most = min(MAX_SECONDS * rate, _MAX_VALUES // channels)
    total = 0
    for frame in container.decode(stream):
        # A stream may change midway.
        if (frame.sample_rate, frame.layout.nb_channels) != (rate, channels):
            raise DataError(f"{where} changes its sampling rate or channels midway.")
        total += frame.samples
        if total > most:
            raise DataError(
                f"{where} is longer than {most // rate:,} seconds, the most that is read of a "
                f"sound with {channels} {'channel' if channels == 1 else 'channels'}; cut it."
            )
        yield _mean_of_channels(frame, channels)
    stated = _stated_samples(container, stream, rate)
    if total < (1 - _SLACK) * stated:
        raise DataError(
            f"{where} is truncated: its header states {stated / rate:,.1f} seconds, and "
            f"{total / rate:,.1f} can be decoded."
        )


def _stated_samples(container: Any, stream: Any, rate: int) -> float:
    """Return the length in a header that says it, in samples; 0 where FFmpeg estimates it."""
    if container.format.name.partition(",")[0] not in ("flac", "mov") or not stream.duration:
        return 0
    return float(stream.duration * stream.time_base * rate)


def _mean_of_channels(frame: Any, channels: int) -> np.ndarray:
    values = frame.to_ndarray()
    if not frame.format.is_planar:
        values = values.reshape(-1, channels).T
    scaled = values.astype(np.float64)
    if values.dtype.kind == "u":
        scaled = scaled / 128 - 1  # bytes, of which 128 is silence
    elif values.dtype.kind == "i":
        scaled /= 2.0 ** (8 * values.dtype.itemsize - 1)
    # What overflows is refused with NaN.
    with np.errstate(over="ignore", invalid="ignore"):
        return scaled.mean(axis=0).astype(np.float32)


def _resampled(chunks: Iterator[np.ndarray], rate: int, new_rate: int) -> Iterator[np.ndarray]:
    """Yield sound at another rate, without the frequencies that it cannot hold."""
    import av

    resampler = av.AudioResampler(format="flt", layout="mono", rate=new_rate)
    start = num_read = num_written = 0
    for block, length in _blocks(chunks):
        frame = av.AudioFrame.from_ndarray(block[None], format="flt", layout="mono")
        frame.sample_rate, frame.pts = rate, start
        start += len(block)
        num_read += length
        # The length of the sound so far at the new rate, rounded up: silence that fills is cut.
        most = -(-num_read * new_rate // rate)
        for part in resampler.resample(frame):
            values = part.to_ndarray()[0][: most - num_written]
            num_written += len(values)
            yield values


def _blocks(chunks: Iterator[np.ndarray]) -> Iterator[tuple[np.ndarray, int]]:
    """Yield the same samples in blocks of one length, each with the number of samples in it.

    Silence fills the last one, and another one follows, in which the resampler ends.
    """
    waiting: list[np.ndarray] = []
    count = 0
    for chunk in chunks:
        waiting.append(chunk)
        count += len(chunk)
        if count >= _BLOCK:
            joined = np.concatenate(waiting)
            whole = count - count % _BLOCK
            for start in range(0, whole, _BLOCK):
                yield joined[start : start + _BLOCK], _BLOCK
            waiting, count = [joined[whole:]], count - whole
    if not waiting:
        return
    rest = np.concatenate(waiting)
    yield np.pad(rest, (0, _BLOCK - count)), count
    yield np.zeros(_BLOCK, np.float32), 0
