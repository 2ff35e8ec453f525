"""Groups of prompts: scores inside known ones, ways to find them, and what their diversity adds up to."""

from divprism.analysis.groups.decomposition import Decomposition, PromptGroup, prompt_groups
from divprism.analysis.groups.grouping import (
    EigenDirections,
    EigenGroups,
    Grouping,
    KMeansGroups,
    LabelGroups,
    PromptGroups,
)
from divprism.analysis.groups.nested import NestedScores, nested_scores

__all__ = [
    "Decomposition",
    "EigenDirections",
    "EigenGroups",
    "Grouping",
    "KMeansGroups",
    "LabelGroups",
    "NestedScores",
    "PromptGroup",
    "PromptGroups",
    "nested_scores",
    "prompt_groups",
]
