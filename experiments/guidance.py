"""What a strength of guidance does where the right answer is known: a mixture of Gaussians.

Each prompt has a frequent kind of image (70 %) and seven rare ones. Latents have the shape of a
small image, images of a kind differ by noise, and the denoiser is the exact posterior mean of the
mixture. So any damage by guidance is visible: the distance to the nearest kind grows. Prints the
table of docs/how-to/guidance.md in three minutes on one core.
"""

import argparse
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import diffusers
import numpy as np
import torch

from divprism import Categorical, vendi
from divprism.guidance import Bank, DiversityGuidance

SHAPE = (4, 8, 8)
KINDS, PROMPTS, STEPS = 8, 4, 50
WITHIN = 0.3  # standard deviation of a latent around its kind
WEIGHTS = torch.tensor([0.7, *[0.3 / (KINDS - 1)] * (KINDS - 1)], dtype=torch.float64)


def predicted_noise(x: torch.Tensor, means: torch.Tensor, alpha: float) -> torch.Tensor:
    """Return the noise in each x under the kinds of its prompt, from the posterior mean."""
    signal = alpha**0.5
    variance = alpha * WITHIN**2 + 1 - alpha
    gaps = x[:, None] - signal * means
    posterior = torch.softmax(WEIGHTS.log() - (gaps**2).sum(-1) / (2 * variance), 1)
    centre = (posterior[..., None] * means).sum(1)
    clean = centre + signal * WITHIN**2 / variance * (x - signal * centre)
    return (x - signal * clean) / (1 - alpha) ** 0.5


def initial_latents(means: torch.Tensor, signal: float, generator: torch.Generator) -> torch.Tensor:
    """Return noisy latents, one for each prompt, of random kinds.

    The schedule does not start with pure noise: a share `signal` of a clean latent is left.
    """
    clean, noise = torch.randn(2, PROMPTS, *SHAPE, generator=generator, dtype=torch.float64)
    kinds = torch.multinomial(WEIGHTS, PROMPTS, replacement=True, generator=generator)
    kind_means = means[torch.arange(PROMPTS), kinds].reshape(noise.shape)
    return signal * (kind_means + WITHIN * clean) + (1 - signal**2) ** 0.5 * noise


def sample(
    guide: DiversityGuidance, means: torch.Tensor, batches: int, banks: dict[int, Bank] | None
) -> tuple[np.ndarray, float]:
    """Return the kind of each sample, and the mean distance to the nearest kind.

    The distance is relative to that of true samples. With `banks`, latents are compared with those
    of the same step of earlier batches, and not with finished ones.
    """
    scheduler = diffusers.DDIMScheduler(
        beta_start=0.00085,
        beta_end=0.012,
        beta_schedule="scaled_linear",
        timestep_spacing="trailing",
        clip_sample=False,
    )
    generator, prompts = torch.Generator().manual_seed(0), np.arange(PROMPTS)
    signal = float(scheduler.alphas_cumprod[-1]) ** 0.5
    kinds, distances = [], []
    for _ in range(batches):
        x = initial_latents(means, signal, generator)
        hook: AbstractContextManager[object] = nullcontext()
        if banks is None:
            hook = guide.attach(SimpleNamespace(scheduler=scheduler), prompts)
        with hook:
            scheduler.set_timesteps(STEPS)
            for step, t in enumerate(scheduler.timesteps):
                alpha = float(scheduler.alphas_cumprod[t])
                noise = predicted_noise(x.flatten(1), means, alpha).reshape(x.shape)
                x = scheduler.step(noise, t, x).prev_sample
                if banks is not None and step % guide.every == 0:
                    guide_of_step = replace(guide, bank=banks.setdefault(step, Bank()))
                    x = x + guide_of_step.push(x, prompts)
                    guide_of_step.remember(x, prompts)
        gaps = (x.flatten(1)[:, None] - means).norm(dim=-1)
        kinds.append(gaps.argmin(1).numpy())
        distances.append(float(gaps.min(1).values.mean()) / (WITHIN * means.shape[-1] ** 0.5))
    return np.stack(kinds), float(np.mean(distances))


MEDIANS = {"bandwidth_z": None, "bandwidth_t": None}
FIRST_HALF = {"stop": 0.5, "every": 5}
LITERAL = {"relative": False}
SECOND_HALF = {"start": 0.5, "every": 5}
ROWS = [  # label, score, settings, whether the bank holds latents of the same step
    ("none", "rke", {"strength": 0.0}, False),
    ("conditional_rke", "conditional_rke", {"strength": 0.01}, False),
    ("conditional_rke", "conditional_rke", {"strength": 0.03}, False),
    ("conditional_rke", "conditional_rke", {"strength": 0.1}, False),
    ("conditional_rke", "conditional_rke", {"strength": 0.3}, False),
    ("conditional_vendi", "conditional_vendi", {"strength": 0.03}, False),
    ("conditional_vendi", "conditional_vendi", {"strength": 0.1}, False),
    ("rke", "rke", {"strength": 0.03}, False),
    ("rke", "rke", {"strength": 0.1}, False),
    (
        "conditional_rke, first half, every 5",
        "conditional_rke",
        {"strength": 0.03, **FIRST_HALF},
        False,
    ),
    (
        "conditional_rke, first half, every 5",
        "conditional_rke",
        {"strength": 0.1, **FIRST_HALF},
        False,
    ),
    (
        "conditional_rke, second half, every 5",
        "conditional_rke",
        {"strength": 0.1, **SECOND_HALF},
        False,
    ),
    ("conditional_rke, median bandwidths", "conditional_rke", {"strength": 0.1, **MEDIANS}, False),
    ("conditional_rke, bank of the same step", "conditional_rke", {"strength": 0.03}, True),
    ("conditional_rke, bank of the same step", "conditional_rke", {"strength": 0.1}, True),
    ("conditional_rke, eq. 14 as written", "conditional_rke", {**LITERAL, "strength": 0.03}, False),
    (
        "conditional_rke, eq. 14 as written",
        "conditional_rke",
        {**LITERAL, "strength": 100.0},
        False,
    ),
    ("c-vsg, features that know the kinds", "c-vsg", {"strength": 0.05}, False),
    ("c-vsg, features that know the kinds", "c-vsg", {"strength": 0.07}, False),
    ("vendi, every 5", "vendi", {"strength": 0.05, "every": 5}, False),
]


def kind_features(means: torch.Tensor) -> Callable[[torch.Tensor], torch.Tensor]:
    """Return an encoder whose features are the likeness to each kind of each prompt."""
    kinds = means.flatten(0, 1)
    return lambda latents: latents.flatten(1) @ kinds.T / kinds.shape[1]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--batches", type=int, default=75, help="batches, each of one sample per prompt"
    )
    batches = parser.parse_args().batches
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(1)
    dimension = int(np.prod(SHAPE))
    means = torch.randn(PROMPTS, KINDS, dimension, generator=generator, dtype=torch.float64)
    print("| guidance | strength | kinds per prompt | rare kinds | distance |")
    print("|---|---:|---:|---:|---:|")
    for label, score, settings, same_step in ROWS:
        guide_settings: dict[str, Any] = dict(settings)
        if score == "c-vsg":
            guide_settings["features"] = kind_features(means)
        guide = DiversityGuidance.preset(score, **guide_settings)
        banks: dict[int, Bank] | None = None
        if same_step:
            banks = {}
        kinds, distance = sample(guide, means, batches, banks)
        per_prompt = np.mean([float(vendi(column, kernel=Categorical())) for column in kinds.T])
        rare = np.mean(kinds > 0)
        cells = [
            label,
            f"{guide.strength:g}",
            f"{per_prompt:.2f}",
            f"{rare:.2f}",
            f"{distance:.2f}",
        ]
        print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
