"""Overlap of models: whether two models are diverse in the same way.

Two models may be equally diverse because they produce the same outputs, or although they share
none. With the model as one more variable, compared as ids, the Information between output and model
given the prompt is

    I(X; M | T) = [H(XT) - H(T)] - [H(XTM) - H(TM)].

Models are matched, so H(TM) = H(T) + log m, and what remains is the entropy of the pooled outputs
less that of the models (`mean_power_entropy`). At order 1 it is the entropy of the mean state less
the mean entropy of the states, a quantum Jensen-Shannon divergence; at order 2 it follows from
inner products of states (`information_of_squares`).

It lies between 0 and log m. With A_m = rho_m / m, the mean of tr rho^q is convex in rho for q > 1,
so tr (sum A)^q is at most its mean over models; and powers of positive matrices are superadditive
under the trace, tr (sum A)^q >= sum tr A^q. For q < 1 both turn around, as does the sign of
1 / (1 - q); order 1 is the limit.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np

from divprism.analysis.homogeneity import homogeneity_of
from divprism.analysis.intervals import quantile
from divprism.analysis.matched_models import MatchedModels, matched_models
from divprism.analysis.model_squares import exchanged_members, model_squares, random_deals
from divprism.analysis.model_states import ModelStates, mean_power_entropy, refuse_truncation
from divprism.analysis.overlap_errors import MIN_PROMPTS, Contributions
from divprism.analysis.overlap_result import ModelOverlap, Overlap
from divprism.data.readers.fields import Fields
from divprism.engines import Resources, blas_for
from divprism.errors import Notice
from divprism.scores.settings import EvaluationOptions, Settings, read_options

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = ["overlap", "overlap_of"]

_LEVEL = 0.95  # default level of the intervals
_EXCHANGES = 99  # default number of exchanges: the smallest p-value is 0.01

# Spectra of exchanges are added, this many at a time, until their mean has a standard error of
# `_PRECISION` nats.
_BATCH = 5
_PRECISION = 0.002
_ROUNDING = 1e-9  # relative difference of sums that are equal


def overlap(
    models: object,
    *,
    prompt: str | None = None,
    output: str | None = None,
    model: str | None = None,
    **options: "Unpack[EvaluationOptions]",
) -> Overlap:
    """How much models share: as how many of them do two, or all, count?

    Information between output and model given the prompt, I(X; M | T): 0 where models are
    interchangeable, log m where m models have nothing in common. exp of it is how many times more
    diverse per kind of prompt the union of the models is than the models are (at order 1 their
    geometric mean). At other orders see the top of `analysis/overlap.py`.

    Samples of one model have an Information above 0, which falls with the number of outputs per
    prompt. So outputs to the same prompt are exchanged between the models at random: `chance` is
    the mean over exchanges, `excess` what Information has beyond it, and the p-value compares
    Information of order 2.

    Models are matched as in `compare`: the same prompts, the same number n of outputs each. At
    order 2 the cost is that of the N^2 kernel values between all N = m n outputs, once, and of
    N^2 operations for each exchange. At other orders there are also spectra: one of n outputs for
    each model, one of 2n for each pair, one of N for all, and of exchanges at least five times two
    of n for each pair; up to 3,000 outputs these are exact, and beyond they take the estimator of
    the settings. An `engine` computes the tiles of large spectra; the rest runs in this process.

    Parameters
    ----------
    models : Samples, path, table, or mapping of name to any of these
        As in `compare`.
    prompt, output, model : str, optional
        Columns of the tables or files, recognised by their names if not given.
    num_permutations : int, optional
        Number of random exchanges; default 99, and 0 for none. The exchange of all of more than two
        models takes at most 19 above 5,000 outputs.
    interval : float, optional
        Level of the intervals, by a jackknife over prompts whatever the `unit`; default 0.95.
    **options
        Keywords of `evaluate`, without a truncation.

    Returns
    -------
    Overlap

    Raises
    ------
    ArgumentError
        If there is a truncation, or a precomputed kernel, whose rows cannot be matched.
    DataError
        If there are fewer than two models, or no prompt that all have.

    Examples
    --------
    Two models give the same two answers to each prompt, a third one gives two others:

    >>> import numpy as np, divprism as dp
    >>> t = np.repeat(np.arange(6), 2)
    >>> ours, theirs = np.eye(24)[:12], np.eye(24)[12:]
    >>> models = {"a": dp.Samples(ours, t), "b": dp.Samples(ours, t), "c": dp.Samples(theirs, t)}
    >>> shared = dp.overlap(models, kernel_x=dp.Cosine())
    >>> [round(shared.pair(*names).factor, 9) for names in (("a", "b"), ("a", "c"))]
    [1.0, 2.0]

    All three count as fewer than two, because two of them are the same:

    >>> round(shared.joint.factor, 3)
    1.89
    """
    settings, resources = read_options(options, EvaluationOptions, "overlap")
    refuse_truncation(settings, "overlap")
    kept = matched_models(models, settings, resources, Fields(output, prompt, model, suffix=""))
    return overlap_of(kept, resources)


def overlap_of(kept: MatchedModels, resources: Resources) -> Overlap:
    """The overlap of matched models, under their settings."""
    settings = kept.settings
    refuse_truncation(settings, "overlap")
    if settings.num_permutations is None:
        settings = replace(settings, num_permutations=_EXCHANGES)
    if settings.interval is None:
        settings = replace(settings, interval=_LEVEL)
    states = ModelStates.of(kept, settings, resources)
    with blas_for(2 * states.num_outputs):
        measure = _Measure(states, settings)
        count = states.num_models
        pairs = [measure.of(members) for members in combinations(range(count), 2)]
        joint = pairs[0]
        if count > 2:
            joint = measure.of(range(count))
        alone = measure.alone()
        homogeneity = homogeneity_of(kept, states)
    # The sort is stable: pairs of equal distance keep the order of their models.
    pairs.sort(key=lambda each: each.distance)
    return Overlap(
        models=states.names,
        pairs=tuple(pairs),
        joint=joint,
        alone=alone,
        homogeneity=homogeneity,
        num_prompts=states.counts.size,
        num_outputs=states.num_outputs,
        num_exchanges=measure.num_exchanges,
        settings=replace(
            states.problem.settings,
            bandwidth_rule=kept.settings.bandwidth_rule,
            interval=settings.interval,
            unit="prompt",
        ),
        notes=kept.notes,
        warnings=(*kept.warnings, *states.problem.warnings, *_too_few(states)),
        squares=measure.squares,
        labels=states.labels,
    )


def _too_few(states: ModelStates) -> tuple[Notice, ...]:
    if states.counts.size >= MIN_PROMPTS:
        return ()
    text = (
        f"overlap has no intervals: they take at least {MIN_PROMPTS} prompts, and the models have "
        f"{states.counts.size} in common."
    )
    return (Notice("too-few-for-interval", text),)


class _Measure:
    """Information of sets of models; what several sets need is computed once."""

    def __init__(self, states: ModelStates, settings: Settings) -> None:
        self.states = states
        self.order = settings.order
        assert settings.interval is not None
        assert settings.num_permutations is not None
        self.level = settings.interval
        self.num_exchanges = settings.num_permutations
        self.squares = model_squares(states, self.num_exchanges)
        self.contributions = Contributions(states, self.squares, self.order)

    @cached_property
    def _prompts(self) -> tuple[float, float]:
        return self.states.entropy(self.states.prompt_state, self.order)

    @cached_property
    def _own(self) -> list[tuple[float, float]]:
        """The entropy of each model and its error."""
        if self.order == 2:
            return [(-math.log(square), 0.0) for square in np.diagonal(self.squares.gram)]
        return [self._entropy_of(rows) for rows in self.states.rows]

    def _entropy_of(self, rows: np.ndarray) -> tuple[float, float]:
        return self.states.entropy(self.states.state(rows), self.order)

    def alone(self) -> dict[str, float]:
        """The conditional score of each model."""
        scores = {}
        for name, (entropy, _) in zip(self.states.names, self._own, strict=True):
            scores[name] = math.exp(entropy - self._prompts[0])
        return scores

    def of(self, members: Sequence[int]) -> ModelOverlap:
        """The overlap of some models."""
        members = tuple(members)
        own = [self._own[member] for member in members]
        entropy, slopes = mean_power_entropy([value for value, _ in own], self.order)
        pooled, error = self._pooled(members)
        highest = math.log(len(members))
        # Rounding, or the error of an estimator, may leave the limits.
        information = min(max(pooled - entropy, 0.0), highest)
        of_own = [slope * each for slope, (_, each) in zip(slopes, own, strict=True)]
        low, high, spread = self._interval(members, information, math.hypot(error, *of_own))
        chance, chance_error = self._chance(members, pooled)
        return ModelOverlap(
            models=tuple(self.states.names[member] for member in members),
            information=information,
            union=math.exp(pooled - self._prompts[0]),
            gain=math.exp(pooled - max(value for value, _ in own)),
            low=low,
            high=high,
            standard_error=spread,
            chance=chance,
            chance_error=chance_error,
            p_value=self._p_value(members),
        )

    def _pooled(self, members: tuple[int, ...]) -> tuple[float, float]:
        """The entropy of the outputs of some models together, and its error."""
        if self.order == 2:
            part = self.squares.gram[np.ix_(members, members)]
            return -math.log(float(part.mean())), 0.0
        return self._entropy_of(self.states.rows[list(members)])

    def _interval(
        self, members: tuple[int, ...], information: float, of_estimator: float
    ) -> tuple[float | None, float | None, float | None]:
        if self.states.counts.size < MIN_PROMPTS:
            return None, None, None
        parts = self.contributions.of(members)
        error = math.hypot(float(np.linalg.norm(parts)), of_estimator)
        reach = quantile(parts.size, self.level) * error
        low, high = max(0.0, information - reach), min(math.log(len(members)), information + reach)
        return low, high, error

    def _chance(self, members: tuple[int, ...], pooled: float) -> tuple[float | None, float]:
        """Mean Information under exchanges, and its standard error."""
        if not self.num_exchanges:
            return None, 0.0
        if self.order == 2:
            # The logarithm of the mean, which needs no exchange; the mean of the logarithms is
            # less by half the relative variance of the sum, which falls with the prompts.
            mean = self.squares.mean_exchange(members)
            total = self.squares.total[np.ix_(members, members)].sum()
            return max(0.0, math.log(len(members) * mean / float(total))), 0.0
        values: list[float] = []
        while len(values) < self.num_exchanges:
            start = len(values)
            dealt = self._dealt(members)[:, :, start : start + _BATCH]
            # An exchange moves no output out of the pool, so the pooled entropy stays.
            values += [pooled - each for each in self._exchanged(members, dealt)]
            if len(values) > 1 and np.std(values, ddof=1) <= _PRECISION * math.sqrt(len(values)):
                break
        error = 0.0
        if len(values) > 1:
            error = float(np.std(values, ddof=1)) / math.sqrt(len(values))
        return max(0.0, math.fsum(values) / len(values)), error

    def _dealt(self, members: tuple[int, ...]) -> np.ndarray:
        return exchanged_members(self.states, members, self._deals[len(members)])

    @cached_property
    def _deals(self) -> dict[int, np.ndarray]:
        counts = {2, self.states.num_models}
        return {count: random_deals(self.states, count, self.num_exchanges) for count in counts}

    def _exchanged(self, members: tuple[int, ...], dealt: np.ndarray) -> list[float]:
        """The mean entropy of the models under some exchanges."""
        rows = self.states.rows[list(members)]
        means = []
        for exchange in range(dealt.shape[2]):
            entropies = []
            for model in range(len(members)):
                given = rows[dealt[:, :, exchange] == model]
                entropies.append(self._entropy_of(given)[0])
            means.append(mean_power_entropy(entropies, self.order)[0])
        return means

    def _p_value(self, members: tuple[int, ...]) -> float | None:
        exchanges = self.squares.exchanges_of(members)
        if not exchanges.size:
            return None
        # The pooled outputs are the same under every exchange, so Information of order 2 rises with
        # the sum inside the models. Equal up to rounding counts as at least.
        own = float(np.trace(self.squares.total[np.ix_(members, members)]))
        at_least = int(np.sum(exchanges >= own * (1 - _ROUNDING)))
        return (1 + at_least) / (1 + exchanges.size)
