"""A pipeline whose scheduler is wrapped: where in a run it is, and which prompts it samples for."""

import functools
import inspect
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from divprism.guidance._hooks import place, replaced

__all__ = ["Attached"]


@dataclass(eq=False)
class Attached:
    """What the methods of a pipeline and of its scheduler are wrapped with, so that something is done after every step.

    Attributes
    ----------
    pipe, scheduler
        Whose methods they are.
    after_step : callable
        (latents, prompts, call, calls) -> latents, where `call` is the place of this call of the sampler among `calls`.
    given
        Prompts of every run; None takes what the pipeline encodes.
    """

    pipe: Any
    scheduler: Any
    after_step: Callable[[Any, Any, int, int], Any]
    given: Any
    heard: Any = None  # embeddings that wait for the run to begin
    prompts: Any = None
    is_heard: bool = False
    call: int = 0
    calls: int = 0

    @contextmanager
    def hooks(self, hears: bool) -> Iterator[None]:
        """All methods wrapped, and put back whatever happens; `hears`: also those that tell of prompts."""
        length = vars(self.pipe).get("_num_timesteps")
        with ExitStack() as stack:
            stack.enter_context(replaced(self.scheduler, "step", self._around_step))
            stack.enter_context(replaced(self.scheduler, "set_timesteps", self._around_start))
            if hears:
                stack.enter_context(replaced(self.pipe, "encode_prompt", self._around_encoding))
                if hasattr(self.pipe, "check_inputs"):
                    stack.enter_context(replaced(self.pipe, "check_inputs", self._around_beginning))
            yield
        if length is not None and self.pipe._num_timesteps is None:
            self.pipe._num_timesteps = length
        if self.pipe.scheduler is not self.scheduler:
            warnings.warn(
                "the pipeline was given another scheduler inside `attach`, which was not guided.",
                stacklevel=4,
            )

    def _around_beginning(self, check_inputs: Callable[..., Any]) -> Callable[..., Any]:
        """A new call of the pipeline: what was encoded before it, by whomever, is not for it."""

        @functools.wraps(check_inputs)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            self.heard = self.prompts = None
            return check_inputs(*args, **kwargs)

        return wrapped

    def _around_encoding(self, encode: Callable[..., Any]) -> Callable[..., Any]:
        """The first result of the first call before a run: a second call would be for negative prompts."""

        @functools.wraps(encode)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            result = encode(*args, **kwargs)
            if self.heard is None:
                self.heard = result[0] if isinstance(result, tuple) else result
            return result

        return wrapped

    def _around_start(self, set_timesteps: Callable[..., Any]) -> Callable[..., Any]:
        """A new run: earlier ones may have ended in an exception."""

        @functools.wraps(set_timesteps)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            self.is_heard, self.calls = self.heard is not None, 0
            if self.is_heard:  # else they are encoded later, or timesteps are set again for the next part of a video
                self.prompts, self.heard = self.heard, None
            if "_num_timesteps" in vars(self.pipe):
                self.pipe._num_timesteps = (
                    None  # of the run before; a pipeline sets it anew, a loop of one's own does not
                )
            return set_timesteps(*args, **kwargs)

        return wrapped

    def _around_step(self, step: Callable[..., Any]) -> Callable[..., Any]:
        """The step, and guidance after it. Pipelines read the signature of `step`, so it must stay to be seen."""
        signature = inspect.signature(step)

        @functools.wraps(step)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            arguments = signature.bind(*args, **kwargs).arguments
            if self.call >= self.calls:
                self.call, self.calls = 0, self._length(arguments["timestep"])
                if (
                    self.heard is not None and not self.is_heard
                ):  # some encode after timesteps are set
                    self.prompts = self.heard
                self.heard = None
            result = step(*args, **kwargs)
            guided = self._guided(
                result[0], arguments.get("sample")
            )  # outputs that are no tuples have the latents first, too
            self.call += 1
            if isinstance(result, tuple):
                return (guided, *result[1:])
            result.prev_sample = guided
            return result

        return wrapped

    def _length(self, timestep: Any) -> int:
        """Calls of the sampler in a run: as many as the pipeline says, which may stop early, or the rest of the schedule."""
        rest = len(self.scheduler.timesteps) - place(self.scheduler, timestep)
        told = getattr(self.pipe, "num_timesteps", None)
        return min(rest, told) if isinstance(told, int) and told > 0 else rest

    def _guided(self, latents: Any, before: Any) -> Any:
        """Latents after the step. DiT has its batch there twice, under labels and under none, and keeps the first half."""
        prompts = self.prompts if self.given is None else self.given
        half = latents.shape[0] // 2
        if not self._is_double(before):
            return self.after_step(latents, prompts, self.call, self.calls)
        first = latents[:half]
        moved = self.after_step(first, prompts, self.call, self.calls)
        return latents if moved is first else torch.cat([moved, moved])

    def _is_double(self, before: Any) -> bool:
        """Whether a pipeline that encodes no prompts has its batch twice in the latents that it stepped from."""
        if (
            hasattr(self.pipe, "encode_prompt")
            or not isinstance(before, torch.Tensor)
            or len(before) % 2
        ):
            return False
        half = len(before) // 2
        return half > 0 and torch.equal(before[:half], before[half:])
