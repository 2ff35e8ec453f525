"""A part of the pairs of a problem that is chosen by their content, for analyses that are costly.

Neither a seed nor the order of rows changes the choice.
"""

from dataclasses import replace

import numpy as np

from divprism.analysis.content_order import prompts_of, side_hashes
from divprism.core.arrays import to_numpy
from divprism.core.operators import HadamardOperator, KernelOperator
from divprism.data.samples import Samples
from divprism.scores.problem import Problem

__all__ = ["choose_pairs", "content_sample", "most_outputs"]

# A prompt keeps this number of outputs or more, so that what is diverse inside a prompt stays so.
_OUTPUTS = 25


def content_sample(
    problem: Problem, samples: Samples, max_pairs: int, *, weights: object = None
) -> Problem:
    """The problem with at most `max_pairs` of its pairs, chosen by the content of the samples.

    `samples` and `weights` are the data that the problem was posed with. Whole prompts are chosen,
    those with the smallest hashes, because pairs chosen one by one would hardly have a prompt in
    common. So models on the same prompts get the same ones. Of prompts with many outputs, those
    with the smallest hashes stand for all of them, with their weight. O(n d).
    """
    if problem.weights.size <= max_pairs:
        return problem
    rows = np.arange(problem.n)
    if weights is not None:
        # Posing the problem dropped the pairs of weight zero.
        rows = np.flatnonzero(to_numpy(weights))
    if problem.t is None:
        prompts, of_prompts = np.arange(rows.size), side_hashes(samples.outputs, problem.x, rows)
    else:
        prompts, of_prompts = problem.t.index, side_hashes(prompts_of(samples), problem.t, rows)
    of_outputs = of_prompts
    if np.bincount(prompts).max() > most_outputs(prompts, max_pairs):
        # Only needed where outputs of a prompt are left out.
        of_outputs = side_hashes(samples.outputs, problem.x, rows)
    pairs = choose_pairs(prompts, of_prompts, of_outputs, max_pairs)
    # The outputs that are kept of a prompt take over the weight of all of them.
    before = np.bincount(prompts, weights=problem.weights)
    after = np.bincount(prompts[pairs], problem.weights[pairs], before.size)
    grown = problem.weights[pairs] * (before / np.maximum(after, 1e-300))[prompts[pairs]]
    return _restricted(problem, pairs, grown / grown.sum())


def most_outputs(prompts: np.ndarray, max_pairs: int) -> int:
    """The number of outputs that a prompt keeps at most."""
    return min(max_pairs, max(_OUTPUTS, max_pairs // np.unique(prompts).size))


def choose_pairs(
    prompts: np.ndarray, of_prompts: np.ndarray, of_outputs: np.ndarray, max_pairs: int
) -> np.ndarray:
    """Pairs of the prompts with the smallest hashes, as many as fit, in the order of rows.

    `prompts` numbers the prompt of each pair; the other two are hashes of the prompt and of the
    output of each pair. Of each prompt the outputs with the smallest hashes (`most_outputs`).
    """
    largest = most_outputs(prompts, max_pairs)
    counts = np.bincount(prompts)
    by_prompt = np.lexsort((of_outputs, prompts))
    rank = np.empty(prompts.size, int)
    rank[by_prompt] = np.arange(prompts.size) - np.repeat(np.cumsum(counts) - counts, counts)
    hashes = np.zeros(counts.size, np.uint64)
    hashes[prompts] = of_prompts
    order = np.argsort(hashes, kind="stable")
    fits = np.cumsum(np.minimum(counts, largest)[order]) <= max_pairs
    chosen = np.zeros(counts.size, bool)
    chosen[order[fits]] = True
    return np.flatnonzero(chosen[prompts] & (rank < largest))


def _restricted(problem: Problem, pairs: np.ndarray, weights: np.ndarray) -> Problem:
    """The problem with some of its pairs, under other weights, in double precision."""
    x = _restrict(problem.x, pairs, weights)
    t, joint, within_labels = None, None, None
    if problem.t is not None:
        t = _restrict(problem.t, pairs, weights)
        joint = HadamardOperator.of(x, t, weights)
    if problem.within_labels is not None:
        labels = _restrict(problem.within_labels.right, pairs, weights)
        within_labels = HadamardOperator.of(x, labels, weights)
    return replace(
        problem,
        x=x,
        t=t,
        joint=joint,
        within_labels=within_labels,
        n=pairs.size,
        weights=weights,
    )


def _restrict(operator: KernelOperator, pairs: np.ndarray, weights: np.ndarray) -> KernelOperator:
    points, index = np.unique(operator.index[pairs], return_inverse=True)
    masses = np.bincount(index, weights=weights)
    return replace(operator.sample(points, double=True), masses=masses, index=index)
