"""Pairs of prompts and images that several experiments use."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import numpy as np

import divprism as dp
from experiments.world.digits import DIGITS, INKS, digit_model, embed, sentences

# The features of the judge are 64 wide and of length 8. Images of the same digit and ink are about
# 5 apart, others 11: this bandwidth distinguishes kinds. The papers' rule chooses one near 6.7.
BANDWIDTH_X = 4.0
WIDE_BANDWIDTH_X = 6.7
# Vectors of sentences: those with different digits are 0.4 to 1.1 apart, with inks 0.9 to 1.5.
BANDWIDTH_T = 0.3

KERNELS = {"kernel_x": dp.Gaussian(BANDWIDTH_X), "kernel_t": dp.Gaussian(BANDWIDTH_T)}
WIDE_KERNELS = KERNELS | {"kernel_x": dp.Gaussian(WIDE_BANDWIDTH_X)}
COSINE = {"kernel_x": dp.Cosine(), "kernel_t": dp.Cosine()}


@dataclass(frozen=True, eq=False)
class Pairs:
    """Prompts with one generated image each.

    Attributes
    ----------
    prompts : tuple of str
        Sentences.
    images : ndarray of shape (n, 64)
        Pixels.
    x, t : ndarray
        Features of the images and vectors of the prompts.
    digits, inks : ndarray of shape (n,)
        What the judge sees in each image.
    """

    prompts: tuple[str, ...]
    images: np.ndarray
    x: np.ndarray
    t: np.ndarray
    digits: np.ndarray
    inks: np.ndarray


def pairs_for(prompts: Sequence[str], **options: float) -> Pairs:
    """Images of the digit model for some prompts; options as in `DigitModel.generate`."""
    model = digit_model()
    images = model.generate(prompts, **options)
    digits, inks = model.seen(images)
    return Pairs(tuple(prompts), images, model.features(images), embed_all(prompts), digits, inks)


def embed_all(texts: Sequence[str]) -> np.ndarray:
    """Vectors of texts, each distinct one embedded once."""
    distinct = sorted(set(texts))
    places = {text: place for place, text in enumerate(distinct)}
    return embed(distinct)[[places[text] for text in texts]]


def mixed_prompts(n: int, seed: int = 0) -> list[str]:
    """Sentences about random digits in random inks, from vague to specific."""
    rng = np.random.default_rng(seed)
    chosen = []
    for digit, ink in zip(
        rng.integers(len(DIGITS), size=n), rng.integers(len(INKS), size=n), strict=True
    ):
        said = sentences(digit, ink)
        chosen.append(said[rng.integers(len(said))])
    return chosen


@lru_cache(maxsize=4)
def mixed_pairs(n: int, seed: int = 0, psi: float = 1.0) -> Pairs:
    """Images for sentences of all kinds."""
    return pairs_for(mixed_prompts(n, seed), seed=seed, psi=psi)


def rises(values: Sequence[float], slack: float = 0.0) -> bool:
    """Whether each value exceeds the one before, up to a share of it."""
    return all(after > before * (1 - slack) for before, after in pairwise(values))
