"""K-means in place of the true clusters of prompts."""

import numpy as np

import divprism as dp
from divprism.report.table import Column, Table
from experiments.papers.base import (
    EARLIER,
    Outcome,
    Request,
    but_not,
    experiment,
    judged,
)
from experiments.papers.plots import legend, lines, panels
from experiments.papers.setups import KERNELS, pairs_for
from experiments.world.digits import DIGITS, INKS

# Distance from the truth, on average, up to which a score follows it.
_NEAR = 0.1

# Numbers of clusters for K-means; the true one is 30.
_COUNTS = (3, 10, 30, 60)


@experiment(
    "kmeans",
    EARLIER,
    "Fig. 19 of an earlier version (App. D.4)",
    claim=(
        "Scores inside the true clusters of prompts measure what a model adds, but the clusters "
        "are not known, and K-means fails to find them in several cases. Conditional-Vendi, which "
        "needs no clusters, follows the score inside the true ones."
    ),
    stand_in=(
        "One to ten digits in three inks, under prompts that name both: up to thirty clusters. "
        "K-means with four choices of k; with more than there are distinct prompts it makes a "
        "cluster of each."
    ),
)
def kmeans(request: Request) -> Outcome:
    """Conditional-Vendi and Cluster-Vendi by K-means, beside Cluster-Vendi by the truth."""
    per_type = request.choose(150, 45)
    digits = np.repeat(np.arange(len(DIGITS)), per_type)
    inks = np.arange(digits.size) % len(INKS)
    named = zip(inks, digits, strict=True)
    pairs = pairs_for([f"a {INKS[ink]} {DIGITS[digit]}" for ink, digit in named])
    truth = inks * len(DIGITS) + digits
    rows = []
    for types in range(1, len(DIGITS) + 1):
        chosen = slice(0, types * per_type)
        x, t = pairs.x[chosen], pairs.t[chosen]
        oracle = dp.cluster_vendi(x, truth[chosen], kernel=KERNELS["kernel_x"])
        conditional = dp.conditional_vendi(x, t, **KERNELS)
        guesses = [_with_kmeans(x, t, count) for count in _COUNTS]
        rows.append((types, float(oracle), float(conditional), *guesses))
    return _judged(rows)


def _judged(rows: list[tuple]) -> Outcome:
    table = np.array(rows)
    off = np.abs(table[:, 2:] / table[:, 1:2] - 1).mean(axis=0)
    fails = bool((off[3:] > _NEAR).any())
    claims = {
        "Conditional-Vendi follows the truth": bool(off[0] < _NEAR),
        "K-means with too small a k misses it": bool((off[1:3] > _NEAR).all()),
        "K-means fails although k is large enough": fails,
    }
    verdict, failed = judged(claims)
    by_k = ", ".join(
        f"{100 * distance:.0f} % with k = {count}"
        for distance, count in zip(off[1:], _COUNTS, strict=True)
    )
    reason = (
        "Over one to ten types, Conditional-Vendi differs from Cluster-Vendi of the true clusters "
        f"by {100 * off[0]:.0f} % on average; Cluster-Vendi of the clusters of K-means by {by_k}; "
        f"up to {100 * _NEAR:g} % counts as following.{but_not(failed)}"
    )
    if not fails:
        reason += (
            " The failure of K-means that the paper reports is not seen: prompts of a cluster are "
            "equal here, so that K-means finds all clusters when it may use enough of them."
        )
    figure, (ax,) = panels(1)
    curves = {"true clusters": table[:, 1], "Conditional-Vendi": table[:, 2]}
    for index, count in enumerate(_COUNTS):
        curves[f"K-means, k = {count}"] = table[:, 3 + index]
    given = {"xlabel": "types", "ylabel": "score", "log": True, "counts": True}
    lines(ax, table[:, 0], curves, title="Cluster-Vendi and Conditional-Vendi", **given)
    legend(figure)
    columns = [
        Column("types", "types", "d"),
        Column("oracle", "true clusters", ".2f"),
        Column("conditional", "Conditional-Vendi", ".2f"),
        *(Column(f"k{count}", f"K-means, k = {count}", ".2f") for count in _COUNTS),
    ]
    return Outcome(verdict, reason, Table(tuple(columns), tuple(rows)), figure)


def _with_kmeans(x: np.ndarray, t: np.ndarray, count: int) -> float:
    # There are no more clusters than distinct prompts.
    distinct = len(np.unique(t, axis=0))
    labels = dp.kmeans_labels(t, min(count, distinct), rng=0)
    return float(dp.cluster_vendi(x, labels, kernel=KERNELS["kernel_x"]))
