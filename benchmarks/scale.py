"""All six scores from 1,000 to 100,000 pairs: time, peak memory, error, and the ratio to three scipy.linalg.eigvalsh.

    python benchmarks/scale.py [--sizes 1000 2000 4000 10000 20000] [--exact-up-to 4000] [--memory 8GB] [--json FILE]
    python benchmarks/scale.py --quick

Clustered data, 768 + 512 wide, float32; `divprism.evaluate` with the default estimator (tolerance 1e-3) against the definition:
kernel matrices in double precision and one eigvalsh for each of K_X, K_T and their product. Beyond --exact-up-to the time of
the definition is extrapolated by n^3 from the largest size measured, and the error is not known; the table says so. Each time
of ours is the best of the repeats; each size runs in a process of its own, whose peak memory is told with the data.

    python benchmarks/scale.py --fourier [--sizes 100000 ... 1000000]

Metric (Fourier, 500 frequencies) over chunks of 10,000 pairs, made on the way: time by pair and peak memory.
"""

import argparse
import json
import resource
import subprocess
import sys
import time

import numpy as np
import scipy.linalg
from exact import clustered_pairs, plain_kernel

import divprism as dp

KERNELS = {"kernel_x": dp.Gaussian(25.0), "kernel_t": dp.Gaussian(0.5)}


def peak_gigabytes() -> float:
    """Largest resident size of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024**2


def ours(n: int, repeats: int, memory: str | None) -> dict:
    """Time and memory of all six scores at once."""
    x, t = clustered_pairs(n)
    best, first = np.inf, 0.0
    for _ in range(repeats):
        start = time.perf_counter()
        found = dp.evaluate(x, t, memory=memory, num_permutations=0, **KERNELS)
        spent = time.perf_counter() - start
        first, best = first or spent, min(best, spent)
    return {
        "n": n,
        "seconds": best,
        "first": first,
        "gigabytes": peak_gigabytes(),
        "entropies": {name: score.entropy for name, score in found.scores.items()},
        "errors": {
            name: score.standard_error / score.value for name, score in found.scores.items()
        },
        "method": found.conditional_vendi.method,
    }


def definition(n: int) -> dict:
    """The logarithms of the scores by three eigendecompositions, and the time that those take: kernels are not counted."""
    x, t = clustered_pairs(n)
    kernel_x, kernel_t = plain_kernel(x, 25.0), plain_kernel(t, 0.5)
    found, seconds = [], 0.0
    for kernel in (kernel_x, kernel_t, kernel_x * kernel_t):
        start = time.perf_counter()
        values = scipy.linalg.eigvalsh(kernel / n)
        seconds += time.perf_counter() - start
        values = values[values > 0]
        found.append(float(-(values @ np.log(values))))
    h_x, h_t, h_joint = found
    entropies = {
        "vendi": h_x,
        "conditional_vendi": h_joint - h_t,
        "information_vendi": h_x + h_t - h_joint,
    }
    return {"n": n, "eigvalsh": seconds, "entropies": entropies}


def stream(n: int) -> dict:
    """Metric over chunks that are made on the way; their making is not timed."""
    metric = dp.Metric(*KERNELS.values(), num_features=500)
    rng = np.random.default_rng(0)
    centres_x, centres_t = (
        rng.standard_normal((500, 768)) * 45 / 768**0.5,
        rng.standard_normal((100, 512)) / 512**0.5,
    )
    seconds = 0.0
    for _ in range(n // 10_000):
        z = rng.integers(0, 500, 10_000)
        x = (centres_x[z] + rng.standard_normal((10_000, 768)) * 25 / 768**0.5).astype(np.float32)
        t = (centres_t[z % 100] + rng.standard_normal((10_000, 512)) * 0.5 / 512**0.5).astype(
            np.float32
        )
        start = time.perf_counter()
        metric.update(x, t)
        seconds += time.perf_counter() - start
    start = time.perf_counter()
    metric.compute()
    seconds += time.perf_counter() - start
    return {"n": n, "seconds": seconds, "gigabytes": peak_gigabytes()}


def apart(what: str, *arguments: object) -> dict:
    """The result of this script's --part in a process of its own."""
    call = [sys.executable, __file__, "--part", what, *map(str, arguments)]
    return json.loads(subprocess.run(call, check=True, capture_output=True, text=True).stdout)


def scale_table(sizes: list[int], exact_up_to: int, repeats: int, memory: str) -> list[dict]:
    """Print a row per size as it is measured."""
    print(
        "| n | divprism (s) | peak (GB) | three eigvalsh (s) | ratio | stated error | error | method |"
    )
    print("|---:|---:|---:|---:|---:|---:|---:|---|")
    rows, largest = [], None
    for n in sizes:
        row = apart("ours", n, repeats if n <= 20_000 else 1, memory)
        if n <= exact_up_to:
            row["exact"] = largest = apart("definition", n)
        elif largest is not None:
            row["extrapolated"] = largest["eigvalsh"] * (n / largest["n"]) ** 3
        if "exact" in row:
            off = max(
                abs(row["entropies"][name] - value)
                for name, value in row["exact"]["entropies"].items()
            )
            peer, error = row["exact"]["eigvalsh"], f"{off:.1e}"
            told = f"{peer:.3g}"
        else:
            peer, error = row.get("extrapolated", np.nan), "-"
            told = f"({peer:.0f})"
        stated = max(row["errors"].values())
        times = (
            f"{row['seconds']:.3g} | {row['gigabytes']:.2f} | {told} | {peer / row['seconds']:.3g}"
        )
        print(f"| {n:,} | {times} | {stated:.1e} | {error} | {row['method']} |", flush=True)
        rows.append(row)
    print(
        "\nIn brackets: extrapolated by n^3 from the largest size measured. Errors are relative, of the worst of the scores."
    )
    return rows


def stream_table(sizes: list[int]) -> list[dict]:
    """Print a row per size as it is measured."""
    print("| n | seconds | microseconds per pair | peak (GB) |\n|---:|---:|---:|---:|")
    rows = []
    for n in sizes:
        row = apart("stream", n)
        print(
            f"| {n:,} | {row['seconds']:.3g} | {1e6 * row['seconds'] / n:.3g} | {row['gigabytes']:.2f} |",
            flush=True,
        )
        rows.append(row)
    return rows


def main() -> None:
    """Parse, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", type=int, nargs="+")
    parser.add_argument("--exact-up-to", type=int, default=4000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--memory", default="6GB")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--fourier", action="store_true")
    parser.add_argument("--json")
    parser.add_argument("--part", nargs="+")
    arguments = parser.parse_args()
    if arguments.part:
        what, n, *rest = arguments.part
        parts = {
            "ours": lambda: ours(int(n), int(rest[0]), rest[1]),
            "definition": lambda: definition(int(n)),
            "stream": lambda: stream(int(n)),
        }
        print(json.dumps(parts[what]()))
        return
    if arguments.fourier:
        rows = stream_table(arguments.sizes or [100_000, 300_000, 1_000_000])
    else:
        sizes = arguments.sizes or (
            [1000, 2000, 5000, 10_000]
            if arguments.quick
            else [1000, 2000, 4000, 10_000, 20_000, 50_000]
        )
        exact_up_to = min(arguments.exact_up_to, 2000) if arguments.quick else arguments.exact_up_to
        rows = scale_table(
            sizes, exact_up_to, 1 if arguments.quick else arguments.repeats, arguments.memory
        )
    if arguments.json:
        with open(arguments.json, "w") as file:
            json.dump(rows, file, indent=1)


if __name__ == "__main__":
    main()
