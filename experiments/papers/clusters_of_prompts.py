"""One image for each cluster of prompts, with more and more clusters."""

import numpy as np

import divprism as dp
from divprism.report.table import Column, Table
from experiments.papers.base import CONDITIONAL, FAILS, HOLDS, Outcome, Request, experiment
from experiments.papers.plots import lines, panels
from experiments.papers.setups import KERNELS, pairs_for
from experiments.world.digits import DIGITS, INKS

# Captions that share the digit or the place are closer than others: kinds of prompt overlap.
_KERNELS = KERNELS | {"kernel_t": dp.Gaussian(0.5)}

_COUNTS = (2, 5, 10, 20, 40, 60)


@experiment(
    "fig4",
    CONDITIONAL,
    "Fig. 4, 23, 24",
    claim=(
        "Prompts are clustered into k groups, and all prompts of a group are paired with the one "
        "image of its centre. Conditional- and Information-Vendi and -RKE grow with k."
    ),
    stand_in=(
        "Sentences about digits in ten surroundings, for MS-COCO captions; K-means on their "
        "vectors, as there; k from 2 to 60 in place of 100 to 2,000."
    ),
)
def clusters_of_prompts(request: Request) -> Outcome:
    """Scores of pairs whose outputs are shared by a cluster."""
    prompts = _captions(request.choose(3000, 600))
    pairs = pairs_for(prompts)
    rows = []
    for count in _COUNTS:
        labels = np.asarray(dp.kmeans_labels(pairs.t, count, rng=0))
        x = pairs.x[_centres(pairs.t, labels)][labels]
        found = dp.evaluate(x, pairs.t, num_permutations=0, **_KERNELS)
        names = ("conditional_vendi", "information_vendi", "conditional_rke", "information_rke")
        rows.append((count, *(float(found.scores[name]) for name in names)))
    conditional, information = [row[1] for row in rows], [row[2] for row in rows]
    verdict = FAILS
    if conditional[-1] > conditional[0] and information[-1] > 2 * information[0]:
        verdict = HOLDS
    reason = (
        f"From {_COUNTS[0]} to {_COUNTS[-1]} clusters, Information-Vendi grows from "
        f"{information[0]:.2f} to {information[-1]:.2f} and Conditional-Vendi from "
        f"{conditional[0]:.2f} to {conditional[-1]:.2f}. Within a cluster the images are equal, so "
        "what Conditional-Vendi sees is that clusters overlap under the kernel of the prompts."
    )
    figure, (ax,) = panels(1)
    curves = {"Conditional-Vendi": conditional, "Information-Vendi": information}
    lines(ax, _COUNTS, curves, title="one image per cluster", xlabel="clusters", log=True)
    columns = (
        Column("clusters", "clusters", "d"),
        Column("conditional_vendi", "Conditional-Vendi", ".2f"),
        Column("information_vendi", "Information-Vendi", ".2f"),
        Column("conditional_rke", "Conditional-RKE", ".2f"),
        Column("information_rke", "Information-RKE", ".2f"),
    )
    return Outcome(verdict, reason, Table(columns, tuple(rows)), figure)


_PLACES = (
    "on a blackboard",
    "on a shop window",
    "in an old book",
    "on a door",
    "in a photo of a street",
    "on a birthday card",
    "under a bridge",
    "on a football shirt",
    "in the snow",
    "on a parking ticket",
)


def _captions(n: int) -> list[str]:
    """Sentences about a digit in an ink, somewhere."""
    rng = np.random.default_rng(0)
    words = zip(rng.choice(INKS, n), rng.choice(DIGITS, n), rng.choice(_PLACES, n), strict=True)
    return [f"a {ink} {digit} {place}" for ink, digit, place in words]


def _centres(t: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """For each cluster, the row that is closest to its mean."""
    rows = []
    for label in range(labels.max() + 1):
        members = np.flatnonzero(labels == label)
        distances = ((t[members] - t[members].mean(axis=0)) ** 2).sum(axis=1)
        rows.append(members[distances.argmin()])
    return np.array(rows)
