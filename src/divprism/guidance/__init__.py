"""Guidance: gradients of diversity scores, the bank of earlier samples, and hooks for diffusers."""

from typing import TYPE_CHECKING

from divprism.guidance.bank import Bank
from divprism.guidance.gradient import Gradient, marginal_gain, score_gradient
from divprism.guidance.objectives import Objective

if TYPE_CHECKING:
    from divprism.guidance.diffusers import DiversityGuidance

__all__ = ["Bank", "DiversityGuidance", "Gradient", "Objective", "marginal_gain", "score_gradient"]


def __getattr__(name: str) -> object:
    """Import `DiversityGuidance`, which needs torch and diffusers, at its first use."""
    if name == "DiversityGuidance":
        from divprism.guidance.diffusers import DiversityGuidance

        return DiversityGuidance
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
