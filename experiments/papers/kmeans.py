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
from experiments.papers.setups import KERNELS, embed_all, pairs_for
from experiments.world.digits import DIGITS, INKS

# Distance from the truth, on average, up to which a score follows it.
_NEAR = 0.1

# Numbers of clusters for K-means, beside the true one, which is three for each type. The first is
# too small, and with the last each sentence is a cluster.
_COUNTS = (10, 30, 60, 120)

_PARAPHRASES = (
    "a {ink} {digit}",
    "a handwritten {ink} {digit}",
    "the number {digit} in {ink} ink",
    "a {digit} drawn in {ink}",
)

_TRUTH, _CONDITIONAL = "true clusters", "Conditional-Vendi"
_TRUE_NUMBER = "K-means, true number"
_BY_COUNT = {count: f"K-means, k = {count}" for count in _COUNTS}
_NAMES = (_TRUTH, _CONDITIONAL, _TRUE_NUMBER, *_BY_COUNT.values())


@experiment(
    "kmeans",
    EARLIER,
    "the text of App. D.4, which cites Fig. 19",
    claim=(
        "Scores inside the true clusters of prompts measure what a model adds, but the clusters "
        "are not known, and K-means fails to find them in several cases. Conditional-Vendi, which "
        "needs no clusters, follows the score inside the true ones."
    ),
    stand_in=(
        "One to ten digits in three inks, 300 images of each digit, so that n grows from 300 to "
        "3,000. A true cluster is a digit in an ink, and its prompts are four sentences of that "
        "meaning, the farthest of which are nearly always farther apart than some of different "
        "meanings. The model is asked in "
        "the first of them, which it has learned, and the scores see any of the four. K-means with "
        "the true number of clusters, which grows from 3 to 30, and with four fixed choices of k. "
        "The paper does not say which k it uses."
    ),
)
def kmeans(request: Request) -> Outcome:
    """Conditional-Vendi and Cluster-Vendi by K-means, beside Cluster-Vendi by the truth."""
    per_type = request.choose(300, 60)
    digits = np.repeat(np.arange(len(DIGITS)), per_type)
    inks = np.arange(digits.size) % len(INKS)
    rng = np.random.default_rng(0)
    asked, said = [], []
    for ink, digit in zip(inks, digits, strict=True):
        sentences = [each.format(ink=INKS[ink], digit=DIGITS[digit]) for each in _PARAPHRASES]
        asked.append(sentences[0])
        said.append(sentences[rng.integers(len(sentences))])
    x, t = pairs_for(asked).x, embed_all(said)
    truth = inks * len(DIGITS) + digits
    rows = []
    for types in range(1, len(DIGITS) + 1):
        chosen = slice(0, types * per_type)
        rows.append((types, *_scores(x[chosen], t[chosen], truth[chosen])))
    return _judged(rows)


def _scores(x: np.ndarray, t: np.ndarray, truth: np.ndarray) -> list[float]:
    """The scores of `_NAMES`."""
    oracle = dp.cluster_vendi(x, truth, kernel=KERNELS["kernel_x"])
    conditional = dp.conditional_vendi(x, t, **KERNELS)
    found = [float(oracle), float(conditional)]
    # There are no more clusters than distinct prompts.
    distinct = len(np.unique(t, axis=0))
    for count in (len(np.unique(truth)), *_COUNTS):
        labels = dp.kmeans_labels(t, min(count, distinct), rng=0)
        found.append(float(dp.cluster_vendi(x, labels, kernel=KERNELS["kernel_x"])))
    return found


def _judged(rows: list[tuple]) -> Outcome:
    table = np.array(rows)
    truth = table[:, 1:2]
    distances = np.abs(table[:, 2:] / truth - 1).mean(axis=0)
    off = dict(zip(_NAMES[1:], distances, strict=True))
    nearest = min(_NAMES[2:], key=off.__getitem__)
    fails = f"{_TRUE_NUMBER} of clusters, fails"
    nearer = f"{_CONDITIONAL} is nearer to the truth than all of K-means"
    claims = {
        f"{_CONDITIONAL} follows the truth": bool(off[_CONDITIONAL] <= _NEAR),
        fails: bool(off[_TRUE_NUMBER] > _NEAR),
        nearer: bool(off[_CONDITIONAL] < off[nearest]),
    }
    verdict, failed = judged(claims, central=(fails, nearer))
    by_k = ", ".join(f"{100 * off[name]:.0f} % ({name})" for name in _NAMES[2:])
    reason = (
        "Over one to ten types, Conditional-Vendi differs from Cluster-Vendi of the true clusters "
        f"by {100 * off[_CONDITIONAL]:.0f} % on average, and Cluster-Vendi of the clusters of "
        f"K-means by {by_k}; up to {100 * _NEAR:g} % counts as following, more as failing."
        f"{but_not(failed)} Central are two parts: that K-means fails with the true number of "
        "clusters, and that Conditional-Vendi is nearer to the truth than K-means with any k. "
        "Conditional-Vendi is lower than the truth because it takes sentences of the same meaning "
        f"for different prompts, each with few images. So does K-means with k = {_COUNTS[-1]}, "
        f"where each sentence is a cluster. That k = {_COUNTS[0]} is too small is beyond the paper."
    )
    figure, (ax,) = panels(1)
    curves = {name: table[:, 1 + index] for index, name in enumerate(_NAMES)}
    # Drawn last and without a line, so that curves on it stay visible.
    curves[_TRUTH] = curves.pop(_TRUTH)
    given = {"xlabel": "types", "ylabel": "score", "log": True, "counts": True}
    lines(ax, table[:, 0], curves, title="Cluster-Vendi and Conditional-Vendi", **given)
    legend(figure)
    columns = [Column("types", "types", "d")]
    columns += [Column(f"score_{index}", name, ".2f") for index, name in enumerate(_NAMES)]
    return Outcome(verdict, reason, Table(tuple(columns), tuple(rows)), figure)
