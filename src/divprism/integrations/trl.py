"""A reward for TRL that pays for completions which differ from the others of their prompt.

Nothing here imports TRL: any trainer that calls `reward(prompts, completions, **columns)` can use
it.
"""

import inspect
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from divprism.core.kernels import Gaussian, Kernel
from divprism.core.kernels.base import finite_number, positive_number
from divprism.core.validation import check_order
from divprism.data.items import Text
from divprism.embedders.base import Embedder
from divprism.embedders.embedding import EmbedderLike, resolve_embedder
from divprism.embedders.pipeline import embed_items
from divprism.errors import ArgumentError, DataError
from divprism.integrations._completion_groups import Batch, hash_table
from divprism.integrations._completions import completion_text, content_digest, is_blank
from divprism.integrations._kernels import given_kernel
from divprism.scores import registry

__all__ = ["DiversityReward"]

# About a third of the distance between unrelated texts under the default embedder, which is 1.4.
# Texts at a cosine of 0.875 have a kernel value of exp(-1/2).
_BANDWIDTH = 0.5

_Columns = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class DiversityReward:
    """What each completion adds to the distinct completions of its prompt, for GRPO of TRL.

    Completions of equal prompts are a group. With V the Vendi score of some completions, their
    effective number of distinct ones, the reward of completion i of the group G is

        weight * gain_i,    gain_i = V(G) - V(G without i), and at least -1,

    which is between -weight and weight. A completion unlike all others gains 1, the most there is.
    Copies gain less than one of them alone would, usually less than 0; if all are the same, each
    gains 0. Summed over the group with the gradient of its log-probability, the gain is an unbiased
    estimate of the gradient of the expected score (as long as none is below -1), because
    V(G without i) does not depend on i.

    With `quality` the reward is

        quality_i * (1 + weight * gain_i),

    between 0 and quality_i * (1 + weight), where completions count in V in proportion to their
    quality, and those of lower quality than i as much as i in its gain: no completion loses because
    others are worse, and one unlike all others never earns less than one of lower or equal quality.
    Worthless completions, of quality 0, earn nothing and do not count.

    Rewards depend on the completions of a group alone: neither on their order nor on a seed. An
    empty completion, of which nothing can be seen, earns the least there is, -weight or with
    `quality` 0, and does not count in its group. The only completion of a group has a gain of 0. A
    group of n costs O(n^4) at most, which is milliseconds for n = 16.

    Parameters
    ----------
    embedder : Embedder, callable or str, optional
        As `embedder_x` of `evaluate`, or its name; default: `WordLlama`, without a download.
    bandwidth : float, optional
        Of the Gaussian kernel, fixed for the whole run: one chosen on each batch would shrink
        together with the differences that it is to measure. Default: 0.5, for the default embedder:
        about a third of the distance between unrelated texts. Take the same share with another one.
    kernel : Kernel, optional
        In place of a bandwidth, such as `Cosine()`.
    order : float
        Order of the entropy.
    quality : callable, optional
        A reward function with the signature of TRL, which returns numbers of at least 0, best at
        most 1. None among them stands for a completion that it does not apply to; that one is
        ignored, and its reward is None.
    weight : float
        Positive; at most 1 with `quality`, so that no completion earns less than a worthless one.
    gather : bool
        Whether processes of torch.distributed exchange their completions, so that a group that is
        spread over several of them counts as one. All of them then have to call the reward.
    name : str
        TRL logs the reward as `rewards/NAME/mean`, and beside it `NAME/vendi`, the mean of V(G).

    Raises
    ------
    ArgumentError
        For settings that do not fit together.
    DataError
        For completions that are no texts, or rewards of `quality` that are negative or too few.

    Examples
    --------
    Two of four completions are the same:

    >>> from divprism import Cosine
    >>> from divprism.integrations.trl import DiversityReward
    >>> def unlike(texts):
    ...     return [[text == drink for drink in ("tea", "milk", "juice")] for text in texts]
    >>> reward = DiversityReward(embedder=unlike, kernel=Cosine())
    >>> [round(value, 2) for value in reward(["Drink?"] * 4, ["tea", "milk", "tea", "juice"])]
    [-0.17, 0.94, -0.17, 0.94]
    """

    embedder: EmbedderLike | str | None = None
    bandwidth: float | None = None
    kernel: Kernel | None = None
    order: float = 1.0
    quality: Callable[..., Sequence[float | None]] | None = None
    weight: float = 1.0
    gather: bool = True
    name: str = "diversity"

    def __post_init__(self) -> None:
        object.__setattr__(self, "kernel", _kernel(self.embedder, self.bandwidth, self.kernel))
        object.__setattr__(self, "embedder", _embedder(self.embedder))
        object.__setattr__(self, "order", check_order(self.order))
        object.__setattr__(self, "weight", positive_number(self.weight, "weight"))
        if self.quality is None:
            return
        call = getattr(self.quality, "__call__", None)  # noqa: B004 - of a callable object
        is_async = inspect.iscoroutinefunction(self.quality) or inspect.iscoroutinefunction(call)
        if call is None or is_async:
            raise ArgumentError(
                "`quality` must be a function that returns a list of rewards, not a coroutine; "
                f"got {self.quality!r}."
            )
        if self.weight > 1:
            raise ArgumentError(
                f"`weight` must be at most 1 with `quality`; got {self.weight:g}, and copies of a "
                "good completion could earn less than a worthless one."
            )

    @property
    def __name__(self) -> str:
        """The name under which trainers log the reward."""
        return self.name

    def __call__(
        self, prompts: Sequence[Any], completions: Sequence[Any], **columns: Any
    ) -> list[float | None]:
        """The reward of each completion, in the order given."""
        if len(prompts) != len(completions):
            raise DataError(
                "`prompts` and `completions` must have the same length; got "
                f"{len(prompts)} and {len(completions)}."
            )
        texts = [completion_text(each, index) for index, each in enumerate(completions)]
        qualities = self._qualities(prompts, completions, columns)
        batch = self._batch(prompts, texts, qualities)
        start = 0
        if self.gather:
            batch, start = batch.of_all_processes()
        own = range(start, start + len(texts))
        gains, scores = self._gains(batch, own)
        if scores and "log_metric" in columns:
            columns["log_metric"](f"{self.name}/vendi", math.fsum(scores) / len(scores))
        rewards = []
        for text, quality, gain in zip(texts, qualities, gains, strict=True):
            rewards.append(self._reward(text, quality, gain))
        return rewards

    def _reward(self, text: str, quality: float | None, gain: float) -> float | None:
        """The reward of one completion."""
        if quality is None:
            return None
        is_empty = is_blank(text)
        if self.quality is not None:
            if is_empty:
                return 0.0
            return quality * (1 + self.weight * gain)
        if is_empty:
            return -self.weight
        return self.weight * gain

    def _qualities(
        self, prompts: Sequence[Any], completions: Sequence[Any], columns: _Columns
    ) -> list[float | None]:
        """The quality of each completion: 1 for all without a function for it."""
        if self.quality is None:
            return [1.0] * len(completions)
        given = list(self.quality(prompts=prompts, completions=completions, **columns))
        if len(given) != len(completions):
            raise DataError(
                f"`quality` must return a reward for each of the {len(completions)} completions; "
                f"it returned {len(given)}."
            )
        qualities: list[float | None] = []
        for value in given:
            # NaN is what TRL itself makes of None.
            if value is None or value != value:
                qualities.append(None)
                continue
            number = finite_number(value, "quality", "a function that returns finite numbers")
            if number < 0:
                raise DataError(
                    f"`quality` must return numbers of at least 0; it returned {number:g}. "
                    "Shift or clip them: a negative number would pay for repetition."
                )
            qualities.append(number)
        return qualities

    def _batch(
        self, prompts: Sequence[Any], texts: list[str], qualities: list[float | None]
    ) -> Batch:
        """The completions of this process as tables; empty ones have no mass."""
        masses = np.zeros(len(texts))
        for index, (text, quality) in enumerate(zip(texts, qualities, strict=True)):
            if quality is not None and not is_blank(text):
                masses[index] = quality
        counting = [index for index, mass in enumerate(masses) if mass > 0]
        vectors = np.zeros((len(texts), 0))
        if counting:
            items = [Text(texts[index], f"completion {index}") for index in counting]
            assert isinstance(self.embedder, Embedder)
            rows = embed_items(items, self.embedder).vectors
            vectors = np.zeros((len(texts), rows.shape[1]))
            vectors[counting] = rows
        groups = [content_digest(prompt) for prompt in prompts]
        copies = [content_digest(text) for text in texts]
        return Batch(hash_table(groups), hash_table(copies), masses, vectors)

    def _gains(self, batch: Batch, own: range) -> tuple[list[float], list[float]]:
        """What each of the own completions adds to its group, and the score of each group."""
        gains = np.zeros(len(own))
        members: dict[tuple[int, ...], list[int]] = {}
        for index, key in enumerate(map(tuple, batch.groups.tolist())):
            members.setdefault(key, []).append(index)
        scores = []
        for indices in members.values():
            here = [index for index in indices if index in own]
            if not here:
                continue
            assert self.kernel is not None
            group = batch.group(indices, self.kernel)
            scores.append(group.score(self.order))
            found = group.gains(self.order)
            for index in here:
                # Completions that do not count in their group have no gain.
                gains[index - own.start] = found.get(index, 0.0)
        return gains.tolist(), scores


def _kernel(embedder: object, bandwidth: float | None, kernel: Kernel | None) -> Kernel:
    """The kernel from its settings."""
    given = given_kernel(kernel, bandwidth, names=("kernel", "bandwidth"))
    if given is not None:
        return given
    if embedder is not None:
        raise ArgumentError(
            "with `embedder`, `bandwidth` or `kernel` must be given: vectors of different "
            "embedders have different lengths. A third of the distance between unrelated texts is "
            "a good bandwidth: dp.MedianDistance().bandwidth(vectors) / 3."
        )
    return Gaussian(_BANDWIDTH)


def _embedder(given: EmbedderLike | str | None) -> Embedder:
    """The embedder of texts that was given, also by its name."""
    if isinstance(given, str):
        given = registry.embedder(given)
    embedder = resolve_embedder(given, (Text("", "completion"),), "x")
    assert embedder is not None
    return embedder
