"""Eigenvalues of a trace-one matrix as a discrete measure, and numbers with their errors."""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

import numpy as np

__all__ = ["NEGATIVE_MARGIN", "Estimate", "Spectrum", "spectral_floor"]

# Rounding of a matrix makes eigenvalues of either sign. The most negative one shows how large the
# positive ones may be, up to this factor.
NEGATIVE_MARGIN = 1.2


def _empty() -> np.ndarray:
    return np.zeros((0, 0))


def spectral_floor(largest: float, size: int, noise: float) -> float:
    """Eigenvalues of a matrix of `size` rows that are not above this count as zero."""
    rounding = size * float(np.finfo(np.float64).eps) * float(largest)
    # However noisy the matrix is, its largest eigenvalue stays.
    return max(rounding, min(noise, 0.5 * float(largest)))


@dataclass(frozen=True, eq=False)
class Spectrum:
    """Eigenvalues of a trace-one matrix, largest first, with multiplicities; zeros are left out.

    Attributes
    ----------
    values : ndarray of float64, shape (r,)
        Positive and decreasing.
    weights : ndarray of float64, shape (r,)
        Multiplicities: integers from an exact method, any numbers from a quadrature, even negative
        ones where a known part of the measure is subtracted. sum(weights * values) is 1.
    method : str
        Name of the algorithm that computed them.
    replicates : ndarray, shape (k, r)
        The weights without the first, the second, ... of k random probes: their spread is the
        random error (jackknife). Empty for a deterministic method.
    shifts : ndarray, shape (l, r)
        Changes of the weights as large as the systematic errors (quadrature, rounding) may be.
    alternatives : ndarray, shape (a, r)
        Weights by other rules than the preferred one. They agree on smooth functions of the
        eigenvalues and disagree where a truncation cuts, and so show how well the cut is resolved.
    squares : float or None
        Sum of the squared eigenvalues, if known exactly.
    top_error : float
        Error of the largest eigenvalue.
    rounding : float
        Relative error of all eigenvalues together, from the precision of the kernel values.
    floor : float
        Eigenvalues up to this size may be there because the data were rounded. Orders below one,
        which count them almost as fully as all others, leave them out.
    hidden : int
        Eigenvalues that were left out as rounding errors of zeros, and may be none.
    bounds : tuple of two Spectrum
        With `coarse`: the same eigenvalues with the mass that is missing placed in two ways, for
        the least and for the most entropy.
    seen : float
        With `bounds`: sum of the eigenvalues that were found, before mass was added.
    unseen : float
        With `bounds`: sum of squares of the eigenvalues beyond that of the second bound.
    coarse : tuple of Spectrum
        Spectra from half the effort each, which show how the result depends on the effort.
    shares : ndarray, shape (k, r)
        With `coarse` and no `bounds`: the share of each of k random features in the eigenvector
        of each value.
    controls : ndarray, shape (k, c)
        With `shares`: numbers for each random feature whose means are known to be zero; their means
        in the sample show how typical the sample is. Empty if not known.
    raw : bool
        With `shares`: whether the entropy is that of these values, not an extrapolation.
    """

    values: np.ndarray
    weights: np.ndarray
    method: str
    replicates: np.ndarray = field(default_factory=_empty)
    shifts: np.ndarray = field(default_factory=_empty)
    alternatives: np.ndarray = field(default_factory=_empty)
    squares: float | None = None
    top_error: float = 0.0
    rounding: float = 0.0
    floor: float = 0.0
    hidden: int = 0
    bounds: tuple["Spectrum", ...] = ()
    seen: float = 1.0
    unseen: float = 0.0
    coarse: tuple["Spectrum", ...] = ()
    shares: np.ndarray = field(default_factory=_empty)
    controls: np.ndarray = field(default_factory=_empty)
    raw: bool = False

    @classmethod
    def from_eigenvalues(cls, eigenvalues: np.ndarray, *, noise: float, method: str) -> "Spectrum":
        """Drop eigenvalues that rounding leaves in place of zeros, and divide by the sum.

        Each of n eigenvalues computed in double precision has an error of about n * eps * the
        largest; values below that are zeros. `noise` is what rounding may add, of the data or of
        the matrix. A matrix that was rounded has negative eigenvalues, and positive ones as small
        as these are zeros too. Data that were rounded, to half precision for example, have a valid
        kernel matrix: its values below the noise may still be true. They are kept, because orders
        from one on hardly notice them, and `floor` marks them for orders below one: there a
        thousand spurious values of 1e-17 would outweigh the true ones.

        >>> Spectrum.from_eigenvalues(np.array([0.0, 1.0, 3.0]), noise=0.0, method="by hand").values
        array([0.75, 0.25])
        """
        values = np.sort(np.asarray(eigenvalues, np.float64))[::-1]
        rounded = min(noise, NEGATIVE_MARGIN * max(0.0, -float(values[-1])))
        floor = spectral_floor(values[0], values.size, noise)
        values = values[values > spectral_floor(values[0], values.size, rounded)]
        # The dropped values were rounding errors, so the trace is restored.
        total = float(values.sum())
        return cls(values / total, np.ones(values.size), method, floor=floor / total)

    def above_floor(self) -> "Spectrum":
        """The eigenvalues that no rounding of the data explains, divided by their sum."""
        # Negated, because `searchsorted` needs rising numbers.
        count = int(np.searchsorted(-self.values, -self.floor))
        if self.floor == 0 or count == self.values.size:
            return self
        values, weights = self.values[:count], self.weights[:count]
        return replace(self, values=values / (values @ weights), weights=weights, floor=0.0)


@dataclass(frozen=True, eq=False)
class Estimate:
    """A number and the error of the method that computed it.

    Attributes
    ----------
    value : float
        The number.
    deviations : ndarray, shape (k,)
        Contribution of each of k random probes to the error. They are independent, so their squares
        add up. Estimates from the same probes keep them in the same order, so common errors cancel
        in a difference.
    systematic : float
        Error that more probes would not reduce.
    """

    value: float
    deviations: np.ndarray = field(default_factory=lambda: np.zeros(0))
    systematic: float = 0.0

    @property
    def standard_error(self) -> float:
        """Random and systematic error together, as the root of their summed squares."""
        return math.hypot(float(np.linalg.norm(self.deviations)), self.systematic)

    @classmethod
    def total(cls, terms: Iterable[tuple[float, "Estimate"]]) -> "Estimate":
        """Sum of factor x estimate, for estimates from the same probes.

        >>> errors = np.array([0.03, 0.04])
        >>> Estimate.total([(1, Estimate(5.0, errors)), (-1, Estimate(3.0, errors))]).standard_error
        0.0
        """
        terms = list(terms)
        value = math.fsum(factor * estimate.value for factor, estimate in terms)
        # Signed: errors from the same probe cancel in a difference.
        deviations = np.zeros(max(estimate.deviations.size for _, estimate in terms))
        for factor, estimate in terms:
            deviations[: estimate.deviations.size] += factor * estimate.deviations
        # In absolute value: nothing relates the systematic errors of two estimates.
        systematic = math.fsum(abs(factor) * estimate.systematic for factor, estimate in terms)
        return cls(value, deviations, systematic)
