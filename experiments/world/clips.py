"""Moving digits as clips of eight frames, from three generators: still, drifting and free.

A prompt names a digit and a direction: "a seven moving left". All generators show the digit that it
names, as the diffusion model of `digits.py` draws it in white ink. `still` leaves it in the middle.
`drifting` moves it in the named direction, from a place and at a speed of its own choice. `free`
moves it along a path of its own choice, whatever the direction in the prompt.

Clips are embedded by a small network of three-dimensional convolutions, which learns to name the
digit and the motion of clips of real digits. It stands in for I3D, which learns to name actions in
the same way: unlike an average of frames, it sees motion.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
import torch
from torch import nn

from experiments.world.digits import DIGITS, digit_model, real_images
from experiments.world.stored import stored

FRAMES = 8
SIDE = 16
IMAGE_SIDE = 8
ROOM = SIDE - IMAGE_SIDE

# Steps to the right and downwards.
DIRECTIONS = {"up": (0, -1), "down": (0, 1), "left": (-1, 0), "right": (1, 0)}

GENERATORS = ("still", "drifting", "free")

# Pixels from frame to frame.
_SLOWEST, _FASTEST = 0.4, 1.0

_BATCH = 500


@dataclass(frozen=True)
class Training:
    """Everything that the weights depend on."""

    steps: int = 2500
    batch: int = 96
    rate: float = 4e-3
    seed: int = 0


TRAINING = Training()


def prompts() -> list[str]:
    """All 40 prompts, by digit and direction."""
    return [f"a {digit} moving {direction}" for digit in DIGITS for direction in DIRECTIONS]


def parsed(prompt: str) -> tuple[int, int]:
    """The numbers of the digit and the direction that a prompt names."""
    _, digit, _, direction = prompt.split()
    return DIGITS.index(digit), list(DIRECTIONS).index(direction)


def paths(generator: str, directions: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Where the upper left corner of the digit is in each frame, shape (n, frames, 2).

    Parameters
    ----------
    generator
        One of `GENERATORS`.
    directions
        Numbers of the named directions, shape (n,).
    rng
        Of places, speeds and turns.
    """
    n = len(directions)
    if generator == "still":
        return np.full((n, FRAMES, 2), ROOM / 2)
    if generator == "free":
        return _walks(n, rng)
    steps = np.array(list(DIRECTIONS.values()))[directions]
    travelled = rng.uniform(_SLOWEST, _FASTEST, n)[:, None] * np.arange(FRAMES)
    moves = travelled[:, :, None] * steps[:, None, :]
    # The whole path lies inside the frame, wherever it begins.
    lowest = -moves.min(axis=1)
    highest = ROOM - moves.max(axis=1)
    return rng.uniform(lowest, highest)[:, None, :] + moves


def _walks(n: int, rng: np.random.Generator) -> np.ndarray:
    """Paths in any direction that turn now and then, and bounce off the edges."""
    heading = rng.uniform(0, 2 * np.pi, n)[:, None] + rng.normal(0, 0.3, (n, FRAMES)).cumsum(axis=1)
    speed = rng.uniform(0, 1.5 * _FASTEST, n)[:, None]
    moves = np.stack([speed * np.cos(heading), speed * np.sin(heading)], axis=2)
    free = rng.uniform(0, ROOM, (n, 1, 2)) + moves.cumsum(axis=1)
    # A triangle wave reflects what leaves the frame.
    return ROOM - np.abs(free % (2 * ROOM) - ROOM)


def rendered(images: np.ndarray, corners: np.ndarray) -> np.ndarray:
    """Clips of digits that move, shape (n, frames, 16, 16), with ink 1 on ground 0.

    Parameters
    ----------
    images
        Digits in white ink, 64 pixels in [-1, 1].
    corners
        Their upper left corners in each frame, as `paths` returns them. Between two pixels, ink is
        divided among both.
    """
    strokes = (np.asarray(images, np.float32).reshape(-1, IMAGE_SIDE, IMAGE_SIDE) + 1) / 2
    shifts = np.asarray(corners, np.float32)[..., None, None]
    offsets = np.subtract.outer(np.arange(SIDE), np.arange(IMAGE_SIDE)).astype(np.float32)
    share = np.maximum(0, 1 - np.abs(offsets - shifts))
    along_x, along_y = share[:, :, 0], share[:, :, 1]
    return along_y @ strokes[:, None] @ along_x.swapaxes(2, 3)


def generated(generator: str, sentences: Sequence[str], seed: int = 0) -> np.ndarray:
    """A clip for each prompt, by the generator of this name."""
    digits, directions = np.array([parsed(sentence) for sentence in sentences]).T
    images = digit_model().generate([f"a white {DIGITS[digit]}" for digit in digits], seed=seed)
    rng = np.random.default_rng([seed, GENERATORS.index(generator)])
    return rendered(images, paths(generator, directions, rng))


class Watcher(nn.Module):
    """Names the digit and the motion of a clip; the layer before embeds it."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv3d(1, 12, 3, stride=(1, 2, 2), padding=1),
            nn.ReLU(),
            nn.Conv3d(12, 24, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.Conv3d(24, 32, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(256, 64),
            nn.LayerNorm(64, elementwise_affine=False),
        )
        self.digit = nn.Linear(64, len(DIGITS))
        # A clip may also stand still.
        self.motion = nn.Linear(64, len(DIRECTIONS) + 1)

    @torch.no_grad()
    def features(self, clips: np.ndarray) -> np.ndarray:
        """Embeddings of clips, 64 wide and all of the same length."""
        parts = []
        for start in range(0, len(clips), _BATCH):
            part = torch.tensor(clips[start : start + _BATCH], dtype=torch.float32)
            parts.append(self.body(part[:, None]))
        return torch.cat(parts).numpy()


@cache
def _white_digits() -> tuple[np.ndarray, np.ndarray]:
    images, digits, inks = real_images()
    return images[inks == 0], digits[inks == 0]


def training_clips(
    count: int, rng: np.random.Generator, *, held_out: bool = False
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Clips of real digits, their digits and their motions; the last motion is none.

    One real image in five is held out of the training.
    """
    images, digits = _white_digits()
    is_held_out = np.arange(len(images)) % 5 == 0
    rows = rng.choice(np.flatnonzero(is_held_out == held_out), count)
    motions = rng.integers(len(DIRECTIONS) + 1, size=count)
    corners = paths("drifting", motions % len(DIRECTIONS), rng)
    is_still = motions == len(DIRECTIONS)
    corners[is_still] = corners[is_still, :1]
    return rendered(images[rows], corners), digits[rows], motions


def train(training: Training) -> Watcher:
    """A network that has watched clips of real digits."""
    rng = np.random.default_rng(training.seed)
    with torch.random.fork_rng():
        torch.manual_seed(training.seed)
        watcher = Watcher()
        optimiser = torch.optim.AdamW(watcher.parameters(), training.rate)
        rate = torch.optim.lr_scheduler.OneCycleLR(
            optimiser, training.rate, total_steps=training.steps
        )
        for _ in range(training.steps):
            clips, digits, motions = training_clips(training.batch, rng)
            noisy = torch.tensor(clips) + 0.1 * torch.randn(clips.shape)
            features = watcher.body(noisy[:, None])
            loss = nn.functional.cross_entropy(watcher.digit(features), torch.tensor(digits))
            loss = loss + nn.functional.cross_entropy(
                watcher.motion(features), torch.tensor(motions)
            )
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            rate.step()
    return watcher.eval()


@cache
def clip_watcher() -> Watcher:
    """The trained embedding of clips; training takes about a minute, once."""
    # Sums over two threads round differently, and a network this small does not gain from them.
    torch.set_num_threads(1)

    def weights() -> dict[str, np.ndarray]:
        state = train(TRAINING).state_dict()
        return {name: value.numpy() for name, value in state.items()}

    found = stored(sys.modules[__name__], TRAINING, weights)
    watcher = Watcher()
    watcher.load_state_dict({name: torch.tensor(value) for name, value in found.items()})
    return watcher.eval()
