"""Does the rest hold the model back? Pictures per second from files to vectors, over those of the bare model.

    python benchmarks/embed.py --data FOLDER [--repeats 3]

FOLDER is anything that `divprism score` reads as pictures. Two bare models are measured, both on pictures that are decoded and
resized already: onnxruntime as people run it (the same graph, batches of 32, a thread per core), and the embedder itself, which
runs a picture per thread so that vectors do not depend on the batch. Against them stand hash, decode, resize and model from the
files, with an empty cache that is written. Then `dp.load` and `dp.embed`, and the command `divprism embed`, twice each: from an
empty cache and from a full one. The command starts a process, which takes longer than what the second time has to do: beside
it stands the time of a process that imports numpy and parses one option with typer. The best of several each.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import onnxruntime
from timing import best, timed

import divprism as dp
from divprism.embedders import _efficientnet, embed_items

BATCH = 32


def bare_rates(
    pixels: list[np.ndarray], embedder: dp.EfficientNetLite0, repeats: int
) -> tuple[float, float]:
    """Pictures per second of onnxruntime in batches, and of the embedder alone."""
    graph = _efficientnet.graph(_efficientnet.read_weights(embedder._weights))
    session = onnxruntime.InferenceSession(graph, providers=["CPUExecutionProvider"])
    batches = [np.stack(pixels[start : start + BATCH]) for start in range(0, len(pixels), BATCH)]

    def in_batches() -> None:
        for batch in batches:
            session.run(None, {"pixels": batch})

    def alone() -> None:
        for start in range(0, len(pixels), BATCH):
            embedder.embed_batch(pixels[start : start + BATCH])

    return len(pixels) / best(in_batches, repeats), len(pixels) / best(alone, repeats)


def from_files(outputs: tuple, embedder: dp.EfficientNetLite0) -> None:
    """All of it, into a cache of its own."""
    with tempfile.TemporaryDirectory() as folder:
        embed_items(outputs, embedder, cache=dp.Cache(folder))


def function(data: Path, cache: str) -> None:
    """Read and embed, in this process."""
    dp.embed(dp.load(data), cache=cache)


def command(data: Path, cache: str) -> None:
    """Read, embed and write, in a process of its own."""
    program = [
        str(Path(sys.executable).with_name("divprism")),
        "embed",
        str(data),
        "-o",
        f"{cache}/vectors",
        "-q",
    ]
    environment = {**os.environ, "DIVPRISM_CACHE": cache}
    subprocess.run(program, check=True, env=environment, stdout=subprocess.DEVNULL)


def again(call: Callable[[str], object], repeats: int) -> str:
    """Seconds of a call that gets an empty cache folder, and of the same call with what the first one left there."""
    firsts, seconds = [], []
    for _ in range(repeats):
        with tempfile.TemporaryDirectory() as cache:
            firsts.append(timed(partial(call, cache)))
            seconds.append(best(partial(call, cache), 5))
    first, second = min(firsts), min(seconds)
    return f"first {first:.2f} s, again {second:.3f} s, ratio {first / second:.1f}"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    embedder = dp.EfficientNetLite0(batch_size=BATCH)
    outputs = dp.load(arguments.data).outputs
    pixels = [embedder.prepare(item.content(0)) for item in outputs]
    batched, alone = bare_rates(pixels, embedder, arguments.repeats)
    whole = len(outputs) / best(partial(from_files, outputs, embedder), arguments.repeats)
    print(
        f"{len(outputs):,} pictures a second: from files {whole:.0f}, bare model alone {alone:.0f}, in batches {batched:.0f}"
    )
    print(
        f"ratio to the bare model: {whole / batched:.2f} in batches of {BATCH}, {whole / alone:.2f} as it is run here"
    )
    print(f"dp.embed: {again(partial(function, arguments.data), arguments.repeats)}")
    print(f"divprism embed: {again(partial(command, arguments.data), arguments.repeats)}")
    start = [sys.executable, "-c", "import numpy, typer\ndef f(n: int = 0): pass\ntyper.run(f)"]
    bare = best(partial(subprocess.run, start, check=True), 10)
    print(f"a process with numpy and typer: {bare:.3f} s")


if __name__ == "__main__":
    main()
