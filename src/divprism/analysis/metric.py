"""Metric: scores of a stream, by update, merge and compute."""

import json
import math
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from divprism.analysis.evaluation import Evaluation, runtime_since
from divprism.core.arrays import Array, array_namespace
from divprism.core.entropy import entropy_estimate
from divprism.core.features import FourierMap, draw_frequencies
from divprism.core.kernels import Kernel, Points
from divprism.core.moments import FeatureMoments
from divprism.core.validation import check_order, check_pairing, check_seed, check_truncation
from divprism.data.files import open_archive, write_whole
from divprism.errors import ArgumentError, DataError
from divprism.estimators import Dual, Entropy, Estimator, Fourier
from divprism.scores import registry
from divprism.scores.score import Score, combine, kinds_in
from divprism.scores.settings import Settings
from divprism.scores.spec import available

__all__ = ["Metric"]

_FORMAT = 1  # version of the files that `save` writes
# Each of up to three moments of this size takes 134 MB, and its spectrum O(size^3).
_MOST_FEATURES = 4096  # a second moment of more features is refused
_WIDEST = 1 << 20  # largest width that a file may claim
# Single precision knows a phase of 1,000 to 6e-5; further away the digits of the cosine are lost.
_LARGEST_SINGLE_PHASE = 1e3  # larger phases are computed in double precision

# Files are checked to hold moments of unit features: the trace is n up to rounding.
_TRACE_ERROR = 1e-3
_SYMMETRY_ERROR = 1e-6


class Metric:
    """All scores of outputs and prompts that arrive in chunks, in one pass.

    Memory does not depend on the number of items: a metric keeps the second moments of features.
    For Gaussian kernels these are random Fourier features, as in `Fourier` and with the same error;
    Cosine and Polynomial have exact features of their own. Bandwidths must be given, because a
    stream cannot be read twice.

    Parameters
    ----------
    kernel_x, kernel_t : Kernel
        Kernels of outputs and prompts, both Gaussian or neither. Without `kernel_t` only `vendi`
        and `rke` are computed.
    num_features : int
        Number of random frequencies.
    order, truncation, rng
        As in `vendi`. Metrics to be merged need the same seed.

    Examples
    --------
    Four directions, in two chunks:

    >>> import numpy as np, divprism as dp
    >>> metric = dp.Metric(dp.Cosine())
    >>> metric.update(np.eye(4)[:2])
    >>> metric.update(np.eye(4)[2:])
    >>> round(metric.compute().vendi, 12)
    4.0
    """

    def __init__(
        self,
        kernel_x: Kernel,
        kernel_t: Kernel | None = None,
        *,
        num_features: int = 1000,
        order: float = 1.0,
        truncation: int | None = None,
        rng: int | np.random.Generator = 0,
    ) -> None:
        self._kernels = {"x": kernel_x}
        if kernel_t is not None:
            self._kernels["t"] = kernel_t
        for name, kernel in self._kernels.items():
            _require_features(kernel, f"kernel_{name}")
        self._is_random = kernel_x.has_fourier_features
        for kernel in self._kernels.values():
            if kernel.has_fourier_features != self._is_random:
                raise ArgumentError(
                    "`kernel_x` and `kernel_t` must both be Gaussian or neither: random features "
                    "of one do not multiply exact features of the other."
                )
        self._num_features = 0
        self._estimator: Estimator = Dual()
        if self._is_random:
            fourier = Fourier(num_features)
            self._num_features = fourier.num_features
            self._estimator = fourier
        self._order = check_order(order)
        self._truncation = check_truncation(truncation)
        self._seed = check_seed(rng)
        self.reset()

    def reset(self) -> None:
        """Forget all chunks."""
        self.n = 0
        self._noise = 0.0
        self._widths: dict[str, int] = {}
        self._maps: dict[str, FourierMap] = {}
        self._moments: dict[str, FeatureMoments] = {}

    def update(self, x: object, t: object = None) -> None:
        """Add a chunk: outputs, and their prompts if `kernel_t` was given.

        A chunk that is refused changes nothing.
        """
        if (t is None) != ("t" not in self._kernels):
            raise ArgumentError("`t` goes with `kernel_t`: give both or neither.")
        rows = {"x": self._kernels["x"].clean(x, "x")}
        if t is not None:
            rows["t"] = self._kernels["t"].clean(t, "t")
        for name, side in rows.items():
            check_pairing(rows["x"].shape[0], side.shape[0], name)
            width = self._widths.get(name, side.shape[1])
            if side.shape[1] != width:
                raise DataError(
                    f"`{name}` has {side.shape[1]} columns; earlier chunks had {width}."
                )
        is_first = not self._widths
        if is_first:
            self._begin({name: side.shape[1] for name, side in rows.items()})
        try:
            features, noise = self._features(rows)
            _require_finite(features)
        except BaseException:
            # Otherwise the width of a chunk that was refused would bind all later ones.
            if is_first:
                self.reset()
            raise
        # Nothing fails from here on, so that a chunk is added whole or not at all.
        # Weights of one, not 1 / n, so that sums of chunks and workers add up.
        weights = np.ones(rows["x"].shape[0])
        for name, block in features.items():
            self._moments[name].update(block, weights)
        self._noise = max(self._noise, noise)
        self.n += weights.size

    def _begin(self, widths: dict[str, int]) -> None:
        """Draw the frequencies, or count the features, once the widths are known."""
        names = _operators_of(widths)
        if self._is_random:
            # Drawn from the seed and the widths alone, so that all workers have the same ones.
            rng = np.random.default_rng(self._seed)
            self._maps = {}
            for name, width in widths.items():
                self._maps[name] = FourierMap(draw_frequencies(width, self._num_features, rng))
            sizes = dict.fromkeys(names, 2 * self._num_features)
        else:
            sizes = self._exact_sizes(widths)
        self._widths = widths
        self._moments = {name: FeatureMoments(sizes[name], self._is_random) for name in names}

    def _exact_sizes(self, widths: dict[str, int]) -> dict[str, int]:
        """Number of exact features of each operator; those of pairs are products."""
        sizes = {}
        for name, width in widths.items():
            sizes[name] = self._kernels[name].feature_dimension(width) or 0
        if "t" in sizes:
            sizes["joint"] = sizes["x"] * sizes["t"]
        largest = max(sizes.values())
        if largest > _MOST_FEATURES:
            raise ArgumentError(
                f"these kernels have {largest:,} features together, above {_MOST_FEATURES:,}; "
                "use Gaussian kernels, or evaluate."
            )
        return sizes

    def _features(self, rows: dict[str, Array]) -> tuple[dict[str, Array], float]:
        """Features of the outputs, the prompts and the pairs, and the noise of their moments."""
        if self._is_random:
            return self._random_features(rows), 0.0
        features, noise = {}, 0.0
        for name, side in rows.items():
            kernel = self._kernels[name]
            points = kernel.points(side, array_namespace(side).float64, name)
            # A second moment squares the features, which doubles their relative rounding.
            noise = max(noise, 2 * points.noise)
            features[name] = kernel.features(points)
        if "t" in features:
            # The features of a product of kernels are the products of their features.
            product = features["x"][:, :, None] * features["t"][:, None, :]
            features["joint"] = array_namespace(product).reshape(product, (product.shape[0], -1))
        return features, noise

    def _random_features(self, rows: dict[str, Array]) -> dict[str, Array]:
        """Random Fourier features. The phases of a pair add up, because its kernels multiply."""
        phases = {}
        for name, side in rows.items():
            phases[name] = self._maps[name].phases(_in_bandwidths(side, self._kernels[name]))
        if "t" in phases:
            phases["joint"] = phases["x"] + phases["t"]
        return {name: FourierMap.features(block) for name, block in phases.items()}

    def merge(self, other: "Metric") -> None:
        """Add what another metric with the same settings has seen."""
        if not isinstance(other, Metric) or other._settings() != self._settings():
            raise ArgumentError(
                "only metrics with the same kernels, order, features and seed can be merged."
            )
        if other.n == 0:
            return
        if self.n and self._widths != other._widths:
            raise DataError(
                f"metrics of different widths cannot be merged: {self._widths} and {other._widths}."
            )
        if not self._widths:
            self._begin(dict(other._widths))
        for name, moments in self._moments.items():
            moments.merge(other._moments[name])
        self._noise = max(self._noise, other._noise)
        self.n += other.n

    def compute(self) -> Evaluation:
        """The scores of all chunks so far."""
        if self.n == 0:
            raise DataError("nothing has been seen yet: call update first.")
        start = time.perf_counter()
        spectra = {name: moments.spectrum(self._noise) for name, moments in self._moments.items()}
        settings = Settings(
            kernel_x=self._kernels["x"],
            kernel_t=self._kernels.get("t"),
            order=self._order,
            truncation=self._truncation,
            estimator=self._estimator,
            rng=self._seed,
        )
        scores = {}
        for spec in available(spectra):
            order = spec.order_under(self._order)
            entropies = {}
            for name in spec.terms:
                estimate = entropy_estimate(spectra[name], order, self._truncation)
                entropies[name] = Entropy(estimate, spectra[name].method)
            entropy = combine(spec, entropies)
            scores[spec.name] = Score(
                spec.name,
                entropy,
                order=order,
                n=self.n,
                settings=settings,
                prompt_kinds=kinds_in(spec, entropies),
            )
        data = {"n": self.n, "outputs": None, "prompts": None, "hash": None, "skipped": 0}
        return Evaluation(scores=scores, settings=settings, data=data, runtime=runtime_since(start))

    def _settings(self) -> dict[str, Any]:
        """The settings as plain values: metrics are merged only if these are equal."""
        order: float | str = self._order
        if math.isinf(self._order):
            order = "inf"
        return {
            "kernels": {name: registry.spell(kernel) for name, kernel in self._kernels.items()},
            "num_features": self._num_features,
            "order": order,
            "truncation": self._truncation,
            "rng": self._seed,
        }

    def save(self, path: str | Path) -> None:
        """Write the state to a file, in one step: an archive of plain arrays (.npz) for `load`."""
        target = Path(path)
        header = {
            "format": _FORMAT,
            "settings": self._settings(),
            "n": self.n,
            "widths": self._widths,
            "noise": self._noise,
        }
        arrays = {f"total_{name}": moments.total for name, moments in self._moments.items()}
        arrays["header"] = np.array(json.dumps(header))
        try:
            write_whole(target, lambda file: np.savez(file, allow_pickle=False, **arrays))
        except OSError as error:
            raise DataError(f"cannot write {target}: {error.strerror}.") from None

    @classmethod
    def load(cls, path: str | Path) -> "Metric":
        """A metric from a file that `save` wrote. Nothing in the file is executed."""
        with open_archive(path, _FORMAT, "a state of Metric") as (header, archive):
            settings = header["settings"]
            spellings = settings["kernels"].values()
            kernels = [registry.parse(text, registry.KERNELS, "kernel") for text in spellings]
            metric = cls(
                *kernels,
                # Exact features record 0, which is no valid number of random ones.
                num_features=settings["num_features"] or 8,
                order=settings["order"],
                truncation=settings["truncation"],
                rng=settings["rng"],
            )
            metric._restore(header, archive)
            return metric

    def _restore(self, header: Mapping[str, Any], archive: Mapping[str, np.ndarray]) -> None:
        """Read the state, trusting nothing: the file may come from anywhere.

        `open_archive` turns a ValueError into a message that names the file.
        """
        n, widths = header["n"], header["widths"]
        # An empty metric has no widths yet, because these come with the first chunk.
        expected = set(self._kernels)
        if n == 0:
            expected = set()
        # bool is an int, so the type is compared exactly.
        # The mass is a float, which counts no further than 2^53.
        if type(n) is not int or not 0 <= n < 2**53 or set(widths) != expected:
            raise ValueError("its header does not fit")
        if n == 0:
            return
        totals = {name: archive[f"total_{name}"] for name in _operators_of(widths)}
        self._check_sizes(widths, totals)
        self._begin(dict(widths))
        self._noise = float(header["noise"])
        for name, moments in self._moments.items():
            _check_moments(totals[name], moments.total, n, name)
            moments.total, moments.mass = totals[name], float(n)
        self.n = n

    def _check_sizes(self, widths: Mapping[str, Any], totals: Mapping[str, np.ndarray]) -> None:
        """Require the widths to fit the arrays before memory is allocated for them."""
        for width in widths.values():
            if type(width) is not int or not 0 < width <= _WIDEST:
                raise ValueError("its header does not fit its arrays")
        largest = max(len(total) for total in totals.values())
        if self._is_random and largest != 2 * self._num_features:
            raise ValueError("its header does not fit its arrays")


def _require_features(kernel: object, name: str) -> None:
    """Refuse kernels that have neither random nor exact features."""
    if not isinstance(kernel, Kernel):
        raise ArgumentError(f"`{name}` must be an object such as dp.Gaussian(1.0); got {kernel!r}.")
    if not kernel.has_fourier_features and kernel.feature_dimension(1) is None:
        raise ArgumentError(
            f"a stream needs a kernel with features; {type(kernel).__name__} has none. "
            "Use evaluate."
        )


def _require_finite(features: Mapping[str, Array]) -> None:
    """Refuse features that overflow."""
    for block in features.values():
        xp = array_namespace(block)
        if not bool(xp.all(xp.isfinite(block))):
            raise DataError(
                "the features of a chunk overflow: its values are too large for these bandwidths."
            )


def _operators_of(widths: Mapping[str, Any]) -> list[str]:
    """The operators of the sides that a stream has, pairs included."""
    if "t" in widths:
        return [*widths, "joint"]
    return list(widths)


def _check_moments(total: np.ndarray, expected: np.ndarray, n: int, name: str) -> None:
    """Require an array to be the second moments of n features of unit length."""
    is_like = total.shape == expected.shape and total.dtype == np.float64
    if not is_like or not np.isfinite(total).all():
        raise ValueError(f"the moments of {name} do not fit")
    has_trace = abs(np.trace(total) - n) <= _TRACE_ERROR * n
    if not has_trace or not np.allclose(total, total.T, atol=_SYMMETRY_ERROR * n):
        raise ValueError(f"the moments of {name} are not those of {n} items")


def _in_bandwidths(rows: Array, kernel: Kernel) -> Points:
    """Rows divided by the bandwidth.

    They are not centred: workers could not agree on a centre, and the spectrum does not depend on
    it.
    """
    assert kernel.bandwidth is not None
    xp = array_namespace(rows)
    # No row is longer than this number of bandwidths. Frequencies are standard normal, so it is
    # also the size of the largest phases.
    phase = float(xp.max(xp.abs(rows))) * rows.shape[1] ** 0.5 / kernel.bandwidth
    dtype = xp.float32
    if rows.dtype == xp.float64 or phase > _LARGEST_SINGLE_PHASE:
        dtype = xp.float64
    return Points(xp.astype(rows, dtype) / kernel.bandwidth)
