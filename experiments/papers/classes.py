"""More classes among the images, under several embeddings."""

import numpy as np

import divprism as dp
from divprism.report.table import Column, Table
from experiments.papers.base import FAILS, HOLDS, PARTLY, TRUNCATED, Outcome, Request, experiment
from experiments.papers.plots import lines, panels
from experiments.papers.setups import Pairs, pairs_for, rises
from experiments.papers.vendi_convergence import scores
from experiments.world.digits import DIGITS, INKS

_COUNTS = (1, 2, 4, 6, 8, 10)
_SHOWN = ("truncated", "Nystrom", "FKEA", "RKE")


@experiment(
    "classes",
    TRUNCATED,
    "Fig. 14, 16",
    claim=(
        "Truncated Vendi, Nystrom, FKEA and RKE grow with the number of ImageNet classes in the "
        "data, under CLIP and SwAV embeddings."
    ),
    stand_in="One to ten digits in three inks; features of the judge, and pixels.",
)
def classes(request: Request) -> Outcome:
    """Scores of the same number of images from more and more classes."""
    n = request.choose(1500, 300)
    rows, curves = [], {}
    figure, axes = panels(2)
    sets = {count: _images(count, n) for count in _COUNTS}
    for name, ax in zip(("judge", "pixels"), axes, strict=True):
        vectors = {count: _vectors(pairs, name) for count, pairs in sets.items()}
        kernel = dp.Gaussian(dp.StableScore().bandwidth(vectors[_COUNTS[-1]]))
        for count in _COUNTS:
            found = scores(vectors[count], kernel, n // 2)
            for kind in _SHOWN:
                curves.setdefault((name, kind), []).append(found[kind])
            rows.append((name, count, *(found[kind] for kind in _SHOWN)))
        own = {kind: curves[name, kind] for kind in _SHOWN}
        lines(ax, _COUNTS, own, title=name, xlabel="classes")
    rising = sum(rises(values) for values in curves.values())
    verdict = PARTLY
    if rising == len(curves):
        verdict = HOLDS
    elif rising < len(curves) / 2:
        verdict = FAILS
    reason = f"{rising} of {len(curves)} curves rise with every step from 1 to 10 classes."
    columns = [Column("embedding", "embedding"), Column("classes", "classes", "d")]
    columns += [Column(kind, kind, ".2f") for kind in _SHOWN]
    return Outcome(verdict, reason, Table(tuple(columns), tuple(rows)), figure)


def _images(count: int, n: int) -> Pairs:
    """Images of the first digits, as many of each."""
    rows = np.arange(n)
    prompts = [f"a {INKS[row // count % 3]} {DIGITS[row % count]}" for row in rows]
    return pairs_for(prompts)


def _vectors(pairs: Pairs, name: str) -> np.ndarray:
    return {"judge": pairs.x, "pixels": pairs.images}[name]
