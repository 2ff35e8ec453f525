"""Do the scores agree with what is known about the data? The results of docs/validity.md.

    python experiments/validity.py --data DATA          # prints them
    python experiments/validity.py --data DATA --write  # and writes them into the page

All settings are the defaults. Something is known about each of four public data sets: a published
ranking (NoveltyBench), a temperature (Renze), a number of varieties (Fruit-360 photos), and
captioners two of which never see the image. The data sets are not part of this repository.
"""

import itertools
import json
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from pages import run_experiment
from scipy.stats import spearmanr

import divprism as dp
from divprism.report.table import Column, Table

RANKED_SCORES = ("conditional_vendi", "vendi", "conditional_rke", "information_vendi")

PHOTOS_PER_VARIETY = 24

# Captioners that write without looking at the image, and one that always writes the same.
BLIND_CAPTIONERS = ("nucleus_unconditional", "top_k_unconditional")
CONSTANT_CAPTIONER = "constant_contrastive"


def read_lines(path: Path) -> list[dict]:
    """The rows of a JSON Lines file."""
    return [json.loads(line) for line in path.read_text().splitlines()]


def novelty(data: Path) -> str:
    """Conditional-Vendi of 13 LLMs against the published number of distinct answers out of ten."""
    folder = data / "noveltybench_curated"
    published = {}
    for row in read_lines(folder / "dev_reference_ranking.jsonl"):
        published[row["model"]] = row["distinct_curated"]
    results = dp.evaluate_models(folder / "dev.jsonl.gz", interval=0.95)
    models = sorted(results, key=published.__getitem__)

    rows = []
    for model in models:
        result = results[model]
        interval = result.intervals["conditional_vendi"]
        ends = f"({interval.low:.2f} to {interval.high:.2f})"
        conditional = f"{result.conditional_vendi:.2f} {ends}"
        rows.append((model, published[model], float(result.vendi), conditional))
    columns = (
        Column("model", "model"),
        Column("distinct_k", "distinct answers", ".2f"),
        Column("vendi", "Vendi", ".2f"),
        Column("conditional_vendi", "Conditional-Vendi", ".2f"),
    )
    table = Table(columns, tuple(rows))

    reference = [published[model] for model in models]
    correlations = []
    for name in RANKED_SCORES:
        values = [results[model].scores[name] for model in models]
        correlations.append(f"{name} {spearmanr(reference, values).statistic:.2f}")
    return (
        "## NoveltyBench: a published ranking\n\n"
        f"Spearman correlation with the published number of distinct answers, {len(models)} "
        f"models: {', '.join(correlations)}.\n\n{table.to_markdown()}"
    )


def temperature(data: Path) -> str:
    """Conditional-Vendi of six LLMs at rising temperature."""
    samples = dp.load(data / "renze_temperature", model_field="model,temperature")
    curves: dict[str, dict[float, float]] = {}
    for name, result in dp.evaluate_models(samples).items():
        model, _, degree = name.rpartition(" / ")
        curves.setdefault(model, {})[float(degree)] = result.conditional_vendi

    rows = []
    num_rising = 0
    for model, curve in curves.items():
        points = sorted(curve.items())
        steps = itertools.pairwise(points)
        num_rising += all(later[1] > earlier[1] for earlier, later in steps)
        rows.append((model, ", ".join(f"{degree:g}: {value:.2f}" for degree, value in points)))
    columns = (
        Column("model", "model"),
        Column("conditional_vendi", "Conditional-Vendi by temperature"),
    )
    table = Table(columns, tuple(rows))
    return (
        "## Temperature\n\n"
        f"Conditional-Vendi rises at every step for {num_rising} of {len(curves)} models.\n\n"
        f"{table.to_markdown()}"
    )


def varieties(data: Path) -> str:
    """Scores of photos of fruit with more and more varieties of each fruit."""
    samples = dp.embed(dp.load(data / "real_fruits"))
    outputs, prompts = np.asarray(samples.outputs), np.asarray(samples.prompts)
    photos = variety_rows(data / "real_fruits" / "metadata.jsonl")
    # One bandwidth for all steps, chosen on all photos: only the varieties may change the scores.
    rule = dp.StableScore()
    kernel_x = dp.Gaussian(rule.bandwidth(outputs))
    kernel_t = dp.Gaussian(rule.bandwidth(prompts, name="t"))

    rows = []
    for count in range(1, max(map(len, photos.values())) + 1):
        kept = even_choice(photos, count)
        result = dp.evaluate(outputs[kept], prompts[kept], kernel_x=kernel_x, kernel_t=kernel_t)
        scores = (result.vendi, result.conditional_vendi, result.information_vendi)
        rows.append((count, len(kept), *map(float, scores)))
    columns = (
        Column("varieties", "varieties", "d"),
        Column("n", "n", ",d"),
        Column("vendi", "Vendi", ".3f"),
        Column("conditional_vendi", "Conditional-Vendi", ".3f"),
        Column("information_vendi", "Information-Vendi", ".3f"),
    )
    table = Table(columns, tuple(rows))
    return (
        "## Fruit: a known number of varieties\n\n"
        "The same number of photos of each fruit at every step; one bandwidth.\n\n"
        f"{table.to_markdown()}"
    )


def variety_rows(metadata: Path) -> dict[str, list[list[int]]]:
    """Rows of the photos of each fruit: a list per variety, in alphabetical order."""
    by_variety: dict[str, dict[str, list[int]]] = {}
    for index, row in enumerate(read_lines(metadata)):
        of_fruit = by_variety.setdefault(row["prompt"], {})
        of_fruit.setdefault(row["variety"], []).append(index)
    photos = {}
    for fruit, of_fruit in by_variety.items():
        photos[fruit] = [of_fruit[variety] for variety in sorted(of_fruit)]
    return photos


def even_choice(photos: dict[str, list[list[int]]], count: int) -> list[int]:
    """As many photos of each fruit as a variety has, spread evenly over `count` varieties."""
    each = PHOTOS_PER_VARIETY // count
    kept = []
    for of_fruit in photos.values():
        for rows in of_fruit[:count]:
            kept += rows[:each]
    return kept


def captioners(data: Path) -> str:
    """Information of captioners in excess of random pairings."""
    results = dp.evaluate_models(data / "coco_captioners", num_permutations=5)
    rows = []
    blind = []
    seeing = []
    for model, result in results.items():
        excess = result.excess_information
        if model in BLIND_CAPTIONERS:
            blind.append(abs(excess))
        elif model != CONSTANT_CAPTIONER:
            seeing.append(excess)
        scores = (float(result.conditional_vendi), float(result.information_vendi))
        rows.append((model, result.data["n"], *scores, excess))
    columns = (
        Column("captioner", "captioner"),
        Column("n", "n", ",d"),
        Column("conditional_vendi", "Conditional-Vendi", ".3f"),
        Column("information_vendi", "Information-Vendi", ".2f"),
        Column("excess_information", "excess, nats", "+.4f"),
    )
    table = Table(columns, tuple(rows))
    constant = results[CONSTANT_CAPTIONER].conditional_vendi
    return (
        "## Captions: information, or bias?\n\n"
        f"Excess information of the two captioners that never see the image: at most "
        f"{max(blind):.4f} nats from zero; of those that do: at least {min(seeing):.3f}. The "
        f"constant captioner has Conditional-Vendi {constant:.3f}.\n\n{table.to_markdown()}"
    )


STUDIES = {
    "noveltybench_curated": novelty,
    "renze_temperature": temperature,
    "real_fruits": varieties,
    "coco_captioners": captioners,
}


def sections(data: Path) -> Iterator[str]:
    """A section for each data set."""
    for study in STUDIES.values():
        yield study(data)


def main() -> None:
    """Run every study, print its section, and write the page with --write."""
    warnings.simplefilter("ignore", dp.BandwidthWarning)
    run_experiment(
        __doc__,
        script="experiments/validity.py",
        page="docs/validity.md",
        data_sets=STUDIES,
        sections=sections,
    )


if __name__ == "__main__":
    main()
