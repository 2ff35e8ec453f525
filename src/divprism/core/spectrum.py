"""Spectrum: the eigenvalues of a trace-one matrix as a discrete measure. Estimate: a number with its error."""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

__all__ = ["Estimate", "Spectrum"]


def _none() -> np.ndarray:
    return np.zeros((0, 0))


@dataclass(frozen=True, eq=False)
class Spectrum:
    """Eigenvalues of a trace-one matrix, largest first, each with its multiplicity; zeros are left out.

    Attributes
    ----------
    values : ndarray of float64, shape (r,)
        Positive and decreasing.
    weights : ndarray of float64, shape (r,)
        Multiplicities: whole numbers from an exact method; any numbers from a quadrature, negative ones too where a part of
        the measure is known and taken out. sum(weights * values) is 1.
    method : str
        Name of the algorithm that found them.
    replicates : ndarray, shape (k, r)
        The weights without the first, the second, ... of k random draws: their spread is the random error (jackknife).
        Empty where nothing was drawn.
    shifts : ndarray, shape (l, r)
        Changes of the weights as large as the systematic errors (of a quadrature, of rounding) may be.
    alternatives : ndarray, shape (a, r)
        Weights by other rules than the one preferred: they agree on smooth functions of the eigenvalues and disagree where a
        truncation cuts, and so tell how well the cut is resolved.
    squares : float or None
        Sum of the squared eigenvalues, where it is known exactly.
    top_error : float
        Error of the largest eigenvalue.
    rounding : float
        Relative error of all eigenvalues together, from the precision of the kernel values.
    coarse : tuple of Spectrum
        The same from half the effort, where the error falls in proportion to the effort: to extrapolate from.
    left_out : tuple of Spectrum
        With `coarse`: the same without one part of the random draws after the other (jackknife).
    """

    values: np.ndarray
    weights: np.ndarray
    method: str
    replicates: np.ndarray = field(default_factory=_none)
    shifts: np.ndarray = field(default_factory=_none)
    alternatives: np.ndarray = field(default_factory=_none)
    squares: float | None = None
    top_error: float = 0.0
    rounding: float = 0.0
    coarse: tuple["Spectrum", ...] = ()
    left_out: tuple["Spectrum", ...] = ()

    @classmethod
    def from_eigenvalues(cls, eigenvalues: np.ndarray, *, noise: float, method: str) -> "Spectrum":
        """Drop what rounding left in place of zeros, and divide by the sum.

        An eigenvalue of n computed in double precision carries an error of about n * eps * the largest; `noise` is the error
        that the matrix itself brings. Below either, it is zero: at small orders a thousand spurious values of 1e-17 would
        outweigh the true ones.

        >>> Spectrum.from_eigenvalues(np.array([0.0, 1.0, 3.0]), noise=0.0, method="by hand").values
        array([0.75, 0.25])
        """
        values = np.sort(np.asarray(eigenvalues, np.float64))[::-1]
        largest = values[0]
        floor = max(values.size * np.finfo(np.float64).eps * largest, min(noise, 0.5 * largest))
        values = values[values > floor]
        values = values / values.sum()
        return cls(values, np.ones(values.size), method)


@dataclass(frozen=True, eq=False)
class Estimate:
    """A number and the error that the way to it brings.

    Attributes
    ----------
    value : float
        The number.
    deviations : ndarray, shape (k,)
        What each of k random draws contributes to the error: independent, so squares add up. Estimates made from the same
        draws have theirs in the same places, so that in a difference common errors cancel.
    systematic : float
        Error that more draws would not lessen.
    """

    value: float
    deviations: np.ndarray = field(default_factory=lambda: np.zeros(0))
    systematic: float = 0.0

    @property
    def standard_error(self) -> float:
        """Root of the summed squares of both kinds of error."""
        return math.hypot(float(np.linalg.norm(self.deviations)), self.systematic)

    @classmethod
    def total(cls, terms: Iterable[tuple[float, "Estimate"]]) -> "Estimate":
        """Sum of factor x estimate, for estimates made from the same draws.

        >>> draws = np.array([0.03, 0.04])
        >>> Estimate.total([(1, Estimate(5.0, draws)), (-1, Estimate(3.0, draws))]).standard_error
        0.0
        """
        terms = list(terms)
        deviations = np.zeros(max(estimate.deviations.size for _, estimate in terms))
        for factor, estimate in terms:
            deviations[: estimate.deviations.size] += factor * estimate.deviations
        return cls(
            math.fsum(factor * estimate.value for factor, estimate in terms),
            deviations,
            math.fsum(abs(factor) * estimate.systematic for factor, estimate in terms),
        )
