"""Toy worlds with a known answer: Gaussian mixtures in the plane, paired by matching (Conditional Vendi, App. G, Fig. 11)."""

from dataclasses import dataclass

import numpy as np

__all__ = ["BANDWIDTH", "World", "image_series", "matched_mixtures", "text_series"]

BANDWIDTH = 0.6
"""Bandwidth for both sides, as in the paper."""

_TEXT_SPREAD, _IMAGE_SPREAD = 0.15, 0.3


@dataclass(frozen=True, eq=False)
class World:
    """Pairs of an output `x` and its prompt `t`, drawn from mixtures with a known number of modes.

    Attributes
    ----------
    text_modes, image_modes : int
        Number of Gaussians that prompts, and outputs, are drawn from.
    x, t : ndarray, shape (n, 2)
        Outputs and their prompts, row by row.
    """

    text_modes: int
    image_modes: int
    x: np.ndarray
    t: np.ndarray


def _mixture(modes: int, spread: float, n: int, rng: np.random.Generator) -> np.ndarray:
    """n points, equally many of each mode; centres on the unit circle, a single mode in the middle."""
    angle = 2 * np.pi * np.arange(modes) / modes + (np.pi / 2 if modes > 2 else 0.0)
    radius = 0.0 if modes == 1 else 1.0
    centres = radius * np.column_stack([np.cos(angle), np.sin(angle)])
    return centres[np.arange(n) % modes] + spread * rng.standard_normal((n, 2))


def matched_mixtures(text_modes: int, image_modes: int, *, n: int = 1000, rng: int = 0) -> World:
    """Draw both sides apart, then give each prompt an output so that the sum of squared distances is least.

    O(n^3) at worst for the matching; 1,000 pairs take a fraction of a second.

    >>> world = matched_mixtures(1, 2, n=10)
    >>> world.x.shape, world.t.shape
    ((10, 2), (10, 2))
    """
    import scipy.optimize  # here, because the command line imports this module for its --help

    generator = np.random.default_rng([rng, text_modes, image_modes])
    t = _mixture(text_modes, _TEXT_SPREAD, n, generator)
    x = _mixture(image_modes, _IMAGE_SPREAD, n, generator)
    cost = ((t[:, None, :] - x[None, :, :]) ** 2).sum(axis=2)
    _, partner = scipy.optimize.linear_sum_assignment(cost)
    return World(text_modes, image_modes, x[partner], t)


def text_series(*, n: int = 1000, rng: int = 0) -> list[World]:
    """Four kinds of image under 1, 2, 3 and 4 kinds of prompt: more and more of the diversity follows the prompts."""
    return [matched_mixtures(modes, 4, n=n, rng=rng) for modes in range(1, 5)]


def image_series(*, n: int = 1000, rng: int = 0) -> list[World]:
    """Two kinds of prompt over 2 to 6 kinds of image: more and more of the diversity is the model's own."""
    return [matched_mixtures(2, modes, n=n, rng=rng) for modes in range(2, 7)]
