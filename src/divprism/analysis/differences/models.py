"""Which modes one model has that another has not, given the same prompts."""

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from divprism.analysis.differences.compared import Compared, Wanted
from divprism.analysis.differences.described import described, unseen_warnings
from divprism.analysis.differences.measured import Measured
from divprism.analysis.differences.result import (
    DifferenceMode,
    Differences,
    GroupDifference,
    ModeExample,
)
from divprism.analysis.groups import LabelGrouping
from divprism.analysis.groups.grouping import Grouping, Membership
from divprism.analysis.inputs import as_samples
from divprism.analysis.matched_models import matched_models
from divprism.core.arrays import to_numpy
from divprism.core.kernels import Precomputed
from divprism.core.operators import KernelOperator
from divprism.data.inputs import model_keyword
from divprism.data.readers.fields import Fields
from divprism.errors import ArgumentError, DataError
from divprism.scores.settings import EvaluationOptions, Settings, read_options

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = ["diff"]

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

    The state of a model is rho = 1/n sum_i phi_i phi_i', with phi_i . phi_j = k(i, j): its trace is
    one, and a mode of the outputs is a direction with much of it. Modes of the difference are the
    eigenvectors of

        rho_first - ratio x rho_second

    (Zhang et al., 2024, arXiv 2402.17287; with random features arXiv 2404.02287; both compare
    outputs without prompts). The eigenvalue is the share of the first model in the direction less
    `ratio` times that of the second. Only prompts that both models have are used, with the same
    number of outputs of each for a prompt.

    The largest of many eigenvalues is large by chance as well. So `held_out` measures a mode once
    more: on either half of the prompts the difference of shares in the direction of the same rank
    that the other half has found, with an interval by the jackknife over prompts. A p-value
    compares the mode with the largest of all modes after random exchanges of the models within
    prompts; so if both models are the same, the chance of any p-value up to 0.05 is 0.05.

    Close eigenvalues mix: two kinds of output with nearly the same difference of shares may appear
    as two mixtures of them. O(n^3) time and 40 n^2 bytes up to n = 4,000 distinct pairs; of more
    pairs, the modes in the span of 1,000 landmarks (Nystrom), O(n) in time and memory. Shares in a
    direction are exact then too, and `unseen` is the share of the outputs outside of that span.

    The order of rows, and which model is called the first, change nothing beyond rounding, except
    that modes with equal eigenvalues are any directions of their common span, in any order.

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
        With 2, only what is more than twice as frequent in the first model is its mode. At most a
        million.
    modes_of : "outputs" or "pairs"
        "outputs": k = k_X, what one model makes more of over all prompts. "pairs": k = k_X x k_T,
        what one model makes more of for similar prompts. Where the kernel distinguishes all
        prompts, these are modes of single prompts, which are small, and few outputs show little of
        them.
        Either way the prompts of both models are the same, and exchanges stay within a prompt.
    grouping : Grouping, optional
        As in `prompt_groups`, without labels: the difference inside each group as well.
    reference : source, optional
        Real data. Each mode then has the share of these, which shows whether the model that has
        more of it should have less, or the other one more. Not with `modes_of="pairs"`, because
        real data have no prompts.
    interval, num_permutations : optional
        Level of the intervals, default 0.95, and number of exchanges, default 99; 0 for none.
    unit : "pair", "prompt" or None
        What is exchanged and resampled: by default prompts, from 20 on, else outputs. For modes of
        pairs outputs, wherever each prompt has several of each model: a mode of a single prompt
        has the same eigenvalue when the models exchange all of it.
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
    >>> found = dp.diff(a, b, kernel_x=dp.Cosine(), kernel_t=dp.Categorical(), num_examples=1)
    >>> round(found.modes[0].eigenvalue, 9), round(found.total, 9)
    (-0.2, 0.2)
    """
    settings, resources = read_options(options, EvaluationOptions, "diff")
    wanted = Wanted.of(num_modes, num_examples, ratio, modes_of, settings)
    _require_possible(grouping, reference, wanted, settings)
    sources = _two_models(a, b, first, second)
    matched = matched_models(sources, settings, resources, Fields(suffix=""))
    compared = Compared.of(matched, reference, wanted, resources)
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
        warnings=matched.warnings + unseen_warnings(states.basis.unseen),
    )


def _require_possible(
    grouping: object, reference: object, wanted: Wanted, settings: Settings
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
            "`reference` has no prompts, so its share in modes of pairs is not defined: use "
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


def _described(
    compared: Compared, rows: np.ndarray, measured: Measured, wanted: Wanted
) -> tuple[DifferenceMode, ...]:
    """The modes of both models; examples come with the other model's output to their prompt."""
    first, second = compared.given
    starts = {1: 0, -1: len(compared.given[first])}
    prompts = compared.prompts.operator.index

    def example(sign: int, position: int, weight: float) -> ModeExample:
        row = int(rows[position])
        of_other = compared.side[: prompts.size] == -sign
        others = np.flatnonzero((prompts == prompts[row]) & of_other)
        nearest, similarity = _nearest(compared.x, row, others)
        return ModeExample(row - starts[sign], weight, nearest - starts[-sign], similarity)

    names = {1: first, -1: second}
    return described(measured, names, wanted.num_modes, wanted.num_examples, example)


def _nearest(x: KernelOperator, row: int, others: np.ndarray) -> tuple[int, float]:
    """Which of some rows has the output most similar to that of a row, and the kernel value."""
    values = x.kernel.block(x.points_at(x.index[[row]]), x.points_at(x.index[others]))
    similarities = to_numpy(values)[0]
    best = int(similarities.round(12).argmax())
    return int(others[best]), min(1.0, float(similarities[best]))


def _groups(
    compared: Compared, grouping: Grouping | None, wanted: Wanted
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


def _group(compared: Compared, member: Membership, wanted: Wanted) -> GroupDifference:
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


def _describe(compared: Compared) -> dict[str, Any]:
    sizes = {name: len(part) for name, part in compared.given.items()}
    return {
        "n": int(math.fsum(sizes.values())) // 2,
        "prompts": compared.prompts.operator.size,
        "reference": int(np.count_nonzero(compared.side == 0)),
    }
