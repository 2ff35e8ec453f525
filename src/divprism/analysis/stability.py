"""Over which bandwidths a ranking of models holds."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from divprism.analysis.content_sample import content_sample
from divprism.analysis.evaluation import Results
from divprism.core.arrays import plain_mode, to_numpy
from divprism.core.entropy import matrix_entropy
from divprism.core.kernels import Gaussian
from divprism.core.operators import Operator
from divprism.engines import one_blas_thread
from divprism.scores.problem import Problem, pose
from divprism.scores.spec import ScoreSpec

__all__ = ["FACTORS", "Range", "ScaledScores"]

FACTORS = (0.5, math.sqrt(0.5), 1.0, math.sqrt(2.0), 2.0)
"""Multiples of a bandwidth at which scores are computed again."""

_USED = FACTORS.index(1.0)  # the bandwidth itself
_MAX_PAIRS = 500  # pairs of each model that the scores are computed on

# Scores whose logarithms differ by less are equal: the same outputs in another order differ by
# rounding.
_ROUNDING = 1e-6

Range = tuple[float, float]
"""The smallest and the largest multiple of a bandwidth between which a finding holds."""


@dataclass(frozen=True, eq=False)
class ScaledScores:
    """Logarithms of a score of each model at multiples of the bandwidths, one side at a time.

    Attributes
    ----------
    by_side : dict of dict of ndarray
        By side with a bandwidth, then by model: the logarithm of the score at each of `FACTORS`.
    """

    by_side: dict[str, dict[str, np.ndarray]]

    @classmethod
    def of(cls, results: Results, spec: ScoreSpec) -> "ScaledScores":
        """The scores of every model, their changes computed on at most 500 pairs of each.

        The pairs are chosen by content, with the same prompts for all models. Distances are those
        of the kernel matrices at hand: K^(1 / f^2) is the Gaussian kernel at f times the bandwidth.
        O(500^3) for each model, factor and operator that changes.
        """
        by_side: dict[str, dict[str, np.ndarray]] = {}
        for model, result in results.items():
            samples = result.samples
            assert samples is not None
            with plain_mode(), one_blas_thread():
                problem = pose(samples.outputs, samples.prompts, settings=result.settings)
                sample = content_sample(problem, samples, _MAX_PAIRS)
                for side, logs in _log_scores(sample, spec).items():
                    # The pairs at hand show how the score changes; its level is that of all pairs.
                    changes = logs - logs[_USED]
                    by_side.setdefault(side, {})[model] = result.scores[spec.name].entropy + changes
        return cls(by_side)

    def range_of_order(self) -> dict[str, Range]:
        """By side, the range in which no two models change places; equal ones may part."""

        def order_holds(logs: Mapping[str, np.ndarray]) -> np.ndarray:
            table = np.stack(list(logs.values()))
            signs = _signs(table[:, None, :] - table[None, :, :])
            used = signs[:, :, _USED, None]
            return np.asarray(((signs == used) | (used == 0)).all(axis=(0, 1)))

        return self._ranges(order_holds)

    def range_of_difference(self, first: str, second: str) -> dict[str, Range]:
        """By side, the range in which the same one of two models is ahead."""

        def difference_holds(logs: Mapping[str, np.ndarray]) -> np.ndarray:
            signs = _signs(logs[first] - logs[second])
            return np.asarray(signs == signs[_USED])

        return self._ranges(difference_holds)

    def _ranges(self, holds: Callable[[Mapping[str, np.ndarray]], np.ndarray]) -> dict[str, Range]:
        return {side: _around_one(holds(logs)) for side, logs in self.by_side.items()}


def _signs(gaps: np.ndarray) -> np.ndarray:
    return np.where(np.abs(gaps) > _ROUNDING, np.sign(gaps), 0.0)


def _around_one(holds: np.ndarray) -> Range:
    """The multiples next to each other, around 1, at which something holds; else 1 alone."""
    low = high = _USED
    while low > 0 and holds[low - 1]:
        low -= 1
    while high < len(FACTORS) - 1 and holds[high + 1]:
        high += 1
    return FACTORS[low], FACTORS[high]


def _log_scores(problem: Problem, spec: ScoreSpec) -> dict[str, np.ndarray]:
    """By side with a bandwidth, the logarithm of a score at each of the factors."""
    operators = {name: problem.operator(name) for name in spec.operators}
    scaled = {}
    for name, operator in operators.items():
        assert operator is not None
        scaled[name] = _ScaledOperator(operator)
    with_bandwidth = {side for each in scaled.values() for side in each.sides}
    sides = [side for side in ("x", "t") if side in with_bandwidth]
    order, truncation = spec.order_under(problem.settings.order), problem.truncation
    # Means are the same at every bandwidth, and only changes are used.
    means = dict.fromkeys(set(spec.terms) - set(scaled), 0.0)
    used = {name: each.entropy({}, order, truncation) for name, each in scaled.items()}
    logs: dict[str, np.ndarray] = {}
    for side in sides:
        values = []
        for factor in FACTORS:
            entropies = dict(used)
            for name, each in scaled.items():
                if side in each.sides and factor != 1:
                    entropies[name] = each.entropy({side: factor}, order, truncation)
            values.append(spec.log_value(entropies | means))
        logs[side] = np.array(values)
    return logs


class _ScaledOperator:
    """An operator whose bandwidths can be multiplied."""

    def __init__(self, operator: Operator) -> None:
        double = operator.sample(np.arange(operator.size), double=True)
        self._operator = double
        self._tables = [np.asarray(to_numpy(factor.table())) for factor in double.factors]
        self.sides = [f.name for f in double.factors if isinstance(f.kernel, Gaussian)]

    def entropy(self, factors: Mapping[str, float], order: float, truncation: int | None) -> float:
        """The entropy with the bandwidths of some sides multiplied by a factor."""
        tables = []
        for factor, table in zip(self._operator.factors, self._tables, strict=True):
            multiple = 1.0
            if isinstance(factor.kernel, Gaussian):
                multiple = factors.get(factor.name, 1.0)
            # Underflow to zero does no harm: its fourth root, at twice the bandwidth, is 1e-77.
            tables.append(table ** (1 / multiple**2))
        matrix = self._operator.combine(tables)
        return matrix_entropy(matrix, self._operator.masses, order, truncation)
