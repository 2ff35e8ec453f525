"""How a stream turns its items into features: settings and frequencies, never what was seen.

A score of a stream is a function of sums of products of these features. `Metric` keeps the sums in
arrays, adapters for other libraries where those libraries want them.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from divprism.analysis._stream_state import StreamState, operators_of
from divprism.core.arrays import Array, array_namespace
from divprism.core.features import FourierMap, draw_frequencies
from divprism.core.kernels import Kernel, Points
from divprism.core.moments import FeatureMoments
from divprism.core.validation import check_pairing, check_seed
from divprism.errors import ArgumentError, DataError
from divprism.estimators import Dual, Estimator, Fourier

__all__ = ["StreamFeatures"]

# Each of up to three moments of this size takes 134 MB, and its spectrum O(size^3).
_MOST_FEATURES = 4096  # a second moment of more features is refused


class StreamFeatures:
    """Features of outputs, prompts and pairs: random for Gaussian kernels, exact for others.

    Parameters
    ----------
    kernel_x, kernel_t, num_features, rng
        As in `Metric`.

    Attributes
    ----------
    kernels : dict of Kernel
        "x" and, with prompts, "t".
    is_random : bool
        Whether the features are random Fourier features.
    num_features : int
        Number of random frequencies; 0 for exact features.
    estimator : Estimator
        What scores by these features are computed with.
    seed : int
        Seed of the frequencies.
    """

    def __init__(
        self,
        kernel_x: Kernel,
        kernel_t: Kernel | None,
        num_features: int,
        rng: int | np.random.Generator,
    ) -> None:
        self.kernels = {"x": kernel_x}
        if kernel_t is not None:
            self.kernels["t"] = kernel_t
        for name, kernel in self.kernels.items():
            _require_features(kernel, f"kernel_{name}")
        self.is_random = kernel_x.has_fourier_features
        for kernel in self.kernels.values():
            if kernel.has_fourier_features != self.is_random:
                raise ArgumentError(
                    "`kernel_x` and `kernel_t` must both be Gaussian or neither: random features "
                    "of one do not multiply exact features of the other."
                )
        self.num_features = 0
        self.estimator: Estimator = Dual()
        if self.is_random:
            fourier = Fourier(num_features)
            self.num_features = fourier.num_features
            self.estimator = fourier
        self.seed = check_seed(rng)
        # Frequencies for some widths: drawn from the seed, so they can be forgotten at any time.
        self._maps: tuple[Mapping[str, int], dict[str, FourierMap]] = ({}, {})

    def clean(self, x: object, t: object, widths: Mapping[str, int]) -> dict[str, Array]:
        """A chunk as arrays by side, validated; `widths` are those of earlier chunks, if any."""
        if (t is None) != ("t" not in self.kernels):
            raise ArgumentError("`t` goes with `kernel_t`: give both or neither.")
        rows = {"x": self.kernels["x"].clean(x, "x")}
        if t is not None:
            rows["t"] = self.kernels["t"].clean(t, "t")
        for name, side in rows.items():
            check_pairing(rows["x"].shape[0], side.shape[0], name)
            width = widths.get(name, side.shape[1])
            if side.shape[1] != width:
                raise DataError(
                    f"`{name}` has {side.shape[1]} columns; earlier chunks had {width}."
                )
        return rows

    def begun(self, widths: Mapping[str, int]) -> StreamState:
        """A state without items, once the widths are known."""
        moments = {}
        for name, size in self.sizes(widths).items():
            moments[name] = FeatureMoments(size, self.is_random)
        return StreamState(widths=widths, moments=moments)

    def sizes(self, widths: Mapping[str, int]) -> dict[str, int]:
        """Number of features of each operator; too many for a second moment are refused."""
        if self.is_random:
            return dict.fromkeys(operators_of(widths), 2 * self.num_features)
        sizes = {}
        for name, width in widths.items():
            size = self.kernels[name].feature_dimension(width)
            if size is None:
                raise ArgumentError(
                    f"`kernel_{name}` has too many features, or too large ones, for rows of "
                    f"{width:,} numbers; use a Gaussian kernel, or evaluate."
                )
            sizes[name] = size
        if "t" in sizes:
            # The exact features of pairs are products.
            sizes["joint"] = sizes["x"] * sizes["t"]
        largest = max(sizes.values())
        if largest > _MOST_FEATURES:
            raise ArgumentError(
                f"these kernels have {largest:,} features together, above {_MOST_FEATURES:,}; "
                "use Gaussian kernels, or evaluate."
            )
        return sizes

    def features(self, rows: Mapping[str, Array]) -> tuple[dict[str, Array], float]:
        """Features of the outputs, the prompts and the pairs, and the noise of their moments."""
        features, noise = self._random_features(rows), 0.0
        if not self.is_random:
            features, noise = self._exact_features(rows)
        _require_finite(features)
        return features, noise

    def _exact_features(self, rows: Mapping[str, Array]) -> tuple[dict[str, Array], float]:
        features, noise = {}, 0.0
        for name, side in rows.items():
            kernel = self.kernels[name]
            points = kernel.points(side, array_namespace(side).float64, name)
            # A second moment squares the features, which doubles their relative rounding.
            noise = max(noise, 2 * points.noise)
            features[name] = kernel.features(points)
        if "t" in features:
            # The features of a product of kernels are the products of their features.
            product = features["x"][:, :, None] * features["t"][:, None, :]
            features["joint"] = array_namespace(product).reshape(product, (product.shape[0], -1))
        return features, noise

    def _random_features(self, rows: Mapping[str, Array]) -> dict[str, Array]:
        """Random Fourier features. The phases of a pair add up, because its kernels multiply."""
        if not self.is_random:
            return {}
        maps = self._maps_for({name: int(side.shape[1]) for name, side in rows.items()})
        phases = {}
        for name, side in rows.items():
            phases[name] = maps[name].phases(_in_bandwidths(side, self.kernels[name]))
        if "t" in phases:
            phases["joint"] = phases["x"] + phases["t"]
        return {name: FourierMap.features(block) for name, block in phases.items()}

    def _maps_for(self, widths: Mapping[str, int]) -> dict[str, FourierMap]:
        """Frequencies, from the seed and the widths alone, so that all workers have the same."""
        if self._maps[0] == widths:
            return self._maps[1]
        rng = np.random.default_rng(self.seed)
        maps = {}
        for name, width in widths.items():
            maps[name] = FourierMap(draw_frequencies(width, self.num_features, rng))
        self._maps = (widths, maps)
        return maps

    def __getstate__(self) -> dict[str, Any]:
        # A pickle for another process needs no frequencies: it draws the same ones.
        return self.__dict__ | {"_maps": ({}, {})}


def _require_features(kernel: object, name: str) -> None:
    """Refuse kernels that have neither random nor exact features."""
    if not isinstance(kernel, Kernel):
        raise ArgumentError(f"`{name}` must be an object such as dp.Gaussian(1.0); got {kernel!r}.")
    if not kernel.has_fourier_features and kernel.feature_dimension(1) is None:
        raise ArgumentError(
            f"`{name}` must be a kernel with features for a stream; {type(kernel).__name__} has "
            "none. Use evaluate."
        )


def _require_finite(features: Mapping[str, Array]) -> None:
    """Refuse features that overflow."""
    for block in features.values():
        xp = array_namespace(block)
        if not bool(xp.all(xp.isfinite(block))):
            raise DataError(
                "the features of a chunk overflow: its values are too large for these bandwidths."
            )


def _in_bandwidths(rows: Array, kernel: Kernel) -> Points:
    """Rows divided by the bandwidth.

    They are not centred: workers could not agree on a centre, and the spectrum does not depend on
    it.
    """
    assert kernel.bandwidth is not None
    xp = array_namespace(rows)
    # In double precision also for single precision data: sums in single precision would depend on
    # the cut into chunks, and leave spurious eigenvalues that count below order 1.
    return Points(xp.astype(rows, xp.float64) / kernel.bandwidth)
