"""Lanczos: entropies with an error, without an eigendecomposition."""

import itertools
import math
from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from divprism.core.arrays import Array, array_namespace, machine_epsilon, to_numpy, upload
from divprism.core.entropy import entropy_estimate
from divprism.core.operators import ColumnNoise, HadamardOperator, Operator, in_single
from divprism.core.spectrum import Spectrum
from divprism.core.sweep import Sweep, common_sweeps
from divprism.core.tiles import row_blocks
from divprism.engines import (
    RESOURCES,
    Resources,
    one_blas_thread,
    side_by_side,
    spell_bytes,
    spell_seconds,
)
from divprism.errors import ArgumentError
from divprism.estimators._direct import (
    CHEAP_SIZE,
    direct_bytes,
    direct_spectra,
    largest_part,
)
from divprism.estimators._krylov import BlockKrylov
from divprism.estimators._measure import measure
from divprism.estimators._quadrature import Batch, Function
from divprism.estimators.base import QUESTION, Cost, Estimator, Question, check_tolerance

__all__ = ["Lanczos"]

# Steps of the recurrence: the most if the depth is open, those that most data need, and those
# before the error is first estimated.
_MOST_STEPS = 24
_USUAL_STEPS = 8
_FEWEST_STEPS = 4

# Probes in all, and in one batch.
_MOST_PROBES = 256
_MOST_IN_BATCH = 64

# Basis vectors of a later batch: its compressed matrix costs the cube of their number.
_MOST_COLUMNS = 1024

# Seconds from which on work is announced, and from which on another estimator is offered.
_LONG = 5.0
_VERY_LONG = 300.0

# Gap between the two rules, in tolerances, at which the depth suffices: the position of the true
# value between them is known to a tenth of the gap.
_SETTLED = 2.0

# Beyond this order only the largest eigenvalues matter, and powers would underflow.
_HIGH_ORDER = 8.0

# Points whose kernel values are computed again in double precision.
_SAMPLE = 256


@dataclass(frozen=True)
class Lanczos(Estimator):
    """A dozen products with the matrix replace its eigenvalues: pick it from a few thousand items.

    Stochastic Lanczos quadrature with a block of random probes, deflated and calibrated (see
    `_quadrature`). Supports every kernel, order and truncation. K_X, K_T and their product use the
    same sweeps and the same probes, so common errors cancel in a conditional score. Matrices of up
    to num_probes x depth items (64 and 24 where left open) are solved exactly, and with both left
    open also those of up to 3,000 items whose first probes miss the tolerance: the solution takes
    about a second, and further probes longer.

    O(n^2 d) for the kernel values, once if they fit the memory budget, else in each of `depth`
    sweeps; O(n^2 num_probes depth) for the products. 4 n^2 bytes for the kept kernel values of both
    sides, or as little as 12 n num_probes depth.

    Attributes
    ----------
    num_probes : int or None
        Number of random vectors; None adds vectors until the error meets `tolerance`.
    depth : int or None
        Steps of the recurrence; None continues until the quadrature meets `tolerance`.
    tolerance : float
        Standard error of the entropies to aim at, which is the relative error of the scores.
    """

    num_probes: int | None = None
    depth: int | None = None
    tolerance: float = 1e-3

    def __post_init__(self) -> None:
        self._check("num_probes", 8)
        self._check("depth", 2)
        check_tolerance(self.tolerance)

    def _check(self, name: str, least: int) -> None:
        value = getattr(self, name)
        if value is None:
            return
        if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
            raise ArgumentError(
                f"`{name}` must be a whole number of at least {least}, or None to choose it; "
                f"got {value!r}."
            )
        object.__setattr__(self, name, int(value))

    @property
    def _first_probes(self) -> int:
        """Probes of the first batch."""
        if self.num_probes is not None:
            return self.num_probes
        if self.tolerance < 5e-3:
            return 32
        return 16

    @property
    def _exact_size(self) -> int:
        """Size up to which a matrix is solved exactly: the largest Krylov space would fill it."""
        # Solving the compressed matrices then costs more than solving the matrix itself.
        return (self.num_probes or _MOST_IN_BATCH) * (self.depth or _MOST_STEPS)

    @property
    def promise(self) -> float:
        """The tolerance if probes can be added to meet it, otherwise infinity."""
        if self.num_probes is not None:
            return math.inf
        return self.tolerance

    def cost(self, n: int, d_x: int, d_t: int | None = None) -> Cost:
        """Cost at the usual number of steps, with all kernel values kept."""
        width, matrices, factors = d_x, 1, 1
        if d_t is not None:
            width, matrices, factors = d_x + d_t, 3, 2
        steps = self.depth or _USUAL_STEPS
        flops = n**2 * width + 2 * n**2 * matrices * self._first_probes * steps
        return Cost(flops, 2 * n**2 * factors + self._least_bytes(n, matrices), steps)

    def _least_bytes(self, n: int, matrices: int) -> float:
        """Bytes of the bases and of a few blocks of vectors, in single precision."""
        return 4 * n * matrices * self._first_probes * ((self.depth or _MOST_STEPS) + 8)

    def spectra(
        self,
        operators: Sequence[Operator],
        question: Question = QUESTION,
        resources: Resources = RESOURCES,
    ) -> list[Spectrum]:
        """The spectrum of each operator."""
        small = [operator for operator in operators if largest_part(operator) <= self._exact_size]
        spectra = dict(zip(small, direct_spectra(small, resources), strict=True))
        large = [operator for operator in operators if operator not in spectra]
        if large:
            # Rounding is measured on kernel values, whose bits depend on the threads of BLAS.
            with one_blas_thread():
                run = _Run(self, large, question, resources)
            with resources.workers(threads=run.sweeps[0].in_threads) as executor:
                spectra.update(zip(large, run.spectra(executor), strict=True))
        return [spectra[operator] for operator in operators]


class _Run:
    """One estimation: the sweeps, the probes, and the rule to stop."""

    def __init__(
        self,
        settings: Lanczos,
        operators: Sequence[Operator],
        question: Question,
        resources: Resources,
    ) -> None:
        self.settings, self.question, self.resources = settings, question, resources
        self.given = operators
        self.operators, self.noise = self._in_precision(operators)
        self.data_noise = {operator: self._data_noise(operator) for operator in self.operators}
        self.rng = np.random.default_rng(question.rng)
        # Depth and probes are chosen for the first order; the others use the same measure.
        self.order = question.orders[0]
        self.effort_order = _effort_order(self.order, question.truncation)
        self.function = _trace_function(self.effort_order)
        self.groups = common_sweeps(self.operators)
        self.sweeps = self._build_sweeps()
        self._announce()
        self.squares: dict[Operator, float] = {}
        self.batches: dict[Operator, list[Batch]] = {operator: [] for operator in self.operators}

    def _in_precision(
        self, operators: Sequence[Operator]
    ) -> tuple[Sequence[Operator], dict[Operator, float]]:
        """The operators, in single precision if that suffices, and their rounding noise."""
        # Orders below one are sensitive to noise in place of zeros. At others it adds at most the
        # entropy that it would have if all eigenvalues were zero.
        if min(self.question.orders) >= 1:
            single = in_single(operators)
            noise = {operator: _rounding(operator) for operator in single}
            worst = max(_noise_entropy(operator, noise[operator]) for operator in single)
            if worst < 2 * self.settings.tolerance:
                return single, noise
        return operators, {operator: _rounding(operator) for operator in operators}

    def _data_noise(self, operator: Operator) -> float:
        """Eigenvalues below this are rounding errors of the data."""
        # From order one on they add nothing that matters.
        if min(self.question.orders) >= 1:
            return 0.0
        columns = _spaced(operator.size)
        values_at, noise = operator.columns(columns), ColumnNoise.of(operator, columns)
        root, sums = np.sqrt(operator.masses), np.zeros((2, columns.size))
        for rows in row_blocks(operator.size):
            values = to_numpy(values_at(rows)).astype(np.float64)
            sums += noise.sums(rows, values * root[rows, None] * root[None, columns])
        return noise.total(sums)

    @property
    def _may_solve_exactly(self) -> bool:
        """Whether an exact solution replaces further probes: it takes about a second."""
        is_open = self.settings.num_probes is None and self.settings.depth is None
        return is_open and max(operator.size for operator in self.operators) <= CHEAP_SIZE

    def _build_sweeps(self) -> list[Sweep]:
        largest = max(operator.size for operator in self.operators)
        least = self.settings._least_bytes(largest, len(self.operators))
        if self._may_solve_exactly:
            # Required in advance: whether the memory suffices must not change the answer.
            least = max(least, direct_bytes(self.given))
        self.resources.require(
            least,
            f"Lanczos() on {largest:,} items",
            "use the Nystrom or the Fourier estimator",
        )
        room = self.resources.budget - least
        sweeps = []
        # Earlier groups, which hold the product, have priority.
        for group in self.groups:
            sweep = Sweep.over(group, self.resources, max(0, int(room)), int(least))
            # A sweep that does not fit as a whole leaves no room for the next.
            room -= sweep.full_bytes
            sweeps.append(sweep)
        return sweeps

    def _announce(self) -> None:
        """Report the plan if the work takes long."""
        # Timing a tile takes time itself.
        if self.resources.progress is None:
            return
        full = sum(sweep.full_bytes for sweep in self.sweeps)
        kept = sum(sweep.kept_bytes for sweep in self.sweeps)
        steps = self.settings.depth or _USUAL_STEPS
        # Tiles that are not kept are computed again in each step.
        builds = 1 + (steps - 1) * (1 - kept / full)
        seconds = 0.0
        for sweep in self.sweeps:
            build, multiply = sweep.seconds(self.settings._first_probes)
            seconds += builds * build + steps * multiply
        if seconds <= _LONG:
            return
        held = f"{spell_bytes(kept)} of {spell_bytes(full)} kept"
        if kept == full:
            held = f"{spell_bytes(kept)} of kernel values"
        plan = f"Lanczos: {steps} sweeps or so, {held}, about {spell_seconds(seconds)}"
        factors = itertools.chain.from_iterable(operator.factors for operator in self.operators)
        if seconds > _VERY_LONG and all(factor.kernel.has_fourier_features for factor in factors):
            plan += "; one pass over the data, with a larger error, takes `estimator=fourier`"
        self.resources.report_progress(plan, 0.0)

    def spectra(self, executor: Executor) -> list[Spectrum]:
        """Run batches of probes until the error meets the tolerance, or no longer falls."""
        tolerance = self.settings.tolerance
        probes = self.settings._first_probes
        self._add_batch(executor, probes, self.settings.depth)
        spectra, error = self._assess(executor)
        if self.settings.num_probes is not None:
            return spectra
        if error > tolerance and self._may_solve_exactly:
            return direct_spectra(self.given, self.resources)
        while error > tolerance and probes < _MOST_PROBES:
            # The variance falls as one over the number of probes.
            wanted = math.ceil(probes * ((error / tolerance) ** 2 - 1) / 8) * 8
            depth = self._deepest()
            most = min(_MOST_IN_BATCH, _MOST_PROBES - probes, max(8, _MOST_COLUMNS // depth))
            more = min(max(wanted, 8), most)
            self._add_batch(executor, more, depth)
            # Half of the gain that random errors would show: systematic ones stay.
            enough = 0.5 * error * (1 + math.sqrt(probes / (probes + more)))
            probes += more
            spectra, error = self._assess(executor)
            if error > enough:
                break
        return spectra

    def _deepest(self) -> int:
        """Largest number of steps of any batch so far."""
        return max(batch.krylov.steps for held in self.batches.values() for batch in held)

    def _assess(self, executor: Executor) -> tuple[list[Spectrum], float]:
        """The spectra so far, and the root of the summed squared errors of their entropies."""

        def spectrum_and_error(operator: Operator) -> tuple[Spectrum, float]:
            spectrum = measure(
                self.batches[operator],
                self.function,
                size=operator.size,
                squares=self.squares[operator],
                trace=float(operator.masses.sum()),
                lowest_order=min(self.question.orders),
            )
            estimate = entropy_estimate(spectrum, self.order, self.question.truncation)
            return spectrum, estimate.standard_error

        assessed = side_by_side(spectrum_and_error, self.operators, executor)
        spectra = [spectrum for spectrum, _ in assessed]
        return spectra, math.hypot(*(error for _, error in assessed))

    def _add_batch(self, executor: Executor, probes: int, depth: int | None) -> None:
        """Run one block of probes to a depth, or until going deeper no longer pays."""
        fresh = self._new_batches(probes)
        previous = math.inf
        for step in range(1, (depth or _MOST_STEPS) + 1):
            active = [operator for operator in self.operators if fresh[operator].can_grow]
            if not active:
                break
            self._sweep(executor, fresh, active, step)
            if depth is None and step >= self._fewest_steps and self._is_settled(executor, fresh):
                _, error = self._assess(executor)
                # Another step costs 1 / step of the cost so far. Spending as much on more probes
                # reduces the error by half of that share.
                is_slow = error > previous * (1 - 0.5 / step) and self.question.truncation is None
                if error <= self.settings.tolerance or is_slow:
                    break
                previous = error
        for batch in fresh.values():
            batch.krylov.release()

    def _new_batches(self, probes: int) -> dict[Operator, Batch]:
        """A batch of new probes for each operator, added to those that exist."""
        starts = _common_probes(self.operators, probes, self.rng)
        dtypes = self._dtypes()
        fresh = {}
        for operator in self.operators:
            start = starts[operator]
            vectors = array_namespace(start).astype(start, dtypes[operator])
            krylov = BlockKrylov(vectors)
            fresh[operator] = Batch(krylov, self.noise[operator], self.data_noise[operator])
            self.batches[operator].append(fresh[operator])
        return fresh

    @property
    def _fewest_steps(self) -> int:
        """Steps before the error is estimated."""
        # Few nodes may agree by chance at the cut of a truncation.
        if self.question.truncation is not None:
            return 2 * _FEWEST_STEPS
        return _FEWEST_STEPS

    def _is_settled(self, executor: Executor, batches: dict[Operator, Batch]) -> bool:
        """Whether the error of the quadrature is small beside the tolerance."""

        def gap(operator: Operator) -> float:
            trace = float(operator.masses.sum())
            return _entropy_gap(batches[operator], self.function, self.effort_order, trace)

        widest = max(side_by_side(gap, self.operators, executor))
        return widest < _SETTLED * self.settings.tolerance

    def _report(self, step: int, share: float) -> None:
        # The number of steps is not known in advance, so the fraction stays below one.
        usual = self.settings.depth or _USUAL_STEPS
        self.resources.report_progress(f"sweep {step}", min(0.99, (step - 1 + share) / usual))

    def _dtypes(self) -> dict[Operator, Any]:
        """Precision of the kernel values of each operator."""
        dtypes: dict[Operator, Any] = {}
        for group, sweep in zip(self.groups, self.sweeps, strict=True):
            dtypes.update(zip(group, sweep.dtypes, strict=True))
        return dtypes

    def _sweep(
        self, executor: Executor, batches: dict[Operator, Batch], active: list[Operator], step: int
    ) -> None:
        """One product for each active operator, and its squared norm if not known yet."""
        for group, sweep in zip(self.groups, self.sweeps, strict=True):
            vectors: list[Array | None] = [None] * len(group)
            for number, operator in enumerate(group):
                if operator in active:
                    vectors[number] = batches[operator].krylov.block
            # Squared norms cost little beside the products, and only the first sweep needs them.
            is_first = any(operator not in self.squares for operator in group)
            if not is_first and all(v is None for v in vectors):
                continue
            products, squares = sweep.run(
                vectors, squares=is_first, report=partial(self._report, step)
            )
            if is_first:
                self.squares.update(zip(group, squares, strict=True))
            extended = []
            for operator, product in zip(group, products, strict=True):
                if product is not None:
                    extended.append((batches[operator].krylov, product))
            side_by_side(lambda pair: pair[0].extend(pair[1]), extended, executor)


def _effort_order(order: float, truncation: int | None) -> float:
    """The order whose entropy decides which probes count most and how deep to go."""
    # Order infinity depends on the largest eigenvalue alone, and truncated entropies on the top t.
    # Powers are no guide there: every probe reproduces tr A^2 exactly, since that is known, and so
    # at order 2 a probe that does not resolve the cut would count as much as one that does; powers
    # below one weigh the small eigenvalues that are cut off.
    if math.isinf(order) or truncation is not None:
        return 1.0
    return order


def _trace_function(order: float) -> Function:
    """The function f with tr f(A) in the entropy of an order."""
    if order == 1:
        return lambda x: np.where(x > 0, -x * np.log(np.maximum(x, 1e-300)), 0.0)
    return lambda x: x ** min(order, _HIGH_ORDER)


def _entropy_gap(batch: Batch, f: Function, order: float, trace: float) -> float:
    """The gap between the two rules, as a difference of entropies of A / tr A."""
    gap = batch.gap(f)
    if order == 1:
        return gap / trace
    gauss, _ = batch.rules(batch.krylov.steps)
    return gap / (abs(1 - order) * gauss.trace(f))


def _noise_entropy(operator: Operator, radius: float) -> float:
    """Entropy that rounding noise would add if all eigenvalues were zero."""
    return operator.size * radius / operator.masses.sum() * -math.log(radius)


def _common_probes(
    operators: Sequence[Operator], probes: int, rng: np.random.Generator
) -> dict[Operator, Array]:
    """Random signs for every pair; for a factor with merged points, their sums over the pairs.

    With P the isometry from points to pairs, the matrix of the factor over pairs is P M P'. The
    probe P' v thus has the same quadratic forms with M as v with P M P', and errors common to the
    product and the factor cancel in differences.
    """
    joints = [operator for operator in operators if isinstance(operator, HadamardOperator)]
    signs: dict[Operator, np.ndarray] = {}
    for joint in joints:
        signs[joint] = rng.choice([-1.0, 1.0], size=(joint.size, probes))
    starts = {}
    for operator in operators:
        joint_of = _product_of(operator, joints)
        if operator in signs:
            start = signs[operator]
        elif joint_of is None:
            start = rng.choice([-1.0, 1.0], size=(operator.size, probes))
        else:
            index = joint_of.index_of(operator)
            scale = np.sqrt(joint_of.masses / operator.masses[index])
            start = np.zeros((operator.size, probes))
            np.add.at(start, index, signs[joint_of] * scale[:, None])
        starts[operator] = upload(start, operator.factors[0].points.rows)
    return starts


def _product_of(operator: Operator, joints: list[HadamardOperator]) -> HadamardOperator | None:
    """The first product that an operator is a factor of."""
    for joint in joints:
        if operator in joint.factors:
            return joint
    return None


def _spaced(size: int) -> np.ndarray:
    """Numbers of some points, evenly spaced."""
    return np.unique(np.linspace(0, size - 1, _SAMPLE).astype(np.int64))


def _rounding(operator: Operator) -> float:
    """Radius of the eigenvalues that rounding errors of the kernel values put in place of zeros.

    Independent errors of size e in the entries of K produce a cloud of eigenvalues of radius 2 e
    times the root of the largest mass. The size is measured, on a sample of the values that is
    computed again in double precision.
    """
    index = _spaced(operator.size)
    everything = slice(0, index.size)
    single = operator.sample(index, double=False).values(everything, everything)
    double = operator.sample(index, double=True).values(everything, everything)
    # The diagonal is exact.
    off_diagonal = ~np.eye(index.size, dtype=bool)
    computed = to_numpy(single)[off_diagonal]
    accurate = to_numpy(double)[off_diagonal].astype(np.float64)
    error = float(np.sqrt(((computed - accurate) ** 2).mean()))
    # Rounding of a typical value, in case the sample happens to be exact.
    typical = max(float(np.sqrt((accurate**2).mean())), math.sqrt(1 / operator.size))
    least = machine_epsilon(single) * typical / 4
    return 2 * max(error, least) * math.sqrt(float(operator.masses.max()))
