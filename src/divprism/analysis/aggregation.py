"""Conditional scores as aggregates over groups of prompts, and how far from them they can be.

Where prompts fall into separate groups, a conditional score is an aggregate of the scores inside
the groups (Conditional Vendi, App. B, Thm 5-7). The theorems bound the difference by how wide and
how close the groups are, and hold for every distribution of pairs, a sample included.

The functions implement what the proofs show, which differs from the statements in four places:

- The proofs bound a squared norm by Gamma, so the norm itself by sqrt(Gamma); the statements of
  Thm 5 and 6 use Gamma.
- Their g divides by the norm of the shares. That is right for the entropy of the prompts. The norm
  of the joint spectrum is smaller, and the error of its entropy larger.
- The step to (i - 1) sum k^2 in eq. 17 takes the coefficients of an orthonormal basis for at most
  one, which fails for centres that are close. `separation` computes the projection itself.
- Truncating the union of the groups' spectra is not truncating each of them, so that eq. 19 does
  not follow; `truncated_aggregate` is what its proof compares with.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from divprism.core.entropy import renyi_entropy
from divprism.core.spectrum import Spectrum
from divprism.core.validation import check_order
from divprism.errors import ArgumentError

__all__ = [
    "aggregate",
    "aggregation_error",
    "separation",
    "stated_separation",
    "truncated_aggregate",
    "truncated_aggregation_error",
]


def aggregate(shares: Any, entropies: Any, order: float = 1.0) -> float:
    """The aggregate of the entropies inside groups: f^-1(E f(H)) with f(z) = exp((1 - order) z).

    The expectation weighs groups by share^order (Conditional Vendi, Thm 6); at order 1 it is the
    mean.

    >>> aggregate([0.5, 0.5], [0.0, math.log(4)]) / math.log(2)
    1.0
    """
    shares, inside = np.asarray(shares, np.float64), np.asarray(entropies, np.float64)
    logs = np.log(shares / shares.sum())
    if order == 1:
        return float(np.exp(logs) @ inside)
    if math.isinf(order):
        # The limit of the formula: of a sum of large powers only the largest term is left.
        return float(logs.max() - (logs - inside).max())
    # Logarithms of the weights: at high orders share^order underflows.
    weights = order * (logs - logs.max())
    weights -= np.logaddexp.reduce(weights)
    powers = (1 - order) * inside
    if np.abs(powers).max() < 0.1:
        # Near order 1 the logarithm of a number near 1 would cancel.
        return math.log1p(float(np.exp(weights) @ np.expm1(powers))) / (1 - order)
    return float(np.logaddexp.reduce(weights + powers)) / (1 - order)


def separation(shares: Any, centres: Any, variances: Any, bandwidth: float) -> float:
    """Gamma, which is small where groups of prompts are narrow and far apart.

    It bounds the squared distance of the operator of pairs from one whose groups are points that
    are orthogonal in feature space (Conditional Vendi, eq. 18 with the step before eq. 17 computed
    exactly, and with the factor 2 x 2 in both terms: the second has 8 there, which is not needed).

    Parameters
    ----------
    shares : array of shape (m,)
        Shares of the groups.
    centres : array of shape (m, d)
        Mean prompt of each group.
    variances : array of shape (m,)
        Mean squared distance of the prompts of a group from its centre.
    bandwidth : float
        Of the Gaussian kernel on prompts.

    >>> round(separation([0.5, 0.5], [[0.0], [3.0]], [0.01, 0.01], 1.0), 5)
    0.04025
    """
    shares, centres, variances = _checked(shares, centres, variances)
    kernel = np.exp(-_squared_distances(centres) / (2 * bandwidth**2))
    width = float(shares @ variances) / bandwidth**2
    overlap = 0.0
    for index in range(1, shares.size):
        # The squared length of the projection of a centre on the span of those before it.
        known = kernel[index, :index]
        coefficients = np.linalg.lstsq(kernel[:index, :index], known, rcond=None)[0]
        overlap += float(shares[index] * min(1.0, known @ coefficients))
    return 4 * width + 4 * overlap


def stated_separation(shares: Any, centres: Any, variances: Any, bandwidth: float) -> float:
    """Gamma as Conditional Vendi, eq. 16 states it; larger than `separation` for distant groups.

    >>> round(stated_separation([0.5, 0.5], [[0.0], [3.0]], [0.01, 0.01], 1.0), 5)
    0.32197
    """
    shares, centres, variances = _checked(shares, centres, variances)
    squares = np.exp(-_squared_distances(centres) / bandwidth**2)
    total = 0.0
    for index, share in enumerate(shares):
        near = index * float(squares[index, :index].sum())
        total += share * (variances[index] / bandwidth**2 + near)
    return 32 * float(total)


def _squared_distances(centres: np.ndarray) -> np.ndarray:
    # Imported here: scores do not need it, and it takes a moment to load.
    from scipy.spatial.distance import cdist

    return np.asarray(cdist(centres, centres, "sqeuclidean"))


def _checked(shares: Any, centres: Any, variances: Any) -> tuple[np.ndarray, ...]:
    shares = np.asarray(shares, np.float64)
    centres, variances = np.asarray(centres, np.float64), np.asarray(variances, np.float64)
    if centres.shape[:1] != shares.shape or variances.shape != shares.shape or centres.ndim != 2:
        raise ArgumentError(
            "there must be a share, a centre and a variance for each group; "
            f"got shapes {shares.shape}, {centres.shape} and {variances.shape}."
        )
    return shares / shares.sum(), centres, variances


def aggregation_error(gamma: float, shares: Any, entropies: Any, order: float = 2.0) -> float:
    """Return the most by which a conditional entropy differs from the `aggregate`, in nats.

    Conditional Vendi, Thm 6, and Thm 5 at order 2, as proven there. Infinite where groups are too
    wide or too close for the theorem to say anything.

    Parameters
    ----------
    gamma : float
        The `separation` of the groups.
    shares, entropies : array of shape (m,)
        Shares of the groups, and entropies of `order` inside them.
    order : float
        At least 2, and finite.
    """
    order = check_order(order)
    if order < 2 or math.isinf(order):
        raise ArgumentError(f"`order` must be finite and at least 2 here; got {order:g}.")
    shares = np.asarray(shares, np.float64)
    shares = shares / shares.sum()
    of_prompts = float((shares**order).sum()) ** (1 / order)
    # The joint spectrum is that of each group times its share.
    powers = shares**order * np.exp((1 - order) * np.asarray(entropies, np.float64))
    of_pairs = float(powers.sum()) ** (1 / order)
    reach = math.sqrt(gamma)
    return _g(reach, of_pairs, order) + _g(reach, of_prompts, order)


def _g(reach: float, norm: float, order: float) -> float:
    """The most by which an entropy changes where the norm of its spectrum changes by `reach`."""
    if reach >= norm:
        return math.inf
    return -order / (order - 1) * math.log1p(-reach / norm)


def truncated_aggregate(shares: Any, spectra: Sequence[Any], truncation: int) -> float:
    """The truncated conditional entropy of groups that are perfectly separate, at order 1.

    That is H of the union of all spectra, each times its share, less H of the shares, both
    truncated. It is the mean of the entropies inside the groups only where nothing is cut off.

    >>> round(truncated_aggregate([0.5, 0.5], [[1.0], [0.5, 0.5]], 8) / math.log(2), 9)
    0.5
    """
    shares = np.asarray(shares, np.float64)
    shares = shares / shares.sum()
    union = np.concatenate(
        [share * np.asarray(values) for share, values in zip(shares, spectra, strict=True)]
    )
    return _truncated_entropy(union, truncation) - _truncated_entropy(shares, truncation)


def _truncated_entropy(eigenvalues: np.ndarray, truncation: int) -> float:
    spectrum = Spectrum.from_eigenvalues(eigenvalues, noise=0.0, method="exact")
    return renyi_entropy(spectrum, 1.0, truncation)


def truncated_aggregation_error(gamma: float, truncation: int) -> float:
    """Return the most by which a truncated conditional entropy differs from `truncated_aggregate`.

    sqrt(t Gamma) log(t / Gamma), in nats (Conditional Vendi, Thm 7). Infinite where sqrt(Gamma)
    exceeds 1 / e, up to which x log(1 / x) increases.
    """
    if math.sqrt(gamma) > 1 / math.e:
        return math.inf
    if gamma == 0:
        return 0.0
    return math.sqrt(truncation * gamma) * math.log(truncation / gamma)
