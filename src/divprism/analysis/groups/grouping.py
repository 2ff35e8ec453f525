"""Ways to group prompts: by the eigendirections of their kernel, by label, by prompt, by K-means."""

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
from divprism.data.samples import Text
from divprism.engines import Resources, spell_bytes
from divprism.errors import DataError, Notice
from divprism.estimators.base import whole_number

__all__ = [
    "EigenDirections",
    "EigenGroups",
    "Grouping",
    "KMeansGroups",
    "LabelGroups",
    "Membership",
    "PromptGroups",
    "PromptSide",
    "Split",
    "leading_eigenvectors",
    "rotation",
]

_DENSE = 4000  # points up to which LAPACK finds the leading eigenvectors; beyond, ARPACK
_ALIKE = 0.01  # squared cosine with its group below which a prompt belongs to none
_TIED = 1e-9  # relative gap below which two eigenvalues are equal


@dataclass(frozen=True, eq=False)
class PromptSide:
    """What a grouping looks at: K_T on the distinct prompts, the prompt of each row, and what the prompts are.

    Attributes
    ----------
    operator : KernelOperator
        K_T / n; `operator.index` says which distinct prompt a row has.
    prompts : Samples side
        As they were given: items, vectors or flat ids.
    vectors : array (n, d) or None
        None where prompts are ids.
    resources : Resources
        The memory budget.
    """

    operator: KernelOperator
    prompts: Any
    vectors: Any
    resources: Resources


@dataclass(frozen=True, eq=False)
class Membership:
    """One group: its share of all, the rows in it, and the mass of each inside the group, v(i)^2, summing to one."""

    name: str
    share: float
    places: np.ndarray
    masses: np.ndarray


@dataclass(frozen=True, eq=False)
class Split:
    """The groups that a grouping finds; `hard` where each row is in one at most; what a reader should know."""

    groups: tuple[Membership, ...]
    hard: bool = True
    warnings: tuple[Notice, ...] = ()


class Grouping(ABC):
    """A way to group prompts: a frozen dataclass that defines `split`."""

    plain: ClassVar[bool] = False
    """Whether modes are eigenvectors as they come; else they are rotated as in `rotation`."""

    @abstractmethod
    def split(self, side: PromptSide, rng: int) -> Split:
        """The groups of some prompts."""


@dataclass(frozen=True)
class EigenGroups(Grouping):
    """Groups that the prompt kernel itself sees: the leading eigendirections of K_T, made simple, each prompt to one of them.

    Pick it where nobody has labelled the prompts. With equal or close eigenvalues eigenvectors are any mixture of each other,
    and under a wide bandwidth the first is all prompts together; so the leading ones are rotated (`rotation`) until each prompt
    leans on few, and a prompt goes to the one that it leans on most. Prompts that are unlike all of them (squared cosine below
    0.01) are in no group. Groups of equal size with nothing in common are found exactly. O(m^3) for m distinct prompts up to
    4,000, O(m^2) times some hundreds beyond, and 16 m^2 bytes.

    Attributes
    ----------
    num_groups : int
        At most so many; fewer where K_T has fewer eigenvalues, or no prompt leans on a direction most.
    """

    num_groups: int = 10

    def split(self, side: PromptSide, rng: int) -> Split:
        """A partition of the rows, but for those that belong to none."""
        values, vectors, warnings = _directions(side, self.num_groups)
        masses = side.operator.masses
        loadings = (
            vectors * np.sqrt(values) / np.sqrt(masses)[:, None]
        )  # <feature of a prompt, direction>
        loadings = loadings @ rotation(loadings, masses)
        best = loadings.argmax(axis=1)
        codes = np.where(loadings[np.arange(best.size), best] >= math.sqrt(_ALIKE), best, -1)
        if codes.max() < 0:
            raise DataError(
                f"under this kernel the {best.size:,} distinct prompts are all but unrelated, and its leading directions tell "
                "nothing of them. Widen the bandwidth of the prompts, or group by prompt, by labels or by K-means."
            )
        return Split(_by_size(codes[side.operator.index]), warnings=warnings)


@dataclass(frozen=True)
class EigenDirections(Grouping):
    """The papers' own reading: each leading eigenvector v of K_T / n is a group, of share its eigenvalue and masses v(i)^2.

    Pick it to compare with the papers' figures (first version, Sec. B; Conditional Vendi, Fig. 6 and 13-15). A direction with
    entries of both signs holds two opposite kinds of prompts at once, and close eigenvalues mix groups: EigenGroups does not.

    Attributes
    ----------
    num_groups : int
        At most so many eigenvectors, those of the largest eigenvalues.
    """

    plain: ClassVar[bool] = True
    num_groups: int = 10

    def split(self, side: PromptSide, rng: int) -> Split:
        """Soft groups over all rows."""
        values, vectors, warnings = _directions(side, self.num_groups)
        index = side.operator.index
        copies = np.bincount(index, minlength=vectors.shape[0])
        groups = []
        for place, (value, vector) in enumerate(zip(values, vectors.T, strict=True)):
            masses = (vector**2 / copies)[index]
            places = np.flatnonzero(masses > np.finfo(float).eps * masses.max())
            groups.append(
                Membership(
                    f"direction {place + 1}",
                    float(value),
                    places,
                    masses[places] / masses[places].sum(),
                )
            )
        return Split(tuple(groups), hard=False, warnings=warnings)


@dataclass(frozen=True, eq=False)
class LabelGroups(Grouping):
    """Groups that you know: a label per output, integers or strings."""

    labels: Any

    def split(self, side: PromptSide, rng: int) -> Split:
        """A group per label."""
        codes = clean_ids(self.labels, "labels")
        if codes is None:
            raise DataError(
                f"`labels` must be flat, one group per output; got shape {np.shape(self.labels)}."
            )
        check_pairing(side.operator.index.size, codes.size, "labels")
        labels = to_numpy(
            self.labels
        )  # by place: a table's column may be indexed by names of its own
        return Split(
            _partition(
                codes, [str(labels[place]) for place in np.unique(codes, return_index=True)[1]]
            )
        )


@dataclass(frozen=True)
class PromptGroups(Grouping):
    """A group per distinct prompt: where several outputs were drawn under each."""

    def split(self, side: PromptSide, rng: int) -> Split:
        """Equal prompts, by their content where they are items."""
        codes = side.operator.index
        if isinstance(side.prompts, tuple):
            codes = np.unique([prompt.digest() for prompt in side.prompts], return_inverse=True)[1]
        firsts = np.unique(codes, return_index=True)[1]
        return Split(_partition(codes, [_name(side.prompts, int(place)) for place in firsts]))


@dataclass(frozen=True)
class KMeansGroups(Grouping):
    """Groups by `kmeans_labels` of the prompt vectors (KMeans-Cluster-Vendi; Conditional Vendi, App. G)."""

    num_clusters: int

    def split(self, side: PromptSide, rng: int) -> Split:
        """A group per cluster."""
        if side.vectors is None:
            raise DataError(
                "K-means needs a row of numbers per prompt; these are ids. Use PromptGroups()."
            )
        return Split(_by_size(kmeans_labels(side.vectors, self.num_clusters, rng=rng)))


def _name(prompts: Any, place: int) -> str:
    if isinstance(prompts, tuple):
        return prompts[place].text if isinstance(prompts[place], Text) else prompts[place].where
    return str(prompts[place]) if prompts.ndim == 1 else f"row {place}"


def _by_size(codes: np.ndarray) -> tuple[Membership, ...]:
    """Groups without names of their own, numbered by their size; those of equal size by their first row."""
    found, firsts, counts = np.unique(codes[codes >= 0], return_index=True, return_counts=True)
    rank = np.full(found.max() + 1, -1)
    rank[found[np.lexsort((firsts, -counts))]] = np.arange(found.size)
    return _partition(
        np.where(codes >= 0, rank[codes], -1), [f"group {place + 1}" for place in range(found.size)]
    )


def _partition(codes: np.ndarray, names: Sequence[str]) -> tuple[Membership, ...]:
    """A group for each code from 0 on; rows of code -1 are in none."""
    order = np.argsort(codes, kind="stable")[np.count_nonzero(codes < 0) :]
    pieces = np.split(order, np.flatnonzero(np.diff(codes[order])) + 1)
    return tuple(
        Membership(name, piece.size / codes.size, piece, np.full(piece.size, 1 / piece.size))
        for name, piece in zip(names, pieces, strict=True)
    )


def _directions(side: PromptSide, count: int) -> tuple[np.ndarray, np.ndarray, tuple[Notice, ...]]:
    """The leading eigenpairs of K_T / n on the distinct prompts, and a warning where the cut splits equal eigenvalues."""
    count = whole_number(count, "num_groups", 1)
    way_out = "group by prompt, by labels or by K-means, or take a part of the data"
    values, vectors = leading_eigenvectors(
        side.operator, min(count + 1, side.operator.size), side.resources, "prompts", way_out
    )
    warnings: tuple[Notice, ...] = ()
    if values.size > count and values[count - 1] - values[count] <= _TIED * values[0]:
        text = (
            f"eigenvalues {count} and {count + 1} of the prompt kernel are equal, so which prompts "
            "are in a group is arbitrary: ask for another number of groups, or group by prompt."
        )
        warnings = (Notice("groups-arbitrary", text),)
    return values[:count], vectors[:, :count], warnings


def leading_eigenvectors(
    operator: KernelOperator, count: int, resources: Resources, what: str, way_out: str
) -> tuple[np.ndarray, np.ndarray]:
    """The largest eigenvalues of an operator, descending, without zeros, and their eigenvectors as columns."""
    size = operator.size
    if operator.is_diagonal:
        chosen = np.argsort(-operator.masses, kind="stable")[:count]
        return operator.masses[chosen], (np.arange(size)[:, None] == chosen).astype(float)
    if 16 * size**2 > resources.budget:
        raise DataError(
            f"the eigenvectors of {size:,} distinct {what} need {spell_bytes(16 * size**2)}, above the memory budget of "
            f"{spell_bytes(resources.budget)}: {way_out}."
        )
    matrix = to_numpy(next(dense([operator])))
    if size <= _DENSE or 2 * count >= size:
        import scipy.linalg

        values, vectors = scipy.linalg.eigh(
            matrix, subset_by_index=[size - count, size - 1], check_finite=False
        )
    else:
        from scipy.sparse.linalg import eigsh

        values, vectors = eigsh(matrix, k=count, v0=np.random.default_rng(0).standard_normal(size))
    order = np.argsort(-values, kind="stable")
    order = order[values[order] > max(size * np.finfo(float).eps * values.max(), operator.noise)]
    return values[order], vectors[:, order]


def rotation(loadings: np.ndarray, masses: np.ndarray) -> np.ndarray:
    """The orthogonal matrix that makes loadings simple: each row of `loadings @ rotation` is large in few places (varimax).

    It starts from the rows that are most unlike each other (QR with pivoting), which does not depend on how the columns were
    mixed, and follows the varimax criterion uphill. Columns point to where their loadings are positive. K = B B' = (B R)(B R)'
    for every rotation R, so the rotated directions split K_T as the eigenvectors do.

    >>> mixed = np.array([[1.0, 0], [1, 0], [0, 1]]) @ np.array([[0.6, -0.8], [0.8, 0.6]])
    >>> np.abs(mixed @ rotation(mixed, np.ones(3) / 3)).round(9)
    array([[1., 0.], [1., 0.], [0., 1.]])
    """
    import scipy.linalg

    pivots = scipy.linalg.qr(loadings.T, mode="r", pivoting=True)[1][: loadings.shape[1]]
    turn = _polar(loadings[pivots].T)
    for _ in range(500):
        now = loadings @ turn
        slope = loadings.T @ (masses[:, None] * now * (now**2 - masses @ now**2))
        better = _polar(slope)
        done = np.abs(better - turn).max() < 1e-10
        turn = better
        if done:
            break
    return turn * np.where(masses @ (loadings @ turn) ** 3 < 0, -1.0, 1.0)


def _polar(matrix: np.ndarray) -> np.ndarray:
    left, _, right = np.linalg.svd(matrix)
    return left @ right
