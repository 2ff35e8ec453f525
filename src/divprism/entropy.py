"""Renyi entropies of a spectrum, of any order, truncated or not."""

import math

import numpy as np

from divprism.spectrum import Spectrum

__all__ = ["renyi_entropy", "truncated"]

_NEAR_ONE = 0.05


def renyi_entropy(spectrum: Spectrum, order: float, truncation: int | None = None) -> float:
    """Entropy in nats of the eigenvalues: H = log(sum lambda^order) / (1 - order) (Truncated Vendi, eq. 6).

    Order 1 is its limit -sum lambda log lambda (Conditional Vendi, eq. 2), order infinity the limit -log(largest). With
    `truncation` t the spectrum is first cut to its top t eigenvalues (Conditional Vendi, eq. 13). Between 0 and the log of
    the rank.

    >>> half = Spectrum(np.array([0.5]), np.array([2.0]), "by hand")
    >>> [round(math.exp(renyi_entropy(half, order)), 12) for order in (0.1, 1, 2, math.inf)]
    [2.0, 2.0, 2.0, 2.0]
    """
    if truncation is not None:
        spectrum = truncated(spectrum, truncation)
    values, weights = spectrum.values, spectrum.weights
    if order == 1:
        return float(-(weights * values) @ np.log(values)) + 0.0
    if math.isinf(order):
        return -math.log(values[0]) + 0.0
    if abs(order - 1) < _NEAR_ONE:
        # sum lambda^order - 1 = sum lambda (lambda^(order - 1) - 1): no cancellation for the division by 1 - order to blow up
        excess = float((weights * values) @ np.expm1((order - 1) * np.log(values)))
        return math.log1p(excess) / (1 - order) + 0.0
    # divided by the largest eigenvalue, so that order 1e6 does not underflow
    largest = values[0]
    tail = math.log(float(weights @ (values / largest) ** order))
    return order / (1 - order) * math.log(largest) + tail / (1 - order) + 0.0


def truncated(spectrum: Spectrum, truncation: int) -> Spectrum:
    """The top t eigenvalues, each raised by (1 - S_t) / t with S_t their sum, so that they sum to one.

    Truncated Vendi, Def. 2. Unchanged if there are no more than t. A node of the measure that straddles the cut is split.

    >>> three = Spectrum(np.array([0.5, 0.3, 0.2]), np.ones(3), "by hand")
    >>> truncated(three, 2).values
    array([0.6, 0.4])
    """
    t = float(truncation)
    reach = np.cumsum(spectrum.weights)
    if reach[-1] <= t:
        return spectrum
    last = int(np.searchsorted(reach, t))
    weights = spectrum.weights[: last + 1].copy()
    weights[-1] -= reach[last] - t
    values = spectrum.values[: last + 1]
    shift = max(0.0, 1.0 - float(weights @ values)) / t
    return Spectrum(values + shift, weights, spectrum.method)
