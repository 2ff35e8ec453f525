"""What a `Metric` has seen, as one immutable value, and the laws that such a value obeys.

States come from files and from other processes. One that breaks a law gives scores that mean
nothing, and nobody would notice: it is refused as a whole.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from divprism.core.arrays import Array
from divprism.core.kernels import Kernel
from divprism.core.moments import FeatureMoments

__all__ = ["MOST_ITEMS", "StreamState", "check_state", "operators_of"]

MOST_ITEMS = 2**53
"""What a stream counts to: the mass is a float, which is exact below."""

# How far moments may be from those of unit features, relative to the number of items. Exact
# features are computed in double precision; files of earlier versions may hold random ones that
# were computed in single precision.
_EXACT_ERROR = 1e-9
_RANDOM_ERROR = 1e-3
# Rounding of the data that streams know: double, single, half precision and bfloat16.
_RESOLUTIONS = (2.0**-52, 2.0**-46, 2.0**-20, 2.0**-14)


@dataclass(frozen=True, eq=False)
class StreamState:
    """Counts and moments of a stream; a new chunk makes a new state.

    Attributes
    ----------
    n : int
        Number of items.
    noise : float
        Rounding of the least precise chunk, relative to the largest eigenvalue.
    widths : dict
        Number of columns of each side; empty before the first chunk.
    moments : dict
        Moments of the features of each side, and of pairs.
    """

    n: int = 0
    noise: float = 0.0
    widths: Mapping[str, int] = field(default_factory=dict)
    moments: Mapping[str, FeatureMoments] = field(default_factory=dict)

    def updated(self, features: Mapping[str, Array], noise: float) -> "StreamState":
        """Return this state and a chunk: rows of features of each operator."""
        moments = {}
        for name, block in features.items():
            moments[name] = self.moments[name].updated(block)
        count = int(next(iter(features.values())).shape[0])
        return replace(self, n=self.n + count, noise=max(self.noise, noise), moments=moments)

    def merged(self, other: "StreamState") -> "StreamState":
        """Return this state and that of other items with the same widths."""
        moments = {}
        for name, own in self.moments.items():
            moments[name] = own.merged(other.moments[name])
        noise = max(self.noise, other.noise)
        return replace(self, n=self.n + other.n, noise=noise, moments=moments)


def operators_of(sides: Mapping[str, object]) -> list[str]:
    """The operators of the sides that a stream has, pairs included."""
    if "t" in sides:
        return ["x", "t", "joint"]
    return ["x"]


def check_state(state: StreamState, kernels: Mapping[str, Kernel]) -> None:
    """Raise ValueError unless a state can have come from a stream through these kernels."""
    # bool is an int, so the type is compared exactly.
    if type(state.n) is not int or not 0 <= state.n < MOST_ITEMS:
        raise ValueError("its number of items is not a count")
    _check_noise(state.noise, kernels)
    if state.n == 0:
        if state.widths or state.moments or state.noise:
            raise ValueError("it has no items, but moments of items")
        return
    if set(state.widths) != set(kernels) or list(state.moments) != operators_of(kernels):
        raise ValueError("its moments are not those of its kernels")
    for name, moments in state.moments.items():
        _check_moments(moments, state.n, name)
    if not state.moments["x"].is_random:
        _check_margins(state)


def _check_noise(noise: object, kernels: Mapping[str, Kernel]) -> None:
    """Require the noise of some precision of the data."""
    is_number = isinstance(noise, int | float) and not isinstance(noise, bool)
    if not is_number or not math.isfinite(noise) or noise < 0:  # type: ignore[arg-type, operator]
        raise ValueError("its noise is not a finite number of at least 0")
    possible = [0.0]
    for name, kernel in kernels.items():
        if kernel.has_fourier_features:
            continue
        # In double precision, from which that of any other precision follows.
        one = kernel.points(np.ones((1, 1)), np.float64, name).noise / _RESOLUTIONS[0]
        possible += [2 * one * resolution for resolution in _RESOLUTIONS]
    if not np.isclose(possible, float(noise), rtol=1e-12, atol=0).any():  # type: ignore[arg-type]
        raise ValueError("its noise is not that of any precision of the data")


def _check_moments(moments: FeatureMoments, n: int, name: str) -> None:
    """Require the second moments of n features of unit length."""
    total, size = moments.total, moments.size
    is_like = total.shape == (size, size) and total.dtype == np.float64
    if not is_like or not np.isfinite(total).all():
        raise ValueError(f"the moments of {name} do not fit")
    if moments.mass != n:
        raise ValueError(f"the moments of {name} have a mass of {moments.mass:g}, not {n}")
    scale = float(n)
    tolerance = _EXACT_ERROR
    if moments.is_random:
        tolerance = _RANDOM_ERROR
        # The squares of the cosine and the sine of each frequency add up to one over their number.
        squares = np.diagonal(total).reshape(2, -1).sum(axis=0)
        is_unit = np.allclose(squares, 2 * n / size, rtol=tolerance, atol=0)
    else:
        is_unit = abs(np.trace(total) - n) <= tolerance * scale
    # No entry of a positive semidefinite matrix is larger than its trace.
    is_symmetric = np.allclose(total, total.T, rtol=0, atol=tolerance * scale)
    if not is_unit or not is_symmetric or not _is_positive(total, tolerance * scale):
        raise ValueError(f"the moments of {name} are not those of {n} items")


def _is_positive(total: np.ndarray, tolerance: float) -> bool:
    """Whether no eigenvalue of a symmetric matrix is below minus the tolerance."""
    shifted = total.copy()
    np.fill_diagonal(shifted, np.diagonal(total) + tolerance)
    # A tenth of the time of eigenvalues.
    try:
        np.linalg.cholesky(shifted)
    except np.linalg.LinAlgError:
        return False
    return True


def _check_margins(state: StreamState) -> None:
    """Require that the exact features of pairs are products of those of outputs and prompts.

    Features have unit length, so summing the moments of pairs over the features of one side leaves
    those of the other.
    """
    if "joint" not in state.moments:
        return
    x, t = state.moments["x"].total, state.moments["t"].total
    pairs = state.moments["joint"].total.reshape(len(x), len(t), len(x), len(t))
    tolerance = _EXACT_ERROR * state.n
    fits_x = np.allclose(np.einsum("itjt->ij", pairs), x, rtol=0, atol=tolerance)
    fits_t = np.allclose(np.einsum("xixj->ij", pairs), t, rtol=0, atol=tolerance)
    if not fits_x or not fits_t:
        raise ValueError("the moments of pairs are not those of its outputs and prompts")
