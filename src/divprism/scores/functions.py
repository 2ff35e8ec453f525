"""The scores of the papers, each as a function.

Three entropies make most of them: H(X) of K_X / n, H(T) of K_T / n and H(X, T) of the entry-wise
product K_X o K_T / n.

    vendi        exp H(X)                      how many distinct outputs
    conditional  exp (H(X, T) - H(T))          how many per kind of prompt: the model's own
    information  exp (H(X) + H(T) - H(X, T))   how much of the diversity follows the prompts

and vendi = conditional x information. Conditional Vendi, eq. 8 states it at order 1; it holds at
every order and truncation.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from divprism.core.arrays import Array, distinct_rows
from divprism.core.kernels import Categorical, Kernel
from divprism.core.validation import clean_ids, clean_rows
from divprism.errors import ArgumentError, DataError
from divprism.scores.bandwidth import BandwidthRule
from divprism.scores.departures import departures_of_arrays
from divprism.scores.normalization import normalized
from divprism.scores.problem import entropies, pose
from divprism.scores.score import Score, assemble, compute_scores
from divprism.scores.settings import ScoreOptions, read_options
from divprism.scores.spec import REPEATED_PROMPTS, ScoreSpec, score_spec

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = [
    "cluster_rke",
    "cluster_vendi",
    "conditional_rke",
    "conditional_vendi",
    "information_rke",
    "information_vendi",
    "per_prompt_rke",
    "per_prompt_vendi",
    "prompt_rke",
    "prompt_vendi",
    "quality_conditional_vendi",
    "quality_vendi",
    "rke",
    "vendi",
]


def _score(
    name: str, data: Mapping[str, object], given: Mapping[str, Any], options: ScoreOptions
) -> Score:
    """One score of some data; `given` holds the keywords that only some of the scores have."""
    for side, needed in (("t", "the prompt"), ("labels", "the group")):
        if side in data and data[side] is None:
            raise ArgumentError(f"{name} needs {needed} of each output, but `{side}` is None.")
    # Weights belong to the data, not to the settings.
    rest = dict(options)
    weights = rest.pop("weights", None)
    if "quality" in data and data["quality"] is None:
        raise ArgumentError(f"{name} needs the quality of each output, but `quality` is None.")
    settings, resources = read_options(rest, ScoreOptions, name)
    spec = score_spec(name)
    changes = _changes(spec, given)
    if "t" not in data:
        # Settings of a result with prompts serve scores of the outputs alone, too.
        changes["kernel_t"] = None
    settings = replace(settings, **changes)
    x, t, settings = normalized(data["x"], data.get("t"), settings)
    labels = data.get("labels")
    problem = pose(
        x,
        t,
        labels,
        settings=settings,
        weights=weights,
        quality=data.get("quality"),
        resources=resources,
    )
    # All other needs are arguments of the function, so they are met.
    if spec.missing_need(problem.present) == REPEATED_PROMPTS:
        raise DataError(
            f"{name} needs prompts that repeat; each of these {problem.n:,} has one output, so the "
            "score would be 1 whatever the outputs are. Use conditional_vendi."
        )
    # `settings` still shows which kernels were given; those of the problem are resolved.
    notices = departures_of_arrays(x, t, settings, problem.n)
    problem = replace(problem, warnings=(*problem.warnings, *notices))
    return compute_scores(problem, [spec])[name]


def _changes(spec: ScoreSpec, given: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that a call changes: what was given, and the order if the score fixes it."""
    # None means "not given" here, so that the settings keep their own kernel and order.
    changes = {keyword: value for keyword, value in given.items() if value is not None}
    # Posing at order 2 lets data of single precision stay single.
    if spec.order is not None:
        changes["order"] = spec.order
    return changes


@dataclass(frozen=True)
class _PromptRule(BandwidthRule):
    """A rule that treats the only side that is posed as the prompts."""

    rule: BandwidthRule

    def bandwidth(self, x: Array, *, name: str = "t") -> float:
        return self.rule.prompt_bandwidth(x)


def _prompt_score(
    name: str, t: object, given: Mapping[str, Any], options: Mapping[str, Any]
) -> Score:
    """A score of the prompts alone."""
    rest = dict(options)
    weights = rest.pop("weights", None)
    settings, resources = read_options(rest, ScoreOptions, name)
    spec = score_spec(name)
    settings = replace(settings, **_changes(spec, given))
    kernel = settings.kernel_t
    if kernel is None and clean_ids(t, "t") is not None:
        kernel = Categorical()
    _, t, settings = normalized(None, t, settings)
    # Posed as the only side, and named as the prompts that it is.
    rule = _PromptRule(settings.rule)
    alone = replace(settings, kernel_x=kernel, kernel_t=None, bandwidth_rule=rule)
    problem = pose(t, settings=alone, weights=weights, resources=resources)
    order = spec.order_under(settings.order)
    [solved] = entropies(problem, ["x"], [order])
    # `pose` drops a rule that it did not use; else the one given, not its wrapper.
    rule_used = problem.settings.bandwidth_rule and settings.rule
    resolved = replace(
        problem.settings,
        kernel_x=None,
        kernel_t=problem.settings.kernel_x,
        bandwidth_rule=rule_used,
    )
    notices = departures_of_arrays(None, t, settings, problem.n)
    warnings = (*problem.warnings, *notices)
    problem = replace(problem, settings=resolved, warnings=warnings)
    return assemble(spec, {"t": solved["x"]}, problem)


def _per_prompt_score(
    name: str, x: object, t: object, given: Mapping[str, Any], options: ScoreOptions
) -> Score:
    """A score that compares prompts as ids."""
    codes = clean_ids(t, "t")
    if codes is None:
        # Equal rows become ids, so that no bandwidth is chosen for prompts that are not compared.
        codes = distinct_rows(clean_rows(t, "t"))[1]
    # This overrides a prompt kernel in `settings`, which is meant for the conditional scores.
    return _score(name, {"x": x, "t": codes}, {**given, "kernel_t": Categorical()}, options)


def vendi(
    x: object,
    *,
    kernel: Kernel | None = None,
    order: float | str | None = None,
    **options: "Unpack[ScoreOptions]",
) -> Score:
    """Effective number of distinct items: exp H(K / n).

    Conditional Vendi, eq. 3; at any order Truncated Vendi, eq. 8. Between 1 (all alike) and n
    (nothing in common). O(n^3), less with repeated items or few features; order 2 O(n^2 d).

    Parameters
    ----------
    x : array (n, d)
        A row per item, from NumPy, torch or another array library; a kernel matrix under
        `Precomputed()`.
    kernel : Kernel, optional
        When two items count as alike. Default: Gaussian with the bandwidth that `bandwidth_rule`
        chooses from the data.
    order : float, optional
        Order of the Renyi entropy, above 0; math.inf allowed. Default 1. Called q by vendi-score
        and alpha by the papers. High orders count common kinds only, low orders rare ones too.
    bandwidth_rule : BandwidthRule, optional
        Default: `DistinctPrompts()`, which takes the papers' rule, `StableScore`, for outputs.
    truncation : int or "auto", optional
        Keep the top t eigenvalues and spread the rest over them (Truncated Vendi, Def. 2): the
        truncated score converges with O(t) samples. "auto" takes the largest t at which half of the
        data score less than 2 % below all (see docs/reference/scores.md).
    weights : array (n,), optional
        Sample weights that sum to one. Default: equal.
    estimator : Estimator, optional
        How the eigenvalues are computed. Default: `Auto()`.
    rng : int or numpy.random.Generator, optional
        Seed of everything random; the same seed gives the same result.
    preset : "conditional-vendi" or "truncated-vendi", optional
        What a paper uses stands in for what is not given: a truncation of 10,000 and, for vectors
        of unknown origin, `StableScore()`. See docs/reference/command-line.md.
    normalize : bool, optional
        Scale rows to norm one first; `normalize_x` and `normalize_t` scale one side.
    settings : Settings, optional
        Settings of an earlier result; keywords override them.
    memory : int or str, optional
        Bytes that may be held beside the data, or a text such as "4 GB". Default: half of what
        is free. Changes no score.
    engine : distributed.Client, Dask or ThreadPoolExecutor, optional
        Where tiles of the kernel matrix are computed. Default: one thread per core. Changes no
        score.
    progress : bool or callable, optional
        True shows a bar in a notebook, and a line on stderr elsewhere. A function is called as
        progress(text, fraction) while a long computation runs.

    Returns
    -------
    Score

    Raises
    ------
    DataError, ArgumentError
        If the data or a setting cannot be used; the message names the reason and the way out.

    Examples
    --------
    Four directions, five items each:

    >>> import numpy as np, divprism as dp
    >>> round(dp.vendi(np.repeat(np.eye(4), 5, axis=0), kernel=dp.Cosine()), 12)
    4.0
    """
    return _score("vendi", {"x": x}, {"kernel_x": kernel, "order": order}, options)


def rke(x: object, *, kernel: Kernel | None = None, **options: "Unpack[ScoreOptions]") -> Score:
    """Effective number of distinct items at order 2: 1 / ||K / n||_F^2.

    Conditional Vendi, eq. 4; Truncated Vendi, eq. 7. The inverse of the mean squared similarity of
    two random items, so common kinds decide: it can rank models differently than `vendi`. No
    eigenvalue is computed (unless `truncation` asks for some), the kernel matrix is visited tile by
    tile and never held, and the score converges with O(1 / sqrt(n)) for any kernel (Truncated
    Vendi, Cor. 1). O(n^2 d), or O(n d^2) for Cosine with d < n / 2. Between 1 and n. Arguments as
    in `vendi`.

    >>> import numpy as np, divprism as dp
    >>> round(dp.rke(np.repeat(np.eye(4), 5, axis=0), kernel=dp.Cosine()), 12)
    4.0
    """
    return _score("rke", {"x": x}, {"kernel_x": kernel}, options)


def conditional_vendi(
    x: object,
    t: object,
    *,
    kernel_x: Kernel | None = None,
    kernel_t: Kernel | None = None,
    order: float | str | None = None,
    **options: "Unpack[ScoreOptions]",
) -> Score:
    """Effective number of distinct outputs per kind of prompt: exp(H(X, T) - H(T)).

    Conditional Vendi, eq. 6 and 13. The diversity that the model brings, beyond what its prompts
    bring. Between 1 (the prompt decides the output) and `vendi(x)` at order 1. Cost as of `vendi`,
    on pairs; with prompts as group ids the sum over groups.

    Parameters
    ----------
    x : array (n, d)
        A row per output.
    t : array (n, d_t), or flat collection of n group ids
        The prompt of each output: embeddings, a kernel matrix under `Precomputed()`, or ids
        (integers, strings), which count as alike when equal.
    kernel_x, kernel_t : Kernel, optional
        When outputs, when prompts count as alike. Default as in `vendi`; `Categorical()` for ids.
    order, bandwidth_rule, truncation, weights, estimator, rng, settings, memory, engine, progress
        As in `vendi`. The truncation applies to both spectra.

    Examples
    --------
    Four prompts, the same five outputs under each: five per prompt.

    >>> import numpy as np, divprism as dp
    >>> x, t = np.tile(np.eye(5), (4, 1)), np.repeat([0, 1, 2, 3], 5)
    >>> round(dp.conditional_vendi(x, t, kernel_x=dp.Cosine()), 12)
    5.0
    """
    given = {"kernel_x": kernel_x, "kernel_t": kernel_t, "order": order}
    return _score("conditional_vendi", {"x": x, "t": t}, given, options)


def information_vendi(
    x: object,
    t: object,
    *,
    kernel_x: Kernel | None = None,
    kernel_t: Kernel | None = None,
    order: float | str | None = None,
    **options: "Unpack[ScoreOptions]",
) -> Score:
    """How much of the diversity follows the prompts: exp(H(X) + H(T) - H(X, T)).

    Conditional Vendi, eq. 7. At least 1 at order 1 (outputs that ignore their prompts); at other
    orders it can fall slightly below. It is the factor between the two diversities:
    vendi = conditional_vendi x information_vendi. Arguments and cost as of `conditional_vendi`.

    >>> import numpy as np, divprism as dp
    >>> t = np.repeat(np.eye(4), 5, axis=0)
    >>> round(dp.information_vendi(t, t, kernel_x=dp.Cosine(), kernel_t=dp.Cosine()), 12)
    4.0
    """
    given = {"kernel_x": kernel_x, "kernel_t": kernel_t, "order": order}
    return _score("information_vendi", {"x": x, "t": t}, given, options)


def conditional_rke(
    x: object,
    t: object,
    *,
    kernel_x: Kernel | None = None,
    kernel_t: Kernel | None = None,
    **options: "Unpack[ScoreOptions]",
) -> Score:
    """`conditional_vendi` at order 2: ||K_T||_F^2 / ||K_X o K_T||_F^2.

    Conditional Vendi, eq. 9 and 11. At least 1. No eigenvalue is computed: one sweep over the
    pairs, O(n^2 (d + d_t)) time, memory of a few tiles. Arguments as in `conditional_vendi`.

    >>> import numpy as np, divprism as dp
    >>> x, t = np.tile(np.eye(5), (4, 1)), np.repeat([0, 1, 2, 3], 5)
    >>> round(dp.conditional_rke(x, t, kernel_x=dp.Cosine()), 12)
    5.0
    """
    given = {"kernel_x": kernel_x, "kernel_t": kernel_t}
    return _score("conditional_rke", {"x": x, "t": t}, given, options)


def information_rke(
    x: object,
    t: object,
    *,
    kernel_x: Kernel | None = None,
    kernel_t: Kernel | None = None,
    **options: "Unpack[ScoreOptions]",
) -> Score:
    """`information_vendi` at order 2: n^2 ||K_X o K_T||^2 / (||K_X||^2 ||K_T||^2).

    Conditional Vendi, eq. 10 and 11. Arguments and cost as of `conditional_rke`.

    >>> import numpy as np, divprism as dp
    >>> x, t = np.tile(np.eye(5), (4, 1)), np.repeat([0, 1, 2, 3], 5)
    >>> round(dp.information_rke(x, t, kernel_x=dp.Cosine()), 12)
    1.0
    """
    given = {"kernel_x": kernel_x, "kernel_t": kernel_t}
    return _score("information_rke", {"x": x, "t": t}, given, options)


def prompt_vendi(
    t: object,
    *,
    kernel: Kernel | None = None,
    order: float | str | None = None,
    **options: "Unpack[ScoreOptions]",
) -> Score:
    """Effective number of kinds of prompt: exp H(K_T / n).

    What "per kind of prompt" counts in `conditional_vendi`. Between 1 and the number of distinct
    prompts. Cost as of `vendi`, on the distinct prompts.

    Parameters
    ----------
    t : array (n, d_t), or flat collection of n group ids
        The prompt of each output, as in `conditional_vendi`.
    kernel, order, bandwidth_rule, truncation, weights, estimator, rng, settings, memory, engine,
    progress
        As in `vendi`; from `settings` the kernel of the prompts is taken.

    Examples
    --------
    Four prompts, five outputs each:

    >>> import divprism as dp
    >>> round(dp.prompt_vendi(["a dog", "a cat", "a fox", "an owl"] * 5), 12)
    4.0
    """
    return _prompt_score("prompt_vendi", t, {"kernel_t": kernel, "order": order}, options)


def prompt_rke(
    t: object, *, kernel: Kernel | None = None, **options: "Unpack[ScoreOptions]"
) -> Score:
    """`prompt_vendi` at order 2: 1 / ||K_T / n||_F^2, without eigenvalues. Arguments as there.

    >>> import divprism as dp
    >>> round(dp.prompt_rke([1, 1, 2, 2]), 12)
    2.0
    """
    return _prompt_score("prompt_rke", t, {"kernel_t": kernel}, options)


def per_prompt_vendi(
    x: object,
    t: object,
    *,
    kernel: Kernel | None = None,
    order: float | str | None = None,
    **options: "Unpack[ScoreOptions]",
) -> Score:
    """Effective number of distinct outputs per exact prompt: `conditional_vendi` with ids.

    Two prompts count as the same only if they are equal, so the score is at most the number of
    outputs that a prompt has. At order 1 it is the geometric mean over prompts, by their shares,
    of the `vendi` of their outputs. Cost: the sum over prompts of that of `vendi`.

    Parameters
    ----------
    x : array (n, d)
        A row per output.
    t : array (n, d_t), or flat collection of n ids
        The prompt of each output; rows and ids are compared for equality.
    kernel, order, bandwidth_rule, truncation, weights, estimator, rng, settings, memory, engine,
    progress
        As in `vendi`. The bandwidth of the outputs is chosen once, on all of them.

    Raises
    ------
    DataError
        If no prompt repeats: the score would be 1 whatever the outputs are.

    Examples
    --------
    Two answers to each of three prompts, the same two under the last:

    >>> import numpy as np, divprism as dp
    >>> x, t = np.eye(5)[[0, 1, 2, 3, 4, 4]], ["a", "a", "b", "b", "c", "c"]
    >>> round(dp.per_prompt_vendi(x, t, kernel=dp.Cosine()) ** 3, 9)
    4.0
    """
    return _per_prompt_score(
        "per_prompt_vendi", x, t, {"kernel_x": kernel, "order": order}, options
    )


def per_prompt_rke(
    x: object, t: object, *, kernel: Kernel | None = None, **options: "Unpack[ScoreOptions]"
) -> Score:
    """`per_prompt_vendi` at order 2: no eigenvalue is computed. Arguments as there.

    >>> import numpy as np, divprism as dp
    >>> round(dp.per_prompt_rke(np.eye(4), ["a", "a", "b", "b"], kernel=dp.Cosine()), 12)
    2.0
    """
    return _per_prompt_score("per_prompt_rke", x, t, {"kernel_x": kernel}, options)


def quality_vendi(
    x: object,
    quality: object,
    *,
    kernel: Kernel | None = None,
    order: float | str | None = None,
    **options: "Unpack[ScoreOptions]",
) -> Score:
    """Mean quality times the effective number of distinct outputs: mean(q) x exp H(K_X / n).

    Nguyen and Dieng 2024 (arXiv 2405.02449). With all qualities equal to c it is c x Vendi, and
    twice the qualities give twice the score. An output of quality zero lowers the mean, but still
    counts as an output; `vendi` with `weights` in proportion to the quality leaves it out instead
    (docs/how-to/quality.md). Between 0 and n times the highest quality. Costs what `vendi` costs.

    Parameters
    ----------
    x : array (n, d)
        The outputs.
    quality : array (n,)
        How good each output is: finite numbers of at least zero, not all of them zero.
    kernel, order, **options
        As in `vendi`. With `weights` the mean has these weights, too.

    Returns
    -------
    Score

    Raises
    ------
    DataError, ArgumentError
        If the data or a setting cannot be used; the message names the reason and the way out.

    Examples
    --------
    Four different outputs, half of which pass a check:

    >>> import numpy as np, divprism as dp
    >>> round(dp.quality_vendi(np.eye(4), [1, 1, 0, 0], kernel=dp.Cosine()), 12)
    2.0
    """
    data = {"x": x, "quality": quality}
    return _score("quality_vendi", data, {"kernel_x": kernel, "order": order}, options)


def quality_conditional_vendi(
    x: object,
    t: object,
    quality: object,
    *,
    kernel_x: Kernel | None = None,
    kernel_t: Kernel | None = None,
    order: float | str | None = None,
    **options: "Unpack[ScoreOptions]",
) -> Score:
    """Mean quality times the distinct outputs per kind of prompt: mean(q) x `conditional_vendi`.

    What `quality_vendi` is to `vendi`: the quality-weighted score of Nguyen and Dieng 2024 with the
    diversity that the model adds to that of its prompts. Between 0 and n times the highest quality.
    Costs what `conditional_vendi` costs.

    Parameters
    ----------
    x : array (n, d)
        The outputs.
    t : array (n, d_t), or flat collection of n ids
        The prompt of each output.
    quality : array (n,)
        As in `quality_vendi`.
    kernel_x, kernel_t, order, **options
        As in `conditional_vendi`.

    Returns
    -------
    Score

    Raises
    ------
    DataError, ArgumentError
        If the data or a setting cannot be used; the message names the reason and the way out.

    Examples
    --------
    Two prompts with two different outputs each, rated 0.5 on average:

    >>> import numpy as np, divprism as dp
    >>> rated = [1, 0.5, 0.5, 0]
    >>> round(dp.quality_conditional_vendi(np.eye(4), [0, 0, 1, 1], rated, kernel_x=dp.Cosine()), 9)
    1.0
    """
    data = {"x": x, "t": t, "quality": quality}
    given = {"kernel_x": kernel_x, "kernel_t": kernel_t, "order": order}
    return _score("quality_conditional_vendi", data, given, options)


def cluster_vendi(
    x: object,
    labels: object,
    *,
    kernel: Kernel | None = None,
    order: float | str | None = None,
    **options: "Unpack[ScoreOptions]",
) -> Score:
    """Mean over groups, by their share, of the `vendi` of the outputs inside each.

    Conditional Vendi, App. G, Cluster-Vendi: what `conditional_vendi` should track where the
    groups of prompts are known. Between 1 and n. Cost: the sum over groups of that of `vendi`.

    Parameters
    ----------
    x : array (n, d)
        A row per output.
    labels : flat collection of n integers or strings
        The group of each output's prompt: known, or from `kmeans_labels`.
    kernel, order, bandwidth_rule, truncation, weights, estimator, rng, settings, memory, engine,
    progress
        As in `vendi`. The bandwidth is chosen once, on all outputs.

    Examples
    --------
    One group of three distinct outputs, one of three equal ones:

    >>> import numpy as np, divprism as dp
    >>> x = np.eye(4)[[0, 1, 2, 3, 3, 3]]
    >>> round(dp.cluster_vendi(x, ["a", "a", "a", "b", "b", "b"], kernel=dp.Cosine()), 12)
    2.0
    """
    given = {"kernel_x": kernel, "order": order}
    return _score("cluster_vendi", {"x": x, "labels": labels}, given, options)


def cluster_rke(
    x: object, labels: object, *, kernel: Kernel | None = None, **options: "Unpack[ScoreOptions]"
) -> Score:
    """`cluster_vendi` at order 2: no eigenvalue is computed.

    Conditional Vendi, App. G, Cluster-RKE. Arguments as in `cluster_vendi`.

    >>> import numpy as np, divprism as dp
    >>> x = np.eye(4)[[0, 1, 2, 3, 3, 3]]
    >>> round(dp.cluster_rke(x, [7, 7, 7, 8, 8, 8], kernel=dp.Cosine()), 12)
    2.0
    """
    return _score("cluster_rke", {"x": x, "labels": labels}, {"kernel_x": kernel}, options)
