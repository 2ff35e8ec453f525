"""Guidance by the gradient of a score: does it make images more diverse, and at what price?"""

from dataclasses import replace

import numpy as np
import torch

from divprism.guidance import Bank, DiversityGuidance
from divprism.report.table import Column, Table
from experiments import guidance_digits as digits
from experiments.papers.base import CONDITIONAL, FAILS, HOLDS, PARTLY, Outcome, Request, experiment
from experiments.papers.plots import panels

_METHODS = ("none", "vendi of features", "vendi", "conditional_vendi", "rke", "conditional_rke")
# Alignment that guidance may cost and still count as faithful.
_SAME_ALIGNMENT = 0.005

_COLUMNS = {
    "alignment": ("alignment, %", 100),
    "kernel_distance": ("kernel distance x 100", 100),
    "conditional_vendi": ("Conditional-Vendi", 1),
    "vendi": ("Vendi", 1),
    "in_batch_similarity": ("in-batch similarity x 100", 100),
}


@experiment(
    "table1",
    CONDITIONAL,
    "Table 1, 3, Fig. 7, 9, 10",
    claim=(
        "Guided by Conditional-Vendi of the latents, images are more diverse than guided by Vendi "
        "of latents or of features (c-VSG), by Conditional-Vendi, Vendi and in-batch similarity, "
        "nearer to real images, and as faithful to the prompts."
    ),
    stand_in=(
        "A diffusion model of digits for SDXL and PixArt-Sigma; a classifier for CLIPScore, "
        "DINOv2 and the features of c-VSG. The strength is that of the paper."
    ),
)
def guidance(request: Request) -> Outcome:
    """Every column of the table for every method, from the same noise and prompts."""
    settings = digits.QUICK
    if request.quick:
        settings = replace(settings, train_steps=600, rounds=2, seeds=(0, 1))
    torch.set_num_threads(1)
    study = digits.Study(settings)
    by_method = {method: _measured(study, method) for method in _METHODS}
    rows = []
    for method, measured in by_method.items():
        cells = []
        for name, (_, factor) in _COLUMNS.items():
            cells.append(factor * float(np.mean([each[name] for each in measured])))
        rows.append((method, *cells))
    columns = [Column("guidance", "guidance")]
    columns += [Column(name, title, ".2f") for name, (title, _) in _COLUMNS.items()]
    verdict, reason = _judged(by_method)
    return Outcome(verdict, reason, Table(tuple(columns), tuple(rows)), _figure(study))


def _guide(study: digits.Study, method: str) -> DiversityGuidance | None:
    settings = study.settings
    if method != "vendi of features":
        return digits.guide_by(method, settings.strength, settings)
    return DiversityGuidance(
        "vendi",
        strength=settings.strength,
        every=settings.guide_every,
        features=study.judge.body,
        bank=Bank(settings.window),
    )


def _measured(study: digits.Study, method: str) -> list[dict[str, float]]:
    rows = []
    for seed in study.settings.seeds:
        guide = _guide(study, method)
        found = digits.generate(study.model, study.digits, guide, seed, study.settings)
        rows.append(digits.measure(*found, study.digits, study.judge, study.settings))
    return rows


def _judged(by_method: dict[str, list[dict[str, float]]]) -> tuple[str, str]:
    """Compare Conditional-Vendi of latents with Vendi of latents, seed by seed."""
    gains = {}
    for name in _COLUMNS:
        pairs = zip(by_method["conditional_vendi"], by_method["vendi"], strict=True)
        gains[name] = float(np.mean([mine[name] - other[name] for mine, other in pairs]))
    as_claimed = {
        "Conditional-Vendi": gains["conditional_vendi"] > 0,
        "Vendi": gains["vendi"] > 0,
        "in-batch similarity": gains["in_batch_similarity"] < 0,
        "kernel distance": gains["kernel_distance"] < 0,
        "alignment": gains["alignment"] > -_SAME_ALIGNMENT,
    }
    verdict = PARTLY
    if all(as_claimed.values()):
        verdict = HOLDS
    elif not any(as_claimed.values()):
        verdict = FAILS
    kept = [name for name, holds in as_claimed.items() if holds]
    lost = [name for name, holds in as_claimed.items() if not holds]
    reason = (
        f"Against Vendi of latents, Conditional-Vendi changes Conditional-Vendi by "
        f"{gains['conditional_vendi']:+.2f}, Vendi by {gains['vendi']:+.2f}, in-batch similarity "
        f"x 100 by {100 * gains['in_batch_similarity']:+.2f}, kernel distance x 100 by "
        f"{100 * gains['kernel_distance']:+.2f} and alignment by "
        f"{100 * gains['alignment']:+.1f} points. As claimed: {', '.join(kept) or 'none'}; not: "
        f"{', '.join(lost) or 'none'}. docs/explanation/guidance_digits.md has intervals."
    )
    return verdict, reason


def _figure(study: digits.Study) -> object:
    """Images of three prompts, by Conditional-Vendi and by Vendi."""
    figure, axes = panels(2)
    for method, ax in zip(("conditional_vendi", "vendi"), axes, strict=True):
        seed = study.settings.seeds[0]
        guide = _guide(study, method)
        latents, chosen = digits.generate(study.model, study.digits, guide, seed, study.settings)
        shown = []
        for digit in (3, 5, 8):
            rows = torch.nonzero(chosen // len(digits.TEMPLATES) == digit)[:6, 0]
            images = latents[rows].clamp(-1, 1).reshape(-1, 8, 8).numpy()
            line = np.concatenate(list(images), axis=1)
            shown.append(np.pad(line, ((0, 0), (0, 48 - line.shape[1]))))
        ax.imshow(np.concatenate(shown), cmap="gray", vmin=-1, vmax=1)
        ax.set(title=f"guided by {method}", xticks=[], yticks=[])
    return figure
