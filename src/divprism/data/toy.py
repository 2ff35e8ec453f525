"""Toy data with a known answer: matched Gaussian mixtures in the plane.

Conditional Vendi, App. G.1 and Fig. 11 describe the construction.
"""

from dataclasses import dataclass

import numpy as np

__all__ = ["BANDWIDTH", "World", "image_series", "matched_mixtures", "text_series"]

BANDWIDTH = 0.6
"""Bandwidth of both kernels in the paper."""

# Standard deviations of the modes.
_TEXT_SPREAD, _IMAGE_SPREAD = 0.15, 0.3


@dataclass(frozen=True, eq=False)
class World:
    """Outputs `x` and prompts `t`, sampled from mixtures with a known number of modes.

    Attributes
    ----------
    text_modes, image_modes : int
        Number of Gaussians in the mixture of the prompts and of the outputs.
    x, t : ndarray, shape (n, 2)
        Outputs and their prompts, row by row.
    """

    text_modes: int
    image_modes: int
    x: np.ndarray
    t: np.ndarray


def _mixture(modes: int, spread: float, n: int, rng: np.random.Generator) -> np.ndarray:
    """Sample n points with the same number from each mode.

    The centres are on the unit circle; a single mode is at the origin.
    """
    angle = 2 * np.pi * np.arange(modes) / modes
    if modes > 2:
        # Three or more modes start at the top; two are left and right.
        angle = angle + np.pi / 2
    radius = float(modes > 1)
    centres = radius * np.column_stack([np.cos(angle), np.sin(angle)])
    # Modes alternate by row instead of being sampled, so that their shares are exact.
    return centres[np.arange(n) % modes] + spread * rng.standard_normal((n, 2))


def matched_mixtures(text_modes: int, image_modes: int, *, n: int = 1000, rng: int = 0) -> World:
    """Sample both sides independently, then match each prompt with an output.

    The matching minimises the sum of squared distances. It costs up to O(n^3); 1,000 pairs take
    a fraction of a second.

    Parameters
    ----------
    text_modes, image_modes : int
        Number of modes of the prompts and of the outputs.
    n : int, optional
        Number of pairs.
    rng : int, optional
        Seed; different numbers of modes get independent samples under the same seed.

    Examples
    --------
    >>> world = matched_mixtures(1, 2, n=10)
    >>> world.x.shape, world.t.shape
    ((10, 2), (10, 2))
    """
    # Imported here: the command line imports this module for its --help.
    import scipy.optimize

    # The seed includes the sizes, so that the worlds of a series are independent.
    generator = np.random.default_rng([rng, text_modes, image_modes])
    t = _mixture(text_modes, _TEXT_SPREAD, n, generator)
    x = _mixture(image_modes, _IMAGE_SPREAD, n, generator)
    # An array of shape (n, n, 2) fits in memory at the sizes of a toy.
    cost = ((t[:, None, :] - x[None, :, :]) ** 2).sum(axis=2)
    _, partner = scipy.optimize.linear_sum_assignment(cost)
    return World(text_modes, image_modes, x[partner], t)


def text_series(*, n: int = 1000, rng: int = 0) -> list[World]:
    """Return worlds with four kinds of image and 1, 2, 3 and 4 kinds of prompt.

    Along the series, more and more of the diversity follows the prompts.
    """
    return [matched_mixtures(modes, 4, n=n, rng=rng) for modes in range(1, 5)]


def image_series(*, n: int = 1000, rng: int = 0) -> list[World]:
    """Return worlds with two kinds of prompt and 2 to 6 kinds of image.

    Along the series, more and more of the diversity is the model's own.
    """
    return [matched_mixtures(2, modes, n=n, rng=rng) for modes in range(2, 7)]
