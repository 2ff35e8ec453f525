"""Default scores under ten seeds, ten orders of rows and five containers.

    python experiments/same_numbers.py [--data DATA] [--n 60 500 2900 20000]

Prints, for embeddings of each size and, with --data, for texts (noveltybench_curated, one model)
and images (real_fruits), the largest relative difference of any default score from the first run,
beside the largest relative error that the scores state. Containers are those of the prompts: array,
list, tuple, pandas Series and polars Series (arrays: NumPy, float64 copy in Fortran order, torch).
"""

import argparse
from collections.abc import Iterator
from pathlib import Path

import numpy as np

import divprism as dp

REPEATS = 10


def embeddings(n: int) -> tuple[np.ndarray, np.ndarray]:
    """Clustered outputs of n / 5 prompts."""
    rng = np.random.default_rng(7)
    prompts = rng.normal(size=(n // 5, 16))
    t = np.repeat(prompts, 5, axis=0)
    centres = rng.normal(size=(12, 24))
    x = centres[rng.integers(12, size=len(t))] + 0.5 * rng.normal(size=(len(t), 24))
    return x.astype(np.float32), t.astype(np.float32)


def variants(samples: dp.Samples) -> Iterator[tuple[dp.Samples, int]]:
    """The same data with ten seeds, then in ten orders."""
    for seed in range(REPEATS):
        yield samples, seed
    for seed in range(REPEATS):
        order = np.random.default_rng(seed).permutation(len(samples))
        yield samples.select(order), 0


def containers(x: np.ndarray, t: np.ndarray) -> Iterator[tuple[object, object]]:
    """The same arrays in five containers."""
    import torch

    yield x, t
    yield np.asfortranarray(x), np.asfortranarray(t)
    yield torch.tensor(x), torch.tensor(t)
    yield x[::-1][::-1], t[::-1][::-1]
    yield x.tolist(), t.tolist()


class Spread:
    """The largest relative difference from the first of several evaluations."""

    def __init__(self) -> None:
        self.first: dict[str, float] = {}
        self.largest = self.stated = 0.0

    def add(self, evaluation: dp.Evaluation) -> None:
        """Compare one more evaluation."""
        for name, score in evaluation.scores.items():
            reference = self.first.setdefault(name, float(score))
            self.largest = max(self.largest, abs(float(score) / reference - 1))
            self.stated = max(self.stated, score.standard_error / float(score))

    def report(self, what: str) -> None:
        """Print both figures."""
        print(f"{what}: largest difference {self.largest:.1e}, stated error {self.stated:.1e}")


def measure(what: str, samples: dp.Samples) -> None:
    """Evaluate every variant."""
    spread = Spread()
    for variant, seed in variants(samples):
        spread.add(dp.evaluate(variant, rng=seed, num_permutations=0))
    spread.report(what)


def main() -> None:
    """Measure embeddings, texts and images."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path)
    parser.add_argument("--n", type=int, nargs="+", default=[60, 500, 2900, 20_000])
    arguments = parser.parse_args()
    for n in arguments.n:
        x, t = embeddings(n)
        measure(f"embeddings, n = {n:,}", dp.Samples(x, t))
        spread = Spread()
        for outputs, prompts in containers(x, t):
            spread.add(dp.evaluate(outputs, prompts, num_permutations=0))
        spread.report(f"  five containers, n = {n:,}")
    if arguments.data is not None:
        texts = dp.load(arguments.data / "noveltybench_curated" / "dev.jsonl.gz")
        by_model = dp.embed(texts).by_model()
        measure("texts, one model", next(iter(by_model.values())))
        images = dp.embed(dp.load(arguments.data / "real_fruits"))
        measure("images", images)


if __name__ == "__main__":
    main()
