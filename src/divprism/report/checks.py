"""Checks of plain values: small functions that combine to the description of a document.

Each check raises `DataError` with one sentence that names the path, the requirement and the value.
"""

from collections.abc import Callable, Mapping
from typing import NoReturn

from divprism.errors import DataError
from divprism.report.texts import shortened

__all__ = [
    "LARGEST",
    "Check",
    "all_of",
    "boolean",
    "list_of",
    "mapping_of",
    "maybe",
    "number",
    "one_of",
    "positive",
    "record",
    "refuse",
    "short_text",
    "text",
    "whole",
]

Check = Callable[[object, str], None]
"""A function of a value and its path in the document that raises unless the value fits."""

LARGEST = 1e15
"""The largest number that is accepted: no sample has more items, and plots take powers."""
# Some decades above the smallest double: the margin of a log axis reaches below the value.
_SMALLEST = 1e-300  # of a positive number
_SHORT = 100  # letters of a label


def refuse(path: str, requirement: str, value: object) -> NoReturn:
    """Raise `DataError`: the value at this path is not what it must be."""
    # Keys and values come from the file: they may be megabytes long, or drive a terminal.
    where = shortened(path, 80)
    given = shortened(repr(value), 40)
    raise DataError(
        f"this is not a result that divprism wrote: `{where}` must be {requirement}; got {given}."
    )


def number(low: float = -LARGEST, high: float = LARGEST) -> Check:
    """Return a check for numbers within a range; NaN is in none."""

    def check(value: object, path: str) -> None:
        """Check that a value is a number within the range."""
        requirement = f"a number from {low:g} to {high:g}"
        # A bool is an int in Python, but true is no number in JSON.
        if isinstance(value, bool) or not isinstance(value, int | float):
            refuse(path, requirement, value)
        # In this form NaN, for which both comparisons are false, is refused.
        if not low <= value <= high:
            refuse(path, requirement, value)

    return check


positive: Check = number(low=_SMALLEST)
"""A check for numbers that a log axis can show."""


def whole(low: int = 0) -> Check:
    """Return a check for whole numbers from `low`; 3.0 is none."""

    def check(value: object, path: str) -> None:
        requirement = f"a whole number from {low} to {LARGEST:g}"
        if isinstance(value, bool) or not isinstance(value, int):
            refuse(path, requirement, value)
        # JSON allows integers that no float can hold; comparing them does not convert them.
        if not low <= value <= LARGEST:
            refuse(path, requirement, value)

    return check


def text(value: object, path: str) -> None:
    """Check that a value is a string."""
    if not isinstance(value, str):
        refuse(path, "a text", value)


def short_text(value: object, path: str) -> None:
    """Check that a value is a string of at most 100 letters, as the label of a plot needs it."""
    text(value, path)
    if len(str(value)) > _SHORT:
        refuse(path, f"a text of at most {_SHORT} letters", value)


def boolean(value: object, path: str) -> None:
    """Check that a value is a bool."""
    if not isinstance(value, bool):
        refuse(path, "true or false", value)


def one_of(*allowed: str) -> Check:
    """Return a check for one of some texts."""

    def check(value: object, path: str) -> None:
        # A tuple, not a set: the value may be a list, which has no hash.
        if value not in allowed:
            refuse(path, f"one of {', '.join(allowed)}", value)

    return check


def maybe(check: Check) -> Check:
    """Return a check that also accepts None."""

    def check_unless_none(value: object, path: str) -> None:
        if value is not None:
            check(value, path)

    return check_unless_none


def list_of(check: Check, minimum: int = 0) -> Check:
    """Return a check for lists of at least `minimum` items that all pass `check`."""

    def check_items(value: object, path: str) -> None:
        if not isinstance(value, list | tuple) or len(value) < minimum:
            refuse(path, f"a list of at least {minimum}", value)
        for index, item in enumerate(value):
            check(item, f"{path}[{index}]")

    return check_items


def mapping_of(check: Check) -> Check:
    """Return a check for mappings whose values all pass `check`, whatever their keys are."""

    def check_values(value: object, path: str) -> None:
        if not isinstance(value, Mapping):
            refuse(path, "an object", value)
        for key, item in value.items():
            check(item, f"{path}.{key}")

    return check_values


def record(required: Mapping[str, Check], optional: Mapping[str, Check] | None = None) -> Check:
    """Return a check for mappings with these keys; `optional` keys are checked where present."""

    def check(value: object, path: str) -> None:
        if not isinstance(value, Mapping):
            refuse(path, "an object", value)
        for key, check_field in required.items():
            if key not in value:
                # As texts: keys of a dict made in Python may have types that do not compare.
                refuse(path, f"an object with the key {key!r}", sorted(map(str, value)))
            check_field(value[key], f"{path}.{key}")
        for key, check_field in (optional or {}).items():
            if key in value:
                check_field(value[key], f"{path}.{key}")

    return check


def all_of(*checks: Check) -> Check:
    """Return a check that applies several in turn; a later one relies on those before it."""

    def check_all(value: object, path: str) -> None:
        for check in checks:
            check(value, path)

    return check_all
