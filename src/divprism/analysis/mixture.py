"""Mixtures of models: the weights over models that make their outputs together most diverse.

With weight a_m for model m the state of the mixture is rho_a = sum a_m rho_m. All models have the
same prompts, so H(T) does not depend on the weights, and the best conditional score belongs to the
largest joint entropy. At order 2 that is the least a' G a with G_lm = tr rho_l rho_m, a convex
quadratic program. At order 1 the entropy is concave, with slopes -tr rho_m log rho_a - 1.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from divprism.analysis.inputs import with_quality_model
from divprism.analysis.matched_models import MatchedModels, matched_models
from divprism.analysis.mixture_entropy import refuse_large
from divprism.analysis.mixture_result import GroupMixture, Mixture
from divprism.analysis.mixture_solve import SolvedMixture, solved_mixture
from divprism.analysis.model_states import ModelStates, refuse_truncation
from divprism.analysis.overlap_errors import MIN_PROMPTS
from divprism.analysis.simplex import allowed_mixtures
from divprism.core.kernels.base import finite_number
from divprism.data.quality import column_of_quality
from divprism.data.readers.fields import Fields
from divprism.data.readers.guards import shown
from divprism.engines import blas_for
from divprism.errors import ArgumentError, Notice
from divprism.judges import QualityModel
from divprism.scores.settings import EvaluationOptions, Settings, read_options
from divprism.scores.spec import score_spec

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = ["MIXED", "mixture"]

Groups = str | Mapping[Any, str] | Callable[[str], str] | None

MIXED = ("conditional_vendi", "conditional_rke", "vendi", "rke")
"""Scores that a mixture can maximise."""

_TOGETHER = (
    "`quality` and `min_quality` must be given together, or neither; outputs that have a quality "
    "need `min_quality` alone."
)
_LEVEL = 0.95  # default level of the interval
_EXCHANGES = 99  # default number of exchanges at order 1, of which few are needed


def mixture(
    models: object,
    *,
    by: str = "conditional_vendi",
    per_group: Groups = None,
    quality: object = None,
    min_quality: float | None = None,
    prompt: str | None = None,
    output: str | None = None,
    model: str | None = None,
    **options: "Unpack[EvaluationOptions]",
) -> Mixture:
    """The weights over models that maximise the score of their mixture on the same prompts.

    Each output of the mixture comes from model m with probability `weights[m]`. Equal models share
    their weight equally, and a model whose outputs others cover gets none.

    Models are matched as in `compare`. At order 2 one pass over the kernel values of all N outputs
    gives the inner products of the models, O(N^2 d), and the rest takes milliseconds. At order 1
    each step is a spectrum with eigenvectors of all N outputs, O(N^3) time and 24 N^2 bytes. Above
    1,000 outputs a cheap guide chooses the steps, of which three usually suffice; the weights are
    certified by the exact entropy whatever the guide. Prompts compared as ids cost the sum over
    prompts, and kernels with few features (`Cosine`, `Polynomial`) a spectrum of that size. More
    than 15,000 distinct outputs that are connected are refused.

    More models also mean more outputs, and the score of a sample grows with their number. `chance`
    is the gain that the same weights have if outputs to the same prompt are exchanged between the
    models at random, so that all of them are one model.

    Parameters
    ----------
    models : Samples, path, table, or mapping of name to any of these
        As in `compare`.
    by : str, optional
        The score to maximise: conditional_vendi, conditional_rke, vendi or rke.
    per_group : "prompt", mapping or callable, optional
        Also the weights for each group of prompts: for each prompt ("prompt"), or for the groups
        that a mapping or a function gives to the text or the id of a prompt.
    quality : mapping of model to float, or as in `evaluate`, optional
        Quality of each model, the higher the better; with `min_quality`. A column, a function or
        numbers for the outputs give the mean over those of a model that are compared.
    min_quality : float, optional
        Least mean quality of the mixture: the best mixture among those of at least that quality.
    prompt, output, model : str, optional
        Columns of the tables or files, recognised by their names if not given.
    num_permutations : int, optional
        The most random exchanges for `chance` at order 1; default 99, of which some five are
        used; 0 for no `chance`. Above 3,000 connected outputs their entropies are those of the
        `estimator`, by default precise to 0.1 %.
    interval : float, optional
        Level of the interval of the gain, by a jackknife over prompts whatever the `unit`; default
        0.95. At order 2 the weights are chosen again without each prompt. At order 1 they are held:
        near the best weights the score does not depend on them to first order.
    **options
        Keywords of `evaluate`, without a truncation; `order` must be 1 or 2.

    Returns
    -------
    Mixture

    Raises
    ------
    ArgumentError
        If the order is another one, there is a truncation, no mixture has that quality, or order 1
        has too many outputs for exact spectra or for the `memory` budget.
    DataError
        If there are fewer than two models, or no prompt that all have.

    Examples
    --------
    One model gives the answers 0 and 1, the other always the answer 2. Weights of two thirds and
    one third make the three answers equally frequent:

    >>> import numpy as np, divprism as dp
    >>> t = np.repeat(np.arange(6), 2)
    >>> two = dp.Samples(np.eye(3)[np.tile([0, 1], 6)], t)
    >>> one = dp.Samples(np.eye(3)[np.tile([2, 2], 6)], t)
    >>> best = dp.mixture({"two": two, "one": one}, by="conditional_rke", kernel_x=dp.Cosine())
    >>> {name: round(weight, 6) for name, weight in best.weights.items()}
    {'two': 0.666667, 'one': 0.333333}
    >>> round(best.score, 6), best.best, round(best.gain, 6)
    (3.0, 'two', 1.5)
    """
    settings, resources = read_options(options, EvaluationOptions, "mixture", rates=True)
    settings = _checked_settings(by, settings)
    settings = with_quality_model(settings, quality)
    if min_quality is None:
        # Before anything is asked, which may cost money.
        if isinstance(quality, QualityModel):
            raise ArgumentError(_TOGETHER)
        settings = replace(settings, quality_from=None)
    else:
        min_quality = finite_number(min_quality, "min_quality", "finite")
    if per_group is not None:
        _group_names(per_group)
    columns = Fields(output, prompt, model, suffix="", quality=column_of_quality(quality))
    of_outputs = None if isinstance(quality, Mapping) else quality
    kept = matched_models(models, settings, resources, columns, of_outputs)
    settings = replace(
        kept.settings,
        num_permutations=_or_default(kept.settings.num_permutations, _EXCHANGES),
        interval=kept.settings.interval or _LEVEL,
    )
    is_conditional = "joint" in score_spec(by).terms
    states = ModelStates.of(kept, settings, resources, conditional=is_conditional)
    by_model = _quality_by_model(quality, min_quality, kept)
    corners, values = _corners(states.names, by_model, min_quality)
    groups = _groups_of(states, per_group)
    if settings.order == 1:
        refuse_large(states, by)
    with blas_for(states.rows.size):
        solved = solved_mixture(states, settings, corners, errors=True)
        by_group = []
        for name, prompts in groups.items():
            part = solved_mixture(states.select(prompts), settings, corners, errors=False)
            by_group.append(_of_group(name, prompts.size, states.names, part))
    plain = vars(solved) | {
        "weights": _named(states.names, solved.weights),
        "alone": _named(states.names, solved.alone),
        "best": states.names[solved.best],
    }
    rule, resolved = kept.settings.bandwidth_rule, states.problem.settings
    return Mixture(
        **plain,
        by=by,
        per_group=tuple(by_group),
        quality=None if values is None else float(values @ solved.weights),
        num_prompts=states.counts.size,
        num_outputs=states.num_outputs,
        settings=replace(resolved, bandwidth_rule=rule, interval=settings.interval, unit="prompt"),
        notes=kept.notes,
        warnings=(*kept.warnings, *states.problem.warnings, *_too_few(states)),
    )


def _named(names: tuple[str, ...], values: np.ndarray) -> dict[str, float]:
    return dict(zip(names, values.tolist(), strict=True))


def _of_group(name: str, size: int, names: tuple[str, ...], solved: SolvedMixture) -> GroupMixture:
    return GroupMixture(
        group=name,
        num_prompts=size,
        weights=_named(names, solved.weights),
        score=solved.score,
        best=names[solved.best],
        gain=solved.gain,
        chance=solved.chance,
    )


def _or_default(value: int | None, default: int) -> int:
    if value is None:
        return default
    return value


def _checked_settings(by: str, settings: Settings) -> Settings:
    """The settings at the order of the score, or an ArgumentError."""
    if by not in MIXED:
        raise ArgumentError(f"`by` must be one of {', '.join(MIXED)}; got {by!r}.")
    refuse_truncation(settings, "mixture")
    # Scores with an order of their own have it whatever the settings say.
    settings = replace(settings, order=score_spec(by).order_under(settings.order))
    if settings.order not in (1, 2):
        raise ArgumentError(
            f"`order` must be 1 or 2 for a mixture, where the best weights can be certified; got "
            f"{settings.order:g}."
        )
    return settings


def _too_few(states: ModelStates) -> tuple[Notice, ...]:
    if states.counts.size >= MIN_PROMPTS:
        return ()
    text = (
        f"the gain has no interval: that takes at least {MIN_PROMPTS} prompts, and the models have "
        f"{states.counts.size} in common."
    )
    return (Notice("too-few-for-interval", text),)


def _quality_by_model(
    quality: object, least: float | None, kept: MatchedModels
) -> Mapping[Any, float] | None:
    """The quality of each model, as it was given or as the mean over its outputs; None without."""
    if isinstance(quality, Mapping):
        return quality
    # Samples may hold a quality that nobody asks for.
    if quality is None and least is None:
        return None
    means = {}
    for name, part in kept.given.items():
        if part.quality is not None:
            means[name] = float(part.quality.mean())
    return means or None


def _corners(
    names: tuple[str, ...], quality: Mapping[Any, float] | None, least: float | None
) -> tuple[np.ndarray, np.ndarray | None]:
    """The corners of the weights that are allowed, as rows, and the quality of each model."""
    if (quality is None) != (least is None):
        raise ArgumentError(_TOGETHER)
    if quality is None or least is None:
        return np.eye(len(names)), None
    # Names of models may be numbers, such as checkpoints.
    quality = {str(name): value for name, value in quality.items()}
    missing = [name for name in names if name not in quality]
    if missing:
        given = ", ".join(map(repr, quality)) or "no models"
        raise ArgumentError(
            f"`quality` must have a number for each model; {missing[0]!r} has none; it has numbers "
            f"for {given}."
        )
    values = np.array([finite_number(quality[name], "quality", "finite") for name in names])
    if least > values.max():
        raise ArgumentError(
            f"`min_quality` must be at most {values.max():g}, the quality of the best model; got "
            f"{least:g}."
        )
    return allowed_mixtures(values, least), values


def _groups_of(states: ModelStates, per_group: Groups) -> dict[str, np.ndarray]:
    """The prompts of each group, by its name."""
    if per_group is None:
        return {}
    name_of = _group_names(per_group)
    names = []
    for label in states.labels:
        known = [label[key] for key in ("text", "id", "file", "where") if label.get(key)]
        names.append(name_of(str(next(iter(known), f"row {label['row']}"))))
    numbers = np.array(names, dtype=object)
    return {name: np.flatnonzero(numbers == name) for name in sorted(set(names))}


def _group_names(per_group: Groups) -> Callable[[str], str]:
    """A function of the text or the id of a prompt that returns the name of its group."""
    if isinstance(per_group, Mapping):
        groups = {str(key): str(value) for key, value in per_group.items()}

        def look_up(text: str) -> str:
            if text not in groups:
                raise ArgumentError(
                    f"`per_group` must have a group for each prompt; {shown(text)} has none."
                )
            return groups[text]

        return look_up
    if callable(per_group):
        function = per_group
        return lambda text: str(function(text))
    if per_group == "prompt":
        return str
    raise ArgumentError(
        f'`per_group` must be "prompt", a mapping or a function; got {per_group!r}.'
    )
