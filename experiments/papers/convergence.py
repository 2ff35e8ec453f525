"""Do conditional scores settle as pairs are added?"""

import divprism as dp
from divprism.report.table import Column, Table
from experiments.papers.base import (
    CONDITIONAL,
    SETTLED,
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

# Scores that have settled do not grow from this share of the pairs on: 15,000 of 25,000.
_FROM = 0.6


@experiment(
    "fig2",
    CONDITIONAL,
    "Fig. 2, 3, 19",
    claim=(
        "Conditional-Vendi has not converged at 25,000 pairs, while Conditional-RKE and truncated "
        "Conditional-Vendi (t = 10,000) settle before 15,000. Sec. 7 and App. G.3 name a Gaussian "
        "and a cosine kernel, and say this of both without distinction."
    ),
    stand_in=(
        "Digits for MS-COCO, features of the judge for DINOv2, wordllama for CLIP; t is 0.4 of "
        "the largest sample, as there. Growth is measured from 0.6 of the pairs to all, as from "
        "15,000 to 25,000."
    ),
)
def convergence(request: Request) -> Outcome:
    """Scores of the first pairs, more and more of them."""
    largest = request.choose(6000, 1200)
    truncation = round(_SHARE * largest)
    pairs = mixed_pairs(largest)
    sizes = [largest // 8, largest // 4, round(_FROM * largest), 4 * largest // 5, largest]
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
        number = f"with {kernel} kernels ({100 * share:+.1f} %)"
        if name == _PLAIN:
            claims[f"{name} still growing {number}"] = share > SETTLED
        else:
            claims[f"{name} settled {number}"] = abs(share) <= SETTLED
    verdict, failed = judged(claims)
    told = []
    for kernel in ("Gaussian", "cosine"):
        own = ", ".join(f"{name} by {100 * growth[kernel, name]:.1f} %" for name in _NAMES)
        told.append(f"with {kernel} kernels {own}")
    reason = (
        f"Growth from {_FROM:g} of the pairs to all: {'; '.join(told)}. t = {truncation:,}; growth "
        f"up to {100 * SETTLED:g} % counts as settled.{but_not(failed)}"
    )
    columns = (
        Column("kernels", "kernels"),
        Column("pairs", "pairs", "d"),
        *(Column(name, name, ".3f") for name in _NAMES),
    )
    return Outcome(verdict, reason, Table(columns, tuple(rows)), figure)
