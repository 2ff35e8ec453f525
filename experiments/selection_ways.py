"""Ways to choose a subset that `experiments/selection.py` compares with `dp.select`."""

import math
from collections.abc import Callable

import numpy as np

import divprism as dp
from divprism.core.entropy import matrix_entropy

__all__ = [
    "OTHERS",
    "WAYS",
    "choices",
    "kernel_matrix",
    "log_score",
    "mean_over",
    "random_rows",
]

NUM_STARTS = 5

Way = Callable[[np.ndarray, int], list[np.ndarray]]


def kernel_matrix(x: np.ndarray, bandwidth: float) -> np.ndarray:
    """The Gaussian kernel of all rows."""
    norms = (x * x).sum(axis=1)
    squares = np.maximum(norms[:, None] + norms[None, :] - 2 * (x @ x.T), 0.0)
    return np.exp(-squares / (2 * bandwidth**2))


def log_score(kernel: np.ndarray, order: float, rows: np.ndarray) -> float:
    """The logarithm of the Vendi score of some rows; at order 2 it is RKE."""
    return matrix_entropy(kernel[np.ix_(rows, rows)], np.ones(len(rows)), order)


def k_center(kernel: np.ndarray, k: int) -> list[np.ndarray]:
    """The row farthest from all chosen ones (Gonzalez, 1985), from each of five random starts."""
    starts = np.random.default_rng(len(kernel)).permutation(len(kernel))[:NUM_STARTS]
    return [_farthest_first(kernel, k, int(start)) for start in starts]


def max_min(kernel: np.ndarray, k: int) -> list[np.ndarray]:
    """Max-min dispersion: the same from one of the two rows that are farthest apart."""
    return [_farthest_first(kernel, k, int(kernel.min(axis=1).argmin()))]


def max_sum(kernel: np.ndarray, k: int) -> list[np.ndarray]:
    """Max-sum dispersion: the row with the largest sum of distances to the chosen ones."""
    distances = np.sqrt(-np.log(np.maximum(kernel, 1e-300)))
    chosen = [int(kernel.min(axis=1).argmin())]
    total = distances[chosen[0]].copy()
    while len(chosen) < k:
        total[chosen] = -np.inf
        chosen.append(int(total.argmax()))
        total += distances[chosen[-1]]
    return [np.array(chosen)]


def _farthest_first(kernel: np.ndarray, k: int, start: int) -> np.ndarray:
    chosen = [start]
    nearest = kernel[start].copy()
    while len(chosen) < k:
        nearest[chosen] = np.inf
        chosen.append(int(nearest.argmin()))
        nearest = np.maximum(nearest, kernel[chosen[-1]])
    return np.array(chosen)


OTHERS: dict[str, Way] = {"k-center": k_center, "max-min": max_min, "max-sum": max_sum}
WAYS = ("vendi", "rke", *OTHERS)


def random_rows(size: int, k: int, num_draws: int, seed: int) -> list[np.ndarray]:
    """Random subsets."""
    rng = np.random.default_rng(seed)
    return [rng.permutation(size)[:k] for _ in range(num_draws)]


def choices(
    x: np.ndarray, kernel: np.ndarray, bandwidth: float, k: int
) -> dict[str, list[np.ndarray]]:
    """The subsets by each way: several where the way has a random start."""
    found: dict[str, list[np.ndarray]] = {}
    for by in ("vendi", "rke"):
        chosen = dp.select(x, k=k, by=by, kernel_x=dp.Gaussian(bandwidth))
        found[by] = [np.array(chosen.indices)]
    for name, way in OTHERS.items():
        found[name] = way(kernel, k)
    return found


def mean_over(subsets: list[np.ndarray], measure: Callable[[np.ndarray], float]) -> float:
    """The mean of a measure over subsets."""
    return math.fsum(measure(rows) for rows in subsets) / len(subsets)
