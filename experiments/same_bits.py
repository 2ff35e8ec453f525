"""Do threads and clusters of one, two and three processes give the same bits?

    python experiments/same_bits.py [--sizes 2000 8000]

All scores of n pairs (64 and 32 wide, four outputs to a prompt) by every estimator, at orders 1, 2
and 0.5, truncated and not, with weights. Each is computed by threads, then on clusters of one, two
and three processes, and on a cluster of two of which one is killed with SIGKILL in the middle of a
sweep. Prints how many numbers differ from those of threads, in any bit.
"""

import argparse
import os
import signal
from collections.abc import Callable

import numpy as np

import divprism as dp

KERNELS = {"kernel_x": dp.Gaussian(9.0), "kernel_t": dp.Gaussian(6.0)}
LANCZOS = {"estimator": dp.Lanczos(num_probes=16, depth=6)}

SETTINGS = {
    "Lanczos, order 1": LANCZOS,
    "order 2": {"order": 2},
    "Lanczos, order 0.5": {**LANCZOS, "order": 0.5},
    "Lanczos, truncated": {**LANCZOS, "truncation": 50},
    "Nystrom": {"estimator": dp.Nystrom(200)},
    "Nystrom, truncated": {"estimator": dp.Nystrom(200), "truncation": 20},
    "Fourier": {"estimator": dp.Fourier(200)},
    "Fourier, order 0.5": {"estimator": dp.Fourier(200), "order": 0.5},
    "Subsample": {"estimator": dp.Subsample(1000), "order": 2},
    "intervals": {**LANCZOS, "interval": 0.95},
}


def pairs(n: int) -> tuple[np.ndarray, np.ndarray]:
    """Outputs and repeated prompts."""
    rng = np.random.default_rng(0)
    t = np.repeat(rng.standard_normal((n // 4, 32)), 4, axis=0)
    return rng.standard_normal((n, 64)).astype(np.float32), t.astype(np.float32)


def numbers(n: int, settings: dict, **resources) -> list[float]:
    """Scores, errors and intervals of an evaluation."""
    x, t = pairs(n)
    options = {"num_permutations": 0, "interval": None, **KERNELS, **settings}
    result = dp.evaluate(x, t, **options, **resources)
    found = []
    for name, score in result.scores.items():
        found += [float(score), score.standard_error]
        interval = result.intervals.get(name)
        if interval is not None:
            found += [interval.low, interval.high]
    return found


def weighted(n: int, settings: dict, **resources) -> list[float]:
    """One score of weighted pairs."""
    x, t = pairs(n)
    weights = np.arange(1.0, n + 1)
    options = {**KERNELS, **settings, "weights": weights / weights.sum()}
    score = dp.conditional_vendi(x, t, **options, **resources)
    return [float(score), score.standard_error]


def killer(client) -> Callable[[str, float], None]:
    """A progress function that kills one worker when a sweep has begun."""
    killed: list[int] = []

    def progress(text: str, share: float) -> None:
        if share > 0.1 and not killed:
            killed.extend(client.run(os.getpid).values())
            os.kill(killed[0], signal.SIGKILL)

    return progress


def main() -> None:
    """Print one line for each size and engine."""
    from distributed import Client, LocalCluster

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", type=int, nargs="+", default=[2_000, 8_000])
    arguments = parser.parse_args()
    cases = [(numbers, name, settings) for name, settings in SETTINGS.items()]
    cases.append((weighted, "weights", LANCZOS))
    for n in arguments.sizes:
        expected = {name: compute(n, settings) for compute, name, settings in cases}
        count = sum(len(values) for values in expected.values())
        for processes, kills in ((1, False), (2, False), (3, False), (2, True)):
            options = {"n_workers": processes, "threads_per_worker": 1, "silence_logs": 50}
            with LocalCluster(**options, dashboard_address=":0") as local, Client(local) as client:
                differing = 0
                for compute, name, settings in cases:
                    resources = {"engine": client}
                    if kills:
                        resources["progress"] = killer(client)
                    found = compute(n, settings, **resources)
                    pairs_of = zip(found, expected[name], strict=True)
                    differing += sum(a != b for a, b in pairs_of)
            how = f"{processes} processes"
            if kills:
                how += ", one killed in each case"
            print(f"n = {n:,}, {how}: {differing} of {count} numbers differ", flush=True)


if __name__ == "__main__":
    main()
