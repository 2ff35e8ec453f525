"""Variety from the model, and variety from the prompts."""

import numpy as np

import divprism as dp
from divprism.report.table import Column, Table
from experiments.papers.base import CONDITIONAL, FAILS, HOLDS, TITLES, Outcome, Request, experiment
from experiments.papers.plots import mosaic, panels, show
from experiments.papers.setups import WIDE_KERNELS, Pairs, pairs_for
from experiments.world.digits import DIGITS, INKS

_SHOWN = 40

_OWN, _BY_PROMPTS = "variety of the model", "variety of the prompts"


@experiment(
    "fig1",
    CONDITIONAL,
    "Fig. 1",
    claim=(
        "Two sets of images: many breeds under a few similar prompts, and the same two animals "
        "under many different prompts. Vendi and RKE call the second set more diverse, "
        "Conditional-Vendi and -RKE the first."
    ),
    stand_in=(
        "Sevens, whose ink and shape the model chooses, under two similar prompts; and thirty "
        "kinds of digit that the prompts name, with less noise, so that images of a prompt are "
        "nearly equal."
    ),
)
def two_sources(request: Request) -> Outcome:
    """Scores of both sets."""
    n = request.choose(1500, 300)
    rng = np.random.default_rng(0)
    vague = list(rng.choice(["a seven", "a handwritten seven"], n))
    names = zip(rng.choice(INKS, n), rng.choice(DIGITS, n), strict=True)
    specific = [f"a {ink} {digit}" for ink, digit in names]
    own = pairs_for(vague, seed=1)
    by_prompts = pairs_for(specific, seed=2, psi=0.6)
    names = ("vendi", "rke", "conditional_vendi", "conditional_rke")
    rows = []
    for title, pairs in ((_OWN, own), (_BY_PROMPTS, by_prompts)):
        found = dp.evaluate(pairs.x, pairs.t, num_permutations=0, **WIDE_KERNELS)
        rows.append((title, *(float(found.scores[name]) for name in names)))
    first, second = rows[0][1:], rows[1][1:]
    plain_prefers_second = second[0] > first[0] and second[1] > first[1]
    conditional_prefers_first = first[2] > second[2] and first[3] > second[3]
    verdict = FAILS
    if plain_prefers_second and conditional_prefers_first:
        verdict = HOLDS
    reason = (
        f"Vendi is {first[0]:.1f} where the variety is the model's and {second[0]:.1f} where it is "
        f"the prompts'; Conditional-Vendi is {first[2]:.1f} and {second[2]:.1f}. RKE is "
        f"{first[1]:.1f} and {second[1]:.1f}, Conditional-RKE {first[3]:.1f} and {second[3]:.1f}. "
        f"n = {n:,} images in each set."
    )
    columns = [Column("set", "set"), *(Column(name, TITLES[name], ".2f") for name in names)]
    return Outcome(verdict, reason, Table(tuple(columns), tuple(rows)), _figure(own, by_prompts))


def _figure(own: Pairs, by_prompts: Pairs) -> object:
    figure, axes = panels(2)
    titles = (f"{_OWN} (two similar prompts)", f"{_BY_PROMPTS} (thirty prompts)")
    for ax, title, pairs in zip(axes, titles, (own, by_prompts), strict=True):
        show(ax, mosaic(list(pairs.images[:_SHOWN].reshape(5, 8, 8, 8))))
        ax.set(xticks=[], yticks=[])
        ax.set_title(title, fontsize="medium")
    return figure
