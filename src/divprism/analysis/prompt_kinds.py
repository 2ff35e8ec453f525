"""How many kinds of prompt there can be, and a warning where most prompts share their kind."""

import math
from collections.abc import Mapping

import numpy as np

from divprism.core.arrays import single_hashes, smallest, to_numpy
from divprism.core.entropy import renyi_entropy
from divprism.core.kernels import Categorical, Cosine, Gaussian
from divprism.core.near_rows import equal_up_to, typical_distance
from divprism.core.spectrum import Spectrum
from divprism.data.wording import plain_number
from divprism.errors import Notice
from divprism.scores.problem import Problem
from divprism.scores.score import Score

__all__ = ["kinds_as_ids", "merged_prompts", "nearly_equal_prompts", "outputs_as_ids"]

_FEW = 0.5  # kinds for each prompt; with fewer, most prompts share their kind
# Times the outputs of a prompt. The default rule lets other prompts have a tenth of the weight, so
# that outputs which are all different exceed their number by a ninth.
_CLEARLY_MORE = 1.25
# Distance up to which vectors may differ by rounding, as a share of a typical distance; vectors
# with fewer entries are as close as that by chance.
_ROUNDING = 1e-3
_FEWEST_ENTRIES = 3
# Prompts that are looked at; of more, some that are chosen by their content.
_MOST_ROWS = 2000


def kinds_as_ids(problem: Problem) -> float:
    """The number of kinds of prompt if prompts were compared as ids; their number or fewer.

    It is fewer where prompts have unequal numbers of outputs, by which they count, and where a
    truncation keeps fewer eigenvalues. What a kernel sees less than that is due to similar prompts.
    """
    assert problem.t is not None
    # Compared as ids, K_T / n is diagonal: its eigenvalues are the shares of the prompts.
    return _effective_number(to_numpy(problem.t.masses), problem)


def outputs_as_ids(problem: Problem) -> float:
    """The number of distinct outputs if no two were alike: n, or fewer with weights.

    Divided by the number of kinds of prompt, the highest conditional score.
    """
    # K_X = I makes K_X o K_T / n diagonal: its eigenvalues are the weights of the outputs.
    return _effective_number(problem.weights, problem)


def _effective_number(shares: np.ndarray, problem: Problem) -> float:
    """The exponential of the entropy of some shares, as under the settings of a problem."""
    spectrum = Spectrum.from_eigenvalues(shares, noise=0.0, method="exact")
    return math.exp(renyi_entropy(spectrum, problem.settings.order, problem.truncation))


def merged_prompts(problem: Problem, scores: Mapping[str, Score]) -> tuple[Notice, ...]:
    """A warning where conditional scores compare outputs of different prompts without need.

    Where prompts have several outputs each, these can be compared with each other. The warning is
    for kernels that see fewer kinds than half of the prompts, or under which there are clearly more
    distinct outputs per kind than a prompt has outputs.
    """
    # Truncation limits the number of kinds whatever the prompts are.
    if problem.t is None or problem.truncation is not None:
        return ()
    num_prompts = problem.t.size
    repeats = problem.n >= 2 * num_prompts and num_prompts > 1
    if not repeats or isinstance(problem.t.kernel, Categorical):
        return ()
    kinds, own = float(scores["prompt_vendi"]), float(scores["conditional_vendi"])
    as_ids = kinds_as_ids(problem)
    highest = outputs_as_ids(problem) / as_ids
    if kinds >= _FEW * as_ids and own <= _CLEARLY_MORE * highest:
        return ()
    # Then every prompt is the same, and that is reported already.
    if any(notice.code == "prompts-all-alike" for notice in scores["prompt_vendi"].warnings):
        return ()
    # The same words for all models on these prompts, so that they are printed once.
    text = (
        f"the {num_prompts:,} prompts count as {plain_number(kinds)} kinds, so conditional scores "
        "also compare outputs of different prompts, and can exceed "
        f"{plain_number(highest)}, the most distinct outputs that an exact prompt can have. If "
        "different prompts ask for different things, read per_prompt_vendi, lower the bandwidth of "
        "the prompts, or compare prompts as ids, with the categorical `kernel_t`."
    )
    return (Notice("prompts-merged", text),)


def nearly_equal_prompts(problem: Problem) -> tuple[Notice, ...]:
    """A warning where vectors of prompts may differ by rounding alone.

    Only equal vectors are one prompt, so that outputs of such prompts are not counted together.
    """
    if problem.t is None or problem.t.size < 2:
        return ()
    if not isinstance(problem.t.kernel, Gaussian | Cosine):
        return ()
    rows = to_numpy(problem.t.points.rows)
    if len(rows) > _MOST_ROWS:
        rows = rows[smallest(single_hashes(rows), _MOST_ROWS)]
    rows = rows.astype(float)
    tolerance = _ROUNDING * typical_distance(rows)
    if rows.shape[1] < _FEWEST_ENTRIES or tolerance == 0:
        return ()
    first = equal_up_to(rows, tolerance)
    count = int((np.bincount(first)[first] > 1).sum())
    if count == 0:
        return ()
    text = (
        f"{count:,} of {len(rows):,} distinct prompts are closer to another one than "
        f"{100 * _ROUNDING:g} % of a typical distance, and count as different prompts. If their "
        "vectors are of the same text, computed in different batches, take one vector for each "
        "text, or pass ids as prompts."
    )
    return (Notice("prompts-nearly-equal", text),)
