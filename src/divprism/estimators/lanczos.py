"""Lanczos: entropies without eigendecomposition, with an error."""

import math
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from divprism.core.arrays import Array, array_namespace, machine_epsilon, to_numpy, upload
from divprism.core.entropy import entropy_estimate
from divprism.core.operators import HadamardOperator, Operator, in_single
from divprism.core.spectrum import Spectrum
from divprism.core.sweep import Sweep, common_sweeps
from divprism.engines import RESOURCES, Resources, side_by_side, spell_bytes, spell_seconds
from divprism.errors import ArgumentError
from divprism.estimators._direct import direct_spectra, largest_part
from divprism.estimators._krylov import BlockKrylov
from divprism.estimators._quadrature import Batch, measure
from divprism.estimators.base import QUESTION, Cost, Estimator, Question, check_tolerance

__all__ = ["Lanczos"]

_DEPTH = 24  # steps at most, where the depth is left open
_USUAL = 8  # steps that most data need
_LONG = 5.0  # seconds from which work is announced
_FEWEST = 4  # steps before the error is looked at
_MOST_PROBES = 256
_BATCH = 64  # probes at most in one batch
_SETTLED = 2.0  # gap between the two rules, in tolerances: where the truth lies between them is known to a tenth of it
_HIGH = 8.0  # beyond this order only the largest eigenvalues matter, and powers would underflow
_SAMPLE = 256  # points whose kernel values are computed again in double precision


@dataclass(frozen=True)
class Lanczos(Estimator):
    """A dozen products with the matrix in place of its eigenvalues: pick it from a few thousand items on.

    Stochastic Lanczos quadrature with a block of random probes, deflated and calibrated (see `_quadrature`). Any kernel, any
    order and truncation; K_X, K_T and their product are served by the same sweeps and the same probes, so that the error of
    a conditional score is that of the difference. Matrices of up to num_probes x depth items are solved exactly.

    O(n^2 d) for the kernel values, once if they fit the memory budget, else in each of `depth` sweeps; O(n^2 num_probes depth)
    for the products; memory of 4 n^2 bytes for the kept kernel values of both sides, or as little as 12 n num_probes depth.

    Attributes
    ----------
    num_probes : int or None
        Random vectors; None adds some until the error meets `tolerance`.
    depth : int or None
        Steps of the recurrence; None goes on until the quadrature meets `tolerance`.
    tolerance : float
        Standard error of the entropies wanted, which is the relative error of the scores.
    """

    num_probes: int | None = None
    depth: int | None = None
    tolerance: float = 1e-3

    def __post_init__(self) -> None:
        for name, least in (("num_probes", 8), ("depth", 2)):
            value = getattr(self, name)
            if isinstance(value, np.integer):
                object.__setattr__(self, name, int(value))
            if value is not None and (
                isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least
            ):
                raise ArgumentError(
                    f"`{name}` must be a whole number of at least {least}, or None to choose it; got {value!r}."
                )
        check_tolerance(self.tolerance)

    @property
    def _first(self) -> int:
        return self.num_probes or (32 if self.tolerance < 5e-3 else 16)

    @property
    def _full(self) -> int:
        """Size from which a matrix is not solved whole."""
        return self._first * (self.depth or _DEPTH)

    @property
    def promise(self) -> float:
        """The tolerance, where probes may be added to meet it."""
        return self.tolerance if self.num_probes is None else math.inf

    def cost(self, n: int, d_x: int, d_t: int | None = None) -> Cost:
        """Operations and bytes for n distinct items, all kernel values kept, at the usual number of steps."""
        matrices, factors = (1, 1) if d_t is None else (3, 2)
        steps = self.depth or _USUAL
        width = d_x + (d_t or 0)
        flops = n**2 * width + 2 * n**2 * matrices * self._first * steps
        return Cost(flops, 2 * n**2 * factors + self._least_bytes(n, matrices), steps)

    def _least_bytes(self, n: int, matrices: int) -> float:
        return 4 * n * matrices * self._first * ((self.depth or _DEPTH) + 8)

    def spectra(
        self,
        operators: Sequence[Operator],
        question: Question = QUESTION,
        resources: Resources = RESOURCES,
    ) -> list[Spectrum]:
        """The spectrum of each operator."""
        small = [operator for operator in operators if largest_part(operator) <= self._full]
        found = dict(
            zip(small, direct_spectra(small, resources, by_moment=lambda part: False), strict=True)
        )
        large = [operator for operator in operators if operator not in found]
        if large:
            run = _Run(self, large, question, resources)
            with resources.workers(threads=run.sweeps[0].in_threads) as executor:
                found.update(zip(large, run.spectra(executor), strict=True))
        return [found[operator] for operator in operators]


class _Run:
    """One estimation: the sweeps, the probes, and when to stop."""

    def __init__(
        self,
        settings: Lanczos,
        operators: Sequence[Operator],
        question: Question,
        resources: Resources,
    ) -> None:
        self.settings, self.question, self.resources = settings, question, resources
        self.operators, self.noise = self._in_precision(operators)
        self.rng = np.random.default_rng(question.rng)
        self.f = _trace_function(question.orders[0])
        largest = max(operator.size for operator in operators)
        least = settings._least_bytes(largest, len(operators))
        resources.require(
            least,
            f"Lanczos() on {largest:,} items",
            "use Nystrom(num_landmarks) or Fourier(num_features)",
        )
        room = resources.budget - least
        self.groups = common_sweeps(self.operators)
        self.sweeps = []
        for group in self.groups:
            sweep = Sweep.over(group, resources, max(0, int(room)))
            room -= sweep.full_bytes
            self.sweeps.append(sweep)
        self._announce()
        self.squares: dict[Operator, float] = {}
        self.batches: dict[Operator, list[Batch]] = {operator: [] for operator in self.operators}

    def _in_precision(
        self, operators: Sequence[Operator]
    ) -> tuple[Sequence[Operator], dict[Operator, float]]:
        """The operators in single precision if that is enough, and the radius of their rounding noise.

        Orders below one see the noise in place of zeros; at others it adds at most what it would if all eigenvalues were zero.
        """
        if min(self.question.orders) >= 1:
            single = in_single(operators)
            noise = {operator: _rounding(operator) for operator in single}
            worst = max(
                o.size * radius / o.masses.sum() * -math.log(radius) for o, radius in noise.items()
            )
            if worst < 2 * self.settings.tolerance:
                return single, noise
        return operators, {operator: _rounding(operator) for operator in operators}

    def _announce(self) -> None:
        """Tell what is planned, if it is long."""
        if self.resources.progress is None:
            return
        full, kept = (
            sum(getattr(sweep, name) for sweep in self.sweeps)
            for name in ("full_bytes", "kept_bytes")
        )
        times = [sweep.seconds(self.settings._first) for sweep in self.sweeps]
        steps = self.settings.depth or _USUAL
        builds = 1 + (steps - 1) * (1 - kept / full)
        seconds = sum(builds * build + steps * multiply for build, multiply in times)
        if seconds > _LONG:
            held = (
                f"{spell_bytes(kept)} of kernel values"
                if kept == full
                else f"{spell_bytes(kept)} of {spell_bytes(full)} kept"
            )
            self.resources.report_progress(
                f"Lanczos: {steps} sweeps or so, {held}, about {spell_seconds(seconds)}", 0.0
            )

    def spectra(self, executor: Executor) -> list[Spectrum]:
        """Run batches of probes until the error meets the tolerance."""
        self._add_batch(executor, self.settings._first, self.settings.depth)
        spectra, error = self._assess(executor)
        probes = self.settings._first
        while (
            self.settings.num_probes is None
            and error > self.settings.tolerance
            and probes < _MOST_PROBES
        ):
            wanted = math.ceil(probes * ((error / self.settings.tolerance) ** 2 - 1) / 8) * 8
            more = min(max(wanted, 8), _BATCH, _MOST_PROBES - probes)
            self._add_batch(
                executor,
                more,
                max(batch.krylov.steps for held in self.batches.values() for batch in held),
            )
            probes += more
            spectra, error = self._assess(executor)
        return spectra

    def _assess(self, executor: Executor) -> tuple[list[Spectrum], float]:
        """The measures so far, and the root of the summed squared errors of their entropies."""

        def look(o: Operator) -> tuple[Spectrum, float]:
            found = measure(
                self.batches[o],
                self.f,
                size=o.size,
                squares=self.squares[o],
                trace=float(o.masses.sum()),
            )
            return found, entropy_estimate(
                found, self.question.orders[0], self.question.truncation
            ).standard_error

        looks = side_by_side(look, self.operators, executor)
        return [found for found, _ in looks], math.hypot(*(error for _, error in looks))

    def _add_batch(self, executor: Executor, probes: int, depth: int | None) -> None:
        """Run one block of probes to a depth, or until going deeper no longer pays."""
        starts = _common_probes(self.operators, probes, self.rng)
        fresh = {}
        for operator, dtype in zip(self.operators, self._dtypes(), strict=True):
            vectors = array_namespace(starts[operator]).astype(starts[operator], dtype)
            fresh[operator] = Batch(BlockKrylov(vectors), self.noise[operator])
            self.batches[operator].append(fresh[operator])
        previous = math.inf
        for step in range(1, (depth or _DEPTH) + 1):
            active = [operator for operator in self.operators if not fresh[operator].exhausted]
            if not active:
                break
            self._sweep(executor, fresh, active, step)
            if depth is None and step >= self._fewest and self._is_settled(executor, fresh):
                _, error = self._assess(executor)
                # a step more costs 1 / step of what the probes have cost so far; as many more probes would gain half of that
                slow = error > previous * (1 - 0.5 / step) and self.question.truncation is None
                if error <= self.settings.tolerance or slow:
                    break
                previous = error
        for batch in fresh.values():
            batch.krylov.release()

    @property
    def _fewest(self) -> int:
        """Steps before the error is looked at: where a truncation cuts, few nodes agree by chance."""
        return _FEWEST if self.question.truncation is None else 2 * _FEWEST

    def _is_settled(self, executor: Executor, batches: dict[Operator, Batch]) -> bool:
        """Whether the quadrature is exact beside the tolerance."""

        def gap(operator: Operator) -> float:
            return _entropy_gap(
                batches[operator], self.f, self.question.orders[0], float(operator.masses.sum())
            )

        return max(side_by_side(gap, self.operators, executor)) < _SETTLED * self.settings.tolerance

    def _tell(self, step: int, share: float) -> None:
        usual = self.settings.depth or _USUAL
        self.resources.report_progress(f"sweep {step}", min(0.99, (step - 1 + share) / usual))

    def _dtypes(self) -> list[Any]:
        place = {
            o: dtype
            for group, sweep in zip(self.groups, self.sweeps, strict=True)
            for o, dtype in zip(group, sweep.dtypes, strict=True)
        }
        return [place[operator] for operator in self.operators]

    def _sweep(
        self, executor: Executor, batches: dict[Operator, Batch], active: list[Operator], step: int
    ) -> None:
        """One product for each active operator, and the squared norms if they are not known yet."""
        for group, sweep in zip(self.groups, self.sweeps, strict=True):
            vectors = [
                batches[operator].krylov.block if operator in active else None for operator in group
            ]
            unknown = any(operator not in self.squares for operator in group)
            if not unknown and all(v is None for v in vectors):
                continue
            products, squares = sweep.run(
                executor, vectors, squares=unknown, report=partial(self._tell, step)
            )
            if unknown:
                self.squares.update(zip(group, squares, strict=True))
            made = [
                (operator, product)
                for operator, product in zip(group, products, strict=True)
                if product is not None
            ]
            side_by_side(lambda pair: batches[pair[0]].krylov.extend(pair[1]), made, executor)


def _trace_function(order: float) -> Callable[[np.ndarray], np.ndarray]:
    """f with tr f(A) the heart of the entropy."""
    if order == 1 or math.isinf(order):
        return lambda x: np.where(x > 0, -x * np.log(np.maximum(x, 1e-300)), 0.0)
    return lambda x: x ** min(order, _HIGH)


def _entropy_gap(
    batch: Batch, f: Callable[[np.ndarray], np.ndarray], order: float, trace: float
) -> float:
    """The gap between the two rules, as a difference of entropies of A / tr A."""
    gap = batch.gap(f)
    if order == 1 or math.isinf(order):
        return gap / trace
    return gap / (abs(1 - order) * batch.rules(batch.krylov.steps)[0].trace(f))


def _common_probes(
    operators: Sequence[Operator], probes: int, rng: np.random.Generator
) -> dict[Operator, Array]:
    """Random signs for every pair; for a factor with merged points, their sums over the pairs of each point.

    With P the isometry from points to pairs the factor's matrix over pairs is P M P', so the probe P' v sees of M what v sees
    of that: errors common to the product and the factor cancel in differences.
    """
    joints = [operator for operator in operators if isinstance(operator, HadamardOperator)]
    signs = {joint: rng.choice([-1.0, 1.0], size=(joint.size, probes)) for joint in joints}
    starts = {}
    for operator in operators:
        home = next((joint for joint in joints if operator in joint.factors), None)
        if operator in signs:
            own = signs[operator]
        elif home is None:
            own = rng.choice([-1.0, 1.0], size=(operator.size, probes))
        else:
            index = home.left_index if operator is home.left else home.right_index
            own = np.zeros((operator.size, probes))
            np.add.at(
                own, index, signs[home] * np.sqrt(home.masses / operator.masses[index])[:, None]
            )
        starts[operator] = upload(own, operator.factors[0].points.rows)
    return starts


def _rounding(operator: Operator) -> float:
    """Radius of the eigenvalues that rounding errors of the kernel values put in place of zeros.

    Independent errors of size e in the entries of K make a cloud of radius 2 e times the root of the largest mass. Their size
    is measured: a sample of the values is computed again in double precision.
    """
    places = np.unique(np.linspace(0, operator.size - 1, _SAMPLE).astype(np.int64))
    everything = slice(0, places.size)
    single, double = (
        operator.sample(places, double=double).values(everything, everything)
        for double in (False, True)
    )
    off = ~np.eye(places.size, dtype=bool)
    found, right = to_numpy(single)[off], to_numpy(double)[off].astype(np.float64)
    least = (
        machine_epsilon(single)
        * max(float(np.sqrt((right**2).mean())), math.sqrt(1 / operator.size))
        / 4
    )
    error = float(np.sqrt(((found - right) ** 2).mean()))
    return 2 * max(error, least) * math.sqrt(float(operator.masses.max()))
