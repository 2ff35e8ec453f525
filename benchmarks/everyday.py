"""Processor time of `divprism score` on real files, against an eigenproblem of the same run.

    python benchmarks/everyday.py --data DIR

DIR holds the folders coco_captioners, alpaca_eval and noveltybench_curated; those that are absent
are left out. Each file is scored twice by the command line, with intervals and baselines as by
default: the first time fills the cache of embeddings, the second is measured. Times are seconds of
processor time (user and system, all threads), which other processes disturb less than the clock.
The peer is scipy.linalg.eigvalsh of a 1,000 x 1,000 kernel matrix on one thread, the fastest of
several.
"""

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

# Before NumPy is imported: a BLAS that spins on two threads would be a peer that is easy to beat.
os.environ |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}

import numpy as np
import scipy.linalg
from measure import print_header, print_row

# File, and the seconds that it may take.
FILES = {
    "coco_captioners/data.jsonl.gz": 30.0,
    "alpaca_eval/data.jsonl.gz": 60.0,
    "noveltybench_curated/dev.jsonl.gz": 10.0,
}

COLUMNS = ["file", "CPU (s)", "eigenproblem (s)", "ratio", "target (s)"]


def eigenproblem_seconds(n: int = 1000, repeats: int = 7) -> float:
    """Processor time of all eigenvalues of a Gaussian kernel matrix."""
    x = np.random.default_rng(0).standard_normal((n, 16))
    squares = (x**2).sum(1)
    kernel = np.exp(-(squares[:, None] + squares - 2 * x @ x.T) / 16)
    times = []
    for _ in range(repeats):
        start = time.process_time()
        scipy.linalg.eigvalsh(kernel)
        times.append(time.process_time() - start)
    return min(times)


def score_seconds(path: Path, cache: str) -> float:
    """Processor time of one `divprism score`, its threads included."""
    call = [sys.executable, "-m", "divprism", "score", str(path), "--cache", cache]
    # The command gets two BLAS threads, as on a machine with two cores.
    environment = os.environ | {"OMP_NUM_THREADS": "2", "OPENBLAS_NUM_THREADS": "2"}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(call, env=environment, capture_output=True, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    """Print a row per file."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", type=Path, required=True, help="folder of the data sets")
    data = parser.parse_args().data
    present = {name: target for name, target in FILES.items() if (data / name).exists()}
    if not present:
        raise SystemExit(f"None of {', '.join(FILES)} in {data}.")
    print_header(COLUMNS, texts={"file"})
    for name, target in present.items():
        with tempfile.TemporaryDirectory() as cache:
            score_seconds(data / name, cache)
            seconds = score_seconds(data / name, cache)
        peer = eigenproblem_seconds()
        cells = [name, f"{seconds:.1f}", f"{peer:.3f}", f"{seconds / peer:.0f}", f"{target:.0f}"]
        print_row(cells)


if __name__ == "__main__":
    main()
