"""Images per second from files to vectors, against the bare model.

    python benchmarks/embed.py --data FOLDER [--repeats 3]

FOLDER is anything that `divprism score` reads as images. Two bare models run on images that are
already decoded and resized: onnxruntime as it is commonly used (the same graph, batches of 32, a
thread per core), and the embedder itself, which runs one image per thread so that vectors do not
depend on the batch. They are compared with hashing, decoding, resizing and embedding from the
files, into an empty cache.

Then `dp.load` with `dp.embed`, and the command `divprism embed`, are timed with an empty and with a
full cache. With a full cache the command mostly starts a process: the last line shows the time of
one that imports numpy and parses one option with typer. Each time is the best of several.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import onnxruntime
from measure import best, timed

import divprism as dp
from divprism.data.items import Item
from divprism.embedders import _efficientnet
from divprism.embedders.pipeline import embed_items

BATCH = 32

# The least that a command-line tool of this kind does before its own work.
BARE_PROCESS = "import numpy, typer\ndef f(n: int = 0): pass\ntyper.run(f)"


def bare_rates(
    pixels: list[np.ndarray], embedder: dp.EfficientNetLite0, repeats: int
) -> tuple[float, float]:
    """Images per second of onnxruntime in batches, and of the embedder alone."""
    graph = _efficientnet.graph(_efficientnet.read_weights(embedder._weights))
    session = onnxruntime.InferenceSession(graph, providers=["CPUExecutionProvider"])
    starts = range(0, len(pixels), BATCH)
    # Stacked beforehand: copying pixels is no part of the bare model.
    batches = [np.stack(pixels[start : start + BATCH]) for start in starts]

    def run_in_batches() -> None:
        for batch in batches:
            session.run(None, {"pixels": batch})

    def run_alone() -> None:
        for start in starts:
            embedder.embed_batch(pixels[start : start + BATCH])

    in_batches = len(pixels) / best(run_in_batches, repeats)
    alone = len(pixels) / best(run_alone, repeats)
    return in_batches, alone


def embed_from_files(outputs: Sequence[Item], embedder: dp.EfficientNetLite0) -> None:
    """Hash, decode, resize and embed images, into an empty cache."""
    with tempfile.TemporaryDirectory() as folder:
        embed_items(outputs, embedder, cache=dp.Cache(folder))


def embed_in_process(data: Path, cache: str) -> None:
    """Read and embed a folder in this process."""
    dp.embed(dp.load(data), cache=cache)


def embed_by_command(data: Path, cache: str) -> None:
    """Read and embed a folder, and write the vectors, in a process of its own."""
    program = str(Path(sys.executable).with_name("divprism"))
    command = [program, "embed", str(data), "-o", f"{cache}/vectors", "-q"]
    environment = {**os.environ, "DIVPRISM_CACHE": cache}
    subprocess.run(command, check=True, env=environment, stdout=subprocess.DEVNULL)


def cached_times(call: Callable[[str], object], repeats: int) -> str:
    """Seconds of a call with an empty cache folder, and again with the cache that it filled."""
    empty_times = []
    full_times = []
    for _ in range(repeats):
        with tempfile.TemporaryDirectory() as cache:
            empty_times.append(timed(partial(call, cache)))
            full_times.append(best(partial(call, cache), 5))
    empty = min(empty_times)
    full = min(full_times)
    return f"empty cache {empty:.2f} s, full cache {full:.3f} s, ratio {empty / full:.1f}"


def main() -> None:
    """Measure all of it and print a line each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    data, repeats = arguments.data, arguments.repeats
    embedder = dp.EfficientNetLite0(batch_size=BATCH)
    outputs = dp.load(data).outputs
    pixels = [embedder.prepare(item.content(0)) for item in outputs]
    batched, alone = bare_rates(pixels, embedder, repeats)
    whole = len(outputs) / best(partial(embed_from_files, outputs, embedder), repeats)
    print(f"{len(outputs):,} images, images per second:")
    print(f"from files {whole:.0f}, embedder alone {alone:.0f}, onnxruntime {batched:.0f}")
    print(f"ratio to onnxruntime in batches of {BATCH}: {whole / batched:.2f}")
    print(f"ratio to the embedder alone: {whole / alone:.2f}")
    print(f"dp.embed: {cached_times(partial(embed_in_process, data), repeats)}")
    print(f"divprism embed: {cached_times(partial(embed_by_command, data), repeats)}")
    process = [sys.executable, "-c", BARE_PROCESS]
    seconds = best(partial(subprocess.run, process, check=True), 10)
    print(f"a process with numpy and typer: {seconds:.3f} s")


if __name__ == "__main__":
    main()
