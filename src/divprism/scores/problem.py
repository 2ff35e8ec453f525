"""The arguments of a score, validated once: operators, and settings with every default resolved."""

from collections.abc import Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np

from divprism.core.arrays import Array, array_namespace, is_stored, plain_mode
from divprism.core.kernels import Categorical, Gaussian, Kernel, Precomputed
from divprism.core.operators import HadamardOperator, KernelOperator, Operator, require_definite
from divprism.core.validation import (
    check_memory,
    check_order,
    check_pairing,
    check_seed,
    check_truncation,
    check_weights,
    clean_ids,
    holds_text,
    like,
)
from divprism.engines import Resources
from divprism.errors import ArgumentError, DataError
from divprism.estimators import Auto, Dual, Entropy, Estimator, Exact, Question
from divprism.scores.bandwidth import BandwidthRule, StableScore

__all__ = ["Problem", "check_factors", "entropies", "pose"]

TEXTS_AS_IDS = "Prompts are texts and no kernel_t was given: equal texts count as the same prompt, all others as unrelated."


@dataclass(frozen=True)
class Problem:
    """What to compute, on what: the operators K_X, K_T, K_X o K_T and K_X within groups, and resolved settings.

    `settings` has the keyword arguments of the scores as keys, so it can be passed back to them.
    """

    x: KernelOperator
    t: KernelOperator | None
    joint: HadamardOperator | None
    grouped: HadamardOperator | None
    n: int
    settings: dict[str, Any]
    resources: Resources
    warnings: tuple[str, ...] = ()

    def question(self, orders: Sequence[float]) -> Question:
        """What the estimator is asked, for some orders."""
        return Question(tuple(orders), self.settings["truncation"], self.settings["rng"])


def pose(x: Any, t: Any = None, labels: Any = None, **arguments: Any) -> Problem:
    """Check every argument, choose what was left open, merge equal items.

    `arguments` are the keywords of `evaluate`. Data are held in the precision that the answer needs: double for spectra; at
    order 2, which only adds up squares, single precision data stay single.
    """
    with plain_mode():
        return _posed(x, t, labels, arguments)


def _posed(x: Any, t: Any, labels: Any, arguments: dict[str, Any]) -> Problem:
    weights, kernel_x, kernel_t = (
        arguments.pop(name, None) for name in ("weights", "kernel_x", "kernel_t")
    )
    resources = _resources(
        *(arguments.pop(name, None) for name in ("memory", "executor", "progress"))
    )
    settings = _settings(**arguments)
    squares_only = (
        settings["estimator"].squares_are_exact
        and settings["order"] == 2
        and settings["truncation"] is None
    )
    sides, warnings = _paired_sides(x, t, labels, kernel_x, kernel_t)
    n = sides["x"][1].shape[0]
    masses = check_weights(weights, n)
    keep = np.flatnonzero(masses)
    if keep.size < n:
        sides = {
            name: (kernel, (kernel or _GAUSSIAN).pick(data, keep))
            for name, (kernel, data) in sides.items()
        }
        masses = masses[keep]
    rule, seed = settings["bandwidth_rule"], settings["rng"]
    by_rule = [name for name, (kernel, _) in sides.items() if kernel is None]
    for name in by_rule:
        data = sides[name][1]
        sides[name] = Gaussian(rule.bandwidth(data, rng=seed, name=name)), data
    settings |= {
        "kernel_x": sides["x"][0],
        "kernel_t": sides["t"][0] if "t" in sides else None,
        "bandwidth_rule": rule if by_rule else None,
    }

    operators = {}
    for name, (kernel, data) in sides.items():
        beyond = (
            is_stored(data)
            and 2 * data.nbytes > resources.budget
            and not isinstance(kernel, Precomputed | Categorical)
        )
        make = KernelOperator.from_file if beyond else KernelOperator.from_data
        operators[name] = make(
            kernel, data, masses, dtype=_precision(data, squares_only), name=name
        )
    products = {
        name: HadamardOperator.of(operators["x"], operators[name], masses)
        for name in ("t", "labels")
        if name in operators
    }
    return Problem(
        operators["x"],
        operators.get("t"),
        products.get("t"),
        products.get("labels"),
        n,
        settings,
        resources,
        warnings,
    )


def _paired_sides(
    x: Any, t: Any, labels: Any, kernel_x: Any, kernel_t: Any
) -> tuple[dict[str, tuple[Any, Array]], tuple[str, ...]]:
    """Kernel (None: left to the rule) and clean data of each side, checked to pair up and to live together; warnings."""
    warnings: tuple[str, ...] = ()
    sides = {"x": _clean(kernel_x, x, "x")}
    if t is not None:
        if kernel_t is None and clean_ids(t, "t") is not None:
            kernel_t = Categorical()
            warnings = (TEXTS_AS_IDS,) if holds_text(t) else ()
        sides["t"] = _clean(kernel_t, t, "t")
    elif kernel_t is not None:
        raise ArgumentError("`kernel_t` was given, but no prompts `t`.")
    if labels is not None:
        sides["labels"] = Categorical(), _clean_labels(labels)
    first = sides["x"][1]
    for name, (kernel, data) in sides.items():
        check_pairing(first.shape[0], data.shape[0], name)
        sides[name] = kernel, like(data, first, name)
    return sides, warnings


def _clean_labels(labels: Any) -> Array:
    codes = clean_ids(labels, "labels")
    if codes is None:
        raise DataError(
            f"`labels` must be flat, one group per output; got shape {np.shape(labels)}."
        )
    return codes[:, None]


def _settings(
    *, order: Any, truncation: Any, estimator: Any, rng: Any, bandwidth_rule: Any = None
) -> dict[str, Any]:
    return {
        "order": check_order(order),
        "truncation": check_truncation(truncation),
        "estimator": _instance(
            Auto() if estimator is None else estimator, Estimator, "estimator", "dp.Auto()"
        ),
        "rng": check_seed(rng),
        "bandwidth_rule": _instance(
            StableScore() if bandwidth_rule is None else bandwidth_rule,
            BandwidthRule,
            "bandwidth_rule",
            "dp.StableScore()",
        ),
    }


def _resources(memory: Any, executor: Any, progress: Any) -> Resources:
    if executor is not None:
        _instance(executor, Executor, "executor", "concurrent.futures.ThreadPoolExecutor()")
        if isinstance(executor, ProcessPoolExecutor):
            raise ArgumentError(
                "`executor` must share our memory: use concurrent.futures.ThreadPoolExecutor; got processes."
            )
    if progress is not None and not callable(progress):
        raise ArgumentError(
            f"`progress` must be a function of a text and a fraction; got {progress!r}."
        )
    return Resources(check_memory(memory), executor, progress)


def _instance(value: Any, kind: type, name: str, example: str) -> Any:
    if not isinstance(value, kind):
        raise ArgumentError(f"`{name}` must be an object such as {example}; got {value!r}.")
    return value


_GAUSSIAN = Gaussian(1.0)  # stands for the kernel while its bandwidth is not chosen yet


def _clean(kernel: Kernel | None, data: Any, name: str) -> tuple[Any, Array]:
    """A kernel, or None for a Gaussian whose bandwidth is left to the rule, and the clean data."""
    if kernel is not None and not isinstance(kernel, Kernel):
        raise ArgumentError(
            f"the kernel of `{name}` must be an object such as dp.Gaussian(1.0); got {kernel!r}."
        )
    return kernel, (kernel or _GAUSSIAN).clean(data, name)


def _precision(x: Array, squares_only: bool) -> Any:
    xp = array_namespace(x)
    single = squares_only and xp.isdtype(x.dtype, "real floating") and x.dtype != xp.float64
    return xp.float32 if single else xp.float64


def entropies(
    problem: Problem, names: Sequence[str], orders: Sequence[float]
) -> list[dict[str, Entropy]]:
    """For each order, the entropies of the operators called "x", "t" or "joint"."""
    operators: list[Operator] = [getattr(problem, name) for name in names]
    question = problem.question(orders)
    estimator = problem.settings["estimator"]
    solved = (
        operators if isinstance(estimator, Exact | Dual) and not question.squares_suffice else []
    )
    with plain_mode():
        check_factors(operators, solved)
        found = estimator.entropies(operators, question, problem.resources)
    return [dict(zip(names, row, strict=True)) for row in found]


def check_factors(operators: list[Operator], solved: list[Operator]) -> None:
    """Precomputed matrices must be positive semidefinite; those whose eigenvalues are computed show it by themselves."""
    for factor in {factor for operator in operators for factor in operator.factors}.difference(
        solved
    ):
        require_definite(factor)
