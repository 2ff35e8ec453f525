"""Large images: small on disk, and decoded within a gigabyte."""

import io
import subprocess
import sys

import numpy as np
import pytest

from divprism.data import media
from divprism.errors import DataError

PIL = pytest.importorskip("PIL.Image")

MODES = ("1", "L", "LA", "P", "RGB", "RGBA", "CMYK", "LAB", "I;16")
MAX_KILOBYTES = 1_000_000


def _tiff(mode, size, **options):
    """Return an image file; pixels are random where the image is small."""
    image = PIL.new(mode, size)
    if size[0] < 100:
        noise = np.random.default_rng(0).integers(0, 255, len(image.tobytes()), np.uint8)
        image.frombytes(noise.tobytes())
    if mode == "P":
        image.putpalette(list(range(256)) * 3)
    buffer = io.BytesIO()
    form = "TIFF"
    if mode in ("LA", "P", "RGBA"):
        form = "PNG"
    image.save(buffer, form, **options)
    return buffer.getvalue()


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("orientation", [1, 6])
def test_an_image_is_the_same_converted_as_a_whole_or_in_strips(mode, orientation, monkeypatch):
    exif = PIL.Exif()
    exif[0x0112] = orientation
    content = _tiff(mode, (7, 31), exif=exif)
    whole = media.open_image(content, "a.png")
    monkeypatch.setattr(media, "_STRIP", 7 * 31 // 5)
    strips = media.open_image(content, "a.png")
    assert whole.mode == strips.mode == "RGB"
    assert strips.size == whole.size
    assert whole.size == {1: (7, 31), 6: (31, 7)}[orientation]
    assert strips.tobytes() == whole.tobytes()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
@pytest.mark.parametrize("mode", ["RGBA", "LAB"])
def test_the_largest_image_takes_less_than_a_gigabyte(mode, tmp_path):
    """Converted as a whole, transparency and other colours took two."""
    path = tmp_path / "a.png"
    fast = {"compression": "tiff_deflate", "compress_level": 1}  # the level is that of PNG
    path.write_bytes(_tiff(mode, (9999, 10_000), **fast))
    code = (
        "import pathlib, sys; from divprism.data.media import open_image\n"
        "image = open_image(pathlib.Path(sys.argv[1]).read_bytes(), 'a.png')\n"
        "peak = pathlib.Path('/proc/self/status').read_text().split('VmHWM:')[1].split()[0]\n"
        "print(image.width, peak)"
    )
    call = [sys.executable, "-c", code, path]
    done = subprocess.run(call, capture_output=True, text=True, check=True)
    width, peak = map(int, done.stdout.split())
    assert width == 9999
    assert peak < MAX_KILOBYTES


def test_images_of_decoders_that_copy_have_a_lower_limit():
    """A lossless WebP file of four kilobytes took 2.7 GB."""
    buffer = io.BytesIO()
    PIL.new("RGB", (6400, 6400)).save(buffer, "WEBP", lossless=True)
    with pytest.raises(DataError, match="at most 40,000,000 pixels are read"):
        media.open_image(buffer.getvalue(), "a.webp")


def test_an_image_of_a_million_rows_is_refused():
    with pytest.raises(DataError, match="1 x 1,000,000 pixels; at most 100,000 on a side"):
        media.open_image(_tiff("L", (1, 1_000_000), compression="tiff_deflate"), "a.tiff")
