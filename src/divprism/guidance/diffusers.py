"""DiversityGuidance: a hook for diffusers pipelines that moves latents uphill in a diversity score.

After a step of the sampler every latent z is pushed by (Conditional Vendi, eq. 14)

    strength |z| g / |g|,    g the gradient of log score(z_1 / |z_1|, z_2 / |z_2|, ...) in z,

where the score is that of the batch together with the bank of finished samples. Two choices of the
published experiments are not part of eq. 14. First, their bandwidth of 0.8 applies to latents of
norm one: unrelated latents are then sqrt(2) apart whatever the noise scale of the sampler, with a
kernel value of 0.21. Second, their weight is relative to the latents: the gradient gives the
direction, not the length. So a strength means the same for all samplers, scores, bank sizes and
resolutions.

The bank holds finished latents, the paper's "most recently generated samples", and not the latents
of the same step of earlier runs. Between noisy latents the gradient would mostly separate the noise
of one run from that of another, which is independent anyway; away from a finished latent means away
from what its image shows. One latent per sample also serves any sampler.
"""

import functools
import importlib.util
import math
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from divprism.core.arrays import Array, plain_mode
from divprism.core.kernels import Gaussian
from divprism.core.validation import whole_number
from divprism.errors import ArgumentError, DataError, MissingExtraError
from divprism.guidance import objectives
from divprism.guidance._hooks import Pipeline, Scheduler
from divprism.guidance._inputs import clean_prompts
from divprism.guidance.bank import Bank
from divprism.guidance.gradient import Gradient, score_gradient
from divprism.guidance.objectives import Objective

for _package in ("torch", "diffusers"):
    if importlib.util.find_spec(_package) is None:
        raise MissingExtraError(
            f"Guiding pipelines needs {_package}, which is not installed: "
            "pip install 'divprism[guidance]'."
        )

import torch  # noqa: E402, the message above comes first

from divprism.guidance._attached import Attached  # noqa: E402
from divprism.guidance._latents import (  # noqa: E402
    as_prompts,
    clamped_sum,
    push_copies,
    require_tensor,
    scaled_push,
    unit_rows,
    without_negatives,
)

__all__ = ["DiversityGuidance"]

# Gradients of unit rows below this, over the squared bandwidth, are rounding errors of sums that
# cancel, and have no direction.
_ROUNDING = 1e-12


@dataclass(frozen=True, eq=False)
class DiversityGuidance:
    """Guidance by a diversity score, for any pipeline of diffusers.

    Pipelines with callbacks take it as `pipe(prompts, callback_on_step_end=guide,
    callback_on_step_end_tensor_inputs=guide.tensor_inputs)`; for all others use
    `with guide.attach(pipe): pipe(prompts)`. Each sample is compared with the rest of its batch and
    with the finished samples in the bank, which grows by every batch that reaches its last step.
    Between guided steps, after the last step, and everywhere at strength 0, latents stay unchanged
    to the bit.

    A push costs O(n d) for each sample at order 2, where n counts the samples in bank and batch,
    and O(n^3) more for other scores.

    Parameters
    ----------
    score : Objective or str
        The score to climb: "vendi", "rke", "conditional_vendi" or "conditional_rke"; see
        `score_gradient`.
    strength : float
        Length of a push relative to the norm of the latent that is pushed. 0 only fills the bank.
    every : int
        Number of steps from one push to the next, starting with the first step from `start` on.
    bandwidth_z, bandwidth_t : float or None
        Bandwidths of the Gaussian kernels of latents and of prompts, both scaled to norm one. None
        takes the median distance in batch and bank, again at every push. Prompts that are ids need
        no bandwidth: they are equal or not.
    bank : Bank or None
        Finished samples, scaled to norm one; None compares within the batch only. Guides that see
        latents of the same shape can share a bank.
    start, stop : float
        Part of the run in which latents are pushed, as fractions of its steps. The last step is
        never followed by a push, because no step would follow to turn the sum into an image.
    prompt_tensor : str
        The pipeline's tensor of prompts, for conditional scores. A sequence of tokens counts by its
        mean. Pooled embeddings are "add_text_embeds" in SDXL and "pooled_prompt_embeds" in SD3.

    Examples
    --------
    Two latents of norm 5 move apart by 0.03 * 5 each, at right angles to themselves:

    >>> guide = DiversityGuidance("rke", bank=None)
    >>> guide.push(torch.tensor([[3.0, 4.0], [4.0, 3.0]])).round(decimals=3)
    tensor([[-0.1200,  0.0900],
            [ 0.0900, -0.1200]])
    """

    score: Objective | str = "conditional_rke"
    strength: float = 0.03
    every: int = 10
    bandwidth_z: float | None = None
    bandwidth_t: float | None = None
    bank: Bank | None = field(default_factory=Bank)
    start: float = 0.0
    stop: float = 1.0
    prompt_tensor: str = "prompt_embeds"

    def __post_init__(self) -> None:
        # A frozen dataclass: the name of a score is replaced by its objective once, here.
        object.__setattr__(self, "score", objectives.as_objective(self.score))
        if not _is_number(self.strength) or self.strength < 0:
            raise ArgumentError(
                f"`strength` must be a number of at least 0; got {self.strength!r}."
            )
        whole_number(self.every, "every", 1)
        _check_bandwidth(self.bandwidth_z, "bandwidth_z")
        _check_bandwidth(self.bandwidth_t, "bandwidth_t")
        if self.bandwidth_t is not None and not self._objective.conditional:
            raise ArgumentError(
                "`bandwidth_t` was given, but the score does not use prompts. "
                "Drop it, or choose a conditional score."
            )
        if self.bank is not None and not isinstance(self.bank, Bank):
            raise ArgumentError(f"`bank` must be a Bank, or None; got {type(self.bank).__name__}.")
        are_numbers = _is_number(self.start) and _is_number(self.stop)
        if not are_numbers or not 0 <= self.start < self.stop <= 1:
            raise ArgumentError(
                "`start` and `stop` must be fractions with 0 <= start < stop <= 1; "
                f"got {self.start!r} and {self.stop!r}."
            )

    @classmethod
    def preset(cls, name: str, **changes: Any) -> "DiversityGuidance":
        """Return the guidance of a row of the paper's Table 1, with its settings and window size.

        The settings are those of Conditional Vendi, App. E.3.

        Parameters
        ----------
        name : str
            "vendi", "rke", "conditional_vendi" or "conditional_rke".
        **changes
            Parameters that differ from the paper's.

        Examples
        --------
        >>> guide = DiversityGuidance.preset("conditional_rke", every=5)
        >>> guide.strength, guide.every, guide.bandwidth_z, guide.bandwidth_t, guide.bank.capacity
        (0.03, 5, 0.8, 0.3, 300)
        """
        return cls(**{**objectives.guidance_settings(name), **changes})

    @property
    def tensor_inputs(self) -> list[str]:
        """Names of the tensors that a pipeline must pass to the callback."""
        if self._objective.conditional:
            return ["latents", self.prompt_tensor]
        return ["latents"]

    @property
    def _objective(self) -> Objective:
        assert isinstance(self.score, Objective)
        return self.score

    def __call__(
        self, pipe: Pipeline, step: int, timestep: object, tensors: dict[str, torch.Tensor]
    ) -> dict[str, torch.Tensor]:
        """Return the tensors at the end of a step, with pushed latents where a push is due."""
        if "latents" not in tensors:
            raise ArgumentError(
                "the callback needs the latents: "
                "pass callback_on_step_end_tensor_inputs=guide.tensor_inputs."
            )
        latents = tensors["latents"]
        require_tensor(latents)
        whole_number(step, "step", 0)
        prompts = None
        if self._objective.conditional:
            if self.prompt_tensor not in tensors:
                raise ArgumentError(
                    f"a conditional score needs {self.prompt_tensor!r} at each step: "
                    "pass callback_on_step_end_tensor_inputs=guide.tensor_inputs."
                )
            prompts = without_negatives(pipe, tensors[self.prompt_tensor], latents.shape[0])
        # Pipelines that run only a part of the schedule state its length; others leave it out.
        steps = getattr(pipe, "num_timesteps", None)
        if not isinstance(steps, int) or not 0 < steps < sys.maxsize:
            steps = len(pipe.scheduler.timesteps)
        moved = self._after_step(pipe, latents, prompts, step, steps)
        if moved is latents:
            return tensors
        return {**tensors, "latents": moved}

    @contextmanager
    def attach(self, pipe: Pipeline, prompts: Array = None) -> "Iterator[DiversityGuidance]":
        """Guide all calls of a pipeline inside a `with` block, by wrapping its scheduler's step.

        Use it for pipelines without callbacks, such as PixArt or DiT, or to pass prompts of your
        own. The pipeline is restored on exit, also after an exception.

        Parameters
        ----------
        pipe : DiffusionPipeline
            Any pipeline with a `scheduler`.
        prompts : array, shape (p, d) or (p, tokens, d), or ids, length p, or None
            Embeddings, texts or whole numbers: the prompts of each call in the block, in order,
            with the same number of consecutive samples for each. None takes the first result of
            `pipe.encode_prompt`, if the score needs prompts.
        """
        read_prompts = self._objective.conditional and prompts is None
        if read_prompts and not hasattr(pipe, "encode_prompt"):
            raise ArgumentError(
                f"a conditional score needs prompts, and {type(pipe).__name__} encodes none: "
                "pass attach(pipe, prompts=...)."
            )
        if read_prompts and self.prompt_tensor != "prompt_embeds":
            raise ArgumentError(
                "attach reads the first result of encode_prompt, not "
                f"{self.prompt_tensor!r}: pass attach(pipe, prompts=...)."
            )
        given = None
        if prompts is not None:
            given = as_prompts(prompts)
        run = Attached(pipe, pipe.scheduler, functools.partial(self._after_step, pipe), given)
        with run.hooks(read_prompts):
            yield self

    def push(self, latents: torch.Tensor, prompts: Array = None) -> torch.Tensor:
        """Return what guidance adds to latents.

        For each latent this is a vector of length strength |latent| that points uphill, or zero
        where the score has no slope.

        Parameters
        ----------
        latents : tensor, shape (b, ...)
        prompts : array or ids
            As in `attach`; conditional scores only.

        Returns
        -------
        tensor, shape (b, ...)
            In single precision, or in double if the latents are.
        """
        require_tensor(latents)
        dtype = torch.promote_types(latents.dtype, torch.float32)
        with plain_mode():
            # In double precision throughout: unit rows differ little, and pushes are small.
            rows, norms = unit_rows(latents)
            prompt_rows = self._prompt_rows(prompts, rows)
            result = self._gradient(rows.reshape(latents.shape), prompt_rows)
            slopes = result.gradient.flatten(1)
            # The score sees unit rows only, so the component along a row has no effect.
            uphill = slopes - (slopes * rows).sum(1, keepdim=True) * rows
            lengths = uphill.norm(dim=1, keepdim=True)
            assert isinstance(result.kernel_x, Gaussian)
            is_flat = lengths <= _ROUNDING / result.kernel_x.bandwidth / result.kernel_x.bandwidth
            # The inner `where` keeps 0 / 0 out, which would be NaN.
            directions = torch.where(is_flat, 0.0, uphill / torch.where(is_flat, 1.0, lengths))
            push = scaled_push(directions, self.strength, norms).reshape(latents.shape)
            largest = torch.finfo(dtype).max
            return push.clamp(-largest, largest).to(dtype).to(latents.device)

    def remember(self, latents: torch.Tensor, prompts: Array = None) -> None:
        """Put finished latents into the bank, scaled to norm one.

        Guided runs call this at their end; call it yourself for samples from elsewhere.

        Parameters
        ----------
        latents : tensor, shape (b, ...)
        prompts : array or ids
            As in `attach`; conditional scores only.
        """
        if self.bank is None:
            raise ArgumentError("this guidance has no `bank` to remember samples in; got None.")
        require_tensor(latents)
        with plain_mode():
            rows, _ = unit_rows(latents)
            self.bank.append(rows.reshape(latents.shape), self._prompt_rows(prompts, rows))

    def _gradient(self, rows: torch.Tensor, prompts: Array) -> Gradient:
        kernel_x = kernel_t = None
        if self.bandwidth_z is not None:
            kernel_x = Gaussian(self.bandwidth_z)
        # Ids come as NumPy arrays, and take Categorical whatever the bandwidth.
        if self.bandwidth_t is not None and isinstance(prompts, torch.Tensor):
            kernel_t = Gaussian(self.bandwidth_t)
        return score_gradient(
            rows,
            prompts,
            bank=self.bank,
            score=self._objective,
            kernel_x=kernel_x,
            kernel_t=kernel_t,
        )

    def _prompt_rows(self, prompts: Array, rows: torch.Tensor) -> Array:
        """Return a prompt for each latent, if the score needs them: unit rows, or ids."""
        if not self._objective.conditional:
            return None
        if prompts is None:
            raise DataError(
                "a conditional score needs prompts: pass embeddings, texts or ids, "
                "as in attach(pipe, prompts=...)."
            )
        prompts = as_prompts(prompts)
        num_prompts, num_latents = len(prompts), len(rows)
        if not num_prompts or num_latents % num_prompts:
            raise DataError(
                f"{num_latents} latents do not fit {num_prompts} prompts; "
                "the number of latents must be a multiple of the number of prompts."
            )
        repeats = num_latents // num_prompts
        if prompts.ndim == 1:
            if isinstance(prompts, torch.Tensor):
                prompts = prompts.cpu().numpy()
            return np.repeat(prompts, repeats)
        embedded = torch.as_tensor(prompts).to(rows.device).double()
        # Padding tokens count too: pipelines do not pass their masks to callbacks.
        if embedded.ndim > 2:
            embedded = embedded.flatten(1, -2).mean(1)
        unit, _ = unit_rows(embedded)
        return unit.repeat_interleave(repeats, 0)

    def _after_step(
        self, pipe: Pipeline, latents: torch.Tensor, prompts: Array, call: int, calls: int
    ) -> torch.Tensor:
        """Return the latents after a call of the sampler, pushed if due; remember finished ones."""
        finishes = not _stops_early(pipe)
        # A run that stops early has no last step of its own: one more step follows elsewhere.
        if finishes:
            is_due = self._is_due(pipe.scheduler, call, calls)
        else:
            is_due = self._is_due(pipe.scheduler, call, calls + 1)
        is_last = finishes and call == calls - 1 and self.bank is not None
        # Now and not at the end, where a misfit would cost a whole run of the pipeline.
        if call == 0:
            self._require_fit(latents, prompts)
        if not is_due and not is_last:
            return latents
        finite = torch.isfinite(latents).flatten(1).all(dim=1)
        kept = finite.nonzero().flatten().tolist()
        if len(kept) < len(latents):
            lost = (~finite).nonzero().flatten().tolist()
            warnings.warn(
                f"latents {lost} of the batch are NaN or infinite: "
                "they are neither pushed nor remembered.",
                stacklevel=2,
            )
        if not kept:
            return latents
        # For the whole batch: how often a prompt is repeated follows from its size.
        prompt_rows = self._prompt_rows(prompts, latents)
        if prompt_rows is not None:
            prompt_rows = prompt_rows[kept]
        if is_due:
            latents = self._pushed(pipe.scheduler, latents, prompt_rows, kept)
        if is_last:
            self.remember(latents[kept], prompt_rows)
        return latents

    def _require_fit(self, latents: torch.Tensor, prompts: Array) -> None:
        """Refuse latents that the bank cannot hold; called at the first step of a run."""
        if self.bank is None:
            return
        rows, _ = unit_rows(latents)
        prompt_rows = self._prompt_rows(prompts, rows)
        checked = None
        if prompt_rows is not None:
            checked = clean_prompts(prompt_rows, "prompts")
        self.bank.require_fit(rows, tuple(latents.shape[1:]), checked)

    def _pushed(
        self, scheduler: Scheduler, latents: torch.Tensor, prompts: Array, kept: list[int]
    ) -> torch.Tensor:
        """Push the latents in `kept`, also in the scheduler's copies; others stay as they are."""
        dtype = torch.promote_types(latents.dtype, torch.float32)
        push = torch.zeros(latents.shape, dtype=dtype, device=latents.device)
        push[kept] = self.push(latents[kept], prompts)
        push_copies(scheduler, latents, push)
        # A new tensor: pipelines and callbacks may hold on to the old one.
        moved = latents.clone()
        moved[kept] = clamped_sum(latents, push)[kept]
        return moved

    def _is_due(self, scheduler: Scheduler, call: int, calls: int) -> bool:
        """Whether a push follows this call of the sampler."""
        # Heun has order 2: it calls the sampler twice per step, but only once in the last step.
        order = getattr(scheduler, "order", 1)
        ends_step = (call + 1) % order == 0
        step, steps = call // order, math.ceil(calls / order)
        # The margin absorbs rounding: 0.1 * 30 counts as 3.
        first = math.ceil(self.start * steps - 1e-9)
        # The last step is excluded: a push after it would go into the image unchanged.
        is_inside = first <= step < min(self.stop * steps - 1e-9, steps - 1)
        is_turn = (step - first) % self.every == 0
        return self.strength > 0 and is_inside and ends_step and is_turn


def _stops_early(pipe: Pipeline) -> bool:
    """Whether a run leaves noise in the latents for a second pipeline, as SDXL for its refiner."""
    # Pipelines without the argument lack the attribute, and those with it may hold None.
    end = getattr(pipe, "denoising_end", None)
    return isinstance(end, float) and 0 < end < 1


def _is_number(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
        return False
    # Python's integers may be larger than any float, of which `isfinite` raises.
    return abs(value) <= sys.float_info.max


def _check_bandwidth(bandwidth: float | None, name: str) -> None:
    if bandwidth is None:
        return
    if not _is_number(bandwidth) or bandwidth <= 0:
        raise ArgumentError(
            f"`{name}` must be a positive number, or None for the median distance; "
            f"got {bandwidth!r}."
        )
