"""The scores of the papers, each as a function.

Three entropies make them all: H(X) of K_X / n, H(T) of K_T / n and H(X, T) of the entry-wise product K_X o K_T / n.

    vendi        exp H(X)                      how many distinct outputs
    conditional  exp (H(X, T) - H(T))          how many per kind of prompt: the model's own diversity
    information  exp (H(X) + H(T) - H(X, T))   how much of the diversity follows the prompts

and vendi = conditional x information, at every order and truncation (Conditional Vendi, eq. 8).
"""

from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from typing import Any

from divprism.core.kernels import Kernel
from divprism.estimators import Estimator
from divprism.scores.bandwidth import BandwidthRule
from divprism.scores.problem import entropies, pose
from divprism.scores.score import COMBINATIONS, Score, score_from

__all__ = [
    "conditional_rke",
    "conditional_vendi",
    "information_rke",
    "information_vendi",
    "rke",
    "vendi",
]


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
