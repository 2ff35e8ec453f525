"""From a Krylov space to a spectral measure with an error: block Gauss and Gauss-Radau rules, deflation, calibration.

For random v with E v v' = 1, tr f(A) is the mean of v' f(A) v. What is done here, for all f at once, is to turn a block of
probes v_1 .. v_s into weights on values so that sum(weights * f(values)) estimates tr f(A):

- Quadrature. With theta_j, y_j the eigenpairs of A compressed to the common Krylov space, v' f(A) v is about
  sum_j (v . y_j)^2 f(theta_j), exact for polynomials up to degree 2 m - 1 (Gauss). Forcing eigenvalues at zero gives the
  Gauss-Radau rule. For x log x and for powers that are no whole number the two err in opposite directions, because the even
  and the odd derivatives each keep their sign. How far the truth lies from either is read off their last moves.
- Deflation. For any fixed orthonormal y_i and numbers lambda_i, sum_i ((v . y_i)^2 - 1) f(lambda_i) has mean zero and can be
  subtracted. The y_i that take out most of the variance are the Ritz vectors of *other* probes: being independent of v they
  need not have converged, and bias nothing. So the probes are dealt into folds, and each fold is deflated by the Krylov
  space of the folds before it. Given those, its errors have mean zero: errors of different folds are uncorrelated, and
  their squares add up to an honest error. (Were each fold deflated by all others, its error would be tied to theirs.)
- Calibration. tr A and tr A^2 are known. The weights of each probe are changed, as little as possible in the norm of what
  deflation left, so that they reproduce both: the regression estimator with x and x^2 as control variates. By how much the
  two were off, in standard deviations, has mean zero for every probe; the probes are then weighted, as equally as possible,
  so that it is zero on average. That mends what the regression got wrong. Beforehand a fold counts for more the less variance
  deflation left in it.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from divprism.core.spectrum import Spectrum
from divprism.estimators._krylov import BlockKrylov

__all__ = ["Batch", "measure"]

_FOLDS = 8
_UNCERTAIN = 0.1  # of the gap between the Gauss and the Radau rule: how well the place of the truth between them is known
_SINGULAR = 1e-13  # of a 2 x 2 matrix: where all values are equal, x and x^2 are one control
_RANK = 1e-9  # eigenvalues below this share of the largest are left out of inverses
_MEAN_OF_SEMICIRCLE = 4 / (3 * np.pi)  # mean distance from zero, radius one


@dataclass(frozen=True)
class Rule:
    """Nodes, and for each probe their weights."""

    nodes: np.ndarray
    weights: np.ndarray

    def trace(self, f: Callable[[np.ndarray], np.ndarray]) -> float:
        """Mean over the probes of sum(weights * f(nodes))."""
        return float(self.weights.mean(axis=0) @ f(np.maximum(self.nodes, 0.0)))


@dataclass(frozen=True)
class _Solved:
    """Eigenpairs of a compressed matrix, largest first."""

    nodes: np.ndarray
    vectors: np.ndarray

    @classmethod
    def of(cls, matrix: np.ndarray) -> "_Solved":
        nodes, vectors = np.linalg.eigh(matrix)
        return cls(nodes[::-1], vectors[:, ::-1])

    def rule(self, start: np.ndarray) -> Rule:
        """The quadrature for probes that the first block of the basis spans, V = block @ start."""
        return Rule(self.nodes, (start.T @ self.vectors[: start.shape[0]]) ** 2)


class Batch:
    """What one block of probes tells about one matrix.

    Parameters
    ----------
    krylov : BlockKrylov
        The space that the probes span; read again at each call of `rules`.
    noise : float
        Radius of the eigenvalues that rounding puts in place of zeros.
    """

    def __init__(self, krylov: BlockKrylov, noise: float) -> None:
        self.krylov = krylov
        self.noise = noise
        self._solved: dict[int, _Solved] = {}
        self._rules: dict[int, tuple[Rule, Rule]] = {}

    @property
    def exhausted(self) -> bool:
        """Whether the quadrature is exact."""
        return self.krylov.is_exhausted(self.noise)

    def solved(self, steps: int) -> _Solved:
        """Eigenpairs of the matrix compressed to the space after some steps."""
        if steps not in self._solved:
            size = steps * self.krylov.width
            self._solved[steps] = _Solved.of(self.krylov.compressed[:size, :size])
        return self._solved[steps]

    def rules(self, steps: int) -> tuple[Rule, Rule]:
        """The Gauss and the Gauss-Radau rule after some steps."""
        if steps not in self._rules:
            gauss = self.solved(steps).rule(self.krylov.start)
            exact = steps == self.krylov.steps and self.exhausted
            self._rules[steps] = (
                gauss,
                gauss if exact else _Solved.of(self._with_zeros(steps)).rule(self.krylov.start),
            )
        return self._rules[steps]

    def _with_zeros(self, steps: int) -> np.ndarray:
        """The compressed matrix with its last diagonal block changed so that zero is an eigenvalue, once for every probe."""
        s = self.krylov.width
        p = steps * s
        if steps == 1:
            return np.zeros((s, s))
        changed = self.krylov.compressed[:p, :p].copy()
        before = self.solved(steps - 1)
        large = before.nodes > _RANK * before.nodes[0]
        coupled = changed[p - s :, : p - s] @ before.vectors[:, large]
        changed[p - s :, p - s :] = (coupled / before.nodes[large]) @ coupled.T
        return changed

    def floor(self, size: int) -> float:
        """Values below this cannot be told from zero: rounding in the matrix, in the basis, and what came out below zero."""
        krylov, nodes = self.krylov, self.solved(self.krylov.steps).nodes
        basis = krylov.epsilon * math.sqrt(krylov.compressed.shape[0] / size) * float(nodes[0])
        return max(self.noise, basis, -1.2 * float(nodes[-1]))

    def gap(self, f: Callable[[np.ndarray], np.ndarray]) -> float:
        """How much the two rules differ on tr f."""
        gauss, radau = self.rules(self.krylov.steps)
        return abs(gauss.trace(f) - radau.trace(f))

    def mixture(self, f: Callable[[np.ndarray], np.ndarray]) -> float:
        """Where between Gauss (0) and Radau (1) tr f lies, from the last move of each: both close in on it at one rate."""
        steps = self.krylov.steps
        if steps < 3:
            return 0.5
        before, now = (tuple(rule.trace(f) for rule in self.rules(m)) for m in (steps - 1, steps))
        moves = abs(now[0] - before[0]), abs(now[1] - before[1])
        return moves[0] / (moves[0] + moves[1]) if sum(moves) > 0 else 0.5

    def top_error(self) -> float:
        """Error of the largest eigenvalue, by its residual."""
        solved, krylov = self.solved(self.krylov.steps), self.krylov
        residual = float(np.linalg.norm(krylov.coupling @ solved.vectors[-krylov.width :, 0]))
        gap = solved.nodes[0] - solved.nodes[1]
        return min(residual, residual**2 / gap) if gap > 0 else residual

    def folds(self) -> Iterator["_Fold"]:
        """The probes in groups, each with what those before it deflate."""
        krylov = self.krylov
        coordinates = np.zeros((krylov.compressed.shape[0], krylov.width))
        coordinates[: krylov.width] = krylov.start
        vectors = self.solved(krylov.steps).vectors
        base = self.rules(krylov.steps)[0].weights.mean(axis=0)
        # a node stands for as many directions as its weight says, of which a space can hold one; for one alone, if the weight
        # could be one but for chance (squares of normal numbers have variance two)
        single = 1 + 3 * math.sqrt(2 / krylov.width)
        for members in np.array_split(np.arange(krylov.width), min(_FOLDS, krylov.width)):
            if members[0] == 0:
                yield _Fold(members, Rule(np.zeros(0), np.zeros((members.size, 0))), base)
                continue
            ritz, space = _ritz_pairs(krylov.compressed, coordinates[:, : members[0]], krylov.steps)
            rule = Rule(ritz, 1 - (coordinates[:, members].T @ space) ** 2)
            held = np.minimum(((space.T @ vectors) ** 2).sum(axis=0), 1)
            yield _Fold(members, rule, np.where(base > single, base, 1.0) - held)

    def atoms(
        self, f: Callable[[np.ndarray], np.ndarray], *, size: int, known: tuple[float, float]
    ) -> "_Atoms":
        """The measure of each probe; `f` decides the mixture of the rules and what the probes count."""
        steps, s = self.krylov.steps, self.krylov.width
        rules = [*self.rules(steps), *self.rules(max(1, steps - 1))]
        folds = list(self.folds())
        parts = [*rules, *(fold.deflation for fold in folds)]
        ends = np.cumsum([0, *(part.nodes.size for part in parts)])
        place = [slice(start, stop) for start, stop in pairwise(ends)]
        values = np.concatenate([part.nodes for part in parts])
        keep = values > self.floor(size)
        by_rule = np.zeros((len(rules), s, values.size))
        precision, surprise = np.zeros(s), np.zeros((s, 2))
        for fold, where in zip(folds, place[len(rules) :], strict=True):
            calibration = _Calibration(
                values, keep, place[0], fold.base, known, self.krylov.epsilon**2 * size
            )
            for number, rule in enumerate(rules):
                rows = np.zeros((fold.members.size, values.size))
                rows[:, place[number]] = rule.weights[fold.members]
                rows[:, where] = fold.deflation.weights
                by_rule[number, fold.members], surprise[fold.members] = calibration.apply(rows)
            precision[fold.members] = 1 / calibration.variance(f)
        share = self.mixture(f)
        probes = (1 - share) * by_rule[0] + share * by_rule[1]
        return _Atoms(values[keep], probes[:, keep], precision, surprise, by_rule[:, :, keep])


@dataclass(frozen=True)
class _Fold:
    """Some probes, what is subtracted from them, and the norm of what that leaves, on the nodes of the Gauss rule."""

    members: np.ndarray
    deflation: Rule
    base: np.ndarray


class _Calibration:
    """Weights -> weights with the known trace and sum of squares, as far as rounding leaves these two to be seen.

    The change is base * (a + b x) x on the nodes of the Gauss rule. What the probes say about tr A and tr A^2 carries rounding
    errors itself; without the ridge for those, a bulk of tiny eigenvalues would be moved by huge factors to mend an error in
    the largest.
    """

    def __init__(
        self,
        values: np.ndarray,
        keep: np.ndarray,
        gauss: slice,
        base: np.ndarray,
        known: tuple[float, float],
        ridge: float,
    ) -> None:
        top = float(values.max())
        self._values, self._gauss, self._keep, self._ridge = values, gauss, keep, ridge
        self._base = np.where(keep[gauss], np.maximum(base, 0.0), 0.0)
        self._controls = np.where(keep, np.stack([values / top, (values / top) ** 2]), 0.0)
        weighted = 2 * self._base * self._controls[:, gauss]
        covariance = self._controls[:, gauss] @ weighted.T + ridge * np.eye(2)
        self._spread = np.sqrt(np.diag(covariance))
        self._solve = np.linalg.lstsq(covariance, weighted, rcond=_SINGULAR)[0]
        self._target = np.array([known[0] / top, known[1] / top**2])

    def apply(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Calibrated weights, a row for each row, and by how many standard deviations each row was off before."""
        rows = rows.copy()
        off = self._target - rows @ self._controls.T
        rows[:, self._gauss] += off @ self._solve
        return rows, off / self._spread

    def variance(self, f: Callable[[np.ndarray], np.ndarray]) -> float:
        """About what is left of the variance of tr f of a probe."""
        nodes = self._values[self._gauss]
        wanted = np.where(self._keep[self._gauss], f(np.maximum(nodes, 0.0)), 0.0)
        rest = wanted - (self._solve @ wanted) @ self._controls[:, self._gauss]
        return (
            2 * float(self._base @ rest**2)
            + self._ridge * float(np.abs(wanted).max()) ** 2
            + np.finfo(np.float64).tiny
        )


@dataclass(frozen=True)
class _Atoms:
    """Values and, on them, the measure of each probe: by the mixture of rules preferred, and by each rule.

    `precision` is the reciprocal of the variance of each probe, `surprise` two numbers per probe with mean zero.
    """

    values: np.ndarray
    probes: np.ndarray
    precision: np.ndarray
    surprise: np.ndarray
    by_rule: np.ndarray


def _ritz_pairs(matrix: np.ndarray, start: np.ndarray, steps: int) -> tuple[np.ndarray, np.ndarray]:
    """Ritz values and vectors of a small matrix on the Krylov space of some vectors; largest first."""
    scale = np.abs(matrix).max()
    basis = last = np.linalg.qr(start)[0]
    for _ in range(steps - 1):
        product = matrix @ last
        for _ in range(2):
            product -= basis @ (basis.T @ product)
        last, size = np.linalg.qr(product)
        last = last[:, np.abs(np.diag(size)) > _RANK * scale]
        if last.shape[1] == 0:
            break
        last, _ = np.linalg.qr(last - basis @ (basis.T @ last))
        basis = np.hstack([basis, last])
    values, vectors = np.linalg.eigh(basis.T @ matrix @ basis)
    return values[::-1], basis @ vectors[:, ::-1]


def measure(
    batches: Sequence[Batch],
    f: Callable[[np.ndarray], np.ndarray],
    *,
    size: int,
    squares: float,
    trace: float,
) -> Spectrum:
    """The spectral measure that batches of probes of one matrix estimate together.

    Parameters
    ----------
    batches
        At least one.
    f
        Function whose trace matters most.
    size
        Rows of the matrix.
    squares, trace
        Known ||A||_F^2 and tr A.
    """
    atoms = [batch.atoms(f, size=size, known=(trace, squares)) for batch in batches]
    nodes, precision, surprise = (
        np.concatenate([getattr(a, name) for a in atoms])
        for name in ("values", "precision", "surprise")
    )
    ends = np.cumsum([0, *(a.precision.size for a in atoms)])

    def mean(shares: np.ndarray, name: str = "probes") -> np.ndarray:
        pieces = [
            shares[start:stop] @ getattr(a, name)
            for a, (start, stop) in zip(atoms, pairwise(ends), strict=True)
        ]
        return np.concatenate(pieces, axis=-1)

    shares = _balanced(precision, surprise)
    weights, rules = mean(shares), mean(shares, "by_rule")
    left_out = np.array(
        [
            mean(_balanced(np.where(others, precision, 0.0), surprise))
            for others in ~np.eye(shares.size, dtype=bool)
        ]
    )
    # few probes that count tell their spread poorly: by Student's distribution errors exceed it more often
    freedom = max(3.0, 1 / float(shares @ shares) - 2)
    left_out = weights + math.sqrt(freedom / (freedom - 2)) * (left_out - weights)
    # what rounding may have put in place of zeros, or hidden: half of the missing eigenvalues, spread over a semicircle
    missing = max(0.0, size - float(weights.sum()))
    floor = max(batch.floor(size) for batch in batches)
    values = np.append(nodes, max(_MEAN_OF_SEMICIRCLE * floor, np.finfo(np.float64).tiny))
    shifts = np.array(
        [
            np.append(_UNCERTAIN * (rules[0] - rules[1]), 0.0),
            np.append(np.zeros(weights.size), missing / 2),
            # rounding in a product moves an eigenvalue by about a tenth of floor^2 over the eigenvalue (measured)
            np.append(0.1 * weights * (floor / nodes) ** 2, 0.0),
        ]
    )
    order = np.argsort(values)[::-1]
    return Spectrum(
        values[order] / trace,
        np.append(weights, 0.0)[order],
        "lanczos",
        replicates=np.pad(left_out, ((0, 0), (0, 1)))[:, order],
        shifts=shifts[:, order],
        alternatives=np.pad(rules, ((0, 0), (0, 1)))[:, order],
        squares=squares / trace**2,
        top_error=min(batch.top_error() for batch in batches) / trace,
        rounding=2 * batches[0].krylov.epsilon,
    )


def _balanced(precision: np.ndarray, surprise: np.ndarray) -> np.ndarray:
    """Shares of the probes that sum to one and average the surprises to zero, near those that the precisions give.

    Their change is the least in sum(change^2 / share): on average over the probes, what it does to tr f is what regressing
    tr f on the surprises would do.
    """
    shares = precision / precision.sum()
    centred = surprise - shares @ surprise
    pull = np.linalg.lstsq((centred * shares[:, None]).T @ centred, shares @ surprise, rcond=_RANK)[
        0
    ]
    return shares * (1 - centred @ pull)
