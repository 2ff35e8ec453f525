"""Groups of prompts by K-means, for prompts whose groups are not known."""

import numpy as np

from divprism.core.arrays import distinct_rows, to_numpy
from divprism.core.validation import check_seed, clean_rows
from divprism.errors import ArgumentError, MissingExtraError

__all__ = ["kmeans_labels"]


def kmeans_labels(
    t: object, num_clusters: int, *, rng: int | np.random.Generator = 0
) -> np.ndarray:
    """Group prompts by K-means (scikit-learn, ten starts): labels 0..num_clusters-1.

    For `cluster_vendi` where the groups are not known (KMeans-Cluster-Vendi; Conditional Vendi,
    App. G). K-means can miss the true groups, so prefer labels that you have.
    O(n d num_clusters) per iteration.

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
    # A bool is an int in Python, but no number of groups.
    is_whole = isinstance(num_clusters, int | np.integer) and not isinstance(num_clusters, bool)
    if not is_whole or not 1 <= num_clusters <= distinct:
        raise ArgumentError(
            "`num_clusters` must be a whole number from 1 to the number of distinct prompts, "
            f"{distinct}; got {num_clusters!r}."
        )
    try:
        from sklearn.cluster import KMeans
    except ImportError:
        raise MissingExtraError(
            "K-means labels need scikit-learn, which is not installed: "
            "pip install 'divprism[cluster]'."
        ) from None
    # Ten starts are set here because the default differs between versions of scikit-learn, which
    # also limits seeds to 32 bits.
    return KMeans(int(num_clusters), n_init=10, random_state=seed % 2**32).fit_predict(rows)
