"""Read-only data that the tests share, and the array libraries that every score is tested on."""

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np


def _torch(a: np.ndarray) -> Any:
    # Imported here, because it takes seconds and most runs need no tensor.
    import torch

    return torch.from_numpy(np.array(a))


def _array_api_strict(a: np.ndarray) -> Any:
    import array_api_strict

    return array_api_strict.asarray(np.array(a))


LIBRARIES: dict[str, Callable[[np.ndarray], Any]] = {
    "numpy": lambda a: a,
    "torch": _torch,
    "array-api-strict": _array_api_strict,
}


def read_only(a: np.ndarray) -> np.ndarray:
    a.setflags(write=False)
    return a


@cache
def sixty_pairs() -> tuple[np.ndarray, np.ndarray]:
    """Sixty pairs with repeated prompts, repeated outputs and a few repeated pairs."""
    rng = np.random.default_rng(3)
    x = rng.standard_normal((60, 5)) + 3
    t = rng.standard_normal((12, 4))[rng.integers(0, 12, 60)]
    x[10:14], t[10:14] = x[0], t[0]
    x[20] = x[21]
    return read_only(x), read_only(t)


def _dataset_a() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.RandomState(0)
    x = rng.randn(500, 64)
    return read_only(x), read_only(rng.randn(500, 32))


def _dataset_b() -> tuple[np.ndarray, np.ndarray]:
    """Ten prompts, fifty outputs each, four modes per prompt."""
    rng = np.random.RandomState(0)
    t = np.repeat(rng.randn(10, 32), 50, axis=0)
    centres = rng.randn(10, 4, 64)
    group = np.repeat(np.arange(10), 50)
    mode = rng.randint(0, 4, size=500)
    return read_only(centres[group, mode] + 0.1 * rng.randn(500, 64)), read_only(t)


DATA = {"A": _dataset_a(), "B": _dataset_b()}
GOLDEN = json.loads((Path(__file__).parent / "golden.json").read_text())
