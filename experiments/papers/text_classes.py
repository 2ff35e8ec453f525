"""Texts about more and more subjects."""

import numpy as np

from experiments.papers.base import TRUNCATED, Outcome, Request, experiment
from experiments.papers.class_counts import loaded, outcome
from experiments.world.digits import embed
from experiments.world.grammar import GENRES, SUBJECTS, prompt
from experiments.world.stories import story_model

COUNTS = (1, 2, 5, 10, 15, 20)


@experiment(
    "text-classes",
    TRUNCATED,
    "Fig. 9",
    claim=(
        "The truncated Vendi score of texts grows with the number of countries that they are "
        "about, at orders 1, 1.5 and 2. Nystrom and FKEA scores of the same rank stay close to it."
    ),
    stand_in=(
        "Stories of a recurrent network about 1 to 20 subjects for texts of GPT-4 about 100 "
        "countries. As in the paper, t is half the number of texts."
    ),
    data="a folder or file that `divprism.load` reads; texts of the same prompt are a class",
)
def text_classes(request: Request) -> Outcome:
    """Scores of the same number of stories about the first subjects."""
    if request.data is not None:
        return outcome(*loaded(request.data), "classes")
    n = request.choose(600, 200)
    genres, subjects = list(GENRES), list(SUBJECTS)

    def features_of(count: int, seed: int) -> np.ndarray:
        rng = np.random.default_rng(seed)
        chosen = rng.permutation(np.arange(n) % count)
        # Genres are as varied whatever the number of subjects.
        asked = [prompt(genres[row % len(genres)], subjects[own]) for row, own in enumerate(chosen)]
        return embed(story_model().generate(asked, seed=seed))

    return outcome(COUNTS, features_of, "subjects")
