"""Gaussian mixtures in the plane, matched with each other."""

from itertools import pairwise

import divprism as dp
from divprism.data.toy import BANDWIDTH, image_series, text_series
from divprism.report.table import Column, Table
from experiments.papers.base import (
    CONDITIONAL,
    Outcome,
    Request,
    but_not,
    experiment,
    judged,
)
from experiments.papers.plots import legend, lines, panels

# Conditional- and Information-Vendi at the ends of both rows, as published (App. G.1).
_PUBLISHED = {"text": ((2.21, 2.97), (1.34, 4.61)), "image": ((1.55, 4.01), (2.46, 3.42))}


@experiment(
    "fig11",
    CONDITIONAL,
    "Fig. 11",
    claim=(
        "With four kinds of image and one to four of prompt, Information-Vendi rises (2.97 to "
        "4.61) and Conditional-Vendi falls (2.21 to 1.34). With two kinds of prompt and two to "
        "six of image, Conditional-Vendi rises (1.55 to 2.46) and Information-Vendi falls (4.01 "
        "to 3.42)."
    ),
    stand_in="The construction of the paper: 1,000 pairs, bandwidth 0.6, minimum weight matching.",
)
def mixtures(request: Request) -> Outcome:
    """Both rows of the figure."""
    n = request.choose(1000, 300)
    kernels = {"kernel_x": dp.Gaussian(BANDWIDTH), "kernel_t": dp.Gaussian(BANDWIDTH)}
    rows = []
    figure, axes = panels(2)
    claims: dict[str, bool] = {}
    for row, worlds, ax in (
        ("text", text_series(n=n), axes[0]),
        ("image", image_series(n=n), axes[1]),
    ):
        conditional, information, modes = [], [], []
        for world in worlds:
            found = dp.evaluate(world.x, world.t, num_permutations=0, **kernels)
            conditional.append(float(found.conditional_vendi))
            information.append(float(found.information_vendi))
            modes.append({"text": world.text_modes, "image": world.image_modes}[row])
            rows.append(
                (row, world.text_modes, world.image_modes, conditional[-1], information[-1])
            )
        curves = {"Conditional-Vendi": conditional, "Information-Vendi": information}
        for name, values in curves.items():
            up = (name == "Conditional-Vendi") == (row == "image")
            claims |= _steps(f"{name} with more kinds of {row}", modes, values, up=up)
        given = {"title": f"more kinds of {row}", "xlabel": f"kinds of {row}", "ylabel": "score"}
        lines(ax, modes, curves, counts=True, **given)
    legend(figure)
    return _judged(rows, claims, figure)


def _judged(rows: list[tuple], claims: dict[str, bool], figure: object) -> Outcome:
    verdict, failed = judged(claims)
    ends = []
    for row in ("text", "image"):
        own = [each for each in rows if each[0] == row]
        (c_first, i_first), (c_last, i_last) = _PUBLISHED[row]
        ends.append(
            f"more kinds of {row}: Conditional {own[0][3]:.2f} to {own[-1][3]:.2f} (published "
            f"{c_first} to {c_last}), Information {own[0][4]:.2f} to {own[-1][4]:.2f} (published "
            f"{i_first} to {i_last})"
        )
    reason = (
        f"{'; '.join(ends)}. The paper states no positions and widths of its Gaussians, so that "
        "its numbers cannot be repeated; the directions can: "
        f"{len(claims) - len(failed)} of {len(claims)} steps go as claimed.{but_not(failed)}"
    )
    columns = (
        Column("row", "more kinds of"),
        Column("text_modes", "kinds of text", "d"),
        Column("image_modes", "kinds of image", "d"),
        Column("conditional_vendi", "Conditional-Vendi", ".2f"),
        Column("information_vendi", "Information-Vendi", ".2f"),
    )
    return Outcome(verdict, reason[0].upper() + reason[1:], Table(columns, tuple(rows)), figure)


def _steps(name: str, modes: list[int], values: list[float], *, up: bool) -> dict[str, bool]:
    """Whether a score goes up, or down, at each step."""
    claims = {}
    words = ("fall", "rises")
    if up:
        words = ("rise", "falls")
    for (fewer, more), (before, after) in zip(pairwise(modes), pairwise(values), strict=True):
        values_of_step = f"({before:.2f} to {after:.2f})"
        step = f"{name} should {words[0]} from {fewer} to {more}, but {words[1]} {values_of_step}"
        claims[step] = (after > before) == up
    return claims
