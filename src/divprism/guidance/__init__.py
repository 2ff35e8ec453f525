"""Guidance: gradients of diversity scores for samplers, and the bank of earlier samples that they look at."""

from divprism.guidance.bank import Bank
from divprism.guidance.gradient import Gradient, marginal_gain, score_gradient
from divprism.objectives import Objective

__all__ = ["Bank", "Gradient", "Objective", "marginal_gain", "score_gradient"]
