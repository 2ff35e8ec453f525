"""Spectrum: the eigenvalues of a trace-one matrix as a discrete measure."""

from dataclasses import dataclass

import numpy as np

__all__ = ["Spectrum"]


@dataclass(frozen=True, eq=False)
class Spectrum:
    """Eigenvalues of a trace-one matrix, largest first, each with its multiplicity; zeros are left out.

    Attributes
    ----------
    values : ndarray of float64, shape (r,)
        Positive and decreasing.
    weights : ndarray of float64, shape (r,)
        Multiplicities: whole numbers from an exact method, any positive numbers from a quadrature. sum(weights * values) is 1.
    method : str
        Name of the algorithm that found them.
    """

    values: np.ndarray
    weights: np.ndarray
    method: str

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
