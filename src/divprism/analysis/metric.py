"""Metric: scores of a stream. update with chunks, merge with other workers, compute at any time."""

import json
import time
from pathlib import Path
from typing import Any

import numpy as np

from divprism.analysis.evaluation import Evaluation, runtime_since
from divprism.core.arrays import Array, array_namespace
from divprism.core.entropy import entropy_estimate
from divprism.core.features import FourierMap, draw_frequencies
from divprism.core.kernels import Gaussian, Kernel, Points
from divprism.core.moments import FeatureMoments
from divprism.core.validation import check_order, check_pairing, check_seed, check_truncation
from divprism.data.files import open_archive, write_whole
from divprism.errors import ArgumentError, DataError
from divprism.estimators import Dual, Entropy, Estimator, Fourier
from divprism.scores import registry
from divprism.scores.score import Score, combine
from divprism.scores.settings import Settings
from divprism.scores.spec import available

__all__ = ["Metric"]

_FORMAT = 1
_MOST_FEATURES = 4096
_WIDEST = 1 << 20
_FAR = 1e3  # phases beyond this are computed in double precision


class Metric:
    """All scores of outputs and prompts that come in chunks: one pass, memory that does not depend on their number.

    Keeps the second moments of features: random Fourier features for Gaussian kernels, as `Fourier` does and with the same
    error, or the kernel's own for Cosine and Polynomial, which is exact. Bandwidths must be given, because a stream cannot be
    asked twice.

    Parameters
    ----------
    kernel_x, kernel_t : Kernel
        Kernels of outputs and prompts, both Gaussian or neither; without `kernel_t` only `vendi` and `rke` are computed.
    num_features : int
        Frequencies of random features.
    order, truncation, rng
        As in `vendi`. Metrics to be merged need the same seed.

    Examples
    --------
    Four directions, in two chunks:

    >>> import numpy as np, divprism as dp
    >>> metric = dp.Metric(dp.Cosine())
    >>> metric.update(np.eye(4)[:2]), metric.update(np.eye(4)[2:])
    (None, None)
    >>> round(float(metric.compute().vendi), 12)
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
        rng: Any = 0,
    ) -> None:
        self._kernels = {"x": kernel_x} if kernel_t is None else {"x": kernel_x, "t": kernel_t}
        for name, kernel in self._kernels.items():
            if not isinstance(kernel, Kernel):
                raise ArgumentError(
                    f"`kernel_{name}` must be an object such as dp.Gaussian(1.0); got {kernel!r}."
                )
            if not isinstance(kernel, Gaussian) and kernel.feature_dimension(1) is None:
                raise ArgumentError(
                    f"a stream needs a kernel with features; {type(kernel).__name__} has none. Use evaluate."
                )
        self._is_random = isinstance(kernel_x, Gaussian)
        if any(
            isinstance(kernel, Gaussian) != self._is_random for kernel in self._kernels.values()
        ):
            raise ArgumentError(
                "a stream needs two Gaussian kernels or none: the features of one kind do not multiply the other's."
            )
        self._order, self._truncation, self._seed = (
            check_order(order),
            check_truncation(truncation),
            check_seed(rng),
        )
        self._estimator: Estimator = Fourier(num_features) if self._is_random else Dual()
        self._num_features = (
            self._estimator.num_features if isinstance(self._estimator, Fourier) else 0
        )
        self.reset()

    def reset(self) -> None:
        """Forget everything seen."""
        self.n = 0
        self._noise = 0.0
        self._widths: dict[str, int] = {}
        self._maps: dict[str, FourierMap] = {}
        self._moments: dict[str, FeatureMoments] = {}

    def update(self, x: Any, t: Any = None) -> None:
        """Take in a chunk: outputs, and their prompts if `kernel_t` was given. A chunk that is refused changes nothing."""
        if (t is None) != ("t" not in self._kernels):
            raise ArgumentError("`t` goes with `kernel_t`: give both or neither.")
        data = {"x": x} if t is None else {"x": x, "t": t}
        clean = {name: self._kernels[name].clean(values, name) for name, values in data.items()}
        for name, rows in clean.items():
            check_pairing(clean["x"].shape[0], rows.shape[0], name)
            width = self._widths.get(name, rows.shape[1])
            if rows.shape[1] != width:
                raise DataError(
                    f"`{name}` has {rows.shape[1]} columns; earlier chunks had {width}."
                )
        if not self._widths:
            self._begin({name: rows.shape[1] for name, rows in clean.items()})
        weights = np.ones(clean["x"].shape[0])
        found = self._features(clean)
        for features in found.values():
            if not bool(
                array_namespace(features).all(array_namespace(features).isfinite(features))
            ):
                raise DataError(
                    "the features of a chunk overflow: its values are too large for these bandwidths."
                )
        for name, features in found.items():
            self._moments[name].update(features, weights)
        self.n += weights.size

    def _begin(self, widths: dict[str, int]) -> None:
        """Draw the frequencies, or count the features, once the widths are known."""
        names = [*widths, "joint"] if "t" in widths else list(widths)
        if self._is_random:
            rng = np.random.default_rng(self._seed)
            self._maps = {
                name: FourierMap(draw_frequencies(width, self._num_features, rng))
                for name, width in widths.items()
            }
            sizes = dict.fromkeys(names, 2 * self._num_features)
        else:
            sizes = {
                name: self._kernels[name].feature_dimension(width) or 0
                for name, width in widths.items()
            }
            sizes["joint"] = int(np.prod(list(sizes.values())))
            worst = max(sizes[name] for name in names)
            if worst > _MOST_FEATURES:
                raise ArgumentError(
                    f"these kernels have {worst:,} features together, above {_MOST_FEATURES:,}. Use Gaussian, or evaluate."
                )
        self._widths = widths
        self._moments = {name: FeatureMoments(sizes[name], self._is_random) for name in names}

    def _features(self, clean: dict[str, Array]) -> dict[str, Array]:
        """Features of the outputs, the prompts and the pairs."""
        if self._is_random:
            phases = {}
            for name, rows in clean.items():
                phases[name] = self._maps[name].phases(_in_bandwidths(rows, self._kernels[name]))
            if "t" in phases:
                phases["joint"] = phases["x"] + phases["t"]
            return {name: FourierMap.features(each) for name, each in phases.items()}
        found = {}
        for name, rows in clean.items():
            kernel = self._kernels[name]
            points = kernel.points(rows, array_namespace(rows).float64, name)
            self._noise = max(self._noise, 2 * points.noise)
            found[name] = kernel.features(points)
        if "t" in found:
            product = found["x"][:, :, None] * found["t"][:, None, :]
            found["joint"] = array_namespace(product).reshape(product, (product.shape[0], -1))
        return found

    def merge(self, other: "Metric") -> None:
        """Take in what another metric with the same settings has seen."""
        if (
            not isinstance(other, Metric)
            or other._header()["settings"] != self._header()["settings"]
        ):
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
        self.n += other.n

    def compute(self) -> Evaluation:
        """The scores of everything seen so far."""
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
            scores[spec.name] = Score(spec.name, entropy, order=order, n=self.n, settings=settings)
        data = {"n": self.n, "outputs": None, "prompts": None, "hash": None, "skipped": 0}
        return Evaluation(scores=scores, settings=settings, data=data, runtime=runtime_since(start))

    def _header(self) -> dict[str, Any]:
        kernels = {name: registry.spell(kernel) for name, kernel in self._kernels.items()}
        settings = {
            "kernels": kernels,
            "num_features": self._num_features,
            "order": "inf" if self._order == float("inf") else self._order,
            "truncation": self._truncation,
            "rng": self._seed,
        }
        return {
            "format": _FORMAT,
            "settings": settings,
            "n": self.n,
            "widths": self._widths,
            "noise": self._noise,
        }

    def save(self, path: str | Path) -> None:
        """Write the state to a file, in one step: an archive of plain arrays (.npz), to be read by `load`."""
        target = Path(path)
        arrays = {f"total_{name}": moments.total for name, moments in self._moments.items()}
        arrays["header"] = np.array(json.dumps(self._header()))
        try:
            write_whole(target, lambda file: np.savez(file, allow_pickle=False, **arrays))
        except OSError as error:
            raise DataError(f"cannot write {target}: {error.strerror}.") from None

    @classmethod
    def load(cls, path: str | Path) -> "Metric":
        """A state that `save` wrote. Nothing in the file is executed."""
        with open_archive(path, _FORMAT, "a state of Metric") as (header, archive):
            settings = header["settings"]
            kernels = [
                registry.parse(text, registry.KERNELS, "kernel")
                for text in settings["kernels"].values()
            ]
            others = {key: settings[key] for key in ("order", "truncation", "rng")}
            metric = cls(*kernels, num_features=settings["num_features"] or 8, **others)
            metric._restore(header, archive)
            return metric

    def _restore(self, header: dict[str, Any], archive: Any) -> None:
        n, widths = header["n"], header["widths"]
        if (
            type(n) is not int
            or not 0 <= n < 2**53
            or set(widths) != (set(self._kernels) if n else set())
        ):
            raise ValueError("its header does not fit")
        if n == 0:
            return
        totals = {
            name: archive[f"total_{name}"]
            for name in (*widths, *(["joint"] if "t" in widths else []))
        }
        largest = max(len(total) for total in totals.values())
        if any(type(width) is not int or not 0 < width <= _WIDEST for width in widths.values()) or (
            self._is_random and largest != 2 * self._num_features
        ):
            raise ValueError("its header does not fit its arrays")
        self._begin(dict(widths))
        self._noise = float(header["noise"])
        for name, moments in self._moments.items():
            total = totals[name]
            if (
                total.shape != moments.total.shape
                or total.dtype != np.float64
                or not np.isfinite(total).all()
            ):
                raise ValueError(f"the moments of {name} do not fit")
            if abs(np.trace(total) - n) > 1e-3 * n or not np.allclose(
                total, total.T, atol=1e-6 * n
            ):
                raise ValueError(f"the moments of {name} are not those of {n} items")
            moments.total, moments.mass = total, float(n)
        self.n = n


def _in_bandwidths(rows: Array, kernel: Kernel) -> Points:
    """Rows over the bandwidth, uncentred: workers could not agree on a centre, and the spectrum does not depend on it."""
    assert isinstance(kernel, Gaussian)
    xp = array_namespace(rows)
    reach = float(xp.max(xp.abs(rows))) * rows.shape[1] ** 0.5 / kernel.bandwidth
    dtype = xp.float64 if rows.dtype == xp.float64 or reach > _FAR else xp.float32
    return Points(xp.astype(rows, dtype) / kernel.bandwidth)
