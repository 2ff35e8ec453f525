"""How much scores depend on the bandwidths: d log score / d log bandwidth, in closed form.

An operator is A = W^(1/2) K W^(1/2), with K the kernel matrix, or the product of two. For a
Gaussian kernel dK / d log b = K o D^2 / b^2 = -2 K o log K, with D the distances, so

    dA / d log b = A o (-2 log K),    dH / d log b = <G, dA / d log b>,

where G, the gradient of the entropy in A, is -2 A / |A|^2 at order 2 and V diag(slopes) V' at other
orders, with V the eigenvectors (`core.entropy.entropy_slopes`). A score is exp of a sum of
entropies, so its logarithm has the sum of their slopes.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from divprism.analysis.content_sample import content_sample
from divprism.core.arrays import Array, array_namespace, outer_take, plain_mode, to_numpy, upload
from divprism.core.entropy import entropy_slopes
from divprism.core.kernels import Gaussian
from divprism.core.operators import Operator, matrix_noise
from divprism.core.spectrum import Spectrum
from divprism.data.samples import Samples
from divprism.engines import one_blas_thread
from divprism.scores.problem import Problem
from divprism.scores.spec import ScoreSpec

__all__ = ["MAX_PAIRS", "Sensitivity", "sensitivity_of"]

MAX_PAIRS = 500
"""Largest number of pairs that sensitivities are computed on; of more, a sample by content."""


class Sensitivity(Mapping[str, dict[str, float]]):
    """By how many percent a score changes with one percent more bandwidth: d log s / d log b.

    A mapping from score to the slopes by side: `sensitivity["conditional_vendi"]["x"]`. A side
    without a bandwidth, such as prompts compared as ids, has no slope. More bandwidth makes items
    more alike: without truncation, the slopes of `vendi` and `conditional_vendi` in the bandwidth
    of the outputs are never positive.

    The slopes are computed when they are first read, because they need eigenvectors where the
    scores need none: O(MAX_PAIRS^3), about 60 ms of one core, and at order 2 a few.

    Parameters
    ----------
    problem : Problem
        At most `MAX_PAIRS` pairs.
    specs : sequence of ScoreSpec
        The scores.
    """

    def __init__(self, problem: Problem, specs: Sequence[ScoreSpec]) -> None:
        self.n = problem.n
        self._problem = problem
        self._specs = tuple(specs)

    @cached_property
    def slopes(self) -> dict[str, dict[str, float]]:
        """By score, then by side: "x" for the outputs, "t" for the prompts."""
        # Matrices of this size are solved as fast on one BLAS thread, and many times faster where
        # other processes use the cores.
        with plain_mode(), one_blas_thread():
            slopes = _score_slopes(self._problem, self._specs)
        return {name: of_score for name, of_score in slopes.items() if of_score}

    def __getstate__(self) -> dict[str, Any]:
        # Copies and pickles carry the numbers, not the data and the threads to compute them.
        return {"n": self.n, "slopes": self.slopes}

    def __getitem__(self, score: str) -> dict[str, float]:
        return self.slopes[score]

    def __iter__(self) -> Iterator[str]:
        return iter(self.slopes)

    def __len__(self) -> int:
        return len(self.slopes)

    def __repr__(self) -> str:
        return f"Sensitivity({self.slopes}, n={self.n})"

    def to_dict(self) -> dict[str, Any]:
        """Plain values, every number finite."""
        return {"n": self.n, "scores": {name: dict(slopes) for name, slopes in self.items()}}


def sensitivity_of(
    problem: Problem, specs: Sequence[ScoreSpec], samples: Samples, *, weights: object = None
) -> Sensitivity | None:
    """The slopes of some scores in the bandwidths; None if no side has one.

    Exact up to `MAX_PAIRS` pairs, and of a sample of that size beyond (`content_sample`). `samples`
    and `weights` are the data that the problem was posed with.
    """
    sides = [side for side in (problem.x, problem.t) if side is not None]
    if not any(isinstance(side.kernel, Gaussian) for side in sides):
        return None
    with plain_mode():
        sample = content_sample(problem, samples, MAX_PAIRS, weights=weights)
    return Sensitivity(sample, specs)


def _score_slopes(problem: Problem, specs: Sequence[ScoreSpec]) -> dict[str, dict[str, float]]:
    """By score and side, d log score / d log bandwidth."""
    settings = problem.settings
    orders = list(dict.fromkeys(spec.order_under(settings.order) for spec in specs))
    solved: dict[Operator, list[_Slopes]] = {}
    slopes = {}
    for spec in specs:
        index = orders.index(spec.order_under(settings.order))
        if spec.is_group_mean:
            slopes[spec.name] = _group_mean(problem, spec.order_under(settings.order))
            continue
        total: dict[str, float] = {}
        # Means do not depend on a bandwidth.
        for name, sign in spec.operators.items():
            operator = problem.operator(name)
            assert operator is not None
            # Operators may have two names: prompts that are ids are their own ids.
            if operator not in solved:
                solved[operator] = _entropy_slopes(operator, orders, problem.truncation)
            for side, slope in solved[operator][index].by_side.items():
                total[side] = total.get(side, 0.0) + sign * slope
        slopes[spec.name] = total
    return slopes


def _group_mean(problem: Problem, order: float) -> dict[str, float]:
    """The slope of the logarithm of a mean over groups: that of each, by its share of the mean."""
    assert problem.within_labels is not None
    parts = []
    for group in problem.within_labels.groups():
        [slopes] = _entropy_slopes(group, [order], problem.truncation)
        parts.append((float(group.masses.sum()) * math.exp(slopes.entropy), slopes.by_side))
    mean = math.fsum(share for share, _ in parts)
    return {
        side: math.fsum(share * by_side[side] for share, by_side in parts) / mean
        for side in parts[0][1]
    }


@dataclass(frozen=True)
class _Slopes:
    """An entropy, and its slope in the logarithm of the bandwidth of each side that has one."""

    entropy: float
    by_side: dict[str, float]


@dataclass(frozen=True, eq=False)
class _Block:
    """A connected part of an operator: its matrix, and what a bandwidth changes in it.

    `changes` holds dA / d log b by side.
    """

    matrix: Array
    changes: dict[str, Array]
    noise: float

    @classmethod
    def of(cls, part: Operator) -> "_Block":
        # In double precision, in which spectra are computed whatever the data.
        part = part.sample(np.arange(part.size), double=True)
        tables = [factor.table() for factor in part.factors]
        matrix = part.combine(tables)
        root = upload(np.sqrt(part.masses), matrix)
        matrix = matrix * root[:, None] * root[None, :]
        changes = {}
        for (factor, index), table in zip(part.indexed_factors(), tables, strict=True):
            if isinstance(factor.kernel, Gaussian):
                xp = array_namespace(table)
                # A kernel value that underflows to zero stays zero, and so does its product.
                exponents = -2 * xp.log(xp.where(table > 0, table, 1.0))
                changes[factor.name] = matrix * outer_take(exponents, upload(index, table))
        return cls(matrix, changes, matrix_noise(part, matrix))


def _entropy_slopes(
    operator: Operator, orders: Sequence[float], truncation: int | None
) -> list[_Slopes]:
    """The entropy of an operator, of any trace, and its slopes, at each of some orders."""
    sides = [f.name for f in operator.factors if isinstance(f.kernel, Gaussian)]
    blocks, constant = [], []
    for part in operator.parts():
        if part.is_diagonal:
            # Distinct points with nothing in common: the masses are the eigenvalues.
            constant.append(part.masses)
        else:
            blocks.append(_Block.of(part))
    masses = np.concatenate([np.zeros(0), *constant])
    by_order = {}
    if 2 in orders and truncation is None:
        by_order[2.0] = _by_squares(blocks, masses, sides, float(operator.masses.sum()))
    others = [order for order in orders if order not in by_order]
    if others:
        spectral = _by_eigenvectors(blocks, masses, sides, others, truncation)
        by_order |= dict(zip(others, spectral, strict=True))
    return [by_order[order] for order in orders]


def _by_squares(
    blocks: Sequence[_Block], masses: np.ndarray, sides: Sequence[str], trace: float
) -> _Slopes:
    """Order 2: H = -log |A|^2 for a matrix of trace one."""
    norm = float(masses @ masses) + math.fsum(_inner(b.matrix, b.matrix) for b in blocks)
    by_side = {}
    for side in sides:
        change = math.fsum(_inner(block.matrix, block.changes[side]) for block in blocks)
        by_side[side] = -2 * change / norm
    return _Slopes(2 * math.log(trace) - math.log(norm), by_side)


def _by_eigenvectors(
    blocks: Sequence[_Block],
    masses: np.ndarray,
    sides: Sequence[str],
    orders: Sequence[float],
    truncation: int | None,
) -> list[_Slopes]:
    """Any order, from one decomposition of each block."""
    solved = [array_namespace(block.matrix).linalg.eigh(block.matrix) for block in blocks]
    values = [to_numpy(eigenvalues) for eigenvalues, _ in solved]
    noise = max([block.noise for block in blocks], default=0.0)
    every = np.concatenate([masses, *values])
    # Where the eigenvalues of each block begin among all of them.
    starts = masses.size + np.cumsum([0, *(part.size for part in values)])
    slopes = []
    for order in orders:
        entropy, of_values = _eigenvalue_slopes(every, noise, order, truncation)
        by_side = dict.fromkeys(sides, 0.0)
        for block, (_, vectors), start in zip(blocks, solved, starts, strict=False):
            own = of_values[start : start + vectors.shape[0]]
            gradient = (vectors * upload(own, vectors)[None, :]) @ vectors.T
            for side in sides:
                by_side[side] += _inner(gradient, block.changes[side])
        slopes.append(_Slopes(entropy, by_side))
    return slopes


def _eigenvalue_slopes(
    eigenvalues: np.ndarray, noise: float, order: float, truncation: int | None
) -> tuple[float, np.ndarray]:
    """The entropy of eigenvalues, brought to the sum one, and its derivative in each of them.

    Those that rounding leaves in place of zeros are left out, as in the entropy of a score.
    """
    spectrum = Spectrum.from_eigenvalues(eigenvalues, noise=noise, method="exact")
    if order < 1:
        spectrum = spectrum.above_floor()
    kept = np.argsort(-eigenvalues)[: spectrum.values.size]
    total = float(eigenvalues[kept].sum())
    shares = eigenvalues[kept] / total
    entropy, of_shares = entropy_slopes(shares, order, truncation)
    slopes = np.zeros(eigenvalues.size)
    # Each eigenvalue also changes the sum that all of them are divided by.
    slopes[kept] = (of_shares - of_shares @ shares) / total
    return entropy, slopes


def _inner(a: Array, b: Array) -> float:
    return float(array_namespace(a).sum(a * b))
