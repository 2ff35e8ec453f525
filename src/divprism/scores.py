"""The scores of the papers, and the result they return.

Three entropies make them all: H(X) of K_X / n, H(T) of K_T / n and H(X, T) of the entry-wise product K_X o K_T / n.

    vendi        exp H(X)                      how many distinct outputs
    conditional  exp (H(X, T) - H(T))          how many per kind of prompt: the model's own diversity
    information  exp (H(X) + H(T) - H(X, T))   how much of the diversity follows the prompts

and vendi = conditional x information, at every order and truncation (Conditional Vendi, eq. 8).
"""

import math
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace
from typing import Any

from divprism._problem import Problem, entropies, pose
from divprism.bandwidth import BandwidthRule
from divprism.estimators import Entropy, Estimator
from divprism.kernels import Gaussian, Kernel
from divprism.spectrum import Estimate, Spectrum

__all__ = [
    "COMBINATIONS",
    "SATURATED",
    "Score",
    "build_score",
    "combined",
    "conditional_rke",
    "conditional_vendi",
    "information_rke",
    "information_vendi",
    "rke",
    "saturation",
    "score_from",
    "vendi",
]

_CLEARLY = 2.0  # times the tolerance: a score of three entropies may have an error of the root of three

COMBINATIONS: dict[str, dict[str, int]] = {
    "vendi": {"x": 1},
    "conditional_vendi": {"joint": 1, "t": -1},
    "information_vendi": {"x": 1, "t": 1, "joint": -1},
    "rke": {"x": 1},
    "conditional_rke": {"joint": 1, "t": -1},
    "information_rke": {"x": 1, "t": 1, "joint": -1},
}
"""How each score is put together: the log of the score is this sum of entropies."""


@dataclass(frozen=True)
class Score:
    """One score and everything needed to compute it again. `float(score)` is its value.

    Attributes
    ----------
    name : str
        Which score it is.
    value : float
        The score, an effective number.
    standard_error : float
        Error of the value that the estimator brings (zero where it is exact); not the sampling error of the data.
    entropy : float
        Logarithm of the value, in nats.
    order, truncation
        Order of the entropy, and number of eigenvalues kept (None: all).
    n : int
        Number of outputs, or of pairs.
    method : str
        How the entropies were found: "exact", "dual", "lanczos", "frobenius", ..., or several joined by "+".
    settings : dict
        Keyword arguments that give this score again, every default resolved.
    warnings : tuple of str
        What a reader of the number should know.
    spectra : dict of Spectrum
        Eigenvalues that the score was made from: "x" of the outputs, "t" of the prompts, "joint" of the pairs. Empty where
        none were needed, as at order 2.
    """

    name: str
    value: float
    standard_error: float
    entropy: float
    order: float
    truncation: int | None
    n: int
    method: str
    settings: dict[str, Any] = field(repr=False)
    warnings: tuple[str, ...] = ()
    spectra: dict[str, Spectrum] = field(default_factory=dict, repr=False, compare=False)

    def plot(self, ax: Any = None) -> tuple[Any, Any]:
        """Draw the spectra that the score was made from, on log axes; where there are none, its value with its error.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Where to draw; default a new figure.

        Returns
        -------
        (Figure, Axes)
        """
        from divprism.report.plots import draw_spectra, draw_values, new_axes

        figure, ax = new_axes(ax)
        if self.spectra:
            draw_spectra(ax, {name: (one.values, one.weights) for name, one in self.spectra.items()})
        else:
            draw_values(ax, {self.name: (self.value, self.value - self.standard_error, self.value + self.standard_error)})
        ax.set_title(str(self).replace(" (", "\n(", 1), fontsize="medium")
        return figure, ax

    def __float__(self) -> float:
        return self.value

    def __str__(self) -> str:
        cut = "" if self.truncation is None else f", truncation {self.truncation}"
        error = f" +- {self.standard_error:.2g}" if self.standard_error else ""
        return f"{self.name} = {self.value:.4f}{error} (order {self.order:g}{cut}, n = {self.n}, {self.method})"


def score_from(name: str, found: dict[str, Entropy], problem: Problem, order: float) -> Score:
    """Put a score together from the entropies of its operators."""
    entropy, promise = combined(name, found), problem.settings["estimator"].promise
    warnings = problem.warnings
    if entropy.estimate.standard_error > _CLEARLY * promise:
        missed = (
            f"{name}: the relative standard error is {entropy.estimate.standard_error:.1e}, above the tolerance of {promise:g}."
        )
        warnings = (*warnings, missed)
    warnings += tuple(
        text for operator in COMBINATIONS[name] for text in saturation(operator, found[operator].estimate.value, problem)
    )
    spectra = {operator: one for operator in COMBINATIONS[name] if (one := found[operator].spectrum) is not None}
    score = build_score(name, entropy, order, settings=problem.settings, n=problem.n, warnings=warnings)
    return replace(score, spectra=spectra)


_ALIKE, _APART, _ENOUGH = 1.01, 0.95, 10  # effective number, part of all, and fewest items that a warning is given for


SATURATED = ("outputs-all-alike", "outputs-all-apart", "prompts-all-alike", "prompts-all-apart")
"""What warnings about a bandwidth begin with."""


def saturation(operator: str, entropy: float, problem: Problem) -> list[str]:
    """What is wrong with the bandwidth of one side, told by the effective number of items that it sees.

    Prompts that are all apart are warned of only where they do not repeat: there Conditional is 1 whatever the model does.
    Where each has several outputs it is their diversity under the exact prompt, as with `Categorical()`: a question that can be
    asked, tells models apart, and is what the default rule comes to for a dozen prompts that have little in common.
    """
    side = {"x": problem.x, "t": problem.t}.get(operator)
    if side is None or not isinstance(side.kernel, Gaussian) or side.size < _ENOUGH:
        return []
    found, width = math.exp(entropy), f"bandwidth_{operator} (now {side.kernel.bandwidth:.3g})"
    if found <= _ALIKE:
        means = "vendi is 1 whatever they are" if operator == "x" else "conditional equals vendi"
        what = {"x": "outputs", "t": "prompts"}[operator]
        return [f"{what}-all-alike: all {side.size:,} distinct {what} count as one, so {means}; lower {width}."]
    if operator == "x" and found >= _APART * side.size:
        return [f"outputs-all-apart: nearly all of {side.size:,} distinct outputs count as unlike any other; raise {width}."]
    if operator == "t" and found >= _APART * problem.n:
        told = f"prompts-all-apart: nearly each of {problem.n:,} pairs has a kind of prompt to itself, so conditional is near 1"
        return [f"{told} whatever the outputs are; raise {width}, or draw several outputs per prompt."]
    return []


def combined(name: str, found: dict[str, Entropy]) -> Entropy:
    """The logarithm of a score from the entropies of its operators."""
    terms = COMBINATIONS[name]
    entropy = Estimate.total((sign, found[operator].estimate) for operator, sign in terms.items())
    return Entropy(entropy, _joined(found[operator].method for operator in terms))


def _joined(methods: Iterable[str]) -> str:
    return "+".join(sorted({part for method in methods for part in method.split("+")}))


def build_score(
    name: str, entropy: Entropy, order: float, *, settings: dict[str, Any], n: int, warnings: tuple[str, ...] = ()
) -> Score:
    """A `Score` with the settings under the names that the function called `name` takes them by."""
    settings = dict(settings)
    if name.endswith("rke"):
        del settings["order"]
    if COMBINATIONS.get(name, {"x": 1}) == {"x": 1}:  # a score of the outputs alone
        settings = {"kernel": settings.pop("kernel_x")} | settings
        del settings["kernel_t"]
    value = math.exp(entropy.estimate.value)
    return Score(
        name=name,
        value=value,
        standard_error=value * entropy.estimate.standard_error,
        entropy=entropy.estimate.value,
        order=order,
        truncation=settings["truncation"],
        n=n,
        method=_joined([entropy.method]),
        settings=settings,
        warnings=warnings,
    )


def _score(name: str, data: Sequence[Any], **arguments: Any) -> Score:
    problem = pose(*data, **arguments)
    order = problem.settings["order"]
    [found] = entropies(problem, list(COMBINATIONS[name]), [order])
    return score_from(name, found, problem, order)


def vendi(
    x: Any,
    *,
    kernel: Kernel | None = None,
    bandwidth_rule: BandwidthRule | None = None,
    order: float = 1.0,
    truncation: int | None = None,
    weights: Any = None,
    estimator: Estimator | None = None,
    rng: Any = 0,
    memory: Any = None,
    executor: Executor | None = None,
    progress: Callable[[str, float], None] | None = None,
) -> Score:
    """Effective number of distinct items: exp H(K / n) (Conditional Vendi, eq. 3; any order: Truncated Vendi, eq. 8).

    Between 1 (all alike) and n (nothing in common). O(n^3), less with repeated items or few features; order 2 O(n^2 d).

    Parameters
    ----------
    x : array (n, d)
        A row per item, from NumPy, torch or another array library; a kernel matrix under `Precomputed()`.
    kernel : Kernel, optional
        When two items count as alike. Default: Gaussian with the bandwidth that `bandwidth_rule` reads off the data.
    bandwidth_rule : BandwidthRule, optional
        Default: `StableScore()`, the smallest at which the score is stable.
    order : float
        Order of the Renyi entropy, above 0; math.inf allowed. Called q by vendi-score and alpha by the papers. High orders
        count common kinds only, low orders rare ones too.
    truncation : int, optional
        Keep the top t eigenvalues and spread the rest over them (Truncated Vendi, Def. 2): converges with O(t) samples.
    weights : array (n,), optional
        Sample weights that sum to one. Default: equal.
    estimator : Estimator, optional
        How to find the eigenvalues. Default: `Auto()`.
    rng : int or numpy.random.Generator
        Seed of whatever is drawn; same seed, same result.
    memory : int or str, optional
        Bytes that may be held beside the data, or a text such as "4 GB". Default: half of what is free. Changes no score.
    executor : concurrent.futures.Executor, optional
        Threads that compute blocks of the kernel matrix. Default: one per core.
    progress : callable, optional
        Called as progress(text, fraction) while a long computation runs.

    Returns
    -------
    Score

    Raises
    ------
    DataError, ArgumentError
        If the data or a setting cannot be used; the message says why and what to do.

    Examples
    --------
    Four directions, five items each:

    >>> import numpy as np, divprism as dp
    >>> round(float(dp.vendi(np.repeat(np.eye(4), 5, axis=0), kernel=dp.Cosine())), 12)
    4.0
    """
    return _score(
        "vendi",
        [x],
        kernel_x=kernel,
        bandwidth_rule=bandwidth_rule,
        order=order,
        truncation=truncation,
        weights=weights,
        estimator=estimator,
        rng=rng,
        memory=memory,
        executor=executor,
        progress=progress,
    )


def rke(
    x: Any,
    *,
    kernel: Kernel | None = None,
    bandwidth_rule: BandwidthRule | None = None,
    truncation: int | None = None,
    weights: Any = None,
    estimator: Estimator | None = None,
    rng: Any = 0,
    memory: Any = None,
    executor: Executor | None = None,
    progress: Callable[[str, float], None] | None = None,
) -> Score:
    """Effective number of distinct items at order 2: 1 / ||K / n||_F^2 (Conditional Vendi, eq. 4; Truncated Vendi, eq. 7).

    The cheap cousin of `vendi`: no eigenvalue is computed (unless `truncation` asks for some), the kernel matrix is visited
    tile by tile and never held, and the score converges with O(1 / sqrt(n)) for any kernel. O(n^2 d), or O(n d^2) for Cosine
    with d < n / 2. Between 1 and n. Arguments as in `vendi`; `estimator` serves the truncated score only.

    >>> import numpy as np, divprism as dp
    >>> round(float(dp.rke(np.repeat(np.eye(4), 5, axis=0), kernel=dp.Cosine())), 12)
    4.0
    """
    return _score(
        "rke",
        [x],
        kernel_x=kernel,
        bandwidth_rule=bandwidth_rule,
        order=2,
        truncation=truncation,
        weights=weights,
        estimator=estimator,
        rng=rng,
        memory=memory,
        executor=executor,
        progress=progress,
    )


def conditional_vendi(
    x: Any,
    t: Any,
    *,
    kernel_x: Kernel | None = None,
    kernel_t: Kernel | None = None,
    bandwidth_rule: BandwidthRule | None = None,
    order: float = 1.0,
    truncation: int | None = None,
    weights: Any = None,
    estimator: Estimator | None = None,
    rng: Any = 0,
    memory: Any = None,
    executor: Executor | None = None,
    progress: Callable[[str, float], None] | None = None,
) -> Score:
    """Effective number of distinct outputs per kind of prompt: exp(H(X, T) - H(T)) (Conditional Vendi, eq. 6 and 13).

    The diversity that the model brings, beyond what its prompts bring. Between 1 (the prompt decides the output) and
    `vendi(x)` at order 1. Cost as of `vendi`, on pairs; with prompts as group ids the sum over groups.

    Parameters
    ----------
    x : array (n, d)
        A row per output.
    t : array (n, d_t), or flat collection of n group ids
        The prompt of each output: embeddings, a kernel matrix under `Precomputed()`, or ids (integers, strings), which count
        as alike when equal.
    kernel_x, kernel_t : Kernel, optional
        When outputs, when prompts count as alike. Default as in `vendi`; `Categorical()` for ids.
    bandwidth_rule, order, truncation, weights, estimator, rng, memory, executor, progress
        As in `vendi`. The truncation applies to both spectra.

    Examples
    --------
    Four prompts, the same five outputs under each: five per prompt.

    >>> import numpy as np, divprism as dp
    >>> x, t = np.tile(np.eye(5), (4, 1)), np.repeat([0, 1, 2, 3], 5)
    >>> round(float(dp.conditional_vendi(x, t, kernel_x=dp.Cosine())), 12)
    5.0
    """
    return _score(
        "conditional_vendi",
        [x, t],
        kernel_x=kernel_x,
        kernel_t=kernel_t,
        bandwidth_rule=bandwidth_rule,
        order=order,
        truncation=truncation,
        weights=weights,
        estimator=estimator,
        rng=rng,
        memory=memory,
        executor=executor,
        progress=progress,
    )


def information_vendi(
    x: Any,
    t: Any,
    *,
    kernel_x: Kernel | None = None,
    kernel_t: Kernel | None = None,
    bandwidth_rule: BandwidthRule | None = None,
    order: float = 1.0,
    truncation: int | None = None,
    weights: Any = None,
    estimator: Estimator | None = None,
    rng: Any = 0,
    memory: Any = None,
    executor: Executor | None = None,
    progress: Callable[[str, float], None] | None = None,
) -> Score:
    """How much of the diversity follows the prompts: exp(H(X) + H(T) - H(X, T)) (Conditional Vendi, eq. 7).

    At least 1 at order 1 (outputs that ignore their prompts); at other orders it can fall slightly below. It is the factor
    between the two diversities: vendi = conditional_vendi x information_vendi. Arguments and cost as of `conditional_vendi`.

    >>> import numpy as np, divprism as dp
    >>> t = np.repeat(np.eye(4), 5, axis=0)
    >>> round(float(dp.information_vendi(t, t, kernel_x=dp.Cosine(), kernel_t=dp.Cosine())), 12)
    4.0
    """
    return _score(
        "information_vendi",
        [x, t],
        kernel_x=kernel_x,
        kernel_t=kernel_t,
        bandwidth_rule=bandwidth_rule,
        order=order,
        truncation=truncation,
        weights=weights,
        estimator=estimator,
        rng=rng,
        memory=memory,
        executor=executor,
        progress=progress,
    )


def conditional_rke(
    x: Any,
    t: Any,
    *,
    kernel_x: Kernel | None = None,
    kernel_t: Kernel | None = None,
    bandwidth_rule: BandwidthRule | None = None,
    truncation: int | None = None,
    weights: Any = None,
    estimator: Estimator | None = None,
    rng: Any = 0,
    memory: Any = None,
    executor: Executor | None = None,
    progress: Callable[[str, float], None] | None = None,
) -> Score:
    """`conditional_vendi` at order 2: ||K_T||_F^2 / ||K_X o K_T||_F^2 (Conditional Vendi, eq. 9 and 11).

    At least 1. No eigenvalue is computed: one sweep over the pairs, O(n^2 (d + d_t)) time, memory of a few tiles. Arguments
    as in `conditional_vendi`.

    >>> import numpy as np, divprism as dp
    >>> x, t = np.tile(np.eye(5), (4, 1)), np.repeat([0, 1, 2, 3], 5)
    >>> round(float(dp.conditional_rke(x, t, kernel_x=dp.Cosine())), 12)
    5.0
    """
    return _score(
        "conditional_rke",
        [x, t],
        kernel_x=kernel_x,
        kernel_t=kernel_t,
        bandwidth_rule=bandwidth_rule,
        order=2,
        truncation=truncation,
        weights=weights,
        estimator=estimator,
        rng=rng,
        memory=memory,
        executor=executor,
        progress=progress,
    )


def information_rke(
    x: Any,
    t: Any,
    *,
    kernel_x: Kernel | None = None,
    kernel_t: Kernel | None = None,
    bandwidth_rule: BandwidthRule | None = None,
    truncation: int | None = None,
    weights: Any = None,
    estimator: Estimator | None = None,
    rng: Any = 0,
    memory: Any = None,
    executor: Executor | None = None,
    progress: Callable[[str, float], None] | None = None,
) -> Score:
    """`information_vendi` at order 2: n^2 ||K_X o K_T||^2 / (||K_X||^2 ||K_T||^2) (Conditional Vendi, eq. 10 and 11).

    Arguments and cost as of `conditional_rke`.

    >>> import numpy as np, divprism as dp
    >>> x, t = np.tile(np.eye(5), (4, 1)), np.repeat([0, 1, 2, 3], 5)
    >>> round(float(dp.information_rke(x, t, kernel_x=dp.Cosine())), 12)
    1.0
    """
    return _score(
        "information_rke",
        [x, t],
        kernel_x=kernel_x,
        kernel_t=kernel_t,
        bandwidth_rule=bandwidth_rule,
        order=2,
        truncation=truncation,
        weights=weights,
        estimator=estimator,
        rng=rng,
        memory=memory,
        executor=executor,
        progress=progress,
    )
