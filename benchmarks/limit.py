"""How close the scores come to the speed of the machine's matrix products.

    python benchmarks/limit.py [--n 20000] [--rke-n 50000] [--repeats 3] [--memory 12GB]

Two measurements. The time of `evaluate`, all six scores of n pairs at tolerance 1e-3, over the time
of the products X X' and T T' (768 and 512 wide): what it takes to look at every kernel value once.
And the rate of floating-point operations of exact Conditional-RKE, counting only the half of the
products that symmetry leaves, over the rate of the product X X'.

To compare two checkouts, run this script with PYTHONPATH set to the `src` of each, for example
with --n 4000 --rke-n 8000.
"""

import argparse
from functools import partial

import numpy as np
from measure import best, peak_gigabytes
from reference import BANDWIDTH_T, BANDWIDTH_X, clustered_pairs

import divprism as dp

KERNELS = {"kernel_x": dp.Gaussian(BANDWIDTH_X), "kernel_t": dp.Gaussian(BANDWIDTH_T)}

# Products are measured on blocks, so that their own result does not fill the memory.
BLOCK_ROWS = 4096


def product_rate(x: np.ndarray, repeats: int) -> float:
    """Operations per second of the product of two blocks of rows, with all BLAS threads."""
    a = x[:BLOCK_ROWS]
    b = x[BLOCK_ROWS : 2 * BLOCK_ROWS].copy()
    operations = 2 * len(a) * len(b) * x.shape[1]
    seconds = best(partial(np.matmul, a, b.T), max(5, repeats))
    return operations / seconds


def main() -> None:
    """Measure both and print a line each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--n", type=int, default=20_000)
    parser.add_argument("--rke-n", type=int, default=50_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--memory", help="limit beside the data; default: half of what is free")
    arguments = parser.parse_args()
    x, t = clustered_pairs(max(arguments.n, arguments.rke_n, 2 * BLOCK_ROWS))
    rate_x = product_rate(x, arguments.repeats)
    rate_t = product_rate(t, arguments.repeats)
    print(f"float32 products: {rate_x / 1e9:.0f} and {rate_t / 1e9:.0f} GFlop/s")

    n = arguments.n
    floor = 2 * n**2 * x.shape[1] / rate_x + 2 * n**2 * t.shape[1] / rate_t
    # Up to 5,000 pairs `evaluate` adds random pairings by default, which are not measured here.
    options = {"num_permutations": 0, "memory": arguments.memory, **KERNELS}
    evaluate = partial(dp.evaluate, x[:n], t[:n], **options)
    seconds = best(evaluate, arguments.repeats)
    times = f"{seconds / floor:.2f} times the {floor:.3g} s of the products"
    print(f"evaluate, n = {n:,}: {seconds:.3g} s, {times} (target: 6, goal: 4)")

    n = arguments.rke_n
    repeats = arguments.repeats
    if n > 20_000:
        repeats = 1
    seconds = best(partial(dp.conditional_rke, x[:n], t[:n], **KERNELS), repeats)
    rate = n**2 * (x.shape[1] + t.shape[1]) / seconds
    share = f"{rate / 1e9:.0f} GFlop/s, {rate / rate_x:.2f} of the product X X'"
    print(f"Conditional-RKE, n = {n:,}: {seconds:.3g} s, {share} (target: 0.4, goal: 0.6)")
    peak = f"{peak_gigabytes():.1f} GB"
    print(f"peak memory of all of this: {peak} (Conditional-RKE alone: benchmarks/memory.py)")


if __name__ == "__main__":
    main()
