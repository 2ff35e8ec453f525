"""Lanczos: entropies with an error, without an eigendecomposition."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from divprism.core.operators import Operator
from divprism.core.spectrum import Spectrum
from divprism.engines import (
    RESOURCES,
    Resources,
    one_blas_thread,
)
from divprism.errors import ArgumentError
from divprism.estimators._direct import (
    direct_spectra,
    largest_part,
)
from divprism.estimators._lanczos_run import (
    MOST_IN_BATCH,
    MOST_STEPS,
    USUAL_STEPS,
    Run,
    TooCoarseError,
)
from divprism.estimators.base import QUESTION, Cost, Estimator, Question, check_tolerance

__all__ = ["Lanczos"]


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
    sides, or as little as 12 n num_probes (depth + 8), twice that at orders below one.

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
    def first_probes(self) -> int:
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
        return (self.num_probes or MOST_IN_BATCH) * (self.depth or MOST_STEPS)

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
        steps = self.depth or USUAL_STEPS
        # Half of each kernel matrix is computed, and kept in single precision: 2 n^2 bytes.
        flops = n**2 * width + 2 * n**2 * matrices * self.first_probes * steps
        return Cost(flops, 2 * n**2 * factors + self.least_bytes(n, matrices), steps)

    def least_bytes(self, n: int, matrices: int) -> float:
        """Bytes of the bases and of a few blocks of vectors, in single precision."""
        return 4 * n * matrices * self.first_probes * ((self.depth or MOST_STEPS) + 8)

    def spectra(
        self,
        operators: Sequence[Operator],
        question: Question = QUESTION,
        resources: Resources = RESOURCES,
    ) -> list[Spectrum]:
        """The spectrum of each operator."""
        # Parts are solved one by one, so the largest of them decides.
        small = [operator for operator in operators if largest_part(operator) <= self._exact_size]
        spectra = dict(zip(small, direct_spectra(small, resources), strict=True))
        large = [operator for operator in operators if operator not in spectra]
        if large:
            spectra.update(zip(large, self._estimated(large, question, resources), strict=True))
        return [spectra[operator] for operator in operators]

    def _estimated(
        self, operators: Sequence[Operator], question: Question, resources: Resources
    ) -> list[Spectrum]:
        """The spectra of large operators; if 16 bits turn out too few, once more in full."""
        for compact in (True, False):
            # Rounding is measured on kernel values, whose bits depend on the threads of BLAS.
            with one_blas_thread():
                run = Run(self, operators, question, resources, compact=compact)
            with resources.workers(threads=run.sweeps[0].in_threads) as executor:
                try:
                    return run.spectra(executor)
                except TooCoarseError:
                    continue
        raise AssertionError("kernel values in full are never too coarse")
