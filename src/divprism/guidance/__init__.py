"""Guidance: gradients of diversity scores, the bank of earlier samples, and hooks for diffusers."""

from typing import TYPE_CHECKING

from divprism.guidance.bank import Bank
from divprism.guidance.gradient import Gradient, marginal_gain, score_gradient
from divprism.guidance.objectives import Objective

if TYPE_CHECKING:
    from divprism.guidance.diffusers import DiversityGuidance
    from divprism.guidance.features import Features

__all__ = [
    "Bank",
    "DiversityGuidance",
    "Features",
    "Gradient",
    "Objective",
    "marginal_gain",
    "score_gradient",
]


def __getattr__(name: str) -> object:
    """Import what needs torch and diffusers at its first use."""
    if name in ("DiversityGuidance", "Features"):
        # Not from its own module: this one reports missing packages.
        from divprism.guidance import diffusers

        return getattr(diffusers, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
