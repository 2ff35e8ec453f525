"""Are stated errors honest where kernel values are rounded to 16 bits?

    python experiments/sixteen_bits.py [--n 5000] [--seeds 30]

From 30,000 points on, `Lanczos` rounds kernel values to 16 bits. Here it does so at a size that
can also be solved exactly. For each data set the error of every score is divided by its standard
error, over seeds of the probes: the root mean square of these ratios should be near one.
"""

import argparse
from unittest.mock import patch

import numpy as np

import divprism as dp
from divprism.estimators import _lanczos_run, _rounding

NAMES = ("vendi", "conditional_vendi", "information_vendi", "prompt_vendi")


def clusters(n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Outputs in 500 clusters and prompts in 100, 64 and 32 wide."""
    centres_x, centres_t = rng.standard_normal((500, 64)), rng.standard_normal((100, 32))
    members = rng.integers(0, 500, n)
    x = centres_x[members] + 0.5 * rng.standard_normal((n, 64))
    t = centres_t[members % 100] + 0.5 * rng.standard_normal((n, 32))
    return x.astype(np.float32), t.astype(np.float32)


def cloud(n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Outputs without clusters, whose variance falls from one coordinate to the next."""
    falling = np.arange(1, 129) ** -0.5
    x = rng.standard_normal((n, 128)) * falling
    t = 0.5 * x[:, :32] + 0.2 * rng.standard_normal((n, 32))
    return x.astype(np.float32), t.astype(np.float32)


DATA = {"clusters": (clusters, 6.0, 4.0), "cloud": (cloud, 1.0, 1.0)}


def main() -> None:
    """Print one line for each data set and score."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--n", type=int, default=5_000)
    parser.add_argument("--seeds", type=int, default=30)
    arguments = parser.parse_args()
    for name, (make, bandwidth_x, bandwidth_t) in DATA.items():
        x, t = make(arguments.n, np.random.default_rng(0))
        kernels = {"kernel_x": dp.Gaussian(bandwidth_x), "kernel_t": dp.Gaussian(bandwidth_t)}
        settings = {**kernels, "num_permutations": 0}
        exact = dp.evaluate(x, t, estimator=dp.Exact(), **settings)
        ratios: dict[str, list[float]] = {score: [] for score in NAMES}
        with (
            patch.object(_rounding, "_COMPACT_SIZE", 0),
            # Never once more in full, however many eigenvalues the rounding hides.
            patch.object(_lanczos_run, "_ROUNDING_SHARE", np.inf),
            patch.object(_lanczos_run, "_EARLY_ROUNDING_SHARE", np.inf),
        ):
            for seed in range(arguments.seeds):
                result = dp.evaluate(x, t, estimator=dp.Lanczos(), rng=seed, **settings)
                for score in NAMES:
                    error = float(result.scores[score]) - float(exact.scores[score])
                    ratios[score].append(error / result.scores[score].standard_error)
        for score, values in ratios.items():
            rms = np.sqrt(np.mean(np.square(values)))
            largest = np.abs(values).max()
            print(f"{name}, {score}: {rms:.2f}, largest {largest:.1f}", flush=True)


if __name__ == "__main__":
    main()
