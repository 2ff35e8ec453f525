"""Do Vendi and its approximations settle as images are added?"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

import divprism as dp
from divprism.report.table import Column, Table
from experiments.papers.base import FAILS, HOLDS, PARTLY, TRUNCATED, Outcome, Request, experiment
from experiments.papers.plots import lines, panels
from experiments.papers.setups import embed_all, mixed_pairs
from experiments.world import clips, stories

_NAMES = ("Vendi", "truncated", "Nystrom", "FKEA", "RKE")
_CONVERGING = _NAMES[1:]

# Growth up to which a score counts as settled, from three quarters of the items to all, and the
# distance from the truncated score at which an approximation of it counts as near.
_SETTLED = 0.02
_NEAR = 0.1


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
    def claims(self) -> list[bool]:
        """Whether each part of the claim holds."""
        if self.kernel == "cosine":
            return [self.growth["Vendi"] < _SETTLED]
        near = [abs(distance) < _NEAR for distance in self.distances.values()]
        settled = [abs(self.growth[name]) < _SETTLED for name in _CONVERGING]
        return [self.growth["Vendi"] > _SETTLED, *settled, *near]


@experiment(
    "convergence",
    TRUNCATED,
    "Fig. 1, 3-5, 12, 13",
    claim=(
        "With a cosine kernel Vendi settles quickly, and all approximations agree with it. With a "
        "Gaussian kernel Vendi keeps growing beyond 20,000 items, while RKE settles, and so do "
        "truncated Vendi (t = 10,000) and the Nystrom and FKEA scores of the same rank, near each "
        "other: on images, texts and videos."
    ),
    stand_in=(
        "Digits for ImageNet and FFHQ, with features of the judge for DINOv2; stories of a "
        "recurrent network for texts; moving digits for Kinetics-400, with a small network for "
        "I3D. t is half of the largest sample, as there, and the bandwidth that of the papers' "
        "rule."
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
        kinds = {"data": _loaded(request.data, largest)}
    found = []
    for index, (kind, x) in enumerate(kinds.items()):
        kernels: dict[str, dp.Gaussian | dp.Cosine] = {
            "Gaussian": dp.Gaussian(dp.StableScore().bandwidth(x))
        }
        # Of a cosine kernel the paper shows images only.
        if index == 0:
            kernels = {"cosine": dp.Cosine()} | kernels
        for name, kernel in kernels.items():
            found.append(_panel(kind, x, name, kernel))
    return _judged(found)


def _stories(n: int) -> np.ndarray:
    asked = stories.prompts()
    told = stories.story_model().generate([asked[row % len(asked)] for row in range(n)])
    return embed_all(told)


def _clips(n: int) -> np.ndarray:
    asked = clips.prompts()
    made = clips.generated("free", [asked[row % len(asked)] for row in range(n)])
    return clips.clip_watcher().features(made)


def _loaded(data: Path, most: int) -> np.ndarray:
    """Vectors of real items in a random order, because files group them by prompt and model."""
    samples = dp.load(data)
    rows = np.random.default_rng(0).permutation(len(samples))[:most]
    chosen = samples.select([int(row) for row in rows])
    return np.asarray(dp.embed(dp.Samples(chosen.outputs)).outputs)


def _panel(kind: str, x: np.ndarray, name: str, kernel: dp.Gaussian | dp.Cosine) -> Panel:
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


def _judged(found: list[Panel]) -> Outcome:
    claims = [claim for panel in found for claim in panel.claims]
    verdict = PARTLY
    if all(claims):
        verdict = HOLDS
    elif not any(claims):
        verdict = FAILS
    figure, axes = panels(len(found))
    rows = []
    for panel, ax in zip(found, axes, strict=True):
        title = f"{panel.kind}, {panel.kernel} kernel"
        lines(ax, panel.sizes, panel.curves, title=title, xlabel=panel.kind)
        for index, n in enumerate(panel.sizes):
            cells: list[float | None] = []
            for name in _NAMES:
                # FKEA is for Gaussian kernels only.
                values = panel.curves.get(name)
                cells.append(values[index] if values else None)
            rows.append((panel.kind, panel.kernel, n, *cells))
    columns = [Column("kind", "of"), Column("kernel", "kernel"), Column("items", "items", "d")]
    columns += [Column(name, name, ".2f") for name in _NAMES]
    told = "; ".join(_told(panel) for panel in found)
    reason = (
        f"{sum(claims)} of {len(claims)} parts of the claim hold. From three quarters of the items "
        f"to all: {told}. t = {found[0].sizes[-1] // 2:,}; up to {100 * _SETTLED:g} % counts as "
        f"settled, and up to {100 * _NEAR:g} % from the truncated score as near."
    )
    return Outcome(verdict, reason, Table(tuple(columns), tuple(rows)), figure)


def _told(panel: Panel) -> str:
    if panel.kernel == "cosine":
        return f"{panel.kind} with a cosine kernel, Vendi {100 * panel.growth['Vendi']:+.1f} %"
    growth = ", ".join(f"{name} {100 * value:+.1f} %" for name, value in panel.growth.items())
    distances = " and ".join(
        f"{name} by {100 * value:+.1f} %" for name, value in panel.distances.items()
    )
    return f"{panel.kind} with a Gaussian kernel, {growth} (off the truncated score: {distances})"
