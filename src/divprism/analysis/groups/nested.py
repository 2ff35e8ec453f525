"""Whether the Conditional scores track the Cluster scores: both on nested subsets."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from divprism.analysis.groups.decomposition import embedded_pairs
from divprism.core.validation import check_pairing
from divprism.errors import ArgumentError
from divprism.scores.problem import clean_labels, pose
from divprism.scores.score import compute_scores
from divprism.scores.settings import EmbeddedPairOptions, read_options
from divprism.scores.spec import score_spec

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = ["NestedScores", "nested_scores"]

# Conditional scores and the cluster scores that they should track, by the key of a correlation.
_TRACKED = {
    "vendi": ("conditional_vendi", "cluster_vendi"),
    "rke": ("conditional_rke", "cluster_rke"),
}


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
    **options: "Unpack[EmbeddedPairOptions]",
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
    settings, resources = read_options(options, EmbeddedPairOptions, "nested_scores")
    items, embedded, settings = embedded_pairs(x, t, settings, resources)
    codes = clean_labels(labels)
    check_pairing(len(items), codes.size, "labels")
    if subsets is None:
        steps = np.unique(np.linspace(0, codes.max(), min(10, codes.max() + 1)).round())
        subsets = [np.flatnonzero(codes <= last) for last in steps]
    chosen = _nested(subsets, codes.size)
    settings = replace(settings, truncation=None)
    # The bandwidths are chosen once, on everything.
    settings = pose(embedded.outputs, embedded.prompts, settings=settings).settings
    tracked = [score_spec(name) for names in _TRACKED.values() for name in names]
    series: dict[str, list[float]] = {spec.name: [] for spec in tracked}
    for rows in chosen:
        # Weights rather than rows: a kernel matrix has no rows to select.
        weights = np.bincount(rows, minlength=codes.size) / rows.size
        problem = pose(
            embedded.outputs, embedded.prompts, codes, settings=settings, weights=weights
        )
        for name, score in compute_scores(problem, tracked).items():
            series[name].append(score.value)
    pearson, spearman = {}, {}
    for key, (conditional, cluster) in _TRACKED.items():
        both = np.round(series[conditional], 12), np.round(series[cluster], 12)
        pearson[key], spearman[key] = _correlations(*both)
    return NestedScores(
        tuple(len(rows) for rows in chosen),
        **{name: tuple(values) for name, values in series.items()},
        pearson=pearson,
        spearman=spearman,
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


def _correlations(a: np.ndarray, b: np.ndarray) -> tuple[float | None, float | None]:
    """Pearson's and Spearman's correlation; None where one of the series is constant."""
    from scipy.stats import pearsonr, spearmanr

    if np.ptp(a) == 0 or np.ptp(b) == 0:
        return None, None
    return float(pearsonr(a, b).statistic), float(spearmanr(a, b).statistic)
