"""Time and peak memory of `dp.select` on clustered vectors, a row for each order.

    python benchmarks/selection.py [--n 100000] [--k 1000] [--width 256] [--orders 2 1]

Each order runs in a process of its own, because memory that was used once stays with a process.
Vectors are float32 in 200 clusters. The time is that of the whole call: bandwidth, choice, and the
random subsets that the result is compared with. Beside other jobs, time of the processor says more.
"""

import argparse
import multiprocessing
import time
from pathlib import Path

import numpy as np
from measure import peak_gigabytes, print_header, print_row, timed, write_rows

import divprism as dp

COLUMNS = ["n", "k", "width", "order", "seconds", "CPU (s)", "peak (GB)", "subset", "random"]


def clustered(n: int, width: int) -> np.ndarray:
    """Vectors in 200 clusters."""
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(200, width)).astype(np.float32)
    noise = rng.normal(size=(n, width)).astype(np.float32)
    return centres[rng.integers(200, size=n)] + np.float32(0.7) * noise


def measure(n: int, k: int, width: int, order: float) -> dict:
    """Time, memory and scores of one selection."""
    x = clustered(n, width)
    results: list[dp.Selection] = []
    start = time.process_time()
    seconds = timed(lambda: results.append(dp.select(x, k=k, order=order)))
    processor = time.process_time() - start
    (result,) = results
    return {
        "n": n,
        "k": k,
        "width": width,
        "order": order,
        "seconds": seconds,
        "processor": processor,
        "peak": peak_gigabytes(),
        "subset": result.score,
        "random": result.random.mean,
    }


def main() -> None:
    """Print a row for each order."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--n", type=int, default=100_000)
    parser.add_argument("--k", type=int, default=1000)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--orders", type=float, nargs="+", default=[2, 1])
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    print_header(COLUMNS, set())
    rows = []
    for order in options.orders:
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            row = pool.apply(measure, (options.n, options.k, options.width, order))
        rows.append(row)
        formats = ("{:,}", "{:,}", "{}", "{:g}", "{:.0f}", "{:.0f}", "{:.2f}", "{:.2f}", "{:.2f}")
        print_row(form.format(value) for form, value in zip(formats, row.values(), strict=True))
    write_rows(rows, options.json)


if __name__ == "__main__":
    main()
