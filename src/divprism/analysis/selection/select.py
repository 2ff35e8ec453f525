"""`select`: a diverse subset of outputs, overall or of each prompt or model."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from divprism.analysis.groups.result import describe_row
from divprism.analysis.inputs import (
    embed_samples,
    pool_bandwidths,
    rate_samples,
    read_samples,
    require_embedders,
    with_quality_model,
    with_rule_of,
)
from divprism.analysis.selection.choice import MOST_OF_ALL, Choice, exact_prompts
from divprism.analysis.selection.request import Request, Rows
from divprism.analysis.selection.result import Selection
from divprism.data.inputs import as_arrays
from divprism.data.quality import column_of_quality
from divprism.data.readers.fields import Fields
from divprism.data.samples import Samples
from divprism.data.wording import counted
from divprism.engines import Resources, one_blas_thread
from divprism.errors import DataError, Notice
from divprism.scores.problem import Problem, pose
from divprism.scores.score import Score, compute_scores
from divprism.scores.settings import EmbeddedPairOptions, Settings, read_options
from divprism.scores.spec import PROMPTS, ScoreSpec, score_spec

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = ["select"]


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

    Exact marginal gains, no sampling: of order 2 from sums of squared kernel values, of other
    orders from the eigenvalues of the chosen outputs. Nothing random is chosen; ties are settled by
    a hash of the content, so that neither a seed nor the order of rows changes the subset.

    How close to the best subset: for subsets S of one size, `vendi` grows with
    F(S) = -tr K_S log K_S and `rke` with ``G(S) = -|K_S|^2``, and both are submodular, because
    S -> tr f(K_S) is supermodular where f' is operator monotone (Friedland and Gaubert, 2013). They
    become monotone by adding a constant for each output, which changes no choice at a fixed size;
    greedy then reaches 1 - 1/e of the best value of the function so shifted (Nemhauser, Wolsey,
    Fisher, 1978). That bounds the shifted function, not the score: on 200 small sets the score
    itself was at least 0.98 of the best (`experiments/selection.py`). What greedy does worst is the
    first choice, which says nothing about the others: among up to 64 outputs it is started from
    each of them, beyond from 16 that are far apart, which are compared after eight choices. (With
    `quality` the first choice is that of highest quality.) With `per`, each group is a selection of
    its own with the same guarantee. (One objective across all groups would only have 1/2.)
    Conditional and Information scores are differences of such functions: their gains are exact as
    well, and there is no guarantee. The same holds for `quality`.

    The same by order, for `vendi` and `prompt_vendi`:

    - Below 2: F(S) = (tr K_S^order - m) / (1 - order) is submodular, as at order 1.
    - Integers above 2: submodular if no similarity is negative, as of `Gaussian`.
    - Other orders above 2, and infinity: not submodular, no guarantee. On the same small sets the
      score was at least 0.92 of the best at infinity, and 0.98 at order 3.

    Gains are exact to 1e-9 from order 1 on. Below, rounding of small eigenvalues counts more, about
    1e-16 to the power of the order for each that is zero; outputs whose gains differ by less than
    what it explains are tied.

    Cost for n outputs of width d: order 2, O(n d) per choice and O(n) memory. Order 1, O(n d + m^3)
    at the m-th choice, and O(m^2) for each output whose gain has to be computed: bounds leave out
    most. 100,000 outputs of width 256 and k = 1,000 take a minute of one core and 0.6 GB, by `rke`
    ten seconds. Bounds leave out less below order 1, and little above order 2. Near-copies:
    O(n n' d) for n' outputs that are left.

    Parameters
    ----------
    x, t
        As in `evaluate`: arrays, texts, images, Samples, a table or a path.
    k : int, optional
        Number of outputs, of each group with `per`. May be left out with `near_duplicates`.
    by : str
        The score to maximise, at `order`; all but the cluster scores. `vendi` and `rke` for
        outputs that differ from each other. Conditional scores count differences among outputs of
        one kind of prompt: overall, they tend to choose many outputs of a single kind of prompt.
        For different outputs to every prompt use `per="prompt"` with `vendi`.
    per : "prompt" or "model", optional
        Choose k outputs of each distinct prompt, or of each model, by the score inside the group.
        Groups with fewer than k outputs are chosen whole.
    quality : array (n,), str, callable or QualityModel, optional
        As in `evaluate`: a number of at least 0 for each output, higher for better. The objective
        is then log(mean quality) + log(score).
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
        For a finite order below 0.1 or above 16, a truncation below k, or k beyond 3,000 at orders
        below 2 and beyond 300 above.
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
    settings, resources = read_options(options, EmbeddedPairOptions, "select", rates=True)
    request = Request.of(spec, k, per, near_duplicates, settings)
    settings = with_quality_model(settings, quality)
    columns = Fields(output, prompt, model, suffix="", quality=column_of_quality(quality))
    items = as_arrays(read_samples(x, t, settings.kernel_t, columns, quality))
    _require_groups(items, per)
    rows = Rows.of(items, keep, drop)
    if per is None:
        request.require_room(rows.keep.size)
    if items.prompts is None and PROMPTS in spec.needs:
        raise _lacking(spec, PROMPTS)
    require_embedders(items, settings, resources)
    items, settings = rate_samples(items, settings, resources)
    rows = replace(rows, quality=items.quality)
    embedded, settings = embed_samples(items, settings, resources)
    pooled = settings
    if items.models is not None:
        pooled = pool_bandwidths(embedded, settings)
    problem = _pose(embedded, pooled, resources, request.order)
    if items.models is not None:
        problem = replace(problem, settings=with_rule_of(pooled, problem.settings))
    _require_operators(problem, spec)
    with one_blas_thread():
        chosen = Choice.of(problem, embedded, request, rows, resources)
    warnings = [*embedded.warnings, *_warnings(chosen, request)]
    if request.per is None and problem.n <= MOST_OF_ALL:
        score = _score_of_all(problem, spec)
        chosen = replace(chosen, log_all=score.entropy)
        warnings += score.warnings
    selection = _assemble(chosen, problem, items, request, rows)
    warnings += _left_out_prompts(selection, spec)
    return replace(
        selection,
        warnings=tuple(dict.fromkeys(warnings)),
        notes=embedded.notes,
        embedders=embedded.embedders,
        origin=_origin(x, items),
        joined=t is not None,
    )


def _origin(x: object, items: Samples) -> str | Path | None:
    """The file or folder that outputs were read from; None for those in memory."""
    if isinstance(x, str | Path):
        return x
    if items.source == "memory":
        return None
    return items.source


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
        raise _lacking(spec, missing)


def _lacking(spec: ScoreSpec, need: str) -> DataError:
    return DataError(
        f"{spec.name} needs {need}, which these outputs do not have; select by another score, such "
        "as vendi."
    )


def _pose(embedded: Samples, settings: Settings, resources: Resources, order: float) -> Problem:
    """The problem in the precision that the order of the score takes, under the given settings."""
    at_order = replace(settings, order=order)
    problem = pose(embedded.outputs, embedded.prompts, settings=at_order, resources=resources)
    return replace(problem, settings=replace(problem.settings, order=settings.order))


def _score_of_all(problem: Problem, spec: ScoreSpec) -> Score:
    """The score of all outputs, by the estimator of the settings."""
    # As that of the subset, whose spectrum is never truncated.
    settings = replace(problem.settings, truncation=None, auto_truncation=False)
    return compute_scores(replace(problem, settings=settings), [spec])[spec.name]


def _assemble(
    chosen: Choice, problem: Problem, items: Samples, request: Request, rows: Rows
) -> Selection:
    """The result of a choice, without what the embedding said."""
    given = items.given or items
    positions = chosen.positions
    quality = None
    if rows.quality is not None:
        quality = {"subset": _mean(rows.quality[positions]), "all": _mean(rows.quality)}
    counts = _counts(problem, given, positions, rows.of_source)
    data = {
        "n": problem.n,
        "chosen": len(positions),
        "prompts": _number(counts.get("prompts")),
        "models": _number(counts.get("models")),
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
        counts=counts,
        quality=quality,
        num_near_copies=chosen.num_near_copies,
        positions=tuple(positions),
        items=given,
        settings=problem.settings,
        data=data,
        group_sizes=chosen.sizes,
    )


def _mean(values: np.ndarray) -> float:
    """The mean, of numbers whose sum may overflow."""
    largest = float(values.max())
    if largest == 0:
        return 0.0
    return largest * float(np.mean(values / largest))


def _number(entries: Sequence[object] | None) -> int | None:
    if entries is None:
        return None
    return len(entries)


def _exp(logarithm: float | None) -> float | None:
    if logarithm is None:
        return None
    return math.exp(logarithm)


def _counts(
    problem: Problem, items: Samples, positions: Sequence[int], of_source: np.ndarray
) -> dict[str, list[dict[str, Any]]]:
    """How many outputs of each model and of each prompt were chosen, and of how many."""
    counts: dict[str, list[dict[str, Any]]] = {}
    if items.models is not None:
        models = np.array(items.models, dtype=object)
        names, of_row = np.unique(models, return_inverse=True)
        entries = [{"model": name} for name in names.tolist()]
        counts["models"] = _with_counts(entries, of_row, positions)
    if problem.t is not None:
        exact = exact_prompts(problem, items)
        _, firsts = np.unique(exact, return_index=True)
        entries = []
        for row in firsts.tolist():
            # The first row with that prompt, counted in the source as all rows of a result.
            entries.append(describe_row(items.prompts, row) | {"row": int(of_source[row])})
        counts["prompts"] = _with_counts(entries, exact, positions)
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


def _warnings(chosen: Choice, request: Request) -> list[Notice]:
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


def _left_out_prompts(selection: Selection, spec: ScoreSpec) -> list[Notice]:
    """A warning where a conditional score has led to a few prompts alone."""
    signs = {spec.terms.get(name, 0) for name in ("t", "prompt_ids")}
    if selection.per is not None or selection.k is None or -1 not in signs:
        return []
    prompts = selection.counts["prompts"]
    covered = sum(entry["chosen"] > 0 for entry in prompts)
    if 2 * covered >= min(len(prompts), len(selection)):
        return []
    text = (
        f"all {len(selection):,} outputs are of {covered:,} of {len(prompts):,} prompts: "
        f"{spec.name} counts differences under one kind of prompt, so one kind is enough. For "
        "different outputs to every prompt use `per=prompt` with `by=vendi`."
    )
    return [Notice("few-prompts-chosen", text)]
