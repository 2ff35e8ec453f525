"""Inside a group of prompts: its outputs at equal size, its typical prompts, its modes."""

import math
from dataclasses import dataclass

import numpy as np

from divprism.analysis.groups.grouping import Membership, leading_eigenvectors, rotation
from divprism.core.arrays import to_numpy
from divprism.core.entropy import renyi_entropy
from divprism.core.operators import KernelOperator, dense, matrix_noise
from divprism.core.spectrum import Spectrum
from divprism.core.tiles import row_blocks
from divprism.engines import Resources
from divprism.scores.problem import Problem

__all__ = ["GroupOptions", "Inside", "Mode", "modes_of", "rarefied_vendi", "typical_rows"]

_NUM_SUBSETS = 32  # random subsets of a group whose scores are averaged
_CLEAR = 0.5  # share of the largest loading of a mode below which an output does not show it


@dataclass(frozen=True)
class Mode:
    """A kind of output inside a group.

    Attributes
    ----------
    share : float
        Its share of the group.
    outputs : tuple of int
        Rows of the distinct outputs that show it best.
    """

    share: float
    outputs: tuple[int, ...]


@dataclass(frozen=True)
class GroupOptions:
    """What is reported about each group; `plain` as in `Grouping`."""

    num_modes: int
    num_examples: int
    min_size: int
    plain: bool


@dataclass(frozen=True, eq=False)
class Inside:
    """The items of one side inside a group, equal items merged: K o v v'.

    Attributes
    ----------
    operator : KernelOperator
        The kernel on the distinct items.
    rows : ndarray of int
        For each distinct item, the row that has the largest mass of it.
    largest : ndarray
        That mass.
    """

    operator: KernelOperator
    rows: np.ndarray
    largest: np.ndarray

    @classmethod
    def of(cls, operator: KernelOperator, group: Membership) -> "Inside":
        """The items of one side in a group."""
        points, inverse = np.unique(operator.index[group.rows], return_inverse=True)
        # The last key sorts first: by item, then by mass, then by row, which settles ties.
        by_mass = np.lexsort((group.rows, -group.masses, inverse))
        first = by_mass[np.unique(inverse[by_mass], return_index=True)[1]]
        masses = np.bincount(inverse, weights=group.masses)
        return cls(operator.subset(points, masses), group.rows[first], group.masses[first])


def rarefied_vendi(
    problem: Problem, rows: np.ndarray, size: int, rng: np.random.Generator
) -> tuple[float, float]:
    """Mean Vendi of `size` outputs sampled without replacement, and its standard error."""
    x = problem.x
    scores = []
    for _ in range(_NUM_SUBSETS):
        subset = x.index[rng.choice(rows, size, replace=False)]
        chosen, counts = np.unique(subset, return_counts=True)
        # Equal outputs are merged, so the matrix is at most as large as the subset.
        part = x.subset(chosen, counts / size)
        values, noise = part.masses, 0.0
        if not part.is_diagonal:
            matrix = next(dense([part]))
            noise = matrix_noise(part, matrix)
            values = np.linalg.eigvalsh(to_numpy(matrix))
        spectrum = Spectrum.from_eigenvalues(values, noise=noise, method="exact")
        scores.append(math.exp(renyi_entropy(spectrum, problem.settings.order, problem.truncation)))
    return float(np.mean(scores)), float(np.std(scores, ddof=1) / math.sqrt(_NUM_SUBSETS))


def typical_rows(inside: Inside, count: int) -> tuple[int, ...]:
    """Rows of the distinct prompts with the largest mass in a group.

    Prompts of equal mass come in the order of their likeness to the mean of the group.
    """
    operator = inside.operator
    everything = slice(0, operator.size)
    blocks = []
    for block in row_blocks(operator.size, 1024):
        blocks.append(to_numpy(operator.values(block, everything)) @ operator.masses)
    likeness = np.concatenate(blocks)
    # Rounded, so that the last bits do not decide between prompts that are equally typical.
    relative = (inside.largest / inside.largest.max()).round(9)
    order = np.lexsort((inside.rows, -likeness.round(9), -relative))
    return tuple(int(row) for row in inside.rows[order[:count]])


def modes_of(
    inside: Inside, options: GroupOptions, resources: Resources, vendi: float
) -> tuple[Mode, ...]:
    """The leading eigenvectors of K_X o v v', each with the rows of its largest entries.

    Unless `plain`, they are rotated. No more are rotated than there are kinds of outputs, because
    a rotation would split one kind over all of them. An output then shows only the mode of its
    largest loading, if that is clear; a mode that no output belongs to is left out.
    """
    operator = inside.operator
    count = options.num_modes
    if not options.plain:
        # Eigenvectors beyond the number of kinds hold what is left inside of the kinds.
        count = min(count, round(vendi))
    if count == 0:
        return ()
    way_out = "num_modes=0 leaves the modes out, and more groups are smaller"
    values, vectors = leading_eigenvectors(
        operator, min(count, operator.size), resources, "outputs of a group", way_out
    )
    # Loadings are inner products of features with directions; their mean squares are shares.
    loadings = vectors * np.sqrt(values) / np.sqrt(operator.masses)[:, None]
    if options.plain:
        # The sign of an eigenvector is arbitrary.
        loadings = np.abs(loadings)
        shows = _is_clear(loadings)
    else:
        loadings = loadings @ rotation(loadings, operator.masses)
        is_largest = np.arange(loadings.shape[1]) == loadings.argmax(axis=1)[:, None]
        shows = _is_clear(loadings) & is_largest
    shares = operator.masses @ loadings**2
    # Proportional to the entry of a single row in the eigenvector: copies of an output do not make
    # it a better example.
    entries = loadings * np.sqrt(inside.largest)[:, None]
    modes = []
    # Rounded, so that modes of equal share keep their order on every machine.
    for mode in np.argsort(-shares.round(12), kind="stable"):
        order = np.lexsort((inside.rows, -entries[:, mode].round(9)))
        examples = inside.rows[order[shows[order, mode]][: options.num_examples]]
        if examples.size:
            modes.append(Mode(float(shares[mode]), tuple(int(row) for row in examples)))
    return tuple(modes)


def _is_clear(loadings: np.ndarray) -> np.ndarray:
    return np.asarray(loadings >= _CLEAR * loadings.max(axis=0))
