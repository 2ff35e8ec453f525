"""Auto: the cheapest estimator that is exact."""

from collections.abc import Sequence
from dataclasses import dataclass

from divprism.estimators._direct import direct_spectra
from divprism.estimators.base import Estimator
from divprism.estimators.dual import Dual
from divprism.estimators.exact import Exact
from divprism.operators import Operator
from divprism.spectrum import Spectrum

__all__ = ["Auto"]


@dataclass(frozen=True)
class Auto(Estimator):
    """The default: for each matrix the cheapest exact way.

    The rule, for each connected part of a matrix: `Dual` where the kernel has fewer features than the part has distinct items,
    `Exact` otherwise. `select` tells which it would be.
    """

    def select(self, part: Operator) -> Estimator:
        """The estimator that a connected operator would get."""
        dimension = part.feature_dimension
        return Dual() if dimension is not None and dimension < part.size else Exact()

    def spectra(self, operators: Sequence[Operator]) -> list[Spectrum]:
        """The spectrum of each operator; kernel matrices are computed once."""
        return direct_spectra(operators, by_moment=lambda part: self.select(part) == Dual())
