"""A text generator with a real temperature: short stories of ten genres about twenty subjects.

A recurrent network (a GRU) learns stories from a probabilistic grammar, word by word, together with
the genre and the subject that the prompt names. It samples each word from a softmax at a given
temperature, as language models do: near zero it tells the likeliest story of a prompt, at one it
tells stories about as varied as those of the grammar, and above one it also leaves the grammar.
"""

import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
import torch
from torch import nn

from experiments.world.grammar import GENRES, STORY, SUBJECTS, capitalised, parsed, prompt, told
from experiments.world.stored import stored

# The longest story, in words and signs, and how many are written at the same time.
LONGEST = 90
_BATCH = 2000


@dataclass(frozen=True)
class Training:
    """Everything that the weights depend on, beside the grammar."""

    steps: int = 800
    batch: int = 64
    width: int = 160
    stories: int = 20_000
    rate: float = 5e-3
    seed: int = 0


TRAINING = Training()


def prompts() -> list[str]:
    """All 200 prompts, by genre and subject."""
    return [prompt(genre, subject) for genre in GENRES for subject in SUBJECTS]


def split(text: str) -> list[str]:
    """The words and signs of a text."""
    return re.findall(r"[\w']+|[.,]", text)


def joined(words: Sequence[str]) -> str:
    """The text of words and signs."""
    return capitalised(re.sub(r" ([.,])", r"\1", " ".join(words)))


@cache
def vocabulary() -> tuple[str, ...]:
    """All words of the grammar. The first, an empty one, begins and ends a story."""
    texts = [text for entries in STORY.values() for text in entries]
    for lists in GENRES.values():
        texts += [text for entries in lists.values() for text in entries]
    for noun, details in SUBJECTS.values():
        texts += [noun, *details]
    words = set()
    for text in texts:
        words.update(split(re.sub(r"\{\w+\}", " ", text)))
    return ("", *sorted(words))


class Writer(nn.Module):
    """Predicts the next word from the words so far, the genre and the subject."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.word = nn.Embedding(len(vocabulary()), 64)
        self.genre = nn.Embedding(len(GENRES), 32)
        self.subject = nn.Embedding(len(SUBJECTS), 32)
        self.memory = nn.GRU(128, width, batch_first=True)
        self.next_word = nn.Linear(width, len(vocabulary()))

    def forward(
        self, words: torch.Tensor, topics: torch.Tensor, state: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Logits of the next word after each word, and the state after the last."""
        asked = torch.cat([self.genre(topics[:, 0]), self.subject(topics[:, 1])], dim=1)
        asked = asked[:, None].expand(-1, words.shape[1], -1)
        hidden, state = self.memory(torch.cat([self.word(words), asked], dim=2), state)
        return self.next_word(hidden), state


@dataclass(frozen=True, eq=False)
class StoryModel:
    """A trained network that writes stories."""

    writer: Writer

    @torch.no_grad()
    def generate(
        self, sentences: Sequence[str], *, temperature: float = 1.0, seed: int = 0
    ) -> list[str]:
        """One story for each prompt; the likeliest words at temperature 0."""
        generator = torch.Generator().manual_seed(seed)
        topics = torch.tensor([parsed(sentence) for sentence in sentences])
        stories = []
        for start in range(0, len(topics), _BATCH):
            part = topics[start : start + _BATCH]
            stories += self._written(part, temperature, generator)
        return stories

    def _written(
        self, topics: torch.Tensor, temperature: float, generator: torch.Generator
    ) -> list[str]:
        words = torch.zeros(len(topics), 1, dtype=torch.long)
        state = None
        written = []
        for _ in range(LONGEST):
            logits, state = self.writer(words, topics, state)
            words = _sampled(logits[:, 0], temperature, generator)
            written.append(words)
        names = vocabulary()
        stories = []
        for row in torch.cat(written, dim=1).tolist():
            # A story ends where the empty word comes, if it does.
            length = (*row, 0).index(0)
            stories.append(joined([names[word] for word in row[:length]]))
        return stories


def _sampled(logits: torch.Tensor, temperature: float, generator: torch.Generator) -> torch.Tensor:
    """A word for each row."""
    if temperature == 0:
        return logits.argmax(dim=1, keepdim=True)
    return torch.multinomial(torch.softmax(logits / temperature, dim=1), 1, generator=generator)


def _library(training: Training) -> tuple[torch.Tensor, torch.Tensor]:
    """Stories of the grammar as numbers of words, padded with zeros, and their topics."""
    rng = np.random.default_rng(training.seed)
    numbers = {word: number for number, word in enumerate(vocabulary())}
    genres, subjects = list(GENRES), list(SUBJECTS)
    topics = rng.integers([len(genres), len(subjects)], size=(training.stories, 2))
    words = np.zeros((training.stories, LONGEST), np.int64)
    for row, (genre, subject) in enumerate(topics):
        story = [numbers[word] for word in split(told(genres[genre], subjects[subject], rng))]
        words[row, : len(story)] = story
    return torch.tensor(words), torch.tensor(topics)


def train(training: Training) -> Writer:
    """A network that has read the stories of the grammar."""
    with torch.random.fork_rng():
        torch.manual_seed(training.seed)
        writer = Writer(training.width)
        words, topics = _library(training)
        # Stories are padded with the empty word, which none of them contains.
        lengths = (words > 0).sum(dim=1)
        optimiser = torch.optim.Adam(writer.parameters(), training.rate)
        rate = torch.optim.lr_scheduler.OneCycleLR(
            optimiser, training.rate, total_steps=training.steps
        )
        for _ in range(training.steps):
            rows = torch.randint(len(words), (training.batch,))
            # The word after the last one is empty: the end is learned too.
            longest = int(lengths[rows].max()) + 1
            target = words[rows, :longest]
            given = torch.cat([torch.zeros(len(rows), 1, dtype=torch.long), target[:, :-1]], dim=1)
            logits, _ = writer(given, topics[rows])
            is_read = torch.arange(longest) <= lengths[rows, None]
            loss = nn.functional.cross_entropy(logits[is_read], target[is_read])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            rate.step()
    return writer.eval()


@cache
def story_model() -> StoryModel:
    """The trained model; training takes about a minute, once."""
    # Sums over two threads round differently, and a network this small does not gain from them.
    torch.set_num_threads(1)

    def weights() -> dict[str, np.ndarray]:
        state = train(TRAINING).state_dict()
        return {name: value.numpy() for name, value in state.items()}

    # Not only this module: a change of the grammar has to train the network again.
    settings = (TRAINING, GENRES, SUBJECTS, STORY)
    found = stored(sys.modules[__name__], settings, weights)
    writer = Writer(TRAINING.width)
    writer.load_state_dict({name: torch.tensor(value) for name, value in found.items()})
    return StoryModel(writer.eval())
