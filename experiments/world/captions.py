"""Captioners of images of digits: terse, medium, detailed, blind and constant.

A captioner sees the digit and the ink through the judge of `digits.py`, and measures the rest: how
heavy, how slanted and how wide the strokes are, and where they lie. Where several words fit it
chooses one at random. The blind captioner writes detailed captions of other images.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from experiments.world.digits import DIGITS, DigitModel

SIDE = 8

# Grey levels of strokes in each ink: white on black, black on white, and light on dark grey.
_CONTRAST = np.array([1.0, -1.0, 0.4])

# Measures that divide real digits into three parts of about the same size.
_LIMITS = {
    "weight": (0.29, 0.32),
    "slant": (-0.01, 0.09),
    "height": (3.32, 3.62),
    "side": (3.44, 3.68),
    "width": (0.52, 0.60),
}

# Words for the lowest, the middle and the highest part.
_WORDS = {
    "weight": (("thin", "light", "fine"), ("plain", "regular"), ("bold", "heavy", "thick")),
    "slant": (
        ("leaning to the right", "slanted forward"),
        ("standing upright", "quite straight"),
        ("leaning to the left", "tilted backwards"),
    ),
    "height": (("near the top", "placed high"), ("in the middle",), ("near the bottom", "set low")),
    "side": (("left of the centre",), ("well centred", "centred"), ("right of the centre",)),
    "width": (("narrow", "slim"), ("evenly shaped",), ("wide", "broad", "round")),
}

_INK_WORDS = (("white", "bright"), ("black", "dark"), ("grey", "pale"))
_GROUNDS = (
    ("a black background", "black paper"),
    ("white paper", "a white background"),
    ("a dim background", "dull paper"),
)

CONSTANT = "a handwritten digit"


@dataclass(frozen=True, eq=False)
class Views:
    """What a captioner knows about images.

    Attributes
    ----------
    digits, inks : ndarray of int, shape (n,)
        As the judge sees them.
    parts : dict of ndarray
        For each measure, which third of real digits an image belongs to: 0, 1 or 2.
    """

    digits: np.ndarray
    inks: np.ndarray
    parts: dict[str, np.ndarray]

    def __len__(self) -> int:
        return len(self.digits)


def view(model: DigitModel, images: np.ndarray) -> Views:
    """Look at images of 64 pixels."""
    digits, inks = model.seen(images)
    parts = {}
    for name, values in measured(images, inks).items():
        parts[name] = np.digitize(values, _LIMITS[name])
    return Views(digits, inks, parts)


def measured(images: np.ndarray, inks: np.ndarray) -> dict[str, np.ndarray]:
    """Weight, slant, height, side and width of the strokes, from their first two moments."""
    strokes = (images / _CONTRAST[inks][:, None] + 1) / 2
    strokes = np.clip(strokes, 0, 1).reshape(-1, SIDE, SIDE)
    # An image without a stroke has no moments.
    total = np.maximum(strokes.sum(axis=(1, 2)), 1e-6)
    places = np.arange(SIDE)
    x = strokes.sum(axis=1) @ places / total
    y = strokes.sum(axis=2) @ places / total
    from_x, from_y = places - x[:, None], places - y[:, None]
    var_x = np.einsum("nij,nj->n", strokes, from_x**2) / total
    var_y = np.einsum("nij,ni->n", strokes, from_y**2) / total
    together = np.einsum("nij,ni,nj->n", strokes, from_y, from_x) / total
    return {
        "weight": total / SIDE**2,
        # Rows are counted from the top: strokes that run to the right on their way down lean left.
        "slant": together / np.maximum(var_y, 1e-6),
        "height": y,
        "side": x,
        "width": np.sqrt(var_x / np.maximum(var_y, 1e-6)),
    }


def _one_of(words: Sequence[str], rng: np.random.Generator) -> str:
    return words[int(rng.integers(len(words)))]


def _terse(views: Views, row: int, rng: np.random.Generator) -> str:
    name = DIGITS[views.digits[row]]
    return _one_of((f"a {name}", f"the number {name}"), rng)


def _medium(views: Views, row: int, rng: np.random.Generator) -> str:
    ink = _one_of(_INK_WORDS[views.inks[row]], rng)
    ground = _one_of(_GROUNDS[views.inks[row]], rng)
    made = _one_of(("handwritten", "drawn", "written"), rng)
    return f"a {made} {ink} {DIGITS[views.digits[row]]} on {ground}"


def _detailed(views: Views, row: int, rng: np.random.Generator) -> str:
    said = {name: _one_of(_WORDS[name][part[row]], rng) for name, part in views.parts.items()}
    stroke = _one_of(("strokes", "lines", "pen strokes"), rng)
    return (
        f"{_medium(views, row, rng)}, with {said['weight']} {stroke}, {said['width']} and "
        f"{said['slant']}, {said['height']}, {said['side']}"
    )


def _constant(views: Views, row: int, rng: np.random.Generator) -> str:
    return CONSTANT


_WRITERS: dict[str, Callable[[Views, int, np.random.Generator], str]] = {
    "terse": _terse,
    "medium": _medium,
    "detailed": _detailed,
    "blind": _detailed,
    "constant": _constant,
}

CAPTIONERS = tuple(_WRITERS)


def captions(captioner: str, views: Views, seed: int = 0) -> list[str]:
    """A caption of each image, by the captioner of this name."""
    rng = np.random.default_rng(seed)
    rows = np.arange(len(views))
    if captioner == "blind":
        rows = rng.permutation(len(views))
    write = _WRITERS[captioner]
    return [write(views, row, rng) for row in rows]
