"""Dual: the eigenvalues of the second moment of the features."""

from collections.abc import Sequence
from dataclasses import dataclass

from divprism.core.operators import Operator
from divprism.core.spectrum import Spectrum
from divprism.engines import RESOURCES, Resources
from divprism.errors import ArgumentError
from divprism.estimators._direct import direct_spectra
from divprism.estimators.base import QUESTION, Cost, Estimator, Question

__all__ = ["Dual"]


@dataclass(frozen=True)
class Dual(Estimator):
    """Eigenvalues of the D x D second moment of the features, exact: pick it for D < n.

    That is the case for Cosine and for Polynomial of low degree. Equals `Exact` (F F' and F' F
    share their non-zero eigenvalues; Truncated Vendi, eq. 9). Needs a kernel with a finite feature
    map; the product K_X o K_T has D = D_x D_t features. O(n D^2 + D^3) time
    and 16 D^2 bytes beside the data.
    """

    def spectra(
        self,
        operators: Sequence[Operator],
        question: Question = QUESTION,
        resources: Resources = RESOURCES,
    ) -> list[Spectrum]:
        """The spectrum of each operator."""
        return direct_spectra(operators, resources, by_moment=_has_features)

    def cost(self, n: int, d_x: int, d_t: int | None = None) -> Cost:
        """Cost for d_x and d_t features; under the cosine kernel these are the widths."""
        sizes = [d_x]
        if d_t is not None:
            sizes += [d_t, d_x * d_t]
        flops = sum(n * size**2 + 4 / 3 * size**3 for size in sizes)
        # The moment and the copy that the solver makes.
        return Cost(flops, 16 * max(sizes) ** 2)


def _has_features(part: Operator) -> bool:
    """Return True, or raise ArgumentError if the operator has no finite feature map."""
    if part.feature_dimension is None:
        names = " o ".join(type(factor.kernel).__name__ for factor in part.factors)
        raise ArgumentError(
            f"Dual() needs a finite feature map, which {names} does not have. "
            "Use Exact() or Auto()."
        )
    return True
