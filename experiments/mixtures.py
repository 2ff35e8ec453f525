"""Which language models should be mixed, and at what price in quality?

    python experiments/mixtures.py --data DIR

Reads noveltybench_curated below DIR: 13 models, 100 prompts, 10 outputs each, and the published
utility of each model. Prints the best mixture at order 2 of all models, of those without CrPO
(which was trained for diversity), and of those under a least mean utility; then three models at
order 1. The results are in docs/how-to/mixtures.md; it takes two minutes.
"""

import argparse
import json
import time
from pathlib import Path

import divprism as dp

FOLDER = "noveltybench_curated"
THREE = ("claude-3-opus@20240229", "command-r-plus-08-2024", "gemma-3-27b-it")
LEAST = (4.0, 4.5, 5.0, 5.5)


def show(title: str, models: object, **options: object) -> None:
    """Print a mixture in two lines."""
    start = time.perf_counter()
    found = dp.mixture(models, **options)
    seconds = time.perf_counter() - start
    heavy = {name: weight for name, weight in found.weights.items() if weight >= 0.005}
    ordered = sorted(heavy.items(), key=lambda item: -item[1])
    weights = ", ".join(f"{weight:.0%} {name}" for name, weight in ordered)
    print(f"{title}: {weights}")
    quality = "" if found.quality is None else f", utility {found.quality:.2f}"
    print(
        f"   score {found.score:.3f}; {found.best} alone {found.alone[found.best]:.3f}; gain "
        f"{found.gain:.3f} ({found.low:.3f} to {found.high:.3f}), by chance {found.chance:.3f}, "
        f"beyond {found.gain_beyond_chance:.3f}; gap {found.gap:.0e}, {found.num_iterations} "
        f"steps, {seconds:.0f} s{quality}"
    )


def main() -> None:
    """Print the mixtures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="folder with the real data")
    folder = parser.parse_args().data / FOLDER
    if not folder.exists():
        raise SystemExit(f"{folder} does not exist: give the folder of the real data as --data.")
    samples = dp.load(folder / "dev.jsonl.gz")
    parts = samples.by_model()
    ranking = (folder / "dev_reference_ranking.jsonl").read_text().splitlines()
    utility = {}
    for line in ranking:
        row = json.loads(line)
        utility[row["model"]] = row["utility_curated"]
    others = {name: part for name, part in parts.items() if not name.startswith("CrPO")}
    show("all 13", parts, by="conditional_rke")
    show("without CrPO", others, by="conditional_rke")
    for least in LEAST:
        show(
            f"utility of at least {least}",
            parts,
            by="conditional_rke",
            quality=utility,
            min_quality=least,
        )
    three = {name: parts[name] for name in THREE}
    show("three, order 2", three, by="conditional_rke")
    show("three, order 1", three, by="conditional_vendi")
    by_prompt = dp.mixture(others, by="conditional_rke", per_group="prompt")
    ranked = sorted(by_prompt.per_group, key=lambda group: -group.gain / group.chance)
    for group in (*ranked[:3], *ranked[-3:]):
        beyond = group.gain / group.chance
        print(f"   {beyond:.2f} beyond chance ({group.gain:.2f}), {group.best}: {group.group}")


if __name__ == "__main__":
    main()
