"""Metric: scores of a stream, by update, merge and compute."""

import json
import math
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from divprism.analysis._stream_features import StreamFeatures
from divprism.analysis._stream_scores import stream_scores
from divprism.analysis._stream_state import (
    MOST_ITEMS,
    StreamState,
    check_state,
    operators_of,
)
from divprism.analysis.evaluation import Evaluation, runtime_since
from divprism.core.kernels import Kernel
from divprism.core.validation import check_order, check_truncation
from divprism.data.archives import open_archive, require_keys, write_archive
from divprism.errors import ArgumentError, DataError
from divprism.scores import registry
from divprism.scores.settings import Settings
from divprism.scores.spec import available

__all__ = ["Metric"]

_FORMAT = 1  # version of the files that `save` writes
_WIDEST = 1 << 20  # largest width that a file may claim


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
        self._stream = StreamFeatures(kernel_x, kernel_t, num_features, rng)
        self._order = check_order(order)
        self._truncation = check_truncation(truncation)
        self.reset()

    def reset(self) -> None:
        """Forget all chunks."""
        self._state = StreamState()

    @property
    def n(self) -> int:
        """Number of items so far."""
        return self._state.n

    def update(self, x: object, t: object = None) -> None:
        """Add a chunk: outputs, and their prompts if `kernel_t` was given.

        A chunk that is refused, or interrupted, changes nothing.
        """
        rows = self._stream.clean(x, t, self._state.widths)
        state = self._state
        if state.n == 0:
            state = self._stream.begun({name: int(side.shape[1]) for name, side in rows.items()})
        features, noise = self._stream.features(rows)
        # The last statement replaces the whole state, so a chunk is added whole or not at all.
        self._state = state.updated(features, noise)

    def merge(self, other: "Metric") -> None:
        """Add what another metric with the same settings has seen."""
        if not isinstance(other, Metric):
            raise ArgumentError(f"`other` must be a Metric; got {type(other).__name__}.")
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
            check_state(state, self._stream.kernels)
        except (ValueError, AttributeError, KeyError, TypeError) as error:
            raise DataError(f"the other metric is not a valid state: {error}.") from None
        own = self._state
        if own.n == 0:
            own = self._stream.begun(dict(state.widths))
        if own.n + state.n >= MOST_ITEMS:
            raise DataError(f"a metric counts to {MOST_ITEMS:,} items.")
        self._state = own.merged(state)

    def compute(self) -> Evaluation:
        """The scores of all chunks so far."""
        start = time.perf_counter()
        settings = Settings(
            kernel_x=self._stream.kernels["x"],
            kernel_t=self._stream.kernels.get("t"),
            order=self._order,
            truncation=self._truncation,
            estimator=self._stream.estimator,
            rng=self._stream.seed,
        )
        scores = stream_scores(self._state, available(self._state.moments), settings)
        data = {"n": self.n, "outputs": None, "prompts": None, "hash": None, "skipped": 0}
        return Evaluation(scores=scores, settings=settings, data=data, runtime=runtime_since(start))

    def _settings(self) -> dict[str, Any]:
        """The settings as plain values: metrics are merged only if these are equal."""
        order: float | str = self._order
        if math.isinf(self._order):
            order = "inf"
        kernels = self._stream.kernels
        return {
            "kernels": {name: registry.spell(kernel) for name, kernel in kernels.items()},
            "num_features": self._stream.num_features,
            "order": order,
            "truncation": self._truncation,
            "rng": self._stream.seed,
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
        sides: Mapping[str, Kernel] = self._stream.kernels
        operators = operators_of(sides)
        if n == 0:
            sides, operators = {}, []
        require_keys(widths, set(sides), "its header")
        require_keys(archive, {f"total_{name}" for name in operators}, "the file")
        if n != 0:
            totals = {name: archive[f"total_{name}"] for name in operators}
            self._check_sizes(widths, totals)
            # In the order of the kernels, in which the frequencies are drawn.
            empty = self._stream.begun({name: widths[name] for name in sides})
            moments = {}
            for name, total in totals.items():
                moments[name] = empty.moments[name].restored(total, float(n))
            state = replace(state, widths=empty.widths, moments=moments)
        check_state(state, self._stream.kernels)
        return state

    def _check_sizes(self, widths: Mapping[str, Any], totals: Mapping[str, np.ndarray]) -> None:
        """Require the widths to fit the arrays before memory is allocated for them."""
        for width in widths.values():
            if type(width) is not int or not 0 < width <= _WIDEST:
                raise ValueError("its header does not fit its arrays")
        sizes = {len(total) for total in totals.values()}
        if self._stream.is_random and sizes != {2 * self._stream.num_features}:
            raise ValueError("its header does not fit its arrays")
