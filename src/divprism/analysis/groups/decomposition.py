"""Which prompts a model answers alike: diversity inside groups of prompts, and its aggregate.

K_T / n = sum_k share_k v_k v_k' splits the joint matrix into groups,
K_X o K_T / n = sum_k share_k (K_X o v_k v_k') (Conditional Vendi, earlier version, App. B). v_k
marks the prompts of group k. K_X o v_k v_k' has trace one: its entropy is the diversity inside the
group, and its eigenvectors are the modes of the outputs there. The signs of v_k do not matter: it
is the kernel matrix of the outputs with the masses v_k(i)^2. A group that is certain, such as a
label or a prompt, has equal masses.
"""

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from divprism.analysis.aggregation import aggregate
from divprism.analysis.groups.grouping import (
    FEWEST_OUTPUTS,
    ExactPromptGrouping,
    Grouping,
    LabelGrouping,
    Membership,
    PromptSide,
    Split,
    default_grouping,
)
from divprism.analysis.groups.inside import (
    GroupOptions,
    Inside,
    modes_of,
    rarefied_vendi,
    typical_rows,
)
from divprism.analysis.groups.result import PromptGroup, PromptGroups
from divprism.analysis.inputs import as_samples, embed_model, with_rule_of
from divprism.analysis.prompt_kinds import kinds_as_ids
from divprism.core.kernels import Categorical
from divprism.data.inputs import as_arrays
from divprism.data.samples import Samples
from divprism.data.wording import counted
from divprism.engines import Resources
from divprism.errors import ArgumentError, DataError, Notice
from divprism.estimators import Entropy
from divprism.estimators.base import whole_number
from divprism.scores.problem import Problem, pose
from divprism.scores.score import Score, compute_scores
from divprism.scores.settings import EmbeddedPairOptions, Settings, read_options
from divprism.scores.spec import score_spec

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = ["embedded_pairs", "prompt_groups"]

_MIN_SIZE = 5  # outputs of a group, unless it is one prompt
_EQUAL_SIZE = 32  # the largest number of outputs that groups are compared at
_CONDITIONAL = tuple(
    score_spec(name) for name in ("conditional_vendi", "conditional_rke", "prompt_vendi")
)
_KINDS = (score_spec("prompt_vendi"),)


def prompt_groups(
    x: object,
    t: object = None,
    grouping: Grouping | None = None,
    *,
    model: str | None = None,
    num_groups: int = 10,
    num_modes: int = 3,
    num_examples: int = 5,
    min_size: int | None = None,
    **options: "Unpack[EmbeddedPairOptions]",
) -> PromptGroups:
    """Where a model repeats itself: the diversity inside each group of prompts.

    With shares w_k and entropies H_k inside the groups, their aggregate (Conditional Vendi,
    Thm 5-7; eq. 19 and 20) is

        exp( sum_k w_k H_k )                                                       at order 1,
        exp( log( sum_k w_k^q exp((1 - q) H_k) / sum_k w_k^q ) / (1 - q) )         at order q.

    It equals the conditional score where the kernel takes prompts of a group for equal and those of
    different groups for unrelated, and no truncation cuts anything off; `gap` holds the difference.
    Costs what `conditional_vendi` costs, plus a spectrum and a few eigenvectors per group.

    Parameters
    ----------
    x, t
        As in `evaluate`: arrays, texts, images, Samples or a path.
    model : str, optional
        Which model, where `x` holds several; bandwidths are chosen on all of them.
    grouping : Grouping, optional
        `ExactPromptGrouping()`, `EigenGrouping()`, `EigenDirectionGrouping()`,
        `LabelGrouping(labels)` or `KMeansGrouping(num_clusters)`. Default: exact prompts where
        these have at least three outputs on average and the kernel separates them, with at least
        half as many kinds of prompt as prompts; else `EigenGrouping(num_groups)`.
    num_groups : int
        Largest number of groups by the kernel, where the default is to group by it.
    num_modes, num_examples : int
        Number of modes of each group (0 for none: no eigenvector of outputs is computed), and of
        examples of each mode and of prompts.
    min_size : int
        Groups with fewer outputs are too small to compare and come last. At least 2, because a
        single output is always one kind. Default: 3 for exact prompts, else 5.
    kernel_x, kernel_t, order, truncation, bandwidth_rule, estimator, rng, settings, memory
        As in `conditional_vendi`. The bandwidths are chosen once, on all pairs. The truncation
        applies to the spectrum of each group as to that of all pairs (Thm 7).
    embedder_x, embedder_t, cache, num_workers, progress
        As in `embed`.

    Returns
    -------
    PromptGroups

    Raises
    ------
    DataError
        Without prompts, with several models, or where eigenvectors do not fit into memory.

    Examples
    --------
    Under "b" all outputs are the same:

    >>> import numpy as np, divprism as dp
    >>> x = np.eye(4)[[0, 1, 2, 3, 3, 3]]
    >>> kernels = {"kernel_x": dp.Cosine(), "kernel_t": dp.Categorical()}
    >>> grouping = dp.ExactPromptGrouping()
    >>> result = dp.prompt_groups(x, list("aaabbb"), grouping, min_size=3, **kernels)
    >>> [(group.name, round(group.vendi, 9), len(group.modes)) for group in result.groups]
    [('b', 1.0, 1), ('a', 3.0, 3)]
    >>> round(result.aggregate**2, 9), abs(result.gap) < 1e-12
    (3.0, True)
    """
    if grouping is not None and not isinstance(grouping, Grouping):
        raise ArgumentError(
            f"`grouping` must be an object such as EigenGrouping(); got {grouping!r}."
        )
    num_groups = whole_number(num_groups, "num_groups", 1)
    is_default, has_default_size = grouping is None, min_size is None
    if min_size is None:
        min_size = _MIN_SIZE
    group_options = GroupOptions(
        num_modes=whole_number(num_modes, "num_modes", 0),
        num_examples=whole_number(num_examples, "num_examples", 1),
        min_size=whole_number(min_size, "min_size", 2),
        plain=grouping is not None and grouping.plain,
    )
    settings, resources = read_options(options, EmbeddedPairOptions, "prompt_groups")
    items, embedded, settings = embedded_pairs(x, t, settings, resources, model)
    _require_labels(grouping, items)
    problem = _pose_in_double(embedded, settings, resources)
    if model is not None:
        problem = replace(problem, settings=with_rule_of(settings, problem.settings))
    if grouping is None:
        grouping = _default(problem, num_groups)
    if has_default_size and isinstance(grouping, ExactPromptGrouping):
        group_options = replace(group_options, min_size=FEWEST_OUTPUTS)
    assert problem.t is not None
    vectors = embedded.prompts
    if getattr(vectors, "ndim", 2) == 1:  # prompts are ids
        vectors = None
    side = PromptSide(problem.t, items.prompts, vectors, problem.resources)
    split = grouping.split(side, problem.settings.rng)
    measured = _Measured.of(problem, split, group_options)
    how = {"grouping": type(grouping).__name__, "by_default": is_default}
    return _assemble(measured, items, embedded, how)


def _require_labels(grouping: Grouping | None, items: Samples) -> None:
    """Refuse labels that no longer fit because empty outputs were left out."""
    # Labels of the right number fit the outputs that are left.
    if not isinstance(grouping, LabelGrouping) or len(grouping.labels) == len(items):
        return
    if items.skipped:
        raise DataError(
            f"{counted(items.skipped, 'output is', 'outputs are')} empty and left out, so the "
            "labels do not fit: drop these outputs first."
        )


def _default(problem: Problem, num_groups: int) -> Grouping:
    """The default grouping of a problem, by its number of kinds of prompt."""
    assert problem.t is not None
    num_prompts = problem.t.size
    kinds = 0.0
    # The spectrum is computed only where it can decide.
    if problem.n >= FEWEST_OUTPUTS * num_prompts:
        kinds = compute_scores(problem, _KINDS)["prompt_vendi"].value
    return default_grouping(problem.n, num_prompts, kinds, kinds_as_ids(problem), num_groups)


def embedded_pairs(
    x: object, t: object, settings: Settings, resources: Resources, model: str | None = None
) -> tuple[Samples, Samples, Settings]:
    """Samples as they were given, the same as vectors, and the settings with their embedders."""
    items = as_arrays(as_samples(x, t, None))
    # Examples are shown as texts and images even where vectors of them are scored.
    shown = items.given or items
    if items.prompts is None:
        raise DataError("groups need prompts, and there are none: add `t`.")
    # Ids are compared for equality, so embedding them first would only cost time.
    if isinstance(settings.kernel_t, Categorical):
        items = items.with_prompt_ids()
    embedded, settings = embed_model(items, model, "groups are", settings, resources)
    if model is not None:
        shown = shown.by_model()[model]
    return shown, embedded, settings


def _pose_in_double(embedded: Samples, settings: Settings, resources: Resources) -> Problem:
    """The problem, posed at order 1 so that the data are held in double precision.

    At order 2 `pose` keeps single precision, which suffices for squares but not for eigenvectors.
    """
    at_order_1 = replace(settings, order=1.0)
    problem = pose(embedded.outputs, embedded.prompts, settings=at_order_1, resources=resources)
    return replace(problem, settings=replace(problem.settings, order=settings.order))


@dataclass(frozen=True, eq=False)
class _Measured:
    """The groups of a problem with their scores, in the order of the split."""

    problem: Problem
    split: Split
    groups: tuple[PromptGroup, ...]
    equal_size: int
    min_size: int

    @classmethod
    def of(cls, problem: Problem, split: Split, options: GroupOptions) -> "_Measured":
        insides = [Inside.of(problem.x, group) for group in split.groups]
        question = problem.question([problem.settings.order, 2.0])
        operators = [inside.operator for inside in insides]
        at_order, at_order_2 = problem.settings.estimator.entropies(
            operators, question, problem.resources
        )
        # The effective number of outputs; of a group with equal masses, their number.
        sizes = [1 / float((group.masses**2).sum()) for group in split.groups]
        equal_size = _equal_size(sizes, options.min_size)
        groups = []
        for index, group in enumerate(split.groups):
            measured = _measure(group, sizes[index], at_order[index], at_order_2[index], options)
            if split.hard and not measured.small:
                # A stream of its own, so that a group does not depend on the ones before it.
                rng = np.random.default_rng([problem.settings.rng, index])
                measured = _rarefy(measured, problem, group.rows, equal_size, rng)
            # The inverse of the summed squares is this number up to rounding only.
            if split.hard:
                measured = replace(measured, size=group.rows.size)
            groups.append(_with_examples(measured, group, insides[index], problem, options))
        return cls(problem, split, tuple(groups), equal_size, options.min_size)


def _equal_size(sizes: list[float], min_size: int) -> int:
    """The number of outputs that groups are compared at.

    Where all large groups have the same size, that size: nothing needs to be sampled.
    """
    large = {round(size) for size in sizes if _is_large(size, min_size)}
    if len(large) == 1:
        return large.pop()
    # The constant is in the list, so there is a minimum even if no group is large.
    return min([_EQUAL_SIZE, *large])


def _is_large(size: float, min_size: int) -> bool:
    # Rounded, because an effective number of 5 outputs may come out as 4.999999999.
    return round(size, 6) >= min_size


def _measure(
    group: Membership, size: float, at_order: Entropy, at_order_2: Entropy, options: GroupOptions
) -> PromptGroup:
    """A group with its scores, not yet at equal size and without examples."""
    vendi = math.exp(at_order.estimate.value)
    return PromptGroup(
        name=group.name,
        share=group.share,
        size=size,
        vendi=vendi,
        rke=math.exp(at_order_2.estimate.value),
        standard_error=vendi * at_order.estimate.standard_error,
        rarefied=None,
        rarefied_error=None,
        small=not _is_large(size, options.min_size),
        num_prompts=0,
        prompts=(),
        modes=(),
    )


def _rarefy(
    group: PromptGroup, problem: Problem, rows: np.ndarray, size: int, rng: np.random.Generator
) -> PromptGroup:
    """A group with its score at equal size."""
    score, error = group.vendi, group.standard_error
    # A group of exactly this size has one such subset, itself: its score has no random error.
    if rows.size > size:
        score, error = rarefied_vendi(problem, rows, size, rng)
    return replace(group, rarefied=score, rarefied_error=error)


def _with_examples(
    group: PromptGroup,
    membership: Membership,
    outputs: Inside,
    problem: Problem,
    options: GroupOptions,
) -> PromptGroup:
    """A group with its typical prompts and its modes."""
    assert problem.t is not None
    prompts = Inside.of(problem.t, membership)
    return replace(
        group,
        num_prompts=prompts.operator.size,
        prompts=typical_rows(prompts, options.num_examples),
        modes=modes_of(outputs, options, problem.resources, group.vendi),
    )


def _assemble(
    measured: _Measured, items: Samples, embedded: Samples, how: dict[str, Any]
) -> PromptGroups:
    """The result: groups in order, their aggregate and the conditional scores."""
    problem, split, groups = measured.problem, measured.split, measured.groups
    # Conditional scores are those of all pairs, grouped or not: the gap shows what is missing.
    scores = compute_scores(problem, _CONDITIONAL)
    shares = np.array([group.share for group in groups])
    vendi = np.array([group.vendi for group in groups])
    rke = np.array([group.rke for group in groups])
    total = aggregate(shares, np.log(vendi), problem.settings.order)
    total_at_order_2 = aggregate(shares, np.log(rke), 2.0)
    cluster_vendi = cluster_rke = labels = None
    if split.hard:
        # Rows in no group do not count, so the shares may sum to less than one.
        cluster_vendi = float(shares @ vendi / shares.sum())
        cluster_rke = float(shares @ rke / shares.sum())
        labels = _labels(split, problem.n)
    data = how | _describe(measured, items)
    return PromptGroups(
        groups=tuple(sorted(groups, key=_least_diverse_first)),
        coverage=float(shares.sum()),
        aggregate=math.exp(total),
        gap=total - scores["conditional_vendi"].entropy,
        aggregate_rke=math.exp(total_at_order_2),
        gap_rke=total_at_order_2 - scores["conditional_rke"].entropy,
        conditional_vendi=scores["conditional_vendi"],
        conditional_rke=scores["conditional_rke"],
        prompt_vendi=scores["prompt_vendi"],
        cluster_vendi=cluster_vendi,
        cluster_rke=cluster_rke,
        equal_size=measured.equal_size,
        min_size=measured.min_size,
        num_small=sum(group.small for group in groups),
        settings=problem.settings,
        data=data,
        warnings=_collect_warnings(embedded, scores, split, problem.n - data["grouped"]),
        embedders=embedded.embedders,
        notes=embedded.notes,
        items=items,
        labels=labels,
    )


def _least_diverse_first(group: PromptGroup) -> tuple[bool, float]:
    # Small groups are last; eigendirections have no score at equal size.
    # No score is below 1, so `or` replaces None only.
    return group.small, group.rarefied or group.vendi


def _collect_warnings(
    embedded: Samples, scores: dict[str, Score], split: Split, num_ungrouped: int
) -> tuple[Notice, ...]:
    """All warnings, each once."""
    warnings = list(embedded.warnings)
    for score in scores.values():
        warnings += score.warnings
    warnings += split.warnings
    if num_ungrouped:
        text = (
            f"{num_ungrouped:,} outputs are in no group: their prompts are unlike those of all "
            "groups. Ask for more groups."
        )
        warnings.append(Notice("outputs-in-no-group", text))
    return tuple(dict.fromkeys(warnings))


def _describe(measured: _Measured, items: Samples) -> dict[str, Any]:
    """What was grouped, in numbers."""
    problem, split = measured.problem, measured.split
    assert problem.t is not None
    grouped = problem.n
    if split.hard:
        grouped = sum(group.rows.size for group in split.groups)
    model = None
    if items.models is not None:
        model = items.models[0]
    return {
        "n": problem.n,
        "grouped": grouped,
        "prompts": problem.t.size,
        "source": items.source,
        "model": model,
        "skipped": items.skipped,
    }


def _labels(split: Split, n: int) -> tuple[str, ...]:
    """The name of the group of each row; empty for rows in no group."""
    labels = [""] * n
    for group in split.groups:
        for row in group.rows:
            labels[row] = group.name
    return tuple(labels)
