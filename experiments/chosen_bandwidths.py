"""Do intervals cover if the rule chooses the bandwidths anew on each data set?

    python experiments/chosen_bandwidths.py [--num-sets 200]

Intervals hold at given bandwidths. Here data sets of three laws are scored twice: with the
bandwidths that the default rule chooses on a large sample of the law, and with those that it
chooses on each data set. The target is the mean score over all data sets. Prints the share of 95 %
intervals that cover it, and the spread of the scores over data sets. The results are in
docs/explanation/intervals.md; 200 data sets take some three minutes.
"""

import argparse
import warnings
from collections.abc import Callable

import numpy as np

import divprism as dp

SCORES = ("vendi", "conditional_vendi", "conditional_rke")
Pairs = tuple[np.ndarray, np.ndarray]
Law = Callable[[np.random.Generator, int], Pairs]

# Fixed parts of the laws: centres and directions are the same in all data sets.
FIXED = np.random.default_rng(0)
OUTPUT_CENTRES = 2 * FIXED.standard_normal((8, 6))
PROMPT_CENTRES = 2 * FIXED.standard_normal((5, 4))
DIRECTIONS = FIXED.standard_normal((4, 6))


def clusters(generator: np.random.Generator, n: int) -> Pairs:
    """Eight kinds of output under five kinds of prompt, one output per prompt."""
    kinds = generator.integers(0, 5, n)
    t = PROMPT_CENTRES[kinds] + 0.5 * generator.standard_normal((n, 4))
    outputs = (kinds + generator.integers(0, 4, n)) % 8
    return OUTPUT_CENTRES[outputs] + 0.5 * generator.standard_normal((n, 6)), t


def repeated(generator: np.random.Generator, n: int) -> Pairs:
    """Five outputs of each prompt."""
    t = np.repeat(generator.standard_normal((n // 5, 4)), 5, axis=0)
    return t @ DIRECTIONS + generator.standard_normal((n, 6)), t


def smooth(generator: np.random.Generator, n: int) -> Pairs:
    """A normal law, one output per prompt."""
    t = generator.standard_normal((n, 4))
    return t @ DIRECTIONS + generator.standard_normal((n, 6)), t


LAWS: dict[str, Law] = {"clusters": clusters, "repeated": repeated, "smooth": smooth}


def coverage(results: list[dp.Evaluation], name: str) -> tuple[float, float]:
    """Share of intervals that cover the mean log score, and the spread of the log scores."""
    logs = np.log([result.scores[name].value for result in results])
    target = float(np.exp(logs.mean()))
    intervals = [result.intervals[name] for result in results]
    covered = [interval.low <= target <= interval.high for interval in intervals]
    return float(np.mean(covered)), float(logs.std(ddof=1))


def given_kernels(law: Law, n: int) -> dict[str, dp.Kernel]:
    """The kernels that the default rule chooses on a sample of the law of the same size."""
    settings = dp.evaluate(*law(np.random.default_rng(10**6), n), num_permutations=0).settings
    return {"kernel_x": settings.kernel_x, "kernel_t": settings.kernel_t}


def main() -> None:
    """Print a table of all laws, sizes and scores."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--num-sets", type=int, default=200, help="data sets of each law and size")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore", dp.BandwidthWarning)
    print("| law | n | score | bandwidths given: coverage, spread | chosen: coverage, spread |")
    print("|---|---:|---|---:|---:|")
    for title, law in LAWS.items():
        for n in (150, 500):
            both = []
            for kernels in (given_kernels(law, n), {}):
                results = []
                for seed in range(arguments.num_sets):
                    pairs = law(np.random.default_rng(seed), n)
                    options = {"interval": 0.95, "num_permutations": 0}
                    results.append(dp.evaluate(*pairs, **kernels, **options))
                both.append(results)
            for name in SCORES:
                cells = []
                for results in both:
                    share, spread = coverage(results, name)
                    cells.append(f"{share:.2f}, {100 * spread:.1f} %")
                print(f"| {title} | {n} | {name} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
