"""A text-to-image model of handwritten digits in three inks, with vague and specific prompts.

A diffusion model learns the 1,797 digits of scikit-learn, each in white, black and grey ink, from
sentences that say all, some or nothing of what an image shows: "a black seven", "a seven", "an odd
digit", "a digit". What a prompt leaves open the model decides, so that the diversity that it adds
is known. A judge, a classifier of real images, sees which digit and which ink an image shows.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
import torch
from diffusers import DPMSolverMultistepScheduler
from sklearn.datasets import load_digits

import divprism as dp
from experiments.world.networks import (
    PIXELS,
    Denoiser,
    Judge,
    Pictures,
    Pipeline,
    schedule,
    train_denoiser,
)
from experiments.world.stored import stored

DIGITS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
INKS = ("white", "black", "grey")

# Steps of DPM-Solver++, and images that are made at the same time.
_SAMPLING_STEPS = 20
_BATCH = 2000

# Directions of the vectors of sentences that are kept: about as many as there are words.
_DIRECTIONS = 20


@dataclass(frozen=True)
class Training:
    """Everything that the weights depend on."""

    steps: int
    batch: int
    width: int = 192
    judge_steps: int = 3000
    seed: int = 0


TRAINING = Training(steps=8000, batch=128)


def parity(digit: int) -> str:
    """Whether a digit is even or odd."""
    return ("even", "odd")[digit % 2]


def sentences(digit: int, ink: int) -> list[str]:
    """All that may be said about an image, from everything to nothing."""
    name, colour, kind = DIGITS[digit], INKS[ink], parity(digit)
    return [
        f"a {colour} {name}",
        f"a handwritten {colour} {name}",
        f"a {name}",
        f"a handwritten {name}",
        f"a {colour} digit",
        f"an {kind} digit",
        "a digit",
        "a handwritten digit",
    ]


@dataclass(frozen=True, eq=False)
class DigitModel:
    """The generator and the judge."""

    denoiser: Denoiser
    judge: Judge

    def generate(
        self,
        prompts: Sequence[str],
        *,
        seed: int = 0,
        psi: float = 1.0,
        guidance_scale: float = 2.0,
    ) -> np.ndarray:
        """One image of 64 pixels for each prompt.

        Parameters
        ----------
        prompts
            Sentences.
        seed
            Of the noise.
        psi
            Scale of the noise that the sampler starts from. Below one, images are more typical and
            less diverse, as with the truncation trick of other generators.
        guidance_scale
            Weight of the prompts in classifier-free guidance.
        """
        generator = torch.Generator().manual_seed(seed)
        noise = psi * torch.randn(len(prompts), PIXELS, generator=generator)
        distinct = sorted(set(prompts))
        vectors = torch.tensor(_conditions(distinct))
        rows = torch.tensor([distinct.index(prompt) for prompt in prompts])
        pipe = Pipeline(
            self.denoiser, schedule(DPMSolverMultistepScheduler), _SAMPLING_STEPS, guidance_scale
        )
        batches = []
        for start in range(0, len(prompts), _BATCH):
            part = slice(start, start + _BATCH)
            batches.append(pipe(noise[part], vectors[rows[part]]).clamp(-1, 1))
        return torch.cat(batches).numpy()

    def features(self, images: np.ndarray) -> np.ndarray:
        """Features of the judge, 64 wide."""
        return self.judge.look(torch.tensor(images))[0]

    def seen(self, images: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The digit and the ink that the judge sees in each image."""
        _, kinds = self.judge.look(torch.tensor(images))
        return kinds % len(DIGITS), kinds // len(DIGITS)


@cache
def _embedder() -> dp.WordLlama:
    return dp.WordLlama()


def embed(texts: Sequence[str]) -> np.ndarray:
    """Vectors of sentences, by the default embedder of divprism."""
    return np.asarray(_embedder().embed_batch(list(texts)), np.float32)


@cache
def _all_sentences() -> tuple[str, ...]:
    """Every sentence that the model has learned, once."""
    said = set()
    for ink in range(len(INKS)):
        for digit in range(len(DIGITS)):
            said.update(sentences(digit, ink))
    return tuple(sorted(said))


def _conditions(texts: Sequence[str]) -> np.ndarray:
    """Vectors of sentences as the denoiser takes them: their main directions, at equal scale."""
    # Sentences share most of their words, and vectors of numbers are alike: as they are, a small
    # network learns the ink and hardly the digit.
    learned = embed(_all_sentences())
    centre = learned.mean(axis=0)
    _, scales, directions = np.linalg.svd(learned - centre, full_matrices=False)
    kept = slice(0, _DIRECTIONS)
    spread = scales[kept] / len(learned) ** 0.5
    # The denoiser multiplies its conditions by four.
    return (embed(texts) - centre) @ directions[kept].T / (4 * spread)


def real_images() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """All images in all inks, their digits and their inks."""
    dataset = load_digits()
    # Grey levels run from 0 to 16.
    white = np.asarray(dataset.data / 8 - 1, np.float32)
    inks = [white, -white, 0.4 * white]
    images = np.concatenate(inks)
    digits = np.tile(dataset.target, len(INKS))
    return images, digits, np.repeat(np.arange(len(INKS)), len(white))


def _pictures() -> Pictures:
    images, digits, inks = real_images()
    said = [sentences(digit, ink) for ink in range(len(INKS)) for digit in range(len(DIGITS))]
    distinct = _all_sentences()
    table = [[distinct.index(sentence) for sentence in each] for each in said]
    return Pictures(
        images=torch.tensor(images),
        labels=torch.tensor(inks * len(DIGITS) + digits),
        prompts=torch.tensor(_conditions(distinct)),
        sentences=torch.tensor(table),
    )


def _trained(training: Training) -> dict[str, np.ndarray]:
    """The weights of both networks."""
    with torch.random.fork_rng():
        torch.manual_seed(training.seed)
        pictures = _pictures()
        denoiser = train_denoiser(
            pictures, width=training.width, steps=training.steps, batch=training.batch
        )
        judge = Judge(pictures, training.judge_steps)
    weights = {f"denoiser.{name}": value.numpy() for name, value in denoiser.state_dict().items()}
    for part in ("body", "head"):
        for name, value in getattr(judge, part).state_dict().items():
            weights[f"{part}.{name}"] = value.numpy()
    return weights


@cache
def digit_model() -> DigitModel:
    """The trained model; training takes a minute, once."""
    # Sums over two threads round differently, and networks this small do not gain from them.
    torch.set_num_threads(1)
    weights = stored(sys.modules[__name__], TRAINING, lambda: _trained(TRAINING))
    pictures = _pictures()
    denoiser = Denoiser(TRAINING.width, pictures.prompts.shape[1])
    denoiser.load_state_dict(_under("denoiser", weights))
    with torch.random.fork_rng():
        judge = Judge(pictures, steps=0)
    judge.body.load_state_dict(_under("body", weights))
    judge.head.load_state_dict(_under("head", weights))
    judge.rescale(pictures)
    return DigitModel(denoiser.eval(), judge)


def _under(name: str, weights: dict[str, np.ndarray]) -> dict[str, torch.Tensor]:
    """Weights whose names begin with a word, without it."""
    found = {}
    for key, value in weights.items():
        first, _, rest = key.partition(".")
        if first == name:
            found[rest] = torch.tensor(value)
    return found
