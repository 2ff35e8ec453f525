"""Whether Conditional scores track Cluster scores: both on nested subsets of the pairs."""

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
    """Conditional and Cluster scores on growing parts of the data, and their correlation.

    Attributes
    ----------
    sizes : tuple of int
        Number of pairs in each subset.
    conditional_vendi, cluster_vendi, conditional_rke, cluster_rke : tuple of float
        The scores of each subset.
    pearson, spearman : dict
        Correlation of the Conditional with the Cluster score, under "vendi" and "rke"; None where
        one of them is constant.
    """

    sizes: tuple[int, ...]
    conditional_vendi: tuple[float, ...]
    cluster_vendi: tuple[float, ...]
    conditional_rke: tuple[float, ...]
    cluster_rke: tuple[float, ...]
    pearson: dict[str, float | None]
    spearman: dict[str, float | None]

    def to_dict(self) -> dict[str, Any]:
        """The result as plain values."""
        return asdict(self)


def nested_scores(
    x: object,
    t: object,
    labels: object,
    subsets: Sequence[Any] | None = None,
    **options: "Unpack[EmbeddedPairOptions]",
) -> NestedScores:
    """Whether Conditional tracks Cluster: both scores on nested subsets of the pairs.

    The experiment of Conditional Vendi, App. G; Fig. 5 and 16-18.

    Parameters
    ----------
    x, t
        As in `prompt_groups`.
    labels : flat collection of n integers or strings
        The known group of each output's prompt.
    subsets : sequence of row numbers, optional
        At least three, each of which contains the one before. Default: growing numbers of groups
        in order of appearance, in at most ten steps.
    **options
        Keywords of `prompt_groups`. The bandwidths are chosen once, on all pairs.

    Examples
    --------
    Two outputs in the first group, three in the second, four in the third, all different:

    >>> from divprism.core.kernels import Cosine
    >>> labels = [0] * 2 + [1] * 3 + [2] * 4
    >>> nested = nested_scores(np.eye(9), labels, labels, kernel_x=Cosine())
    >>> [round(score, 3) for score in nested.cluster_vendi], round(nested.spearman["vendi"], 9)
    ([2.0, 2.6, 3.222], 1.0)
    """
    settings, resources = read_options(options, EmbeddedPairOptions, "nested_scores")
    items, embedded, settings = embedded_pairs(x, t, settings, resources)
    outputs, prompts = embedded.outputs, embedded.prompts
    codes = clean_labels(labels)
    check_pairing(len(items), codes.size, "labels")
    if subsets is None:
        subsets = _growing_groups(codes)
    nested = _nested(subsets, codes.size)
    # A fixed number of eigenvalues would cut the spectra of large subsets only.
    settings = replace(settings, truncation=None, auto_truncation=False)
    # The bandwidths are chosen once, on all pairs.
    settings = pose(outputs, prompts, settings=settings, resources=resources).settings
    tracked = [score_spec(name) for names in _TRACKED.values() for name in names]
    series: dict[str, list[float]] = {spec.name: [] for spec in tracked}
    for rows in nested:
        # Weights rather than rows: a kernel matrix has no rows to select.
        weights = np.bincount(rows, minlength=codes.size) / rows.size
        problem = pose(
            outputs, prompts, codes, settings=settings, weights=weights, resources=resources
        )
        for name, score in compute_scores(problem, tracked).items():
            series[name].append(score.value)
    pearson, spearman = {}, {}
    for key, (conditional, cluster) in _TRACKED.items():
        # Rounded, so that a series that is constant up to rounding counts as constant.
        both = np.round(series[conditional], 12), np.round(series[cluster], 12)
        pearson[key], spearman[key] = _correlations(*both)
    scores = {name: tuple(values) for name, values in series.items()}
    sizes = tuple(len(rows) for rows in nested)
    return NestedScores(sizes, **scores, pearson=pearson, spearman=spearman)


def _growing_groups(codes: np.ndarray) -> list[np.ndarray]:
    """The rows of the first groups in order of appearance, in at most ten steps."""
    # Codes count the groups in order of appearance, so small codes are the first groups.
    last_groups = np.linspace(0, codes.max(), min(10, codes.max() + 1)).round()
    return [np.flatnonzero(codes <= last) for last in np.unique(last_groups)]


def _nested(subsets: Sequence[Any], n: int) -> list[np.ndarray]:
    """The subsets as sorted rows, checked to contain each other."""
    nested = [_row_numbers(index, rows) for index, rows in enumerate(subsets)]
    if len(nested) < 3:
        raise ArgumentError(
            f"`subsets` must hold at least 3 subsets, for a correlation; got {len(nested)}."
        )
    for index, rows in enumerate(nested):
        if not rows.size or rows[0] < 0 or rows[-1] >= n:
            raise ArgumentError(
                f"subset {index} of `subsets` must hold rows from 0 to {n - 1}, at least one."
            )
        if index and not np.isin(nested[index - 1], rows).all():
            raise ArgumentError(
                f"`subsets` must be nested; subset {index} lacks rows of the one before."
            )
    return nested


def _row_numbers(index: int, rows: object) -> np.ndarray:
    """A subset as sorted row numbers, each once."""
    numbers = np.asarray(rows)
    # A mask of booleans would count as the rows 0 and 1, and fractions as the rows below them.
    if numbers.size and numbers.dtype.kind not in "iu":
        raise ArgumentError(
            f"subset {index} of `subsets` must hold whole numbers, its rows; got values of type "
            f"{numbers.dtype}. The rows of a mask are np.flatnonzero(mask)."
        )
    return np.unique(numbers.astype(int))


def _correlations(a: np.ndarray, b: np.ndarray) -> tuple[float | None, float | None]:
    """Pearson's and Spearman's correlation; None where one of the series is constant."""
    from scipy.stats import pearsonr, spearmanr

    # SciPy would warn and return NaN, which a JSON document cannot hold.
    if np.ptp(a) == 0 or np.ptp(b) == 0:
        return None, None
    return float(pearsonr(a, b).statistic), float(spearmanr(a, b).statistic)
