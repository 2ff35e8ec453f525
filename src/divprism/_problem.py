"""The arguments of a score, validated once: operators, and settings with every default resolved."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from divprism._arrays import Array, array_namespace
from divprism._validate import (
    check_order,
    check_pairing,
    check_seed,
    check_truncation,
    check_weights,
    clean_ids,
    holds_text,
    like,
)
from divprism.bandwidth import BandwidthRule, MedianDistance
from divprism.entropy import renyi_entropy
from divprism.errors import ArgumentError, DataError
from divprism.estimators import Auto, Estimator
from divprism.kernels import Categorical, Gaussian, Kernel
from divprism.operators import HadamardOperator, KernelOperator, Operator, require_definite, squared_norms

__all__ = ["Entropy", "Problem", "check_factors", "entropies", "pose", "squares_suffice"]

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
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class Entropy:
    """An entropy in nats, and the name of the method that found it."""

    value: float
    method: str


def pose(x: Any, t: Any = None, labels: Any = None, **arguments: Any) -> Problem:
    """Check every argument, choose what was left open, merge equal items.

    `arguments` are the keywords of `evaluate`. Data are held in the precision that the answer needs: double for spectra; at
    order 2, which only adds up squares, single precision data stay single.
    """
    weights, kernel_x, kernel_t = (arguments.pop(name, None) for name in ("weights", "kernel_x", "kernel_t"))
    settings = _settings(**arguments)
    rule, seed = settings["bandwidth_rule"], settings["rng"]
    squares_only = settings["order"] == 2 and settings["truncation"] is None
    warnings: tuple[str, ...] = ()
    used: list[str] = []  # the sides that the bandwidth rule decided

    kernel_x, x = _resolve(kernel_x, x, rule, seed, "x", used)
    n = x.shape[0]
    sides = {"x": (kernel_x, x)}
    if t is not None:
        if kernel_t is None and clean_ids(t, "t") is not None:
            kernel_t = Categorical()
            warnings = (TEXTS_AS_IDS,) if holds_text(t) else ()
        kernel_t, t = _resolve(kernel_t, t, rule, seed, "t", used)
        sides["t"] = kernel_t, t
    if labels is not None:
        sides["labels"] = Categorical(), _clean_labels(labels)
    for name, (kernel, data) in sides.items():
        check_pairing(n, data.shape[0], name)
        sides[name] = kernel, like(data, x, name)

    masses = check_weights(weights, n)
    keep = np.flatnonzero(masses)
    if keep.size < n:
        sides = {name: (kernel, kernel.pick(data, keep)) for name, (kernel, data) in sides.items()}
        masses = masses[keep]
    operators = {
        name: KernelOperator.from_data(kernel, data, masses, dtype=_precision(data, squares_only), name=name)
        for name, (kernel, data) in sides.items()
    }
    products = {
        name: HadamardOperator.of(operators["x"], operators[name], masses) for name in ("t", "labels") if name in operators
    }
    settings |= {"kernel_x": kernel_x, "kernel_t": kernel_t, "bandwidth_rule": rule if used else None}
    return Problem(operators["x"], operators.get("t"), products.get("t"), products.get("labels"), n, settings, warnings)


def _clean_labels(labels: Any) -> Array:
    codes = clean_ids(labels, "labels")
    if codes is None:
        raise DataError(f"`labels` must be flat, one group per output; got shape {np.shape(labels)}.")
    return codes[:, None]


def _settings(*, order: Any, truncation: Any, estimator: Any, rng: Any, bandwidth_rule: Any = None) -> dict[str, Any]:
    return {
        "order": check_order(order),
        "truncation": check_truncation(truncation),
        "estimator": _instance(Auto() if estimator is None else estimator, Estimator, "estimator", "dp.Auto()"),
        "rng": check_seed(rng),
        "bandwidth_rule": _instance(
            MedianDistance() if bandwidth_rule is None else bandwidth_rule,
            BandwidthRule,
            "bandwidth_rule",
            "dp.MedianDistance()",
        ),
    }


def _instance(value: Any, kind: type, name: str, example: str) -> Any:
    if not isinstance(value, kind):
        raise ArgumentError(f"`{name}` must be an object such as {example}; got {value!r}.")
    return value


def _resolve(
    kernel: Kernel | None, data: Any, rule: BandwidthRule, seed: int, name: str, used: list[str]
) -> tuple[Kernel, Array]:
    """The kernel, Gaussian by the rule if none was given (and then noted in `used`), and the clean data."""
    if kernel is not None:
        return kernel, _instance(kernel, Kernel, f"kernel_{name}", "dp.Gaussian(1.0)").clean(data, name)
    clean = Gaussian(1.0).clean(data, name)
    used.append(name)
    return Gaussian(rule.bandwidth(clean, rng=seed, name=name)), clean


def _precision(x: Array, squares_only: bool) -> Any:
    xp = array_namespace(x)
    single = squares_only and xp.isdtype(x.dtype, "real floating") and x.dtype != xp.float64
    return xp.float32 if single else xp.float64


def squares_suffice(problem: Problem, orders: Sequence[float]) -> bool:
    """Whether squared norms answer everything: order 2 and no truncation."""
    return problem.settings["truncation"] is None and set(orders) == {2.0}


def entropies(problem: Problem, names: Sequence[str], orders: Sequence[float]) -> list[dict[str, Entropy]]:
    """For each order, the entropies of the operators called "x", "t" or "joint".

    From squared norms where nothing but order 2 is asked for; else from spectra, each found once for all orders.
    """
    operators: list[Operator] = [getattr(problem, name) for name in names]
    truncation = problem.settings["truncation"]
    if squares_suffice(problem, orders):
        check_factors(operators, [])
        found = [Entropy(-math.log(norm), "frobenius") for norm in squared_norms(operators)]
        return [dict(zip(names, found, strict=True)) for _ in orders]
    check_factors(operators, operators)
    spectra = problem.settings["estimator"].spectra(operators)
    return [
        {name: Entropy(renyi_entropy(s, order, truncation), s.method) for name, s in zip(names, spectra, strict=True)}
        for order in orders
    ]


def check_factors(operators: list[Operator], solved: list[Operator]) -> None:
    """Precomputed matrices must be positive semidefinite; those whose eigenvalues are computed show it by themselves."""
    for factor in {factor for operator in operators for factor in operator.factors}.difference(solved):
        require_definite(factor)
