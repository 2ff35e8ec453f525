"""What an estimator is."""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from divprism.core.entropy import entropy_estimate
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
    "check_tolerance",
    "whole_number",
]


@dataclass(frozen=True)
class Question:
    """What a spectrum is wanted for: a randomised method spends its effort where these entropies need it.

    `orders` and `truncation` as in the scores; `rng` seeds whatever is drawn.
    """

    orders: tuple[float, ...] = (1.0,)
    truncation: int | None = None
    rng: int = 0

    @property
    def squares_suffice(self) -> bool:
        """Whether squared norms answer everything: order 2 and no truncation."""
        return self.truncation is None and set(self.orders) == {2.0}


@dataclass(frozen=True)
class Cost:
    """What an answer takes: floating-point operations, bytes beside the data, and passes over the data or its kernel matrix."""

    flops: float
    bytes: float
    sweeps: int = 1


def check_tolerance(tolerance: Any) -> None:
    """Refuse a tolerance that is not a positive number."""
    if (
        isinstance(tolerance, bool)
        or not isinstance(tolerance, int | float | np.number)
        or not 0 < tolerance < math.inf
    ):
        raise ArgumentError(f"`tolerance` must be positive and finite; got {tolerance!r}.")


QUESTION = Question()
"""Order 1, nothing cut."""


@dataclass(frozen=True)
class Entropy:
    """An entropy in nats with its error, the name of the method that found it, and the spectrum, if it took one."""

    estimate: Estimate
    method: str
    spectrum: Spectrum | None = None


class Estimator(ABC):
    """A way to get the spectra of trace-one matrices.

    A new estimator is a frozen dataclass that defines `spectra` and `cost`, and one row in the contract table of the tests.
    """

    @abstractmethod
    def spectra(
        self,
        operators: Sequence[Operator],
        question: Question = QUESTION,
        resources: Resources = RESOURCES,
    ) -> list[Spectrum]:
        """The spectrum of each operator; work that several share is done once."""

    @abstractmethod
    def cost(self, n: int, d_x: int, d_t: int | None = None) -> Cost:
        """What n distinct items of width d_x take; with d_t, all of K_X, K_T and their product."""

    def spectrum(
        self, operator: Operator, question: Question = QUESTION, resources: Resources = RESOURCES
    ) -> Spectrum:
        """The spectrum of one operator."""
        return self.spectra([operator], question, resources)[0]

    @property
    def promise(self) -> float:
        """Relative error of a score that is aimed at; infinite where the effort is fixed."""
        return math.inf

    @property
    def squares_are_exact(self) -> bool:
        """Whether order 2 without truncation is answered by squared norms, exactly, in place of a spectrum."""
        return True

    def entropies(
        self, operators: Sequence[Operator], question: Question, resources: Resources = RESOURCES
    ) -> list[list[Entropy]]:
        """For each order of the question, the entropies of the operators, from one set of spectra for all orders."""
        if self.squares_are_exact and question.squares_suffice:
            norms = zip(operators, squared_norms(operators, resources), strict=True)
            found = [
                Entropy(Estimate(-math.log(norm / o.masses.sum() ** 2)), "frobenius")
                for o, norm in norms
            ]
            return [found for _ in question.orders]
        spectra = self.spectra(operators, question, resources)
        return [
            [
                Entropy(entropy_estimate(one, order, question.truncation), one.method, one)
                for one in spectra
            ]
            for order in question.orders
        ]
