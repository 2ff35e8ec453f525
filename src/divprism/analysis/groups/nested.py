"""Whether the Conditional scores track the Cluster scores: both on nested subsets."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from divprism.analysis.groups.decomposition import embedded_pairs
from divprism.core.kernels import Kernel
from divprism.core.validation import check_pairing, check_seed, clean_ids
from divprism.errors import ArgumentError, DataError
from divprism.scores.bandwidth import BandwidthRule
from divprism.scores.cluster import cluster_score_from
from divprism.scores.problem import entropies, pose
from divprism.scores.score import score_from

__all__ = ["NestedScores", "nested_scores"]


@dataclass(frozen=True)
class NestedScores:
    """Conditional and Cluster scores on growing parts of the data, and how well they go together.

    `sizes` and the four scores have an entry per subset. `pearson` and `spearman` hold the correlation of the Conditional with
    the Cluster score under "vendi" and "rke"; None where one of them is constant.
    """

    sizes: tuple[int, ...]
    conditional_vendi: tuple[float, ...]
    cluster_vendi: tuple[float, ...]
    conditional_rke: tuple[float, ...]
    cluster_rke: tuple[float, ...]
    pearson: dict[str, float | None]
    spearman: dict[str, float | None]

    def to_dict(self) -> dict[str, Any]:
        """Plain values only."""
        return asdict(self)


def nested_scores(
    x: Any,
    t: Any,
    labels: Any,
    subsets: Sequence[Any] | None = None,
    *,
    kernel_x: Kernel | None = None,
    kernel_t: Kernel | None = None,
    order: float = 1.0,
    bandwidth_rule: BandwidthRule | None = None,
    rng: Any = 0,
    **embedding: Any,
) -> NestedScores:
    """Whether Conditional tracks Cluster: both on nested subsets of the pairs (Conditional Vendi, App. G; Fig. 5 and 16-18).

    Parameters
    ----------
    x, t, kernel_x, kernel_t, order, bandwidth_rule, rng, **embedding
        As in `prompt_groups`. The bandwidths are chosen once, on everything.
    labels : flat collection of n integers or strings
        The known group of each output's prompt.
    subsets : sequence of row numbers, optional
        At least three, each holding the one before. By default the first groups in order of appearance, ever more of them,
        in at most ten steps.

    Examples
    --------
    Two outputs in the first group, three in the second, four in the third, all different:

    >>> from divprism.core.kernels import Cosine
    >>> labels = [0] * 2 + [1] * 3 + [2] * 4
    >>> found = nested_scores(np.eye(9), labels, labels, kernel_x=Cosine())
    >>> [round(score, 3) for score in found.cluster_vendi], round(found.spearman["vendi"], 9)
    ([2.0, 2.6, 3.222], 1.0)
    """
    items, embedded, _ = embedded_pairs(x, t, kernel_t, **embedding)
    codes = clean_ids(labels, "labels")
    if codes is None:
        raise DataError(
            f"`labels` must be flat, one group per output; got shape {np.shape(labels)}."
        )
    check_pairing(len(items), codes.size, "labels")
    if subsets is None:
        steps = np.unique(np.linspace(0, codes.max(), min(10, codes.max() + 1)).round())
        subsets = [np.flatnonzero(codes <= last) for last in steps]
    chosen = _nested(subsets, codes.size)
    settings: dict[str, Any] = {
        "order": order,
        "rng": check_seed(rng),
        "truncation": None,
        "estimator": None,
    }
    kernels = {"kernel_x": kernel_x, "kernel_t": kernel_t, "bandwidth_rule": bandwidth_rule}
    resolved = pose(embedded.outputs, embedded.prompts, **kernels, **settings).settings
    kept = {
        name: resolved[name]
        for name in ("kernel_x", "kernel_t", "order", "truncation", "estimator", "rng")
    }
    found: dict[str, list[float]] = {}
    for rows in chosen:
        weights = (
            np.bincount(rows, minlength=codes.size) / rows.size
        )  # a kernel matrix has no rows to select
        problem = pose(embedded.outputs, embedded.prompts, codes, weights=weights, **kept)
        inside = entropies(problem, ["t", "joint"], [kept["order"], 2.0])
        for score, one, order in (("vendi", inside[0], kept["order"]), ("rke", inside[1], 2.0)):
            conditional, cluster = f"conditional_{score}", f"cluster_{score}"
            found.setdefault(conditional, []).append(
                float(score_from(conditional, one, problem, order))
            )
            found.setdefault(cluster, []).append(float(cluster_score_from(cluster, problem, order)))
    series = {
        score: (found[f"conditional_{score}"], found[f"cluster_{score}"])
        for score in ("vendi", "rke")
    }
    return NestedScores(
        tuple(len(rows) for rows in chosen),
        **{name: tuple(values) for name, values in found.items()},
        pearson={score: _correlation(*map(np.array, both)) for score, both in series.items()},
        spearman={score: _correlation(*map(_ranks, both)) for score, both in series.items()},
    )


def _nested(subsets: Sequence[Any], n: int) -> list[np.ndarray]:
    chosen = [np.unique(np.asarray(rows, dtype=int)) for rows in subsets]
    if len(chosen) < 3:
        raise ArgumentError(
            f"a correlation over nested subsets needs at least 3 of them; got {len(chosen)}."
        )
    for place, rows in enumerate(chosen):
        if not rows.size or rows[0] < 0 or rows[-1] >= n:
            raise ArgumentError(
                f"subset {place} of `subsets` must hold rows from 0 to {n - 1}, at least one."
            )
        if place and not np.isin(chosen[place - 1], rows).all():
            raise ArgumentError(
                f"`subsets` must be nested; subset {place} misses rows of the one before."
            )
    return chosen


def _ranks(values: Sequence[float]) -> np.ndarray:
    """Ranks, equal ones shared; differences of rounding are none."""
    _, inverse, counts = np.unique(np.round(values, 12), return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - (counts - 1) / 2)[inverse]


def _correlation(a: np.ndarray, b: np.ndarray) -> float | None:
    a, b = a - a.mean(), b - b.mean()
    size = float(np.linalg.norm(a) * np.linalg.norm(b))
    return None if size < 1e-12 else float(a @ b) / size
