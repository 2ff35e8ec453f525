"""DiversityGuidance: a hook for diffusers pipelines that moves latents uphill in a diversity score.

After a step of the sampler every latent z is pushed, as in Conditional Vendi, eq. 14, but by

    strength |z| g / |g|,    g the gradient of log score(z_1 / |z_1|, z_2 / |z_2|, ...) in z,

where the score is that of the batch together with the bank of finished samples. Two choices are not
in the paper. First, its bandwidth of 0.8 (App. E.3) is applied to latents of norm one: unrelated
latents are then sqrt(2) apart whatever the noise scale of the sampler, with a kernel value of 0.21.
Second, its weight is relative to the latents: the gradient gives the direction, not the length. So
a strength means the same for all samplers, scores, bank sizes and resolutions. With
`relative=False` a push is strength times the gradient of the score itself, the step of eq. 14 as it
is written.

With `features`, samples are compared in a feature space, as in the row Vendi_CLIP of Table 3. The
paper does not say of which latents: here of the clean ones that the sampler predicts at the step,
because encoders of images know no noise. The predicted noise counts as a constant, so clean and
noisy latents move together, and the denoiser is not differentiated.

The bank holds finished latents, the paper's "most recently generated samples", and not the latents
of the same step of earlier runs. Between noisy latents the gradient would mostly separate the noise
of one run from that of another, which is independent anyway; away from a finished latent means away
from what its image shows. One latent per sample also serves any sampler.
"""

import functools
import importlib.util
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from divprism.core.arrays import Array, plain_mode
from divprism.core.kernels import Gaussian, Kernel
from divprism.core.validation import whole_number
from divprism.errors import ArgumentError, MissingExtraError
from divprism.guidance import objectives
from divprism.guidance._checks import check_bandwidth, check_part, check_strength
from divprism.guidance._hooks import Pipeline, Scheduler, is_turn, num_calls, stops_early
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

from divprism.guidance._attached import Attached, Clean  # noqa: E402
from divprism.guidance._latents import (  # noqa: E402
    as_prompts,
    clamped_sum,
    finite_indices,
    prompt_rows,
    push_copies,
    require_clean,
    require_tensor,
    unit_rows,
    without_negatives,
)
from divprism.guidance._push import literal_push, relative_push, unit_slopes  # noqa: E402
from divprism.guidance.features import Features, as_features  # noqa: E402
from divprism.guidance.presets import preset_settings  # noqa: E402

__all__ = ["DiversityGuidance"]


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
    and O(n^3) more for other scores; with `features`, a forward and a backward pass through them
    comes on top.

    Parameters
    ----------
    score : Objective or str
        The score to climb: "vendi", "rke", "conditional_vendi" or "conditional_rke"; see
        `score_gradient`.
    strength : float
        Length of a push relative to the norm of the latent that is pushed, or with `relative=False`
        the weight of the gradient. 0 only fills the bank.
    every : int
        Number of steps from one push to the next, starting with the first step from `start` on.
    bandwidth_z, bandwidth_t : float or None
        Bandwidths of the Gaussian kernels of latents and of prompts, both scaled to norm one. None
        takes the median distance in batch and bank, again at every push. Prompts that are ids need
        no bandwidth: they are equal or not.
    bank : Bank or None
        Finished samples (latents or their features), scaled to norm one; None compares within the
        batch only. Guides that see samples of the same shape can share a bank.
    start, stop : float
        Part of the run in which latents are pushed, as fractions of its steps. The last step is
        never followed by a push, because no step would follow to turn the sum into an image.
    prompt_tensor : str
        The pipeline's tensor of prompts, for conditional scores. A sequence of tokens counts by its
        mean. Pooled embeddings are "add_text_embeds" in SDXL and "pooled_prompt_embeds" in SD3.
    relative : bool
        Whether the gradient gives only the direction of a push (the default), or the push is
        `strength` times the gradient of the score itself (Conditional Vendi, eq. 14). The kernel
        compares items of norm one either way.
    features : callable, Features or None
        Function of clean latents, in torch, whose values are compared in place of the latents and
        kept in the bank; see `Features`. It needs `attach`: callbacks do not see what is predicted.

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
    relative: bool = True
    features: "Features | Callable[[torch.Tensor], torch.Tensor] | None" = None

    def __post_init__(self) -> None:
        # A frozen dataclass: names and functions become objects once, here.
        object.__setattr__(self, "score", objectives.as_objective(self.score))
        object.__setattr__(self, "features", as_features(self.features))
        check_strength(self.strength)
        whole_number(self.every, "every", 1)
        check_bandwidth(self.bandwidth_z, "bandwidth_z")
        check_bandwidth(self.bandwidth_t, "bandwidth_t")
        if self.bandwidth_t is not None and not self._objective.conditional:
            raise ArgumentError(
                "`bandwidth_t` was given, but the score does not use prompts. "
                "Drop it, or choose a conditional score."
            )
        if self.bandwidth_z is not None and self._kernel_z is not None:
            raise ArgumentError(
                "`bandwidth_z` was given, but the features have a kernel of their own. Drop one."
            )
        if self.bank is not None and not isinstance(self.bank, Bank):
            raise ArgumentError(f"`bank` must be a Bank, or None; got {type(self.bank).__name__}.")
        check_part(self.start, self.stop)
        if not isinstance(self.relative, bool):
            raise ArgumentError(f"`relative` must be True or False; got {self.relative!r}.")

    @classmethod
    def preset(cls, name: str, **changes: Any) -> "DiversityGuidance":
        """Return the guidance of a published experiment, with its settings and window size.

        The settings are those of Conditional Vendi, App. E.3; `presets.py` cites each of them.

        Parameters
        ----------
        name : str
            "vendi", "rke", "conditional_vendi" or "conditional_rke" for guidance of latents, or
            "c-vsg" for Vendi guidance in a feature space (Askari Hemmat et al., 2024) as the paper
            ran it, without exemplar images. "c-vsg" needs `features` and compares them by their
            cosine unless they, or `bandwidth_z`, say otherwise. Its strength is one of
            `presets.C_VSG_STRENGTHS`; try the others.
        **changes
            Parameters that differ from the published ones.

        Examples
        --------
        >>> guide = DiversityGuidance.preset("conditional_rke", every=5)
        >>> guide.strength, guide.every, guide.bandwidth_z, guide.bandwidth_t, guide.bank.capacity
        (0.03, 5, 0.8, 0.3, 300)
        >>> guide = DiversityGuidance.preset("c-vsg", features=lambda latents: latents.mean((2, 3)))
        >>> guide.score.order, guide.strength, guide.every, guide.features.kernel
        (1.0, 0.05, 5, Cosine())
        """
        return cls(**preset_settings(name, changes))

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

    @property
    def _features(self) -> Features | None:
        assert self.features is None or isinstance(self.features, Features)
        return self.features

    @property
    def _kernel_z(self) -> Kernel | None:
        """The kernel of the features, if they have one; else `bandwidth_z` decides."""
        if self._features is None:
            return None
        return self._features.kernel

    def __call__(
        self, pipe: Pipeline, step: int, timestep: object, tensors: dict[str, torch.Tensor]
    ) -> dict[str, torch.Tensor]:
        """Return the tensors at the end of a step, with pushed latents where a push is due."""
        if self._features is not None:
            raise ArgumentError(
                "`features` are those of predicted clean latents, which callbacks do not see: "
                "use `with guide.attach(pipe): pipe(...)`."
            )
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
        moved = self._after_step(pipe, latents, prompts, step, num_calls(pipe))
        if moved is latents:
            return tensors
        return {**tensors, "latents": moved}

    @contextmanager
    def attach(self, pipe: Pipeline, prompts: Array = None) -> "Iterator[DiversityGuidance]":
        """Guide all calls of a pipeline inside a `with` block, by wrapping its scheduler's step.

        Use it for pipelines without callbacks, such as PixArt or DiT, for `features`, or to pass
        prompts of your own. The pipeline is restored on exit, also after an exception.

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

    def push(
        self, latents: torch.Tensor, prompts: Array = None, clean: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Return what guidance adds to latents.

        For each latent this is a vector of length ``strength |latent|`` that points uphill, or zero
        where the score has no slope. With `relative=False` it is strength times the gradient of
        the score.

        Parameters
        ----------
        latents : tensor, shape (b, ...)
        prompts : array or ids
            As in `attach`; conditional scores only.
        clean : tensor, shape (b, ...), or None
            The clean latents that the model predicts, for `features` only. None takes the features
            of the latents themselves.

        Returns
        -------
        tensor, shape (b, ...)
            In single precision, or in double if the latents are.
        """
        require_tensor(latents)
        compared, traced = latents, None
        if self._features is not None:
            # Outside of the plain mode below: a caller's autocast applies to the features.
            traced = self._features.trace(require_clean(clean, latents))
            compared = traced.values
        with plain_mode():
            # In double precision throughout: unit rows differ little, and pushes are small.
            rows, norms = unit_rows(compared)
            given = self._prompt_rows(prompts, len(latents), rows.device)
            result = self._gradient(rows.reshape(compared.shape), given)
            slopes, lengths = unit_slopes(result, rows)
        if traced is not None:
            slopes = traced.pullback(slopes)
        with plain_mode():
            if self.relative:
                push = relative_push(slopes, self.strength, latents)
            else:
                push = literal_push(slopes, self.strength, lengths, norms)
            dtype = torch.promote_types(latents.dtype, torch.float32)
            largest = torch.finfo(dtype).max
            push = push.reshape(latents.shape).clamp(-largest, largest)
            return push.to(dtype).to(latents.device)

    def remember(self, latents: torch.Tensor, prompts: Array = None) -> None:
        """Put finished latents, or their features, into the bank, scaled to norm one.

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
        compared = latents
        if self._features is not None:
            compared = self._features.values(latents)
        with plain_mode():
            rows, _ = unit_rows(compared)
            given = self._prompt_rows(prompts, len(latents), rows.device)
            self.bank.append(rows.reshape(compared.shape), given)

    def _gradient(self, rows: torch.Tensor, prompts: Array) -> Gradient:
        kernel_x, kernel_t = self._kernel_z, None
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
            # The direction is the same, but eq. 14 weighs the gradient of the score itself.
            log=self.relative,
        )

    def _prompt_rows(self, prompts: Array, num_latents: int, device: torch.device) -> Array:
        """Return a prompt for each latent, if the score needs them: unit rows, or ids."""
        if not self._objective.conditional:
            return None
        return prompt_rows(prompts, num_latents, device)

    def _after_step(
        self,
        pipe: Pipeline,
        latents: torch.Tensor,
        prompts: Array,
        call: int,
        calls: int,
        clean: Clean | None = None,
    ) -> torch.Tensor:
        """Return the latents after a call of the sampler, pushed if due; remember finished ones."""
        finishes = not stops_early(pipe)
        # A run that stops early has no last step of its own: one more step follows elsewhere.
        last = calls + int(not finishes)
        is_due = self.strength > 0 and is_turn(
            pipe.scheduler, call, last, every=self.every, start=self.start, stop=self.stop
        )
        is_last = finishes and call == calls - 1 and self.bank is not None
        # Now and not at the end, where a misfit would cost a whole run of the pipeline.
        if call == 0:
            self._require_fit(latents, prompts, clean)
        if not is_due and not is_last:
            return latents
        predicted = None
        if is_due and clean is not None and self._features is not None:
            predicted = clean()
        kept = finite_indices(latents, predicted)
        if not kept:
            return latents
        # For the whole batch: how often a prompt is repeated follows from its size.
        given = self._prompt_rows(prompts, len(latents), latents.device)
        if given is not None:
            given = given[kept]
        if is_due:
            latents = self._pushed(pipe.scheduler, latents, given, kept, predicted)
        if is_last:
            self.remember(latents[kept], given)
        return latents

    def _require_fit(
        self, latents: torch.Tensor, prompts: Array, clean: Clean | None = None
    ) -> None:
        """Refuse latents that the bank cannot hold; called at the first step of a run."""
        compared = latents
        if self._features is not None:
            if clean is not None:
                # Samplers that predict no clean latents are refused here.
                compared = clean()
            first = self._features.values(compared[:1].to(latents.dtype))
            compared = first.expand(len(latents), *first.shape[1:])
        if self.bank is None:
            return
        rows, _ = unit_rows(compared)
        given = self._prompt_rows(prompts, len(latents), rows.device)
        checked = None
        if given is not None:
            checked = clean_prompts(given, "prompts")
        self.bank.require_fit(rows, tuple(compared.shape[1:]), checked)

    def _pushed(
        self,
        scheduler: Scheduler,
        latents: torch.Tensor,
        prompts: Array,
        kept: list[int],
        clean: torch.Tensor | None,
    ) -> torch.Tensor:
        """Push the latents in `kept`, also in the scheduler's copies; others stay as they are."""
        dtype = torch.promote_types(latents.dtype, torch.float32)
        push = torch.zeros(latents.shape, dtype=dtype, device=latents.device)
        if clean is not None:
            clean = clean[kept]
        push[kept] = self.push(latents[kept], prompts, clean)
        push_copies(scheduler, latents, push)
        # A new tensor: pipelines and callbacks may hold on to the old one.
        moved = latents.clone()
        moved[kept] = clamped_sum(latents, push)[kept]
        return moved
