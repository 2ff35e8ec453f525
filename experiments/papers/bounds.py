"""Are the concentration bounds kept, and how far is the truth from them?"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

import divprism as dp
from divprism.analysis.bounds import (
    conditional_rke_bound,
    conditional_vendi_bound,
    eigenvalue_bound,
    fourier_vendi_bound,
    vendi_bound,
)
from divprism.report.table import Column, Table
from experiments.papers.base import (
    CONDITIONAL,
    FAILS,
    HOLDS,
    TRUNCATED,
    Outcome,
    Request,
    experiment,
)
from experiments.papers.plots import lines, panels

_DELTA = 0.05

# A population that is known exactly: five prompts and twelve kinds of output in the plane, each
# prompt with outputs of its own shares.
_PROMPTS, _KINDS = 5, 12


@dataclass(frozen=True, eq=False)
class _Population:
    """Pairs of a prompt and an output with their probabilities."""

    x: np.ndarray
    t: np.ndarray
    shares: np.ndarray

    @classmethod
    def make(cls) -> "_Population":
        rng = np.random.default_rng(0)
        prompts, outputs = rng.standard_normal((_PROMPTS, 2)), rng.standard_normal((_KINDS, 2))
        shares = rng.dirichlet(np.full(_PROMPTS * _KINDS, 0.5))
        of_prompt, of_output = np.divmod(np.arange(_PROMPTS * _KINDS), _KINDS)
        return cls(outputs[of_output], prompts[of_prompt], shares)

    def draw(self, n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Distinct pairs of a sample of n, with the share of each."""
        counts = rng.multinomial(n, self.shares)
        seen = counts > 0
        return self.x[seen], self.t[seen], counts[seen] / n


_KERNEL = dp.Gaussian(1.0)
_BOTH = {"kernel_x": _KERNEL, "kernel_t": _KERNEL}


@dataclass(frozen=True)
class _Case:
    """A theorem: the score that it is about, and the range around the score of a sample."""

    name: str
    score: Callable[[np.ndarray, np.ndarray, np.ndarray], float]
    bound: Callable[[float, int], tuple[float, float]]


def _vendi(order: float, truncation: int | None = None) -> Callable:
    def score(x: np.ndarray, t: np.ndarray, weights: np.ndarray) -> float:
        options = {"order": order, "truncation": truncation, "weights": weights}
        return float(dp.vendi(x, kernel=_KERNEL, estimator=dp.Exact(), **options))

    return score


def _conditional(score: Callable, truncation: int | None = None) -> Callable:
    def of_pairs(x: np.ndarray, t: np.ndarray, weights: np.ndarray) -> float:
        options = {"truncation": truncation, "weights": weights, "estimator": dp.Exact()}
        return float(score(x, t, **_BOTH, **options))

    return of_pairs


@experiment(
    "bounds-vendi",
    TRUNCATED,
    "Thm 1, 2, 3 (a), Cor. 1, 2",
    claim=(
        "The score of n samples is within a stated distance of that of the population, with "
        "probability 1 - delta, whatever the distribution."
    ),
    stand_in="A population of 60 pairs in the plane, whose scores are known exactly.",
)
def bounds_of_vendi(request: Request) -> Outcome:
    """How often the bounds of Truncated Vendi are violated."""
    kinds = _KINDS
    cases = [
        _Case("Cor. 1, order 2", _vendi(2.0), lambda v, n: vendi_bound(v, n, 2.0, delta=_DELTA)),
        _Case("Cor. 1, order 3", _vendi(3.0), lambda v, n: vendi_bound(v, n, 3.0, delta=_DELTA)),
        _Case(
            "Cor. 2 (a), order 1",
            _vendi(1.0),
            lambda v, n: vendi_bound(v, n, 1.0, dimension=kinds, delta=_DELTA),
        ),
        _Case(
            "Cor. 2 (b), order 1.5",
            _vendi(1.5),
            lambda v, n: vendi_bound(v, n, 1.5, dimension=kinds, delta=_DELTA),
        ),
        _Case(
            "Thm 2, order 1.5, t = 6",
            _vendi(1.5, 6),
            lambda v, n: vendi_bound(v, n, 1.5, truncation=6, delta=_DELTA),
        ),
    ]
    return _tested(cases, request, extra=(_eigenvalues, _fourier))


@experiment(
    "bounds-conditional",
    CONDITIONAL,
    "Thm 1-3",
    claim=(
        "Conditional-Vendi, truncated or not, and Conditional-RKE of n pairs are within a stated "
        "distance of those of the population, with probability 1 - delta."
    ),
    stand_in="A population of 60 pairs in the plane, whose scores are known exactly.",
)
def bounds_of_conditional(request: Request) -> Outcome:
    """How often the bounds of Conditional Vendi are violated."""
    population = _Population.make()
    options = {"weights": population.shares}
    of_prompts = float(dp.rke(population.t, kernel=_KERNEL, **options)) ** -0.5
    conditional = float(dp.conditional_rke(population.x, population.t, **_BOTH, **options))
    of_pairs = of_prompts / math.sqrt(conditional)
    norms = {"prompts": (of_prompts, of_prompts), "joint": (of_pairs, of_pairs)}
    cases = [
        _Case(
            "Thm 1",
            _conditional(dp.conditional_vendi),
            lambda v, n: conditional_vendi_bound(
                v, n, dimension_x=_KINDS, dimension_t=_PROMPTS, delta=_DELTA
            ),
        ),
        _Case(
            "Thm 2, t = 10",
            _conditional(dp.conditional_vendi, 10),
            lambda v, n: conditional_vendi_bound(v, n, truncation=10, delta=_DELTA),
        ),
        _Case(
            "Thm 3",
            _conditional(dp.conditional_rke),
            lambda v, n: conditional_rke_bound(v, n, delta=_DELTA, **norms),
        ),
    ]
    return _tested(cases, request)


def _tested(cases: list[_Case], request: Request, extra: tuple = ()) -> Outcome:
    """Draw samples, count violations, and compare errors with bounds."""
    draws = request.choose(500, 40)
    sizes = [4_000, 40_000, 4_000_000]
    population = _Population.make()
    rows = []
    for case in cases:
        truth = case.score(population.x, population.t, population.shares)
        for n in sizes:
            rng = np.random.default_rng(n)
            errors, violations, ends = [], 0, (math.nan, math.nan)
            try:
                for _ in range(draws):
                    value = case.score(*population.draw(n, rng))
                    ends = case.bound(value, n)
                    errors.append(abs(value / truth - 1))
                    violations += not ends[0] <= truth <= ends[1]
            except dp.ArgumentError:
                # The theorem asks for more samples.
                continue
            high = ends[1] / truth - 1
            rows.append((case.name, n, violations / draws, float(np.quantile(errors, 0.95)), high))
    for test in extra:
        rows += test(population, draws, sizes)
    return _judged(rows, draws)


def _eigenvalues(population: _Population, draws: int, sizes: list[int]) -> list[tuple]:
    """Thm 1 of Truncated Vendi: the distance of the sorted eigenvalues."""
    truth = _spectrum(population.x, population.shares)
    rows = []
    for n in sizes:
        rng = np.random.default_rng(n)
        errors = []
        for _ in range(draws):
            x, _, weights = population.draw(n, rng)
            values = _spectrum(x, weights)
            length = max(truth.size, values.size)
            padded = [np.pad(each, (0, length - each.size)) for each in (truth, values)]
            errors.append(float(np.linalg.norm(padded[0] - padded[1])))
        bound = eigenvalue_bound(n, _DELTA)
        violated = float(np.mean(np.array(errors) > bound))
        rows.append(("Thm 1, eigenvalues", n, violated, float(np.quantile(errors, 0.95)), bound))
    return rows


def _spectrum(x: np.ndarray, weights: np.ndarray) -> np.ndarray:
    distances = ((x[:, None] - x[None]) ** 2).sum(axis=2)
    roots = np.sqrt(weights)
    values = np.linalg.eigvalsh(np.exp(-distances / 2) * np.outer(roots, roots))
    return np.sort(values)[::-1]


def _fourier(population: _Population, draws: int, sizes: list[int]) -> list[tuple]:
    """Thm 3 (a): FKEA of order 2 around the truncated score of the population."""
    count = 200
    truth = float(dp.rke(population.x, kernel=_KERNEL, weights=population.shares))
    rows = []
    for n in sizes:
        rng = np.random.default_rng(n)
        errors, violations, high = [], 0, math.nan
        for draw in range(draws):
            x, _, weights = population.draw(n, rng)
            estimator = dp.Fourier(count, extrapolate=False)
            options = {"order": 2.0, "weights": weights, "estimator": estimator, "rng": draw}
            value = float(dp.vendi(x, kernel=_KERNEL, **options))
            low, high = fourier_vendi_bound(value, n, count, 2.0, delta=_DELTA)
            errors.append(abs(value / truth - 1))
            violations += not low <= truth <= high
        error = float(np.quantile(errors, 0.95))
        rows.append((f"Thm 3 (a), r = {count}", n, violations / draws, error, high / truth - 1))
    return rows


def _judged(rows: list[tuple], draws: int) -> Outcome:
    worst = max(row[2] for row in rows)
    verdict = FAILS
    if worst <= _DELTA:
        verdict = HOLDS
    finite = [row[4] / row[3] for row in rows if math.isfinite(row[4])]
    reason = (
        f"At most {100 * worst:.1f} % of {draws} samples violate a bound that may fail in "
        f"{100 * _DELTA:g} %. Where a bound is finite, it is {min(finite):.0f} to "
        f"{max(finite):.0f} times the error that 95 % of the samples stay below."
    )
    shown = []
    for name, n, violated, error, reach in rows:
        # An infinite upper end says nothing.
        shown.append((name, n, violated, error, reach if math.isfinite(reach) else None))
    figure, (ax,) = panels(1)
    names = list(dict.fromkeys(row[0] for row in rows))
    for name in names:
        own = [row for row in rows if row[0] == name and math.isfinite(row[4])]
        if own:
            lines(
                ax,
                [row[1] for row in own],
                {name: [row[4] / row[3] for row in own]},
                title="bound / error",
                xlabel="samples",
                log=True,
            )
    ax.set_xscale("log")
    columns = (
        Column("theorem", "theorem"),
        Column("samples", "samples", "d"),
        Column("violated", "share violated", ".3f"),
        Column("error", "relative error (95 %)", ".4f"),
        Column("bound", "bound (relative, upper end)", ".3f"),
    )
    return Outcome(verdict, reason, Table(columns, tuple(shown)), figure)
