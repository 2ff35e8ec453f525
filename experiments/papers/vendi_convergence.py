"""Do Vendi and its approximations settle as images are added?"""

import divprism as dp
from divprism.report.table import Column, Table
from experiments.papers.base import FAILS, HOLDS, PARTLY, TRUNCATED, Outcome, Request, experiment
from experiments.papers.plots import lines, panels
from experiments.papers.setups import WIDE_BANDWIDTH_X, mixed_pairs

_NAMES = ("Vendi", "truncated", "Nystrom", "FKEA", "RKE")

# Growth up to which a score counts as settled, from three quarters of the images to all, and the
# distance from the truncated score at which an approximation of it counts as near.
_SETTLED = 0.02
_NEAR = 0.1


@experiment(
    "convergence",
    TRUNCATED,
    "Fig. 1, 3-5, 12, 13",
    claim=(
        "With a cosine kernel Vendi settles quickly, and all approximations agree with it. With a "
        "Gaussian kernel Vendi keeps growing beyond 20,000 images, while RKE settles, and so do "
        "truncated Vendi (t = 10,000) and the Nystrom and FKEA scores of the same rank, near each "
        "other."
    ),
    stand_in=(
        "Digits for ImageNet and FFHQ, features of the judge for DINOv2; t is half of the largest "
        "sample, as there."
    ),
)
def vendi_convergence(request: Request) -> Outcome:
    """Five scores of the first images, more and more of them."""
    largest = request.choose(2000, 800)
    t = largest // 2
    x = mixed_pairs(largest).x
    sizes = [largest // 8, largest // 4, largest // 2, 3 * largest // 4, largest]
    rows = []
    figure, axes = panels(2)
    curves = {}
    for title, kernel, ax in (
        ("Gaussian", dp.Gaussian(WIDE_BANDWIDTH_X), axes[0]),
        ("cosine", dp.Cosine(), axes[1]),
    ):
        found: dict[str, list[float]] = {name: [] for name in _NAMES}
        for n in sizes:
            for name, value in scores(x[:n], kernel, t).items():
                found[name].append(value)
        rows += _rows(title, sizes, found)
        curves[title] = {name: values for name, values in found.items() if values}
        lines(ax, sizes, curves[title], title=f"{title} kernel", xlabel="images")
    columns = [Column("kernel", "kernel"), Column("images", "images", "d")]
    columns += [Column(name, name, ".2f") for name in _NAMES]
    verdict, reason = _judged(curves, t)
    return Outcome(verdict, reason, Table(tuple(columns), tuple(rows)), figure)


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


def _rows(title: str, sizes: list[int], found: dict[str, list[float]]) -> list[tuple]:
    rows = []
    for index, n in enumerate(sizes):
        cells: list[float | None] = []
        for values in found.values():
            # FKEA is for Gaussian kernels only.
            cells.append(values[index] if values else None)
        rows.append((title, n, *cells))
    return rows


def _judged(curves: dict[str, dict[str, list[float]]], t: int) -> tuple[str, str]:
    gaussian, cosine = curves["Gaussian"], curves["cosine"]
    growth = {name: values[-1] / values[3] - 1 for name, values in gaussian.items()}
    others = ("truncated", "Nystrom", "FKEA", "RKE")
    settled = [name for name in others if abs(growth[name]) < _SETTLED]
    distances = {
        name: gaussian[name][-1] / gaussian["truncated"][-1] - 1 for name in ("Nystrom", "FKEA")
    }
    near = [name for name, distance in distances.items() if abs(distance) < _NEAR]
    cosine_growth = cosine["Vendi"][-1] / cosine["Vendi"][3] - 1
    as_claimed = [
        growth["Vendi"] > _SETTLED,
        len(settled) == len(others),
        len(near) == len(distances),
        cosine_growth < _SETTLED,
    ]
    verdict = PARTLY
    if all(as_claimed):
        verdict = HOLDS
    elif not any(as_claimed):
        verdict = FAILS
    told = ", ".join(f"{name} {100 * growth[name]:+.1f} %" for name in growth)
    reason = (
        f"From three quarters of the images to all, with a Gaussian kernel: {told}; with a cosine "
        f"kernel, Vendi {100 * cosine_growth:+.1f} %. Beside the truncated score (t = {t:,}), "
        f"Nystrom differs by {100 * distances['Nystrom']:+.1f} % and FKEA by "
        f"{100 * distances['FKEA']:+.1f} %. Up to {100 * _SETTLED:g} % counts as settled, up to "
        f"{100 * _NEAR:g} % as near."
    )
    return verdict, reason
