"""Vendi of a fixed number of items from more and more classes, by three estimators."""

from collections import Counter
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

import divprism as dp
from divprism.report.table import Column, Table
from experiments.papers.base import Outcome, but_not, judged
from experiments.papers.plots import legend, lines, panels

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ORDERS = (1.0, 1.5, 2.0)

# The paper too takes the mean over five independent sets: a step from 15 to 20 classes may change
# a score by less than another draw of the items does.
SETS = 5

# Nystrom and FKEA count as close to the truncated score within this share of it.
_CLOSE = 0.1

ESTIMATORS = ("truncated", "Nystrom", "FKEA")

Values = dict[tuple[str, float], list[float]]


def outcome(
    counts: Sequence[int], features_of: Callable[[int, int], np.ndarray], word: str
) -> Outcome:
    """Scores of the items of each number of classes, and whether they grow.

    Parameters
    ----------
    counts
        Numbers of classes, rising.
    features_of
        Embeddings of items, always the same number of them, by number of classes and seed.
    word
        What a class is called.
    """
    # Chosen once, on items of all classes: only the classes may change the scores.
    largest = features_of(counts[-1], 0)
    n, bandwidth = len(largest), dp.StableScore().bandwidth(largest)
    values: Values = {}
    for count in counts:
        sets = [features_of(count, seed) for seed in range(SETS)]
        for name in ESTIMATORS:
            scores = np.mean([scores_of(name, features, bandwidth) for features in sets], axis=0)
            for order, score in zip(ORDERS, scores, strict=True):
                values.setdefault((name, order), []).append(float(score))
    given = (
        f"Means over {SETS} sets of n = {n:,}, t = {n // 2:,}, bandwidth {bandwidth:.2g} by the "
        "papers' rule."
    )
    return _judged(counts, values, word, given)


def scores_of(name: str, features: np.ndarray, bandwidth: float) -> list[float]:
    """The score at each order; t, the landmarks and the frequencies are half the items."""
    half = len(features) // 2
    # Random features have no eigenvalue to spare, so the papers do not truncate their spectrum.
    choices = {
        "truncated": {"truncation": half},
        "Nystrom": {"truncation": half, "estimator": dp.Nystrom(half)},
        "FKEA": {"estimator": dp.Fourier(half, extrapolate=False)},
    }
    kernel = dp.Gaussian(bandwidth)
    # One spectrum gives the orders 1 and 2.
    both = dp.evaluate(features, kernel_x=kernel, rng=0, **choices[name])
    middle = dp.vendi(features, kernel=kernel, order=ORDERS[1], rng=0, **choices[name])
    return [float(both.vendi), float(middle), float(both.rke)]


def loaded(data: Path) -> tuple[Sequence[int], Callable[[int, int], np.ndarray]]:
    """Numbers of classes, and embeddings of items, of real data; prompts are the classes."""
    samples = dp.load(data)
    prompts = samples.prompts
    if not isinstance(prompts, tuple):
        raise dp.DataError(f"{data} holds no prompts, which name the classes.")
    embedded = np.asarray(dp.embed(dp.Samples(samples.outputs)).outputs)
    sizes = Counter(prompt.label for prompt in prompts)
    # The smallest class decides how many items there are, so that rare ones are left out.
    least = np.median(list(sizes.values())) / 2
    classes = [name for name, size in sizes.items() if size >= least]
    members = {name: [] for name in classes}
    for row, prompt in enumerate(prompts):
        if prompt.label in members:
            members[prompt.label].append(row)
    counts = [count for count in (2, 5, 10, 20, 50, 100, 200) if count <= len(classes)]
    n = min(1000, counts[0] * min(len(rows) for rows in members.values()))

    def features_of(count: int, seed: int) -> np.ndarray:
        rng = np.random.default_rng(seed)
        # Some classes are more varied than others: each set has its own.
        chosen = rng.permutation(len(classes))[:count]
        rows = np.concatenate([members[classes[index]] for index in chosen])
        return embedded[rng.choice(rows, n, replace=False)]

    return counts, features_of


def _grows(values: list[float]) -> bool:
    return all(later > earlier for earlier, later in pairwise(values))


def _judged(counts: Sequence[int], values: Values, word: str, given: str) -> Outcome:
    apart = {}
    for name in ESTIMATORS[1:]:
        for order in ORDERS:
            exact = np.array(values["truncated", order])
            apart[name, order] = float(np.abs(np.array(values[name, order]) / exact - 1).max())
    grow = {}
    for (name, order), own in values.items():
        grow[f"growth of {name} at order {order:g}"] = _grows(own)
    close = {}
    for (name, order), share in apart.items():
        close[f"{name} close at order {order:g} ({100 * share:.0f} %)"] = share <= _CLOSE
    central = [part for part in grow if "truncated" in part]
    verdict, failed = judged(grow | close, central=central)
    parts = []
    for name in ESTIMATORS[1:]:
        farthest = max(apart[name, order] for order in ORDERS)
        parts.append(f"{name} {100 * farthest:.1f} %")
    shares = ", ".join(parts)
    first, last = values["truncated", 1.0][0], values["truncated", 1.0][-1]
    among = f"From {counts[0]} to {counts[-1]} {word}"
    reason = (
        f"{sum(grow.values())} of {len(values)} curves grow at every step. {among} "
        f"the truncated score of order 1 grows from {first:.1f} to {last:.1f}. Largest "
        f"distance from the truncated score: {shares}, where up to {100 * _CLOSE:g} % counts as "
        f"close.{but_not(failed)} The curves of the truncated score are central: if one of them "
        f"fell at a step, the claim would not hold. {given}"
    )
    columns = [Column("classes", word, "d")]
    columns += [
        Column(f"{name}_{order}", f"{name}, order {order:g}", ".2f") for name, order in values
    ]
    rows = zip(counts, *values.values(), strict=True)
    table = Table(tuple(columns), tuple(rows))
    return Outcome(verdict, reason, table, _figure(counts, values, word))


def _figure(counts: Sequence[int], values: Values, word: str) -> "Figure":
    """A panel for each order."""
    figure, axes = panels(len(ORDERS))
    for ax, order in zip(axes, ORDERS, strict=True):
        curves = {name: values[name, order] for name in ESTIMATORS}
        given = {"xlabel": f"number of {word}", "ylabel": "score", "counts": True}
        lines(ax, counts, curves, title=f"order {order:g}", **given)
    legend(figure)
    return figure
