"""The bandwidth decides how many samples a score needs."""

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
from experiments.papers.setups import WIDE_BANDWIDTH_X, mixed_pairs, rises

# As multiples of the bandwidth that the papers' rule chooses; 30 for ImageNet in the paper.
_FACTORS = (0.5, 0.7, 1.0, 1.5, 2.0)

# Growth up to which two scores count as almost the same.
_ALMOST = 1.1


@experiment(
    "bandwidth",
    TRUNCATED,
    "Fig. 10",
    claim=(
        "A small bandwidth counts similar images as different and slows convergence; with a large "
        "one the score of 100 images is almost that of 1,000."
    ),
    stand_in="Digits for ImageNet; bandwidths from a half to twice that of the papers' rule, 6.7.",
)
def bandwidths(request: Request) -> Outcome:
    """Vendi of more and more images, at several bandwidths."""
    largest = request.choose(3000, 1000)
    x = mixed_pairs(largest).x
    sizes = [100, 300, 1000]
    if largest > sizes[-1]:
        sizes += [2 * largest // 3, largest]
    rows, curves = [], {}
    for factor in _FACTORS:
        kernel = dp.Gaussian(factor * WIDE_BANDWIDTH_X)
        values = [float(dp.vendi(x[:n], kernel=kernel)) for n in sizes]
        name = f"{factor:g} x rule ({factor * WIDE_BANDWIDTH_X:.1f})"
        curves[name] = values
        to_1000, to_all = values[2] / values[0], values[-1] / values[0]
        rows.append((name, *values, to_1000, to_all))
    growth = [row[-2] for row in rows]
    last = 100 * (growth[-1] - 1)
    claims = {
        "a smaller bandwidth slows convergence": rises(growth[::-1]),
        f"almost the same at the largest bandwidth ({last:+.1f} %)": growth[-1] < _ALMOST,
    }
    verdict, failed = judged(claims)
    reason = (
        f"From 100 images to 1,000, Vendi grows by a factor of {growth[0]:.2f} at the smallest "
        f"bandwidth, {growth[2]:.2f} at that of the papers' rule and {growth[-1]:.2f} at the "
        f"largest; up to {_ALMOST:g} counts as almost the same.{but_not(failed)}"
    )
    figure, (ax,) = panels(1)
    given = {"xlabel": "number of images", "ylabel": "Vendi", "log": True}
    lines(ax, sizes, curves, title="Vendi by bandwidth", **given)
    legend(figure)
    columns = [Column("bandwidth", "bandwidth")]
    columns += [Column(f"n{n}", f"{n:,} images", ".2f") for n in sizes]
    columns.append(Column("to_1000", "growth, 100 to 1,000", ".2f"))
    if largest > 1000:
        columns.append(Column("to_all", f"growth, 100 to {largest:,}", ".2f"))
    return Outcome(
        verdict, reason, Table(tuple(columns), tuple(row[: len(columns)] for row in rows)), figure
    )
