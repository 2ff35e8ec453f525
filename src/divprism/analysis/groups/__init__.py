"""Groups of prompts: ways to find them, the diversity inside each, and the aggregate."""

from divprism.analysis.groups.decomposition import PromptGroup, PromptGroups, prompt_groups
from divprism.analysis.groups.grouping import (
    EigenDirectionGrouping,
    EigenGrouping,
    ExactPromptGrouping,
    Grouping,
    KMeansGrouping,
    LabelGrouping,
)
from divprism.analysis.groups.nested import NestedScores, nested_scores

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
