"""Stronger classifier-free guidance: images follow the prompts, and vary less."""

from collections.abc import Sequence

import numpy as np

import divprism as dp
from divprism.report.table import Column, Table
from experiments.papers.base import (
    EARLIER,
    Outcome,
    Request,
    but_not,
    experiment,
    judged,
)
from experiments.papers.plots import legend, lines, panels
from experiments.papers.setups import KERNELS, Pairs, pairs_for, rises
from experiments.world.digits import DIGITS, INKS

# Shares of images that fit their prompts, up to which two models count as equally faithful.
_SAME_ALIGNMENT = 0.005

_SCALES = (0.5, 1.0, 2.0, 4.0, 8.0)


@experiment(
    "guidance-scale",
    EARLIER,
    "Fig. 4 of the arXiv version; the text on Fig. 23, 24 in App. G.4 of AISTATS",
    claim=(
        "Models differ in both factors: the one whose images follow the prompts most (Flux) has "
        "the highest Information-Vendi, and one that is more varied but misses parts of the "
        "prompts (GigaGAN) a higher Conditional-Vendi."
    ),
    stand_in=(
        "One digit model at five scales of classifier-free guidance, for Flux, SDXL, Kandinsky "
        "and GigaGAN. A higher scale is less varied; up to scale 4 it is also more faithful, as "
        "the share of images shows in which the judge sees digit and ink of the prompt."
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
        rows.append((scale, _aligned(pairs, digits, inks), *(float(score) for score in scores)))
    return _judged(rows)


def _judged(rows: list[tuple]) -> Outcome:
    _, aligned, conditional, information, vendi = (list(each) for each in zip(*rows, strict=True))
    peak = int(np.argmax(information))
    claims = {
        "Conditional-Vendi falls with every scale": rises(conditional[::-1]),
        "Information-Vendi is highest for the most faithful": (
            aligned[peak] > max(aligned) - _SAME_ALIGNMENT
        ),
        "Information-Vendi is lowest for the least faithful": (
            np.argmin(information) == np.argmin(aligned)
        ),
    }
    verdict, failed = judged(claims)
    reason = (
        f"At scales {_listed(_SCALES, 'g')} the judge agrees with "
        f"{_listed([100 * share for share in aligned], '.1f')} % of the prompts. Conditional-Vendi "
        f"goes from {conditional[0]:.1f} to {conditional[-1]:.1f}. Information-Vendi is "
        f"{_listed(information, '.1f')}, highest at scale {_SCALES[peak]:g}.{but_not(failed)}"
    )
    figure, axes = panels(2)
    curves = {"Vendi": vendi}
    curves |= {"Conditional-Vendi": conditional, "Information-Vendi": information}
    given = {"xlabel": "scale of classifier-free guidance", "ylabel": "score", "log": True}
    lines(axes[0], _SCALES, curves, title="scores", **given)
    given = {"xlabel": "scale of classifier-free guidance", "ylabel": "share of images"}
    lines(axes[1], _SCALES, {"agreement": aligned}, title="agreement with the prompt", **given)
    legend(figure)
    columns = (
        Column("scale", "scale", "g"),
        Column("alignment", "agreement of the judge", ".3f"),
        Column("conditional_vendi", "Conditional-Vendi", ".2f"),
        Column("information_vendi", "Information-Vendi", ".2f"),
        Column("vendi", "Vendi", ".2f"),
    )
    return Outcome(verdict, reason, Table(columns, tuple(rows)), figure)


def _aligned(pairs: Pairs, digits: np.ndarray, inks: np.ndarray) -> float:
    """Share of images that show the digit and the ink of their prompts."""
    return float(((pairs.digits == digits) & (pairs.inks == inks)).mean())


def _listed(values: Sequence[float], form: str) -> str:
    return ", ".join(f"{value:{form}}" for value in values)
