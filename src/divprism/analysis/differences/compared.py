"""Two models, and real data beside them, as points of one operator."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from divprism.analysis.content_order import ContentOrder
from divprism.analysis.differences.basis import Basis, first_points
from divprism.analysis.differences.measured import Measured, measure
from divprism.analysis.differences.states import States
from divprism.analysis.groups.grouping import PromptSide
from divprism.analysis.matched_models import MatchedModels
from divprism.analysis.reference import embed_reference
from divprism.analysis.units import units_of
from divprism.core.arrays import to_numpy
from divprism.core.kernels.base import positive_number
from divprism.core.operators import KernelOperator, Operator
from divprism.core.validation import clean_rows
from divprism.data.samples import Samples
from divprism.engines import Resources
from divprism.errors import ArgumentError, DataError
from divprism.estimators.base import whole_number
from divprism.scores.problem import Problem, pose
from divprism.scores.settings import Settings

__all__ = [
    "LEVEL",
    "MODES_OF",
    "NUM_EXCHANGES",
    "Compared",
    "Wanted",
    "checked_ratio",
    "reference_rows",
]

MODES_OF = ("pairs", "outputs")
"""What modes are of: pairs of an output and its prompt, or outputs whatever their prompts."""

LEVEL = 0.95
"""Level of the intervals unless one is given."""
NUM_EXCHANGES = 99
"""Random exchanges of the models unless a number is given."""
_LARGEST_RATIO = 1e6
_REAL = "reference"  # the argument, in messages


@dataclass(frozen=True)
class Wanted:
    """What is asked for, checked."""

    num_modes: int
    num_examples: int
    ratio: float
    modes_of: str
    num_exchanges: int
    level: float

    @classmethod
    def of(
        cls, num_modes: int, num_examples: int, ratio: float, modes_of: str, settings: Settings
    ) -> "Wanted":
        """The arguments of `diff`, or an ArgumentError."""
        if modes_of not in MODES_OF:
            raise ArgumentError(f"`modes_of` must be pairs or outputs; got {modes_of!r}.")
        exchanges, level = settings.num_permutations, settings.interval
        if exchanges is None:
            exchanges = NUM_EXCHANGES
        return cls(
            num_modes=whole_number(num_modes, "num_modes", 1),
            num_examples=whole_number(num_examples, "num_examples", 1),
            ratio=checked_ratio(ratio),
            modes_of=modes_of,
            num_exchanges=exchanges,
            level=level or LEVEL,
        )


@dataclass(frozen=True, eq=False)
class Compared:
    """Rows of both models, then those of the reference, as points of one operator.

    Attributes
    ----------
    given : dict of Samples
        By model, the outputs as they were given.
    operator : Operator
        The points; `index` holds the point of each row.
    side : ndarray of int
        1 for the first model, -1 for the second, 0 for the reference.
    x : KernelOperator
        The outputs of both models.
    prompts : PromptSide
        The prompts of both models.
    unit : str
        "prompt" or "pair".
    order : ContentOrder
        Of the rows of both models.
    ratio : float
        What the second state is multiplied by.
    is_of_pairs : bool
        Whether the points are pairs of an output and its prompt.
    resources : Resources
        What the computation may use.
    rng : int
        Seed of the exchanges.
    """

    given: dict[str, Samples]
    operator: Operator
    index: np.ndarray
    side: np.ndarray
    x: KernelOperator
    prompts: PromptSide
    unit: str
    order: ContentOrder
    ratio: float
    is_of_pairs: bool
    resources: Resources
    rng: int

    @classmethod
    def of(
        cls, matched: MatchedModels, reference: object, wanted: Wanted, resources: Resources
    ) -> "Compared":
        """The rows of matched models, and of the reference if there is one."""
        pooled = matched.pooled()
        # At order 1 the data are held in double precision.
        settings = replace(matched.settings, order=1.0, truncation=None)
        problem = pose(pooled.outputs, pooled.prompts, settings=settings, resources=resources)
        assert problem.t is not None
        sizes = [len(part) for part in matched.given.values()]
        side = np.repeat(np.array([1, -1], np.int8), sizes)
        operator, index = _points(problem, wanted)
        if reference is not None:
            operator, index = _with_reference(reference, pooled, problem, settings, resources)
            side = np.pad(side, (0, index.size - side.size))
        vectors = pooled.prompts
        if getattr(vectors, "ndim", 2) == 1:  # prompts are ids
            vectors = None
        items = _prompt_items(matched)
        return cls(
            given={name: part.given or part for name, part in matched.given.items()},
            operator=operator,
            index=index,
            side=side,
            x=problem.x,
            prompts=PromptSide(problem.t, items, vectors, resources),
            unit=_unit(problem, settings.unit, wanted),
            order=ContentOrder.of(problem, pooled),
            ratio=wanted.ratio,
            is_of_pairs=wanted.modes_of == "pairs",
            resources=resources,
            rng=settings.rng,
        )

    def states(self, rows: np.ndarray) -> States:
        """The states of some rows."""
        points, index = np.unique(self.index[rows], return_inverse=True)
        operator = self.operator
        if points.size < operator.size:
            operator = operator.sample(points, double=True)
        ranks = np.full(self.side.size, self.side.size)
        ranks[self.order.pairs] = np.arange(self.order.pairs.size)
        # Rows of the reference take no part in exchanges: a stratum of their own.
        prompts = np.full(self.side.size, self.prompts.operator.size)
        prompts[: self.order.pairs.size] = self.prompts.operator.index
        assert self.order.prompts is not None
        strata, codes = np.unique(prompts[rows], return_inverse=True)
        stratum_ranks = np.append(self.order.prompts, self.order.prompts.size)[strata]
        landmarks = None
        if Basis.needs_landmarks(operator.size):
            landmarks = first_points(index, ranks[rows])
        is_compared = self.side[rows] != 0
        masses = np.bincount(index[is_compared], minlength=operator.size) / is_compared.sum()
        whole = self.unit == "prompt" and strata.size > 1
        counts = np.bincount(codes[self.side[rows] == 1])
        # The kernel of pairs may take prompts for unrelated: modes of one half of them are then
        # none of the other half.
        split_inside = not whole or (self.is_of_pairs and int(counts.min()) > 1)
        return States(
            basis=Basis.of(operator, masses, landmarks, self.resources),
            index=index,
            side=self.side[rows],
            ratio=self.ratio,
            strata=codes,
            whole=whole,
            split_inside=split_inside,
            ranks=ranks[rows],
            stratum_ranks=np.argsort(np.argsort(stratum_ranks)),
        )

    def measure(self, states: States, wanted: Wanted) -> Measured:
        """The modes of some states."""
        return measure(
            states,
            num_modes=wanted.num_modes,
            num_exchanges=wanted.num_exchanges,
            level=wanted.level,
            seed=self.rng,
        )


def _points(problem: Problem, wanted: Wanted) -> tuple[Operator, np.ndarray]:
    """The operator whose modes are asked for, and the point of each row."""
    if wanted.modes_of == "outputs":
        return problem.x, problem.x.index
    assert problem.t is not None and problem.joint is not None
    # As in `HadamardOperator.of`: its points are the distinct pairs, by rising code.
    codes = problem.x.index * problem.t.size + problem.t.index
    return problem.joint, np.unique(codes, return_inverse=True)[1]


def _unit(problem: Problem, unit: str | None, wanted: Wanted) -> str:
    """What is exchanged and resampled: "prompt" or "pair"."""
    assert problem.t is not None
    fewest = int(np.bincount(problem.t.index).min()) // 2  # both models have the same number
    if unit is None and wanted.modes_of == "pairs" and fewest > 1:
        # A mode of pairs may be one of a single prompt. Exchanging all outputs of this prompt
        # changes no eigenvalue, and its difference does not carry over to other prompts.
        return "pair"
    return units_of(problem, unit)[0]


def _with_reference(
    reference: object, pooled: Samples, problem: Problem, settings: Settings, resources: Resources
) -> tuple[Operator, np.ndarray]:
    """The outputs of both models and real data as points of one operator."""
    rows = reference_rows(reference, pooled, settings, resources)
    outputs: Any = to_numpy(pooled.outputs)
    alone = replace(settings, kernel_t=None, kernel_x=problem.settings.kernel_x)
    both = pose(np.concatenate([outputs, rows]), settings=alone, resources=resources)
    return both.x, both.x.index


def reference_rows(
    reference: object, embedded: Samples, settings: Settings, resources: Resources
) -> np.ndarray:
    """Real data as vectors of the width of the outputs."""
    outputs: Any = embedded.outputs
    if outputs.ndim != 2:
        raise DataError(
            "`reference` needs outputs that are vectors, texts or media, and these are ids: give a "
            "row of numbers for each."
        )
    # Checked here, so that a message names the reference and counts its own rows.
    rows = to_numpy(clean_rows(embed_reference(reference, embedded, settings, resources), _REAL))
    if rows.shape[1] != outputs.shape[1]:
        raise DataError(
            f"`{_REAL}` has {rows.shape[1]:,} numbers in a row and the outputs have "
            f"{outputs.shape[1]:,}; embed both by the same model."
        )
    return rows


def checked_ratio(ratio: object) -> float:
    """The ratio, or an ArgumentError."""
    number = positive_number(ratio, "ratio")
    # Beyond, rounding errors of the second state are larger than modes of the first.
    if number > _LARGEST_RATIO:
        raise ArgumentError(f"`ratio` must be at most {_LARGEST_RATIO:,.0f}; got {ratio!r}.")
    return number


def _prompt_items(matched: MatchedModels) -> Any:
    """The prompts of both models as they were given."""
    sides = [part.prompts for part in matched.given.values()]
    if isinstance(sides[0], tuple):
        return tuple(item for side in sides if side is not None for item in side)
    return np.concatenate([to_numpy(side) for side in sides])
