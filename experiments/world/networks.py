"""The two networks behind the digits: a denoiser and a judge. Both train on one core."""

import math
from dataclasses import dataclass

import numpy as np
import torch
from diffusers import DDPMScheduler, DPMSolverMultistepScheduler
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

PIXELS = 64


@dataclass(frozen=True, eq=False)
class Pictures:
    """Images to learn from, and the sentences that may be said about each.

    Attributes
    ----------
    images : Tensor of shape (n, 64)
        Pixels in [-1, 1].
    labels : Tensor of shape (n,)
        The kind of each image.
    prompts : Tensor of shape (m, d)
        Embeddings of all sentences.
    sentences : Tensor of shape (kinds, k)
        For each kind, the rows of `prompts` that describe it.
    """

    images: torch.Tensor
    labels: torch.Tensor
    prompts: torch.Tensor
    sentences: torch.Tensor


class Denoiser(nn.Module):
    """A residual network on 64 pixels, conditioned on the time and the prompt."""

    def __init__(self, width: int, prompt_width: int) -> None:
        super().__init__()
        self.register_buffer("frequencies", torch.exp(torch.linspace(0, -math.log(1e4), 32)))
        self.condition = nn.Sequential(
            nn.Linear(64 + prompt_width, width), nn.SiLU(), nn.Linear(width, width)
        )
        self.first = nn.Linear(PIXELS, width)
        self.blocks = nn.ModuleList(
            nn.Sequential(
                nn.LayerNorm(width), nn.Linear(width, width), nn.SiLU(), nn.Linear(width, width)
            )
            for _ in range(3)
        )
        self.last = nn.Linear(width, PIXELS)

    def forward(
        self, latents: torch.Tensor, times: torch.Tensor, prompts: torch.Tensor
    ) -> torch.Tensor:
        """Return the velocity, which the schedulers take as the prediction."""
        angles = times[:, None].float() * self.frequencies
        condition = self.condition(torch.cat([angles.sin(), angles.cos(), 4 * prompts], dim=1))
        hidden = self.first(latents)
        for block in self.blocks:
            hidden = hidden + block(hidden + condition)
        return self.last(hidden)


def schedule(kind: type) -> DDPMScheduler | DPMSolverMultistepScheduler:
    """A scheduler of diffusers for these networks."""
    return kind(1000, beta_schedule="squaredcos_cap_v2", prediction_type="v_prediction")


def train_denoiser(pictures: Pictures, *, width: int, steps: int, batch: int) -> Denoiser:
    """Return a trained denoiser, with a moving average of its weights.

    One prompt in ten is left out in training, for classifier-free guidance.
    """
    model = Denoiser(width, pictures.prompts.shape[1])
    average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.98))
    noising = schedule(DDPMScheduler)
    per_kind = pictures.sentences.shape[1]
    optimiser = torch.optim.AdamW(model.parameters(), 2e-3, fused=True)
    rate = torch.optim.lr_scheduler.OneCycleLR(optimiser, 2e-3, total_steps=steps)
    for step in range(steps):
        # The order of these calls decides the random numbers, and so the published tables.
        rows = torch.randint(len(pictures.images), (batch,))
        times = torch.randint(1000, (batch,))
        said = pictures.sentences[pictures.labels[rows], torch.randint(per_kind, (batch,))]
        prompts = pictures.prompts[said] * (torch.rand(batch, 1) > 0.1)
        images, noise = pictures.images[rows], torch.randn(batch, PIXELS)
        target = noising.get_velocity(images, noise, times)
        prediction = model(noising.add_noise(images, noise, times), times, prompts)
        loss = nn.functional.mse_loss(prediction, target)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        rate.step()
        if step % 4 == 0:
            average.update_parameters(model)
    return average.module.eval()


@dataclass(frozen=True, eq=False)
class Pipeline:
    """From noise to images, like a pipeline of diffusers: a model, and a scheduler to attach to."""

    model: Denoiser
    scheduler: DPMSolverMultistepScheduler
    steps: int
    prompt_weight: float

    @torch.no_grad()
    def __call__(self, latents: torch.Tensor, prompts: torch.Tensor) -> torch.Tensor:
        """Return the latents at the end of a run."""
        self.scheduler.set_timesteps(self.steps)
        for time in self.scheduler.timesteps:
            velocity = self._velocity(latents, time, prompts)
            latents = self.scheduler.step(velocity, time, latents).prev_sample
        return latents

    def _velocity(
        self, latents: torch.Tensor, time: torch.Tensor, prompts: torch.Tensor
    ) -> torch.Tensor:
        """Return the prediction of the model, moved away from the one without prompts."""
        times = time.repeat(len(latents))
        both = torch.cat([torch.zeros_like(prompts), prompts])
        free, prompted = self.model(latents.repeat(2, 1), times.repeat(2), both).chunk(2)
        return free + self.prompt_weight * (prompted - free)


class Judge:
    """A classifier of real images, whose features compare images.

    One real image in five is held out of its training. The features all have the same length. A
    raw judge also sees pixels beyond black and white, and its features grow with the contrast; they
    are scaled so that those of real images have the same mean square as the usual ones.
    """

    def __init__(self, pictures: Pictures, steps: int, *, raw: bool = False) -> None:
        self.limit = 1.0
        last_layer: nn.Module = nn.LayerNorm(64, elementwise_affine=False)
        if raw:
            self.limit = math.inf
            last_layer = nn.ReLU()
        self.body = nn.Sequential(nn.Linear(PIXELS, 128), nn.ReLU(), nn.Linear(128, 64), last_layer)
        self.head = nn.Linear(64, len(pictures.sentences))
        held_out = torch.arange(len(pictures.images)) % 5 == 0
        self._train(pictures.images[~held_out], pictures.labels[~held_out], steps)
        self.rescale(pictures)

    def rescale(self, pictures: Pictures) -> None:
        """Set the unit of the features, and the accuracy on real images that were held out."""
        with torch.no_grad():
            self.unit = float(self.body(pictures.images).square().mean().sqrt())
        _, seen = self.look(pictures.images)
        is_right = seen == pictures.labels.numpy()
        self.accuracy = float(is_right[::5].mean())

    def _train(self, images: torch.Tensor, labels: torch.Tensor, steps: int) -> None:
        parameters = [*self.body.parameters(), *self.head.parameters()]
        optimiser = torch.optim.AdamW(parameters, 1e-3, weight_decay=0.05)
        for _ in range(steps):
            rows = torch.randint(len(images), (128,))
            noisy = images[rows] + 0.2 * torch.randn(128, PIXELS)
            loss = nn.functional.cross_entropy(self.head(self.body(noisy)), labels[rows])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()

    @torch.no_grad()
    def look(self, images: torch.Tensor) -> tuple[np.ndarray, np.ndarray]:
        """Return the features of images, and the kind that each shows."""
        features = self.body(images)
        return (features / self.unit).numpy(), self.head(features).argmax(dim=1).numpy()
