"""Peak memory and time of order 2 at 50,000 pairs, 768 + 512 wide, float32.

python benchmarks/memory.py [--n 50000]
"""

import argparse
import time

import numpy as np
from measure import peak_gigabytes

import divprism as dp


def main() -> None:
    """Generate pairs, score them, and print the memory, the time and the scores."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--n", type=int, default=50_000)
    n = parser.parse_args().n
    rng = np.random.default_rng(0)
    x = rng.standard_normal((n, 768), dtype=np.float32)
    t = rng.standard_normal((n, 512), dtype=np.float32)
    before = peak_gigabytes()
    start = time.perf_counter()
    result = dp.evaluate(x, t, kernel_x=dp.Gaussian(25.0), kernel_t=dp.Gaussian(20.0), order=2)
    seconds = time.perf_counter() - start
    peak = f"peak {peak_gigabytes():.2f} GB, {before:.2f} GB of it before scoring"
    print(f"n = {n:,}: {peak}; {seconds:.0f} s")
    for name, score in result.scores.items():
        print(f"{name} {float(score):.4f}")


if __name__ == "__main__":
    main()
