"""DiversityGuidance: a hook for pipelines of diffusers that moves latents uphill in a diversity score while they are denoised.

After a step of the sampler every latent z is pushed by (Conditional Vendi, eq. 14)

    strength |z| g / |g|,    g the gradient of log score(z_1 / |z_1|, z_2 / |z_2|, ...) with respect to z,

where the score is that of the batch together with the bank of finished samples. Two choices of the published experiments are
behind this that eq. 14 does not tell. Their bandwidth of 0.8 is one of latents of norm one: unrelated latents then are sqrt(2)
apart whatever the sampler's noise scale, and have a kernel value of 0.21. And their weight is relative to the latents: the
gradient gives the direction, not the length. So a strength means the same for all samplers, scores, bank sizes and resolutions.

The bank holds finished latents, the paper's "most recently generated samples", and not those of the same step of earlier runs:
between noisy latents the gradient would mostly part the noise of one run from that of another, which is independent anyhow,
while away from a finished latent is away from what can be seen in it. And one latent per sample then serves any sampler.
"""

import functools
import importlib.util
import math
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from divprism.core.arrays import plain_mode
from divprism.core.kernels import Gaussian
from divprism.errors import ArgumentError, DataError, MissingExtraError
from divprism.guidance import objectives
from divprism.guidance._inputs import clean_prompts
from divprism.guidance.bank import Bank
from divprism.guidance.gradient import Gradient, score_gradient
from divprism.guidance.objectives import Objective

for _package in ("torch", "diffusers"):
    if importlib.util.find_spec(_package) is None:
        raise MissingExtraError(
            f"Guiding pipelines needs {_package}, which is not installed: pip install 'divprism[guidance]'."
        )

import torch  # noqa: E402, the sentence above comes first

from divprism.guidance._attached import Attached  # noqa: E402

__all__ = ["DiversityGuidance"]

_ROUNDING = 1e-12  # gradients of unit rows below this, over the squared bandwidth, are what is left of sums that cancel
_COPIES = (
    "sample",
    "last_sample",
    "cur_sample",
)  # where schedulers of several stages keep latents to go on from
_SINGLE = (
    "mps",
)  # devices without double precision: gradients are computed, and banks kept, on the CPU
_PROMPTS_FIRST = {
    "LuminaPipeline", "LuminaText2ImgPipeline", "StableCascadePriorPipeline", "StableCascadeDecoderPipeline",
    "WuerstchenPriorPipeline", "WuerstchenDecoderPipeline",
}  # all others put the negative prompts first  # fmt: skip


@dataclass(frozen=True, eq=False)
class DiversityGuidance:
    """Guidance by a diversity score, for any pipeline of diffusers.

    Pipelines with callbacks take it as `pipe(prompts, callback_on_step_end=guide,
    callback_on_step_end_tensor_inputs=guide.tensor_inputs)`; for all others there is `with guide.attach(pipe): pipe(prompts)`.
    Samples are told apart from those of the same batch and from the finished ones in the bank, which grows by each batch that
    comes to its last step. Between guided steps, after the last one, and everywhere at strength 0, no bit is changed.

    A push costs O(n d) for each sample at order 2, n the samples in bank and batch, and O(n^3) more for other scores.

    Parameters
    ----------
    score : Objective or str
        What to climb: "vendi", "rke", "conditional_vendi" or "conditional_rke"; see `score_gradient`.
    strength : float
        Length of a push, relative to the norm of the latent that is pushed. 0 only fills the bank.
    every : int
        Steps from one push to the next, beginning with the first step from `start` on.
    bandwidth_z, bandwidth_t : float or None
        Bandwidths of the Gaussian kernels of latents and of prompts, both scaled to norm one; None takes the median distance
        in batch and bank, anew at every push. Prompts that are ids have no bandwidth: they are equal or not.
    bank : Bank or None
        Finished samples, scaled to norm one; None looks at the batch alone. One bank may serve several guides of one kind.
    start, stop : float
        Part of the run in which latents are pushed, as fractions of its steps. The last step is never followed by a push:
        nothing would come after it to make a picture of the sum.
    prompt_tensor : str
        The pipeline's tensor of prompts that conditional scores look at. Sequences of tokens count by the mean over all
        tokens. Pooled embeddings are "add_text_embeds" in SDXL and "pooled_prompt_embeds" in SD3.

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
        if isinstance(self.score, str):
            object.__setattr__(self, "score", objectives.objective(self.score))
        elif not isinstance(self.score, Objective):
            raise ArgumentError(
                f"`score` must be a name such as 'conditional_rke', or an Objective; got {self.score!r}."
            )
        if not _is_number(self.strength) or self.strength < 0:
            raise ArgumentError(
                f"`strength` must be a number of at least 0; got {self.strength!r}."
            )
        if (
            not isinstance(self.every, int | np.integer)
            or isinstance(self.every, bool)
            or self.every < 1
        ):
            raise ArgumentError(
                f"`every` must be a whole number of at least 1; got {self.every!r}."
            )
        for name, width in (("bandwidth_z", self.bandwidth_z), ("bandwidth_t", self.bandwidth_t)):
            if width is not None and (not _is_number(width) or width <= 0):
                raise ArgumentError(
                    f"`{name}` must be a positive number, or None for the median distance; got {width!r}."
                )
        if self.bandwidth_t is not None and not self._objective.conditional:
            raise ArgumentError("`bandwidth_t` was given, but the score has no prompts in it.")
        if self.bank is not None and not isinstance(self.bank, Bank):
            raise ArgumentError(f"`bank` must be a Bank, or None; got {type(self.bank).__name__}.")
        if not (
            _is_number(self.start) and _is_number(self.stop) and 0 <= self.start < self.stop <= 1
        ):
            raise ArgumentError(
                f"fractions must be 0 <= `start` < `stop` <= 1; got {self.start!r} and {self.stop!r}."
            )

    @classmethod
    def preset(cls, name: str, **changes: Any) -> "DiversityGuidance":
        """The guidance of a row of the paper's Table 1, with the settings of App. E.3 and a bank of its window.

        Parameters
        ----------
        name : str
            "vendi", "rke", "conditional_vendi" or "conditional_rke".
        **changes
            Parameters that are to differ.

        Examples
        --------
        >>> guide = DiversityGuidance.preset("conditional_rke", every=5)
        >>> guide.strength, guide.every, guide.bandwidth_z, guide.bandwidth_t, guide.bank.capacity
        (0.03, 5, 0.8, 0.3, 300)
        """
        return cls(**{**objectives.guidance_settings(name), **changes})

    @property
    def tensor_inputs(self) -> list[str]:
        """What a pipeline has to hand to the callback."""
        return ["latents", self.prompt_tensor] if self._objective.conditional else ["latents"]

    @property
    def _objective(self) -> Objective:
        assert isinstance(self.score, Objective)
        return self.score

    def __call__(
        self, pipe: Any, step: int, timestep: Any, tensors: dict[str, Any]
    ) -> dict[str, Any]:
        """The callback at the end of a step: the tensors, with latents pushed where a push is due."""
        if "latents" not in tensors:
            raise ArgumentError(
                "the callback needs the latents: pass callback_on_step_end_tensor_inputs=guide.tensor_inputs."
            )
        latents = tensors["latents"]
        prompts = None
        if self._objective.conditional:
            if self.prompt_tensor not in tensors:
                raise ArgumentError(
                    f"a conditional score needs {self.prompt_tensor!r} at each step: "
                    "pass callback_on_step_end_tensor_inputs=guide.tensor_inputs."
                )
            prompts = _without_negatives(pipe, tensors[self.prompt_tensor], latents.shape[0])
        steps = getattr(pipe, "num_timesteps", None) or len(pipe.scheduler.timesteps)
        moved = self._after_step(pipe, latents, prompts, step, int(steps))
        return tensors if moved is latents else {**tensors, "latents": moved}

    @contextmanager
    def attach(self, pipe: Any, prompts: Any = None) -> "Iterator[DiversityGuidance]":
        """Guide all calls of a pipeline inside a `with` block, by wrapping the step of its scheduler.

        For pipelines without callbacks, such as PixArt or DiT, or to tell what the prompts are. The pipeline is left as it was,
        also after an exception.

        Parameters
        ----------
        pipe : DiffusionPipeline
            Any with a `scheduler`.
        prompts : array, shape (p, d) or (p, tokens, d), or ids, length p, or None
            Embeddings, or texts or whole numbers, of the prompts of each call in the block, in their order: one for each
            sample, or one for so many in a row. None takes what `pipe.encode_prompt` gives first, if the score needs prompts.
        """
        hears = self._objective.conditional and prompts is None
        if hears and not hasattr(pipe, "encode_prompt"):
            raise ArgumentError(
                f"a conditional score needs prompts, and {type(pipe).__name__} encodes none: pass attach(pipe, prompts=...)."
            )
        if hears and self.prompt_tensor != "prompt_embeds":
            raise ArgumentError(
                f"attach hears the first result of encode_prompt, not {self.prompt_tensor!r}: pass attach(pipe, prompts=...)."
            )
        given = None if prompts is None else _clean_prompts(prompts)
        run = Attached(pipe, pipe.scheduler, functools.partial(self._after_step, pipe), given)
        with run.hooks(hears):
            yield self

    def push(self, latents: Any, prompts: Any = None) -> Any:
        """What guidance adds to latents: a vector of length strength |latent| uphill for each, or zero where there is no slope.

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
        _require_tensor(latents)
        wide = torch.promote_types(latents.dtype, torch.float32)
        with plain_mode():
            rows, norms = _unit_rows(latents)
            found = self._gradient(rows.reshape(latents.shape), self._texts(prompts, rows))
            slopes = found.gradient.flatten(1)
            uphill = (
                slopes - (slopes * rows).sum(1, keepdim=True) * rows
            )  # the norm of latents is divided out
            lengths = uphill.norm(dim=1, keepdim=True)
            assert isinstance(found.kernel_x, Gaussian)
            flat = lengths <= _ROUNDING / found.kernel_x.bandwidth**2
            directions = torch.where(flat, 0.0, uphill / torch.where(flat, 1.0, lengths))
            return (
                (self.strength * norms * directions)
                .reshape(latents.shape)
                .to(wide)
                .to(latents.device)
            )

    def remember(self, latents: Any, prompts: Any = None) -> None:
        """Put finished latents into the bank, scaled to norm one; done at the end of every run, or for samples of your own.

        Parameters
        ----------
        latents : tensor, shape (b, ...)
        prompts : array or ids
            As in `attach`; conditional scores only.
        """
        if self.bank is None:
            raise ArgumentError("this guidance has no bank to remember samples in.")
        _require_tensor(latents)
        with plain_mode():
            rows, _ = _unit_rows(latents)
            self.bank.append(rows.reshape(latents.shape), self._texts(prompts, rows))

    def _gradient(self, rows: Any, texts: Any) -> Gradient:
        kernel_x = None if self.bandwidth_z is None else Gaussian(self.bandwidth_z)
        ids = not isinstance(texts, torch.Tensor)
        kernel_t = None if self.bandwidth_t is None or ids else Gaussian(self.bandwidth_t)
        return score_gradient(
            rows, texts, bank=self.bank, score=self._objective, kernel_x=kernel_x, kernel_t=kernel_t
        )

    def _texts(self, prompts: Any, rows: Any) -> Any:
        """A prompt for each latent, if the score needs any: unit rows, means over tokens, or ids."""
        if not self._objective.conditional:
            return None
        if prompts is None:
            raise DataError(
                "a conditional score needs prompts: pass embeddings, texts or ids, as in attach(pipe, prompts=...)."
            )
        prompts = _clean_prompts(prompts)
        given, wanted = len(prompts), len(rows)
        if not given or wanted % given:
            raise DataError(
                f"{wanted} latents do not fit {given} prompts: there must be as many, or some for each prompt."
            )
        if prompts.ndim == 1:
            return np.repeat(
                prompts.cpu().numpy() if isinstance(prompts, torch.Tensor) else prompts,
                wanted // given,
            )
        embedded = torch.as_tensor(prompts).to(rows.device).double()
        pooled = embedded.flatten(1, -2).mean(1) if embedded.ndim > 2 else embedded
        return _unit_rows(pooled)[0].repeat_interleave(wanted // given, 0)

    def _after_step(self, pipe: Any, latents: Any, prompts: Any, call: int, calls: int) -> Any:
        """Latents after a call of the sampler: pushed if that is due, remembered if they are finished."""
        finishes = not _stops_early(pipe)
        due = self._is_due(pipe.scheduler, call, calls if finishes else calls + 1)
        last = finishes and call == calls - 1 and self.bank is not None
        if call == 0 and self.bank is not None:  # not only when the images are finished, and lost
            rows, _ = _unit_rows(latents)
            texts = self._texts(prompts, rows)
            self.bank.require_fit(
                rows,
                tuple(latents.shape[1:]),
                None if texts is None else clean_prompts(texts, "prompts"),
            )
        if not due and not last:
            return latents
        kept = torch.isfinite(latents).flatten(1).all(dim=1).nonzero().flatten().tolist()
        if len(kept) < len(latents):
            lost = sorted(set(range(len(latents))) - set(kept))
            warnings.warn(
                f"latents {lost} of the batch are NaN or infinite: they are neither pushed nor remembered.",
                stacklevel=2,
            )
        if not kept:
            return latents
        texts = self._texts(prompts, latents)
        texts = None if texts is None else texts[kept]
        if due:
            latents = self._pushed(pipe.scheduler, latents, texts, kept)
        if last:
            self.remember(latents[kept], texts)
        return latents

    def _pushed(self, scheduler: Any, latents: Any, texts: Any, kept: list[int]) -> Any:
        """Latents of which some are pushed, in the scheduler's copies as well; the others stay to the bit."""
        push = torch.zeros(
            latents.shape,
            dtype=torch.promote_types(latents.dtype, torch.float32),
            device=latents.device,
        )
        push[kept] = self.push(latents[kept], texts)
        _push_copies(scheduler, latents, push)
        moved = latents.clone()
        moved[kept] = _sum(latents, push)[kept]
        return moved

    def _is_due(self, scheduler: Any, call: int, calls: int) -> bool:
        order = getattr(
            scheduler, "order", 1
        )  # calls that make a step: 2 for Heun, which leaves out one of the last step
        step, steps = call // order, math.ceil(calls / order)
        first = math.ceil(self.start * steps - 1e-9)  # 0.1 * 30 is 3, whatever its rounding
        inside = first <= step < min(self.stop * steps - 1e-9, steps - 1)
        return (
            self.strength > 0
            and inside
            and (call + 1) % order == 0
            and (step - first) % self.every == 0
        )


def _stops_early(pipe: Any) -> bool:
    """Whether a run ends with noise in the latents, for a second pipeline to go on from: SDXL and its refiner."""
    end = getattr(pipe, "denoising_end", None)
    return isinstance(end, float) and 0 < end < 1


def _require_tensor(latents: Any) -> None:
    if not isinstance(latents, torch.Tensor):
        raise ArgumentError(
            f"`latents` must be a torch tensor; got {type(latents).__name__}. score_gradient takes any array."
        )


def _clean_prompts(prompts: Any) -> Any:
    """Embeddings as a tensor or an array, the mean over tokens where their numbers differ; ids as a flat array."""
    if isinstance(prompts, torch.Tensor):
        return prompts
    if isinstance(prompts, str):
        return np.array([prompts])
    if (
        isinstance(prompts, list | tuple)
        and prompts
        and all(getattr(one, "ndim", 0) for one in prompts)
    ):
        prompts = [torch.as_tensor(one) for one in prompts]
        prompts = [
            one if one.ndim == 1 else one.flatten(0, -2).to(torch.float64).mean(0)
            for one in prompts
        ]
        if len({one.shape for one in prompts}) > 1:
            raise DataError(
                "the embeddings of prompts differ in width; they must be of one encoder."
            )
        return torch.stack(prompts)
    try:
        found = np.asarray(prompts)
    except ValueError:
        found = np.array(None)
    if found.ndim == 0 or found.dtype == object:
        raise DataError(
            f"`prompts` must be embeddings, or texts or whole numbers in a list; got {type(prompts).__name__}."
        )
    return found


def _is_number(value: Any) -> bool:
    return (
        isinstance(value, int | float | np.integer | np.floating)
        and not isinstance(value, bool)
        and math.isfinite(value)
    )


def _unit_rows(a: Any) -> tuple[Any, Any]:
    """Items as flat rows of norm one in double precision, and their norms; zeros stay zeros."""
    rows = (a.detach().cpu() if a.device.type in _SINGLE else a.detach()).flatten(1).double()
    norms = rows.norm(dim=1, keepdim=True)
    return rows / torch.where(norms == 0, 1.0, norms), norms


def _norms(latents: Any) -> Any:
    """Norms of latents in single precision, to be multiplied with them."""
    return latents.flatten(1).float().norm(dim=1).reshape(-1, *[1] * (latents.ndim - 1))


def _sum(latents: Any, push: Any) -> Any:
    """Latents and push in the dtype of the latents, within its range."""
    largest = torch.finfo(latents.dtype).max
    return (latents + push).clamp(-largest, largest).to(latents.dtype)


def _push_copies(scheduler: Any, latents: Any, push: Any) -> None:
    """Move the latents along that a scheduler will go on from in place of those it is given, or it would undo the push.

    PNDM, Heun and other samplers of several stages keep those at the beginning of a step, UniPC those before its correction.
    They are of another noise level: the push is the same relative to their norm.
    """
    for name in _COPIES:
        copy = getattr(scheduler, name, None)
        for times in (1, 2):  # 2: a batch that is there twice, see `Attached`
            if isinstance(copy, torch.Tensor) and copy.shape == (
                times * push.shape[0],
                *push.shape[1:],
            ):
                ratio = _norms(copy) / _norms(torch.cat([latents] * times)).clamp_min(
                    torch.finfo(torch.float32).tiny
                )
                ratio = torch.where(torch.isfinite(ratio), ratio, 0.0)  # of latents that diverged
                setattr(scheduler, name, _sum(copy, torch.cat([push] * times) * ratio))


def _without_negatives(pipe: Any, prompts: Any, wanted: int) -> Any:
    """The prompts of the samples, out of those that classifier-free guidance has put side by side with negative ones."""
    given = len(prompts)
    if given == 2 * wanted:
        return (
            prompts[:wanted]
            if _PROMPTS_FIRST & {kind.__name__ for kind in type(pipe).__mro__}
            else prompts[wanted:]
        )
    if given > wanted:
        raise DataError(
            f"{type(pipe).__name__} has {given} prompts for {wanted} latents, and which are theirs cannot be told. "
            "Use `with guide.attach(pipe, prompts=...)`."
        )
    return prompts
