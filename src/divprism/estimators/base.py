"""The contract of an estimator."""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from divprism.core.estimates import entropy_estimate
from divprism.core.norms import squared_norms
from divprism.core.operators import Operator
from divprism.core.spectrum import Estimate, Spectrum
from divprism.core.validation import whole_number
from divprism.engines import RESOURCES, Resources
from divprism.errors import ArgumentError

__all__ = [
    "QUESTION",
    "Cost",
    "Entropy",
    "Estimator",
    "Question",
    "check_flag",
    "check_tolerance",
    "whole_number",
]

_LARGEST = float(np.finfo(np.float64).max)  # of all floats


@dataclass(frozen=True)
class Question:
    """The entropies that a spectrum is for: a randomised method spends its effort on them.

    `orders` and `truncation` are those of the scores; `rng` is the seed of all random numbers.
    """

    orders: tuple[float, ...] = (1.0,)
    truncation: int | None = None
    rng: int = 0

    @property
    def squares_suffice(self) -> bool:
        """Whether squared norms answer the whole question: order 2 without truncation."""
        return self.truncation is None and set(self.orders) == {2.0}


@dataclass(frozen=True)
class Cost:
    """Cost of a result: floating-point operations, bytes beside the data, passes over the data."""

    flops: float
    bytes: float
    sweeps: int = 1


def check_flag(value: object, name: str) -> bool:
    """A setting that is True or False."""
    if not isinstance(value, bool | np.bool_):
        raise ArgumentError(f"`{name}` must be True or False; got {value!r}.")
    return bool(value)


def check_tolerance(tolerance: object) -> None:
    """Raise ArgumentError unless the tolerance is a positive finite number."""
    # A bool is an int in Python, but no tolerance.
    is_number = isinstance(tolerance, int | float | np.number) and not isinstance(tolerance, bool)
    # Not converted: an integer of 400 digits is below infinity, and no float.
    if not is_number or not 0 < tolerance <= _LARGEST:  # type: ignore[operator]
        raise ArgumentError(f"`tolerance` must be positive and finite; got {tolerance!r}.")


QUESTION = Question()
"""The default: order 1 without truncation."""


@dataclass(frozen=True)
class Entropy:
    """An entropy in nats with its error, the method that computed it, and the spectrum if any."""

    estimate: Estimate
    method: str
    spectrum: Spectrum | None = None


class Estimator(ABC):
    """A method to compute the spectra of trace-one matrices.

    A new estimator is a frozen dataclass that defines `spectra` and `cost`, and one row in the
    table of estimators in the tests.
    """

    @abstractmethod
    def spectra(
        self,
        operators: Sequence[Operator],
        question: Question = QUESTION,
        resources: Resources = RESOURCES,
    ) -> list[Spectrum]:
        """The spectrum of each operator; work that several operators share is done once."""

    @abstractmethod
    def cost(self, n: int, d_x: int, d_t: int | None = None) -> Cost:
        """Cost for n distinct items of width d_x; with d_t, for K_X, K_T and their product."""

    def spectrum(
        self, operator: Operator, question: Question = QUESTION, resources: Resources = RESOURCES
    ) -> Spectrum:
        """The spectrum of a single operator."""
        return self.spectra([operator], question, resources)[0]

    @property
    def promise(self) -> float:
        """Relative error of a score that the method aims at; infinite for a fixed effort."""
        return math.inf

    @property
    def squares_are_exact(self) -> bool:
        """Whether exact squared norms replace the spectrum at order 2 without truncation."""
        return True

    def entropies(
        self, operators: Sequence[Operator], question: Question, resources: Resources = RESOURCES
    ) -> list[list[Entropy]]:
        """For each order of the question, the entropy of each operator.

        All orders use the same spectra.
        """
        if self.squares_are_exact and question.squares_suffice:
            entropies = _from_squares(operators, resources)
            return [entropies for _ in question.orders]
        # One set of spectra: scores of different orders are then consistent with each other.
        spectra = self.spectra(operators, question, resources)
        by_order = []
        for order in question.orders:
            entropies = []
            for spectrum in spectra:
                estimate = entropy_estimate(spectrum, order, question.truncation)
                entropies.append(Entropy(estimate, spectrum.method, spectrum))
            by_order.append(entropies)
        return by_order


def _from_squares(operators: Sequence[Operator], resources: Resources) -> list[Entropy]:
    """Entropies of order 2: minus the logarithm of ||M||_F^2 over the squared trace."""
    entropies = []
    for operator, norm in zip(operators, squared_norms(operators, resources), strict=True):
        # "+ 0.0" turns the -0.0 of a norm of one into 0.0.
        value = -math.log(norm / operator.masses.sum() ** 2) + 0.0
        entropies.append(Entropy(Estimate(value), "frobenius"))
    return entropies
