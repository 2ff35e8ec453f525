"""Which modes one model has that another has not, given the same prompts."""

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from divprism.analysis.content_order import ContentOrder
from divprism.analysis.differences.basis import Basis, first_points
from divprism.analysis.differences.described import described
from divprism.analysis.differences.measured import Measured, measure
from divprism.analysis.differences.result import (
    DifferenceMode,
    Differences,
    Example,
    GroupDifference,
)
from divprism.analysis.differences.states import States
from divprism.analysis.groups import LabelGrouping
from divprism.analysis.groups.grouping import Grouping, Membership, PromptSide
from divprism.analysis.inputs import as_samples
from divprism.analysis.matched_models import MatchedModels, matched_models
from divprism.analysis.reference import embed_reference
from divprism.analysis.units import units_of
from divprism.core.arrays import to_numpy
from divprism.core.kernels import Precomputed
from divprism.core.kernels.base import positive_number
from divprism.core.operators import KernelOperator, Operator
from divprism.data.inputs import model_keyword
from divprism.data.readers.fields import Fields
from divprism.data.samples import Samples
from divprism.engines import Resources
from divprism.errors import ArgumentError, DataError, Notice
from divprism.estimators.base import whole_number
from divprism.scores.problem import Problem, pose
from divprism.scores.settings import EvaluationOptions, Settings, read_options

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = ["MODES_OF", "diff"]

MODES_OF = ("pairs", "outputs")
"""What modes are of: pairs of an output and its prompt, or outputs whatever their prompts."""

LEVEL = 0.95
"""Level of the intervals unless one is given."""
NUM_EXCHANGES = 99
"""Random exchanges of the models unless a number is given."""
_GROUP_MODES = 1  # modes of a group


def diff(
    a: object,
    b: object = None,
    *,
    first: str | None = None,
    second: str | None = None,
    num_modes: int = 10,
    num_examples: int = 3,
    ratio: float = 1.0,
    modes_of: str = "outputs",
    grouping: Grouping | None = None,
    reference: object = None,
    **options: "Unpack[EvaluationOptions]",
) -> Differences:
    """Which modes one model has that another has not, given the same prompts.

    The state of a model is rho = 1/n sum_i phi_i phi_i', with phi_i . phi_j = k_X(i, j) k_T(i, j):
    its trace is one, and a mode of the outputs is a direction with much of it. Modes of the
    difference are the eigenvectors of

        rho_first - ratio x rho_second

    (Zhang et al., 2024, arXiv 2402.17287, who compare outputs without prompts). The eigenvalue is
    the share of the first model in the direction less `ratio` times that of the second. Only
    prompts that both models have are used, with the same number of outputs of each for a prompt.

    The largest of many eigenvalues is largest by chance as well. So the difference of shares is
    measured once more on the half of the prompts that a direction was not found on (`held_out`),
    with an interval by the jackknife over prompts, and a p-value compares it with the largest mode
    of all after random exchanges of the models within prompts.

    Close eigenvalues mix: two kinds of output with nearly the same difference of shares may appear
    as two mixtures of them. O(n^3) time and 40 n^2 bytes up to n = 4,000 distinct pairs; of more
    pairs, the modes in the span of 1,000 landmarks (Nystrom), O(n) in time and memory. Shares in a
    direction are exact then too, and `unseen` is the share of the outputs outside of that span.

    Parameters
    ----------
    a, b : Samples, path, table
        A source for each model, as in `evaluate`. Or `a` alone: a source that names a model for
        each output, or a mapping of name to source.
    first, second : str, optional
        With `a` alone: which two of the models; needed where there are more.
    num_modes : int
        Modes to report, of both models together.
    num_examples : int
        Examples of each mode.
    ratio : float
        With 2, only what is more than twice as frequent in the first model is its mode.
    modes_of : "pairs" or "outputs"
        "pairs" finds what one model makes of some prompts. "outputs" leaves the prompts out of the
        kernel, k = k_X, and finds what one model makes more of over all prompts. Either way the
        prompts of both models are the same, and exchanges stay within a prompt.
    grouping : Grouping, optional
        As in `prompt_groups`, without labels: the difference inside each group as well.
    reference : source, optional
        Real data. Each mode then has the share of these, which shows whether the model that has
        more of it should have less, or the other one more. Needs `modes_of="outputs"`, because
        real data have no prompts.
    interval, num_permutations : optional
        Level of the intervals, default 0.95, and number of exchanges, default 99; 0 for none.
    unit : "pair", "prompt" or None
        What is exchanged and resampled: by default prompts, from 20 on, else outputs.
    **options
        Keywords of `evaluate`.

    Returns
    -------
    Differences

    Raises
    ------
    DataError
        If the models have no prompt in common.

    Examples
    --------
    Two in ten outputs of the second model are of a kind that the first one does not make:

    >>> import numpy as np, divprism as dp
    >>> t = ["a digit"] * 10
    >>> a = dp.Samples(np.eye(3)[[0] * 5 + [1] * 5], t)
    >>> b = dp.Samples(np.eye(3)[[0] * 4 + [1] * 4 + [2] * 2], t)
    >>> found = dp.diff(a, b, kernel_x=dp.Cosine(), kernel_t=dp.Categorical(), modes_of="outputs")
    >>> round(found.modes[0].eigenvalue, 9), round(found.total, 9)
    (-0.2, 0.2)
    """
    settings, resources = read_options(options, EvaluationOptions, "diff")
    wanted = _Wanted.of(num_modes, num_examples, ratio, modes_of, settings)
    _require_possible(grouping, reference, wanted, settings)
    sources = _two_models(a, b, first, second)
    matched = matched_models(sources, settings, resources, Fields(suffix=""))
    compared = _Compared.of(matched, reference, wanted, resources)
    rows = np.arange(compared.side.size)
    states = compared.states(rows)
    measured = compared.measure(states, wanted)
    names = list(matched.given)
    return Differences(
        first=names[0],
        second=names[1],
        modes=_described(compared, rows, measured, wanted),
        total=measured.total.value,
        baseline=measured.total.baseline,
        baseline_error=measured.total.baseline_error,
        p_value=measured.total.p_value,
        ratio=wanted.ratio,
        modes_of=wanted.modes_of,
        unit=compared.unit,
        num_exchanges=wanted.num_exchanges,
        level=wanted.level,
        unseen=states.basis.unseen,
        groups=_groups(compared, grouping, wanted),
        samples=compared.given,
        data=_describe(compared),
        settings=replace(matched.settings, interval=wanted.level, unit=compared.unit),
        embedders=matched.pooled().embedders,
        notes=matched.notes,
        warnings=matched.warnings + _warnings(states),
    )


@dataclass(frozen=True)
class _Wanted:
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
    ) -> "_Wanted":
        if modes_of not in MODES_OF:
            raise ArgumentError(f"`modes_of` must be pairs or outputs; got {modes_of!r}.")
        exchanges, level = settings.num_permutations, settings.interval
        if exchanges is None:
            exchanges = NUM_EXCHANGES
        return cls(
            num_modes=whole_number(num_modes, "num_modes", 1),
            num_examples=whole_number(num_examples, "num_examples", 1),
            ratio=positive_number(ratio, "ratio"),
            modes_of=modes_of,
            num_exchanges=exchanges,
            level=level or LEVEL,
        )


def _require_possible(
    grouping: object, reference: object, wanted: _Wanted, settings: Settings
) -> None:
    """Refuse what cannot be answered before anything is computed."""
    if grouping is not None and not isinstance(grouping, Grouping):
        raise ArgumentError(
            f"`grouping` must be an object such as ExactPromptGrouping(); got {grouping!r}."
        )
    if isinstance(grouping, LabelGrouping):
        raise ArgumentError(
            "`grouping` cannot be labels: rows of models are matched by prompt, and labels of "
            "either model would not fit; use ExactPromptGrouping() or EigenGrouping()."
        )
    if reference is not None and wanted.modes_of != "outputs":
        raise ArgumentError(
            "`reference` has no prompts, so its share in modes of pairs is not defined: add "
            "`modes_of=outputs`."
        )
    for side in ("x", "t"):
        if isinstance(settings.kernel(side), Precomputed):
            raise ArgumentError(
                f"`kernel_{side}` is Precomputed(), and models are matched by prompt, which takes "
                "rows: give vectors."
            )


def _two_models(a: object, b: object, first: str | None, second: str | None) -> dict[str, object]:
    """The two sources by the name of their model, the first one first."""
    if b is not None:
        if first is not None or second is not None:
            raise ArgumentError(
                "`first` and `second` choose models of one source; leave out `b`, or them."
            )
        return _named(a, b)
    parts: Mapping[Any, Any]
    if isinstance(a, Mapping):
        parts = {str(name): source for name, source in a.items()}
    else:
        samples = as_samples(a, None, None, Fields(suffix=""))
        samples.require_models(model_keyword(a))
        parts = samples.by_model()
    names = list(parts)
    if len(names) < 2:
        raise DataError(
            "a difference needs two models; got one. Pass a second source as `b`, or compare with "
            "real data by dp.novelty."
        )
    if first is None and second is None and len(names) == 2:
        first, second = names
    if first is None or second is None:
        shown = ", ".join(names[:10])
        raise ArgumentError(
            f"`first` and `second` must name the two models to compare; there are {len(names):,}: "
            f"{shown}."
        )
    for keyword, name in (("first", first), ("second", second)):
        if name not in parts:
            raise ArgumentError(
                f"`{keyword}` must be one of {', '.join(map(repr, names[:10]))}; got {name!r}."
            )
    if first == second:
        raise ArgumentError(f"`first` and `second` are both {first!r}; name two models.")
    return {first: parts[first], second: parts[second]}


def _named(a: object, b: object) -> dict[str, object]:
    """Two sources by the model that each names, or as "first" and "second"."""
    samples = [as_samples(source, None, None, Fields(suffix="")) for source in (a, b)]
    names = ["first", "second"]
    for number, part in enumerate(samples):
        models = Counter(part.models or ())
        if len(models) > 1:
            raise DataError(
                f"{part.source} contains outputs of {len(models):,} models; select one with "
                "dp.load(...).by_model()[name], or pass it alone with `first` and `second`."
            )
        if models:
            [names[number]] = models
    if names[0] == names[1]:
        names = ["first", "second"]
    return dict(zip(names, samples, strict=True))


@dataclass(frozen=True, eq=False)
class _Compared:
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
        cls, matched: MatchedModels, reference: object, wanted: _Wanted, resources: Resources
    ) -> "_Compared":
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
            unit=units_of(problem, settings.unit)[0],
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
        whole = self.unit == "prompt" and strata.size > 1
        counts = np.bincount(codes[self.side[rows] == 1])
        # The kernel of pairs may take prompts for unrelated: modes of one half of them are then
        # none of the other half.
        split_inside = not whole or (self.is_of_pairs and int(counts.min()) > 1)
        return States(
            basis=Basis.of(operator, landmarks, self.resources),
            index=index,
            side=self.side[rows],
            ratio=self.ratio,
            strata=codes,
            whole=whole,
            split_inside=split_inside,
            ranks=ranks[rows],
            stratum_ranks=np.argsort(np.argsort(stratum_ranks)),
        )

    def measure(self, states: States, wanted: _Wanted) -> Measured:
        """The modes of some states."""
        return measure(
            states,
            num_modes=wanted.num_modes,
            num_exchanges=wanted.num_exchanges,
            level=wanted.level,
            seed=self.rng,
        )


def _points(problem: Problem, wanted: _Wanted) -> tuple[Operator, np.ndarray]:
    """The operator whose modes are asked for, and the point of each row."""
    if wanted.modes_of == "outputs":
        return problem.x, problem.x.index
    assert problem.t is not None and problem.joint is not None
    # As in `HadamardOperator.of`: its points are the distinct pairs, by rising code.
    codes = problem.x.index * problem.t.size + problem.t.index
    return problem.joint, np.unique(codes, return_inverse=True)[1]


def _with_reference(
    reference: object, pooled: Samples, problem: Problem, settings: Settings, resources: Resources
) -> tuple[Operator, np.ndarray]:
    """The outputs of both models and real data as points of one operator."""
    rows = to_numpy(embed_reference(reference, pooled, settings, resources))
    outputs: Any = to_numpy(pooled.outputs)
    if rows.shape[1] != outputs.shape[1]:
        raise DataError(
            f"`reference` has {rows.shape[1]:,} numbers in a row and the outputs have "
            f"{outputs.shape[1]:,}; embed both by the same model."
        )
    alone = replace(settings, kernel_t=None, kernel_x=problem.settings.kernel_x)
    both = pose(np.concatenate([outputs, rows]), settings=alone, resources=resources)
    return both.x, both.x.index


def _prompt_items(matched: MatchedModels) -> Any:
    """The prompts of both models as they were given."""
    sides = [part.prompts for part in matched.given.values()]
    if isinstance(sides[0], tuple):
        return tuple(item for side in sides if side is not None for item in side)
    return np.concatenate([to_numpy(side) for side in sides])


def _described(
    compared: _Compared, rows: np.ndarray, measured: Measured, wanted: _Wanted
) -> tuple[DifferenceMode, ...]:
    """The modes of both models; examples come with the other model's output to their prompt."""
    first, second = compared.given
    starts = {1: 0, -1: len(compared.given[first])}
    prompts = compared.prompts.operator.index

    def example(sign: int, position: int, weight: float) -> Example:
        row = int(rows[position])
        of_other = compared.side[: prompts.size] == -sign
        others = np.flatnonzero((prompts == prompts[row]) & of_other)
        nearest, similarity = _nearest(compared.x, row, others)
        return Example(row - starts[sign], weight, nearest - starts[-sign], similarity)

    names = {1: first, -1: second}
    return described(measured, names, wanted.num_modes, wanted.num_examples, example)


def _nearest(x: KernelOperator, row: int, others: np.ndarray) -> tuple[int, float]:
    """Which of some rows has the output most similar to that of a row, and the kernel value."""
    values = x.kernel.block(x.points_at(x.index[[row]]), x.points_at(x.index[others]))
    similarities = to_numpy(values)[0]
    best = int(similarities.round(12).argmax())
    return int(others[best]), min(1.0, float(similarities[best]))


def _groups(
    compared: _Compared, grouping: Grouping | None, wanted: _Wanted
) -> tuple[GroupDifference, ...]:
    """The difference inside each group of prompts, the largest above its baseline first."""
    if grouping is None:
        return ()
    split = grouping.split(compared.prompts, compared.rng)
    if not split.hard:
        raise ArgumentError(
            "`grouping` must not overlap, and eigendirections do; use EigenGrouping()."
        )
    inside = replace(wanted, num_modes=_GROUP_MODES)
    groups = [_group(compared, member, inside) for member in split.groups]
    groups.sort(key=lambda group: -round(group.excess, 9))
    return tuple(groups)


def _group(compared: _Compared, member: Membership, wanted: _Wanted) -> GroupDifference:
    states = compared.states(member.rows)
    measured = compared.measure(states, wanted)
    return GroupDifference(
        name=member.name,
        share=member.share,
        size=int(np.count_nonzero(states.side == 1)),
        total=measured.total.value,
        baseline=measured.total.baseline,
        baseline_error=measured.total.baseline_error,
        p_value=measured.total.p_value,
        modes=_described(compared, member.rows, measured, wanted),
    )


def _warnings(states: States) -> tuple[Notice, ...]:
    """A warning where landmarks miss much of the outputs."""
    if states.basis.unseen <= 0.1:
        return ()
    text = (
        f"landmarks miss {states.basis.unseen:.0%} of the outputs, so modes may be larger than "
        "shown and the total is a lower bound: use a larger bandwidth, or a part of the data."
    )
    return (Notice("modes-unseen", text),)


def _describe(compared: _Compared) -> dict[str, Any]:
    sizes = {name: len(part) for name, part in compared.given.items()}
    return {
        "n": int(math.fsum(sizes.values())) // 2,
        "prompts": compared.prompts.operator.size,
        "reference": int(np.count_nonzero(compared.side == 0)),
    }
