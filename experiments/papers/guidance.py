"""Guidance by the gradient of a score: does it make images more diverse, and at what price?"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from divprism.guidance import Bank, DiversityGuidance
from divprism.report.table import Column, Table
from experiments import guidance_digits as digits
from experiments.papers.base import (
    CONDITIONAL,
    Outcome,
    Request,
    but_not,
    experiment,
    judged,
)
from experiments.papers.plots import bars, middles, mosaic, panels, show

# Names for people of what the image is guided by; each but the first is a score of the images so
# far, and of their features where it says so.
_METHODS = {
    "none": "no guidance",
    "vendi of features": "Vendi of features of the judge",
    "vendi of other features": "Vendi of other features",
    "vendi": "Vendi of latents",
    "conditional_vendi": "Conditional-Vendi of latents",
    "rke": "RKE of latents",
    "conditional_rke": "Conditional-RKE of latents",
}

# What Conditional-Vendi is compared with, and which of them stands in for Vendi of CLIP features.
_RIVALS = ("vendi", "vendi of other features")
_JUDGE = "vendi of features"
# Scores that the paper guides by.
_OF_THE_PAPER = ("none", "vendi", "conditional_vendi", _RIVALS[1])

# Alignment that guidance may cost and still count as faithful.
_SAME_ALIGNMENT = 0.005

_COLUMNS = {
    "alignment": ("alignment, %", 100),
    "kernel_distance": ("kernel distance x 100", 100),
    "conditional_vendi": ("Conditional-Vendi", 1),
    "vendi": ("Vendi", 1),
    "in_batch_similarity": ("in-batch similarity x 100", 100),
}

# What the axis of each column says.
_AXES = {
    "alignment, %": "share of images (higher is better)",
    "kernel distance x 100": "distance to real digits (lower is better)",
    "Conditional-Vendi": "score (higher is better)",
    "Vendi": "score (higher is better)",
    "in-batch similarity x 100": "similarity (lower is better)",
}


@experiment(
    "table1",
    CONDITIONAL,
    "Table 1, 3, Fig. 7, 9, 10",
    claim=(
        "Guided by Conditional-Vendi of the latents, images are more diverse than guided by Vendi "
        "of the latents, and in Table 3 than guided by Vendi of CLIP features (VSG): by "
        "Conditional-Vendi, Vendi and in-batch similarity. They are also nearer to real images, "
        "and as faithful to the prompts."
    ),
    stand_in=(
        "A diffusion model of digits for SDXL and PixArt-Sigma; a classifier for CLIPScore and "
        "DINOv2. As in the paper, VSG is the plain one, without the contexts of c-VSG, and CLIP is "
        "not the network that judges: a second classifier stands in for it. Vendi of features of "
        "the judge itself is shown beside it. The strength is 0.03 for all, here as a share of the "
        "length of a latent, at every fifth step and with a window of 300 images. In the paper it "
        "is a factor of the gradient: for latents 0.03, at every tenth step; for VSG the best of "
        "0, 0.04, 0.05, 0.06 and 0.07, at every fifth step and with a window of 300 (App. E.3). "
        "The model is trained for 2,000 steps, and each of three seeds makes 250 images."
    ),
)
def guidance(request: Request) -> Outcome:
    """Every column of the table for every method, from the same noise and prompts."""
    settings = digits.QUICK
    if request.quick:
        settings = replace(settings, train_steps=600, rounds=2, seeds=(0, 1))
    torch.set_num_threads(1)
    study = digits.Study(settings)
    with torch.random.fork_rng():
        torch.manual_seed(1)
        other = digits.DigitJudge(study.digits, settings.classifier_steps)
    features = {_JUDGE: study.judge.body, _RIVALS[1]: other.body}
    by_method = {method: _measured(study, method, features) for method in _METHODS}
    rows = []
    for method, measured in by_method.items():
        cells = []
        for name, (_, factor) in _COLUMNS.items():
            cells.append(factor * float(np.mean([each[name] for each in measured])))
        rows.append((_titled(method), *cells))
    columns = [Column("guidance", "guidance")]
    columns += [Column(name, title, ".2f") for name, (title, _) in _COLUMNS.items()]
    verdict, reason = _judged(by_method)
    table = Table(tuple(columns), tuple(rows))
    return Outcome(verdict, reason, table, _figure(study, table, features))


def _titled(method: str) -> str:
    """The name of a method, with a note if the paper does not have it."""
    if method in _OF_THE_PAPER:
        return _METHODS[method]
    return f"{_METHODS[method]} (beyond the paper)"


def _guide(study: digits.Study, method: str, features: dict) -> DiversityGuidance | None:
    settings = study.settings
    if method not in features:
        return digits.guide_by(method, settings.strength, settings)
    return DiversityGuidance(
        "vendi",
        strength=settings.strength,
        every=settings.guide_every,
        features=features[method],
        bank=Bank(settings.window),
    )


def _measured(study: digits.Study, method: str, features: dict) -> list[dict[str, float]]:
    rows = []
    for seed in study.settings.seeds:
        guide = _guide(study, method, features)
        found = digits.generate(study.model, study.digits, guide, seed, study.settings)
        rows.append(digits.measure(*found, study.digits, study.judge, study.settings))
    return rows


@dataclass(frozen=True)
class Gain:
    """By how much a column is higher than that of a rival, over the seeds."""

    mean: float
    spread: float

    @classmethod
    def of(cls, differences: Sequence[float]) -> "Gain":
        """The mean and the standard deviation of the differences of single seeds."""
        return cls(float(np.mean(differences)), float(np.std(differences, ddof=1)))

    @property
    def is_equal(self) -> bool:
        """Whether it is within the spread of the seeds."""
        return abs(self.mean) <= self.spread


def _judged(by_method: dict[str, list[dict[str, float]]]) -> tuple[str, str]:
    """Compare Conditional-Vendi of latents with each kind of Vendi, seed by seed."""
    claims: dict[str, bool] = {}
    parts = []
    for rival in _RIVALS:
        gains = _gains(by_method, rival)
        for name, holds in _as_claimed(gains).items():
            claims[f"{name} against {_METHODS[rival]}"] = holds
        parts.append(f"from {_METHODS[rival]}, {_told(gains)}")
    verdict, failed = judged(claims)
    against_judge = _gains(by_method, _JUDGE)
    reason = (
        "Differences of Conditional-Vendi of latents, with their standard deviation over "
        f"{len(by_method[_JUDGE])} seeds: {'; '.join(parts)}. A difference up to its standard "
        "deviation counts as equal, which is not enough for the claim; for alignment a loss of up "
        f"to {100 * _SAME_ALIGNMENT:g} points is.{but_not(failed)} Beyond the paper, from "
        f"{_METHODS[_JUDGE]}, the features that the columns are measured with: "
        f"{_told(against_judge)}. [Guidance on digits](explanation/guidance_digits.md) repeats "
        "Table 1 with a model that is trained for 5,000 steps, six seeds and intervals; its table "
        "has other numbers."
    )
    return verdict, reason


def _gains(by_method: dict[str, list[dict[str, float]]], rival: str) -> dict[str, Gain]:
    """By how much each column is higher than that of a rival."""
    gains = {}
    for name in _COLUMNS:
        pairs = zip(by_method["conditional_vendi"], by_method[rival], strict=True)
        gains[name] = Gain.of([mine[name] - other[name] for mine, other in pairs])
    return gains


def _as_claimed(gains: dict[str, Gain]) -> dict[str, bool]:
    """Whether Conditional-Vendi is better in each column by more than the spread of the seeds."""
    found = {
        "Conditional-Vendi": gains["conditional_vendi"].mean > 0,
        "Vendi": gains["vendi"].mean > 0,
        "in-batch similarity": gains["in_batch_similarity"].mean < 0,
        "kernel distance": gains["kernel_distance"].mean < 0,
    }
    columns = ("conditional_vendi", "vendi", "in_batch_similarity", "kernel_distance")
    for title, name in zip(found, columns, strict=True):
        found[title] = found[title] and not gains[name].is_equal
    return found | {"alignment": gains["alignment"].mean > -_SAME_ALIGNMENT}


def _told(gains: dict[str, Gain]) -> str:
    parts = []
    for name, (title, factor) in _COLUMNS.items():
        gain = gains[name]
        text = f"{title.removesuffix(', %')} {factor * gain.mean:+.2f} ({factor * gain.spread:.2f}"
        if gain.is_equal:
            text += ", equal"
        parts.append(f"{text})")
    return ", ".join(parts)


def _figure(study: digits.Study, table: Table, features: dict) -> object:
    """Every column as bars, and images of three prompts by three methods."""
    figure, axes = panels(len(_COLUMNS) + 3, 4)
    for index, (title, _) in enumerate(_COLUMNS.values(), start=1):
        values = {row[0]: row[index] for row in table.rows}
        bars(axes[index - 1], values, title=title, xlabel=_AXES[title], named=index % 4 == 1)
    shown = ("none", "vendi", "conditional_vendi")
    for method, ax in zip(shown, axes[len(_COLUMNS) :], strict=True):
        guide = _guide(study, method, features)
        show(ax, _images(study, guide))
        ax.set(title=_METHODS[method], xticks=[], xlabel="six images of the first seed")
        ax.set_yticks(middles(3), ["three", "five", "eight"])
    return figure


def _images(study: digits.Study, guide: DiversityGuidance | None) -> np.ndarray:
    """Six images for each of three digits, from the first seed, with a gap around each."""
    seed = study.settings.seeds[0]
    latents, chosen = digits.generate(study.model, study.digits, guide, seed, study.settings)
    shown = []
    for digit in (3, 5, 8):
        rows = torch.nonzero(chosen // len(digits.TEMPLATES) == digit)[:6, 0]
        shown.append(list(latents[rows].clamp(-1, 1).reshape(-1, 8, 8).numpy()))
    return mosaic(shown)
