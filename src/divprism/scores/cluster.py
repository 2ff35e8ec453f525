"""Scores inside groups of prompts: the oracle that the conditional scores should track."""

import math
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any

import numpy as np

from divprism.core.arrays import distinct_rows, to_numpy
from divprism.core.kernels import Kernel
from divprism.core.spectrum import Estimate
from divprism.core.validation import check_seed, clean_rows
from divprism.errors import ArgumentError, MissingExtraError
from divprism.estimators import Entropy, Estimator
from divprism.scores.bandwidth import BandwidthRule
from divprism.scores.problem import Problem, check_factors, pose
from divprism.scores.score import Score, build_score

__all__ = ["cluster_rke", "cluster_score_from", "cluster_vendi", "kmeans_labels"]


def cluster_vendi(
    x: Any,
    labels: Any,
    *,
    kernel: Kernel | None = None,
    bandwidth_rule: BandwidthRule | None = None,
    order: float = 1.0,
    truncation: int | None = None,
    weights: Any = None,
    estimator: Estimator | None = None,
    rng: Any = 0,
    memory: Any = None,
    executor: Executor | None = None,
    progress: Callable[[str, float], None] | None = None,
) -> Score:
    """Mean over groups, by their share, of the `vendi` of the outputs inside each (Conditional Vendi, App. G, Cluster-Vendi).

    Between 1 and n. What `conditional_vendi` should track where the groups of prompts are known. Cost: the sum over groups of
    that of `vendi`.

    Parameters
    ----------
    x : array (n, d)
        A row per output.
    labels : flat collection of n integers or strings
        The group of each output's prompt: known, or from `kmeans_labels`.
    kernel, bandwidth_rule, order, truncation, weights, estimator, rng
        As in `vendi`. The bandwidth is chosen once, on all outputs.

    Examples
    --------
    One group of three distinct outputs, one of three equal ones:

    >>> import numpy as np, divprism as dp
    >>> x = np.eye(4)[[0, 1, 2, 3, 3, 3]]
    >>> round(float(dp.cluster_vendi(x, ["a", "a", "a", "b", "b", "b"], kernel=dp.Cosine())), 12)
    2.0
    """
    return _cluster_score(
        "cluster_vendi",
        x,
        labels,
        kernel_x=kernel,
        bandwidth_rule=bandwidth_rule,
        order=order,
        truncation=truncation,
        weights=weights,
        estimator=estimator,
        rng=rng,
        memory=memory,
        executor=executor,
        progress=progress,
    )


def cluster_rke(
    x: Any,
    labels: Any,
    *,
    kernel: Kernel | None = None,
    bandwidth_rule: BandwidthRule | None = None,
    truncation: int | None = None,
    weights: Any = None,
    estimator: Estimator | None = None,
    rng: Any = 0,
    memory: Any = None,
    executor: Executor | None = None,
    progress: Callable[[str, float], None] | None = None,
) -> Score:
    """`cluster_vendi` at order 2: no eigenvalue is computed (Conditional Vendi, App. G, Cluster-RKE). Arguments as there.

    >>> import numpy as np, divprism as dp
    >>> x = np.eye(4)[[0, 1, 2, 3, 3, 3]]
    >>> round(float(dp.cluster_rke(x, [7, 7, 7, 8, 8, 8], kernel=dp.Cosine())), 12)
    2.0
    """
    return _cluster_score(
        "cluster_rke",
        x,
        labels,
        kernel_x=kernel,
        bandwidth_rule=bandwidth_rule,
        order=2,
        truncation=truncation,
        weights=weights,
        estimator=estimator,
        rng=rng,
        memory=memory,
        executor=executor,
        progress=progress,
    )


def _cluster_score(name: str, x: Any, labels: Any, **arguments: Any) -> Score:
    problem = pose(x, labels=labels, **arguments)
    return cluster_score_from(name, problem, problem.settings["order"])


def cluster_score_from(name: str, problem: Problem, order: float) -> Score:
    """The score inside each group of a problem posed with labels, averaged by the groups' shares."""
    assert problem.grouped is not None
    groups = list(problem.grouped.groups())
    shares = [float(group.masses.sum()) for group in groups]
    check_factors([problem.x], [])
    [found] = problem.settings["estimator"].entropies(
        groups, problem.question([order]), problem.resources
    )
    terms = []
    for share, one in zip(shares, found, strict=True):
        estimate = one.estimate
        score = math.exp(estimate.value)
        terms.append(
            (share, Estimate(score, score * estimate.deviations, score * estimate.systematic))
        )
    total = Estimate.total(terms)
    in_nats = Estimate(
        math.log(total.value), total.deviations / total.value, total.systematic / total.value
    )
    entropy = Entropy(in_nats, "+".join(one.method for one in found))
    return build_score(
        name, entropy, order, settings=problem.settings, n=problem.n, warnings=problem.warnings
    )


def kmeans_labels(t: Any, num_clusters: int, *, rng: Any = 0) -> np.ndarray:
    """Groups of prompts by K-means (scikit-learn, ten starts): labels 0..num_clusters-1 for `cluster_vendi`.

    For prompts whose groups nobody knows (KMeans-Cluster-Vendi; Conditional Vendi, App. G). K-means can miss the true
    groups, so prefer labels that you have. O(n d num_clusters) per iteration.

    Parameters
    ----------
    t : array (n, d)
        A row per prompt.
    num_clusters : int
        Number of groups, at most the number of distinct rows.
    rng : int or numpy.random.Generator
        Seed of the starts.
    """
    seed = check_seed(rng)
    rows = to_numpy(clean_rows(t, "t"))
    distinct = distinct_rows(rows)[0].size
    if not isinstance(num_clusters, int | np.integer) or not 1 <= num_clusters <= distinct:
        raise ArgumentError(
            f"`num_clusters` must be a whole number from 1 to the number of distinct prompts, {distinct}; got {num_clusters!r}."
        )
    try:
        from sklearn.cluster import KMeans
    except ImportError:
        raise MissingExtraError(
            "K-means labels need scikit-learn, which is not installed: pip install 'divprism[cluster]'."
        ) from None
    return KMeans(int(num_clusters), n_init=10, random_state=seed % 2**32).fit_predict(rows)
