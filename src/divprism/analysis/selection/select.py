"""`select`: a diverse subset of outputs, overall or of each prompt or model."""

import math
import operator
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from divprism.analysis.content_order import ContentOrder
from divprism.analysis.groups.result import describe_row
from divprism.analysis.inputs import (
    as_samples,
    embed_samples,
    pool_bandwidths,
    with_rule_of,
)
from divprism.analysis.selection.greedy import Pool, choose
from divprism.analysis.selection.near_duplicates import without_near_copies
from divprism.analysis.selection.result import Selection
from divprism.analysis.selection.scoring import (
    NUM_DRAWS,
    RandomSubsets,
    log_score,
    random_log_scores,
)
from divprism.analysis.selection.similarities import Similarities
from divprism.core.kernels.base import finite_number
from divprism.core.validation import as_numpy, whole_number
from divprism.data.inputs import as_arrays
from divprism.data.readers.fields import Fields
from divprism.data.samples import Item, Samples
from divprism.data.wording import counted
from divprism.engines import Resources, one_blas_thread
from divprism.errors import ArgumentError, DataError, Notice
from divprism.scores.problem import Problem, pose
from divprism.scores.settings import EmbeddedPairOptions, Settings, read_options
from divprism.scores.spec import LABELS, SCORES, ScoreSpec, score_spec

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = ["select"]

_WITHIN = ("prompt", "model")

# Beyond these a selection takes hours, and a score that is only shown beside it takes minutes.
_MOST_AT_ORDER_1 = 3000
_MOST_RANDOM = 3000
_MOST_OF_ALL = 10_000
_MOST_DENSE = 3000  # outputs of a group whose score at order 1 is computed from a whole matrix


def select(
    x: object,
    t: object = None,
    k: int | None = None,
    *,
    by: str = "vendi",
    per: str | None = None,
    quality: object = None,
    keep: Iterable[int] = (),
    drop: Iterable[int] = (),
    near_duplicates: float | None = None,
    prompt: str | None = None,
    output: str | None = None,
    model: str | None = None,
    **options: "Unpack[EmbeddedPairOptions]",
) -> Selection:
    """A diverse subset of k outputs: greedily the one that raises a score most, k times.

    Exact marginal gains, no sampling: of order 2 from sums of squared kernel values, of order 1
    from the eigenvalues of the chosen outputs. Nothing random is chosen; ties are settled by a
    hash of the content, so that neither a seed nor the order of rows changes the subset.

    How close to the best subset: for subsets S of one size, `vendi` grows with
    F(S) = -tr K_S log K_S and `rke` with G(S) = -|K_S|^2, and both are submodular (S -> tr f(K_S)
    is supermodular where f' is operator monotone; Friedland and Gaubert, 2013). They become
    monotone by adding a constant for each output, which changes no choice at a fixed size; greedy
    then reaches 1 - 1/e of the best value of the function so shifted (Nemhauser, Wolsey, Fisher,
    1978). That bounds the shifted function, not the score: on small sets the score itself was at
    least 0.95 of the best (`experiments/selection.py`). With `per`, each group is a selection of
    its own with the same guarantee. (One objective across all groups would only have 1/2.)
    Conditional and Information scores are differences of such functions: their gains are exact as
    well, and there is no guarantee. The same holds for `quality`.

    Cost for n outputs of width d: order 2, O(n d) per choice and O(n) memory. Order 1, O(n d + m^3)
    at the m-th choice, and O(m^2) for each output whose gain has to be computed: bounds leave out
    most. 100,000 outputs of width 256 and k = 1,000 take 3 minutes and 0.9 GB (`rke` 1 minute).

    Parameters
    ----------
    x, t
        As in `evaluate`: arrays, texts, images, Samples, a table or a path.
    k : int, optional
        Number of outputs, of each group with `per`. May be left out with `near_duplicates`.
    by : str
        The score to maximise, of order 1 or 2; all but the cluster scores. `vendi` and `rke` for
        outputs that differ from each other. Conditional scores count differences among outputs of
        one kind of prompt: overall, they tend to choose many outputs of a single kind of prompt.
        For different outputs to every prompt use `per="prompt"` with `vendi`.
    per : "prompt" or "model", optional
        Choose k outputs of each distinct prompt, or of each model, by the score inside the group.
        Groups with fewer than k outputs are chosen whole.
    quality : array (n,), optional
        A number of at least 0 for each output, higher for better. The objective is then
        log(mean quality) + log(score).
    keep, drop : iterable of int, optional
        Rows of the source that must be chosen (they count in k), and rows that must not.
    near_duplicates : float, optional
        Similarity by the kernel of the outputs, such as 0.95, from which two outputs count as
        near-copies. Of these only one can be chosen: that in `keep`, else of the highest quality,
        else one by content. With `per`, inside each group.
    prompt, output, model : str, optional
        Columns of the table or file `x`, recognised by their names if not given.
    kernel_x, kernel_t, order, truncation, bandwidth_rule, rng, settings, memory, embedder_x,
    embedder_t, cache, num_workers, progress
        As in `evaluate`. Bandwidths are chosen once, on all outputs of all models. `rng` moves only
        the random subsets that the result is compared with.

    Returns
    -------
    Selection

    Raises
    ------
    ArgumentError
        For another order than 1 and 2, a truncation below k, or k beyond 3,000 at order 1.
    DataError
        Without prompts or models that `per` or the score needs.

    Examples
    --------
    Three kinds of outputs in six rows: one of each is the best subset of three.

    >>> import numpy as np, divprism as dp
    >>> x = np.eye(3)[[0, 0, 0, 1, 1, 2]]
    >>> chosen = dp.select(x, k=3, kernel_x=dp.Cosine())
    >>> sorted(x[list(chosen.indices)].argmax(axis=1).tolist()), round(chosen.score, 9)
    ([0, 1, 2], 3.0)
    """
    spec = score_spec(by, "by")
    settings, resources = read_options(options, EmbeddedPairOptions, "select")
    request = _Request.of(spec, k, per, near_duplicates, settings)
    columns = Fields(output, prompt, model, suffix="")
    items = as_arrays(as_samples(x, t, settings.kernel_t, columns))
    _require_groups(items, per)
    rows = _Rows.of(items, quality, keep, drop)
    embedded, settings = embed_samples(items, settings, resources)
    pooled = settings
    if items.models is not None:
        pooled = pool_bandwidths(embedded, settings)
    problem = _pose(embedded, pooled, resources, request.order)
    if items.models is not None:
        problem = replace(problem, settings=with_rule_of(pooled, problem.settings))
    _require_operators(problem, spec)
    with one_blas_thread():
        chosen = _Choice.of(problem, embedded, request, rows, resources)
    origin = None
    if isinstance(x, str | Path) and t is None:
        origin = x
    return _assemble(chosen, problem, items, embedded, request, rows, origin)


@dataclass(frozen=True)
class _Request:
    """What is to be chosen, validated."""

    spec: ScoreSpec
    k: int | None
    per: str | None
    threshold: float | None
    order: float

    @classmethod
    def of(
        cls,
        spec: ScoreSpec,
        k: int | None,
        per: str | None,
        near_duplicates: float | None,
        settings: Settings,
    ) -> "_Request":
        if LABELS in spec.needs:
            names = ", ".join(other.name for other in SCORES if LABELS not in other.needs)
            raise ArgumentError(f"`by` must be one of {names}; got {spec.name!r}.")
        if per is not None and per not in _WITHIN:
            raise ArgumentError(f"`per` must be prompt or model; got {per!r}.")
        if k is None and near_duplicates is None:
            raise ArgumentError(
                "`k` must be the number of outputs to choose; leave it out only with "
                "`near_duplicates`, to drop near-copies and nothing else."
            )
        if k is not None:
            k = whole_number(k, "k", 1)
        if near_duplicates is not None:
            requirement = "a similarity above 0 and at most 1, such as 0.95"
            near_duplicates = finite_number(near_duplicates, "near_duplicates", requirement)
            if not 0 < near_duplicates <= 1:
                raise ArgumentError(
                    f"`near_duplicates` must be {requirement}; got {near_duplicates!r}."
                )
        order = spec.order_under(settings.order)
        if order not in (1, 2):
            raise ArgumentError(
                f"`order` must be 1 or 2, at which gains are exact and cheap; got {order:g}."
            )
        if k is not None:
            _require_possible(spec, k, order, settings)
        return cls(spec, k, per, near_duplicates, order)


def _require_possible(spec: ScoreSpec, k: int, order: float, settings: Settings) -> None:
    """Refuse what would take hours, or would maximise something else than it says."""
    if settings.truncation is not None and settings.truncation < k:
        raise ArgumentError(
            f"`truncation` must be at least `k`, because gains are those of whole spectra; got "
            f"{settings.truncation:,} and k = {k:,}."
        )
    if order == 1 and k > _MOST_AT_ORDER_1:
        at_order_2 = [
            other.name for other in SCORES if other.terms == spec.terms and other.order == 2
        ]
        raise ArgumentError(
            f"`k` must be at most {_MOST_AT_ORDER_1:,} at order 1, whose cost grows with the "
            f"fourth power of it; got {k:,}. Choose by={at_order_2[0]}, which is of order 2."
        )


def _require_groups(items: Samples, per: str | None) -> None:
    if per == "prompt" and items.prompts is None:
        raise DataError("`per` is prompt, and there are no prompts: add `t`.")
    if per == "model" and items.models is None:
        raise DataError(
            f"`per` is model, but {items.source} does not name the model of each output."
        )


def _require_operators(problem: Problem, spec: ScoreSpec) -> None:
    """Refuse a score that the data do not allow."""
    missing = spec.missing_need(problem.present)
    if missing is not None:
        raise DataError(
            f"{spec.name} needs {missing}, which these outputs do not have; select by another "
            "score, such as vendi."
        )


@dataclass(frozen=True, eq=False)
class _Rows:
    """What was said about single rows, by their position among the outputs that are not empty.

    `of_source` holds the row of the source of each position.
    """

    of_source: np.ndarray
    quality: np.ndarray | None
    keep: np.ndarray
    drop: np.ndarray

    @classmethod
    def of(
        cls, items: Samples, quality: object, keep: Iterable[int], drop: Iterable[int]
    ) -> "_Rows":
        of_source = np.arange(len(items))
        if items.rows is not None:
            of_source = np.array(items.rows)
        kept = _positions(keep, "keep", of_source)
        dropped = _positions(drop, "drop", of_source)
        both = np.intersect1d(kept, dropped)
        if both.size:
            row = of_source[both[0]]
            raise ArgumentError(f"row {row:,} is in both `keep` and `drop`; leave it in one.")
        return cls(of_source, _check_quality(quality, items), kept, dropped)


def _positions(given: Iterable[int], name: str, of_source: np.ndarray) -> np.ndarray:
    """The positions of rows of the source."""
    if isinstance(given, str | bytes) or not hasattr(given, "__iter__"):
        raise ArgumentError(f"`{name}` must be rows, such as [0, 7]; got {given!r}.")
    position_of = {row: position for position, row in enumerate(of_source.tolist())}
    positions = []
    for value in given:
        try:
            row = operator.index(value)
        except TypeError:
            raise ArgumentError(f"`{name}` must be rows, such as [0, 7]; got {value!r}.") from None
        if row not in position_of:
            raise ArgumentError(
                f"`{name}` names row {row:,}, which is not among the {of_source.size:,} outputs: "
                "rows are counted from 0, and empty outputs cannot be chosen."
            )
        positions.append(position_of[row])
    return np.unique(np.array(positions, dtype=int))


def _check_quality(quality: object, items: Samples) -> np.ndarray | None:
    """The quality of each output, as numbers of at least 0."""
    if quality is None:
        return None
    try:
        values = np.asarray(as_numpy(quality, "quality"), np.float64)
    except (TypeError, ValueError) as error:
        if isinstance(error, DataError):
            raise
        raise DataError("`quality` must be a number for each output.") from None
    if values.shape != (len(items),):
        more = ""
        if items.skipped:
            are = counted(items.skipped, "empty output is", "empty outputs are")
            more = f" {are} left out: leave their numbers out, too."
        raise DataError(
            f"`quality` must be a number for each of {len(items):,} outputs; got shape "
            f"{values.shape}.{more}"
        )
    wrong = np.flatnonzero(~(np.isfinite(values) & (values >= 0)))
    if wrong.size:
        raise DataError(
            f"`quality` must be finite and at least 0; entry {wrong[0]} is {values[wrong[0]]:g}. "
            "Shift or rescale it."
        )
    return values


def _pose(embedded: Samples, settings: Settings, resources: Resources, order: float) -> Problem:
    """The problem in the precision that the order of the score takes, under the given settings."""
    at_order = replace(settings, order=order)
    problem = pose(embedded.outputs, embedded.prompts, settings=at_order, resources=resources)
    return replace(problem, settings=replace(problem.settings, order=settings.order))


@dataclass(frozen=True, eq=False)
class _Group:
    """One group that outputs are chosen from: its name and its positions."""

    name: str
    positions: np.ndarray


def _groups(problem: Problem, order: ContentOrder, items: Samples, per: str | None) -> list[_Group]:
    """The groups in an order that does not depend on rows."""
    if per is None:
        return [_Group("", np.arange(problem.n))]
    if per == "model":
        models = np.array(items.models, dtype=object)
        names = sorted(set(items.models or ()))
        return [_Group(name, np.flatnonzero(models == name)) for name in names]
    assert problem.t is not None and order.prompts is not None
    by_prompt = np.argsort(problem.t.index, kind="stable")
    cuts = np.flatnonzero(np.diff(problem.t.index[by_prompt])) + 1
    parts = np.split(by_prompt, cuts)
    return [_Group("", parts[prompt]) for prompt in np.argsort(order.prompts, kind="stable")]


def _ranks(problem: Problem, order: ContentOrder, items: Samples) -> np.ndarray:
    """The position of each output in the order by content.

    Equal pairs are told apart by their models and by the texts or files behind equal vectors.
    """
    ranks = np.empty(problem.n, int)
    ranks[order.pairs] = np.arange(problem.n)
    codes = problem.x.index
    if problem.t is not None:
        codes = codes * problem.t.size + problem.t.index
    _, pair_of, counts = np.unique(codes, return_inverse=True, return_counts=True)
    for pair in np.flatnonzero(counts > 1) if _are_named(items) else ():
        members = np.flatnonzero(pair_of == pair)
        by_name = sorted(members.tolist(), key=lambda row: _name_of(items, row))
        ranks[by_name] = np.sort(ranks[members])
    return ranks


def _are_named(items: Samples) -> bool:
    return items.models is not None or isinstance(items.outputs, tuple)


def _name_of(items: Samples, row: int) -> tuple[str, str]:
    model, label = "", ""
    if items.models is not None:
        model = items.models[row]
    output = items.outputs[row]
    if isinstance(output, Item):
        label = output.label
    return model, label


@dataclass(frozen=True, eq=False)
class _Choice:
    """What was chosen, group by group, and what it is compared with."""

    positions: list[int]
    scores: list[float]
    gains: list[float]
    log_subset: float | None
    log_all: float | None
    random: RandomSubsets | None
    num_near_copies: int | None
    num_small: int

    @classmethod
    def of(
        cls,
        problem: Problem,
        embedded: Samples,
        request: _Request,
        rows: _Rows,
        resources: Resources,
    ) -> "_Choice":
        order = ContentOrder.of(problem, as_arrays(embedded))
        given = embedded.given or embedded
        ranks = _ranks(problem, order, given)
        groups = _groups(problem, order, embedded, request.per)
        results = []
        rng = np.random.default_rng(problem.settings.rng)
        what = f"choosing from {problem.n:,} outputs"
        resources.report_progress(what, 0.0)
        total = sum(_aim(request, group.positions.size) for group in groups)
        progress = _Progress(resources, what, total)
        for group in groups:
            results.append(_choose_in(group, problem, request, rows, ranks, rng, progress))
        resources.report_progress(what, 1.0)
        filled = [result for result in results if result.rows.size]
        if not filled:
            raise DataError("no output is left to choose from: `drop` names all of them.")
        small = 0
        if request.k is not None:
            small = sum(result.rows.size < request.k for result in results)
        copies = None
        if request.threshold is not None:
            copies = sum(result.num_near_copies for result in results)
        random = None
        if all(result.random is not None for result in filled):
            random = RandomSubsets.of(np.mean([result.random for result in filled], axis=0))
        return cls(
            positions=[int(row) for result in filled for row in result.rows],
            scores=[score for result in filled for score in result.scores],
            gains=[gain for result in filled for gain in result.gains],
            log_subset=_mean(result.log_subset for result in filled),
            log_all=_mean(result.log_all for result in filled),
            random=random,
            num_near_copies=copies,
            num_small=small,
        )


def _mean(values: Iterable[float | None]) -> float | None:
    """The mean of numbers; None if one of them is."""
    known = []
    for value in values:
        if value is None:
            return None
        known.append(value)
    return math.fsum(known) / len(known)


def _aim(request: _Request, available: int) -> int:
    if request.k is None:
        return available
    return min(request.k, available)


class _Progress:
    """Reports of the share of outputs that have been chosen, at most a hundred of them."""

    def __init__(self, resources: Resources, text: str, total: int) -> None:
        self._resources = resources
        self._text = text
        self._total = total
        self._done = 0

    def step(self) -> None:
        """Count one more."""
        self._done += 1
        if self._done % max(1, self._total // 100) == 0 and self._done < self._total:
            self._resources.report_progress(self._text, self._done / self._total)


@dataclass(frozen=True, eq=False)
class _Result:
    """What was chosen in one group; `random` holds the logarithms of random scores."""

    rows: np.ndarray
    scores: list[float]
    gains: list[float]
    log_subset: float | None
    log_all: float | None
    random: np.ndarray | None
    num_near_copies: int


def _choose_in(
    group: _Group,
    problem: Problem,
    request: _Request,
    rows: _Rows,
    ranks: np.ndarray,
    rng: np.random.Generator,
    progress: _Progress,
) -> _Result:
    """Choose outputs of one group."""
    own = group.positions
    terms = request.spec.terms
    similarities: dict[str, Similarities] = {}
    for name in terms:
        operator_of = problem.operator(name)
        assert operator_of is not None
        similarities[name] = Similarities.of(operator_of, own)
    is_first = np.isin(own, rows.keep)
    is_open = ~np.isin(own, rows.drop) & ~is_first
    quality = None
    if rows.quality is not None:
        quality = rows.quality[own]
    own_ranks = ranks[own]
    first = np.flatnonzero(is_first)
    first = first[np.argsort(own_ranks[first], kind="stable")]
    if request.k is not None and first.size > request.k:
        raise ArgumentError(
            f"`keep` names {first.size:,} outputs of one {request.per or 'source'}, which is more "
            f"than k = {request.k:,}."
        )
    eligible = own_ranks[is_open | is_first].size
    copies = 0
    if request.threshold is not None:
        of_outputs = similarities.get("x") or Similarities.of(problem.x, own)
        preferred = _by_preference(np.flatnonzero(is_open), own_ranks, quality)
        left = without_near_copies(
            of_outputs, np.concatenate([first, preferred]), request.threshold, first.size
        )
        copies = eligible - left.size
        is_open = np.zeros(own.size, bool)
        is_open[left[first.size :]] = True
    random_from = np.flatnonzero(~np.isin(own, rows.drop))
    if request.k is None:
        chosen = np.sort(np.concatenate([first, np.flatnonzero(is_open)]))
        log_scores: list[float] = []
    else:
        pool = Pool(similarities, own_ranks, quality, is_open, tuple(first.tolist()))
        greedy = choose(pool, terms, request.order, request.k, step=progress.step)
        chosen, log_scores = np.array(greedy.rows, dtype=int), greedy.log_scores
    scores = [math.exp(value) for value in log_scores]
    gains = np.diff([0.0, *scores]).tolist()
    measured = _Measured(similarities, terms, request.order)
    log_subset = measured.of(chosen)
    if log_scores:
        log_subset = log_scores[-1]
    # By content, so that random subsets do not depend on the order of rows either.
    by_content = random_from[np.argsort(own_ranks[random_from], kind="stable")]
    return _Result(
        rows=own[chosen],
        scores=scores,
        gains=gains,
        log_subset=log_subset,
        log_all=measured.of(np.arange(own.size)),
        random=measured.of_random(by_content, chosen.size, rng),
        num_near_copies=copies,
    )


def _by_preference(
    candidates: np.ndarray, ranks: np.ndarray, quality: np.ndarray | None
) -> np.ndarray:
    """Candidates from the highest quality down, those of equal quality by content."""
    if quality is None:
        return candidates[np.argsort(ranks[candidates], kind="stable")]
    return candidates[np.lexsort((ranks[candidates], -quality[candidates]))]


@dataclass(frozen=True, eq=False)
class _Measured:
    """The score of rows of one group, where it takes no longer than the selection."""

    similarities: Mapping[str, Similarities]
    terms: Mapping[str, int]
    order: float

    def of(self, rows: np.ndarray) -> float | None:
        """The logarithm of the score; None for too many rows, or none."""
        if rows.size == 0:
            return None
        most = _MOST_DENSE
        if self.order == 2:
            most = _MOST_OF_ALL
        if rows.size > most:
            return None
        return log_score(self.similarities, self.terms, self.order, rows)

    def of_random(
        self, candidates: np.ndarray, size: int, rng: np.random.Generator
    ) -> np.ndarray | None:
        """The logarithms of the scores of random subsets; None for too many rows, or none."""
        if not 0 < size <= _MOST_RANDOM:
            return None
        draws: Sequence[np.ndarray] = list(_draws(candidates, size, rng))
        return random_log_scores(self.similarities, self.terms, self.order, draws)


def _draws(candidates: np.ndarray, size: int, rng: np.random.Generator) -> Iterator[np.ndarray]:
    for _ in range(NUM_DRAWS):
        yield rng.permutation(candidates)[:size]


def _assemble(
    chosen: _Choice,
    problem: Problem,
    items: Samples,
    embedded: Samples,
    request: _Request,
    rows: _Rows,
    origin: str | Path | None,
) -> Selection:
    """The result of a choice."""
    given = items.given or items
    positions = chosen.positions
    quality = None
    if rows.quality is not None:
        quality = {
            "subset": float(rows.quality[positions].mean()),
            "all": float(rows.quality.mean()),
        }
    models = prompts = None
    if items.models is not None:
        models = len(set(items.models))
    if problem.t is not None:
        prompts = problem.t.size
    data = {
        "n": problem.n,
        "chosen": len(positions),
        "prompts": prompts,
        "models": models,
        "source": items.source,
        "skipped": items.skipped,
    }
    return Selection(
        indices=tuple(int(rows.of_source[position]) for position in positions),
        scores=tuple(chosen.scores),
        gains=tuple(chosen.gains),
        score=_exp(chosen.log_subset),
        score_of_all=_exp(chosen.log_all),
        random=chosen.random,
        by=request.spec.name,
        per=request.per,
        k=request.k,
        counts=_counts(problem, given, positions),
        quality=quality,
        num_near_copies=chosen.num_near_copies,
        positions=tuple(positions),
        items=given,
        settings=problem.settings,
        data=data,
        warnings=tuple(dict.fromkeys([*embedded.warnings, *_warnings(chosen, request)])),
        notes=embedded.notes,
        embedders=embedded.embedders,
        origin=origin,
    )


def _exp(logarithm: float | None) -> float | None:
    if logarithm is None:
        return None
    return math.exp(logarithm)


def _counts(
    problem: Problem, items: Samples, positions: Sequence[int]
) -> dict[str, list[dict[str, Any]]]:
    """How many outputs of each model and of each prompt were chosen, and of how many."""
    counts: dict[str, list[dict[str, Any]]] = {}
    if items.models is not None:
        models = np.array(items.models, dtype=object)
        names, of_row = np.unique(models, return_inverse=True)
        entries = [{"model": name} for name in names.tolist()]
        counts["models"] = _with_counts(entries, of_row, positions)
    if problem.t is not None:
        _, firsts = np.unique(problem.t.index, return_index=True)
        entries = [describe_row(items.prompts, int(row)) for row in firsts]
        counts["prompts"] = _with_counts(entries, problem.t.index, positions)
    return counts


def _with_counts(
    entries: list[dict[str, Any]], of_row: np.ndarray, positions: Sequence[int]
) -> list[dict[str, Any]]:
    total = np.bincount(of_row, minlength=len(entries))
    chosen = np.bincount(of_row[list(positions)], minlength=len(entries))
    return [
        entry | {"chosen": int(some), "of": int(every)}
        for entry, some, every in zip(entries, chosen, total, strict=True)
    ]


def _warnings(chosen: _Choice, request: _Request) -> list[Notice]:
    """What a reader should know about the choice itself."""
    if not chosen.num_small or request.k is None:
        return []
    if request.per is None:
        text = (
            f"only {len(chosen.positions):,} outputs were left to choose from, fewer than the "
            f"{request.k:,} asked for."
        )
    else:
        groups = counted(chosen.num_small, f"{request.per} has", f"{request.per}s have")
        text = f"{groups} fewer than {request.k:,} outputs to choose from; all of them are chosen."
    return [Notice("fewer-than-k", text)]
