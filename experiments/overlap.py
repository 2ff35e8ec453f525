"""Do language models of one family overlap more than others?

    python experiments/overlap.py --data DIR [--order 1]

Reads noveltybench_curated/dev.jsonl.gz below DIR: 13 models, 100 prompts, 10 outputs each. The
statistic is the mean excess Information of pairs from different families less that of pairs from
one family; the p-value is the share of random assignments of the family labels to the models that
reach it. Two ways to define a family are tested: the vendor (of gemma and gemini: Google; of Llama
and CrPO, which was trained from a Llama: Meta), and the first word of the name. Order 2 takes
seconds, order 1 two to five minutes. The results are in docs/how-to/overlap.md.
"""

import argparse
import time
from itertools import combinations
from pathlib import Path

import numpy as np

import divprism as dp

FILE = "noveltybench_curated/dev.jsonl.gz"
VENDORS = {
    "claude": "Anthropic",
    "command": "Cohere",
    "gemini": "Google",
    "gemma": "Google",
    "gpt": "OpenAI",
    "Llama": "Meta",
    "CrPO": "Meta",
}
NUM_ASSIGNMENTS = 99_999


def contrast(distances: np.ndarray, labels: np.ndarray) -> float:
    """Mean distance between families less that inside them."""
    first, second = np.triu_indices(len(labels), 1)
    same = labels[first] == labels[second]
    values = distances[first, second]
    return float(values[~same].mean() - values[same].mean())


def p_value(distances: np.ndarray, labels: np.ndarray) -> float:
    """Share of assignments of the labels, the given one included, with at least its contrast."""
    rng = np.random.default_rng(0)
    given = contrast(distances, labels)
    reached = 0
    for _ in range(NUM_ASSIGNMENTS):
        reached += contrast(distances, rng.permutation(labels)) >= given - 1e-12
    return (1 + reached) / (1 + NUM_ASSIGNMENTS)


def main() -> None:
    """Print the pairs of one family, the ends of the list, and both tests."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="folder with the real data")
    parser.add_argument("--order", type=float, default=1.0)
    arguments = parser.parse_args()
    file = arguments.data / FILE
    if not file.exists():
        raise SystemExit(f"{file} does not exist: give the folder of the real data as --data.")
    samples = dp.load(file)
    start = time.perf_counter()
    found = dp.overlap(samples, order=arguments.order)
    print(f"order {arguments.order:g}: {time.perf_counter() - start:.0f} s with the embedding")
    for each in found.pairs:
        vendors = {VENDORS[name.split("-")[0]] for name in each.models}
        mark = "same vendor" if len(vendors) == 1 else ""
        print(f"  {each.counts_as:.3f} ({each.factor:.3f})  {' and '.join(each.models)}  {mark}")
    joint = found.joint
    print(f"all {len(found.models)}: {joint.counts_as:.2f} ({joint.factor:.2f} in the sample)")
    means = found.to_dict()["homogeneity"]["cosine"]
    print(
        f"mean cosine between models {means['between_models']:.3f}, "
        f"within {means['within_a_model']:.3f}"
    )
    for shown in (*found.prompts()[:3], *found.prompts()[-3:]):
        print(f"  {shown.excess:.3f}  {shown.prompt['text']}")
    words = [name.split("-")[0] for name in found.models]
    families = {"vendor": [VENDORS[word] for word in words], "first word": words}
    assert found.excess is not None
    for title, names in families.items():
        labels = np.unique(names, return_inverse=True)[1]
        num_same = sum(a == b for a, b in combinations(names, 2))
        print(
            f"by {title}: {num_same} pairs of one family, nearer by "
            f"{contrast(found.excess, labels):.3f} nats, p = {p_value(found.excess, labels):.5f}"
        )


if __name__ == "__main__":
    main()
