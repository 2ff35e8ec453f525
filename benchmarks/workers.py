"""Two processes of a Dask cluster beside two threads: time, and bytes that pass the client.

    python benchmarks/workers.py [--sizes 5000 10000 20000] [--repeats 2]

All six scores of n pairs (768 and 512 wide) at tolerance 1e-3. Bytes are those of Dask's own
counters: what workers sent, without what they sent to each other, and the sizes that the scheduler
notes for what the client sent. They are compared with the sums of one sweep, which are three
matrices of n rows in double precision.
"""

import argparse
from functools import partial
from unittest.mock import patch

from measure import best, print_header, print_row
from reference import BANDWIDTH_T, BANDWIDTH_X, clustered_pairs

import divprism as dp
from divprism.core.sweep import Sweep
from divprism.engines import cluster

KERNELS = {"kernel_x": dp.Gaussian(BANDWIDTH_X), "kernel_t": dp.Gaussian(BANDWIDTH_T)}


class Counter:
    """Counts sweeps, their sums, and the bytes between client and workers."""

    def __init__(self, client) -> None:
        self.client = client
        self.sums = self.sent = self.sweeps = 0

    def run(self, sweep, vectors=None, **options):
        """A sweep, counted."""
        products, squares = self.original(sweep, vectors, **options)
        self.sweeps += 1
        self.sums += sum(product.nbytes for product in products if product is not None)
        return products, squares

    def scatter(self, values, **options):
        """Data from the client to a worker, counted."""
        futures = self.send(values, **options)
        keys = [future.key for future in futures]
        sizes = self.client.run_on_scheduler(_sizes, keys=keys)
        self.sent += sum(sizes)
        return futures

    def counted(self, call) -> tuple[int, int]:
        """Bytes that came to the client during a call, and bytes that it sent."""
        self.original, self.send = Sweep.run, self.client.scatter
        before = self._received()

        def run(sweep, vectors=None, **options):
            return self.run(sweep, vectors, **options)

        with (
            patch.object(Sweep, "run", run),
            patch.object(self.client, "scatter", self.scatter),
        ):
            call()
        return self._received() - before, self.sent

    def _received(self) -> int:
        """Bytes that workers sent to anybody but workers."""
        counts = self.client.run(_transfers).values()
        return sum(outgoing - incoming for outgoing, incoming in counts)


def _sizes(dask_scheduler, keys) -> list[int]:
    return [dask_scheduler.tasks[key].nbytes for key in keys]


def _transfers(dask_worker) -> tuple[int, int]:
    incoming = sum(entry["total"] for entry in dask_worker.transfer_incoming_log)
    return dask_worker.transfer_outgoing_bytes_total, incoming


def measure(n: int, client, repeats: int) -> list[str]:
    """One row of the table."""
    x, t = clustered_pairs(n)
    evaluate = partial(dp.evaluate, x, t, num_permutations=0, **KERNELS)
    in_threads = best(evaluate, repeats)
    in_processes = best(partial(evaluate, engine=client), repeats)
    counter = Counter(client)
    received, sent = counter.counted(partial(evaluate, engine=client))
    # Both sides once, before the first sweep.
    points = x.nbytes + t.nbytes
    through = (received + sent - points) / counter.sums
    return [
        f"{n:,}",
        f"{in_threads:.2f}",
        f"{in_processes:.2f}",
        f"{in_processes / in_threads:.2f}",
        f"{counter.sweeps}",
        f"{through:.2f}",
    ]


def main() -> None:
    """Print a table with one row for each size."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", type=int, nargs="+", default=[5_000, 10_000, 20_000])
    parser.add_argument("--repeats", type=int, default=2)
    arguments = parser.parse_args()
    columns = ["n", "2 threads, s", "2 processes, s", "ratio", "sweeps", "bytes / sums"]
    # As `--workers 2` does.
    with cluster(workers=2) as engine:
        print_header(columns, ())
        for n in arguments.sizes:
            print_row(measure(n, engine.client, arguments.repeats))


if __name__ == "__main__":
    main()
