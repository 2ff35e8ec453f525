"""Choosing models while samples are drawn, so that the samples are diverse: a bandit at order 2.

The state of the samples so far is the mixture with weights w_m = n_m / n, and its squared norm
w' G w is what diversity of order 2 is the inverse of. One more sample of model m moves it along the
slope 2 (G w)_m, so the model of the least slope is drawn: a step of Frank and Wolfe. G is unknown;
estimates of it err most for models with few samples, so each slope is lowered by how far it may be
off: optimism, as in upper confidence bounds. Rezaei et al. (Mixture-UCB, arXiv 2412.17622) mix
models by such a rule for quadratic objectives; Berthet and Perchet (2017) analyse bandits that
follow Frank and Wolfe.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from divprism.analysis.simplex import least_square
from divprism.core.arrays import plain_mode, to_numpy
from divprism.core.kernels import Categorical, Kernel, Precomputed
from divprism.core.kernels.base import positive_number
from divprism.core.validation import check_pairing
from divprism.errors import ArgumentError, DataError

__all__ = ["MixtureBandit"]

_FIRST = 2  # samples of each model that are drawn first: pairs of different ones are needed


class MixtureBandit:
    """Which model to sample next, so that all samples together are most diverse at order 2.

    Call `choose` for the model, draw an output of it to a random prompt, and pass it to `update`.
    Prompts have to be drawn from the same distribution for all models. Deterministic: equal
    outputs give equal choices. A sample costs its kernel values with all earlier ones, O(n d).

    Parameters
    ----------
    models : sequence of str
        Their names; of models that are equally good the first is chosen.
    kernel_x : Kernel
        Kernel of the outputs; `Categorical()` for ids.
    kernel_t : Kernel, optional
        Kernel of the prompts, to maximise the conditional score. Without it that of the outputs.
    exploration : float, optional
        The slope of a model is lowered by exploration x sqrt(log n / n_m), with n samples of which
        n_m are of the model. Kernel values lie between 0 and 1, so by Hoeffding's inequality 1 is
        enough for a guarantee. Smaller values explore less: 0.03 to 0.1 were best in simulations
        (experiments/online_mixture.py), and at 0.01 a model may be given up too early.

    Examples
    --------
    Two models that give one answer each: taking turns is best.

    >>> import numpy as np, divprism as dp
    >>> answers = {"a": [1.0, 0.0], "b": [0.0, 1.0]}
    >>> bandit = dp.MixtureBandit(["a", "b"], dp.Cosine())
    >>> for _ in range(10):
    ...     name = bandit.choose()
    ...     bandit.update(name, [answers[name]])
    >>> bandit.counts, round(bandit.score, 6)
    ({'a': 5, 'b': 5}, 2.25)
    """

    def __init__(
        self,
        models: Sequence[str],
        kernel_x: Kernel,
        kernel_t: Kernel | None = None,
        *,
        exploration: float = 0.1,
    ) -> None:
        self.models = tuple(map(str, models))
        if len(self.models) < 2 or len(set(self.models)) < len(self.models):
            raise ArgumentError(
                f"`models` must be at least two different names; got {list(self.models)!r}."
            )
        for name, kernel in (("kernel_x", kernel_x), ("kernel_t", kernel_t)):
            is_missing = kernel is None and name == "kernel_t"
            if isinstance(kernel, Precomputed) or not (is_missing or isinstance(kernel, Kernel)):
                raise ArgumentError(
                    f"`{name}` must be a kernel of vectors, such as dp.Gaussian(0.5); "
                    f"got {kernel!r}."
                )
        self.kernel_x, self.kernel_t = kernel_x, kernel_t
        self.exploration = positive_number(exploration, "exploration")
        self._rows: dict[str, np.ndarray] = {}
        self._codes: dict[str, dict[Any, int]] = {"outputs": {}, "prompts": {}}
        self._numbers = np.zeros(0, int)
        self._sums = np.zeros((len(self.models), len(self.models)))

    @property
    def counts(self) -> dict[str, int]:
        """Number of samples of each model so far."""
        counts = np.bincount(self._numbers, minlength=len(self.models))
        return dict(zip(self.models, counts.tolist(), strict=True))

    @property
    def gram(self) -> np.ndarray:
        """Unbiased estimates of the inner products of the models; NaN where samples are missing.

        The mean squared kernel value over pairs of different samples.
        """
        counts = np.bincount(self._numbers, minlength=len(self.models)).astype(np.float64)
        pairs = np.outer(counts, counts) - np.diag(counts)
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.where(pairs > 0, self._sums / pairs, np.nan)

    @property
    def score(self) -> float:
        """1 / tr rho^2 of the samples, estimated from pairs of different ones; inf if all differ.

        Conditional on prompts it is the joint one: times tr rho_T^2 it is Conditional-RKE.
        """
        size = self._numbers.size
        if size < 2:
            raise DataError(f"a score of pairs takes two samples; got {size}.")
        total = float(self._sums.sum())
        if total == 0:
            return math.inf
        return size * (size - 1) / total

    def choose(self) -> str:
        """The model to sample next."""
        counts = np.bincount(self._numbers, minlength=len(self.models))
        if counts.min() < _FIRST:
            return self.models[int(np.argmin(counts))]
        size = self._numbers.size
        slopes = 2 * self.gram @ (counts / size)
        radius = self.exploration * np.sqrt(math.log(size) / counts)
        return self.models[int(np.argmin(slopes - radius))]

    def update(self, model: str, outputs: Any, prompts: Any = None) -> None:
        """Add outputs of a model, and with `kernel_t` their prompts, as rows of numbers or ids."""
        if model not in self.models:
            names = ", ".join(map(repr, self.models))
            raise ArgumentError(f"`model` must be one of {names}; got {model!r}.")
        if (prompts is None) != (self.kernel_t is None):
            raise ArgumentError("`prompts` must be given exactly if there is a `kernel_t`.")
        added = {"outputs": self._clean(self.kernel_x, outputs, "outputs")}
        if self.kernel_t is not None:
            added["prompts"] = self._clean(self.kernel_t, prompts, "prompts")
            check_pairing(len(added["outputs"]), len(added["prompts"]), "prompts")
        number = self.models.index(model)
        squares = self._squares(added)
        numbers = np.concatenate([self._numbers, np.full(len(added["outputs"]), number)])
        known = self._numbers.size
        for column in range(len(self.models)):
            total = float(squares[:, :known][:, self._numbers == column].sum())
            self._sums[number, column] += total
            self._sums[column, number] += total
        # Pairs of different new samples, in both orders.
        among = squares[:, known:]
        self._sums[number, number] += float(among.sum() - np.trace(among))
        self._numbers = numbers
        self._rows = self._joined(added)

    def _clean(self, kernel: Kernel, data: Any, name: str) -> np.ndarray:
        rows = np.asarray(to_numpy(kernel.clean(data, name)))
        if isinstance(kernel, Categorical):
            rows = self._coded(data, rows, name)
        earlier = self._rows.get(name)
        if earlier is not None and rows.shape[1] != earlier.shape[1]:
            raise DataError(
                f"`{name}` must have {earlier.shape[1]} columns, as those before; got "
                f"{rows.shape[1]}."
            )
        return rows

    def _coded(self, data: Any, rows: np.ndarray, name: str) -> np.ndarray:
        """A column of codes, which equal ids share with all earlier samples."""
        if not isinstance(data, list | tuple):
            data = to_numpy(data)
        items = list(map(tuple, rows.tolist()))
        if np.ndim(data) == 1:
            # `clean` numbers ids anew each time.
            items = np.array(data, dtype=object).tolist()
        known = self._codes[name]
        return np.array([[known.setdefault(item, len(known))] for item in items])

    def _joined(self, added: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        if not self._rows:
            return added
        return {name: np.concatenate([self._rows[name], rows]) for name, rows in added.items()}

    def _squares(self, added: dict[str, np.ndarray]) -> np.ndarray:
        """Squared kernel values of the new samples with all."""
        together = self._joined(added)
        product = np.ones(1)
        for name, kernel in (("outputs", self.kernel_x), ("prompts", self.kernel_t)):
            if isinstance(kernel, Categorical):
                product = product * (added[name] == together[name].T)
            elif kernel is not None:
                with plain_mode():
                    points = kernel.points(together[name], np.float64, name)
                    new = points[slice(len(together[name]) - len(added[name]), None)]
                    product = product * np.asarray(to_numpy(kernel.block(new, points)))
        return np.asarray(product**2)

    def best_weights(self) -> dict[str, float]:
        """The weights that would be best if the estimates were exact."""
        counts = np.bincount(self._numbers, minlength=len(self.models))
        if counts.min() < _FIRST:
            name = self.models[int(np.argmin(counts))]
            raise DataError(
                f"best weights take {_FIRST} samples of each model; {name!r} has fewer."
            )
        # Unbiased estimates may have negative eigenvalues, under which there is no least square.
        values, vectors = np.linalg.eigh(self.gram)
        gram = (vectors * np.maximum(values, 0.0)) @ vectors.T
        weights = least_square(gram + 1e-12 * np.eye(len(gram))).weights
        return dict(zip(self.models, weights.tolist(), strict=True))
