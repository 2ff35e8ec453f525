"""Do intervals of scores with a quality cover, where quality and diversity depend on each other?

    python experiments/quality_intervals.py

Forty prompts with three outputs each. Hard prompts have worse and more varied outputs, so the
errors of the mean quality and of the diversity cancel in part. Prints how many of 200 intervals of
95 % contain the mean over all samples.
"""

import numpy as np

import divprism as dp

NAMES = ("quality", "conditional_vendi", "quality_conditional_vendi", "quality_vendi")
SAMPLES, PROMPTS, OUTPUTS = 200, 40, 3


def sample(seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Outputs, the number of the prompt of each, and their qualities."""
    rng = np.random.default_rng(seed)
    ids = np.repeat(np.arange(PROMPTS), OUTPUTS)
    difficulty = rng.uniform(0, 1, PROMPTS)[ids]
    places = 2 * rng.standard_normal((PROMPTS, 2))[ids]
    x = places + (0.3 + difficulty)[:, None] * rng.standard_normal((ids.size, 2))
    quality = 1 - 0.6 * difficulty + rng.normal(0, 0.15, ids.size)
    return x, ids, np.clip(quality, 0, None)


def main() -> None:
    """Print a line for each order and score."""
    for order in (1.0, 2.0):
        found = []
        for seed in range(SAMPLES):
            x, ids, quality = sample(seed)
            options = {"order": order, "interval": 0.95, "num_permutations": 0}
            found.append(dp.evaluate(x, ids, quality=quality, kernel_x=dp.Gaussian(1.0), **options))
        for name in NAMES:
            mean = np.mean([result.scores[name] for result in found])
            ends = np.array(
                [(result.intervals[name].low, result.intervals[name].high) for result in found]
            )
            covered = np.mean((ends[:, 0] <= mean) & (mean <= ends[:, 1]))
            print(f"order {order:g}, {name}: {covered:.1%} of {SAMPLES} intervals cover")


if __name__ == "__main__":
    main()
