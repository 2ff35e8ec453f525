"""Less noise at the start makes a generator less diverse."""

from functools import lru_cache

import numpy as np

import divprism as dp
from divprism.report.table import Column, Table
from experiments.papers.base import FAILS, HOLDS, PARTLY, TRUNCATED, Outcome, Request, experiment
from experiments.papers.plots import lines, panels
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
    rows, monotone, total = [], 0, 0
    figure, axes = panels(len(EMBEDDINGS))
    for (name, embed), ax in zip(EMBEDDINGS.items(), axes, strict=True):
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
        rising = [rises(values) for values in curves.values()]
        monotone, total = monotone + sum(rising), total + len(rising)
        at_order_1 = {kind: curves[1.0, kind] for kind in _SHOWN}
        lines(ax, _SCALES, at_order_1, title=f"{name}, order 1", xlabel="psi")
    verdict = PARTLY
    if monotone == total:
        verdict = HOLDS
    elif monotone < total / 2:
        verdict = FAILS
    reason = (
        f"{monotone} of {total} curves (three embeddings, three orders, three estimators) rise at "
        f"every step of psi from {_SCALES[0]} to {_SCALES[-1]}."
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


EMBEDDINGS = {"judge": _judge, "pixels": _pixels, "random features": _random}
