"""Latents and prompts as tensors of torch, in the conventions of diffusers pipelines."""

import warnings

import numpy as np
import torch

from divprism.core.arrays import Array
from divprism.core.validation import require_dense
from divprism.errors import ArgumentError, DataError
from divprism.guidance._hooks import Pipeline, Scheduler

__all__ = [
    "as_prompts",
    "clamped_sum",
    "finite_indices",
    "prompt_rows",
    "push_copies",
    "require_clean",
    "require_tensor",
    "scaled_push",
    "unit_rows",
    "without_negatives",
]

_PROMPT_KINDS = "`prompts` must be embeddings, or a list of texts or whole numbers; got {}."

# Attributes in which schedulers of several stages keep latents to continue from.
_SCHEDULER_COPIES = ("sample", "last_sample", "cur_sample")
# Devices without double precision: there gradients are computed, and banks kept, on the CPU.
_SINGLE_PRECISION_DEVICES = ("mps",)
_DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
# Pipelines that put the prompts before the negative prompts; all others put the negatives first.
_PROMPTS_FIRST = {
    "LuminaPipeline",
    "LuminaText2ImgPipeline",
    "StableCascadeDecoderPipeline",
    "StableCascadePriorPipeline",
    "WuerstchenDecoderPipeline",
    "WuerstchenPriorPipeline",
}


def require_tensor(latents: object) -> None:
    """Refuse latents that are no batch of samples as samplers of diffusers take them."""
    if not isinstance(latents, torch.Tensor):
        raise ArgumentError(
            f"`latents` must be a torch tensor; got {type(latents).__name__}. "
            "score_gradient takes any array."
        )
    require_dense(latents, "latents")
    if latents.dtype not in _DTYPES:
        dtype = str(latents.dtype).split(".")[-1]
        raise DataError(
            "`latents` must be floating-point numbers of 16, 32 or 64 bits; got dtype "
            f"{dtype}. Convert them: latents.float()."
        )
    if latents.ndim < 2 or 0 in latents.shape:
        raise DataError(
            "`latents` must have shape (b, ...), at least one sample; "
            f"got shape {tuple(latents.shape)}. A single sample is latents[None]."
        )


def require_clean(clean: object, latents: torch.Tensor) -> torch.Tensor:
    """Return clean latents in the dtype of the noisy ones, or the latents themselves for None."""
    if clean is None:
        return latents
    if not isinstance(clean, torch.Tensor) or clean.shape != latents.shape:
        shape = getattr(clean, "shape", type(clean).__name__)
        raise DataError(
            f"`clean` must be a tensor of the shape of the latents, {tuple(latents.shape)}; "
            f"got {shape}."
        )
    # Samplers may predict in a higher precision than the weights behind the features have.
    return clean.to(latents.dtype)


def finite_indices(latents: torch.Tensor, clean: torch.Tensor | None) -> list[int]:
    """Return the indices of latents that are finite, clean ones too, and warn about the others."""
    finite = torch.isfinite(latents).flatten(1).all(dim=1)
    if clean is not None:
        finite &= torch.isfinite(clean).flatten(1).all(dim=1)
    lost = (~finite).nonzero().flatten().tolist()
    if lost:
        warnings.warn(
            f"latents {lost} of the batch are NaN or infinite: "
            "they are neither pushed nor remembered.",
            stacklevel=3,
        )
    return finite.nonzero().flatten().tolist()


def as_prompts(prompts: Array) -> Array:
    """Return embeddings as a tensor or an array, and ids as a flat array.

    Sequences of different numbers of tokens are replaced by their means.
    """
    if isinstance(prompts, torch.Tensor):
        require_dense(prompts, "prompts")
        if not prompts.ndim:
            raise DataError(_PROMPT_KINDS.format("a tensor of shape ()"))
        return prompts
    # A single text is the prompt of the whole batch.
    if isinstance(prompts, str):
        prompts = [prompts]
    if _are_texts(prompts):
        # As objects, because NumPy drops null characters at the end of its own texts.
        return np.array(prompts, dtype=object)
    if _is_list_of_arrays(prompts):
        return _stacked([torch.as_tensor(prompt) for prompt in prompts])
    try:
        array = np.asarray(prompts)
    except ValueError:  # rows of different lengths
        array = np.array(None)
    is_number = array.dtype.kind in "fiub"
    if array.ndim == 0 or not (is_number or (array.ndim == 1 and array.dtype.kind == "U")):
        raise DataError(_PROMPT_KINDS.format(type(prompts).__name__))
    if array.dtype.kind == "f" and (array.dtype.itemsize > 8 or not array.dtype.isnative):
        # torch supports neither long doubles nor the byte order of other machines.
        return array.astype(np.float64)
    return array


def _are_texts(prompts: Array) -> bool:
    is_column = isinstance(prompts, np.ndarray) and prompts.ndim == 1 and prompts.dtype == object
    if not is_column and not isinstance(prompts, list | tuple):
        return False
    return len(prompts) > 0 and all(isinstance(prompt, str) for prompt in prompts)


def _is_list_of_arrays(prompts: Array) -> bool:
    if not isinstance(prompts, list | tuple) or not prompts:
        return False
    return all(getattr(prompt, "ndim", 0) for prompt in prompts)


def _stacked(prompts: list[torch.Tensor]) -> torch.Tensor:
    """Return a vector for each prompt; that of a sequence is the mean over its tokens."""
    vectors = []
    for prompt in prompts:
        vector = prompt
        if prompt.ndim > 1:
            vector = prompt.flatten(0, -2).to(torch.float64).mean(0)
        vectors.append(vector)
    if len({vector.shape for vector in vectors}) > 1:
        raise DataError("the embeddings in `prompts` differ in width; use one encoder for all.")
    return torch.stack(vectors)


def prompt_rows(prompts: Array, num_latents: int, device: torch.device) -> Array:
    """Return a prompt for each latent: embeddings as unit rows, ids as they are."""
    if prompts is None:
        raise DataError(
            "a conditional score needs prompts: pass embeddings, texts or ids, "
            "as in attach(pipe, prompts=...)."
        )
    prompts = as_prompts(prompts)
    num_prompts = len(prompts)
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
    embedded = torch.as_tensor(prompts).to(device).double()
    # Padding tokens count too: pipelines do not pass their masks to callbacks.
    if embedded.ndim > 2:
        embedded = embedded.flatten(1, -2).mean(1)
    unit, _ = unit_rows(embedded)
    return unit.repeat_interleave(repeats, 0)


def unit_rows(a: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return items as flat rows of norm one in double precision, and their norms.

    Items of norm zero stay zero.
    """
    a = a.detach()
    if a.device.type in _SINGLE_PRECISION_DEVICES:
        a = a.cpu()
    rows = a.flatten(1).double()
    norms = rows.norm(dim=1, keepdim=True)
    if _in_range(norms):
        return rows / torch.where(norms == 0, 1.0, norms), norms
    # Squares of huge or tiny numbers leave the range: the entries are scaled to at most one first.
    sizes = rows.abs().amax(dim=1, keepdim=True)
    sizes = torch.where(sizes == 0, 1.0, sizes)
    scaled = rows / sizes
    lengths = scaled.norm(dim=1, keepdim=True)
    # A norm may exceed the largest number, while its row does not.
    norms = (lengths * sizes).clamp(max=torch.finfo(torch.float64).max)
    return scaled / torch.where(lengths == 0, 1.0, lengths), norms


def _in_range(norms: torch.Tensor) -> bool:
    """Whether sums of squares in double precision have neither overflowed nor underflowed."""
    # 1e-140 squared is 1e-280, where the last of d squares still count.
    return bool(torch.all(torch.isfinite(norms) & (norms > 1e-140)))


def _norms(latents: torch.Tensor) -> torch.Tensor:
    """Return the norms of latents, at least in single precision, that broadcast with them."""
    if latents.dtype == torch.float64:
        _, norms = unit_rows(latents)
        norms = norms.flatten()
    else:
        # In half precision the sum of squares would overflow.
        norms = latents.flatten(1).float().norm(dim=1)
    return norms.reshape(-1, *[1] * (latents.ndim - 1))


def clamped_sum(latents: torch.Tensor, push: torch.Tensor) -> torch.Tensor:
    """Add a push in the dtype of the latents, clamped to its range."""
    largest = torch.finfo(latents.dtype).max
    # Half precision would round large sums to infinity, from which no sampler recovers.
    return (latents + push).clamp(-largest, largest).to(latents.dtype)


def scaled_push(directions: torch.Tensor, strength: float, norms: torch.Tensor) -> torch.Tensor:
    """Return directions of length strength |latent|, clamped to the range of double precision."""
    largest = torch.finfo(torch.float64).max
    # Directions first: their entries are at most one, so no product of infinity and zero occurs.
    return (float(strength) * directions * norms).clamp(-largest, largest)


def push_copies(scheduler: Scheduler, latents: torch.Tensor, push: torch.Tensor) -> None:
    """Push the copies of latents from which a scheduler continues, or it would undo the push.

    PNDM, Heun and other samplers of several stages keep the latents at the beginning of a step;
    UniPC keeps those before its correction. These have another noise level, so the push is scaled
    to their norm.
    """
    smallest = torch.finfo(torch.float32).tiny
    for name in _SCHEDULER_COPIES:
        copy = getattr(scheduler, name, None)
        if not isinstance(copy, torch.Tensor):
            continue
        # A factor of 2 is a batch that the pipeline holds twice, see `Attached`.
        for times in (1, 2):
            if copy.shape != (times * push.shape[0], *push.shape[1:]):
                continue
            ratio = _norms(copy) / _norms(torch.cat([latents] * times)).clamp_min(smallest)
            # Latents that diverged are not pushed.
            ratio = torch.where(torch.isfinite(ratio), ratio, 0.0)
            setattr(scheduler, name, clamped_sum(copy, torch.cat([push] * times) * ratio))


def without_negatives(pipe: Pipeline, prompts: torch.Tensor, num_latents: int) -> torch.Tensor:
    """Return the prompts without the negative ones that classifier-free guidance adds."""
    if len(prompts) == 2 * num_latents:
        # With base classes: pipelines derived from these keep their order of prompts.
        class_names = {kind.__name__ for kind in type(pipe).__mro__}
        if _PROMPTS_FIRST & class_names:
            return prompts[:num_latents]
        return prompts[num_latents:]
    if len(prompts) > num_latents:
        raise DataError(
            f"{type(pipe).__name__} has {len(prompts)} prompts for {num_latents} latents, and "
            "which of them belong to the latents is ambiguous. "
            "Use `with guide.attach(pipe, prompts=...)`."
        )
    return prompts
