"""How close to the machine: times as multiples of float32 matrix products of the same shapes, measured in the same run.

    python benchmarks/limit.py [--n 20000] [--rke-n 50000] [--repeats 3]

Two lines. `evaluate`, all six scores of n pairs at tolerance 1e-3, over the time of the products X X' and T T' (768 and 512
wide), which is what it takes to look at every kernel value once. And exact Conditional-RKE: its rate of floating-point
operations, counting only the half of the products that symmetry leaves, over the rate of the product X X'. A product is
measured on blocks of 4,096 rows, so that its own result does not fill the memory; the best of several.
"""

import argparse
import resource

import numpy as np
from exact import clustered_pairs
from timing import best

import divprism as dp

KERNELS = {"kernel_x": dp.Gaussian(25.0), "kernel_t": dp.Gaussian(0.5)}


def product_rate(x: np.ndarray, repeats: int) -> float:
    """Operations per second of A B', A and B of 4,096 rows; all BLAS threads."""
    a, b = x[:4096], x[4096:8192].copy()
    return 2 * a.shape[0] * b.shape[0] * x.shape[1] / best(lambda: a @ b.T, max(5, repeats))


def main() -> None:
    """Measure both lines and print them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--n", type=int, default=20_000)
    parser.add_argument("--rke-n", type=int, default=50_000)
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    x, t = clustered_pairs(max(arguments.n, arguments.rke_n))
    rates = product_rate(x, arguments.repeats), product_rate(t, arguments.repeats)
    print(f"float32 products: {rates[0] / 1e9:.0f} and {rates[1] / 1e9:.0f} GFlop/s")

    n = arguments.n
    floor = 2 * n**2 * x.shape[1] / rates[0] + 2 * n**2 * t.shape[1] / rates[1]
    seconds = best(lambda: dp.evaluate(x[:n], t[:n], **KERNELS), arguments.repeats)
    times = f"{seconds / floor:.2f} times the {floor:.1f} s of the products"
    print(f"evaluate, n = {n:,}: {seconds:.1f} s, {times} (asked: 6, goal: 4)")

    n = arguments.rke_n
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    seconds = best(lambda: dp.conditional_rke(x[:n], t[:n], **KERNELS), 1)
    rate = n**2 * (x.shape[1] + t.shape[1]) / seconds
    peak = max(before, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss) / 1024**2
    print(
        f"Conditional-RKE, n = {n:,}: {seconds:.1f} s, {rate / 1e9:.0f} GFlop/s, {rate / rates[0]:.2f} of the product's "
        f"(asked: 0.4, goal: 0.6); peak of the process {peak:.1f} GB (benchmarks/memory.py: of this alone)"
    )


if __name__ == "__main__":
    main()
