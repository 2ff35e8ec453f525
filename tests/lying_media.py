"""Images, videos and sounds that are small on disk and large or slow to decode.

Each function takes a random generator, so that a run with another seed tries other sizes.
"""

import io
import re
import struct
import tempfile
import zlib
from pathlib import Path

import numpy as np
from PIL import Image
from sample_files import encoded_sound, tone, wav_bytes, write_video

from divprism.data.sounds import encode_sound

_MARKER = re.compile(rb"\xff[^\x00\xd0-\xd7\xff]")


def jpeg_segments(content):
    """Return the segments of a JPEG file, the data of scans included, without start and end."""
    segments, position = [], 2
    while content[position + 1] != 0xD9:
        end = position + 2 + int.from_bytes(content[position + 2 : position + 4], "big")
        if content[position + 1] == 0xDA:
            end = _MARKER.search(content, end).start()
        segments.append(content[position:end])
        position = end
    return segments


def progressive(side, count, mode="L", which=-1):
    """Return a progressive JPEG whose scan is repeated."""
    buffer = io.BytesIO()
    Image.new(mode, (side, side), 128).save(buffer, "JPEG", progressive=True)
    segments = jpeg_segments(buffer.getvalue())
    scan = [segment for segment in segments if segment[1] == 0xDA][which]
    return b"\xff\xd8" + b"".join(segments) + scan * count + b"\xff\xd9"


def jpeg_scans(rng):
    return progressive(int(rng.integers(500, 2000)), int(rng.integers(200, 6000)))


def jpeg_first_scans(rng):
    return progressive(int(rng.integers(500, 2000)), int(rng.integers(200, 6000)), which=1)


def jpeg_color_scans(rng):
    return progressive(int(rng.integers(200, 500)), int(rng.integers(200, 6000)), "RGB")


def jpeg_scans_of_a_large_image(rng):
    return progressive(9000, int(rng.integers(40, 80)))


def jpeg_many_segments(rng):
    content = progressive(64, 0)
    return content[:2] + b"\xff\xfe\x00\x02" * int(rng.integers(20_000, 50_000)) + content[2:]


def jpeg_filling(rng):
    # Pillow reads the bytes between segments one by one.
    content = progressive(64, 0)
    filling = rng.choice([b"\xff", b"\xff\x00", b"\xff\x01", b"\xff\xd0"])
    return content[:2] + bytes(filling) * int(rng.integers(30, 50)) * 1_000_000 + content[2:]


def ppm_comments(rng):
    # Pillow copies the rest of a block for each comment.
    comments = b"#a\n" * int(rng.integers(3_000_000, 4_000_000))
    return b"P3 4 4 255\n" + comments + b"1 " * 48


def chunk(kind, content):
    """Return a chunk of a PNG file."""
    checksum = zlib.crc32(kind + content)
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", checksum)


def _png(*chunks, side=8):
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", side, side, 8, 0, 0, 0, 0))
    data = chunk(b"IDAT", zlib.compress(bytes(side * (side + 1))))
    return b"\x89PNG\r\n\x1a\n" + header + b"".join(chunks) + data + chunk(b"IEND", b"")


def png_profile(rng):
    size = int(rng.integers(100, 200)) << 20
    return _png(chunk(b"iCCP", b"a\0\0" + zlib.compress(bytes(size))))


def png_text(rng):
    size = int(rng.integers(100, 200)) << 20
    return _png(chunk(b"zTXt", b"a\0\0" + zlib.compress(bytes(size))))


def png_pixels(rng):
    header = struct.pack(">IIBBBBB", int(rng.integers(2**20, 2**31)), 2**14, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", b"") + chunk(b"IEND", b"")


def png_rows(rng):
    """Rows of one pixel, of which each has a pointer."""
    height = int(rng.integers(90_000_000, 99_999_999))
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", 1, height, 1, 0, 0, 0, 0))
    data = chunk(b"IDAT", zlib.compress(bytes(2 * height), 1))
    return b"\x89PNG\r\n\x1a\n" + header + data + chunk(b"IEND", b"")


def webp_pixels(rng):
    buffer = io.BytesIO()
    Image.new("RGBA", (int(rng.integers(7000, 9000)), 7000)).save(buffer, "WEBP", lossless=True)
    return buffer.getvalue()


def jpeg_progressive_pixels(rng):
    return progressive(int(rng.integers(7000, 9000)), 0)


def gif_canvas(rng):
    side = int(rng.integers(30_000, 65_535))
    return (
        b"GIF89a" + struct.pack("<HHBBB", side, side, 0, 0, 0) + b"\x2c" + bytes(9) + b"\x02\x00;"
    )


def bmp_pixels(rng):
    size = int(rng.integers(20_000, 2**31 - 1))
    info = struct.pack("<IiiHHIIiiII", 40, size, size, 1, 24, 0, 0, 0, 0, 0, 0)
    return b"BM" + struct.pack("<IHHI", 54, 0, 0, 54) + info


def ppm_pixels(rng):
    return f"P6 {int(rng.integers(10**5, 10**9))} 99999 255\n".encode() + bytes(99)


def tiff_pixels(rng):
    tags = [(256, 4, 1, 2**20), (257, 4, 1, 2**20), (258, 3, 1, 8), (259, 3, 1, 1)]
    tags += [(262, 3, 1, 1), (273, 4, 1, 8), (277, 3, 1, 1), (279, 4, 1, 2**30)]
    entries = b"".join(struct.pack("<HHII", *tag) for tag in tags)
    return b"II*\0" + struct.pack("<IH", 8, len(tags)) + entries + bytes(4)


def tiff_overlapping_tags(rng):
    """Thousands of tags that all contain the whole file."""
    count, size = int(rng.integers(2000, 4000)), 200_000
    entries = [struct.pack("<HHII", 1000 + index, 7, size, 8) for index in range(count)]
    content = b"II*\0" + struct.pack("<IH", 8, count) + b"".join(entries) + bytes(4)
    return content.ljust(size + 8, b"\0")


def svg(rng):
    return b'<svg xmlns="http://www.w3.org/2000/svg"><image href="file:///etc/passwd"/></svg>'


IMAGES = {
    make.__name__: make
    for make in (
        *(jpeg_scans, jpeg_first_scans, jpeg_color_scans, jpeg_scans_of_a_large_image),
        *(jpeg_many_segments, png_profile, png_text, png_pixels, gif_canvas, bmp_pixels),
        *(ppm_pixels, tiff_pixels, tiff_overlapping_tags, svg, jpeg_filling, ppm_comments),
        *(png_rows, webp_pixels, jpeg_progressive_pixels),
    )
}
"""Images that must be refused, by name."""


def _gif(side, frames):
    """Return an animation whose frames change one pixel of a large canvas."""
    start = b"GIF89a" + struct.pack("<HHBBB", side, side, 0x80, 0, 0) + bytes(3) + b"\xff" * 3
    frame = b"\x21\xf9\x04" + bytes(5)
    frame += b"\x2c" + struct.pack("<HHHHB", 0, 0, 1, 1, 0) + b"\x02\x02\x44\x01\x00"
    return start + frame * frames + b";"


def gif_frames(rng):
    return _gif(int(rng.integers(2000, 6000)), int(rng.integers(2000, 9000)))


def gif_more_frames(rng):
    return _gif(16, int(rng.integers(100_001, 120_000)))


def mp4_lying_count(rng):
    """A video whose header claims four billion frames."""
    with tempfile.TemporaryDirectory() as folder:
        content = bytearray(write_video(Path(folder) / "a.mp4", frames=3).read_bytes())
    start = content.find(b"stsz")
    content[start + 12 : start + 16] = b"\xff\xff\xff" + bytes([int(rng.integers(256))])
    return bytes(content)


def playlist(rng):
    return b"#EXTM3U\n#EXTINF:10,\nfile:///etc/passwd\n"


VIDEOS = {
    "gif_frames.gif": gif_frames,
    "gif_more_frames.gif": gif_more_frames,
    "gif_canvas.gif": gif_canvas,
    "mp4_lying_count.mp4": mp4_lying_count,
    "playlist.mp4": playlist,
}
"""Videos that must be refused, by file name."""


def _wav(**changes):
    """Return a WAV file of half a second whose header has other numbers, by their offset."""
    content = bytearray(wav_bytes(tone()))
    offsets = {"channels": (22, "<H"), "rate": (24, "<I"), "bits": (34, "<H"), "size": (40, "<I")}
    for name, value in changes.items():
        start, form = offsets[name]
        struct.pack_into(form, content, start, value)
    return bytes(content)


def wav_of_hours(rng):
    return _wav(size=16_000 * 2 * 3600 * int(rng.integers(2, 9)))


def wav_rate(rng):
    return _wav(rate=10**9 + int(rng.integers(1000)))


def wav_rate_zero(rng):
    return _wav(rate=0)


def wav_channels(rng):
    return _wav(channels=int(rng.integers(33, 65_535)))


def wav_bits(rng):
    return _wav(bits=int(rng.integers(65, 65_535)))


def wav_cut(rng):
    content = _wav()
    return content[: int(rng.integers(45, len(content)))]


def wav_header(rng):
    return _wav(size=0)[:44]


def wav_nan(rng):
    samples = tone().astype("<f4") / 32768
    samples[int(rng.integers(len(samples)))] = [np.nan, np.inf][int(rng.integers(2))]
    return encode_sound(samples, 16_000)


def video_as_wav(rng):
    with tempfile.TemporaryDirectory() as folder:
        return write_video(Path(folder) / "a.mp4", frames=3).read_bytes()


def text_as_mp3(rng):
    return b"This is a text, and no sound at all. " * int(rng.integers(1, 100))


def flac_cut(rng):
    content = encoded_sound(tone(seconds=2), "flac")
    return content[: int(rng.integers(9_000, len(content) - 1_000))]


def flac_silence(rng):
    """Hours of silence in a few kilobytes."""
    content = encoded_sound(np.zeros(4096 * 8, "<i2"), "flac", 8_000)
    start = content.index(b"\xff\xf8")
    frames = content[start:]
    return content[:start] + frames * (int(rng.integers(2, 4)) * 8_000 * 3_600 // (4096 * 8))


def playlist_as_mp3(rng):
    return playlist(rng)


def nothing(rng):
    return b""


SOUNDS = {
    "wav_of_hours.wav": wav_of_hours,
    "wav_rate.wav": wav_rate,
    "wav_rate_zero.wav": wav_rate_zero,
    "wav_channels.wav": wav_channels,
    "wav_bits.wav": wav_bits,
    "wav_cut.wav": wav_cut,
    "wav_header.wav": wav_header,
    "wav_nan.wav": wav_nan,
    "video.wav": video_as_wav,
    "text.mp3": text_as_mp3,
    "flac_cut.flac": flac_cut,
    "flac_silence.flac": flac_silence,
    "playlist.mp3": playlist_as_mp3,
    "nothing.ogg": nothing,
}
"""Sounds that must be refused, by file name."""
