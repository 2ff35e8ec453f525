"""Metric: scores of a stream, by update, merge and compute."""

import json
import math
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from divprism.analysis._stream_state import (
    MOST_ITEMS,
    StreamState,
    check_state,
    operators_of,
)
from divprism.analysis.evaluation import Evaluation, runtime_since
from divprism.core.arrays import Array, array_namespace
from divprism.core.entropy import truncation_of
from divprism.core.estimates import entropy_estimate
from divprism.core.features import FourierMap, draw_frequencies
from divprism.core.kernels import Kernel, Points
from divprism.core.moments import FeatureMoments
from divprism.core.validation import check_order, check_pairing, check_seed, check_truncation
from divprism.data.archives import open_archive, require_keys, write_archive
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
_ROUNDING_OF_SUMS = 4 * float(np.finfo(np.float64).eps)  # of one term, relative to the sum


class Metric:
    """All scores of outputs and prompts that arrive in chunks, in one pass.

    Memory does not depend on the number of items: a metric keeps the second moments of features.
    For Gaussian kernels these are random Fourier features, as in `Fourier` and with the same error;
    Cosine and Polynomial have exact features of their own. Bandwidths must be given, because a
    stream cannot be read twice.

    Features and their sums are in double precision whatever the data, so any cut into chunks and
    any order of merging gives the same scores up to rounding: to 1e-9 at orders of 1 or more.
    Below order 1 a single eigenvalue at the level of rounding, sqrt(n) eps of the largest, may
    count or not, which changes a score by at most that level to the power `order`.

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
        self._state = StreamState()
        # Frequencies for some widths: drawn from the seed, so they are no part of the state.
        self._maps: tuple[Mapping[str, int], dict[str, FourierMap]] = ({}, {})

    @property
    def n(self) -> int:
        """Number of items so far."""
        return self._state.n

    def update(self, x: object, t: object = None) -> None:
        """Add a chunk: outputs, and their prompts if `kernel_t` was given.

        A chunk that is refused, or interrupted, changes nothing.
        """
        if (t is None) != ("t" not in self._kernels):
            raise ArgumentError("`t` goes with `kernel_t`: give both or neither.")
        rows = {"x": self._kernels["x"].clean(x, "x")}
        if t is not None:
            rows["t"] = self._kernels["t"].clean(t, "t")
        for name, side in rows.items():
            check_pairing(rows["x"].shape[0], side.shape[0], name)
            width = self._state.widths.get(name, side.shape[1])
            if side.shape[1] != width:
                raise DataError(
                    f"`{name}` has {side.shape[1]} columns; earlier chunks had {width}."
                )
        state, maps = self._state, self._maps
        if state.n == 0:
            state = self._begun({name: int(side.shape[1]) for name, side in rows.items()})
        if self._is_random and maps[0] != state.widths:
            maps = (state.widths, self._drawn(state.widths))
        features, noise = self._features(rows, maps[1])
        _require_finite(features)
        # The last statement replaces the whole state, so a chunk is added whole or not at all.
        state = state.updated(features, noise)
        self._maps = maps
        self._state = state

    def _begun(self, widths: dict[str, int]) -> StreamState:
        """A state without items, once the widths are known."""
        names = operators_of(widths)
        sizes = dict.fromkeys(names, 2 * self._num_features)
        if not self._is_random:
            sizes = self._exact_sizes(widths)
        moments = {name: FeatureMoments(sizes[name], self._is_random) for name in names}
        return StreamState(widths=widths, moments=moments)

    def _drawn(self, widths: Mapping[str, int]) -> dict[str, FourierMap]:
        """Frequencies, from the seed and the widths alone, so that all workers have the same."""
        rng = np.random.default_rng(self._seed)
        maps = {}
        for name, width in widths.items():
            maps[name] = FourierMap(draw_frequencies(width, self._num_features, rng))
        return maps

    def _exact_sizes(self, widths: dict[str, int]) -> dict[str, int]:
        """Number of exact features of each operator; those of pairs are products."""
        sizes = {}
        for name, width in widths.items():
            size = self._kernels[name].feature_dimension(width)
            if size is None:
                raise ArgumentError(
                    f"`kernel_{name}` has too many features, or too large ones, for rows of "
                    f"{width:,} numbers; use a Gaussian kernel, or evaluate."
                )
            sizes[name] = size
        if "t" in sizes:
            sizes["joint"] = sizes["x"] * sizes["t"]
        largest = max(sizes.values())
        if largest > _MOST_FEATURES:
            raise ArgumentError(
                f"these kernels have {largest:,} features together, above {_MOST_FEATURES:,}; "
                "use Gaussian kernels, or evaluate."
            )
        return sizes

    def _features(
        self, rows: dict[str, Array], maps: Mapping[str, FourierMap]
    ) -> tuple[dict[str, Array], float]:
        """Features of the outputs, the prompts and the pairs, and the noise of their moments."""
        if self._is_random:
            return self._random_features(rows, maps), 0.0
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

    def _random_features(
        self, rows: dict[str, Array], maps: Mapping[str, FourierMap]
    ) -> dict[str, Array]:
        """Random Fourier features. The phases of a pair add up, because its kernels multiply."""
        phases = {}
        for name, side in rows.items():
            phases[name] = maps[name].phases(_in_bandwidths(side, self._kernels[name]))
        if "t" in phases:
            phases["joint"] = phases["x"] + phases["t"]
        return {name: FourierMap.features(block) for name, block in phases.items()}

    def merge(self, other: "Metric") -> None:
        """Add what another metric with the same settings has seen."""
        if not isinstance(other, Metric):
            raise ArgumentError(f"only a Metric can be merged; got {type(other).__name__}.")
        theirs = other._settings()
        for name, value in self._settings().items():
            if theirs[name] != value:
                raise ArgumentError(
                    "only metrics with the same kernels, order, features and seed can be merged; "
                    f"these have the {name} {value} and {theirs[name]}."
                )
        if other.n == 0:
            return
        state = other._state
        if self.n and self._state.widths != state.widths:
            widths = f"{dict(self._state.widths)} and {dict(state.widths)}"
            raise DataError(f"metrics of different widths cannot be merged: {widths}.")
        try:
            check_state(state, self._kernels)
        except (ValueError, AttributeError, KeyError, TypeError) as error:
            raise DataError(f"the other metric is not a valid state: {error}.") from None
        own = self._state
        if own.n == 0:
            own = self._begun(dict(state.widths))
        if own.n + state.n >= MOST_ITEMS:
            raise DataError(f"a metric counts to {MOST_ITEMS:,} items.")
        self._state = own.merged(state)

    def compute(self) -> Evaluation:
        """The scores of all chunks so far."""
        if self.n == 0:
            raise DataError("nothing has been seen yet: call update first.")
        start = time.perf_counter()
        # Sums of n terms round by about sqrt(n) of that, in an order that chunks decide.
        noise = max(self._state.noise, _ROUNDING_OF_SUMS * math.sqrt(self.n))
        spectra = {}
        for name, moments in self._state.moments.items():
            spectra[name] = moments.spectrum(noise)
        settings = Settings(
            kernel_x=self._kernels["x"],
            kernel_t=self._kernels.get("t"),
            order=self._order,
            truncation=self._truncation,
            estimator=self._estimator,
            rng=self._seed,
        )
        truncation = truncation_of(self._truncation, self.n)
        scores = {}
        for spec in available(spectra):
            order = spec.order_under(self._order)
            entropies = {}
            for name in spec.terms:
                estimate = entropy_estimate(spectra[name], order, truncation)
                if self._is_random:
                    # An extrapolation may leave the entropies that n items can have.
                    value = min(max(estimate.value, 0.0), math.log(self.n))
                    estimate = replace(estimate, value=value)
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
        state = self._state
        header = {
            "format": _FORMAT,
            "settings": self._settings(),
            "n": state.n,
            "widths": dict(state.widths),
            "noise": state.noise,
        }
        arrays = {f"total_{name}": moments.total for name, moments in state.moments.items()}
        write_archive(path, header, arrays)

    @classmethod
    def load(cls, path: str | Path) -> "Metric":
        """A metric from a file that `save` wrote.

        Nothing in the file is executed, and a state that no stream can have is refused.
        """
        with open_archive(path, _FORMAT, "a state of Metric") as (header, archive):
            require_keys(header, {"format", "settings", "n", "widths", "noise"}, "its header")
            settings = header["settings"]
            metric = cls._with_settings(settings)
            # As texts: 1 and true are equal in Python, but not in JSON.
            given = json.dumps(settings, sort_keys=True)
            if given != json.dumps(metric._settings(), sort_keys=True):
                raise ValueError("its settings are not as `save` writes them")
            metric._state = metric._restored(header, archive)
            return metric

    @classmethod
    def _with_settings(cls, settings: Any) -> "Metric":
        """An empty metric with the settings of a header."""
        keys = {"kernels", "num_features", "order", "truncation", "rng"}
        require_keys(settings, keys, "its header")
        spellings = settings["kernels"]
        sides = {"x"}
        if "t" in spellings:
            sides = {"x", "t"}
        require_keys(spellings, sides, "its header")
        kernels = {}
        for name, text in spellings.items():
            kernels[f"kernel_{name}"] = registry.parse(text, registry.KERNELS, "kernel")
        return cls(
            **kernels,
            # Exact features record 0, which is no valid number of random ones.
            num_features=settings["num_features"] or 8,
            order=settings["order"],
            truncation=settings["truncation"],
            rng=settings["rng"],
        )

    def _restored(
        self, header: Mapping[str, Any], archive: Mapping[str, np.ndarray]
    ) -> StreamState:
        """The state in a file, trusting nothing: the file may come from anywhere.

        `open_archive` turns a ValueError into a message that names the file.
        """
        n, widths = header["n"], header["widths"]
        state = StreamState(n=n, noise=header["noise"])
        # An empty metric has no widths yet, because these come with the first chunk.
        sides: Mapping[str, Kernel] = self._kernels
        operators = operators_of(sides)
        if n == 0:
            sides, operators = {}, []
        require_keys(widths, set(sides), "its header")
        require_keys(archive, {f"total_{name}" for name in operators}, "the file")
        if n != 0:
            totals = {name: archive[f"total_{name}"] for name in operators}
            self._check_sizes(widths, totals)
            # In the order of the kernels, in which the frequencies are drawn.
            empty = self._begun({name: widths[name] for name in sides})
            moments = {}
            for name, total in totals.items():
                moments[name] = empty.moments[name].restored(total, float(n))
            state = replace(state, widths=empty.widths, moments=moments)
        check_state(state, self._kernels)
        return state

    def _check_sizes(self, widths: Mapping[str, Any], totals: Mapping[str, np.ndarray]) -> None:
        """Require the widths to fit the arrays before memory is allocated for them."""
        for width in widths.values():
            if type(width) is not int or not 0 < width <= _WIDEST:
                raise ValueError("its header does not fit its arrays")
        sizes = {len(total) for total in totals.values()}
        if self._is_random and sizes != {2 * self._num_features}:
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
