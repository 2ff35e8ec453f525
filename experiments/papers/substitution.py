"""More and more images are replaced by images of other prompts."""

import numpy as np

import divprism as dp
from divprism.report.table import Column, Table
from experiments.papers.base import CONDITIONAL, FAILS, HOLDS, Outcome, Request, experiment
from experiments.papers.plots import legend, lines, panels
from experiments.papers.setups import KERNELS, pairs_for, rises
from experiments.world.digits import DIGITS, INKS

_RATES = (0.0, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0)


@experiment(
    "fig12",
    CONDITIONAL,
    "Fig. 12",
    claim=(
        "Information-Vendi falls as more images are replaced by random ones, because images and "
        "prompts have less to do with each other."
    ),
    stand_in="Images of the digit model for specific prompts, for SDXL and Flux on MS-COCO.",
    data="a file or folder that `divprism score` reads, such as captions and images",
)
def substitution(request: Request) -> Outcome:
    """Information of pairs of which a share is shuffled."""
    x, t, kernels = _pairs(request)
    rng = np.random.default_rng(0)
    order = rng.permutation(len(x))
    rows = []
    for rate in _RATES:
        replaced = order[: round(rate * len(x))]
        mixed = x.copy()
        # Exchanged among themselves: with copies of other outputs, Vendi would change as well.
        mixed[replaced] = x[rng.permutation(replaced)]
        found = dp.evaluate(mixed, t, num_permutations=0, **kernels)
        scores = (found.information_vendi, found.conditional_vendi, found.information_rke)
        rows.append((rate, *(float(score) for score in scores)))
    information = [row[1] for row in rows]
    verdict = FAILS
    falls = "falls"
    if rises(information[::-1]):
        verdict, falls = HOLDS, "falls at every step,"
    reason = (
        f"Information-Vendi {falls} from {information[0]:.2f} to {information[-1]:.2f}, and "
        f"Conditional-Vendi rises from {rows[0][2]:.2f} to {rows[-1][2]:.2f}; what is left at "
        "100 % is the bias of a finite sample. Replaced images are exchanged among the prompts, "
        f"which leaves Vendi as it is. n = {len(x):,}. The only check is that Information-Vendi "
        "falls at every step: one step the other way, and the claim would not hold."
    )
    figure, (ax,) = panels(1)
    curves = {
        "Information-Vendi": information,
        "Conditional-Vendi": [row[2] for row in rows],
        "Information-RKE": [row[3] for row in rows],
    }
    given = {"xlabel": "share of images replaced", "ylabel": "score", "log": True}
    lines(ax, _RATES, curves, title="substitution", **given)
    legend(figure)
    columns = (
        Column("rate", "share replaced", ".1f"),
        Column("information_vendi", "Information-Vendi", ".2f"),
        Column("conditional_vendi", "Conditional-Vendi", ".2f"),
        Column("information_rke", "Information-RKE", ".2f"),
    )
    return Outcome(verdict, reason, Table(columns, tuple(rows)), figure)


def _pairs(request: Request) -> tuple[np.ndarray, np.ndarray, dict]:
    """Vectors of outputs and prompts, and the kernels for them."""
    if request.data is not None:
        embedded = dp.embed(dp.load(request.data))
        return np.asarray(embedded.outputs), np.asarray(embedded.prompts), {}
    n = request.choose(3000, 600)
    rng = np.random.default_rng(1)
    prompts = []
    for ink, digit in zip(rng.choice(INKS, n), rng.choice(DIGITS, n), strict=True):
        prompts.append(f"a {ink} {digit}")
    pairs = pairs_for(prompts)
    return pairs.x, pairs.t, KERNELS
