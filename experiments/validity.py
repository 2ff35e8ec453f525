"""Do the scores say what is known? Figures of docs/validity.md, with default settings throughout.

    python experiments/validity.py --data DATA          # prints them
    python experiments/validity.py --data DATA --write  # and puts them into docs/validity.md

Four public data sets with something known about them: a published ranking (NoveltyBench), a temperature (Renze), a number of
varieties (Fruit-360 photos), and captioners of which two never see the picture. They are not part of this repository.
"""

import argparse
import itertools
import json
import re
import sys
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
from scipy.stats import spearmanr

import divprism as dp

MARK = "<!-- made by experiments/validity.py -->"


def novelty(data: Path) -> str:
    """Conditional-Vendi of 13 LLMs against the published number of distinct answers among ten."""
    folder = data / "noveltybench_curated"
    lines = (folder / "dev_reference_ranking.jsonl").read_text().splitlines()
    published = {row["model"]: row["distinct_curated"] for row in map(json.loads, lines)}
    found = dp.evaluate_models(folder / "dev.jsonl.gz", interval=0.95)
    rows = [
        f"| {model} | {published[model]:.2f} | {float(result.vendi):.2f} | {_with_interval(result, 'conditional_vendi')} |"
        for model, result in sorted(found.items(), key=lambda entry: published[entry[0]])
    ]
    names = list(found)
    ranks = {
        score: spearmanr(
            [published[model] for model in names],
            [float(found[model].scores[score]) for model in names],
        ).statistic
        for score in ("conditional_vendi", "vendi", "conditional_rke", "information_vendi")
    }
    told = ", ".join(f"{score} {value:.2f}" for score, value in ranks.items())
    table = "\n".join(
        ["| model | distinct_k | vendi | conditional_vendi |", "|---|---:|---:|---:|", *rows]
    )
    return f"## NoveltyBench: a published ranking\n\nSpearman with distinct_k over {len(names)} models: {told}.\n\n{table}\n"


def temperature(data: Path) -> str:
    """Conditional-Vendi of six LLMs at rising temperature."""
    found = dp.evaluate_models(dp.load(data / "renze_temperature", model_field="model,temperature"))
    curves: dict[str, list[tuple[float, float]]] = {}
    for name, result in found.items():
        model, _, degree = name.rpartition(" / ")
        curves.setdefault(model, []).append((float(degree), float(result.conditional_vendi)))
    rows, rising = [], 0
    for model, points in curves.items():
        values = [value for _, value in sorted(points)]
        rising += all(later > earlier for earlier, later in itertools.pairwise(values))
        rows.append(
            f"| {model} | "
            + ", ".join(f"{degree:g}: {value:.2f}" for degree, value in sorted(points))
            + " |"
        )
    table = "\n".join(["| model | conditional_vendi by temperature |", "|---|---|", *rows])
    return f"## Temperature\n\nConditional-Vendi rises at every step for {rising} of {len(curves)} models.\n\n{table}\n"


def varieties(data: Path) -> str:
    """Scores of photos of fruit as ever more varieties of each are allowed."""
    samples = dp.embed(dp.load(data / "real_fruits"))
    names = [
        json.loads(line)["file"]
        for line in (data / "real_fruits" / "metadata.jsonl").read_text().splitlines()
    ]
    prompts = [
        json.loads(line)["prompt"]
        for line in (data / "real_fruits" / "metadata.jsonl").read_text().splitlines()
    ]
    kinds = [re.sub(r"_\d+\.\w+$", "", Path(name).name) for name in names]
    order = {
        prompt: sorted(
            {kind for kind, other in zip(kinds, prompts, strict=True) if other == prompt}
        )
        for prompt in prompts
    }
    place = np.array(
        [order[prompt].index(kind) for kind, prompt in zip(kinds, prompts, strict=True)]
    )
    rule = dp.StableScore()
    kernels = {
        "kernel_x": dp.Gaussian(rule.bandwidth(samples.outputs)),
        "kernel_t": dp.Gaussian(rule.bandwidth(samples.prompts, name="t")),
    }
    rows = []
    for count in range(1, max(map(len, order.values())) + 1):
        rows.append(_even(samples, np.flatnonzero(place < count), place, count, kernels))
    table = "\n".join(
        [
            "| varieties | n | vendi | conditional_vendi | information_vendi |",
            "|---:|---:|---:|---:|---:|",
            *rows,
        ]
    )
    return (
        "## Fruit: a known number of varieties\n\nThe same number of photos of each fruit at every step; one bandwidth.\n\n"
        f"{table}\n"
    )


def _even(
    samples: dp.Samples, rows: np.ndarray, place: np.ndarray, count: int, kernels: dict
) -> str:
    """Scores of as many photos of each fruit as one variety has, spread evenly over the first `count` varieties."""
    each = 24 // count
    prompts = np.unique(np.asarray(samples.prompts), axis=0, return_inverse=True)[1].reshape(-1)
    kept = [
        row
        for prompt in np.unique(prompts)
        for variety in range(count)
        for row in rows[(prompts[rows] == prompt) & (place[rows] == variety)][:each]
    ]
    found = dp.evaluate(
        np.asarray(samples.outputs)[kept], np.asarray(samples.prompts)[kept], **kernels
    )
    scores = " | ".join(
        f"{float(score):.3f}"
        for score in (found.vendi, found.conditional_vendi, found.information_vendi)
    )
    return f"| {count} | {len(kept):,} | {scores} |"


def captioners(data: Path) -> str:
    """Information of captioners in excess of random pairings."""
    found = dp.evaluate_models(data / "coco_captioners", num_permutations=5)
    rows = [
        f"| {model} | {result.data['n']:,} | {float(result.conditional_vendi):.3f} | {float(result.information_vendi):.2f} | "
        f"{result.baseline.excess_information:+.4f} |"
        for model, result in found.items()
    ]
    table = "\n".join(
        [
            "| captioner | n | conditional_vendi | information_vendi | excess, nats |",
            "|---|---:|---:|---:|---:|",
            *rows,
        ]
    )
    blind = [
        result.baseline.excess_information
        for model, result in found.items()
        if "unconditional" in model
    ]
    seeing = [
        r.baseline.excess_information
        for m, r in found.items()
        if "unconditional" not in m and "constant" not in m
    ]
    return (
        "## Captions: information, or bias?\n\n"
        f"Excess information of the two that never see the picture: at most {max(map(abs, blind)):.4f} nats from zero; of "
        f"those that do: at least {min(seeing):.3f}. The constant captioner has Conditional-Vendi "
        f"{float(found['constant_contrastive'].conditional_vendi):.3f}.\n\n{table}\n"
    )


def _with_interval(result: dp.Evaluation, score: str) -> str:
    interval = result.intervals[score]
    return f"{float(result.scores[score]):.2f} ({interval.low:.2f} to {interval.high:.2f})"


STUDIES: tuple[Callable[[Path], str], ...] = (novelty, temperature, varieties, captioners)


def main() -> None:
    """Run all, print, and write if asked to."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True, help="folder with the data sets")
    parser.add_argument(
        "--write", action="store_true", help="replace the figures in docs/validity.md"
    )
    arguments = parser.parse_args()
    missing = [
        name
        for name in ("noveltybench_curated", "renze_temperature", "real_fruits", "coco_captioners")
        if not (arguments.data / name).is_dir()
    ]
    if missing:
        raise SystemExit(f"{arguments.data} lacks {', '.join(missing)}.")
    warnings.simplefilter("ignore", dp.BandwidthWarning)
    parts = []
    for study in STUDIES:
        parts.append(study(arguments.data))
        print(parts[-1], flush=True)
    if arguments.write:
        page = Path(__file__).parent.parent / "docs" / "validity.md"
        head, _, _ = page.read_text().partition(MARK)
        page.write_text("\n".join([f"{head}{MARK}\n", *parts]))


if __name__ == "__main__":
    sys.exit(main())
