"""The scores inside the groups of prompts that eigendirections find."""

from typing import Any

import numpy as np

import divprism as dp
from divprism.report.table import Column, Table
from experiments.papers.base import (
    CONDITIONAL,
    Outcome,
    Request,
    but_not,
    experiment,
    judged,
)
from experiments.papers.plots import middles, mosaic, panels, show
from experiments.papers.setups import KERNELS, embed_all, pairs_for
from experiments.world.digits import INKS, digit_model

# Prompts of three groups, from those that leave everything open to those that leave nothing. The
# model is asked in the first sentence of a group, and the scores see any of them.
_OPEN = ("a digit", "any digit", "some digit", "a picture of a digit")
_HALF = ("an odd digit", "any odd digit", "some odd digit", "a picture of an odd digit")
_FIXED = ("a black seven", "any black seven", "some black seven", "a picture of a black seven")
_GROUPS = (_OPEN, _HALF, _FIXED)
_SENTENCES = 4


@experiment(
    "fig6",
    CONDITIONAL,
    "Fig. 6, 13-15",
    claim=(
        "Eigendirections of the kernel of the prompts find groups of prompts. The model is more "
        "diverse under some of them (dogs) than under others (airplanes, sofas)."
    ),
    stand_in=(
        "Three groups of prompts about digits, which leave open everything, half, or nothing; so "
        "the order of the groups is known. The prompts of a group are four sentences of the same "
        "meaning; the model is asked in the first of them, which it has learned."
    ),
)
def groups_of_prompts(request: Request) -> Outcome:
    """Groups by eigendirection, with what the judge sees in each."""
    n = request.choose(200, 50)
    # Groups of equal size would have equal eigenvalues, whose directions are arbitrary.
    known = np.repeat(np.arange(3), [3 * n, 4 * n, 5 * n])
    rng = np.random.default_rng(0)
    said = [_GROUPS[kind][rng.integers(_SENTENCES)] for kind in known]
    pairs = pairs_for([_GROUPS[kind][0] for kind in known])
    found = dp.prompt_groups(
        pairs.x,
        embed_all(said),
        dp.EigenDirectionGrouping(3),
        num_modes=3,
        num_examples=_SENTENCES,
        **KERNELS,
    )
    rows, shown = [], {}
    claims = {}
    for group in found.groups:
        kind = int(known[group.prompts[0]])
        name = _GROUPS[kind][0]
        sentences = {said[row] for row in group.prompts}
        claims[f"{group.name} has the sentences of one group"] = sentences == set(_GROUPS[kind])
        rows.append(
            (name, group.share, group.vendi, group.rke, _kinds(pairs.images[known == kind]))
        )
        shown[name] = group
    rows.sort(key=lambda row: -row[2])
    names = [row[0] for row in rows]
    order = "the groups are as diverse as the prompts leave open"
    claims[order] = names == [sentences[0] for sentences in _GROUPS]
    verdict, failed = judged(claims, central=(order,))
    told = "; ".join(
        f"Vendi {row[2]:.1f} inside '{row[0]}', where the judge sees {_kinds_of(row[4])}"
        for row in rows
    )
    reason = (
        f"{told}. For each of three directions, the {_SENTENCES} sentences with the largest "
        f"entries are compared with the {_SENTENCES} of a group.{but_not(failed)} The order of the "
        f"groups is central. n = {len(said):,}."
    )
    columns = (
        Column("group", "group"),
        Column("share", "share", ".2f"),
        Column("vendi", "Vendi inside", ".2f"),
        Column("rke", "RKE inside", ".2f"),
        Column("kinds", "kinds that the judge sees", "d"),
    )
    figure = _figure({name: shown[name] for name in names}, pairs.images)
    return Outcome(verdict, reason, Table(columns, tuple(rows)), figure)


def _kinds_of(count: int) -> str:
    if count == 1:
        return "1 kind of image"
    return f"{count} kinds of image"


def _kinds(images: np.ndarray) -> int:
    """Digits in an ink that at least one image in a hundred shows."""
    digits, inks = digit_model().seen(images)
    counts = np.bincount(digits * len(INKS) + inks)
    return int((counts >= 0.01 * len(images)).sum())


def _figure(groups: dict[str, Any], images: np.ndarray) -> object:
    """Images of the largest modes of each group, a row for each mode."""
    figure, axes = panels(3)
    for ax, (name, group) in zip(axes, groups.items(), strict=True):
        modes = [list(images[list(mode.outputs)[:6]].reshape(-1, 8, 8)) for mode in group.modes]
        show(ax, mosaic(modes))
        ax.set(title=f"'{name}': Vendi {group.vendi:.1f}", xticks=[])
        ax.set_yticks(middles(len(modes)), [f"mode {row + 1}" for row in range(len(modes))])
        ax.set_xlabel("images of each mode")
    return figure
