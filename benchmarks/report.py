"""How large a report is and how fast it opens: python benchmarks/report.py [--samples 5000] [--thumbnails 200].

Pictures of coloured noise stand for outputs, for noise compresses worst; the page is opened in headless Chromium, best of five.
Needs Debian's chromium and chromium-driver, and the extras images, report and test.
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
from divprism.data.samples import Image, Samples

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from browser import chromium, show


def images(count: int, rng: np.random.Generator) -> tuple[Image, ...]:
    """Pictures of 256 x 256: smooth noise with grain, as a photograph has it."""
    made = []
    for place in range(count):
        rough = PIL.Image.fromarray(rng.integers(0, 256, (8, 8, 3), dtype=np.uint8)).resize(
            (256, 256), PIL.Image.Resampling.BICUBIC
        )
        grain = rng.normal(0, 8, (256, 256, 3))
        pixels = np.clip(np.asarray(rough) + grain, 0, 255).astype(np.uint8)
        buffer = io.BytesIO()
        PIL.Image.fromarray(pixels).save(buffer, "JPEG", quality=90)
        made.append(Image(buffer.getvalue(), f"images/{place:05d}.jpg"))
    return tuple(made)


def main() -> None:
    """Score vectors that stand for the pictures, write the page, open it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, default=5000)
    parser.add_argument("--thumbnails", type=int, default=200)
    arguments = parser.parse_args()
    rng = np.random.default_rng(0)
    n, kinds = arguments.samples, 50
    labels = rng.integers(0, kinds, n)
    prompts = rng.standard_normal((kinds, 32))[labels]
    outputs = np.concatenate([prompts, rng.standard_normal((n, 32))], axis=1)
    few = images(500, rng)
    given = Samples(tuple(few[place % len(few)] for place in range(n)), prompts)
    start = time.perf_counter()
    result = dp.evaluate(Samples(outputs, prompts, given=given), interval=0.95)
    scored = time.perf_counter()
    page = dp.html_report(result, labels, max_thumbnails=arguments.thumbnails, num_examples=4)
    print(f"scored in {scored - start:.1f} s, report made in {time.perf_counter() - scored:.1f} s")
    with tempfile.TemporaryDirectory() as folder, chromium() as window:
        path = Path(folder) / "report.html"
        path.write_text(page, encoding="utf-8")
        times = []
        for _ in range(5):
            show(window, path)
            timing = "const [t] = performance.getEntriesByType('navigation'); return t.loadEventEnd - t.startTime"
            times.append(window.execute_script(timing) / 1000)
    thumbnails = page.count("data:image/jpeg;base64,")
    print(
        f"{n:,} samples, {thumbnails} thumbnails: {len(page.encode()) / 1e6:.2f} MB, opens in {min(times):.2f} s (best of 5)"
    )


if __name__ == "__main__":
    main()
