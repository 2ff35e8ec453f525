"""Checks of the values in settings that anybody may have written."""

from typing import Any

from divprism.data.wording import escaped
from divprism.errors import ArgumentError

__all__ = ["is_whole", "require", "require_number", "require_whole"]


_LARGEST = 1e6


def is_whole(value: object, low: int, high: int) -> bool:
    """Whether a value is a whole number in a range; True and False are none."""
    return isinstance(value, int) and not isinstance(value, bool) and low <= value <= high


def require_whole(name: str, value: object, low: int, high: int) -> None:
    """Raise `ArgumentError` for anything but a whole number in a range."""
    require(is_whole(value, low, high), name, f"a whole number from {low} to {high:,}", value)


def require_number(name: str, value: Any) -> None:
    """Raise `ArgumentError` for anything but a finite number of a sensible size."""
    # A whole number of a thousand digits is no float. Comparisons with NaN are false.
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    require(is_number and -_LARGEST < value < _LARGEST, name, "a finite number", value)


def require(condition: bool, name: str, requirement: str, value: object) -> None:
    """Raise `ArgumentError` unless a condition holds; the sentence names what was given."""
    if not condition:
        raise ArgumentError(f"`{name}` must be {requirement}; got {escaped(repr(value))[:60]}.")
