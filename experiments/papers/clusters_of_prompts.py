"""One image for each cluster of prompts, with more and more clusters."""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

import divprism as dp
from divprism.report.table import Column, Table
from experiments.papers.base import (
    CONDITIONAL,
    TITLES,
    Outcome,
    Request,
    but_not,
    experiment,
    judged,
)
from experiments.papers.plots import legend, lines, panels
from experiments.papers.setups import KERNELS, embed_all, pairs_for, rises
from experiments.world.digits import DIGITS, INKS

# Captions that share the digit or the place are closer than others: kinds of prompt overlap.
_KERNELS = KERNELS | {"kernel_t": dp.Gaussian(0.5)}

_COUNTS = (2, 5, 10, 20, 40, 60)

# Models of the same kind that follow their prompts more and more.
_SCALES = (0.5, 1.0, 4.0)

_SCORES = ("conditional_vendi", "information_vendi", "conditional_rke", "information_rke")


@experiment(
    "fig4",
    CONDITIONAL,
    "Fig. 4, 23",
    claim=(
        "Prompts are clustered into k groups, and all prompts of a group are paired with the one "
        "image of its centre. For each of several models Conditional- and Information-Vendi and "
        "-RKE grow with k."
    ),
    stand_in=(
        "Sentences about digits in ten surroundings, for MS-COCO captions; K-means on their "
        "vectors, as there; k from 2 to 60 in place of 100 to 2,000. The digit model at three "
        "scales of classifier-free guidance for the models of the paper. It has learned no "
        "surroundings, so that it is asked for digit and ink of a caption."
    ),
)
def clusters_of_prompts(request: Request) -> Outcome:
    """Scores of pairs whose outputs are shared by a cluster."""
    prompts = captions(request)
    rows: list[tuple] = []
    for count in _COUNTS:
        for scale, (_, found) in shared(prompts, count, _SCALES).items():
            scores = [float(found.scores[name]) for name in _SCORES]
            rows.append((f"scale {scale:g}", count, *scores))
    rows.sort(key=lambda row: row[:2])
    return _judged(rows, len(prompts))


def captions(request: Request) -> list[str]:
    """The prompts of the experiment."""
    return _captions(request.choose(3000, 600))


def shared(
    prompts: list[str], count: int, scales: Sequence[float]
) -> dict[float, tuple[float, dp.Evaluation]]:
    """Results for each guidance scale where clusters of prompts share the image of their centre.

    With each, the share of these images that show the digit and the ink of their caption.
    """
    t = embed_all(prompts)
    labels = np.asarray(dp.kmeans_labels(t, count, rng=0))
    # The model has learned no surroundings, and a sentence with one misleads it.
    centres = [" ".join(prompts[row].split()[:3]) for row in _centres(t, labels)]
    results = {}
    for scale in scales:
        pairs = pairs_for(centres, guidance_scale=scale)
        fitting = []
        for asked, digit, ink in zip(centres, pairs.digits, pairs.inks, strict=True):
            fitting.append(asked == f"a {INKS[ink]} {DIGITS[digit]}")
        found = dp.evaluate(pairs.x[labels], t, num_permutations=0, **_KERNELS)
        results[scale] = float(np.mean(fitting)), found
    return results


def _judged(rows: list[tuple], n: int) -> Outcome:
    curves: dict[tuple[str, str], list[float]] = {}
    for model, _, *scores in rows:
        for name, score in zip(_SCORES, scores, strict=True):
            curves.setdefault((name, model), []).append(score)
    claims: dict[str, bool] = {}
    for (name, model), values in curves.items():
        claims[f"{TITLES[name]} of {model} {_dips(values)}"] = rises(values)
    verdict, failed = judged(claims)
    higher = sum(values[-1] > values[0] for values in curves.values())
    reason = (
        f"From {_COUNTS[0]} to {_COUNTS[-1]} clusters {higher} of {len(curves)} curves grow, and "
        f"{len(claims) - len(failed)} of them at every step (n = {n:,}).{but_not(failed)} "
        "Within a cluster the images are equal, so that what Conditional-Vendi sees is that "
        "clusters overlap under the kernel of the prompts."
    )
    figure, axes = panels(len(_SCORES), 2)
    for ax, name in zip(axes, _SCORES, strict=True):
        own = {model: values for (score, model), values in curves.items() if score == name}
        title = TITLES[name]
        lines(ax, _COUNTS, own, title=title, xlabel="clusters k", ylabel="score", counts=True)
    legend(figure)
    columns = [Column("model", "model"), Column("clusters", "clusters k", "d")]
    columns += [Column(name, TITLES[name], ".2f") for name in _SCORES]
    return Outcome(verdict, reason, Table(tuple(columns), tuple(rows)), figure)


def _dips(values: list[float]) -> str:
    """The steps at which a score falls, in words."""
    steps = []
    for (before, after), (low, high) in zip(pairwise(_COUNTS), pairwise(values), strict=True):
        if high <= low:
            steps.append(f"from k = {before} to {after}, but falls ({low:.2f} to {high:.2f})")
    return f"should grow {', '.join(steps)}"


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
