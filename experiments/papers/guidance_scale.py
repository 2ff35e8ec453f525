"""Stronger classifier-free guidance: images follow the prompts, and vary less."""

import numpy as np

import divprism as dp
from divprism.report.table import Column, Table
from experiments.papers.base import EARLIER, FAILS, HOLDS, PARTLY, Outcome, Request, experiment
from experiments.papers.plots import lines, panels
from experiments.papers.setups import KERNELS, Pairs, pairs_for, rises
from experiments.world.digits import DIGITS, INKS

_SCALES = (0.5, 1.0, 2.0, 4.0, 8.0)


@experiment(
    "guidance-scale",
    EARLIER,
    "Fig. 4 of the arXiv version",
    claim=(
        "Models differ in both factors: those whose images follow the prompts most have the "
        "highest Information-Vendi, and those that are more varied but less faithful the highest "
        "Conditional-Vendi."
    ),
    stand_in=(
        "One digit model at five scales of classifier-free guidance, for Flux, SDXL, Kandinsky "
        "and GigaGAN: a higher scale is more faithful and less varied."
    ),
)
def guidance_scale(request: Request) -> Outcome:
    """Both factors and the alignment, by guidance scale."""
    n = request.choose(2000, 500)
    rng = np.random.default_rng(0)
    inks, digits = rng.integers(len(INKS), size=n), rng.integers(len(DIGITS), size=n)
    named = zip(inks, digits, strict=True)
    prompts = [f"a {INKS[ink]} {DIGITS[digit]}" for ink, digit in named]
    rows = []
    for scale in _SCALES:
        pairs = pairs_for(prompts, guidance_scale=scale)
        found = dp.evaluate(pairs.x, pairs.t, num_permutations=0, **KERNELS)
        scores = (found.conditional_vendi, found.information_vendi, found.vendi)
        aligned = _aligned(pairs, digits, inks)
        rows.append((scale, aligned, *(float(score) for score in scores)))
    conditional, information = [row[2] for row in rows], [row[3] for row in rows]
    falls, grows = rises(conditional[::-1]), information[-1] > information[0]
    verdict = PARTLY
    if falls and grows:
        verdict = HOLDS
    elif not falls and not grows:
        verdict = FAILS
    reason = (
        f"From scale {_SCALES[0]} to {_SCALES[-1]:g}, the judge agrees with "
        f"{100 * rows[0][1]:.0f} to {100 * rows[-1][1]:.0f} % of the prompts; Conditional-Vendi "
        f"goes from {conditional[0]:.1f} to {conditional[-1]:.1f} and Information-Vendi from "
        f"{information[0]:.1f} to {information[-1]:.1f}."
    )
    figure, (ax,) = panels(1)
    curves = {"Conditional-Vendi": conditional, "Information-Vendi": information}
    lines(ax, _SCALES, curves, title="by guidance scale", xlabel="scale", log=True)
    columns = (
        Column("scale", "scale", "g"),
        Column("alignment", "alignment", ".3f"),
        Column("conditional_vendi", "Conditional-Vendi", ".2f"),
        Column("information_vendi", "Information-Vendi", ".2f"),
        Column("vendi", "Vendi", ".2f"),
    )
    return Outcome(verdict, reason, Table(columns, tuple(rows)), figure)


def _aligned(pairs: Pairs, digits: np.ndarray, inks: np.ndarray) -> float:
    """Share of images that show the digit and the ink of their prompts."""
    return float(((pairs.digits == digits) & (pairs.inks == inks)).mean())
