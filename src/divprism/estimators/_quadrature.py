"""Spectral measures with errors from Krylov spaces: quadrature, deflation, calibration.

For a random vector v with E[v v'] = 1, the mean of v' f(A) v is tr f(A). This module turns a block
of such probes v_1 ... v_s into weights on values such that sum(weights * f(values)) estimates
tr f(A) for all f at once. It combines three techniques.

Quadrature
    Let theta_j, y_j be the eigenpairs of A projected on the common Krylov space of m steps. Then
    v' f(A) v is about sum_j (v . y_j)^2 f(theta_j), which is exact for polynomials up to degree
    2 m - 1: the Gauss rule. Changing the projected matrix so that zero becomes an eigenvalue gives
    the Gauss-Radau rule. The errors of the two rules have the signs of an even and of an odd
    derivative of f of high order, which for x log x and for powers with a fractional exponent are
    opposite. The changes of the rules in the last step show where between them the true value lies.

Deflation
    For fixed orthonormal y_i and numbers lambda_i, sum_i ((v . y_i)^2 - 1) f(lambda_i) has mean
    zero and may be subtracted to reduce the variance. The best y_i are the Ritz vectors of *other*
    probes: they are independent of v, so even vectors that have not converged cause no bias. The
    probes are therefore divided into folds, and each fold is deflated with the Krylov space of the
    folds before it. Given those, its error has mean zero, so errors of different folds are
    uncorrelated and their squares add up to a valid standard error. (If each fold were deflated
    with all others, its error would depend on theirs.)

Calibration
    tr A and tr A^2 are known. The weights of each probe are changed to reproduce both, by the
    smallest change in the norm of the variance that deflation leaves: this is the regression
    estimator with x and x^2 as control variates. The deviation of a probe before the change, in
    standard deviations, is its surprise, which has mean zero. The average over the probes gives
    folds with less remaining variance more weight, and then adjusts these shares as little as
    possible so that the surprises average to zero. That corrects errors of the regression.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeAlias

import numpy as np

from divprism.core.spectrum import NEGATIVE_MARGIN, spectral_floor
from divprism.estimators._krylov import BlockKrylov

__all__ = ["Batch", "Function"]

Function: TypeAlias = Callable[[np.ndarray], np.ndarray]
"""A function f of eigenvalues, applied entry by entry."""

_FOLDS = 8

# Singular values of the 2 x 2 covariance below this share of the largest count as zero: if all
# eigenvalues are equal, x and x^2 are the same control variate.
_SINGULAR = 1e-13

# Eigenvalues below this share of the largest are left out of inverses, or below this multiple of
# the machine epsilon if that is less.
_RANK = 1e-9
_ROUNDING_SHARE = 64.0


@dataclass(frozen=True)
class Rule:
    """A quadrature rule: nodes, shape (p,), and their weights for each probe, shape (s, p)."""

    nodes: np.ndarray
    weights: np.ndarray

    def trace(self, f: Function) -> float:
        """Mean over the probes of sum(weights * f(nodes))."""
        return float(self.weights.mean(axis=0) @ f(np.maximum(self.nodes, 0.0)))


@dataclass(frozen=True)
class _Eigenpairs:
    """Eigenpairs of a compressed matrix, largest first."""

    nodes: np.ndarray
    vectors: np.ndarray

    @classmethod
    def of(cls, matrix: np.ndarray) -> "_Eigenpairs":
        nodes, vectors = np.linalg.eigh(matrix)
        return cls(nodes[::-1], vectors[:, ::-1])

    def rule(self, start: np.ndarray) -> Rule:
        """The rule for the probes V = block @ start, with `block` the first of the basis."""
        return Rule(self.nodes, (start.T @ self.vectors[: start.shape[0]]) ** 2)


class Batch:
    """The information that one block of probes gives about one matrix.

    Parameters
    ----------
    krylov : BlockKrylov
        The Krylov space of the probes, which may grow between calls.
    noise : float
        Radius of the eigenvalues that rounding puts in place of zeros.
    data_noise : float
        Eigenvalues below this are rounding errors of the data, and count as zero.
    """

    def __init__(self, krylov: BlockKrylov, noise: float, data_noise: float = 0.0) -> None:
        self.krylov = krylov
        self.noise = noise
        self.data_noise = data_noise
        self._solved: dict[int, _Eigenpairs] = {}
        self._rules: dict[int, tuple[Rule, Rule]] = {}
        self._atoms: dict[tuple[object, ...], _Atoms] = {}

    @property
    def exhausted(self) -> bool:
        """Whether the Krylov space is invariant, so that the quadrature is exact."""
        return self.krylov.is_exhausted(self.noise)

    @property
    def can_grow(self) -> bool:
        """Whether another product would add to the Krylov space."""
        return not self.krylov.is_full and not self.exhausted

    def solved(self, steps: int) -> _Eigenpairs:
        """Eigenpairs of the matrix compressed to the space after `steps` steps."""
        if steps not in self._solved:
            size = steps * self.krylov.width
            self._solved[steps] = _Eigenpairs.of(self.krylov.compressed[:size, :size])
        return self._solved[steps]

    @property
    def rank_share(self) -> float:
        """Eigenvalues below this share of the largest are left out of inverses."""
        # At orders below one, which work in double precision, eigenvalues of 1e-12 count. A Radau
        # rule without them has negative nodes in place of zeros, and no longer bounds the truth.
        return min(_RANK, _ROUNDING_SHARE * self.krylov.epsilon)

    def rules(self, steps: int) -> tuple[Rule, Rule]:
        """The Gauss and the Gauss-Radau rule after `steps` steps."""
        if steps not in self._rules:
            gauss = self.solved(steps).rule(self.krylov.start)
            radau = gauss
            is_exact = steps == self.krylov.steps and self.exhausted
            if not is_exact:
                radau = _Eigenpairs.of(self._with_zeros(steps)).rule(self.krylov.start)
            self._rules[steps] = (gauss, radau)
        return self._rules[steps]

    def _with_zeros(self, steps: int) -> np.ndarray:
        """The compressed matrix with its last diagonal block changed to have s zero eigenvalues."""
        s = self.krylov.width
        p = steps * s
        if steps == 1:
            return np.zeros((s, s))
        # With T the matrix before the last step and B its coupling to that step, the Schur
        # complement D - B T^-1 B' of the last block D has to vanish.
        changed = self.krylov.compressed[:p, :p].copy()
        before = self.solved(steps - 1)
        large = before.nodes > self.rank_share * before.nodes[0]
        coupled = changed[p - s :, : p - s] @ before.vectors[:, large]
        changed[p - s :, p - s :] = (coupled / before.nodes[large]) @ coupled.T
        return changed

    def floor(self, size: int) -> float:
        """Values below this count as zero, as in an exact solution or because they may be."""
        largest = float(self.solved(self.krylov.steps).nodes[0])
        return max(self.resolution(size), spectral_floor(largest, size, self.data_noise))

    def resolution(self, size: int) -> float:
        """Values below this are indistinguishable from zero."""
        # Three sources: rounding in the matrix, rounding in the basis, and the most negative node
        # with a margin, since a semidefinite matrix has none.
        krylov, nodes = self.krylov, self.solved(self.krylov.steps).nodes
        basis = krylov.epsilon * math.sqrt(krylov.compressed.shape[0] / size) * float(nodes[0])
        return max(self.noise, basis, -NEGATIVE_MARGIN * float(nodes[-1]))

    def gap(self, f: Function) -> float:
        """Difference between the two rules for tr f."""
        gauss, radau = self.rules(self.krylov.steps)
        return abs(gauss.trace(f) - radau.trace(f))

    def mixture(self, f: Function) -> float:
        """Position of tr f between the Gauss rule (0) and the Radau rule (1)."""
        steps = self.krylov.steps
        if steps < 3:
            return 0.5
        # Both rules approach the true value at the same rate, so each is as far from it as its
        # last change is large.
        gauss_before, radau_before = (rule.trace(f) for rule in self.rules(steps - 1))
        gauss_now, radau_now = (rule.trace(f) for rule in self.rules(steps))
        gauss_change, radau_change = abs(gauss_now - gauss_before), abs(radau_now - radau_before)
        total = gauss_change + radau_change
        if total == 0:
            return 0.5
        return gauss_change / total

    def top_error(self) -> float:
        """Error bound of the largest eigenvalue, from its residual."""
        solved, krylov = self.solved(self.krylov.steps), self.krylov
        residual = float(np.linalg.norm(krylov.coupling @ solved.vectors[-krylov.width :, 0]))
        gap = solved.nodes[0] - solved.nodes[1]
        if gap <= 0:
            return residual
        # The error of a separated eigenvalue is quadratic in the residual.
        return min(residual, residual**2 / gap)

    def folds(self) -> Iterator["_Fold"]:
        """The probes in groups, each with its deflation by the groups before it."""
        krylov = self.krylov
        coordinates = np.zeros((krylov.compressed.shape[0], krylov.width))
        # The probes in the basis: they lie in the span of its first block.
        coordinates[: krylov.width] = krylov.start
        vectors = self.solved(krylov.steps).vectors
        gauss, _ = self.rules(krylov.steps)
        multiplicity = gauss.weights.mean(axis=0)
        # The weight of a node is the number of directions it stands for, of which a space contains
        # one. It counts as a single direction if the weight is one up to chance: squares of normal
        # numbers have variance two, and three standard deviations are allowed.
        single = 1 + 3 * math.sqrt(2 / krylov.width)
        for members in np.array_split(np.arange(krylov.width), min(_FOLDS, krylov.width)):
            if members[0] == 0:
                nothing = Rule(np.zeros(0), np.zeros((members.size, 0)))
                yield _Fold(members, nothing, multiplicity)
                continue
            earlier = coordinates[:, : members[0]]
            ritz, space = _ritz_pairs(krylov.compressed, earlier, krylov.steps, self.rank_share)
            deflation = Rule(ritz, 1 - (coordinates[:, members].T @ space) ** 2)
            # The share of each node's direction that the deflating space contains.
            contained = np.minimum(((space.T @ vectors) ** 2).sum(axis=0), 1)
            remaining = np.where(multiplicity > single, multiplicity, 1.0) - contained
            yield _Fold(members, deflation, remaining)

    def atoms(self, f: Function, *, size: int, known: tuple[float, float]) -> "_Atoms":
        """The measure of each probe; `f` decides the mixture of rules and the precision."""
        # Kept, because a batch that is finished is asked again after each further batch.
        key = (self.krylov.steps, f, size, known)
        if key not in self._atoms:
            self._atoms = {key: self._build_atoms(f, size, known)}
        return self._atoms[key]

    def _build_atoms(self, f: Function, size: int, known: tuple[float, float]) -> "_Atoms":
        steps, s = self.krylov.steps, self.krylov.width
        # The rules of the step before serve as alternatives.
        rules = [*self.rules(steps), *self.rules(max(1, steps - 1))]
        folds = list(self.folds())
        # All rules on common values: those of each rule, then those that deflate each fold.
        parts = [*rules, *(fold.deflation for fold in folds)]
        values = np.concatenate([part.nodes for part in parts])
        ends = np.cumsum([0, *(part.nodes.size for part in parts)])
        columns = [slice(start, stop) for start, stop in pairwise(ends)]
        keep = values > self.floor(size)
        ridge = self.krylov.epsilon**2 * size
        by_rule = np.zeros((len(rules), s, values.size))
        precision, surprise = np.zeros(s), np.zeros((s, 2))
        for fold, deflated in zip(folds, columns[len(rules) :], strict=True):
            calibration = _Calibration(values, keep, columns[0], fold.remaining, known, ridge)
            for number, rule in enumerate(rules):
                rows = np.zeros((fold.members.size, values.size))
                rows[:, columns[number]] = rule.weights[fold.members]
                rows[:, deflated] = fold.deflation.weights
                by_rule[number, fold.members], surprise[fold.members] = calibration.apply(rows)
            precision[fold.members] = 1 / calibration.variance(f)
        # Mixed after calibration, since each rule deviates from the known traces differently.
        share = self.mixture(f)
        probes = (1 - share) * by_rule[0] + share * by_rule[1]
        return _Atoms(values[keep], probes[:, keep], precision, surprise, by_rule[:, :, keep])


@dataclass(frozen=True)
class _Fold:
    """Some probes and their deflation.

    `remaining` is the multiplicity that deflation leaves at each node of the Gauss rule; the
    variance of a probe is proportional to it.
    """

    members: np.ndarray
    deflation: Rule
    remaining: np.ndarray


class _Calibration:
    """Changes weights so that they reproduce the known trace and sum of squares.

    The change is remaining * (a + b x) x on the nodes of the Gauss rule. The probes' values of tr A
    and tr A^2 have rounding errors themselves. Without a ridge of that size, an error in the
    largest eigenvalue would be corrected by changing many tiny ones by huge factors.
    """

    def __init__(
        self,
        values: np.ndarray,
        keep: np.ndarray,
        gauss: slice,
        remaining: np.ndarray,
        known: tuple[float, float],
        ridge: float,
    ) -> None:
        top = float(values.max())
        self._values, self._gauss, self._keep, self._ridge = values, gauss, keep, ridge
        self._remaining = np.where(keep[gauss], np.maximum(remaining, 0.0), 0.0)
        # In units of the largest value, so that both control variates have comparable size.
        self._controls = np.where(keep, np.stack([values / top, (values / top) ** 2]), 0.0)
        # Squares of normal numbers have variance two.
        weighted = 2 * self._remaining * self._controls[:, gauss]
        covariance = self._controls[:, gauss] @ weighted.T + ridge * np.eye(2)
        self._spread = np.sqrt(np.diag(covariance))
        # Row i: the change of the weights for a deviation of one in control i.
        self._solve = np.linalg.lstsq(covariance, weighted, rcond=_SINGULAR)[0]
        self._target = np.array([known[0] / top, known[1] / top**2])

    def apply(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Calibrated weights, and the deviation of each row before, in standard deviations."""
        rows = rows.copy()
        deviation = self._target - rows @ self._controls.T
        rows[:, self._gauss] += deviation @ self._solve
        return rows, deviation / self._spread

    def variance(self, f: Function) -> float:
        """Approximate variance of tr f of a probe after calibration."""
        nodes = self._values[self._gauss]
        wanted = np.where(self._keep[self._gauss], f(np.maximum(nodes, 0.0)), 0.0)
        rest = wanted - (self._solve @ wanted) @ self._controls[:, self._gauss]
        sampling = 2 * float(self._remaining @ rest**2)
        rounding = self._ridge * float(np.abs(wanted).max()) ** 2
        # Never zero: precisions are its reciprocals.
        return sampling + rounding + np.finfo(np.float64).tiny


@dataclass(frozen=True)
class _Atoms:
    """Values and the measure of each probe on them.

    Attributes
    ----------
    values : ndarray, shape (v,)
        The values above the rounding floor.
    probes : ndarray, shape (s, v)
        Weights of each probe by the preferred mixture of rules.
    precision : ndarray, shape (s,)
        Reciprocal of the variance of each probe.
    surprise : ndarray, shape (s, 2)
        Deviation of each probe from the known traces before calibration; its mean is zero.
    by_rule : ndarray, shape (4, s, v)
        Weights of each probe by each rule.
    """

    values: np.ndarray
    probes: np.ndarray
    precision: np.ndarray
    surprise: np.ndarray
    by_rule: np.ndarray


def _ritz_pairs(
    matrix: np.ndarray, start: np.ndarray, steps: int, rank_share: float
) -> tuple[np.ndarray, np.ndarray]:
    """Ritz values and vectors of a small matrix on the Krylov space of `start`; largest first."""
    scale = np.abs(matrix).max()
    basis = last = np.linalg.qr(start)[0]
    for _ in range(steps - 1):
        product = matrix @ last
        # Twice, because a single projection leaves a remainder of the size of its rounding.
        for _ in range(2):
            product -= basis @ (basis.T @ product)
        last, size = np.linalg.qr(product)
        # Directions in which the space is exhausted are dropped.
        last = last[:, np.abs(np.diag(size)) > rank_share * scale]
        if last.shape[1] == 0:
            break
        last, _ = np.linalg.qr(last - basis @ (basis.T @ last))
        basis = np.hstack([basis, last])
    values, vectors = np.linalg.eigh(basis.T @ matrix @ basis)
    return values[::-1], basis @ vectors[:, ::-1]
