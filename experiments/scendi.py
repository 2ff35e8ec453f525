"""Scendi beside Conditional-Vendi: where they disagree on paper, and on 13 language models.

    python experiments/scendi.py                           # the worlds on paper
    python experiments/scendi.py --data DATA               # and the models of noveltybench_curated
    python experiments/scendi.py --data DATA --plot FILE   # and the figure of docs/explanation

The data set is not part of this repository.
"""

import argparse
import json
import warnings
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from scipy.stats import spearmanr

import divprism as dp
from divprism.core.kernels import Kernel
from divprism.report.plots import new_panels
from divprism.report.style import INK, family_color, image_bytes, styled
from divprism.report.table import Column, Table

World = tuple[str, np.ndarray, np.ndarray]
Row = tuple[str, float, float, float]
NUMBERS = (1, 2, 5, 10, 25, 50, 100)
OUTPUTS = 4  # of each prompt


def linear() -> World:
    """Each output is a rotation of its prompt, and no prompt repeats."""
    rng = np.random.default_rng(0)
    t = rng.standard_normal((100, 4))
    return "a rotation of the prompt", t @ np.linalg.qr(rng.standard_normal((4, 4)))[0], t


def nonlinear() -> World:
    """Each output is one of two, chosen by the product of two signs of the prompt."""
    t = np.repeat([[a, b] for a in (-1.0, 1.0) for b in (-1.0, 1.0)], 25, axis=0)
    product = t[:, 0] * t[:, 1]
    return "a product of parts of the prompt", np.stack([1 + product, 1 - product], axis=1), t


def varied(prompts: int = 25, shared: float = 0.0) -> World:
    """Four outputs for each prompt, with this similarity to each other and to all others."""
    n = OUTPUTS * prompts
    x = np.sqrt(1 - shared) * np.eye(n, n + 1)
    x[:, n] = np.sqrt(shared)
    title = f"four outputs of each of {prompts} prompts"
    if prompts == 1:
        title = "four outputs of one prompt"
    if shared:
        title += f", all alike by {shared:g}"
    return title, x, np.repeat(np.eye(prompts), OUTPUTS, axis=0)


def unique() -> World:
    """A random output for each of 100 random prompts."""
    rng = np.random.default_rng(0)
    return "100 unrelated pairs", rng.standard_normal((100, 4)), rng.standard_normal((100, 4))


def row_of(world: World) -> Row:
    """Conditional-Vendi with prompts compared by a small bandwidth, and Scendi by two kernels."""
    title, x, t = world
    kernels: dict[str, Kernel] = {"kernel_x": dp.Cosine(), "kernel_t": dp.Gaussian(0.1)}
    conditional = dp.conditional_vendi(x, t, **kernels)
    cosine = dp.scendi(x, t, kernel_x=dp.Cosine(), kernel_t=dp.Cosine())
    return title, float(conditional), float(cosine), float(dp.scendi(x, t, **kernels))


def worlds() -> Table:
    """The worlds on paper."""
    made = [linear(), nonlinear(), unique()]
    made += [varied(prompts) for prompts in (1, 25, 100)]
    made += [varied(25, shared) for shared in (0.5, 0.9)]
    columns = (
        Column("world", "outputs"),
        Column("conditional", "conditional_vendi", ".2f"),
        Column("cosine", "scendi, cosine", ".2f"),
        Column("gaussian", "scendi, Gaussian prompts", ".2f"),
    )
    return Table(columns, tuple(row_of(world) for world in made))


def novelty(data: Path) -> list[tuple[str, float, float, float, float]]:
    """By model: distinct answers as published, Conditional-Vendi, and Scendi by two kernels."""
    folder = data / "noveltybench_curated"
    published = {}
    for line in (folder / "dev_reference_ranking.jsonl").read_text().splitlines():
        entry = json.loads(line)
        published[entry["model"]] = entry["distinct_curated_recomputed"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        results = dp.evaluate_models(folder / "dev.jsonl.gz", num_permutations=0)
    rows = []
    for model, result in results.items():
        samples = result.samples
        assert samples is not None and samples.prompts is not None
        same = dp.scendi(samples.outputs, samples.prompts, settings=result.settings)
        cosine = {"kernel_x": dp.Cosine(), "kernel_t": dp.Cosine()}
        other = dp.scendi(samples.outputs, samples.prompts, **cosine)
        conditional = float(result.conditional_vendi)
        rows.append((model, published[model], conditional, float(same), float(other)))
    rows.sort(key=lambda row: -row[1])
    return rows


def plot(rows: Sequence[tuple[str, float, float, float, float]], path: Path) -> None:
    """The number of prompts on paper, and the models."""
    figure, (left, right) = new_panels(None, 2)
    made = [row_of(varied(prompts)) for prompts in NUMBERS]
    with styled():
        lines = (("Conditional-Vendi", "conditional"), ("Scendi", "vendi"))
        for index, (label, family) in enumerate(lines, 1):
            values = [row[index] for row in made]
            left.plot(NUMBERS, values, "o-", label=label, color=family_color(family))
        left.set(xlabel="number of prompts", ylabel="score", ylim=(0, None))
        left.set_title("four different outputs of each prompt", fontsize="medium")
        left.legend()
        right.plot([row[2] for row in rows], [row[3] for row in rows], "o", color=INK)
        right.set(xlabel="Conditional-Vendi", ylabel="Scendi, same kernels")
        right.set_title("13 models of NoveltyBench", fontsize="medium")
    path.write_bytes(image_bytes(figure, "png"))


def main() -> None:
    """Print the tables, and draw the figure if a file is given."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, help="folder of the data sets")
    parser.add_argument("--plot", type=Path, help="file for the figure")
    arguments = parser.parse_args()
    print(worlds().to_markdown())
    if arguments.data is None:
        return
    if not arguments.data.is_dir():
        raise SystemExit(f"{arguments.data} is absent; it is not part of this repository.")
    rows = novelty(arguments.data)
    titles = ("distinct_k", "conditional_vendi", "scendi, same kernels", "scendi, cosine")
    columns = [Column("model", "model"), *(Column(title, title, ".2f") for title in titles)]
    print(Table(tuple(columns), tuple(rows)).to_markdown())
    scores = np.array([row[1:] for row in rows])
    for first in range(len(titles)):
        for second in range(first + 1, len(titles)):
            rho = float(spearmanr(scores[:, first], scores[:, second]).statistic)
            print(f"Spearman of {titles[first]} and {titles[second]}: {rho:.2f}")
    if arguments.plot is not None:
        plot(rows, arguments.plot)


if __name__ == "__main__":
    main()
