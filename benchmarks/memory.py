"""Peak memory and time of order 2 at 50,000 pairs, 768 + 512 wide, float32.

python benchmarks/memory.py [--n 50000]
"""

import argparse
import resource
import time

import numpy as np

import divprism as dp


def peak_gigabytes() -> float:
    """Largest resident size of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024**2


def main() -> None:
    """Draw the data, score them, print what it took."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--n", type=int, default=50_000)
    n = parser.parse_args().n
    rng = np.random.default_rng(0)
    x, t = (rng.standard_normal((n, d), dtype=np.float32) for d in (768, 512))
    data = peak_gigabytes()
    start = time.perf_counter()
    result = dp.evaluate(x, t, kernel_x=dp.Gaussian(25.0), kernel_t=dp.Gaussian(20.0), order=2)
    seconds = time.perf_counter() - start
    print(
        f"n = {n:,}: peak {peak_gigabytes():.2f} GB, of which {data:.2f} GB with the data loaded; {seconds:.0f} s"
    )
    print({name: round(float(score), 4) for name, score in result.scores.items()})


if __name__ == "__main__":
    main()
