"""Which strength of guidance does what, where the right answer is known: latents of a mixture of Gaussians, denoised exactly.

Each prompt has a frequent kind of picture (70 %) and seven rare ones. Latents have the shape of a small picture, pictures of a
kind differ by noise, and the denoiser is the posterior mean of the mixture, so that whatever guidance spoils can be seen: the
distance to the nearest kind grows. Prints a table for docs/guidance.md; a minute on one core.
"""

import argparse
from types import SimpleNamespace
from typing import Any

import diffusers
import numpy as np
import torch

from divprism import Categorical, vendi
from divprism.guidance import DiversityGuidance

SHAPE = (4, 8, 8)
KINDS, PROMPTS, WITHIN = 8, 4, 0.3
WEIGHTS = torch.tensor([0.7, *[0.3 / (KINDS - 1)] * (KINDS - 1)], dtype=torch.float64)


def denoised(x: torch.Tensor, means: torch.Tensor, alpha: float) -> torch.Tensor:
    """Posterior mean of the clean latent, and from it the noise, for each x under the kinds of its prompt."""
    signal, variance = alpha**0.5, alpha * WITHIN**2 + 1 - alpha
    gaps = x[:, None] - signal * means
    posterior = torch.softmax(WEIGHTS.log() - (gaps**2).sum(-1) / (2 * variance), 1)
    centre = (posterior[..., None] * means).sum(1)
    clean = centre + signal * WITHIN**2 / variance * (x - signal * centre)
    return (x - signal * clean) / (1 - alpha) ** 0.5


def sample(guide: DiversityGuidance, means: torch.Tensor, steps: int, batches: int) -> tuple[np.ndarray, float]:
    """Kinds of the samples that are drawn under each prompt, and their mean distance to the nearest, over that of true ones."""
    scheduler: Any = diffusers.DDIMScheduler(
        beta_start=0.00085, beta_end=0.012, beta_schedule="scaled_linear", timestep_spacing="trailing", clip_sample=False
    )
    noise = torch.Generator().manual_seed(0)
    kinds, distances = [], []
    start = float(scheduler.alphas_cumprod[-1]) ** 0.5  # this schedule does not begin with noise alone
    for _ in range(batches):
        clean, x = torch.randn(2, PROMPTS, *SHAPE, generator=noise, dtype=torch.float64)
        drawn = means[torch.arange(PROMPTS), torch.multinomial(WEIGHTS, PROMPTS, replacement=True, generator=noise)]
        x = start * (drawn.reshape(x.shape) + WITHIN * clean) + (1 - start**2) ** 0.5 * x
        with guide.attach(SimpleNamespace(scheduler=scheduler), prompts=np.arange(PROMPTS)):
            scheduler.set_timesteps(steps)
            for t in scheduler.timesteps:
                found = denoised(x.flatten(1), means, float(scheduler.alphas_cumprod[t])).reshape(x.shape)
                x = scheduler.step(found, t, x).prev_sample
        gaps = (x.flatten(1)[:, None] - means).norm(dim=-1)
        kinds.append(gaps.argmin(1).numpy())
        distances.append(float(gaps.min(1).values.mean()) / (WITHIN * means.shape[-1] ** 0.5))
    return np.stack(kinds), float(np.mean(distances))


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batches", type=int, default=75, help="batches, each of one sample per prompt")
    batches = parser.parse_args().batches
    torch.set_num_threads(1)
    draw = torch.Generator().manual_seed(1)
    means = torch.randn(PROMPTS, KINDS, int(np.prod(SHAPE)), generator=draw, dtype=torch.float64)
    print("| score | strength | kinds per prompt | rare ones | distance |\n|---|---:|---:|---:|---:|")
    for score in ("rke", "conditional_rke", "conditional_vendi"):
        for strength in (0.0, 0.01, 0.03, 0.1, 0.3) if score == "conditional_rke" else (0.03, 0.1):
            guide = DiversityGuidance.preset(score, strength=strength)
            kinds, distance = sample(guide, means, 50, batches)
            per_prompt = np.mean([float(vendi(column, kernel=Categorical())) for column in kinds.T])
            print(f"| {score} | {strength:g} | {per_prompt:.2f} | {np.mean(kinds > 0):.2f} | {distance:.3f} |")


if __name__ == "__main__":
    main()
