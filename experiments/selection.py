"""How good are subsets chosen by `dp.select`? The tables at the end of docs/how-to/select.md.

    python experiments/selection.py --data DATA          # prints them
    python experiments/selection.py --data DATA --write  # and writes them into the page

1. Against the best subset, found by trying all, on 200 random small sets.
2. Against people's eyes: how many of the classes of NoveltyBench (answers that say the same in
   other words) and of the varieties of fruit are among a few outputs of each prompt.
3. Against random subsets and other ways to spread out a subset, on real data.
4. Gains against recomputed scores, and the same choice for another order of rows.

Takes four minutes on two cores. The data sets are not part of this repository.
"""

import itertools
import json
import math
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from pages import run_experiment

import divprism as dp
from divprism.analysis.selection import greedy
from divprism.core.entropy import matrix_entropy
from divprism.report.table import Column, Table

NUM_SETS = 200
NUM_HALVES = 10
NUM_DRAWS = 20
SIZES = (20, 100)
FEW = 3  # outputs of each prompt of NoveltyBench

Choice = Callable[[np.ndarray, int, np.random.Generator], np.ndarray]


def kernel_matrix(x: np.ndarray, bandwidth: float) -> np.ndarray:
    """The Gaussian kernel of all rows."""
    norms = (x * x).sum(axis=1)
    squares = np.maximum(norms[:, None] + norms[None, :] - 2 * (x @ x.T), 0.0)
    return np.exp(-squares / (2 * bandwidth**2))


def log_score(kernel: np.ndarray, rows: np.ndarray, order: float) -> float:
    """The logarithm of Vendi (order 1) or RKE (order 2) of some rows."""
    return matrix_entropy(kernel[np.ix_(rows, rows)], np.ones(len(rows)), order)


# --- 1. small sets


def small_set(rng: np.random.Generator) -> tuple[np.ndarray, float, int]:
    """Twelve to fourteen points, scattered or in clusters, a bandwidth, and how many to choose."""
    n, k, d = rng.integers(12, 15), rng.integers(3, 6), rng.integers(1, 6)
    x = rng.normal(size=(n, d))
    if rng.uniform() < 0.5:
        x = 2 * rng.normal(size=(4, d))[rng.integers(4, size=n)] + 0.4 * x
    spread = math.sqrt(np.median(((x[:, None] - x[None]) ** 2).sum(axis=2)))
    return x, spread * rng.choice([0.3, 0.6, 1.0]), int(k)


def best_log_score(kernel: np.ndarray, k: int, order: float) -> float:
    """The logarithm of the highest score of k rows, by trying all subsets."""
    subsets = itertools.combinations(range(len(kernel)), k)
    return max(log_score(kernel, np.array(rows), order) for rows in subsets)


def ratios_to_the_best(by: str, every_start: int) -> list[float]:
    """The score of the choice over the best, on every small set."""
    before, greedy._EVERY_START = greedy._EVERY_START, every_start
    ratios = []
    for seed in range(NUM_SETS):
        x, bandwidth, k = small_set(np.random.default_rng(seed))
        kernel, options = kernel_matrix(x, bandwidth), {"kernel_x": dp.Gaussian(bandwidth)}
        if by == "per prompt":
            t = np.arange(len(x)) % 2
            chosen = dp.select(x, t, 3, per="prompt", **options)
            parts = [np.flatnonzero(t == prompt) for prompt in (0, 1)]
            best = np.mean([best_log_score(kernel[np.ix_(p, p)], 3, 1.0) for p in parts])
        else:
            chosen = dp.select(x, k=k, by=by, **options)
            best = best_log_score(kernel, k, 2.0 if by == "rke" else 1.0)
        ratios.append(chosen.score / math.exp(best))
    greedy._EVERY_START = before
    return ratios


def small_sets() -> Table:
    """The smallest and the mean ratio to the best subset."""
    rows = []
    every = greedy._EVERY_START
    cases = [("vendi", every), ("rke", every), ("per prompt", every), ("vendi", 0), ("rke", 0)]
    for by, starts in cases:
        ratios = ratios_to_the_best(by, starts)
        name = {"per prompt": "vendi per prompt, 3 of 6 or 7"}.get(by, by)
        if not starts:
            name += ", one start, as beyond 64 outputs"
        found = np.mean(np.array(ratios) > 1 - 1e-9)
        rows.append((name, min(ratios), float(np.mean(ratios)), float(found)))
    columns = (
        Column("objective", "objective"),
        Column("smallest", "smallest ratio", ".3f"),
        Column("mean", "mean ratio", ".4f"),
        Column("found", "best found", ".0%"),
    )
    return Table(columns, tuple(rows))


# --- 2. classes and varieties


def spread_choice(kernel: np.ndarray, k: int, rng: np.random.Generator) -> np.ndarray:
    """k-center: the row farthest from all chosen ones, from a random start (Gonzalez, 1985)."""
    return _farthest_first(kernel, k, int(rng.integers(len(kernel))))


def max_min_choice(kernel: np.ndarray, k: int, rng: np.random.Generator) -> np.ndarray:
    """Max-min dispersion: the same from one of the two rows that are farthest apart."""
    return _farthest_first(kernel, k, int(kernel.min(axis=1).argmin()))


def max_sum_choice(kernel: np.ndarray, k: int, rng: np.random.Generator) -> np.ndarray:
    """Max-sum dispersion: the row with the largest sum of distances to the chosen ones."""
    distances = np.sqrt(-np.log(np.maximum(kernel, 1e-300)))
    chosen = [int(kernel.min(axis=1).argmin())]
    total = distances[chosen[0]].copy()
    while len(chosen) < k:
        total[chosen] = -np.inf
        chosen.append(int(total.argmax()))
        total += distances[chosen[-1]]
    return np.array(chosen)


def random_choice(kernel: np.ndarray, k: int, rng: np.random.Generator) -> np.ndarray:
    """Random rows."""
    return rng.permutation(len(kernel))[:k]


def _farthest_first(kernel: np.ndarray, k: int, start: int) -> np.ndarray:
    chosen = [start]
    nearest = kernel[start].copy()
    while len(chosen) < k:
        nearest[chosen] = np.inf
        chosen.append(int(nearest.argmin()))
        nearest = np.maximum(nearest, kernel[chosen[-1]])
    return np.array(chosen)


OTHERS: dict[str, Choice] = {
    "k-center": spread_choice,
    "max-min": max_min_choice,
    "max-sum": max_sum_choice,
}


def num_kinds(labels: np.ndarray, groups: list[np.ndarray]) -> np.ndarray:
    """The number of different labels in each group of rows."""
    return np.array([len(set(labels[rows].tolist())) for rows in groups], float)


def kinds_by_method(
    x: np.ndarray, t: np.ndarray, labels: np.ndarray, k: int, kernel_x: dp.Gaussian
) -> dict[str, np.ndarray]:
    """For each way to choose k outputs of each prompt, the number of kinds among them."""
    prompts = np.unique(t)
    members = [np.flatnonzero(t == prompt) for prompt in prompts]
    kernels = [kernel_matrix(x[rows].astype(float), kernel_x.bandwidth) for rows in members]
    options = {"kernel_x": kernel_x, "kernel_t": dp.Categorical()}
    found = {}
    for by in ("vendi", "rke"):
        chosen = np.array(dp.select(x, t, k, by=by, per="prompt", **options).indices)
        found[by] = num_kinds(labels, [chosen[t[chosen] == prompt] for prompt in prompts])
    rng = np.random.default_rng(0)
    for name, choice in OTHERS.items():
        groups = [m[choice(kernel, k, rng)] for m, kernel in zip(members, kernels, strict=True)]
        found[name] = num_kinds(labels, groups)
    draws = []
    for _ in range(NUM_DRAWS):
        draws.append(num_kinds(labels, [rng.permutation(rows)[:k] for rows in members]))
    found["random"] = np.mean(draws, axis=0)
    found["best possible"] = np.minimum(num_kinds(labels, members), k)
    return found


def mean_and_reach(values: np.ndarray) -> str:
    """The mean over prompts, and half the width of its 95 % interval."""
    reach = 1.98 * values.std(ddof=1) / math.sqrt(values.size)
    return f"{values.mean():.3f} ± {reach:.3f}"


def novelty_kinds(data: Path) -> dict[str, np.ndarray]:
    """Classes among three answers of each prompt, the mean over models for each prompt."""
    path = data / "noveltybench_curated" / "dev.jsonl.gz"
    samples = dp.load(path)
    labels = np.array([int(name) for name in dp.load(path, model_field="partition").models])
    embedded = dp.embed(samples)
    settings = dp.evaluate_models(samples, num_permutations=0).settings
    models = np.array(samples.models)
    prompts = np.array([prompt.label for prompt in samples.prompts])
    by_model = []
    for model in sorted(set(models)):
        rows = np.flatnonzero(models == model)
        t = prompts[rows]
        kinds = kinds_by_method(embedded.outputs[rows], t, labels[rows], FEW, settings.kernel_x)
        if all(values.size == len(set(prompts)) for values in kinds.values()):
            by_model.append(kinds)
    return {name: np.mean([kinds[name] for kinds in by_model], axis=0) for name in by_model[0]}


def fruit_kinds(data: Path) -> dict[str, np.ndarray]:
    """Varieties among four photos of each kind of fruit."""
    x, rows = features(data / "real_fruits")
    t = np.array([row["prompt"] for row in rows])
    labels = np.array([row["variety"] for row in rows])
    settings = dp.evaluate(x, t, num_permutations=0).settings
    return kinds_by_method(x, t, labels, 4, settings.kernel_x)


def kinds_table(data: Path) -> Table:
    """Both side by side."""
    answers, fruits = novelty_kinds(data), fruit_kinds(data)
    rows = []
    for name, values in answers.items():
        rows.append((name, mean_and_reach(values), f"{fruits[name].mean():.2f}"))
    columns = (
        Column("way", "chosen by"),
        Column("answers", f"classes in {FEW} of 10 answers"),
        Column("fruits", "varieties in 4 of 96 photos"),
    )
    return Table(columns, tuple(rows))


# --- 3. larger subsets


def features(folder: Path) -> tuple[np.ndarray, list[dict]]:
    """The features of images, and the line that describes each."""
    (path,) = folder.glob("features_*.npy")
    lines = (folder / "metadata.jsonl").read_text().splitlines()
    return np.load(path), [json.loads(line) for line in lines]


def vectors(data: Path) -> Iterator[tuple[str, np.ndarray]]:
    """Each data set by its name, as vectors."""
    for name in ("noveltybench_curated/dev.jsonl.gz", "coco_captioners"):
        yield name.partition("/")[0], np.asarray(dp.embed(dp.load(data / name)).outputs)
    for name in ("real_fruits", "t2i_vague_objects"):
        yield name, features(data / name)[0]


def half_scores(x: np.ndarray, k: int, bandwidth: float, seed: int) -> dict[str, np.ndarray]:
    """For each method, log Vendi, log RKE, log Vendi at half the bandwidth, over random subsets."""
    rng = np.random.default_rng(seed)
    half = x[rng.permutation(len(x))[: min(len(x) // 2, 2000)]].astype(float)
    kernel, narrow = kernel_matrix(half, bandwidth), kernel_matrix(half, bandwidth / 2)

    def scores(rows: np.ndarray) -> np.ndarray:
        at_half = log_score(narrow, rows, 1.0)
        return np.array([log_score(kernel, rows, 1.0), log_score(kernel, rows, 2.0), at_half])

    random = np.mean([scores(random_choice(kernel, k, rng)) for _ in range(NUM_DRAWS)], axis=0)
    ratios = {}
    for by in ("vendi", "rke"):
        chosen = dp.select(half, k=k, by=by, kernel_x=dp.Gaussian(bandwidth))
        ratios[by] = scores(np.array(chosen.indices)) - random
    for name, choice in OTHERS.items():
        ratios[name] = scores(choice(kernel, k, rng)) - random
    return ratios


def real_data(x: np.ndarray) -> Table:
    """How many times the score of random subsets each method reaches, over random halves."""
    bandwidth = dp.DistinctPrompts().side_bandwidth("x", x)
    columns = [Column("method", "chosen by")]
    cells: dict[str, list[str]] = {}
    for k in SIZES:
        for heading in ("Vendi", "RKE", "Vendi, half the bandwidth"):
            columns.append(Column(f"{heading} {k}", f"k = {k}: {heading}"))
        halves = [half_scores(x, k, bandwidth, seed) for seed in range(NUM_HALVES)]
        for name in halves[0]:
            logs = np.array([half[name] for half in halves])
            for mean, spread in zip(logs.mean(axis=0), logs.std(axis=0, ddof=1), strict=True):
                ratio = math.exp(mean)
                cells.setdefault(name, []).append(f"{ratio:.2f} ± {2 * ratio * spread:.2f}")
    rows = tuple((name, *values) for name, values in cells.items())
    return Table(tuple(columns), rows)


# --- 4. checks


def checks(data: Path) -> str:
    """How far gains are from recomputed scores, and whether another order of rows matters."""
    x = features(data / "real_fruits")[0].astype(float)
    chosen = dp.select(x, k=60)
    kernel = kernel_matrix(x, chosen.settings.kernel_x.bandwidth)
    rows = np.array(chosen.indices)
    again = [math.exp(log_score(kernel, rows[: size + 1], 1.0)) for size in range(60)]
    worst = np.abs(np.array(again) - chosen.scores).max()
    same = True
    for seed in range(5):
        order = np.random.default_rng(seed).permutation(len(x))
        other = dp.select(x[order], k=60, rng=seed)
        same &= [int(order[row]) for row in other.indices] == list(chosen.indices)
    answer = "the same" if same else "not the same"
    return (
        f"Scores after each of 60 choices differ from recomputed ones by at most {worst:.0e} "
        f"(`real_fruits`). The same photos in five other orders, with other seeds: {answer} 60 "
        "choices in the same order."
    )


def sections(data: Path) -> Iterator[str]:
    """The sections of the page."""
    yield (
        f"### Against the best subset\n\n{NUM_SETS} random sets of 12 to 14 points, 3 to 5 chosen; "
        f"score of the choice over that of the best of all subsets.\n\n{small_sets().to_markdown()}"
    )
    yield (
        "### Kinds that people see\n\n`noveltybench_curated`: different classes of equivalent "
        f"answers among {FEW}, mean over 13 models, ±: 95 % interval over 100 prompts. "
        "`real_fruits`: different varieties among four photos of a fruit, mean over seven.\n\n"
        f"{kinds_table(data).to_markdown()}"
    )
    for name, x in vectors(data):
        yield (
            f"### {name}\n\nTimes the score of random subsets (geometric mean of {NUM_DRAWS}), "
            f"mean over {NUM_HALVES} random halves of {len(x):,} outputs, at most 2,000 each; ±: "
            f"twice the standard deviation over the halves.\n\n{real_data(x).to_markdown()}"
        )
    yield f"### Checks\n\n{checks(data)}\n"


def main() -> None:
    """Print the tables, and write them into the page with --write."""
    run_experiment(
        __doc__,
        script="experiments/selection.py",
        page="docs/how-to/select.md",
        data_sets=["noveltybench_curated", "coco_captioners", "real_fruits", "t2i_vague_objects"],
        sections=sections,
    )


if __name__ == "__main__":
    main()
