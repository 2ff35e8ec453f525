"""Which prompts a model answers alike: diversity inside groups of prompts, and how it adds up to the conditional scores.

K_T / n = sum_k share_k v_k v_k' splits the joint matrix into groups, K_X o K_T / n = sum_k share_k (K_X o v_k v_k') (first
version of Conditional Vendi, Sec. B): v_k marks the prompts of group k, and K_X o v_k v_k' has trace one, its entropy is the
diversity inside the group and its eigenvectors are the modes of the outputs there. Signs of v_k do not matter to it: it is the
kernel matrix of the outputs with the masses v_k(i)^2. A group that is certain (a label, a prompt) has equal masses.
"""

import math
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from divprism.analysis.evaluation import SCHEMA
from divprism.analysis.groups._inside import (
    Inside,
    Mode,
    Wanted,
    modes_of,
    rarefied_vendi,
    typical_rows,
)
from divprism.analysis.groups.grouping import EigenGroups, Grouping, LabelGroups, PromptSide, Split
from divprism.analysis.inputs import as_samples, embed_samples, require_one_model
from divprism.core.kernels import Categorical
from divprism.data.inputs import as_arrays
from divprism.data.samples import Image, Item, Samples, Text, Video
from divprism.engines import Resources
from divprism.errors import ArgumentError, DataError, Notice
from divprism.estimators.base import whole_number
from divprism.scores.problem import Problem, pose
from divprism.scores.score import Score, compute_scores
from divprism.scores.settings import EmbeddedPairOptions, Settings, read_options
from divprism.scores.spec import score_spec

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = ["Decomposition", "PromptGroup", "embedded_pairs", "prompt_groups"]

_EQUAL = 32  # outputs that groups are compared at, at most


@dataclass(frozen=True)
class PromptGroup:
    """The outputs drawn under one group of prompts.

    Attributes
    ----------
    name : str
        The label or prompt, or a number by size.
    share : float
        Part of all outputs; of an eigendirection its eigenvalue.
    size : float
        Number of outputs; of an eigendirection the effective one, 1 / sum of squared masses.
    vendi, rke : float
        Effective number of distinct outputs inside the group, at the order asked for and at order 2; from 1 to `size`.
    standard_error : float
        Of `vendi`, where the estimator draws; else 0.
    rarefied, rarefied_error : float or None
        Mean `vendi` of `Decomposition.equal_size` of its outputs, drawn at random, and its standard error: ten outputs cannot
        be more than ten kinds, so groups of different sizes are compared by this. Of groups of one size it is `vendi` itself.
        None for eigendirections and small groups.
    small : bool
        Whether it has fewer outputs than `min_size`, too few to tell.
    num_prompts : int
        Number of distinct prompts; of an eigendirection those that it has anything of.
    prompts : tuple of int
        Rows of its most typical distinct prompts: the most alike to all of the group; of an eigendirection its largest entries.
    modes : tuple of Mode
        Its kinds of outputs, the largest first: at most as many as `vendi` says, rounded, and at most `num_modes`.
    """

    name: str
    share: float
    size: float
    vendi: float
    rke: float
    standard_error: float
    rarefied: float | None
    rarefied_error: float | None
    small: bool
    num_prompts: int
    prompts: tuple[int, ...]
    modes: tuple[Mode, ...]


@dataclass(frozen=True)
class Decomposition:
    """Diversity group by group, the least diverse first and small groups last, and what it adds up to.

    Attributes
    ----------
    groups : tuple of PromptGroup
        By `rarefied`; eigendirections by `vendi`.
    coverage : float
        Sum of the shares: below 1 where directions are left out or prompts belong to no group.
    aggregate, aggregate_rke : float
        What the groups add up to (see `prompt_groups`), at the order asked for and at order 2.
    gap, gap_rke : float
        log of the aggregate minus log of the conditional score, in nats: 0 where prompts of different groups have nothing in
        common and those of a group are the same. Below 0 the kernel sees fewer kinds of prompts than there are groups (widen
        the groups, or narrow the bandwidth), above 0 more.
    conditional_vendi, conditional_rke : Score
        The conditional scores of all pairs.
    cluster_vendi, cluster_rke : float or None
        Mean over groups, by share, of `vendi` and `rke` (Conditional Vendi, App. G); None for eigendirections.
    equal_size, min_size : int
        How many outputs groups are compared at (all, where they have as many), and how many a group must have for that.
    num_small : int
        Groups with fewer.
    settings, data, warnings, embedders, notes
        As in `Evaluation`.
    items : Samples
        Outputs and prompts as they were given; rows of groups and modes count in them.
    labels : tuple of str, or None
        The name of the group of each row, "" for none; None for eigendirections.
    """

    groups: tuple[PromptGroup, ...]
    coverage: float
    aggregate: float
    gap: float
    aggregate_rke: float
    gap_rke: float
    conditional_vendi: Score
    conditional_rke: Score
    cluster_vendi: float | None
    cluster_rke: float | None
    equal_size: int
    min_size: int
    num_small: int
    settings: Settings
    data: dict[str, Any]
    warnings: tuple[Notice, ...] = ()
    embedders: tuple[dict[str, Any], ...] = ()
    notes: tuple[Notice, ...] = field(default=(), repr=False)
    items: Samples = field(default_factory=lambda: Samples(()), repr=False)
    labels: tuple[str, ...] | None = field(default=None, repr=False)

    def to_dict(self) -> dict[str, Any]:
        """Plain values only, every number finite; rows with the text, or the place of the file, that they stand for."""
        plain = (
            "coverage",
            "aggregate",
            "gap",
            "aggregate_rke",
            "gap_rke",
            "cluster_vendi",
            "cluster_rke",
        )
        counts = ("equal_size", "min_size", "num_small", "data")
        return {
            "schema": SCHEMA,
            "groups": [self._group(group) for group in self.groups],
            **{name: getattr(self, name) for name in plain},
            **{
                name: getattr(self, name).value for name in ("conditional_vendi", "conditional_rke")
            },
            **{name: getattr(self, name) for name in counts},
            "settings": self.settings.to_dict(),
            "embedders": list(self.embedders),
            "warnings": [notice.to_dict() for notice in self.warnings],
        }

    def _group(self, group: PromptGroup) -> dict[str, Any]:
        modes = [
            {
                "share": mode.share,
                "outputs": [_entry(self.items.outputs, row) for row in mode.outputs],
            }
            for mode in group.modes
        ]
        return asdict(group) | {
            "prompts": [_entry(self.items.prompts, row) for row in group.prompts],
            "modes": modes,
        }


def _file(item: Item) -> dict[str, str]:
    """The file of a picture or clip, or the first of its frames; nothing where a table held its bytes."""
    source = item.source if isinstance(item, Image | Video) else None
    path = source[0] if isinstance(source, tuple) else source
    return {"file": str(path)} if isinstance(path, Path) else {}


def _entry(side: Any, row: int) -> dict[str, Any]:
    entry: dict[str, Any] = {"row": row}
    if isinstance(side, tuple):
        item: Item = side[row]
        return (
            entry
            | ({"text": item.text} if isinstance(item, Text) else _file(item))
            | {"where": item.where}
        )
    return entry | ({"id": str(side[row])} if side.ndim == 1 else {})


def prompt_groups(
    x: Any,
    t: Any = None,
    grouping: Grouping | None = None,
    *,
    num_modes: int = 3,
    num_examples: int = 5,
    min_size: int = 5,
    **options: "Unpack[EmbeddedPairOptions]",
) -> Decomposition:
    """Where a model repeats itself: the diversity inside each group of prompts, the least diverse group first.

    With shares w_k and entropies H_k inside the groups, these add up to (Conditional Vendi, Thm 5-7; eq. 19 and 20)

        exp( sum_k w_k H_k )                                                        at order 1,
        exp( log( sum_k w_k^order exp((1 - order) H_k) / sum_k w_k^order ) / (1 - order) )   at others,

    which is the conditional score exactly where the kernel takes prompts of a group for the same and those of different groups
    for unrelated; the gap is told. Costs what `conditional_vendi` costs, plus a spectrum and a few eigenvectors per group.

    Parameters
    ----------
    x, t
        As in `evaluate`: arrays, texts, pictures, Samples or a path; one model's.
    grouping : Grouping, optional
        EigenGroups(), EigenDirections(), LabelGroups(labels), PromptGroups() or KMeansGroups(k).
    kernel_x, kernel_t, order, bandwidth_rule, estimator, rng, memory
        As in `conditional_vendi`. The bandwidths are chosen once, on everything.
    num_modes, num_examples : int
        Modes of each group (0: none, and no eigenvector of outputs is computed), and examples of each mode and of prompts.
    min_size : int
        Groups of fewer outputs are too small to tell, and come last; at least 2, for one output is one kind by necessity.
    **embedding
        `embedder_x`, `embedder_t`, `cache`, `num_workers` and `progress`, as in `embed`.

    Raises
    ------
    DataError
        Without prompts, with several models, or where eigenvectors do not fit into memory.

    Examples
    --------
    Under "b" all outputs are the same:

    >>> import numpy as np
    >>> from divprism.analysis.groups.grouping import PromptGroups
    >>> from divprism.core.kernels import Cosine
    >>> x = np.eye(4)[[0, 1, 2, 3, 3, 3]]
    >>> kernels = {"kernel_x": Cosine(), "kernel_t": Categorical()}
    >>> found = prompt_groups(x, ["a", "a", "a", "b", "b", "b"], PromptGroups(), **kernels, min_size=3)
    >>> [(group.name, round(group.vendi, 9), len(group.modes)) for group in found.groups]
    [('b', 1.0, 1), ('a', 3.0, 3)]
    >>> round(found.aggregate**2, 9), abs(found.gap) < 1e-12
    (3.0, True)
    """
    grouping = EigenGroups() if grouping is None else grouping
    if not isinstance(grouping, Grouping):
        raise ArgumentError(
            f"`grouping` must be an object such as EigenGroups(); got {grouping!r}."
        )
    wanted = Wanted(
        whole_number(num_modes, "num_modes", 0),
        whole_number(num_examples, "num_examples", 1),
        whole_number(min_size, "min_size", 2),
        grouping.plain,
    )
    settings, resources = read_options(options, EmbeddedPairOptions, "prompt_groups")
    items, embedded, settings = embedded_pairs(x, t, settings, resources)
    if items.skipped and isinstance(grouping, LabelGroups) and len(grouping.labels) != len(items):
        raise DataError(
            f"{items.skipped:,} outputs are empty and left out, so the labels do not fit: drop "
            "these outputs first."
        )
    # Posed at order 1, so that the data are held in double precision: eigenvectors are needed at
    # any order.
    posed = pose(
        embedded.outputs,
        embedded.prompts,
        settings=replace(settings, order=1.0, truncation=None),
        resources=resources,
    )
    problem = replace(posed, settings=replace(posed.settings, order=settings.order))
    assert problem.t is not None
    vectors = embedded.prompts
    if getattr(vectors, "ndim", 2) == 1:  # ids
        vectors = None
    side = PromptSide(problem.t, items.prompts, vectors, problem.resources)
    split = grouping.split(side, problem.settings.rng)
    return _decomposition(problem, split, wanted, items, embedded, type(grouping).__name__)


def embedded_pairs(
    x: Any, t: Any, settings: Settings, resources: Resources
) -> tuple[Samples, Samples, Settings]:
    """Samples as they were given, the same as vectors, and the settings with their embedders."""
    items = as_arrays(as_samples(x, t, None))
    shown = items.given or items
    if items.prompts is None:
        raise DataError(f"groups are of prompts, and {items.source} holds none; give them as `t`.")
    require_one_model(items, "groups are")
    if isinstance(settings.kernel_t, Categorical):
        items = items.with_prompt_ids()
    embedded, settings = embed_samples(items, settings, resources)
    return shown, embedded, settings


def _decomposition(
    problem: Problem, split: Split, wanted: Wanted, items: Samples, embedded: Samples, name: str
) -> Decomposition:
    order = problem.settings.order
    conditional = [score_spec("conditional_vendi"), score_spec("conditional_rke")]
    scores = compute_scores(problem, conditional)
    groups, equal = _measured(problem, split, wanted)
    shares = np.array([group.share for group in groups])
    vendi, rke = (
        np.array([getattr(group, score) for group in groups]) for score in ("vendi", "rke")
    )
    total, total_two = (
        _aggregate(shares, np.log(vendi), order),
        _aggregate(shares, np.log(rke), 2.0),
    )
    data = _data(problem, split, items, name)
    warnings = [
        *embedded.warnings,
        *(notice for score in scores.values() for notice in score.warnings),
        *split.warnings,
    ]
    if left := problem.n - data["grouped"]:
        text = (
            f"{left:,} outputs are in no group: their prompts are unlike those of all groups. "
            "Ask for more groups."
        )
        warnings.append(Notice("outputs-in-no-group", text))
    return Decomposition(
        tuple(sorted(groups, key=lambda group: (group.small, group.rarefied or group.vendi))),
        float(shares.sum()),
        math.exp(total),
        total - scores["conditional_vendi"].entropy,
        math.exp(total_two),
        total_two - scores["conditional_rke"].entropy,
        **scores,
        cluster_vendi=float(shares @ vendi / shares.sum()) if split.hard else None,
        cluster_rke=float(shares @ rke / shares.sum()) if split.hard else None,
        equal_size=equal,
        min_size=wanted.min_size,
        num_small=sum(group.small for group in groups),
        settings=problem.settings,
        data=data,
        warnings=tuple(dict.fromkeys(warnings)),
        embedders=embedded.embedders,
        notes=embedded.notes,
        items=items,
        labels=_labels(split, problem.n) if split.hard else None,
    )


def _data(problem: Problem, split: Split, items: Samples, name: str) -> dict[str, Any]:
    """What was grouped, and how."""
    assert problem.t is not None
    return {
        "grouping": name,
        "n": problem.n,
        "grouped": sum(group.places.size for group in split.groups) if split.hard else problem.n,
        "prompts": problem.t.size,
        "source": items.source,
        "model": None if items.models is None else items.models[0],
        "skipped": items.skipped,
    }


def _labels(split: Split, n: int) -> tuple[str, ...]:
    labels = [""] * n
    for group in split.groups:
        for place in group.places:
            labels[place] = group.name
    return tuple(labels)


def _aggregate(shares: np.ndarray, inside: np.ndarray, order: float) -> float:
    """What entropies inside groups add up to: f^-1(E[f(H)]), f(z) = exp((1 - order) z), groups drawn by share^order (Thm 6)."""
    logs = np.log(shares / shares.sum())
    if order == 1:
        return float(np.exp(logs) @ inside)
    if math.isinf(order):
        return float(logs.max() - (logs - inside).max())
    weights = np.exp(order * (logs - logs.max()))
    weights /= weights.sum()
    powers = (1 - order) * inside
    if np.abs(powers).max() < 0.1:  # near order 1 the logarithm would cancel
        return math.log1p(float(weights @ np.expm1(powers))) / (1 - order)
    return (powers.max() + math.log(float(weights @ np.exp(powers - powers.max())))) / (1 - order)


def _measured(problem: Problem, split: Split, wanted: Wanted) -> tuple[list[PromptGroup], int]:
    """Every group measured, and the number of outputs that they are compared at."""
    assert problem.t is not None
    order, seed = problem.settings.order, problem.settings.rng
    insides = [Inside.of(problem.x, group) for group in split.groups]
    question = problem.question([order, 2.0])
    at_order, at_two = problem.settings.estimator.entropies(
        [one.operator for one in insides], question, problem.resources
    )
    sizes = [1 / float((group.masses**2).sum()) for group in split.groups]
    enough = [round(size, 6) >= wanted.min_size for size in sizes]
    large = {round(size) for size, large in zip(sizes, enough, strict=True) if large}
    equal = (
        large.pop() if len(large) == 1 else min([_EQUAL, *large])
    )  # at one size there is nothing to draw
    groups = []
    for place, group in enumerate(split.groups):
        vendi, error = (
            math.exp(at_order[place].estimate.value),
            at_order[place].estimate.standard_error,
        )
        rarefied: tuple[float | None, float | None] = None, None
        if split.hard and enough[place]:
            rarefied = (vendi, vendi * error)
            if group.places.size > equal:
                rarefied = rarefied_vendi(
                    problem.x, group.places, equal, order, np.random.default_rng([seed, place])
                )
        prompts = Inside.of(problem.t, group)
        groups.append(
            PromptGroup(
                group.name,
                group.share,
                group.places.size if split.hard else sizes[place],
                vendi,
                math.exp(at_two[place].estimate.value),
                vendi * error,
                *rarefied,
                small=not enough[place],
                num_prompts=prompts.operator.size,
                prompts=typical_rows(prompts, wanted.num_examples),
                modes=modes_of(insides[place], wanted, problem.resources, vendi),
            )
        )
    return groups, equal
