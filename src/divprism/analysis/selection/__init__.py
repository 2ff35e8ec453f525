"""A diverse subset of outputs: greedy selection with exact marginal gains."""

from divprism.analysis.selection.result import Selection
from divprism.analysis.selection.select import select

__all__ = ["Selection", "select"]
