"""A million pairs by independent jobs: time and memory of each, and what merging changes.

python benchmarks/shards.py [--n 1000000] [--shards 16] [--num-features 500] [--jobs 1]

Every job is a process of its own, `divprism state` of one .npy shard per side, as an array job of
Slurm would run it; `divprism merge` then makes one result. It is compared with a single `Metric`
that sees all rows in this process.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import divprism as dp

WIDTH_X, WIDTH_T = 128, 64
BANDWIDTH_X, BANDWIDTH_T = 20.0, 12.0
NUM_KINDS = 200  # of prompts
CHUNK_ROWS = 5000  # other chunks than those of the jobs, so that sums are not the same by chance


@dataclass(frozen=True)
class Run:
    """What a process took."""

    seconds: float
    gigabytes: float


def divprism(*arguments: object) -> Run:
    """Run a command in a process of its own, and return its time and peak memory."""
    start = time.perf_counter()
    call = [sys.executable, "-m", "divprism", *map(str, arguments)]
    process = subprocess.Popen(call, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise SystemExit(f"{call} failed with {process.returncode}")
    return Run(time.perf_counter() - start, usage.ru_maxrss / 2**20)


def write_shards(folder: Path, n: int, count: int) -> None:
    """Write outputs and prompts: each prompt is near one of some kinds, and outputs follow it."""
    rng = np.random.default_rng(0)
    kinds = 2 * rng.standard_normal((NUM_KINDS, WIDTH_T), dtype=np.float32)
    means = 2 * rng.standard_normal((NUM_KINDS, WIDTH_X), dtype=np.float32)
    for index in range(count):
        size = n // count + (index < n % count)
        kind = rng.integers(NUM_KINDS, size=size)
        x = means[kind] + rng.standard_normal((size, WIDTH_X), dtype=np.float32)
        t = kinds[kind] + 0.1 * rng.standard_normal((size, WIDTH_T), dtype=np.float32)
        np.save(folder / f"x-{index}.npy", x)
        np.save(folder / f"t-{index}.npy", t)


def one_metric(folder: Path, count: int, num_features: int) -> dp.Evaluation:
    """Return the scores of a single metric that sees all rows."""
    kernels = dp.Gaussian(BANDWIDTH_X), dp.Gaussian(BANDWIDTH_T)
    metric = dp.Metric(*kernels, num_features=num_features)
    for index in range(count):
        x, t = np.load(folder / f"x-{index}.npy"), np.load(folder / f"t-{index}.npy")
        for start in range(0, len(x), CHUNK_ROWS):
            rows = slice(start, start + CHUNK_ROWS)
            metric.update(x[rows], t[rows])
    return metric.compute()


def main() -> None:
    """Write shards, run the jobs, merge their states, and compare with one metric."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--n", type=int, default=1_000_000)
    parser.add_argument("--shards", type=int, default=16)
    parser.add_argument("--num-features", type=int, default=500)
    parser.add_argument("--jobs", type=int, default=1, help="jobs at the same time")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_shards(folder, options.n, options.shards)
        flags = ["--bandwidth-x", BANDWIDTH_X, "--bandwidth-t", BANDWIDTH_T]
        flags += ["--num-features", options.num_features, "--quiet"]

        def job(index: int) -> Run:
            source = (folder / f"x-{index}.npy", "--prompts", folder / f"t-{index}.npy")
            return divprism("state", *source, *flags, "-o", folder / f"state-{index}.npz")

        start = time.perf_counter()
        with ThreadPoolExecutor(options.jobs) as threads:
            runs = list(threads.map(job, range(options.shards)))
        total = time.perf_counter() - start
        times = [run.seconds for run in runs]
        peak = max(run.gigabytes for run in runs)
        print(f"{options.n:,} pairs, {WIDTH_X} + {WIDTH_T} wide, {options.num_features} features")
        print(
            f"{options.shards} jobs, {options.jobs} at a time: {total:.0f} s in all; each ", end=""
        )
        print(f"{min(times):.1f} to {max(times):.1f} s, at most {peak:.2f} GB")
        merged = divprism("merge", *sorted(folder.glob("state-*.npz")), "-o", folder / "all.json")
        print(f"merge: {merged.seconds:.1f} s, {merged.gigabytes:.2f} GB")
        start = time.perf_counter()
        expected = one_metric(folder, options.shards, options.num_features)
        print(f"one metric of all rows: {time.perf_counter() - start:.0f} s")
        scores = json.loads((folder / "all.json").read_text())["scores"]
    for score, value in expected.scores.items():
        found = scores[score]["value"]
        print(f"{score} {found:.6f}, relative difference {abs(found / value - 1):.1e}")


if __name__ == "__main__":
    main()
