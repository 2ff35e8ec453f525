"""A cost model of `evaluate` on a cluster: predicted beside measured time, then extrapolated.

    python benchmarks/cost_model.py [--sizes 5000 10000 20000] [--workers 1 2]

All six scores of n pairs (768 and 512 wide) by Lanczos at tolerance 1e-3. With S sweeps of b = 32
vectors, t tiles of 512 x 512 pairs on half of the matrix, and w workers of one thread:

    time = t (compute + S multiply) / w + S (vectors n + bytes n + delay)

`compute` and `multiply` are the seconds of one tile, `vectors` those of a row of the Krylov space
in the process that asks, `bytes` those to send the vectors of a row and to receive its sums, and
`delay` those of a sweep without any work. Each is measured alone, on this machine, before the first
evaluation; tiles are assumed to be kept.
"""

import argparse
import math
import time
from dataclasses import dataclass
from functools import partial

import numpy as np
from measure import best, print_header, print_row, timed
from reference import BANDWIDTH_T, BANDWIDTH_X, clustered_pairs

import divprism as dp
from divprism.core.operators import HadamardOperator, KernelOperator
from divprism.core.sweep import Sweep
from divprism.engines import RESOURCES, cluster
from divprism.estimators._krylov import BlockKrylov

KERNELS = {"kernel_x": dp.Gaussian(BANDWIDTH_X), "kernel_t": dp.Gaussian(BANDWIDTH_T)}
PROBES, SWEEPS, MATRICES, TILE, BUNDLES = 32, 8, 3, 512, 16

# What is extrapolated, and to how many workers: nobody has measured it.
FAR = (100_000, 1_000_000)
MANY = 64


@dataclass(frozen=True)
class CostModel:
    """Seconds of each step; see the head of this file."""

    compute: float
    multiply: float
    vectors: float
    sent: float
    delay: float

    def seconds(self, n: int, workers: int) -> float:
        """The time of an evaluation."""
        bands = math.ceil(n / TILE)
        tiles = bands * (bands + 1) / 2
        on_workers = tiles * (self.compute + SWEEPS * self.multiply) / workers
        return on_workers + SWEEPS * (n * (self.vectors + self.sent) + self.delay)


def measured_model(client) -> CostModel:
    """Measure each step alone."""
    n = 4096
    x, t = clustered_pairs(n)
    weights = np.full(n, 1 / n)
    options = {"dtype": np.float32, "name": "data"}
    left = KernelOperator.from_data(KERNELS["kernel_x"], x, weights, **options)
    right = KernelOperator.from_data(KERNELS["kernel_t"], t, weights, **options)
    sweep = Sweep.over([HadamardOperator.of(left, right, weights), left, right], RESOURCES)
    runs = sweep.full_bytes / (8 * TILE**2) / sweep.engine.num_workers
    build, multiply = min(sweep.seconds(PROBES) for _ in range(5))
    return CostModel(
        compute=build / runs,
        multiply=multiply / runs,
        vectors=vector_seconds(n) / n,
        sent=sent_seconds(n, client) / n,
        delay=best(partial(idle_tasks, client), 5),
    )


def idle_tasks(client) -> None:
    """As many tasks as a sweep has, without work."""
    client.gather(client.map(float, range(2 * BUNDLES), pure=False))


def vector_seconds(n: int) -> float:
    """Time to extend the Krylov spaces of three matrices by one step, in the mean of all steps."""
    rng = np.random.default_rng(0)
    krylov = BlockKrylov(rng.choice([-1.0, 1.0], (n, PROBES)).astype(np.float32))
    product = rng.standard_normal((n, PROBES))
    seconds = sum(timed(partial(krylov.extend, product)) for _ in range(SWEEPS))
    return MATRICES * seconds / SWEEPS


def sent_seconds(n: int, client) -> float:
    """Time to send vectors in single, and to receive sums in double precision."""
    vectors = np.ones((n, MATRICES * PROBES), np.float32)

    def there_and_back() -> None:
        future = client.scatter(vectors, hash=False)
        client.submit(np.ndarray.astype, future, np.float64, pure=False).result()

    return best(there_and_back, 5)


def evaluated(n: int, client) -> float:
    """Seconds of an evaluation on a cluster."""
    x, t = clustered_pairs(n)
    start = time.perf_counter()
    dp.evaluate(x, t, num_permutations=0, interval=None, engine=client, **KERNELS)
    return time.perf_counter() - start


def main() -> None:
    """Print predicted and measured times, then what the model says of larger clusters."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", type=int, nargs="+", default=[5_000, 10_000, 20_000])
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    arguments = parser.parse_args()
    print_header(["n", "workers", "predicted, s", "measured, s"], ())
    for workers in arguments.workers:
        with cluster(workers=workers) as engine:
            client = engine.client
            model = measured_model(client)
            # Imports of the workers are no cost of an evaluation.
            evaluated(2_000, client)
            for n in arguments.sizes:
                predicted, seconds = model.seconds(n, workers), evaluated(n, client)
                print_row([f"{n:,}", f"{workers}", f"{predicted:.1f}", f"{seconds:.1f}"])
    for n in FAR:
        print_row([f"{n:,}", f"{MANY}", f"{model.seconds(n, MANY):,.0f} (extrapolated)", "-"])


if __name__ == "__main__":
    main()
