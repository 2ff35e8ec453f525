"""Which strength of guidance does what, where the right answer is known: latents of a mixture of Gaussians, denoised exactly.

Each prompt has a frequent kind of picture (70 %) and seven rare ones. Latents have the shape of a small picture, pictures of a
kind differ by noise, and the denoiser is the posterior mean of the mixture, so that whatever guidance spoils can be seen: the
distance to the nearest kind grows. Prints a table for docs/guidance.md; two minutes on one core.
"""

import argparse
from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import diffusers
import numpy as np
import torch

from divprism import Categorical, vendi
from divprism.guidance import Bank, DiversityGuidance

SHAPE = (4, 8, 8)
KINDS, PROMPTS, WITHIN, STEPS = 8, 4, 0.3, 50
WEIGHTS = torch.tensor([0.7, *[0.3 / (KINDS - 1)] * (KINDS - 1)], dtype=torch.float64)


def denoised(x: torch.Tensor, means: torch.Tensor, alpha: float) -> torch.Tensor:
    """Posterior mean of the clean latent, and from it the noise, for each x under the kinds of its prompt."""
    signal, variance = alpha**0.5, alpha * WITHIN**2 + 1 - alpha
    gaps = x[:, None] - signal * means
    posterior = torch.softmax(WEIGHTS.log() - (gaps**2).sum(-1) / (2 * variance), 1)
    centre = (posterior[..., None] * means).sum(1)
    clean = centre + signal * WITHIN**2 / variance * (x - signal * centre)
    return (x - signal * clean) / (1 - alpha) ** 0.5


def sample(
    guide: DiversityGuidance, means: torch.Tensor, batches: int, banks: dict[int, Bank] | None
) -> tuple[np.ndarray, float]:
    """Kinds of the samples that are drawn under each prompt, and their mean distance to the nearest, over that of true ones.

    With `banks` latents are told apart from those of the same step of earlier batches, in place of finished ones.
    """
    scheduler: Any = diffusers.DDIMScheduler(
        beta_start=0.00085,
        beta_end=0.012,
        beta_schedule="scaled_linear",
        timestep_spacing="trailing",
        clip_sample=False,
    )
    noise, prompts = torch.Generator().manual_seed(0), np.arange(PROMPTS)
    kinds, distances = [], []
    start = (
        float(scheduler.alphas_cumprod[-1]) ** 0.5
    )  # this schedule does not begin with noise alone
    for _ in range(batches):
        clean, x = torch.randn(2, PROMPTS, *SHAPE, generator=noise, dtype=torch.float64)
        drawn = means[
            torch.arange(PROMPTS),
            torch.multinomial(WEIGHTS, PROMPTS, replacement=True, generator=noise),
        ]
        x = start * (drawn.reshape(x.shape) + WITHIN * clean) + (1 - start**2) ** 0.5 * x
        with (
            guide.attach(SimpleNamespace(scheduler=scheduler), prompts)
            if banks is None
            else nullcontext()
        ):
            scheduler.set_timesteps(STEPS)
            for step, t in enumerate(scheduler.timesteps):
                found = denoised(x.flatten(1), means, float(scheduler.alphas_cumprod[t])).reshape(
                    x.shape
                )
                x = scheduler.step(found, t, x).prev_sample
                if banks is not None and step % guide.every == 0:
                    here = replace(guide, bank=banks.setdefault(step, Bank()))
                    x = x + here.push(x, prompts)
                    here.remember(x, prompts)
        gaps = (x.flatten(1)[:, None] - means).norm(dim=-1)
        kinds.append(gaps.argmin(1).numpy())
        distances.append(float(gaps.min(1).values.mean()) / (WITHIN * means.shape[-1] ** 0.5))
    return np.stack(kinds), float(np.mean(distances))


ROWS = [
    ("none", {"strength": 0.0}),
    ("conditional_rke", {"strength": 0.01}),
    ("conditional_rke", {"strength": 0.03}),
    ("conditional_rke", {"strength": 0.1}),
    ("conditional_rke", {"strength": 0.3}),
    ("conditional_vendi", {"strength": 0.03}),
    ("conditional_vendi", {"strength": 0.1}),
    ("rke", {"strength": 0.03}),
    ("rke", {"strength": 0.1}),
    ("conditional_rke, first half, every 5", {"strength": 0.03, "stop": 0.5, "every": 5}),
    ("conditional_rke, first half, every 5", {"strength": 0.1, "stop": 0.5, "every": 5}),
    ("conditional_rke, second half, every 5", {"strength": 0.1, "start": 0.5, "every": 5}),
    (
        "conditional_rke, median bandwidths",
        {"strength": 0.1, "bandwidth_z": None, "bandwidth_t": None},
    ),
    ("conditional_rke, bank of the same step", {"strength": 0.03}),
    ("conditional_rke, bank of the same step", {"strength": 0.1}),
]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--batches", type=int, default=75, help="batches, each of one sample per prompt"
    )
    batches = parser.parse_args().batches
    torch.set_num_threads(1)
    draw = torch.Generator().manual_seed(1)
    means = torch.randn(PROMPTS, KINDS, int(np.prod(SHAPE)), generator=draw, dtype=torch.float64)
    print(
        "| guidance | strength | kinds per prompt | rare ones | distance |\n|---|---:|---:|---:|---:|"
    )
    for label, settings in ROWS:
        score = label.split(",")[0].replace("none", "rke")
        guide = DiversityGuidance.preset(score, **settings)
        kinds, distance = sample(guide, means, batches, {} if "same step" in label else None)
        per_prompt = np.mean([float(vendi(column, kernel=Categorical())) for column in kinds.T])
        print(
            f"| {label} | {guide.strength:g} | {per_prompt:.2f} | {np.mean(kinds > 0):.2f} | {distance:.2f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
