"""What outputs hold that a reference does not, and which of them are near-copies of it."""

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from divprism.analysis.content_order import ContentOrder
from divprism.analysis.differences.basis import Basis, first_points
from divprism.analysis.differences.compared import (
    LEVEL,
    NUM_EXCHANGES,
    checked_ratio,
    reference_rows,
)
from divprism.analysis.differences.described import described, unseen_warnings
from divprism.analysis.differences.measured import measure
from divprism.analysis.differences.novelty_result import NearCopy, Novelty
from divprism.analysis.differences.result import ModeExample
from divprism.analysis.differences.states import States
from divprism.analysis.inputs import as_samples, embed_samples, require_model, require_one_model
from divprism.core.arrays import to_numpy
from divprism.core.kernels import Cosine, Gaussian, Kernel
from divprism.core.nearest import nearest_rows
from divprism.core.validation import as_float
from divprism.data.inputs import as_arrays
from divprism.data.samples import Samples
from divprism.engines import Resources
from divprism.errors import ArgumentError, DataError
from divprism.estimators.base import whole_number
from divprism.scores.problem import Problem, pose
from divprism.scores.settings import EvaluationOptions, Settings, read_options

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = ["novelty"]

_FEWEST = 3  # items of the reference: a neighbour of an item needs one of its own
_OUTPUTS, _REFERENCE = "outputs", "reference"


def novelty(
    x: object,
    reference: object,
    t: object = None,
    *,
    model: str | None = None,
    num_modes: int = 10,
    num_examples: int = 3,
    ratio: float = 1.0,
    quantile: float = 0.01,
    num_neighbours: int = 5,
    **options: "Unpack[EvaluationOptions]",
) -> Novelty:
    """What outputs hold that real data do not, and which outputs are near-copies of the data.

    Modes that outputs have more of are the eigenvectors of rho_x - ratio x rho_reference with
    positive eigenvalues, as in `diff`; here rho = 1/n sum_i phi_i phi_i' of the outputs alone. With
    the eigenvalues l_i and their sum S,

        total = S,        ken = sum_i l_i log(S / l_i)

    where `ken` is the entropic novelty of Zhang et al. (2024, arXiv 2402.17287): S times the
    entropy of l / S.

    Each output is also compared with its nearest item of the reference. The distance is divided by
    that from this item to its `num_neighbours`-th neighbour in the reference: 1 is as close as
    items of the reference are to each other, wherever they are dense or sparse. An output is a
    near-copy if this relative distance is below that of all but a share `quantile` of the items
    of the reference to the rest of it: of outputs that are new, but distributed as the reference,
    this share is listed by mistake. Equal vectors are always listed.

    O((n + m)^3) time for the modes up to 4,000 items and O(n + m) beyond (see `diff`), and
    O((n + m) m d) for the neighbours, in blocks of rows.

    Parameters
    ----------
    x, t
        As in `evaluate`. Prompts are shown beside examples and play no other part.
    reference : source
        Real data or training data, of the kind of the outputs.
    model : str, optional
        Which model, where `x` holds several.
    num_modes, num_examples : int
        Modes to report, and examples of each.
    ratio : float
        With 2, only what is more than twice as frequent as in the reference counts as novel.
    quantile : float
        From 0, where near-copies are closer than any two items of the reference, to below 1.
    num_neighbours : int
        Neighbour in the reference that distances are relative to; of a small reference the last
        but one.
    interval, num_permutations : optional
        Level of the intervals, default 0.95, and number of exchanges of outputs with items of the
        reference, default 99; 0 for none.
    **options
        Keywords of `evaluate`. The kernel of the outputs must be Gaussian or Cosine.

    Returns
    -------
    Novelty

    Raises
    ------
    DataError
        If the reference has fewer than three items, or other vectors than the outputs.

    Examples
    --------
    The first output is in the reference, the second is far from it:

    >>> import numpy as np, divprism as dp
    >>> reference = np.arange(20.0)[:, None]
    >>> found = dp.novelty(np.array([[7.0], [60.0]]), reference, kernel_x=dp.Gaussian(1.0))
    >>> [copy.row for copy in found.copies], found.nearest.tolist(), found.novelty.round(3).tolist()
    ([0], [7, 19], [0.0, 1.0])
    """
    settings, resources = read_options(options, EvaluationOptions, "novelty")
    asked = _Asked(
        num_modes=whole_number(num_modes, "num_modes", 1),
        num_examples=whole_number(num_examples, "num_examples", 1),
        ratio=checked_ratio(ratio),
        quantile=_share(quantile),
        num_neighbours=whole_number(num_neighbours, "num_neighbours", 1),
    )
    shown, embedded, settings = _embedded(x, t, model, settings, resources)
    problem = _pooled(embedded, reference, settings, resources)
    items = as_arrays(as_samples(reference, None, None))
    samples = {_OUTPUTS: shown, _REFERENCE: items.given or items}
    return _assembled(problem, embedded, samples, asked, settings)


@dataclass(frozen=True)
class _Asked:
    """The arguments of `novelty`, checked."""

    num_modes: int
    num_examples: int
    ratio: float
    quantile: float
    num_neighbours: int


def _assembled(
    problem: Problem,
    embedded: Samples,
    samples: dict[str, Samples],
    asked: _Asked,
    settings: Settings,
) -> Novelty:
    """Modes, neighbours and near-copies of outputs that are the first rows of a problem."""
    kernel = problem.x.kernel
    neighbours = _Neighbours.of(problem, len(embedded), asked.num_neighbours)
    similarity = neighbours.similarity(kernel)
    level, num_exchanges = settings.interval or LEVEL, settings.num_permutations
    if num_exchanges is None:
        num_exchanges = NUM_EXCHANGES
    states = _states(problem, len(embedded), asked.ratio, problem.resources)
    measured = measure(
        states,
        num_modes=asked.num_modes,
        num_exchanges=num_exchanges,
        level=level,
        seed=settings.rng,
        signs=(1,),
    )

    def example(sign: int, row: int, weight: float) -> ModeExample:
        return ModeExample(row, weight, int(neighbours.nearest[row]), float(similarity[row]))

    names = {1: _OUTPUTS, -1: _REFERENCE}
    total, ken = measured.total, _entropic_novelty(measured.positive)
    threshold = float(np.quantile(neighbours.inside, asked.quantile, method="lower"))
    unseen = _unseen(states)
    return Novelty(
        modes=described(measured, names, asked.num_modes, asked.num_examples, example),
        total=total.value,
        baseline=total.baseline,
        baseline_error=total.baseline_error,
        p_value=total.p_value,
        ken=ken,
        num_kinds=math.exp(ken / total.value) if total.value > 0 else 0.0,
        novelty=1 - similarity,
        nearest=neighbours.nearest,
        distance=neighbours.distance,
        relative_distance=neighbours.relative,
        copies=_copies(neighbours, similarity, threshold),
        threshold=threshold,
        quantile=asked.quantile,
        ratio=asked.ratio,
        num_exchanges=num_exchanges,
        level=level,
        unseen=unseen,
        samples=samples,
        data={"n": len(embedded), "reference": neighbours.inside.size},
        settings=replace(settings, kernel_x=kernel, interval=level),
        embedders=embedded.embedders,
        notes=embedded.notes,
        warnings=embedded.warnings + unseen_warnings(unseen),
    )


def _entropic_novelty(values: np.ndarray) -> float:
    """sum l log(S / l) of the positive eigenvalues l with the sum S; 0 without any."""
    if not values.size:
        return 0.0
    return float(values @ np.log(values.sum() / values))


def _share(quantile: object) -> float:
    try:
        value = as_float(quantile)
    except (OverflowError, TypeError, ValueError):
        value = math.nan
    if not 0 <= value < 1:
        raise ArgumentError(f"`quantile` must be from 0 to below 1; got {quantile!r}.")
    return value


def _embedded(
    x: object, t: object, model: str | None, settings: Settings, resources: Resources
) -> tuple[Samples, Samples, Settings]:
    """Outputs as they were given, the same as vectors without prompts, and the settings."""
    items = as_arrays(as_samples(x, t, None))
    if model is None:
        require_one_model(items, "novelty is")
    else:
        require_model(items, model)
        items = items.by_model()[model]
    # Prompts play no part, so neither does their kernel.
    settings = replace(settings, kernel_t=None, embedder_t=None, normalize_t=False)
    alone = replace(items, prompts=None)
    embedded, settings = embed_samples(alone, settings, resources)
    return items.given or items, embedded, settings


def _pooled(
    embedded: Samples, reference: object, settings: Settings, resources: Resources
) -> Problem:
    """The outputs, then the reference, as points of one kernel."""
    rows = reference_rows(reference, embedded, settings, resources)
    outputs: Any = to_numpy(embedded.outputs)
    if rows.shape[0] < _FEWEST:
        raise DataError(f"`reference` must have at least {_FEWEST} items; got {rows.shape[0]}.")
    # At order 1 the data are held in double precision.
    settings = replace(settings, order=1.0, truncation=None, auto_truncation=False)
    both = np.concatenate([outputs, rows])
    problem = pose(both, settings=settings, resources=resources)
    if not isinstance(problem.x.kernel, Gaussian | Cosine):
        raise ArgumentError(
            "`kernel_x` must be Gaussian or Cosine, so that near is similar; got "
            f"{problem.x.kernel!r}."
        )
    return problem


def _states(problem: Problem, size: int, ratio: float, resources: Resources) -> States:
    """The outputs as the first sample and the reference as the second one."""
    index = problem.x.index
    side = np.full(index.size, -1, np.int8)
    side[:size] = 1
    pooled = Samples(to_numpy(problem.x.points.rows)[index])
    ranks = np.argsort(ContentOrder.of(problem, pooled).pairs)
    landmarks = None
    if Basis.needs_landmarks(problem.x.size):
        landmarks = first_points(index, ranks)
    masses = np.bincount(index, minlength=problem.x.size) / index.size
    return States(
        basis=Basis.of(problem.x, masses, landmarks, resources),
        index=index,
        side=side,
        ratio=ratio,
        strata=np.zeros(index.size, dtype=int),
        whole=False,
        split_inside=True,
        ranks=ranks,
        stratum_ranks=np.zeros(1, dtype=int),
    )


def _unseen(states: States) -> float:
    """Share of the outputs outside of the landmarks, of which a large reference has most."""
    if states.basis.unseen == 0:
        return 0.0
    of_outputs = states.on_points((states.side == 1) / np.count_nonzero(states.side == 1))
    return 1 - states.basis.seen(of_outputs)


@dataclass(frozen=True, eq=False)
class _Neighbours:
    """How far outputs are from the reference, and the reference from itself.

    `nearest`, `distance` and `relative` belong to the outputs; `inside` holds the relative
    distance of each item of the reference from the rest of it.
    """

    nearest: np.ndarray
    distance: np.ndarray
    relative: np.ndarray
    inside: np.ndarray

    @classmethod
    def of(cls, problem: Problem, size: int, num_neighbours: int) -> "_Neighbours":
        """The neighbours of the first `size` rows of a problem among the others."""
        rows = to_numpy(problem.x.points.rows)[problem.x.index]
        outputs, reference = rows[:size], rows[size:]
        # One more neighbour than asked for, for items whose own neighbour is left out.
        count = min(num_neighbours + 1, reference.shape[0] - 1)
        near, squares = nearest_rows(reference, reference, count, are_same=True)
        radii = np.sqrt(squares)
        last = count - 2
        found, gaps = nearest_rows(outputs, reference, 1)
        nearest, distance = found[:, 0], np.sqrt(gaps[:, 0])
        # An item of the reference that is tested is not there for its neighbour either.
        neighbour = near[:, 0]
        is_known = (near[neighbour, : last + 1] == np.arange(near.shape[0])[:, None]).any(axis=1)
        without = radii[neighbour, np.where(is_known, last + 1, last)]
        return cls(
            nearest,
            distance,
            _relative(distance, radii[nearest, last]),
            _relative(radii[:, 0], without),
        )

    def similarity(self, kernel: Kernel) -> np.ndarray:
        """The kernel value of each output and its nearest item."""
        # Points of a Gaussian are in units of its bandwidth; those of Cosine have norm one.
        if isinstance(kernel, Gaussian):
            return np.exp(-(self.distance**2) / 2)
        return np.asarray(1 - self.distance**2 / 2)


def _relative(distance: np.ndarray, radius: np.ndarray) -> np.ndarray:
    """Distances over radii; equal vectors are at 0, even among copies in the reference."""
    far = np.where(distance > 0, np.inf, 0.0)
    return np.divide(distance, radius, out=far, where=radius > 0)


def _copies(
    neighbours: _Neighbours, similarity: np.ndarray, threshold: float
) -> tuple[NearCopy, ...]:
    """The outputs below the threshold, the closest first."""
    is_copy = (neighbours.relative < threshold) | (neighbours.distance == 0)
    rows = np.flatnonzero(is_copy)
    order = rows[np.lexsort((rows, neighbours.relative[rows].round(12)))]
    return tuple(
        NearCopy(
            row=int(row),
            reference_row=int(neighbours.nearest[row]),
            similarity=float(similarity[row]),
            distance=float(neighbours.distance[row]),
            relative_distance=float(neighbours.relative[row]),
        )
        for row in order
    )
