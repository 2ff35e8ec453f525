"""Inside a group of prompts: its outputs at equal size, its typical prompts, its modes."""

import math
from dataclasses import dataclass

import numpy as np

from divprism.analysis.groups.grouping import Membership, leading_eigenvectors, rotation
from divprism.core.arrays import to_numpy
from divprism.core.entropy import renyi_entropy
from divprism.core.operators import KernelOperator, dense
from divprism.core.spectrum import Spectrum
from divprism.core.tiles import row_blocks
from divprism.engines import Resources

__all__ = ["Inside", "Mode", "Wanted", "modes_of", "rarefied_vendi", "typical_rows"]

_DRAWS = 32  # random parts of a group whose scores are averaged
_CLEAR = 0.5  # times the largest loading of a mode: an output with less does not show it


@dataclass(frozen=True)
class Mode:
    """A kind of output inside a group: its share of the group, and the rows of the distinct outputs that show it best."""

    share: float
    outputs: tuple[int, ...]


@dataclass(frozen=True)
class Wanted:
    """What is asked about each group."""

    num_modes: int
    num_examples: int
    min_size: int
    plain: bool


@dataclass(frozen=True, eq=False)
class Inside:
    """A kernel on the rows of a group: K o v v' with equal items merged, and of each the row, and its mass, that has most."""

    operator: KernelOperator
    rows: np.ndarray
    largest: np.ndarray

    @classmethod
    def of(cls, operator: KernelOperator, group: Membership) -> "Inside":
        """The items of one side in a group."""
        points, inverse = np.unique(operator.index[group.places], return_inverse=True)
        by_mass = np.lexsort((group.places, -group.masses, inverse))
        first = by_mass[np.unique(inverse[by_mass], return_index=True)[1]]
        masses = np.bincount(inverse, weights=group.masses)
        return cls(operator.subset(points, masses), group.places[first], group.masses[first])


def rarefied_vendi(
    x: KernelOperator, places: np.ndarray, size: int, order: float, rng: np.random.Generator
) -> tuple[float, float]:
    """Mean Vendi of `size` of the outputs drawn without replacement, and its standard error."""
    scores = []
    for _ in range(_DRAWS):
        chosen, counts = np.unique(
            x.index[rng.choice(places, size, replace=False)], return_counts=True
        )
        part = x.subset(chosen, counts / size)
        values = (
            part.masses if part.is_diagonal else np.linalg.eigvalsh(to_numpy(next(dense([part]))))
        )
        spectrum = Spectrum.from_eigenvalues(values, noise=x.noise, method="exact")
        scores.append(math.exp(renyi_entropy(spectrum, order)))
    return float(np.mean(scores)), float(np.std(scores, ddof=1) / math.sqrt(_DRAWS))


def typical_rows(inside: Inside, count: int) -> tuple[int, ...]:
    """Rows of the distinct prompts with the largest mass in a group; of equal ones, those most alike to the group's mean."""
    operator = inside.operator
    everything = slice(0, operator.size)
    likeness = np.concatenate(
        [
            to_numpy(operator.values(rows, everything)) @ operator.masses
            for rows in row_blocks(operator.size, 1024)
        ]
    )
    order = np.lexsort(
        (inside.rows, -likeness.round(9), -(inside.largest / inside.largest.max()).round(9))
    )
    return tuple(int(row) for row in inside.rows[order[:count]])


def modes_of(
    inside: Inside, wanted: Wanted, resources: Resources, vendi: float
) -> tuple[Mode, ...]:
    """The leading eigenvectors of K_X o v v', rotated unless `plain`, each with the rows of its largest entries.

    No more are rotated than there are kinds of outputs: a rotation would split one kind over all of them. Then an output is
    shown by the mode of its largest loading alone, if that is clear; a mode that no output belongs to is left out.
    """
    operator = inside.operator
    count = wanted.num_modes if wanted.plain else min(wanted.num_modes, round(vendi))
    if count == 0:
        return ()
    way_out = "num_modes=0 leaves the modes out, and more groups are smaller"
    values, vectors = leading_eigenvectors(
        operator, min(count, operator.size), resources, "outputs of a group", way_out
    )
    loadings = vectors * np.sqrt(values) / np.sqrt(operator.masses)[:, None]
    loadings = np.abs(loadings) if wanted.plain else loadings @ rotation(loadings, operator.masses)
    shares = operator.masses @ loadings**2
    entries = loadings * np.sqrt(inside.largest)[:, None]
    shows = loadings >= _CLEAR * loadings.max(axis=0)
    if not wanted.plain:
        shows &= np.arange(shares.size) == loadings.argmax(axis=1)[:, None]
    found = []
    for place in np.argsort(-shares.round(12), kind="stable"):
        order = np.lexsort((inside.rows, -entries[:, place].round(9)))
        rows = inside.rows[order[shows[order, place]][: wanted.num_examples]]
        if rows.size:
            found.append(Mode(float(shares[place]), tuple(int(row) for row in rows)))
    return tuple(found)
