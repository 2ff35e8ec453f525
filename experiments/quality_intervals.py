"""Do intervals of scores with a quality cover, and are they as wide as they have to be?

    python experiments/quality_intervals.py [--samples 120]

Prompts with few outputs each, few prompts with hundreds of outputs, and prompts that are given
(fewer than 20, so that only their outputs are random). Hard prompts have more varied outputs. In
one half of the cases they have worse ones too, so that the errors of the mean quality and of the
diversity cancel in part; in the other half the quality depends on the prompt in another way.

Prints for each case, order and score how many intervals of 95 % contain the mean over all samples,
and the ratio of the stated standard error to the standard deviation over samples: 1 is right, and
at 2 intervals are twice as wide as they should be. Takes 15 minutes of one core.
"""

import argparse
from dataclasses import dataclass

import numpy as np

import divprism as dp

NAMES = ("quality", "conditional_vendi", "quality_conditional_vendi", "quality_vendi")
DIMENSION = 6  # the cosine kernel then has rank 6, and 8,000 outputs take a second
DESIGN_SEED = 1_000_000


@dataclass(frozen=True)
class Case:
    """How many prompts with how many outputs, and whether the prompts are drawn for each sample."""

    num_prompts: int
    num_outputs: int
    drawn: bool = True

    def __str__(self) -> str:
        drawn = "drawn" if self.drawn else "given"
        return f"{self.num_prompts} {drawn} x {self.num_outputs}"


CASES = (Case(40, 3), Case(20, 200), Case(5, 300, drawn=False))


def sample(seed: int, case: Case, correlated: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Outputs, the number of the prompt of each, and their qualities."""
    rng = np.random.default_rng(seed)
    of_prompts = rng
    if not case.drawn:
        of_prompts = np.random.default_rng(DESIGN_SEED)
    ids = np.repeat(np.arange(case.num_prompts), case.num_outputs)
    variety = of_prompts.uniform(0, 1, case.num_prompts)
    difficulty = variety
    if not correlated:
        difficulty = of_prompts.uniform(0, 1, case.num_prompts)
    places = of_prompts.standard_normal((case.num_prompts, DIMENSION))[ids]
    noise = rng.standard_normal((ids.size, DIMENSION))
    x = places + (0.3 + 2 * variety[ids])[:, None] * noise
    quality = 1 - 0.6 * difficulty[ids] + rng.normal(0, 0.15, ids.size)
    return x, ids, np.clip(quality, 0, None)


def print_case(case: Case, correlated: bool, order: float, num_samples: int) -> None:
    """Print a row for each score."""
    found = []
    for seed in range(num_samples):
        x, ids, quality = sample(seed, case, correlated)
        options = {"order": order, "interval": 0.95, "num_permutations": 0}
        found.append(dp.evaluate(x, ids, quality=quality, kernel_x=dp.Cosine(), **options))
    for name in NAMES:
        values = np.array([float(result.scores[name]) for result in found])
        intervals = [result.intervals[name] for result in found]
        low = np.array([each.low for each in intervals])
        high = np.array([each.high for each in intervals])
        covered = np.mean((low <= values.mean()) & (values.mean() <= high))
        errors = np.array([each.standard_error for each in intervals])
        width = np.sqrt(np.mean(errors**2)) / values.std(ddof=1)
        on = "yes" if correlated else "no"
        print(f"| {case} | {on} | {order:g} | {name} | {covered:.3f} | {width:.2f} |", flush=True)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--samples", type=int, default=120)
    num_samples = parser.parse_args().samples
    print("| prompts x outputs | hard ones worse | order | score | coverage | width |")
    print("|---|---|---|---|---|---|")
    for case in CASES:
        for correlated in (True, False):
            for order in (1.0, 2.0):
                print_case(case, correlated, order, num_samples)


if __name__ == "__main__":
    main()
