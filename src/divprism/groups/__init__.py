"""Groups of prompts: scores inside known ones, ways to find them, and what their diversity adds up to."""

from divprism.groups.cluster import cluster_rke, cluster_score_from, cluster_vendi, kmeans_labels
from divprism.groups.decomposition import Decomposition, PromptGroup, prompt_groups
from divprism.groups.grouping import EigenDirections, EigenGroups, Grouping, KMeansGroups, LabelGroups, PromptGroups
from divprism.groups.nested import NestedScores, nested_scores

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
    "cluster_rke",
    "cluster_score_from",
    "cluster_vendi",
    "kmeans_labels",
    "nested_scores",
    "prompt_groups",
]
