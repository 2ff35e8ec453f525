"""The cosine kernel."""

from dataclasses import dataclass
from typing import Any

from divprism.core.arrays import Array
from divprism.core.kernels.base import Kernel, require_directions, resolution, unit_rows
from divprism.core.kernels.points import Points
from divprism.core.validation import clean_rows

__all__ = ["Cosine"]


@dataclass(frozen=True)
class Cosine(Kernel):
    """Similar when pointing the same way: the cosine of the angle between two rows.

    Its feature map is the normalised row itself. Data of d dimensions therefore have at most d
    non-zero eigenvalues, and the dual estimator solves a d x d problem.
    """

    def clean(self, x: object, name: str) -> Array:
        """Validate rows; none may be all zeros."""
        return require_directions(clean_rows(x, name), name)

    def points(self, x: Array, dtype: Any, name: str) -> Points:
        """Rows divided by their norms."""
        return Points(unit_rows(x, dtype), noise=resolution(x))

    def block(self, a: Points, b: Points) -> Array:
        """Inner products of unit rows."""
        return a.rows @ b.rows.T

    def feature_dimension(self, width: int) -> int:
        """The width of the rows, which are their own features."""
        return width

    def features(self, points: Points) -> Array:
        """The unit rows."""
        return points.rows
