"""Problem: validated data as operators, with resolved settings; and the entropies of these.

Every score goes through `pose`, the only function that validates data. Below it arrays are
trusted.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from divprism.core.arrays import Array, array_namespace, is_stored, plain_mode, upload
from divprism.core.entropy import truncation_of
from divprism.core.kernels import Categorical, Gaussian, Kernel, Precomputed
from divprism.core.operators import HadamardOperator, KernelOperator, Operator, require_definite
from divprism.core.spectrum import Estimate
from divprism.core.validation import (
    check_pairing,
    check_quality,
    check_weights,
    clean_ids,
    holds_text,
    like,
)
from divprism.engines import RESOURCES, Resources
from divprism.errors import ArgumentError, DataError, Notice
from divprism.estimators import Dual, Entropy, Exact, Question
from divprism.scores.settings import Settings
from divprism.scores.spec import LABELS, OPERATORS, PROMPTS, QUALITY, REPEATED_PROMPTS
from divprism.scores.truncation import TruncationRange, truncation_range

__all__ = [
    "Problem",
    "check_factors",
    "choose_truncation",
    "clean_labels",
    "entropies",
    "pose",
]

TEXTS_AS_IDS = Notice(
    "texts-as-ids",
    "prompts are texts and no prompt kernel was given, so equal texts count as the same prompt "
    "and all others as unrelated. To compare their meaning, use `evaluate`, which embeds texts; if "
    "ids are meant, pass the categorical `kernel_t`.",
)

# Stands in for the kernel of a side until the rule has chosen its bandwidth: cleaning data and
# selecting rows do not depend on the bandwidth.
_PLACEHOLDER = Gaussian(1.0)

# A mean quality below it would be lost in rounding, or have no logarithm.
_LEAST_QUALITY = 1e-100


@dataclass(frozen=True, eq=False)
class Problem:
    """What is scored: the operators of the outputs, the prompts and the pairs.

    Attributes
    ----------
    x : KernelOperator
        K_X / n of the outputs.
    t : KernelOperator or None
        K_T / n of the prompts.
    joint : HadamardOperator or None
        K_X o K_T / n.
    within_labels : HadamardOperator or None
        K_X / n inside the groups given as labels.
    n : int
        Number of pairs.
    weights : ndarray
        The weight of each pair, those of weight zero left out.
    settings : Settings
        With every default resolved: passed back, they give the same answer.
    resources : Resources
        What the computation may use.
    warnings : tuple of Notice
        What a reader of the scores should know about the data.
    quality : ndarray or None
        The quality of each pair, those of weight zero left out; None where none is given.
    """

    x: KernelOperator
    t: KernelOperator | None
    joint: HadamardOperator | None
    within_labels: HadamardOperator | None
    n: int
    weights: np.ndarray
    settings: Settings
    resources: Resources
    warnings: tuple[Notice, ...] = ()
    quality: np.ndarray | None = None

    @cached_property
    def prompt_ids(self) -> KernelOperator | None:
        """K_T / n with prompts compared as ids; None unless prompts repeat."""
        if self.t is None or self.t.size == self.t.index.size:
            return None
        if isinstance(self.t.kernel, Categorical):
            return self.t
        # Equal prompts were merged into one point, so the points are the ids.
        codes = upload(self.t.index[:, None], self.t.points.rows)
        double = array_namespace(codes).float64
        return KernelOperator.from_data(Categorical(), codes, self.weights, dtype=double, name="t")

    @cached_property
    def within_prompts(self) -> HadamardOperator | None:
        """K_X o K_T / n with prompts compared as ids; None unless prompts repeat."""
        if self.prompt_ids is None:
            return None
        if self.prompt_ids is self.t:
            return self.joint
        return HadamardOperator.of(self.x, self.prompt_ids, self.weights)

    @cached_property
    def operators(self) -> dict[str, Operator]:
        """The operators that the data allow, by the names that the table of scores uses."""
        candidates = {name: self.operator(name) for name in OPERATORS}
        return {name: value for name, value in candidates.items() if value is not None}

    @property
    def means(self) -> dict[str, Entropy]:
        """The logarithms of the means that the data allow, by the names of the table of scores."""
        if self.quality is None:
            return {}
        mean = math.fsum(self.weights * self.quality)
        return {"quality": Entropy(Estimate(math.log(mean)), "mean")}

    @property
    def terms(self) -> tuple[str, ...]:
        """The names of all terms that scores of these data are sums of."""
        return (*self.operators, *self.means)

    def operator(self, name: str) -> Operator | None:
        """One of `OPERATORS` by its name; None where the data do not allow it."""
        operator: Operator | None = getattr(self, name)
        return operator

    @property
    def truncation(self) -> int | None:
        """Number of eigenvalues to keep; None if the settings keep as many as there are pairs."""
        return truncation_of(self.settings.truncation, self.weights.size)

    @property
    def present(self) -> tuple[str, ...]:
        """The needs of scores that the data meet."""
        holds = {
            PROMPTS: self.t is not None,
            REPEATED_PROMPTS: self.prompt_ids is not None,
            LABELS: self.within_labels is not None,
            QUALITY: self.quality is not None,
        }
        return tuple(need for need, is_present in holds.items() if is_present)

    def question(self, orders: Sequence[float]) -> Question:
        """What the estimator is asked, for some orders."""
        return Question(tuple(orders), self.truncation, self.settings.rng)


def pose(
    x: object,
    t: object = None,
    labels: object = None,
    *,
    settings: Settings,
    weights: object = None,
    quality: object = None,
    resources: Resources = RESOURCES,
) -> Problem:
    """Validate the data, choose the bandwidths that were left open, merge equal items.

    Data are held in the precision that the answer needs: double for spectra; at order 2, which
    only adds up squares, single precision data stay single.
    """
    # Autocast and other modes of torch that the caller may be in must not change the answer.
    with plain_mode():
        sides, warnings = _paired_sides(x, t, labels, settings)
        # Refuses arrays that the engine cannot compute with.
        resources.engine_for(sides["x"].data)
        # Counts the pairs as given; those of weight zero are dropped below.
        n = sides["x"].data.shape[0]
        masses = check_weights(weights, n)
        of_pairs = _quality_of_pairs(quality, masses)
        # The order matters: pairs of weight zero go before bandwidths are chosen, and equal items
        # are merged only when the kernel, which defines equality, is known.
        sides, masses = _without_zero_weights(sides, masses)
        sides, settings = _with_bandwidths(sides, settings)
        operators = {
            name: _operator(side, masses, name, settings, resources) for name, side in sides.items()
        }
        if settings.auto_truncation:
            chosen = _truncation_range(sides, operators, masses).number
            settings = replace(settings, truncation=chosen)
        products = {
            name: HadamardOperator.of(operators["x"], operators[name], masses)
            for name in ("t", "labels")
            if name in operators
        }
    return Problem(
        x=operators["x"],
        t=operators.get("t"),
        joint=products.get("t"),
        within_labels=products.get("labels"),
        n=n,
        weights=masses,
        settings=settings,
        resources=resources,
        warnings=warnings,
        quality=of_pairs,
    )


def _quality_of_pairs(quality: object, masses: np.ndarray) -> np.ndarray | None:
    """The quality of each pair with a weight, the mean of which has a logarithm."""
    if quality is None:
        return None
    values: np.ndarray = check_quality(quality, masses.size)[masses > 0]
    if not values.any():
        raise DataError(
            "`quality` is 0 for every output, so every score with it would be 0 whatever the "
            "outputs are: leave `quality` out, or this model."
        )
    if masses[masses > 0] @ values < _LEAST_QUALITY:
        raise DataError(
            f"`quality` must have a mean of at least {_LEAST_QUALITY:g}, and the largest is "
            f"{values.max():g}: multiply all qualities by the same number."
        )
    return values


@dataclass(frozen=True, eq=False)
class _Side:
    """Clean data of one side and its kernel; None while the rule has to choose a bandwidth."""

    kernel: Kernel | None
    data: Array

    def pick(self, rows: np.ndarray) -> "_Side":
        """The side with some of its rows."""
        return replace(self, data=(self.kernel or _PLACEHOLDER).pick(self.data, rows))


def _paired_sides(
    x: object, t: object, labels: object, settings: Settings
) -> tuple[dict[str, _Side], tuple[Notice, ...]]:
    """Clean data of each side, checked to have the same length and to live in one library."""
    warnings: tuple[Notice, ...] = ()
    sides = {"x": _clean(settings.kernel_x, x, "x")}
    if t is not None:
        kernel_t = settings.kernel_t
        # Flat prompts without a kernel are ids; vectors are left to the bandwidth rule.
        if kernel_t is None and clean_ids(t, "t") is not None:
            kernel_t = Categorical()
            if holds_text(t):
                warnings = (TEXTS_AS_IDS,)
        sides["t"] = _clean(kernel_t, t, "t")
    elif settings.kernel_t is not None:
        raise ArgumentError("`kernel_t` was given, but no prompts `t`.")
    if labels is not None:
        sides["labels"] = _Side(Categorical(), clean_labels(labels)[:, None])
    # Prompts move to the library and the device of the outputs, never the other way.
    first = sides["x"].data
    for name, side in sides.items():
        check_pairing(first.shape[0], side.data.shape[0], name)
        sides[name] = replace(side, data=like(side.data, first, name))
    return sides, warnings


def _clean(kernel: Kernel | None, data: object, name: str) -> _Side:
    return _Side(kernel, (kernel or _PLACEHOLDER).clean(data, name))


def clean_labels(labels: Any) -> np.ndarray:
    """The group of each output as integers."""
    codes = clean_ids(labels, "labels")
    if codes is None:
        shape = np.shape(labels)
        raise DataError(f"`labels` must be flat, one group per output; got shape {shape}.")
    return codes


def _without_zero_weights(
    sides: dict[str, _Side], masses: np.ndarray
) -> tuple[dict[str, _Side], np.ndarray]:
    """Drop pairs of weight zero: they must not influence the choice of a bandwidth either."""
    keep = np.flatnonzero(masses)
    if keep.size == masses.size:
        return sides, masses
    return {name: side.pick(keep) for name, side in sides.items()}, masses[keep]


def _with_bandwidths(
    sides: dict[str, _Side], settings: Settings
) -> tuple[dict[str, _Side], Settings]:
    """Every side with a kernel, and the settings with all of them resolved."""
    # Results record the rule only where it was used: given bandwidths owe it nothing.
    rule_used = None
    resolved = dict(sides)
    for name, side in sides.items():
        if side.kernel is None:
            rule_used = settings.rule
            bandwidth = rule_used.side_bandwidth(name, side.data)
            resolved[name] = replace(side, kernel=Gaussian(bandwidth))
    kernel_t = None
    if "t" in resolved:
        kernel_t = resolved["t"].kernel
    settings = replace(
        settings, kernel_x=resolved["x"].kernel, kernel_t=kernel_t, bandwidth_rule=rule_used
    )
    return resolved, settings


def _operator(
    side: _Side, masses: np.ndarray, name: str, settings: Settings, resources: Resources
) -> KernelOperator:
    kernel, data = side.kernel, side.data
    assert kernel is not None
    needs_memory = isinstance(kernel, Precomputed | Categorical)
    # A file that does not fit twice is read in blocks, without merging equal rows.
    is_beyond_memory = is_stored(data) and 2 * data.nbytes > resources.budget and not needs_memory
    make = KernelOperator.from_data
    if is_beyond_memory:
        make = KernelOperator.from_file
    return make(kernel, data, masses, dtype=_precision(data, settings), name=name)


def choose_truncation(x: object, t: object, settings: Settings) -> TruncationRange:
    """What vectors or ids of pairs of equal weight say about the truncation."""
    with plain_mode():
        sides, _ = _paired_sides(x, t, None, settings)
        masses = check_weights(None, sides["x"].data.shape[0])
        sides, settings = _with_bandwidths(sides, settings)
        operators = {
            name: _operator(side, masses, name, settings, RESOURCES) for name, side in sides.items()
        }
        return _truncation_range(sides, operators, masses)


def _truncation_range(
    sides: dict[str, _Side], operators: dict[str, KernelOperator], masses: np.ndarray
) -> TruncationRange:
    """What the outputs and the prompts say about the truncation; groups given as labels do not."""
    scored = [name for name in ("x", "t") if name in operators]
    return truncation_range(
        {name: operators[name] for name in scored},
        {name: sides[name].data for name in scored},
        masses,
    )


def _precision(data: Array, settings: Settings) -> Any:
    # The RKE scores of settings with another order come from the same double precision data.
    keeps_all = truncation_of(settings.truncation, data.shape[0]) is None
    squares_suffice = settings.order == 2 and keeps_all and not settings.auto_truncation
    xp = array_namespace(data)
    is_single = xp.isdtype(data.dtype, "real floating") and data.dtype != xp.float64
    if is_single and squares_suffice and settings.estimator.squares_are_exact:
        return xp.float32
    return xp.float64


def entropies(
    problem: Problem, names: Sequence[str], orders: Sequence[float]
) -> list[dict[str, Entropy]]:
    """For each order, the entropies of some operators of a problem, by their names."""
    candidates = [problem.operator(name) for name in names]
    # For the type checker: callers name only operators that the data allow.
    operators = [operator for operator in candidates if operator is not None]
    # An operator can have two names: prompts that are ids are their own ids.
    distinct = list(dict.fromkeys(operators))
    question = problem.question(orders)
    estimator = problem.settings.estimator
    # Dense solvers see the negative eigenvalues of an invalid matrix themselves.
    solved: list[Operator] = []
    if isinstance(estimator, Exact | Dual) and not question.squares_suffice:
        solved = distinct
    with plain_mode():
        check_factors(distinct, solved)
        rows = estimator.entropies(distinct, question, problem.resources)
    by_operator = []
    for row in rows:
        by_operator.append(
            {
                operator: _possible(entropy, operator.size)
                for operator, entropy in zip(distinct, row, strict=True)
            }
        )
    return [
        {name: at_order[operator] for name, operator in zip(names, operators, strict=True)}
        for at_order in by_operator
    ]


def _possible(entropy: Entropy, size: int) -> Entropy:
    """An entropy between those of one item and of `size` items: an extrapolation may leave these.

    The error stays as it is. Exact entropies differ from their limits by rounding only.
    """
    estimate = entropy.estimate
    if not estimate.standard_error:
        return entropy
    value = min(max(estimate.value, 0.0), math.log(size))
    return replace(entropy, estimate=replace(estimate, value=value))


def check_factors(operators: Sequence[Operator], solved: Sequence[Operator]) -> None:
    """Require precomputed matrices to be positive semidefinite.

    Those whose eigenvalues are computed anyway, `solved`, are checked there.
    """
    factors = {factor for operator in operators for factor in operator.factors}
    for factor in factors.difference(solved):
        require_definite(factor)
