"""The exceptions that divprism raises.

Every exception derives from `DivprismError`, so one `except` catches them all. Those about values
also derive from `ValueError` and those about missing packages from `ImportError`, so code that does
not know divprism handles them as usual.
"""

from dataclasses import dataclass

__all__ = [
    "ArgumentError",
    "BandwidthWarning",
    "DataError",
    "DivprismError",
    "EngineError",
    "GateError",
    "MissingExtraError",
    "MissingModelError",
    "Notice",
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


class EngineError(DivprismError, RuntimeError):
    """A cluster that cannot be reached, or that is lost; the command line exits with code 1."""


class GateError(DivprismError):
    """A score is below the limit of `--fail-under`; the command line exits with code 5."""


class BandwidthWarning(UserWarning):
    """A bandwidth at which nearly all items count as alike, or none; the message has a way out."""


@dataclass(frozen=True)
class Notice:
    """Something that a reader of a result should know, with a code that programs can rely on.

    Attributes
    ----------
    code : str
        A short name such as "prompts-all-apart"; it does not change between versions.
    text : str
        One sentence: what was observed and what to do about it.
    severity : str
        "warning", or "note" for what is only worth knowing.
    """

    code: str
    text: str
    severity: str = "warning"

    def __str__(self) -> str:
        if self.severity == "note":
            return self.text
        return f"{self.code}: {self.text}"

    def to_dict(self) -> dict[str, str]:
        """Plain values, as in result files."""
        return {"code": self.code, "text": self.text, "severity": self.severity}
