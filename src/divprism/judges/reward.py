"""A reward model: a classifier with one class, which reads a prompt and an output as a chat."""

import math
from dataclasses import dataclass
from typing import ClassVar

from divprism.core.validation import MAX_QUALITY
from divprism.embedders._answer import UnusableAnswerError
from divprism.embedders._key import Key
from divprism.judges.base import QualityModel, only_entry

__all__ = ["RewardModel"]


@dataclass(frozen=True)
class RewardModel(QualityModel):
    """Quality by a reward model behind `/classify`, as `vllm serve` offers it.

    The server applies the chat template of the model to a prompt and its output, and returns one
    number: `probs` of a model with a single class. vLLM passes it through a sigmoid unless the
    model says otherwise, so it lies between 0 and 1. A negative reward is refused, since a quality
    is at least 0; so is a classifier of several classes. Set `QUALITY_BASE_URL` to the address of
    the server without a path: http://localhost:8000.

    See `QualityModel` for the attributes.

    Examples
    --------
    >>> import divprism as dp
    >>> dp.RewardModel("Skywork/Skywork-Reward-V2-Qwen3-0.6B").name
    'reward:Skywork/Skywork-Reward-V2-Qwen3-0.6B'
    """

    kind: ClassVar[str] = "reward"
    noun: ClassVar[str] = "reward model"
    path: ClassVar[str] = "/classify"
    needs_prompts: ClassVar[bool] = True

    @property
    def instructions(self) -> str:
        """The roles of the two texts."""
        return "prompt as user, output as assistant"

    def content(self, output: str, prompt: str | None) -> dict[str, object]:
        """The pair as a chat, to which the server applies the template of the model."""
        chat = [{"role": "user", "content": prompt}, {"role": "assistant", "content": output}]
        return {"model": self.model, "messages": chat}

    def read(self, body: bytes, key: Key) -> float:
        """Return the only number of the answer, which is at least 0."""
        reward = _only_number(body)
        if not math.isfinite(reward) or abs(reward) > MAX_QUALITY:
            raise UnusableAnswerError(f"its number is beyond {MAX_QUALITY:g}")
        if reward < 0:
            raise UnusableAnswerError(
                f"its number is {reward:.4g}, and a quality is at least 0: serve the model with an "
                "activation such as the sigmoid"
            )
        return reward


def _only_number(body: bytes) -> float:
    numbers = only_entry(body, "data", "an answer about one output").get("probs")
    # `type`, because True is an int.
    if not isinstance(numbers, list) or not set(map(type, numbers)) <= {int, float}:
        raise UnusableAnswerError("its `probs` are not a list of numbers")
    if len(numbers) != 1:
        raise UnusableAnswerError(
            f"its model has {len(numbers):,} classes, and a reward model has one"
        )
    return float(numbers[0])
