"""A million pairs on two processes: order 2 exactly, and order 1 by random features.

    python benchmarks/million.py [--n 1000000] [--features 500] [--only fourier]

Outputs are 128 and prompts 64 wide, in clusters, in two .npy files that the workers open
themselves. Prints the time of each, the result, and the peak memory of each worker, whose limit is
2 GB. At n = 1,000,000 order 2 computes 5e11 pairs of kernel values. The workers keep freed memory,
as those of `--workers` do.
"""

import argparse
import os
import tempfile
import time
from pathlib import Path

import numpy as np

import divprism as dp

WIDTHS = {"x": 128, "t": 64}
CLUSTERS = {"x": 300, "t": 40}
BLOCK_ROWS = 50_000
KERNELS = {"kernel_x": dp.Gaussian(10.0), "kernel_t": dp.Gaussian(7.0)}

# Below the size of the files, so that they stay on disk.
MEMORY = "500MB"
LIMIT = "2GB"

# By default Dask has workers return freed memory at once: order 2 then takes 2.6 times as long.
ENVIRONMENT = {
    "distributed.nanny.pre-spawn-environ": {
        "MALLOC_TRIM_THRESHOLD_": 1 << 27,
        "MALLOC_MMAP_THRESHOLD_": 1 << 25,
    }
}


def write_side(path: Path, n: int, side: str) -> np.ndarray:
    """Write clustered rows block by block, and map them."""
    rng = np.random.default_rng(len(side) + WIDTHS[side])
    centres = rng.standard_normal((CLUSTERS[side], WIDTHS[side]))
    rows = np.lib.format.open_memmap(path, "w+", np.float32, (n, WIDTHS[side]))
    for start in range(0, n, BLOCK_ROWS):
        count = min(BLOCK_ROWS, n - start)
        members = rng.integers(CLUSTERS[side], size=count)
        noise = 0.5 * rng.standard_normal((count, WIDTHS[side]))
        rows[start : start + count] = centres[members] + noise
    rows.flush()
    return np.load(path, mmap_mode="r")


def peak_memory() -> float:
    """Peak resident memory of the process that calls, in GB."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) / 1e6
    raise OSError(f"no peak memory in /proc/{os.getpid()}/status")


def main() -> None:
    """Print a line for each score."""
    import dask
    from distributed import Client, LocalCluster

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--n", type=int, default=1_000_000)
    parser.add_argument("--features", type=int, default=500)
    parser.add_argument("--only", choices=["rke", "fourier"])
    arguments = parser.parse_args()
    fourier = {"estimator": dp.Fourier(arguments.features)}
    # The default would take a sample of the pairs at this size.
    exact = {"estimator": dp.Exact()}
    calls = {"rke": (dp.conditional_rke, exact), "fourier": (dp.conditional_vendi, fourier)}
    options = {"n_workers": 2, "threads_per_worker": 1, "memory_limit": LIMIT}
    with (
        dask.config.set(ENVIRONMENT),
        tempfile.TemporaryDirectory() as folder,
        LocalCluster(**options, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        x = write_side(Path(folder, "x.npy"), arguments.n, "x")
        t = write_side(Path(folder, "t.npy"), arguments.n, "t")
        for name, (score, settings) in calls.items():
            if arguments.only in (None, name):
                start = time.perf_counter()
                value = score(x, t, engine=client, memory=MEMORY, **KERNELS, **settings)
                seconds = time.perf_counter() - start
                peaks = ", ".join(f"{peak:.2f}" for peak in client.run(peak_memory).values())
                print(f"{value}: {seconds:.0f} s, peak of the workers {peaks} GB", flush=True)


if __name__ == "__main__":
    main()
