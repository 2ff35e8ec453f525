"""The tree of models by average linkage."""

import numpy as np

__all__ = ["average_linkage"]


def average_linkage(distances: np.ndarray) -> np.ndarray:
    """Join the two clusters of the least mean distance until one is left.

    Rows of two clusters, their mean distance and the number of models, as SciPy writes them:

    >>> average_linkage(np.array([[0.0, 0.1, 0.6], [0.1, 0.0, 0.8], [0.6, 0.8, 0.0]]))
    array([[0. , 1. , 0.1, 2. ],
           [2. , 3. , 0.7, 3. ]])
    """
    # Imported when needed: importing it takes as long as divprism itself.
    from scipy.cluster.hierarchy import linkage

    above = np.triu_indices(len(distances), 1)
    return np.asarray(linkage(distances[above], method="average"))
