"""The exceptions that divprism raises on purpose.

Every one derives from `DivprismError`, so one `except` catches them all. Those about values also derive from `ValueError`,
those about missing packages from `ImportError`, so code that knows nothing of divprism still does the expected thing.
"""

from dataclasses import dataclass

__all__ = [
    "ArgumentError",
    "BandwidthWarning",
    "DataError",
    "DivprismError",
    "GateError",
    "MissingExtraError",
    "MissingModelError",
    "Notice",
]


class DivprismError(Exception):
    """Anything that divprism refuses to do, with the reason and the way out in one sentence."""


class ArgumentError(DivprismError, ValueError):
    """A setting that makes no sense (`order=-1`); the command line ends with exit code 2."""


class DataError(DivprismError, ValueError):
    """Data that cannot be scored (NaN, mismatched lengths, a broken file); the command line ends with exit code 4."""


class MissingExtraError(DivprismError, ImportError):
    """An optional package is not installed; the message says what to install, the command line ends with exit code 3."""


class MissingModelError(DivprismError, OSError):
    """Weights or an endpoint cannot be had; the message names the embedded default, the command line ends with exit code 3."""


class GateError(DivprismError):
    """A score is below what was asked for (`--fail-under`); the command line ends with exit code 5."""


class BandwidthWarning(UserWarning):
    """A bandwidth at which a score says nothing: all count as alike, or none do. The message says what to change."""


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
