"""The bandwidth decides how many samples a score needs."""

import numpy as np

import divprism as dp
from divprism.report.table import Column, Table
from experiments.papers.base import FAILS, HOLDS, TRUNCATED, Outcome, Request, experiment
from experiments.papers.plots import lines, panels
from experiments.papers.setups import WIDE_BANDWIDTH_X, mixed_pairs

# As multiples of the bandwidth that the papers' rule chooses; 30 for ImageNet in the paper.
_FACTORS = (0.5, 0.7, 1.0, 1.5, 2.0)


@experiment(
    "bandwidth",
    TRUNCATED,
    "Fig. 10",
    claim=(
        "A small bandwidth counts similar images as different and slows convergence; with a large "
        "one the score of 100 images is that of 1,000."
    ),
    stand_in="Digits for ImageNet; bandwidths from a half to twice that of the papers' rule.",
)
def bandwidths(request: Request) -> Outcome:
    """Vendi of more and more images, at several bandwidths."""
    largest = request.choose(3000, 800)
    x = mixed_pairs(largest).x
    sizes = [100, largest // 4, largest // 2, largest]
    rows, curves = [], {}
    for factor in _FACTORS:
        kernel = dp.Gaussian(factor * WIDE_BANDWIDTH_X)
        values = [float(dp.vendi(x[:n], kernel=kernel)) for n in sizes]
        curves[f"{factor:g} x"] = values
        rows.append((factor * WIDE_BANDWIDTH_X, *values, values[-1] / values[0]))
    growth = np.array([row[-1] for row in rows])
    falls = bool(np.all(np.diff(growth) < 0))
    verdict = FAILS
    if falls and growth[-1] < 1.2:
        verdict = HOLDS
    reason = (
        f"From 100 images to {largest:,}, Vendi grows by a factor of {growth[0]:.1f} at the "
        f"smallest bandwidth, {growth[2]:.2f} at that of the rule and {growth[-1]:.2f} at the "
        "largest."
    )
    figure, (ax,) = panels(1)
    lines(ax, sizes, curves, title="Vendi by bandwidth", xlabel="images", log=True)
    columns = [Column("bandwidth", "bandwidth", ".1f")]
    columns += [Column(f"n{n}", f"{n:,} images", ".2f") for n in sizes]
    columns.append(Column("growth", "growth", ".2f"))
    return Outcome(verdict, reason, Table(tuple(columns), tuple(rows)), figure)
