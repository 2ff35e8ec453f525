"""From how many units on do intervals cover? The table of docs/explanation/intervals.md.

    python experiments/small_samples.py              # three minutes
    python experiments/small_samples.py --draws 50   # a first look

Prints, for each size and kind of data, how often intervals of 95 % cover for the worst score. The
truth is the mean of the logarithm of the score over the samples themselves. Sizes below the limit
have no interval in results, so the sampling errors are asked for directly.
"""

import argparse

import numpy as np

import divprism as dp
from divprism.analysis.intervals import sampling_error
from divprism.scores.problem import pose
from divprism.scores.score import compute_scores
from divprism.scores.settings import Settings
from divprism.scores.spec import score_spec

NAMES = ("vendi", "conditional_vendi", "information_vendi", "rke", "conditional_rke")
KINDS = ("smooth", "clusters", "heavy")
LEVEL = 0.95
SETTINGS = Settings(kernel_x=dp.Gaussian(1.0), kernel_t=dp.Gaussian(0.7))
# What is resampled, whether prompts are the same in every sample, prompts, outputs of each.
SIZES = [
    *(("pair", False, count, 1) for count in (2, 4, 6, 8, 10, 12)),
    *(("pair", True, *size) for size in ((3, 2), (6, 2), (10, 2), (2, 4), (2, 6), (2, 10))),
    *(("pair", True, *size) for size in ((4, 4), (5, 5), (6, 3), (8, 3), (9, 3))),
    *(("prompt", False, count, 3) for count in (2, 3, 4, 5)),
]


def prompts_of(kind: str, count: int, rng: np.random.Generator) -> np.ndarray:
    """Random prompts, all of them different."""
    if kind == "clusters":
        return 3 * np.eye(4)[rng.integers(4, size=count)] + 1e-3 * rng.standard_normal((count, 4))
    if kind == "heavy":
        return rng.standard_t(2, size=(count, 2))
    return rng.standard_normal((count, 2))


def outputs_of(kind: str, t: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """An output for each prompt: near its prompt, of five kinds, or anywhere."""
    if kind == "clusters":
        return 3 * np.eye(5)[rng.integers(5, size=len(t))]
    if kind == "heavy":
        return rng.standard_t(2, size=(len(t), 2))
    return 0.5 * t + rng.standard_normal(t.shape)


def coverage(kind: str, unit: str, given: bool, size: tuple[int, int], draws: int) -> float:
    """Share of intervals that cover, for the worst of the scores."""
    count, outputs_of_each = size
    # Prompts that are taken as given are the same for all samples and lie further apart.
    fixed = 2 * np.random.default_rng(5).standard_normal((count, 2))
    values = np.empty((draws, len(NAMES)))
    ends = np.empty((draws, len(NAMES), 2))
    for draw in range(draws):
        rng = np.random.default_rng([draw, *size])
        t = fixed
        if not given:
            t = prompts_of(kind, count, rng)
        t = np.repeat(t, outputs_of_each, axis=0)
        problem = pose(outputs_of(kind, t, rng), t, settings=SETTINGS)
        scores = compute_scores(problem, [score_spec(name) for name in NAMES])
        errors = sampling_error(problem, unit)
        for index, name in enumerate(NAMES):
            interval = errors.interval(scores[name], LEVEL)
            values[draw, index] = scores[name]
            ends[draw, index] = interval.low, interval.high
    truth = np.exp(np.log(values).mean(axis=0))
    # Scores at their limits are equal to the ends of their intervals up to rounding.
    is_covered = (ends[..., 0] <= truth * (1 + 1e-9)) & (truth * (1 - 1e-9) <= ends[..., 1])
    return float(is_covered.mean(axis=0).min())


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--draws", type=int, default=400, help="samples of each size")
    draws = parser.parse_args().draws
    print(f"{'unit':8} {'prompts':8} {'size':8} " + " ".join(f"{kind:>8}" for kind in KINDS))
    for unit, given, *size in SIZES:
        shares = [coverage(kind, unit, given, tuple(size), draws) for kind in KINDS]
        prompts = "given" if given else "random"
        cells = " ".join(f"{share:8.2f}" for share in shares)
        print(f"{unit:8} {prompts:8} {size[0]} x {size[1]:<4} {cells}", flush=True)


if __name__ == "__main__":
    main()
