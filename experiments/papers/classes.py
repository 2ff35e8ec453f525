"""More classes among the images, under several embeddings."""

from collections.abc import Callable, Sequence

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
from experiments.papers.class_counts import loaded
from experiments.papers.plots import legend, lines, panels
from experiments.papers.setups import Pairs, pairs_for, rises
from experiments.papers.vendi_convergence import scores
from experiments.world.digits import DIGITS, INKS

_COUNTS = (1, 2, 4, 6, 8, 10)
_SHOWN = ("truncated", "Nystrom", "FKEA", "RKE")

# The curves of the paper; RKE is beyond it.
_CLAIMED = _SHOWN[:3]

# Sets of images of the stand-in: each is generated from its own noise.
_SETS = 5

# Two of ten real classes may be varied ones or not: means over few sets show which were drawn.
_DRAWS = 50

VectorsOf = Callable[[int], list[np.ndarray]]
"""Number of classes -> vectors of the same number of images from these, a set for each draw."""


@experiment(
    "classes",
    TRUNCATED,
    "Fig. 14, 16",
    claim=(
        "Truncated Vendi, Nystrom and FKEA scores grow with the number of ImageNet classes in the "
        "data, under CLIP and SwAV embeddings. Beyond the paper: RKE too."
    ),
    stand_in="One to ten digits in three inks; features of the judge, and pixels.",
    data="a folder that `divprism.load` reads; images of the same prompt are a class",
)
def classes(request: Request) -> Outcome:
    """Scores of the same number of images from more and more classes."""
    if request.data is not None:
        counts, features_of = loaded(request.data)

        def drawn(count: int) -> list[np.ndarray]:
            return [features_of(count, seed) for seed in range(_DRAWS)]

        return _outcome(counts, {"default embedder": drawn})
    n = request.choose(1000, 300)
    features, pixels = {}, {}
    for count in _COUNTS:
        sets = [_images(count, n, seed) for seed in range(_SETS)]
        features[count] = [each.x for each in sets]
        pixels[count] = [each.images for each in sets]
    return _outcome(
        _COUNTS, {"features of the judge": features.__getitem__, "pixels": pixels.__getitem__}
    )


def _outcome(counts: Sequence[int], embeddings: dict[str, VectorsOf]) -> Outcome:
    """Scores under each embedding, and whether they rise."""
    rows, curves = [], {}
    figure, axes = panels(len(embeddings))
    for (name, vectors_of), ax in zip(embeddings.items(), axes, strict=True):
        largest, *others = vectors_of(counts[-1])
        kernel = dp.Gaussian(dp.StableScore().bandwidth(largest))
        for count in counts:
            found = [scores(x, kernel, len(x) // 2) for x in vectors_of(count)]
            means = []
            for kind in _SHOWN:
                values = [each[kind] for each in found]
                means.append(float(np.mean(values)))
                curves.setdefault((name, kind), []).append(means[-1])
            rows.append((name, count, *means))
        own = {kind: curves[name, kind] for kind in _SHOWN}
        given = {"xlabel": "number of classes", "ylabel": "score", "counts": True}
        lines(ax, counts, own, title=name, **given)
    legend(figure)
    claims, beyond = {}, []
    for (name, kind), values in curves.items():
        ends = f"{values[0]:.2f} to {values[-1]:.2f}"
        if kind in _CLAIMED:
            claims[f"rise of {kind} with {name} ({ends})"] = rises(values)
        elif rises(values):
            beyond.append(f"{kind} rises at every step with {name}")
        else:
            beyond.append(f"{kind} does not rise at every step with {name} ({ends})")
    verdict, failed = judged(claims)
    reason = (
        f"{len(claims) - len(failed)} of {len(claims)} curves rise with every step from "
        f"{counts[0]} to {counts[-1]} classes.{but_not(failed)} Beyond the paper, "
        f"{'; '.join(beyond)}. n = {len(largest):,}, t = {len(largest) // 2:,}, means over "
        f"{1 + len(others)} sets of images."
    )
    columns = [Column("embedding", "embedding"), Column("classes", "classes", "d")]
    columns += [Column(kind, kind, ".2f") for kind in _SHOWN]
    return Outcome(verdict, reason, Table(tuple(columns), tuple(rows)), figure)


def _images(count: int, n: int, seed: int) -> Pairs:
    """Images of the first digits, the same number of each."""
    rows = np.arange(n)
    prompts = [f"a {INKS[row // count % 3]} {DIGITS[row % count]}" for row in rows]
    return pairs_for(prompts, seed=seed)
