"""From a gradient of a score to what is added to latents."""

import torch

from divprism.core.kernels import Gaussian
from divprism.guidance._latents import scaled_push, unit_rows
from divprism.guidance.gradient import Gradient

__all__ = ["literal_push", "relative_push", "unit_slopes"]

# Gradients of unit rows below this, over the squared bandwidth, are rounding errors of sums that
# cancel, and have no direction.
_ROUNDING = 1e-12


def unit_slopes(result: Gradient, rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the direction in which to move each unit row, and the slope of the score there.

    Rows without a slope have direction zero.
    """
    slopes = result.gradient.flatten(1)
    # The score sees unit rows only, so the component along a row has no effect.
    uphill = slopes - (slopes * rows).sum(1, keepdim=True) * rows
    lengths = uphill.norm(dim=1, keepdim=True)
    bandwidth = 1.0
    if isinstance(result.kernel_x, Gaussian):
        bandwidth = result.kernel_x.bandwidth
    is_flat = lengths <= _ROUNDING / bandwidth / bandwidth
    # The inner `where` keeps 0 / 0 out, which would be NaN.
    directions = torch.where(is_flat, 0.0, uphill / torch.where(is_flat, 1.0, lengths))
    return directions, lengths


def relative_push(slopes: torch.Tensor, strength: float, latents: torch.Tensor) -> torch.Tensor:
    """Return vectors along the slopes, of length strength |latent|; slopes have any length."""
    directions, _ = unit_rows(slopes)
    _, norms = unit_rows(latents)
    return scaled_push(directions, strength, norms)


def literal_push(
    slopes: torch.Tensor, strength: float, lengths: torch.Tensor, norms: torch.Tensor
) -> torch.Tensor:
    """Return strength times the gradient of the score.

    The second term of Conditional Vendi, eq. 14. `slopes` are the directions of `unit_slopes`,
    or these pulled back, and `lengths` the slopes there. Dividing by the norms of what was
    scaled to norm one is the chain rule.
    """
    # Items of norm zero have no direction, and so no slope.
    scale = torch.where(norms == 0, 0.0, lengths / torch.where(norms == 0, 1.0, norms))
    largest = torch.finfo(torch.float64).max
    return (float(strength) * scale * slopes).clamp(-largest, largest)
