"""Less noise at the start makes a generator less diverse."""

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
from experiments.papers.plots import legend, lines, panels
from experiments.papers.setups import mixed_pairs, rises
from experiments.papers.vendi_convergence import scores

_SCALES = (0.4, 0.55, 0.7, 0.85, 1.0)
_ORDERS = (1.0, 1.5, 2.0)
_SHOWN = ("truncated", "Nystrom", "FKEA")


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
    rows: list[tuple] = []
    claims: dict[str, bool] = {}
    figure, axes = panels(len(EMBEDDINGS) * len(_ORDERS), len(_ORDERS))
    for index, (name, embed) in enumerate(EMBEDDINGS.items()):
        bandwidth = None
        curves: dict[tuple[float, str], list[float]] = {}
        # The widest set decides the bandwidth, for all of them.
        for psi in reversed(_SCALES):
            vectors = embed(n, psi)
            if bandwidth is None:
                bandwidth = dp.StableScore().bandwidth(vectors)
            for order in _ORDERS:
                found = scores(vectors, dp.Gaussian(bandwidth), n // 2, order)
                for kind in _SHOWN:
                    curves.setdefault((order, kind), []).insert(0, found[kind])
                rows.append((name, order, psi, *(found[kind] for kind in _SHOWN)))
        for (order, kind), values in curves.items():
            claims[f"rise of {kind} with {name} at order {order:g}"] = rises(values)
        for order, ax in zip(_ORDERS, axes[index * len(_ORDERS) :], strict=False):
            own = {kind: curves[order, kind] for kind in _SHOWN}
            title = f"{name}, order {order:g}"
            lines(ax, _SCALES, own, title=title, xlabel="psi", ylabel="score")
    legend(figure)
    verdict, failed = judged(claims)
    reason = (
        f"{len(claims) - len(failed)} of {len(claims)} curves ({len(EMBEDDINGS)} embeddings, "
        f"{len(_ORDERS)} orders, {len(_SHOWN)} estimators) rise at every step of psi from "
        f"{_SCALES[0]} to {_SCALES[-1]}.{but_not(failed)} n = {n:,}, t = {n // 2:,}."
    )
    columns = [
        Column("embedding", "embedding"),
        Column("order", "order", "g"),
        Column("psi", "psi", ".2f"),
        *(Column(kind, kind, ".2f") for kind in _SHOWN),
    ]
    rows.sort(key=lambda row: row[:3])
    return Outcome(verdict, reason, Table(tuple(columns), tuple(rows)), figure)


def _judge(n: int, psi: float) -> np.ndarray:
    return mixed_pairs(n, psi=psi).x


def _pixels(n: int, psi: float) -> np.ndarray:
    return mixed_pairs(n, psi=psi).images


def _random(n: int, psi: float) -> np.ndarray:
    """Random features: rectified projections of the pixels."""
    return np.maximum(mixed_pairs(n, psi=psi).images @ _projection(), 0.0)


@lru_cache
def _projection() -> np.ndarray:
    return np.random.default_rng(0).standard_normal((64, 256)).astype(np.float32) / 8


EMBEDDINGS = {"features of the judge": _judge, "pixels": _pixels, "random features": _random}
