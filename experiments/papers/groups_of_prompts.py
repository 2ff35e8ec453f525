"""The scores inside the groups of prompts that eigendirections find."""

from typing import Any

import numpy as np

import divprism as dp
from divprism.report.table import Column, Table
from experiments.papers.base import CONDITIONAL, FAILS, HOLDS, Outcome, Request, experiment
from experiments.papers.plots import panels
from experiments.papers.setups import KERNELS, pairs_for
from experiments.world.digits import INKS, digit_model

# Prompts of three groups, from those that leave everything open to those that leave nothing.
_OPEN = "a digit"
_HALF = "an odd digit"
_FIXED = "a black seven"


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
        "the order of the groups is known."
    ),
)
def groups_of_prompts(request: Request) -> Outcome:
    """Groups by eigendirection, with what the judge sees in each."""
    n = request.choose(200, 50)
    # Groups of equal size would have equal eigenvalues, whose directions are arbitrary.
    prompts = [_OPEN] * (3 * n) + [_HALF] * (4 * n) + [_FIXED] * (5 * n)
    pairs = pairs_for(prompts)
    found = dp.prompt_groups(
        pairs.x, pairs.t, dp.EigenDirectionGrouping(3), num_modes=3, num_examples=6, **KERNELS
    )
    rows, names = [], []
    for group in found.groups:
        name = prompts[group.prompts[0]]
        names.append(name)
        members = np.array([prompt == name for prompt in prompts])
        kinds = _kinds(pairs.images[members])
        rows.append((name, group.share, group.vendi, group.rke, kinds))
    rows.sort(key=lambda row: -row[2])
    verdict = FAILS
    if [row[0] for row in rows] == [_OPEN, _HALF, _FIXED]:
        verdict = HOLDS
    reason = "; ".join(
        f"Vendi {row[2]:.1f} inside '{row[0]}', where the judge sees {_kinds_of(row[4])}"
        for row in rows
    )
    columns = (
        Column("group", "group"),
        Column("share", "share", ".2f"),
        Column("vendi", "Vendi inside", ".2f"),
        Column("rke", "RKE inside", ".2f"),
        Column("kinds", "kinds that the judge sees", "d"),
    )
    shown = dict(zip(names, found.groups, strict=True))
    ordered = {row[0]: shown[row[0]] for row in rows}
    figure = _figure(ordered, pairs.images)
    return Outcome(verdict, f"{reason}.", Table(columns, tuple(rows)), figure)


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
        rows = [images[list(mode.outputs)[:6]].reshape(-1, 8, 8) for mode in group.modes]
        width = max(len(row) for row in rows)
        canvas = np.full((8 * len(rows), 8 * width), np.nan)
        for index, row in enumerate(rows):
            canvas[8 * index : 8 * index + 8, : 8 * len(row)] = np.concatenate(list(row), axis=1)
        ax.imshow(canvas, cmap="gray", vmin=-1, vmax=1)
        ax.set(title=f"'{name}': Vendi {group.vendi:.1f}", xticks=[], yticks=[])
        ax.set_ylabel("a mode in each row")
    return figure
