"""Several models on the same prompts as states: what overlap and mixtures are computed from.

The state of a model is its joint operator rho = K_X o K_T / n. The state of several models is the
mean of theirs, because all have the same prompts with the same number of outputs each.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from divprism.analysis.content_order import ContentOrder, side_hashes
from divprism.analysis.groups.result import describe_row
from divprism.analysis.matched_models import MatchedModels
from divprism.core.arrays import plain_mode
from divprism.core.kernels import Categorical
from divprism.core.operators import HadamardOperator, KernelOperator, Operator
from divprism.data.items import Text
from divprism.data.samples import Samples, Side
from divprism.engines import Resources
from divprism.errors import ArgumentError
from divprism.estimators import Question
from divprism.scores.problem import Problem, check_factors, pose
from divprism.scores.settings import Settings

__all__ = ["ModelStates", "mean_power_entropy", "refuse_truncation"]


def refuse_truncation(settings: Settings, function: str) -> None:
    """Refuse settings with a truncation, before anything is computed."""
    if settings.truncation is None and not settings.auto_truncation:
        return
    given = settings.truncation or "auto"
    raise ArgumentError(
        f"{function} takes whole spectra, because truncated ones of several models do not add up; "
        f"got truncation {given}. Leave out `truncation`, and a `preset` that sets one."
    )


def mean_power_entropy(entropies: Sequence[float], order: float) -> tuple[float, np.ndarray]:
    """H(X, T, M) - log m of models with these entropies H(X, T), and its derivatives in them.

    With models compared as ids the joint matrix of outputs, prompts and models has a block
    rho_m / m for each model, so its powers are the mean of theirs over m^order. At order 1 that is
    the mean of the entropies.

    >>> mean_power_entropy([1.0, 3.0], 1.0)
    (2.0, array([0.5, 0.5]))
    """
    values = np.asarray(entropies)
    if order == 1:
        return float(values.mean()), np.full(values.size, 1 / values.size)
    if math.isinf(order):
        # The largest eigenvalue of all blocks is that of one of them.
        return float(values.min()), (values == values.min()) / np.sum(values == values.min())
    # Relative to the largest power, which may overflow.
    exponents = (1 - order) * values
    powers = np.exp(exponents - exponents.max())
    mean = (math.log(float(powers.mean())) + float(exponents.max())) / (1 - order)
    return mean, powers / powers.sum()


@dataclass(frozen=True, eq=False)
class ModelStates:
    """The states of models on the same prompts.

    Attributes
    ----------
    names : tuple of str
        The models.
    problem : Problem
        The outputs of all models, posed together.
    rows : ndarray of int, shape (m, n)
        The row of each output in the problem. A column has the same prompt for all models; columns
        are sorted by prompt, then outputs by their content. So what is computed from columns
        depends neither on the order of rows nor on that of models.
    contents : ndarray of int, shape (m, n)
        The rank of each output by its content; equal outputs share a rank.
    prompts : ndarray of int, shape (n,)
        The prompt of each column, numbered from zero in the order of their content.
    labels : tuple of dict
        For each prompt the text, the file or the id that it stands for, and its first row in the
        source of the first model.
    prompt_state : KernelOperator
        K_T / n, which all models share. Without conditioning on prompts, all of them as one point.
    """

    names: tuple[str, ...]
    problem: Problem
    rows: np.ndarray
    contents: np.ndarray
    prompts: np.ndarray
    labels: tuple[dict[str, Any], ...]
    prompt_state: KernelOperator

    @classmethod
    def of(
        cls,
        kept: MatchedModels,
        settings: Settings,
        resources: Resources,
        *,
        conditional: bool = True,
    ) -> "ModelStates":
        """The states of matched models; O(N d) for N outputs of all models together.

        If not `conditional`, the states are those of the outputs alone, K_X / n.
        """
        pooled = kept.pooled()
        problem = pose(pooled.outputs, pooled.prompts, settings=settings, resources=resources)
        assert problem.t is not None
        hashes = side_hashes(pooled.outputs, problem.x, np.arange(problem.n))
        by_content = np.unique(hashes, return_inverse=True)[1]
        ranks = ContentOrder.of(problem, pooled).prompts
        assert ranks is not None
        # `pooled` holds one model after the other, each in the same order of prompts.
        first = next(iter(kept.given.values()))
        of_row = _exact_prompts(ranks[problem.t.index], first.prompts, len(kept.embedded))
        rows = np.arange(problem.n).reshape(len(kept.embedded), -1)
        rows = np.stack([own[np.lexsort((by_content[own], of_row[own]))] for own in rows])
        prompts = of_row[rows[0]]
        prompt_state = problem.t
        if not conditional:
            # One id for all: K_X o 1 = K_X.
            same = np.zeros((problem.n, 1))
            weights, double = problem.weights, np.float64
            prompt_state = KernelOperator.from_data(
                Categorical(), same, weights, dtype=double, name="t"
            )
        return cls(
            names=tuple(kept.embedded),
            problem=problem,
            rows=rows,
            contents=by_content[rows],
            prompts=prompts,
            labels=_labels(first, rows[0], prompts),
            prompt_state=prompt_state,
        )

    def select(self, prompts: np.ndarray) -> "ModelStates":
        """The states on some of the prompts, which are numbered anew."""
        columns = np.isin(self.prompts, prompts)
        kept = np.unique(self.prompts[columns], return_inverse=True)
        return replace(
            self,
            rows=self.rows[:, columns],
            contents=self.contents[:, columns],
            prompts=kept[1],
            labels=tuple(self.labels[prompt] for prompt in kept[0]),
        )

    @property
    def num_models(self) -> int:
        """Number of models, m."""
        return self.rows.shape[0]

    @property
    def num_outputs(self) -> int:
        """Number of outputs of each model, n."""
        return self.rows.shape[1]

    @cached_property
    def starts(self) -> np.ndarray:
        """The first column of each prompt."""
        return np.flatnonzero(np.diff(self.prompts, prepend=-1))

    @cached_property
    def counts(self) -> np.ndarray:
        """The number of outputs that each model has for each prompt."""
        return np.bincount(self.prompts)

    def state(self, rows: np.ndarray) -> HadamardOperator:
        """The joint operator of some rows of the problem, all of equal weight.

        Equal pairs are merged, and only the points that occur are kept.
        """
        return self.weighted_state(rows, np.full(rows.size, 1 / rows.size))

    def weighted_state(self, rows: np.ndarray, weights: np.ndarray) -> HadamardOperator:
        """The joint operator of some rows of the problem with given weights, as in `state`."""
        x, t = self.problem.x, self.prompt_state
        pairs, index = np.unique(self.codes(rows), return_inverse=True)
        masses = np.bincount(index, weights=np.ravel(weights))
        points_x, left = np.unique(pairs // t.size, return_inverse=True)
        points_t, right = np.unique(pairs % t.size, return_inverse=True)
        return HadamardOperator(
            x.subset(points_x, np.bincount(left, weights=masses)),
            t.subset(points_t, np.bincount(right, weights=masses)),
            masses,
            left,
            right,
        )

    def state_of_prompts(self) -> KernelOperator:
        """K_T / n on the prompts of these states: after `select`, some of all."""
        t = self.prompt_state
        points = t.index[self.rows[0]]
        masses = np.bincount(points, minlength=t.size) / points.size
        present = np.flatnonzero(masses)
        return t.subset(present, masses[present])

    def codes(self, rows: np.ndarray) -> np.ndarray:
        """One integer for each pair of an output and a prompt, equal where both are."""
        # The remainder by t.size is the prompt, the quotient the output: `state` takes them apart.
        flat, t = np.ravel(rows), self.prompt_state
        return np.asarray(self.problem.x.index[flat] * t.size + t.index[flat])

    def entropy(self, operator: Operator, order: float) -> tuple[float, float]:
        """The entropy of an operator, and the error of the estimator."""
        settings = self.problem.settings
        question = Question((order,), None, settings.rng)
        with plain_mode():
            check_factors([operator], [])
            [[entropy]] = settings.estimator.entropies([operator], question, self.problem.resources)
        return entropy.estimate.value, entropy.estimate.standard_error


def _exact_prompts(ranks: np.ndarray, prompts: Side | None, num_models: int) -> np.ndarray:
    """A number for the prompt of each row, in the order of `ranks`, which are those of its vector.

    Texts that share a vector are different prompts, as they are where models are matched.
    """
    if not (isinstance(prompts, tuple) and all(isinstance(each, Text) for each in prompts)):
        return ranks
    texts = np.array([each.label for each in prompts], dtype=object)
    codes = np.tile(np.unique(texts, return_inverse=True)[1], num_models)
    return np.unique(ranks * texts.size + codes, return_inverse=True)[1]


def _labels(
    given: Samples, positions: np.ndarray, numbers: np.ndarray
) -> tuple[dict[str, Any], ...]:
    """What each prompt stands for, from the outputs of a model sorted by prompt."""
    prompts = given.prompts
    assert prompts is not None

    def name_of(position: int) -> str:
        return str(prompts[position].label)

    labels = []
    for members in np.split(positions, np.flatnonzero(np.diff(numbers)) + 1):
        position = row = int(members.min())
        if isinstance(prompts, tuple):
            # Files with the same content are one prompt, whatever the order of rows.
            position = row = min(sorted(members.tolist()), key=name_of)
        if given.rows is not None:
            row = given.rows[position]  # as the user counts, before models were matched
        labels.append(describe_row(prompts, position) | {"row": row})
    return tuple(labels)
