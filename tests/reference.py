"""The definitions as formulas, independent of the package: slow and simple."""

import math

import numpy as np
import scipy.linalg
from scipy.spatial.distance import cdist


def gaussian(x: np.ndarray, bandwidth: float) -> np.ndarray:
    return np.exp(-cdist(x, x, "sqeuclidean") / (2 * bandwidth**2))


def cosine(x: np.ndarray) -> np.ndarray:
    unit = x / np.linalg.norm(x, axis=1, keepdims=True)
    return unit @ unit.T


def polynomial(x: np.ndarray, degree: int, scale: float, offset: float) -> np.ndarray:
    raw = (scale * x @ x.T + offset) ** degree
    root = np.sqrt(np.diag(raw))
    return raw / np.outer(root, root)


def entropy(
    kernel: np.ndarray,
    order: float,
    truncation: int | None = None,
    weights: np.ndarray | None = None,
) -> float:
    n = len(kernel)
    root = np.sqrt(np.full(n, 1 / n) if weights is None else weights)
    values = np.sort(scipy.linalg.eigvalsh(kernel * np.outer(root, root)))[::-1]
    values = np.where(values < 1e-13, 0, values)
    if truncation is not None and truncation < n:
        values = values[:truncation]
        values = values + (1 - values.sum()) / truncation
    values = values[values > 0]
    values = values / values.sum()
    if order == 1:
        return float(-(values * np.log(values)).sum())
    if math.isinf(order):
        return -math.log(values.max())
    return math.log((values**order).sum()) / (1 - order)


def scores(
    kernel_x: np.ndarray, kernel_t: np.ndarray, order: float, truncation: int | None = None
) -> dict[str, float]:
    h_x, h_t, h_joint = (
        entropy(kernel, order, truncation) for kernel in (kernel_x, kernel_t, kernel_x * kernel_t)
    )
    return {
        "vendi": math.exp(h_x),
        "conditional_vendi": math.exp(h_joint - h_t),
        "information_vendi": math.exp(h_x + h_t - h_joint),
    }


def fkea(x: np.ndarray, frequencies: np.ndarray, order: float) -> float:
    """FKEA-Vendi: the exponential of the entropy of the covariance of cosines and sines."""
    phases = x @ frequencies
    features = np.concatenate([np.cos(phases), np.sin(phases)], axis=1)
    covariance = features.T @ features / features.shape[0] / frequencies.shape[1]
    values = scipy.linalg.eigvalsh(covariance)
    values = values[values > 1e-14]
    if order == 1:
        return math.exp(-(values * np.log(values)).sum())
    if math.isinf(order):
        return 1 / values.max()
    return float((values**order).sum() ** (1 / (1 - order)))
