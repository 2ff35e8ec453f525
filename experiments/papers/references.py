"""Scores that need a reference, beside those that need none."""

import numpy as np

import divprism as dp
from divprism.report.table import Column, Table
from experiments.papers.base import (
    SETTLED,
    TRUNCATED,
    Outcome,
    Request,
    but_not,
    experiment,
    judged,
)
from experiments.papers.plots import legend, lines, panels
from experiments.papers.setups import WIDE_BANDWIDTH_X, pairs_for
from experiments.papers.vendi_convergence import scores
from experiments.world.digits import DIGITS, INKS, digit_model, real_images

_NAMES = ("Vendi", "RKE", "truncated", "FKEA", "Nystrom", "recall", "coverage")


@experiment(
    "references",
    TRUNCATED,
    "Table 1, 2",
    claim=(
        "Vendi grows with the number of images, RKE does not. Truncated, FKEA and Nystrom scores "
        "slow down beyond n = t. Recall and coverage, which need real images, settle for SDXL "
        "(Table 2); for DALL-E 3 (Table 1) coverage settles, and recall still rises at the end."
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
    return _judged(rows)


def _judged(rows: list[tuple]) -> Outcome:
    growth = {}
    for index, name in enumerate(_NAMES, start=1):
        growth[name] = rows[-1][index] / rows[-2][index] - 1
    claims = {f"Vendi grows ({100 * growth['Vendi']:+.1f} %)": growth["Vendi"] > SETTLED}
    for name in ("truncated", "FKEA", "Nystrom"):
        part = f"{name} grows less than Vendi ({100 * growth[name]:+.1f} %)"
        claims[part] = growth[name] < growth["Vendi"]
    for name in ("RKE", "recall", "coverage"):
        part = f"{name} settled ({100 * growth[name]:+.1f} %)"
        claims[part] = abs(growth[name]) <= SETTLED
    verdict, failed = judged(claims)
    told = ", ".join(f"{name} {100 * value:+.1f} %" for name, value in growth.items())
    columns = [Column("images", "images", "d")]
    columns += [Column(name, name, ".3f") for name in _NAMES]
    reason = (
        f"From three quarters of the images to all: {told}. More than {100 * SETTLED:g} % counts "
        "as growth, up to this either way as settled, and growing less than Vendi as slowing down."
        f"{but_not(failed)} Table 1 has +9.9 % for Vendi there, +2.5 % for the truncated score and "
        "+4.8 % for recall."
    )
    if growth["Vendi"] <= SETTLED:
        reason += (
            " The digits have fewer kinds: at the bandwidth of the papers' rule Vendi itself has "
            "settled, and differences between the scores are small."
        )
    return Outcome(verdict, reason, Table(tuple(columns), tuple(rows)), _figure(rows))


def _figure(rows: list[tuple]) -> object:
    figure, (ax,) = panels(1)
    sizes = [row[0] for row in rows]
    curves = {}
    for index, name in enumerate(_NAMES, start=1):
        curves[name] = [row[index] / rows[0][index] for row in rows]
    given = {"xlabel": "number of images", "ylabel": f"relative to {sizes[0]:,} images"}
    lines(ax, sizes, curves, title="growth of the scores", **given)
    legend(figure)
    return figure
