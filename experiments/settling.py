"""Does the sample that a report asks for settle the order of two models as often as it says?

    python experiments/settling.py              # ten minutes
    python experiments/settling.py --draws 20   # a first look

Two models answer random prompts, and the outputs of one spread a little more. Small samples give
the difference and its standard error (their means over draws); from these `times_needed` computes
the size at which the interval excludes a ratio of 1 in 80 of 100 samples. Samples of that size are
drawn, and the clear ones counted.
"""

import argparse
import math

import numpy as np

import divprism as dp
from divprism.report.pairs import Pair, times_needed

LEVEL = 0.95
# Prompts and outputs of each in the small samples, and how much wider the outputs of one model are.
CASES = [(30, 3, 1.1), (30, 3, 1.15), (40, 1, 1.3), (60, 2, 1.12)]
KERNELS = {"kernel_x": dp.Gaussian(1.0), "kernel_t": dp.Gaussian(0.7)}


def difference(num_prompts: int, per_prompt: int, wider: float, seed: int) -> dp.Difference:
    """The difference of the two models on prompts drawn anew."""
    rng = np.random.default_rng(seed)
    t = np.repeat(rng.standard_normal((num_prompts, 2)), per_prompt, axis=0)
    samples = {}
    for name, spread in (("wide", wider), ("narrow", 1.0)):
        samples[name] = dp.Samples(0.5 * t + 0.5 * spread * rng.standard_normal(t.shape), t)
    [found] = dp.compare(samples, interval=LEVEL, **KERNELS).differences
    return found


def signed_gap(found: dp.Difference) -> float:
    """The logarithm of the ratio of the wide model to the narrow one."""
    gap = math.log(found.ratio)
    if found.first == "narrow":
        return -gap
    return gap


def reach_of(found: dp.Difference) -> float:
    """Half of the interval of the logarithm of a ratio."""
    return math.log(found.high / found.low) / 2


def main() -> None:
    """Print, for each case, the size asked for and how often it settles the order."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--draws", type=int, default=60)
    arguments = parser.parse_args()
    print("prompts  outputs of each  ratio   times  prompts asked for  settled")
    for num_prompts, per_prompt, wider in CASES:
        small = [
            difference(num_prompts, per_prompt, wider, seed) for seed in range(arguments.draws)
        ]
        gap = float(np.mean([signed_gap(found) for found in small]))
        error = math.sqrt(np.mean([found.standard_error**2 for found in small]))
        reach = math.sqrt(np.mean([reach_of(found) ** 2 for found in small]))
        ends = math.exp(gap - reach), math.exp(gap + reach)
        pair = Pair("wide", "narrow", math.exp(gap), *ends, False, None, error)
        times = times_needed(pair, pair.ratio)
        wanted = math.ceil(times * num_prompts)
        large = [
            difference(wanted, per_prompt, wider, 10_000 + seed) for seed in range(arguments.draws)
        ]
        settled = np.mean([found.clear and found.first == "wide" for found in large])
        sizes = f"{num_prompts:>7}  {per_prompt:>15}  {pair.ratio:.3f}"
        print(f"{sizes}  {times:>6.2f}  {wanted:>17}  {settled:>7.0%}", flush=True)


if __name__ == "__main__":
    main()
