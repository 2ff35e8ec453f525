"""Exact: every eigenvalue, by LAPACK."""

from collections.abc import Sequence
from dataclasses import dataclass

from divprism.core.operators import Operator
from divprism.core.spectrum import Spectrum
from divprism.engines import RESOURCES, Resources
from divprism.estimators._direct import direct_spectra
from divprism.estimators.base import QUESTION, Cost, Estimator, Question

__all__ = ["Exact"]


@dataclass(frozen=True)
class Exact(Estimator):
    """All eigenvalues of the whole matrix: pick it for a few thousand items, or as a reference.

    Equals `scipy.linalg.eigvalsh(K / n)`, in double precision whatever the dtype of the data.
    Supports every kernel. O(n^3) time and 8 n^2 bytes per matrix, with n the number of distinct
    items; a block-diagonal matrix costs the sum over its blocks.
    """

    def spectra(
        self,
        operators: Sequence[Operator],
        question: Question = QUESTION,
        resources: Resources = RESOURCES,
    ) -> list[Spectrum]:
        """The spectrum of each operator; each kernel matrix is computed once."""
        return direct_spectra(operators, resources)

    def cost(self, n: int, d_x: int, d_t: int | None = None) -> Cost:
        """Cost of one matrix, or with d_t of three, which are held at the same time."""
        width, matrices = d_x, 1
        if d_t is not None:
            width, matrices = d_x + d_t, 3
        # 4/3 n^3 operations reduce a symmetric matrix to tridiagonal form.
        return Cost(matrices * 4 / 3 * n**3 + n**2 * width, 8 * n**2 * matrices)
