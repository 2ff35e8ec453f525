"""Clips of more and more classes."""

import numpy as np

from experiments.papers.base import TRUNCATED, Outcome, Request, experiment
from experiments.papers.class_counts import loaded, outcome
from experiments.world.clips import clip_watcher, generated, prompts

COUNTS = (1, 2, 5, 10, 20, 40)


@experiment(
    "video-classes",
    TRUNCATED,
    "Fig. 11",
    claim=(
        "The truncated Vendi score of videos grows with the number of classes, at orders 1, 1.5 "
        "and 2. Nystrom and FKEA scores of the same rank stay close to it."
    ),
    stand_in=(
        "Moving digits for Kinetics-400: a class is a digit and a direction, and 10 digits in 4 "
        "directions are 40 classes. A small network of three-dimensional convolutions stands in "
        "for I3D. As in the paper, t is half the number of videos."
    ),
    data="a folder that `divprism.load` reads; videos of the same prompt are a class",
)
def video_classes(request: Request) -> Outcome:
    """Scores of the same number of clips of the first classes, in a random order."""
    if request.data is not None:
        return outcome(*loaded(request.data), "classes")
    n = request.choose(1000, 300)
    # Neighbours in the list share their digit.
    classes = np.random.default_rng(0).permutation(prompts())

    def features_of(count: int, seed: int) -> np.ndarray:
        asked = [str(classes[row % count]) for row in range(n)]
        return clip_watcher().features(generated("drifting", asked, seed=seed))

    return outcome(COUNTS, features_of, "classes")
