"""Validation of the settings of a guide."""

import sys
from typing import Any, TypeGuard

import numpy as np

from divprism.errors import ArgumentError

__all__ = ["check_bandwidth", "check_part", "check_strength"]


def check_strength(strength: object) -> None:
    """Refuse strengths that are no finite numbers of at least zero."""
    if not _is_number(strength) or strength < 0:
        raise ArgumentError(f"`strength` must be a finite number of at least 0; got {strength!r}.")


def check_bandwidth(bandwidth: object, name: str) -> None:
    """Refuse bandwidths that are neither positive numbers nor None."""
    if bandwidth is None:
        return
    if not _is_number(bandwidth) or bandwidth <= 0:
        raise ArgumentError(
            f"`{name}` must be a positive, finite number, or None for the median distance; "
            f"got {bandwidth!r}."
        )


def check_part(start: Any, stop: Any) -> None:
    """Refuse parts of a run that are not increasing fractions."""
    are_numbers = _is_number(start) and _is_number(stop)
    if not are_numbers or not 0 <= start < stop <= 1:
        raise ArgumentError(
            "`start` and `stop` must be fractions with 0 <= start < stop <= 1; "
            f"got {start!r} and {stop!r}."
        )


def _is_number(value: object) -> TypeGuard[float]:
    if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
        return False
    # Python's integers may be larger than any float, of which `isfinite` raises.
    number: Any = value
    return bool(abs(number) <= sys.float_info.max)
