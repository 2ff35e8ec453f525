"""Groups of prompts: ways to find them, the diversity inside each, and the aggregate."""

from divprism.analysis.groups.decomposition import prompt_groups
from divprism.analysis.groups.grouping import (
    EigenDirectionGrouping,
    EigenGrouping,
    ExactPromptGrouping,
    Grouping,
    KMeansGrouping,
    LabelGrouping,
)
from divprism.analysis.groups.nested import NestedScores, nested_scores
from divprism.analysis.groups.result import PromptGroup, PromptGroups

__all__ = [
    "EigenDirectionGrouping",
    "EigenGrouping",
    "ExactPromptGrouping",
    "Grouping",
    "KMeansGrouping",
    "LabelGrouping",
    "NestedScores",
    "PromptGroup",
    "PromptGroups",
    "nested_scores",
    "prompt_groups",
]
