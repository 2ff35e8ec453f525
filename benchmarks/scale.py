"""All six scores from 1,000 to 50,000 pairs: time, peak memory and error against the definition.

    python benchmarks/scale.py [--sizes 1000 2000 4000] [--exact-up-to 4000] [--repeats 3]
                               [--memory 6GB] [--json FILE]
    python benchmarks/scale.py --quick

Data are clustered, 768 + 512 wide, float32. `divprism.evaluate` runs with the default estimator
(tolerance 1e-3); the definition takes kernel matrices in double precision and one
scipy.linalg.eigvalsh for each of K_X, K_T and their product. Beyond --exact-up-to the time of the
definition is extrapolated by n^3 from the largest size measured, and the error is unknown. Each
time of divprism is the best of the repeats. Each size runs in a process of its own, whose peak
memory includes the data.

--quick measures 1,000, 2,000, 5,000 and 10,000 pairs, and the definition up to 2,000. To compare
two checkouts, run this script with PYTHONPATH set to the `src` of each.

    python benchmarks/scale.py --fourier [--sizes 100000 300000 1000000]

This measures `Metric` (Fourier, 500 frequencies) on a stream of chunks of 10,000 pairs: time per
pair and peak memory.
"""

import argparse
import json
import math
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import numpy as np
import scipy.linalg
from measure import peak_gigabytes, print_header, print_row, timed, write_rows
from reference import (
    BANDWIDTH_T,
    BANDWIDTH_X,
    NUM_OUTPUT_CLUSTERS,
    NUM_PROMPT_CLUSTERS,
    WIDTH_T,
    WIDTH_X,
    clustered_pairs,
    plain_kernel,
    spectrum_entropy,
)

import divprism as dp

KERNEL_X = dp.Gaussian(BANDWIDTH_X)
KERNEL_T = dp.Gaussian(BANDWIDTH_T)

DEFAULT_SIZES = [1000, 2000, 4000, 10_000, 20_000, 50_000]
QUICK_SIZES = [1000, 2000, 5000, 10_000]
STREAM_SIZES = [100_000, 300_000, 1_000_000]
CHUNK = 10_000

SCALE_COLUMNS = [
    "n",
    "divprism (s)",
    "peak (GB)",
    "three eigvalsh (s)",
    "ratio",
    "stated error",
    "error",
    "method",
]


def measure_divprism(n: int, repeats: int, memory: str) -> dict:
    """Time, memory and errors of all six scores at once."""
    x, t = clustered_pairs(n)
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        result = dp.evaluate(
            x, t, kernel_x=KERNEL_X, kernel_t=KERNEL_T, memory=memory, num_permutations=0
        )
        seconds.append(time.perf_counter() - start)
    entropies = {}
    errors = {}
    for name, score in result.scores.items():
        entropies[name] = score.entropy
        errors[name] = score.standard_error / float(score)
    return {
        "n": n,
        "seconds": min(seconds),
        "first": seconds[0],  # the first call also pays for lazy imports
        "gigabytes": peak_gigabytes(),
        "entropies": entropies,
        "errors": errors,
        "method": result.conditional_vendi.method,
    }


def measure_definition(n: int) -> dict:
    """Logarithms of the scores by the definition, and the time of its three eigvalsh alone."""
    x, t = clustered_pairs(n)
    kernel_x = plain_kernel(x, BANDWIDTH_X)
    kernel_t = plain_kernel(t, BANDWIDTH_T)
    entropies = []
    seconds = 0.0
    for kernel in (kernel_x, kernel_t, kernel_x * kernel_t):
        start = time.perf_counter()
        values = scipy.linalg.eigvalsh(kernel / n)
        seconds += time.perf_counter() - start
        entropies.append(spectrum_entropy(values))
    entropy_x, entropy_t, entropy_joint = entropies
    scores = {
        "vendi": entropy_x,
        "conditional_vendi": entropy_joint - entropy_t,
        "information_vendi": entropy_x + entropy_t - entropy_joint,
    }
    return {"n": n, "eigvalsh": seconds, "entropies": scores}


def measure_stream(n: int) -> dict:
    """Time and memory of `Metric` on a stream of chunks; generating them is not timed."""
    metric = dp.Metric(KERNEL_X, KERNEL_T, num_features=500)
    rng = np.random.default_rng(0)
    centres_x = rng.standard_normal((NUM_OUTPUT_CLUSTERS, WIDTH_X)) * 45 / WIDTH_X**0.5
    centres_t = rng.standard_normal((NUM_PROMPT_CLUSTERS, WIDTH_T)) / WIDTH_T**0.5
    seconds = 0.0
    for _ in range(n // CHUNK):
        cluster = rng.integers(0, NUM_OUTPUT_CLUSTERS, CHUNK)
        noise_x = rng.standard_normal((CHUNK, WIDTH_X)) * 25 / WIDTH_X**0.5
        noise_t = rng.standard_normal((CHUNK, WIDTH_T)) * 0.5 / WIDTH_T**0.5
        x = (centres_x[cluster] + noise_x).astype(np.float32)
        t = (centres_t[cluster % NUM_PROMPT_CLUSTERS] + noise_t).astype(np.float32)
        seconds += timed(partial(metric.update, x, t))
    seconds += timed(metric.compute)
    return {"n": n, "seconds": seconds, "gigabytes": peak_gigabytes()}


def run_part(part: str, n: int, *options: object) -> dict:
    """The result of one measurement, run by this script in a process of its own."""
    # Peak memory never falls within a process: in a shared one, each size would report the
    # largest size so far.
    call = [sys.executable, __file__, "--part", part, str(n), *map(str, options)]
    finished = subprocess.run(call, check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(finished.stdout)


def print_part(part: str, n: str, *options: str) -> None:
    """Run one measurement in this process and print its result as JSON."""
    if part == "divprism":
        repeats, memory = options
        result = measure_divprism(int(n), int(repeats), memory)
    elif part == "definition":
        result = measure_definition(int(n))
    else:
        result = measure_stream(int(n))
    print(json.dumps(result))


def largest_error(row: dict) -> float:
    """Largest difference of the logarithms of the scores from those of the definition."""
    exact = row["exact"]["entropies"]
    return max(abs(row["entropies"][name] - entropy) for name, entropy in exact.items())


def print_scale_row(row: dict) -> None:
    """Print the row of one size."""
    peer = math.nan
    peer_text = ratio = error = "-"
    if "exact" in row:
        peer = row["exact"]["eigvalsh"]
        peer_text = f"{peer:.3g}"
        error = f"{largest_error(row):.1e}"
    elif "extrapolated" in row:
        peer = row["extrapolated"]
        peer_text = f"({peer:.1f})"
    if not math.isnan(peer):
        ratio = f"{peer / row['seconds']:.3g}"
    size = [f"{row['n']:,}", f"{row['seconds']:.3g}", f"{row['gigabytes']:.2f}"]
    stated = f"{max(row['errors'].values()):.1e}"
    print_row([*size, peer_text, ratio, stated, error, row["method"]])


def scale_table(sizes: list[int], exact_up_to: int, repeats: int, memory: str) -> list[dict]:
    """Measure every size and print its row at once."""
    print_header(SCALE_COLUMNS, texts=("method",))
    rows = []
    largest = None
    for n in sizes:
        # Beyond 20,000 pairs a run takes minutes, and its noise no longer matters.
        runs = repeats
        if n > 20_000:
            runs = 1
        row = run_part("divprism", n, runs, memory)
        if n <= exact_up_to:
            row["exact"] = largest = run_part("definition", n)
        elif largest is not None:
            row["extrapolated"] = largest["eigvalsh"] * (n / largest["n"]) ** 3
        print_scale_row(row)
        rows.append(row)
    print("\nTimes in brackets are extrapolated by n^3 from the largest size measured.")
    print("Errors are relative, for the worst score.")
    return rows


def stream_table(sizes: list[int]) -> list[dict]:
    """Measure a stream of every size and print its row at once."""
    print_header(["n", "seconds", "microseconds per pair", "peak (GB)"], texts=())
    rows = []
    for n in sizes:
        row = run_part("stream", n)
        per_pair = 1e6 * row["seconds"] / n
        print_row([f"{n:,}", f"{row['seconds']:.3g}", f"{per_pair:.3g}", f"{row['gigabytes']:.2f}"])
        rows.append(row)
    return rows


def main() -> None:
    """Measure the scores, or a stream with --fourier, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", type=int, nargs="+")
    parser.add_argument("--exact-up-to", type=int, default=4000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--memory", default="6GB")
    parser.add_argument("--quick", action="store_true", help="four sizes up to 10,000")
    parser.add_argument("--fourier", action="store_true", help="measure a stream instead")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--part", nargs="+", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.part:
        print_part(*arguments.part)
        return
    exact_up_to = arguments.exact_up_to
    sizes = DEFAULT_SIZES
    if arguments.quick:
        sizes = QUICK_SIZES
        exact_up_to = min(exact_up_to, 2000)
    if arguments.fourier:
        rows = stream_table(arguments.sizes or STREAM_SIZES)
    else:
        rows = scale_table(
            arguments.sizes or sizes, exact_up_to, arguments.repeats, arguments.memory
        )
    write_rows(rows, arguments.json)


if __name__ == "__main__":
    main()
