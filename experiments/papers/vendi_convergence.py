"""Do Vendi and its approximations settle as images are added?"""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

import divprism as dp
from divprism.report.table import Column, Table
from experiments.papers.base import (
    SETTLED,
    TRUNCATED,
    Outcome,
    Request,
    but_not,
    experiment,
    judged,
)
from experiments.papers.plots import legend, lines, panels
from experiments.papers.setups import embed_all, mixed_pairs
from experiments.world import clips, stories

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_NAMES = ("Vendi", "truncated", "Nystrom", "FKEA", "RKE")
_CONVERGING = _NAMES[1:]

# Distance from the truncated score up to which an approximation of it counts as near.
_NEAR = 0.1

# The same with Vendi under a cosine kernel, of which nothing is cut off.
_SAME = 0.01


@dataclass(frozen=True)
class Panel:
    """The scores of one kind of item under one kernel, by number of items."""

    kind: str
    kernel: str
    sizes: tuple[int, ...]
    curves: dict[str, list[float]]

    @property
    def growth(self) -> dict[str, float]:
        """By how much each score grows from three quarters of the items to all."""
        return {name: values[-1] / values[3] - 1 for name, values in self.curves.items()}

    @property
    def distances(self) -> dict[str, float]:
        """How far the approximations of all items are from the truncated score."""
        truncated = self.curves["truncated"][-1]
        approximations = [name for name in ("Nystrom", "FKEA") if name in self.curves]
        return {name: self.curves[name][-1] / truncated - 1 for name in approximations}

    @property
    def claims(self) -> dict[str, bool]:
        """Whether each part of the claim holds, by its name with the number that decides."""
        growth = self.growth
        named = {name: f"({100 * growth[name]:+.2f} %)" for name in growth}
        if self.kernel == "cosine":
            vendi = self.curves["Vendi"][-1]
            found = {}
            for name in ("Vendi", "RKE"):
                found[f"{name} settled {named[name]}"] = abs(growth[name]) <= SETTLED
            for name in ("truncated", *self.distances):
                distance = self.curves[name][-1] / vendi - 1
                found[f"{name} agrees with Vendi ({100 * distance:+.2f} %)"] = abs(distance) < _SAME
            return found
        found = {f"Vendi still growing {named['Vendi']}": growth["Vendi"] > SETTLED}
        for name in _CONVERGING:
            found[f"{name} settled {named[name]}"] = abs(growth[name]) <= SETTLED
        for name, distance in self.distances.items():
            part = f"{name} near the truncated score ({100 * distance:+.2f} %)"
            found[part] = abs(distance) < _NEAR
        return found


@experiment(
    "convergence",
    TRUNCATED,
    "Fig. 1, 3-5",
    claim=(
        "With a cosine kernel Vendi settles quickly, and truncated and Nystrom scores agree with "
        "it. With a Gaussian kernel Vendi is still growing at 20,000 items, while truncated Vendi "
        "(t = 10,000) and the Nystrom and FKEA scores of the same rank have settled near each "
        "other: on images, texts and videos. RKE has settled under both kernels."
    ),
    stand_in=(
        "Digits for ImageNet and FFHQ, with features of the judge for DINOv2; stories of a "
        "recurrent network for texts; moving digits for Kinetics-400, with a small network for "
        "I3D. t is half of the largest sample, as there, and the bandwidth that of the papers' "
        "rule. As in the paper the cosine kernel has no FKEA: random Fourier features need a "
        "kernel of differences."
    ),
    data="a file or folder that `divprism.load` reads",
)
def vendi_convergence(request: Request) -> Outcome:
    """Five scores of the first items, more and more of them."""
    largest = request.choose(2000, 800)
    if request.data is None:
        kinds = {
            "images": mixed_pairs(largest).x,
            "texts": _stories(largest),
            "videos": _clips(largest),
        }
    else:
        kinds = _loaded(request.data, largest)
    found = []
    for kind, x in kinds.items():
        kernels: dict[str, dp.Gaussian | dp.Cosine] = {
            "cosine": dp.Cosine(),
            "Gaussian": dp.Gaussian(dp.StableScore().bandwidth(x)),
        }
        for name, kernel in kernels.items():
            found.append(panel(kind, x, name, kernel))
    return _judged(found)


def _stories(n: int) -> np.ndarray:
    asked = stories.prompts()
    told = stories.story_model().generate([asked[row % len(asked)] for row in range(n)])
    return embed_all(told)


def _clips(n: int) -> np.ndarray:
    asked = clips.prompts()
    made = clips.generated("free", [asked[row % len(asked)] for row in range(n)])
    return clips.clip_watcher().features(made)


def _loaded(data: Path, most: int) -> dict[str, np.ndarray]:
    """Vectors of real items in a random order, because files group them by prompt and model."""
    samples = dp.load(data)
    rows = np.random.default_rng(0).permutation(len(samples))[:most]
    chosen = samples.select([int(row) for row in rows])
    kind = f"{type(chosen.outputs[0]).__name__.lower()}s"
    return {kind: np.asarray(dp.embed(dp.Samples(chosen.outputs)).outputs)}


def panel(kind: str, x: np.ndarray, name: str, kernel: dp.Gaussian | dp.Cosine) -> Panel:
    """The scores of an eighth of the items and more, up to all of them."""
    largest = len(x)
    sizes = (largest // 8, largest // 4, largest // 2, 3 * largest // 4, largest)
    curves: dict[str, list[float]] = {}
    for n in sizes:
        for score, value in scores(x[:n], kernel, largest // 2).items():
            curves.setdefault(score, []).append(value)
    return Panel(kind, name, sizes, curves)


def scores(x: object, kernel: dp.Gaussian | dp.Cosine, t: int, order: float = 1.0) -> dict:
    """Vendi, truncated, by Nystrom and by FKEA of the same rank, and RKE."""
    count = len(x)  # type: ignore[arg-type]
    options = {"kernel": kernel, "order": order}
    found = {
        "Vendi": float(dp.vendi(x, **options)),
        "truncated": float(dp.vendi(x, truncation=t, **options)),
    }
    # The rank of a Nystrom approximation is at most the number of images.
    landmarks = dp.Nystrom(min(t, count))
    found["Nystrom"] = float(dp.vendi(x, truncation=t, estimator=landmarks, **options))
    if isinstance(kernel, dp.Gaussian):
        fkea = dp.Fourier(max(8, t), extrapolate=False)
        found["FKEA"] = float(dp.vendi(x, estimator=fkea, **options))
    found["RKE"] = float(dp.rke(x, kernel=kernel))
    return found


def table(found: list[Panel]) -> Table:
    """All numbers of some panels."""
    rows = []
    for each in found:
        for index, n in enumerate(each.sizes):
            cells: list[float | None] = []
            for name in _NAMES:
                # FKEA is for Gaussian kernels only.
                values = each.curves.get(name)
                cells.append(values[index] if values else None)
            rows.append((each.kind, each.kernel, n, *cells))
    columns = [Column("kind", "of"), Column("kernel", "kernel"), Column("items", "items", "d")]
    columns += [Column(name, name, ".2f") for name in _NAMES]
    return Table(tuple(columns), tuple(rows))


def drawn(found: list[Panel], columns: int = 2) -> "Figure":
    """The curves of some panels."""
    figure, axes = panels(len(found), columns)
    for each, ax in zip(found, axes, strict=True):
        title = f"{each.kind}, {each.kernel} kernel"
        unit = each.kind.split(" ")[0]
        lines(ax, each.sizes, each.curves, title=title, xlabel=f"number of {unit}", ylabel="score")
        ax.set_ylim(bottom=0)
    legend(figure)
    return figure


def _judged(found: list[Panel]) -> Outcome:
    claims = {}
    for each in found:
        for part, holds in each.claims.items():
            claims[f"{each.kind}, {each.kernel} kernel: {part}"] = holds
    verdict, failed = judged(claims)
    said = "; ".join(_said(each) for each in found)
    reason = (
        f"{len(claims) - len(failed)} of {len(claims)} parts of the claim hold.{but_not(failed)} "
        f"Growth from three quarters of the items to all: {said}. t = "
        f"{found[0].sizes[-1] // 2:,}; growth up to {100 * SETTLED:g} % counts as settled, up to "
        f"{100 * _NEAR:g} % from the truncated score as near, and up to {100 * _SAME:g} % from "
        "Vendi as agreeing with it."
    )
    return Outcome(verdict, reason, table(found), drawn(found))


def _said(each: Panel) -> str:
    growth = ", ".join(f"{name} {100 * value:+.2f} %" for name, value in each.growth.items())
    distances = " and ".join(
        f"{name} {100 * value:+.2f} %" for name, value in each.distances.items()
    )
    return (
        f"{each.kind} with a {each.kernel} kernel, {growth} (distance from the truncated score of "
        f"all items: {distances})"
    )
