"""Scores that need a reference, beside those that need none."""

import numpy as np

import divprism as dp
from divprism.report.table import Column, Table
from experiments.papers.base import FAILS, HOLDS, PARTLY, TRUNCATED, Outcome, Request, experiment
from experiments.papers.plots import lines, panels
from experiments.papers.setups import WIDE_BANDWIDTH_X, pairs_for
from experiments.papers.vendi_convergence import scores
from experiments.world.digits import DIGITS, INKS, digit_model, real_images

_NAMES = ("Vendi", "RKE", "truncated", "FKEA", "Nystrom", "recall", "coverage")

# Growth up to which a score counts as settled over the last step.
_SETTLED = 0.03


@experiment(
    "references",
    TRUNCATED,
    "Table 1, 2",
    claim=(
        "Vendi grows with the number of images, RKE does not. Truncated, FKEA and Nystrom scores "
        "slow down beyond n = t. Recall and coverage, which need real images, settle too."
    ),
    stand_in=(
        "Images of the digit model for DALL-E 3 and SDXL on MS-COCO, real digits as reference; t "
        "is half of the largest sample."
    ),
)
def references(request: Request) -> Outcome:
    """All columns of the tables for more and more images."""
    largest = request.choose(2000, 800)
    rng = np.random.default_rng(0)
    named = zip(rng.choice(INKS, largest), rng.choice(DIGITS, largest), strict=True)
    pairs = pairs_for([f"a {ink} {digit}" for ink, digit in named])
    images, _, _ = real_images()
    # Fewer than generated images, so that these can cover them.
    chosen = rng.choice(len(images), largest // 4, replace=False)
    real = digit_model().features(images[chosen])
    sizes = [largest // 4, largest // 2, 3 * largest // 4, largest]
    kernel = dp.Gaussian(WIDE_BANDWIDTH_X)
    rows = []
    for n in sizes:
        found = scores(pairs.x[:n], kernel, largest // 2)
        found["recall"] = dp.recall(pairs.x[:n], real)
        found["coverage"] = dp.coverage(pairs.x[:n], real)
        rows.append((n, *(found[name] for name in _NAMES)))
    growth = {}
    for index, name in enumerate(_NAMES, start=1):
        growth[name] = rows[-1][index] / rows[-2][index] - 1
    slower = [growth[name] < growth["Vendi"] for name in ("truncated", "FKEA", "Nystrom")]
    settled = [abs(growth[name]) < _SETTLED for name in ("RKE", "recall", "coverage")]
    verdict = PARTLY
    if all(slower) and all(settled):
        verdict = HOLDS
    elif not any(slower):
        verdict = FAILS
    told = ", ".join(f"{name} {100 * value:+.1f} %" for name, value in growth.items())
    figure, (ax,) = panels(1)
    curves = {}
    for index, name in enumerate(_NAMES, start=1):
        curves[name] = [row[index] / rows[0][index] for row in rows]
    lines(ax, sizes, curves, title="relative to the first", xlabel="images")
    columns = [Column("images", "images", "d")]
    columns += [Column(name, name, ".3f") for name in _NAMES]
    reason = f"Over the last third of the images: {told}."
    return Outcome(verdict, reason, Table(tuple(columns), tuple(rows)), figure)
