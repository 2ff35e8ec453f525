"""Less noise at the start makes a generator less diverse."""

from collections.abc import Callable
from functools import lru_cache

import numpy as np

import divprism as dp
from divprism.report.table import Column, Table
from experiments.papers.base import (
    TRUNCATED,
    Outcome,
    Request,
    but_not,
    experiment,
    judged,
)
from experiments.papers.class_counts import ESTIMATORS, ORDERS, SETS, scores_of
from experiments.papers.plots import legend, lines, panels
from experiments.papers.setups import Pairs, mixed_prompts, pairs_for, rises

_SCALES = (0.4, 0.55, 0.7, 0.85, 1.0)


@experiment(
    "psi",
    TRUNCATED,
    "Fig. 6-8, 15, 17",
    claim=(
        "The scores of orders 1, 1.5 and 2, truncated, by Nystrom and by FKEA, grow with the "
        "truncation factor psi of StyleGAN3 and StyleGAN-XL, under several embeddings."
    ),
    stand_in=(
        "The digit model with psi times the noise; features of the judge for DINOv2, pixels and "
        "random features of pixels for CLIP and SwAV."
    ),
)
def noise_scale(request: Request) -> Outcome:
    """Scores of images made from more and more noise."""
    n = request.choose(1000, 300)
    images = {psi: [_images(n, psi, seed) for seed in range(SETS)] for psi in _SCALES}
    rows: list[tuple] = []
    claims: dict[str, bool] = {}
    figure, axes = panels(len(EMBEDDINGS) * len(ORDERS), len(ORDERS))
    for index, (name, embed) in enumerate(EMBEDDINGS.items()):
        vectors = {psi: [embed(each) for each in sets] for psi, sets in images.items()}
        # The widest set decides the bandwidth, for all of them.
        bandwidth = dp.StableScore().bandwidth(vectors[_SCALES[-1]][0])
        curves: dict[tuple[float, str], list[float]] = {}
        for psi, sets in vectors.items():
            for kind in ESTIMATORS:
                means = np.mean([scores_of(kind, x, bandwidth) for x in sets], axis=0)
                for order, score in zip(ORDERS, means, strict=True):
                    curves.setdefault((order, kind), []).append(float(score))
            for order in ORDERS:
                rows.append((name, order, psi, *(curves[order, kind][-1] for kind in ESTIMATORS)))
        for (order, kind), values in curves.items():
            claims[f"rise of {kind} with {name} at order {order:g}"] = rises(values)
        for order, ax in zip(ORDERS, axes[index * len(ORDERS) :], strict=False):
            own = {kind: curves[order, kind] for kind in ESTIMATORS}
            title = f"{name}, order {order:g}"
            lines(ax, _SCALES, own, title=title, xlabel="psi", ylabel="score")
    legend(figure)
    verdict, failed = judged(claims)
    reason = (
        f"{len(claims) - len(failed)} of {len(claims)} curves ({len(EMBEDDINGS)} embeddings, "
        f"{len(ORDERS)} orders, {len(ESTIMATORS)} estimators) rise at every step of psi from "
        f"{_SCALES[0]} to {_SCALES[-1]}.{but_not(failed)} Means over {SETS} sets of n = {n:,} "
        f"images, as in Sec. 6.2; t = {n // 2:,}."
    )
    columns = [
        Column("embedding", "embedding"),
        Column("order", "order", "g"),
        Column("psi", "psi", ".2f"),
        *(Column(kind, kind, ".2f") for kind in ESTIMATORS),
    ]
    rows.sort(key=lambda row: row[:3])
    return Outcome(verdict, reason, Table(tuple(columns), tuple(rows)), figure)


def _images(n: int, psi: float, seed: int) -> Pairs:
    """Images from noise of this scale, each set for its own prompts."""
    return pairs_for(mixed_prompts(n, seed), seed=seed, psi=psi)


def _judge(pairs: Pairs) -> np.ndarray:
    return pairs.x


def _pixels(pairs: Pairs) -> np.ndarray:
    return pairs.images


def _random(pairs: Pairs) -> np.ndarray:
    """Random features: rectified projections of the pixels."""
    return np.maximum(pairs.images @ _projection(), 0.0)


@lru_cache
def _projection() -> np.ndarray:
    return np.random.default_rng(0).standard_normal((64, 256)).astype(np.float32) / 8


EMBEDDINGS: dict[str, Callable[[Pairs], np.ndarray]] = {
    "features of the judge": _judge,
    "pixels": _pixels,
    "random features": _random,
}
