"""A pipeline whose scheduler is wrapped: the position in a run, and the prompts of the run."""

import functools
import inspect
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TypeAlias

import torch

from divprism.core.arrays import Array
from divprism.guidance._clean import predicted_clean
from divprism.guidance._hooks import Method, Pipeline, Scheduler, replaced, start_index

__all__ = ["Attached", "Clean"]

Clean: TypeAlias = Callable[[], torch.Tensor]
"""Returns predicted clean latents; a function, because most steps and guides do not ask."""


@dataclass(eq=False)
class Attached:
    """Wrappers around the methods of a pipeline and of its scheduler that act after every step.

    Attributes
    ----------
    pipe, scheduler
        The objects whose methods are wrapped.
    after_step : callable
        (latents, prompts, call, calls, clean) -> latents, where `call` counts the calls of the
        sampler in this run from zero, `calls` is their total, and `clean` is a function that
        returns the clean latents predicted at this step.
    given
        Prompts of every run; None takes those that the pipeline encodes.
    encoded
        Embeddings that were encoded for a run that has not started yet.
    prompts
        Embeddings of the current run.
    encoded_first : bool
        Whether the current run encoded its prompts before it set its timesteps.
    """

    pipe: Pipeline
    scheduler: Scheduler
    after_step: Callable[[torch.Tensor, Array, int, int, Clean], torch.Tensor]
    given: Array
    encoded: Array = None
    prompts: Array = None
    encoded_first: bool = False
    call: int = 0
    calls: int = 0

    @contextmanager
    def hooks(self, read_prompts: bool) -> Iterator[None]:
        """Wrap all methods and restore them on exit; with `read_prompts` also the encoder."""
        length = vars(self.pipe).get("_num_timesteps")
        # If a method is missing, the stack restores those that were wrapped before it.
        with ExitStack() as stack:
            stack.enter_context(replaced(self.scheduler, "step", self._around_step))
            stack.enter_context(replaced(self.scheduler, "set_timesteps", self._around_start))
            if read_prompts:
                stack.enter_context(replaced(self.pipe, "encode_prompt", self._around_encoding))
                # Pipelines validate their inputs first, so this marks the start of a call.
                if hasattr(self.pipe, "check_inputs"):
                    stack.enter_context(replaced(self.pipe, "check_inputs", self._around_call))
            yield
        # `_around_start` cleared the length, and a custom loop did not set it again.
        if length is not None and self.pipe._num_timesteps is None:
            self.pipe._num_timesteps = length
        if self.pipe.scheduler is not self.scheduler:
            warnings.warn(
                "the scheduler of the pipeline was replaced inside `attach`; "
                "runs with the new scheduler were not guided.",
                stacklevel=4,  # the `with` statement of the user
            )

    def _around_call(self, check_inputs: Method) -> Method:
        """Forget, at the start of a pipeline call, whatever was encoded before it."""

        @functools.wraps(check_inputs)
        def wrapped(*args: object, **kwargs: object) -> object:
            self.encoded = self.prompts = None
            return check_inputs(*args, **kwargs)

        return wrapped

    def _around_encoding(self, encode: Method) -> Method:
        """Keep the first result of the first call before a run: a second call is for negatives."""

        @functools.wraps(encode)
        def wrapped(*args: object, **kwargs: object) -> object:
            result = encode(*args, **kwargs)
            if self.encoded is None:
                self.encoded = result
                # SDXL and others return negative and pooled embeddings as well.
                if isinstance(result, tuple):
                    self.encoded = result[0]
            return result

        return wrapped

    def _around_start(self, set_timesteps: Method) -> Method:
        """Start a new run, also where an earlier one ended in an exception."""

        @functools.wraps(set_timesteps)
        def wrapped(*args: object, **kwargs: object) -> object:
            self.calls = 0
            self.encoded_first = self.encoded is not None
            # Without new embeddings the old prompts stay for now: some pipelines encode later, and
            # others set the timesteps again for the next part of the same video.
            if self.encoded_first:
                self.prompts, self.encoded = self.encoded, None
            # This is the length of the previous run. A pipeline sets it again; a custom loop does
            # not, and then the schedule gives the length.
            if "_num_timesteps" in vars(self.pipe):
                self.pipe._num_timesteps = None
            return set_timesteps(*args, **kwargs)

        return wrapped

    def _around_step(self, step: Method) -> Method:
        """Guide after the step. Pipelines inspect the signature of `step`, so it stays visible."""
        signature = inspect.signature(step)

        @functools.wraps(step)
        def wrapped(*args: object, **kwargs: object) -> object:
            # Pipelines pass the timestep and the sample by position or by name.
            arguments = signature.bind(*args, **kwargs).arguments
            # Timesteps that were set, or a finished run, leave no calls to come.
            if self.call >= self.calls:
                self._start_steps(arguments["timestep"])
            result = step(*args, **kwargs)
            # Outputs that are not tuples also hold the latents at index 0.
            clean = functools.partial(predicted_clean, self.scheduler, arguments, result)
            guided = self._guided(result[0], arguments.get("sample"), clean)
            self.call += 1
            if isinstance(result, tuple):
                return (guided, *result[1:])
            result.prev_sample = guided
            return result

        return wrapped

    def _start_steps(self, timestep: Array) -> None:
        """Count from the first step of a run, and take prompts encoded after the timesteps."""
        self.call = 0
        self.calls = self._num_calls(timestep)
        if self.encoded is not None and not self.encoded_first:
            self.prompts = self.encoded
        self.encoded = None

    def _num_calls(self, timestep: Array) -> int:
        """Return the number of sampler calls in a run: the rest of the schedule, or fewer."""
        remaining = len(self.scheduler.timesteps) - start_index(self.scheduler, timestep)
        # Runs with `denoising_end` stop before the schedule does; this is their length.
        stated = getattr(self.pipe, "num_timesteps", None)
        if isinstance(stated, int) and stated > 0:
            return min(remaining, stated)
        return remaining

    def _guided(self, latents: torch.Tensor, before: Array, clean: Clean) -> torch.Tensor:
        """Return the latents after the step, guided.

        DiT steps its batch twice, with labels and without, and keeps the first half: there the
        first half is guided and copied over the second.
        """
        prompts = self.given
        if prompts is None:
            prompts = self.prompts
        if not self._is_doubled(before):
            return self.after_step(latents, prompts, self.call, self.calls, clean)
        half = latents.shape[0] // 2
        first = latents[:half]
        moved = self.after_step(first, prompts, self.call, self.calls, lambda: clean()[:half])
        # Nothing was pushed: the tensor itself is returned, so that no bit changes.
        if moved is first:
            return latents
        return torch.cat([moved, moved])

    def _is_doubled(self, before: Array) -> bool:
        """Whether a pipeline without `encode_prompt` held its batch twice before the step."""
        if hasattr(self.pipe, "encode_prompt") or not isinstance(before, torch.Tensor):
            return False
        half, odd = divmod(len(before), 2)
        if odd or not half:
            return False
        return torch.equal(before[:half], before[half:])
