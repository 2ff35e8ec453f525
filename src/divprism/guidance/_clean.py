"""The clean latents that a sampler predicts at a step.

A step starts from z = alpha x + sigma e, latents x with noise e, and takes a prediction of e, of x
or of a velocity. Each of these predicts x.
"""

import dataclasses
import inspect
import typing
from collections.abc import Mapping
from typing import Any

import torch

from divprism.errors import ArgumentError
from divprism.guidance._hooks import Scheduler

__all__ = ["predicted_clean"]

# Names under which steps return the clean latents, next to those with less noise.
_STATED = ("pred_original_sample", "denoised")
# Their model outputs are velocities e - x, and alpha is 1 - sigma.
_FLOWS = {
    "FlowMatchEulerDiscreteScheduler",
    "FlowMatchHeunDiscreteScheduler",
    "FlowMatchLCMScheduler",
}


def predicted_clean(
    scheduler: Scheduler, arguments: Mapping[str, Any], result: Any
) -> torch.Tensor:
    """Return the clean latents behind a step that the scheduler has just made.

    Parameters
    ----------
    scheduler
        After the step, so that its index is one further than the noise level of the step.
    arguments
        Those of the step by name: `model_output`, `timestep` and `sample`.
    result
        What the step returned: an output of diffusers, or a tuple.
    """
    clean = _stated(scheduler, result)
    if clean is None:
        clean = _computed(scheduler, arguments)
    if not isinstance(clean, torch.Tensor) or clean.shape != result[0].shape:
        raise ArgumentError(
            "`features` need the clean latents that a step predicts, which "
            f"{type(scheduler).__name__} does not give. "
            "Use a DDIM, Euler, DPM solver or flow matching scheduler."
        )
    return clean


def _stated(scheduler: Scheduler, result: Any) -> Any:
    """Return the clean latents among the results of a step, or None."""
    if not isinstance(result, tuple):
        return next((result[name] for name in _STATED if name in result), None)
    # The items of a tuple have no names: the fields of the output class in the signature do.
    annotation = inspect.signature(type(scheduler).step).return_annotation
    for kind in typing.get_args(annotation):
        if dataclasses.is_dataclass(kind):
            names = [field.name for field in dataclasses.fields(kind)]
            named = dict(zip(names, result, strict=False))
            return next((named[name] for name in _STATED if name in named), None)
    return None


def _computed(scheduler: Scheduler, arguments: Mapping[str, Any]) -> torch.Tensor | None:
    """Return the clean latents from the model output and the noise level, or None."""
    level = _noise_level(scheduler, arguments)
    if level is None:
        return None
    alpha, sigma, kind = level
    output, sample = arguments["model_output"], arguments["sample"]
    # At least in single precision: at high noise the difference below loses digits.
    dtype = torch.promote_types(sample.dtype, torch.float32)
    output, noisy = output.to(dtype), sample.to(dtype)
    if kind == "epsilon":
        return (noisy - sigma * output) / alpha
    if kind == "v_prediction":
        return alpha * noisy - sigma * output
    if kind == "flow_prediction":
        return noisy - sigma * output
    if kind == "sample":
        return output
    return None


def _noise_level(
    scheduler: Scheduler, arguments: Mapping[str, Any]
) -> tuple[torch.Tensor, torch.Tensor, str] | None:
    """Return alpha, sigma and what the model predicts, or None for an unknown family."""
    kind = getattr(scheduler.config, "prediction_type", "flow_prediction")
    class_names = {base.__name__ for base in type(scheduler).__mro__}
    if _FLOWS & class_names:
        # Tokens with timesteps of their own have no common noise level.
        if arguments.get("per_token_timesteps") is not None:
            return None
        sigma = _sigma(scheduler)
        return 1 - sigma, sigma, "flow_prediction"
    # EDM samplers scale the model output in a way of their own.
    has_levels = hasattr(scheduler, "_sigma_to_alpha_sigma_t")
    if has_levels and not hasattr(scheduler, "precondition_outputs"):
        alpha, sigma = scheduler._sigma_to_alpha_sigma_t(_sigma(scheduler))
        return alpha, sigma, kind
    if hasattr(scheduler, "alphas_cumprod") and not hasattr(scheduler, "sigmas"):
        share = scheduler.alphas_cumprod[int(arguments["timestep"])]
        return share**0.5, (1 - share) ** 0.5, kind
    return None


def _sigma(scheduler: Scheduler) -> torch.Tensor:
    sigma: torch.Tensor = scheduler.sigmas[scheduler.step_index - 1]
    return sigma
