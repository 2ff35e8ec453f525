"""The exceptions that divprism raises.

Every exception derives from `DivprismError`, so one `except` catches them all. Those about values
also derive from `ValueError` and those about missing packages from `ImportError`, so code that does
not know divprism handles them as usual.
"""

__all__ = [
    "ArgumentError",
    "BandwidthWarning",
    "DataError",
    "DivprismError",
    "GateError",
    "MissingExtraError",
    "MissingModelError",
]


class DivprismError(Exception):
    """Base class of all errors of divprism; the message states the reason and a way out."""


class ArgumentError(DivprismError, ValueError):
    """An invalid argument, such as `order=-1`; the command line exits with code 2."""


class DataError(DivprismError, ValueError):
    """Data that cannot be scored (NaN, mismatched lengths, a broken file); exit code 4."""


class MissingExtraError(DivprismError, ImportError):
    """An optional package is not installed; the message names what to install; exit code 3."""


class MissingModelError(DivprismError, OSError):
    """A model or an endpoint is unavailable; the message names the default model; exit code 3."""


class GateError(DivprismError):
    """A score is below the limit of `--fail-under`; the command line exits with code 5."""


class BandwidthWarning(UserWarning):
    """A bandwidth at which nearly all items count as alike, or none; the message says what to do."""
