"""Do conditional scores settle as pairs are added?"""

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
from experiments.papers.plots import legend, lines, panels
from experiments.papers.setups import COSINE, WIDE_KERNELS, mixed_pairs

# The paper has t = 10,000 and n up to 25,000.
_SHARE = 0.4

_NAMES = ("Conditional-Vendi", "truncated", "Conditional-RKE")
_PLAIN, _CUT, _ORDER_2 = _NAMES

# Growth by which a score still counts as settled, from half of the pairs to all.
_SETTLED = 0.03


@experiment(
    "fig2",
    CONDITIONAL,
    "Fig. 2, 3, 19",
    claim=(
        "With a Gaussian kernel Conditional-Vendi keeps growing up to 25,000 pairs, while "
        "Conditional-RKE and truncated Conditional-Vendi (t = 10,000) settle before 15,000. Of "
        "the cosine kernel, which the figures show too, the text says nothing."
    ),
    stand_in=(
        "Digits for MS-COCO, features of the judge for DINOv2, wordllama for CLIP; t is 0.4 "
        "of the largest sample, as there."
    ),
)
def convergence(request: Request) -> Outcome:
    """Scores of the first pairs, more and more of them."""
    largest = request.choose(6000, 1200)
    truncation = round(_SHARE * largest)
    pairs = mixed_pairs(largest)
    sizes = [largest // 8, largest // 4, largest // 2, 3 * largest // 4, largest]
    rows, growth = [], {}
    figure, axes = panels(2)
    for title, kernels, ax in (("Gaussian", WIDE_KERNELS, axes[0]), ("cosine", COSINE, axes[1])):
        curves: dict[str, list[float]] = {name: [] for name in _NAMES}
        for n in sizes:
            x, t = pairs.x[:n], pairs.t[:n]
            curves[_PLAIN].append(float(dp.conditional_vendi(x, t, **kernels)))
            cut = dp.conditional_vendi(x, t, truncation=truncation, **kernels)
            curves[_CUT].append(float(cut))
            curves[_ORDER_2].append(float(dp.conditional_rke(x, t, **kernels)))
            rows.append((title, n, *(values[-1] for values in curves.values())))
        lines(ax, sizes, curves, title=f"{title} kernels", xlabel="pairs", ylabel="score")
        for name, values in curves.items():
            growth[title, name] = values[-1] / values[2] - 1
    legend(figure)
    return _judged(rows, growth, figure, truncation)


def _judged(rows: list, growth: dict, figure: object, truncation: int) -> Outcome:
    claims = {}
    for (kernel, name), share in growth.items():
        number = f"({100 * share:+.1f} %)"
        if kernel != "Gaussian":
            continue
        if name == _PLAIN:
            claims[f"{name} still growing {number}"] = share > _SETTLED
        else:
            claims[f"{name} settled {number}"] = share < _SETTLED
    verdict, failed = judged(claims)
    told = []
    for kernel in ("Gaussian", "cosine"):
        own = ", ".join(f"{name} by {100 * growth[kernel, name]:.1f} %" for name in _NAMES)
        told.append(f"with {kernel} kernels {own}")
    reason = (
        f"Growth from half of the pairs to all: {'; '.join(told)}. t = {truncation:,}; growth up "
        f"to {100 * _SETTLED:g} % counts as settled.{but_not(failed)}"
    )
    columns = (
        Column("kernels", "kernels"),
        Column("pairs", "pairs", "d"),
        *(Column(name, name, ".3f") for name in _NAMES),
    )
    return Outcome(verdict, reason, Table(columns, tuple(rows)), figure)
