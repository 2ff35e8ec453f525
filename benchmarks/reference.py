"""Synthetic pairs, and a direct SciPy implementation of the definitions to measure against.

The implementation builds squared distances by matrix products, exponentiates them, and calls
scipy.linalg.eigvalsh once per matrix.
"""

import math

import numpy as np
import scipy.linalg

BANDWIDTH_X = 25.0
BANDWIDTH_T = 0.5

NUM_OUTPUT_CLUSTERS = 500
NUM_PROMPT_CLUSTERS = 100
WIDTH_X = 768
WIDTH_T = 512


def clustered_pairs(n: int, num_prompts: int | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Outputs and unit-norm prompts in clusters, float32, as wide as image and text embeddings.

    Prompts repeat if `num_prompts`, the number of distinct prompts, is given.
    """
    # The order of the random calls fixes the data: results of two checkouts are comparable only
    # as long as it stays.
    rng = np.random.default_rng(1)
    cluster = rng.integers(0, NUM_OUTPUT_CLUSTERS, n)
    centres_x = rng.standard_normal((NUM_OUTPUT_CLUSTERS, WIDTH_X))
    noise_x = rng.standard_normal((n, WIDTH_X))
    centres_t = rng.standard_normal((NUM_PROMPT_CLUSTERS, WIDTH_T))
    noise_t = rng.standard_normal((n, WIDTH_T))
    x = centres_x[cluster] * 45 / WIDTH_X**0.5 + noise_x * 25 / WIDTH_X**0.5
    t = centres_t[cluster % NUM_PROMPT_CLUSTERS] / WIDTH_T**0.5 + noise_t * 0.5 / WIDTH_T**0.5
    if num_prompts is not None:
        t = t[np.arange(n) % num_prompts]
    t /= np.linalg.norm(t, axis=1, keepdims=True)
    return x.astype(np.float32), t.astype(np.float32)


def plain_kernel(x: np.ndarray, bandwidth: float) -> np.ndarray:
    """The Gaussian kernel matrix exp(-d^2 / (2 bandwidth^2)) in double precision."""
    x = x.astype(np.float64)
    squares = (x * x).sum(axis=1)
    distances = np.maximum(squares[:, None] + squares - 2 * x @ x.T, 0)
    return np.exp(-distances / (2 * bandwidth**2))


def plain_cosine(x: np.ndarray) -> np.ndarray:
    """The cosine kernel matrix: inner products of normalised rows."""
    x = x.astype(np.float64)
    x = x / np.linalg.norm(x, axis=1, keepdims=True)
    return x @ x.T


def spectrum_entropy(values: np.ndarray, order: float = 1.0) -> float:
    """Renyi entropy of eigenvalues that sum to one, in nats."""
    # Rounding makes some of the zero eigenvalues slightly negative.
    values = values[values > 0]
    if order == 1:
        return float(-(values @ np.log(values)))
    return math.log((values**order).sum()) / (1 - order)


def plain_entropy(kernel: np.ndarray, order: float = 1.0) -> float:
    """Renyi entropy of the eigenvalues of kernel / n, in nats."""
    return spectrum_entropy(scipy.linalg.eigvalsh(kernel / len(kernel)), order)


def plain_vendi(kernel: np.ndarray) -> float:
    """The Vendi score of a kernel matrix."""
    return math.exp(plain_entropy(kernel))


def plain_conditional(x: np.ndarray, t: np.ndarray, order: float = 1.0) -> float:
    """Conditional-Vendi from the eigenvalues of all three kernel matrices."""
    kernel_x = plain_kernel(x, BANDWIDTH_X)
    kernel_t = plain_kernel(t, BANDWIDTH_T)
    # Conditional-Vendi itself does not need H(X). It is computed because the score is compared
    # with all scores of `evaluate`, and Vendi and Information-Vendi do need it.
    plain_entropy(kernel_x, order)
    entropy_t = plain_entropy(kernel_t, order)
    entropy_joint = plain_entropy(kernel_x * kernel_t, order)
    return math.exp(entropy_joint - entropy_t)
