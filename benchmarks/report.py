"""Measure the size of a report and the time it takes to open.

    python benchmarks/report.py [--samples 5000] [--thumbnails 200]

The outputs are images of coloured noise, which compresses worst. The page is opened in headless
Chromium; the time is the best of five. Needs Debian's chromium and chromium-driver, and the extras
images, report and test.
"""

import argparse
import io
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import PIL.Image

import divprism as dp
from divprism.data.items import Image
from divprism.data.samples import Samples

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from browser import chromium, show

NUM_PROMPTS = 50
NUM_IMAGES = 500  # distinct images; the outputs repeat them
NUM_OPENINGS = 5
LOAD_TIME = (
    "const [entry] = performance.getEntriesByType('navigation');"
    "return entry.loadEventEnd - entry.startTime"
)


def noise_images(count: int, rng: np.random.Generator) -> tuple[Image, ...]:
    """Return images of 256 x 256 pixels: smooth noise with grain, similar to photographs."""
    images = []
    for index in range(count):
        coarse = PIL.Image.fromarray(rng.integers(0, 256, (8, 8, 3), dtype=np.uint8))
        smooth = coarse.resize((256, 256), PIL.Image.Resampling.BICUBIC)
        grain = rng.normal(0, 8, (256, 256, 3))
        pixels = np.clip(np.asarray(smooth) + grain, 0, 255).astype(np.uint8)
        buffer = io.BytesIO()
        PIL.Image.fromarray(pixels).save(buffer, "JPEG", quality=90)
        images.append(Image(buffer.getvalue(), f"images/{index:05d}.jpg"))
    return tuple(images)


def page_of(num_samples: int, num_thumbnails: int) -> str:
    """Score random vectors in place of embedded images, and return the page."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, NUM_PROMPTS, num_samples)
    prompts = rng.standard_normal((NUM_PROMPTS, 32))[labels]
    outputs = np.concatenate([prompts, rng.standard_normal((num_samples, 32))], axis=1)
    images = noise_images(NUM_IMAGES, rng)
    given = Samples(tuple(images[index % NUM_IMAGES] for index in range(num_samples)), prompts)
    start = time.perf_counter()
    result = dp.evaluate(Samples(outputs, prompts, given=given), interval=0.95)
    scored = time.perf_counter()
    page = dp.html_report(result, labels, max_thumbnails=num_thumbnails, num_examples=4)
    written = time.perf_counter()
    print(f"scored in {scored - start:.1f} s, report computed in {written - scored:.1f} s")
    return page


def opening_time(page: str) -> float:
    """Return the shortest time, in seconds, that a browser takes to load the page."""
    with tempfile.TemporaryDirectory() as folder, chromium() as window:
        path = Path(folder) / "report.html"
        path.write_text(page, encoding="utf-8")
        times = []
        for _ in range(NUM_OPENINGS):
            show(window, path)
            times.append(window.execute_script(LOAD_TIME) / 1000)
    return min(times)


def main() -> None:
    """Print the number of thumbnails, the size of the page and the time to open it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--samples", type=int, default=5000)
    parser.add_argument("--thumbnails", type=int, default=200)
    arguments = parser.parse_args()
    page = page_of(arguments.samples, arguments.thumbnails)
    num_thumbnails = page.count("data:image/jpeg;base64,")
    megabytes = len(page.encode()) / 1e6
    print(f"{arguments.samples:,} samples, {num_thumbnails} thumbnails: {megabytes:.2f} MB")
    print(f"opens in {opening_time(page):.2f} s (best of {NUM_OPENINGS})")


if __name__ == "__main__":
    main()
