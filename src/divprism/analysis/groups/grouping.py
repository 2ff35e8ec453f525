"""Ways to group prompts: by eigenvectors of their kernel, by label, by exact prompt, by K-means."""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from divprism.analysis.groups.kmeans import kmeans_labels
from divprism.core.arrays import to_numpy
from divprism.core.operators import KernelOperator, dense
from divprism.core.validation import check_pairing, clean_ids
from divprism.data.items import Text
from divprism.engines import Resources, spell_bytes
from divprism.errors import DataError, Notice
from divprism.estimators.base import whole_number

__all__ = [
    "FEWEST_OUTPUTS",
    "EigenDirectionGrouping",
    "EigenGrouping",
    "ExactPromptGrouping",
    "Grouping",
    "KMeansGrouping",
    "LabelGrouping",
    "Membership",
    "PromptSide",
    "Split",
    "default_grouping",
    "leading_eigenvectors",
    "rotation",
]

FEWEST_OUTPUTS = 3
"""Outputs of a prompt that are enough to judge it: two that are alike are no habit."""

_APART = 0.5  # share of the kinds that there can be, from which on a kernel separates prompts
_DENSE = 4000  # items up to which LAPACK computes the leading eigenvectors; beyond it ARPACK does
_ALIKE = 0.01  # squared cosine with a direction below which a prompt does not belong to it
_TIED = 1e-9  # relative gap below which two eigenvalues count as equal


@dataclass(frozen=True, eq=False)
class PromptSide:
    """The prompts that a grouping splits.

    Attributes
    ----------
    operator : KernelOperator
        K_T / n on the distinct prompts; `operator.index` holds the distinct prompt of each row.
    prompts : tuple of items, or array
        The prompts as they were given: items, vectors or flat ids.
    vectors : array (n, d) or None
        The prompts as vectors; None where they are ids.
    resources : Resources
        The memory budget.
    """

    operator: KernelOperator
    prompts: Any
    vectors: Any
    resources: Resources


@dataclass(frozen=True, eq=False)
class Membership:
    """The rows of one group.

    Attributes
    ----------
    name : str
        The label or prompt, or a number by size.
    share : float
        Share of all rows; for an eigendirection its eigenvalue.
    rows : ndarray of int
        Rows of the group.
    masses : ndarray
        Mass v(i)^2 of each of these rows inside the group; they sum to one.
    """

    name: str
    share: float
    rows: np.ndarray
    masses: np.ndarray


@dataclass(frozen=True, eq=False)
class Split:
    """The groups that a grouping finds.

    `hard` is True where each row is in at most one group.
    """

    groups: tuple[Membership, ...]
    hard: bool = True
    warnings: tuple[Notice, ...] = ()


class Grouping(ABC):
    """A way to group prompts: a frozen dataclass that defines `split`."""

    plain: ClassVar[bool] = False
    """True if modes are plain eigenvectors; otherwise they are rotated (see `rotation`)."""

    @abstractmethod
    def split(self, side: PromptSide, rng: int) -> Split:
        """The groups of some prompts; `rng` is the seed of a random grouping."""


@dataclass(frozen=True)
class EigenGrouping(Grouping):
    """Groups that the prompt kernel itself separates: each prompt goes to a leading direction.

    Choose it where the prompts have no labels. Eigenvectors of equal or close eigenvalues are
    arbitrary mixtures of each other, and under a wide bandwidth the first one covers all prompts.
    The leading eigenvectors are therefore rotated (`rotation`) until each prompt has a large
    loading on few of them, and a prompt goes to the direction of its largest loading. Prompts with
    a squared cosine below 0.01 to every direction are in no group. Groups of equal size that have
    nothing in common are recovered exactly. For m distinct prompts O(m^3) time up to 4,000 and
    some hundred times O(m^2) beyond; 16 m^2 bytes.

    Attributes
    ----------
    num_groups : int
        Largest number of groups; there are fewer where K_T has fewer eigenvalues, or where no
        prompt has its largest loading on a direction.
    """

    num_groups: int = 10

    def split(self, side: PromptSide, rng: int) -> Split:
        """A partition of the rows, except for those that belong to no group."""
        values, vectors, warnings = _directions(side, self.num_groups)
        masses = side.operator.masses
        # A loading is the inner product of the feature of a prompt with a direction.
        loadings = vectors * np.sqrt(values) / np.sqrt(masses)[:, None]
        loadings = loadings @ rotation(loadings, masses)
        # `rotation` makes the large loadings of a column positive, so no absolute value is taken.
        best = loadings.argmax(axis=1)
        # Features have unit length, so a loading is a cosine.
        is_clear = loadings[np.arange(best.size), best] >= math.sqrt(_ALIKE)
        codes = np.where(is_clear, best, -1)
        if codes.max() < 0:
            raise DataError(
                f"under this kernel the {best.size:,} distinct prompts are all but unrelated, so "
                "its leading directions do not separate them; raise the bandwidth of the prompts, "
                "or group by prompt, by labels or by K-means."
            )
        return Split(_numbered_by_size(codes[side.operator.index]), warnings=warnings)


@dataclass(frozen=True)
class EigenDirectionGrouping(Grouping):
    """The grouping of the papers: each leading eigenvector v of K_T / n is a group.

    Its share is the eigenvalue and its masses are v(i)^2. Choose it to compare with the figures of
    the papers (Conditional Vendi, earlier version, App. B; Conditional Vendi, Fig. 6 and 13-15). A
    direction with entries of both signs mixes two opposite kinds of prompts, and close eigenvalues
    mix groups; `EigenGrouping` avoids both.

    Attributes
    ----------
    num_groups : int
        Largest number of eigenvectors, those of the largest eigenvalues.
    """

    plain: ClassVar[bool] = True
    num_groups: int = 10

    def split(self, side: PromptSide, rng: int) -> Split:
        """Soft groups: every row has a mass in each of them."""
        values, vectors, warnings = _directions(side, self.num_groups)
        index = side.operator.index
        # An entry of an eigenvector belongs to a distinct prompt, and is shared by its copies.
        copies = np.bincount(index, minlength=vectors.shape[0])
        groups = []
        for number, (value, vector) in enumerate(zip(values, vectors.T, strict=True), start=1):
            masses = (vector**2 / copies)[index]
            # Rows of no mass are left out: they would only be computed with.
            rows = np.flatnonzero(masses > np.finfo(float).eps * masses.max())
            # The rows that are left out have lowered the trace, which has to be one.
            inside = masses[rows] / masses[rows].sum()
            groups.append(Membership(f"direction {number}", float(value), rows, inside))
        return Split(tuple(groups), hard=False, warnings=warnings)


@dataclass(frozen=True, eq=False)
class LabelGrouping(Grouping):
    """Groups that are known: a label per output, integers or strings."""

    labels: Any

    def split(self, side: PromptSide, rng: int) -> Split:
        """A group per label."""
        codes = clean_ids(self.labels, "labels")
        if codes is None:
            shape = np.shape(self.labels)
            raise DataError(f"`labels` must be flat, one group per output; got shape {shape}.")
        check_pairing(side.operator.index.size, codes.size, "labels")
        # As an array, because the column of a data frame may have an index of its own.
        labels = to_numpy(self.labels)
        firsts = np.unique(codes, return_index=True)[1]
        return Split(_partition(codes, [str(labels[row]) for row in firsts]))


@dataclass(frozen=True)
class ExactPromptGrouping(Grouping):
    """A group per distinct prompt: for data with several outputs per prompt."""

    def split(self, side: PromptSide, rng: int) -> Split:
        """Equal prompts together; items are compared by content."""
        codes = side.operator.index
        if isinstance(side.prompts, tuple):
            # The operator merges equal vectors, which different texts may share.
            codes = np.unique([prompt.digest() for prompt in side.prompts], return_inverse=True)[1]
        firsts = np.unique(codes, return_index=True)[1]
        return Split(_partition(codes, [_prompt_name(side.prompts, int(row)) for row in firsts]))


@dataclass(frozen=True)
class KMeansGrouping(Grouping):
    """Groups by `kmeans_labels` of the prompt vectors.

    The groups of KMeans-Cluster-Vendi (Conditional Vendi, App. G). Prompts given as ids have no
    vectors to cluster.
    """

    num_clusters: int

    def split(self, side: PromptSide, rng: int) -> Split:
        """A group per cluster."""
        if side.vectors is None:
            raise DataError(
                "K-means needs a row of numbers per prompt, and these prompts are ids; "
                "use ExactPromptGrouping()."
            )
        labels = kmeans_labels(side.vectors, self.num_clusters, rng=rng)
        return Split(_numbered_by_size(labels))


def default_grouping(
    num_outputs: int, num_prompts: int, kinds: float, most_kinds: float, num_groups: int
) -> Grouping:
    """How prompts are grouped unless a grouping is given.

    A kernel that separates most prompts has no groups to offer: the leading directions would mix
    prompts that have nothing in common. Where prompts have several outputs, each is a group then.

    Parameters
    ----------
    num_outputs, num_prompts : int
        Number of outputs, and of distinct prompts.
    kinds : float
        Number of kinds of prompt under the kernel.
    most_kinds : float
        The number of kinds if prompts were compared as ids.
    num_groups : int
        Largest number of groups by the kernel.
    """
    is_repeated = num_outputs >= FEWEST_OUTPUTS * num_prompts
    if is_repeated and kinds >= _APART * most_kinds:
        return ExactPromptGrouping()
    return EigenGrouping(num_groups)


def _prompt_name(prompts: Any, row: int) -> str:
    """The name of a prompt: its text, where its file is, its id, or its row."""
    if isinstance(prompts, tuple):
        prompt = prompts[row]
        if isinstance(prompt, Text):
            return prompt.text
        where: str = prompt.where
        return where
    if prompts.ndim == 1:
        return str(prompts[row])
    return f"row {row}"


def _numbered_by_size(codes: np.ndarray) -> tuple[Membership, ...]:
    """Groups without names of their own, numbered by size; equal sizes by their first row."""
    is_grouped = codes >= 0
    groups, firsts, counts = np.unique(codes[is_grouped], return_index=True, return_counts=True)
    # Of equal sizes the first to appear comes first, whatever the order of the eigenvectors is.
    by_size = np.lexsort((firsts, -counts))
    # Codes may have gaps: directions that no prompt belongs to.
    rank = np.full(groups.max() + 1, -1)
    rank[groups[by_size]] = np.arange(groups.size)
    names = [f"group {number}" for number in range(1, groups.size + 1)]
    return _partition(np.where(is_grouped, rank[codes], -1), names)


def _partition(codes: np.ndarray, names: Sequence[str]) -> tuple[Membership, ...]:
    """A group for each code from 0 on; rows of code -1 are in no group."""
    order = np.argsort(codes, kind="stable")
    # Sorted by code, the rows of code -1 come first.
    grouped = order[np.count_nonzero(codes < 0) :]
    pieces = np.split(grouped, np.flatnonzero(np.diff(codes[grouped])) + 1)
    groups = []
    for name, rows in zip(names, pieces, strict=True):
        masses = np.full(rows.size, 1 / rows.size)
        groups.append(Membership(name, rows.size / codes.size, rows, masses))
    return tuple(groups)


def _directions(side: PromptSide, count: int) -> tuple[np.ndarray, np.ndarray, tuple[Notice, ...]]:
    """The leading eigenpairs of K_T / n on the distinct prompts.

    One more than asked for is computed, to warn where the cut splits equal eigenvalues.
    """
    count = whole_number(count, "num_groups", 1)
    way_out = "group by prompt, by labels or by K-means, or take a part of the data"
    values, vectors = leading_eigenvectors(
        side.operator, min(count + 1, side.operator.size), side.resources, "prompts", way_out
    )
    warnings: tuple[Notice, ...] = ()
    if values.size > count and values[count - 1] - values[count] <= _TIED * values[0]:
        text = (
            f"eigenvalues {count} and {count + 1} of the prompt kernel are equal, so which "
            "prompts are in a group is arbitrary: ask for another number of groups, or group by "
            "prompt."
        )
        warnings = (Notice("equal-eigenvalues", text),)
    return values[:count], vectors[:, :count], warnings


def leading_eigenvectors(
    operator: KernelOperator, count: int, resources: Resources, noun: str, way_out: str
) -> tuple[np.ndarray, np.ndarray]:
    """The largest eigenvalues of an operator, decreasing, and their eigenvectors as columns.

    Eigenvalues that are zero up to rounding are left out. `noun` and `way_out` complete the error
    message where the matrix does not fit into memory.
    """
    size = operator.size
    # Prompts compared as ids: the eigenvectors are the unit vectors.
    if operator.is_diagonal:
        chosen = np.argsort(-operator.masses, kind="stable")[:count]
        return operator.masses[chosen], (np.arange(size)[:, None] == chosen).astype(float)
    needed = 16 * size**2  # the matrix and the workspace of the solver
    if needed > resources.budget:
        raise DataError(
            f"the eigenvectors of {size:,} distinct {noun} need {spell_bytes(needed)}, above the "
            f"memory budget of {spell_bytes(resources.budget)}: {way_out}."
        )
    matrix = to_numpy(next(dense([operator])))
    # ARPACK serves few eigenvectors of a large matrix. It cannot compute all of them, and loses its
    # advantage long before.
    if size <= _DENSE or 2 * count >= size:
        import scipy.linalg

        values, vectors = scipy.linalg.eigh(
            matrix, subset_by_index=[size - count, size - 1], check_finite=False
        )
    else:
        from scipy.sparse.linalg import eigsh

        # A fixed start: ARPACK would otherwise give another rotation of equal eigenvectors.
        start = np.random.default_rng(0).standard_normal(size)
        values, vectors = eigsh(matrix, k=count, v0=start)
    # LAPACK returns rising eigenvalues, ARPACK any order.
    order = np.argsort(-values, kind="stable")
    # Eigenvectors of eigenvalues that are rounding errors are arbitrary, and would become groups of
    # prompts that have nothing in common.
    rounding = max(size * np.finfo(float).eps * values.max(), operator.noise)
    order = order[values[order] > rounding]
    return values[order], vectors[:, order]


def rotation(loadings: np.ndarray, masses: np.ndarray) -> np.ndarray:
    """The orthogonal matrix that makes loadings simple: varimax.

    Each row of `loadings @ rotation` is large in few columns. The search starts from the rows that
    are most unlike each other (QR with pivoting), which does not depend on how the columns were
    mixed, and climbs the varimax criterion. Columns are signed so that their large loadings are
    positive. K = B B' = (B R)(B R)' for every rotation R, so the rotated directions split K_T as
    the eigenvectors do.

    >>> mixed = np.array([[1.0, 0], [1, 0], [0, 1]]) @ np.array([[0.6, -0.8], [0.8, 0.6]])
    >>> np.abs(mixed @ rotation(mixed, np.ones(3) / 3)).round(9)
    array([[1., 0.], [1., 0.], [0., 1.]])
    """
    import scipy.linalg

    pivots = scipy.linalg.qr(loadings.T, mode="r", pivoting=True)[1][: loadings.shape[1]]
    turn = _nearest_rotation(loadings[pivots].T)
    # The limit ends the search where the criterion is flat and every rotation is as good.
    for _ in range(500):
        rotated = loadings @ turn
        # A quarter of the gradient of sum_k (E l^4 - (E l^2)^2), with E the mean by masses.
        slope = loadings.T @ (masses[:, None] * rotated * (rotated**2 - masses @ rotated**2))
        # The rotation nearest to the gradient maximises the criterion linearised at `turn`.
        better = _nearest_rotation(slope)
        is_converged = np.abs(better - turn).max() < 1e-10
        turn = better
        if is_converged:
            break
    # Third powers are dominated by the large loadings, whose sign counts; in a plain sum many small
    # ones could outweigh them.
    skewness = masses @ (loadings @ turn) ** 3
    return turn * np.where(skewness < 0, -1.0, 1.0)


def _nearest_rotation(matrix: np.ndarray) -> np.ndarray:
    """The orthogonal factor of the polar decomposition."""
    left, _, right = np.linalg.svd(matrix)
    return left @ right
