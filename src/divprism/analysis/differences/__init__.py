"""What one model makes that another one, or the real data, do not hold."""

from divprism.analysis.differences.models import diff
from divprism.analysis.differences.novelty import novelty
from divprism.analysis.differences.novelty_result import NearCopy, Novelty
from divprism.analysis.differences.result import (
    DifferenceMode,
    Differences,
    GroupDifference,
    ModeExample,
)

__all__ = [
    "DifferenceMode",
    "Differences",
    "ModeExample",
    "GroupDifference",
    "NearCopy",
    "Novelty",
    "diff",
    "novelty",
]
