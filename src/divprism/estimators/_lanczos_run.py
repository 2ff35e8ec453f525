"""One estimation by Lanczos: the sweeps, the probes, and the rule to stop."""

import itertools
import math
from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from divprism.core.arrays import (
    Array,
    array_namespace,
    upload,
)
from divprism.core.estimates import entropy_estimate
from divprism.core.operators import HadamardOperator, Operator, in_single
from divprism.core.spectrum import Spectrum
from divprism.core.sweep import Sweep, common_sweeps
from divprism.engines import (
    Resources,
    side_by_side,
    spell_bytes,
    spell_seconds,
)
from divprism.estimators._direct import (
    CHEAP_SIZE,
    direct_bytes,
    direct_spectra,
)
from divprism.estimators._krylov import BlockKrylov
from divprism.estimators._measure import measure
from divprism.estimators._quadrature import Batch, Function
from divprism.estimators._rounding import data_noise, may_be_compact, noise_entropy, rounding
from divprism.estimators.base import Question

if TYPE_CHECKING:
    from divprism.estimators.lanczos import Lanczos

__all__ = ["MOST_IN_BATCH", "MOST_STEPS", "USUAL_STEPS", "Run", "TooCoarseError"]

# Steps of the recurrence: the most if the depth is open, those that most data need, and those
# before the error is first estimated.
MOST_STEPS = 24
USUAL_STEPS = 8
_FEWEST_STEPS = 4

# Probes in all, and in one batch.
_MOST_PROBES = 256
MOST_IN_BATCH = 64

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

# Share of the tolerance that rounding to 16 bits may take; and that it may seem to take while few
# steps leave open how many eigenvalues are small.
_ROUNDING_SHARE = 0.5
_EARLY_ROUNDING_SHARE = 5.0


class TooCoarseError(Exception):
    """Kernel values in 16 bits hide too many eigenvalues."""


class Run:
    """One estimation: the sweeps, the probes, and the rule to stop."""

    def __init__(
        self,
        settings: "Lanczos",
        operators: Sequence[Operator],
        question: Question,
        resources: Resources,
        *,
        compact: bool,
    ) -> None:
        self.settings, self.question, self.resources = settings, question, resources
        self.given = operators
        self.compact = compact and may_be_compact(operators) and _only_sums_count(question)
        self.operators, self.noise = self._in_precision(operators)
        self.data_noise = dict.fromkeys(self.operators, 0.0)
        # From order one on rounding errors of the data add nothing that matters.
        if min(question.orders) < 1:
            self.data_noise = {operator: data_noise(operator) for operator in self.operators}
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
            noise = {operator: rounding(operator) for operator in single}
            worst = max(noise_entropy(operator, noise[operator]) for operator in single)
            if worst < 2 * self.settings.tolerance:
                if self.compact:
                    noise = {operator: rounding(operator, compact=True) for operator in single}
                return single, noise
        self.compact = False
        return operators, {operator: rounding(operator) for operator in operators}

    @property
    def _works_in_double(self) -> bool:
        """Whether the basis of any operator is in double precision, as at orders below one."""
        factors = itertools.chain.from_iterable(operator.factors for operator in self.operators)
        return any(factor.dtype != factor.single for factor in factors)

    @property
    def _may_solve_exactly(self) -> bool:
        """Whether an exact solution replaces further probes: it takes about a second."""
        is_open = self.settings.num_probes is None and self.settings.depth is None
        return is_open and max(operator.size for operator in self.operators) <= CHEAP_SIZE

    def _build_sweeps(self) -> list[Sweep]:
        largest = max(operator.size for operator in self.operators)
        least = self.settings.least_bytes(largest, len(self.operators))
        if self._works_in_double:
            least *= 2
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
            sweep = Sweep.over(
                group,
                self.resources,
                keep=max(0, int(room)),
                needed=int(least),
                compact=self.compact,
            )
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
        uses_disk = any(sweep.uses_disk for sweep in self.sweeps)
        steps = self.settings.depth or USUAL_STEPS
        # Tiles that are not kept are computed again in each step.
        builds = 1 + (steps - 1) * (1 - kept / full)
        if uses_disk:
            builds = 1
        seconds = 0.0
        for sweep in self.sweeps:
            build, multiply = sweep.seconds(self.settings.first_probes)
            seconds += builds * build + steps * multiply
        if seconds <= _LONG:
            return
        held = f"{spell_bytes(kept)} of {spell_bytes(full)} kept"
        if kept == full:
            held = f"{spell_bytes(kept)} of kernel values"
        elif uses_disk:
            held = f"{spell_bytes(kept)} kept in memory and {spell_bytes(full - kept)} on disk"
        plan = f"Lanczos: {steps} sweeps or so, {held}, about {spell_seconds(seconds)}"
        factors = itertools.chain.from_iterable(operator.factors for operator in self.operators)
        if seconds > _VERY_LONG and all(factor.kernel.has_fourier_features for factor in factors):
            plan += "; one pass over the data, with a larger error, takes `estimator=fourier`"
        self.resources.report_progress(plan, 0.0)

    def spectra(self, executor: Executor) -> list[Spectrum]:
        """Run batches of probes until the error meets the tolerance, or no longer falls."""
        tolerance = self.settings.tolerance
        probes = self.settings.first_probes
        self._add_batch(executor, probes, self.settings.depth)
        self._check_rounding(executor, _ROUNDING_SHARE)
        spectra, error = self._assess(executor)
        if self.settings.num_probes is not None:
            return spectra
        if error > tolerance and self._may_solve_exactly:
            return direct_spectra(self.given, self.resources)
        while error > tolerance and probes < _MOST_PROBES:
            # The variance falls as one over the number of probes.
            # Bounded, because the square of a large ratio overflows.
            ratio = min(error / tolerance, _MOST_PROBES)
            wanted = math.ceil(probes * (ratio**2 - 1) / 8) * 8
            depth = self._deepest()
            most = min(MOST_IN_BATCH, _MOST_PROBES - probes, max(8, _MOST_COLUMNS // depth))
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
        for step in range(1, (depth or MOST_STEPS) + 1):
            active = [operator for operator in self.operators if fresh[operator].can_grow]
            if not active:
                break
            self._sweep(executor, fresh, active, step)
            if step == self._fewest_steps:
                self._check_rounding(executor, _EARLY_ROUNDING_SHARE)
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

    def _check_rounding(self, executor: Executor, share: float) -> None:
        """Raise TooCoarseError if rounding to 16 bits takes more than a share of the tolerance."""
        if not self.compact:
            return
        spectra, _ = self._assess(executor)
        errors = []
        for spectrum in spectra:
            # All other errors left out.
            alone = replace(
                spectrum,
                replicates=np.zeros((0, 0)),
                alternatives=np.zeros((0, 0)),
                shifts=spectrum.shifts[1:],
            )
            estimate = entropy_estimate(alone, self.order, self.question.truncation)
            errors.append(estimate.systematic)
        if math.hypot(*errors) > share * self.settings.tolerance:
            raise TooCoarseError

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
        usual = self.settings.depth or USUAL_STEPS
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


def _only_sums_count(question: Question) -> bool:
    """Whether scores are sums over many eigenvalues.

    Equal kernel values have equal rounding errors, which add up in the largest eigenvalues. Their
    sum is known exactly at order 2, and errors of a few of them are lost in it at order 1. Higher
    orders and truncated scores depend on the largest eigenvalues alone.
    """
    highest = max(question.orders)
    return question.truncation is None and highest <= 2


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
