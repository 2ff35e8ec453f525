"""Captions of the same images by captioners that say more and more, or do not look."""

from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

import divprism as dp
from divprism.report.table import Column, Table
from experiments.papers.base import (
    CONDITIONAL,
    FAILS,
    HOLDS,
    PARTLY,
    TITLES,
    UNTESTED,
    Outcome,
    Request,
    experiment,
)
from experiments.papers.plots import legend, lines, panels
from experiments.world.captions import CAPTIONERS, captions, view
from experiments.world.digits import digit_model, real_images

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SCORES = ("conditional_vendi", "information_vendi", "conditional_rke", "information_rke")

# Of the captions; the paper uses 0.1 to 0.8 for texts.
BANDWIDTHS = (0.2, 0.4, 0.8)

# Of shuffled pairs; with 99 shuffles no p-value is below 0.01.
_SHUFFLES = 99
_SIGNIFICANT = 0.05

# Captions count as longer than others from this ratio of their numbers of words on.
_LONGER = 1.5

# Captioners, here and in the real data, that write without looking or always write the same.
_BLIND = ("blind", "nucleus_unconditional", "top_k_unconditional")
_CONSTANT = ("constant", "constant_contrastive")


@dataclass(frozen=True)
class Found:
    """Scores of a captioner at a bandwidth."""

    bandwidth: float
    captioner: str
    words: float
    scores: dict[str, float]
    excess: float
    p_value: float

    @property
    def sees(self) -> bool:
        """Whether the captioner looks at the image and says what it sees."""
        return self.captioner not in (*_BLIND, *_CONSTANT)

    @property
    def is_in_middle(self) -> bool:
        """Whether the bandwidth is the one that is quoted."""
        return self.bandwidth == BANDWIDTHS[1]

    @property
    def is_as_known(self) -> bool:
        """Whether constant captions count as one, and only who looks exceeds shuffled pairs."""
        if self.captioner in _CONSTANT:
            return abs(self.scores["conditional_vendi"] - 1) < 1e-6
        return (self.p_value < _SIGNIFICANT) == self.sees


@experiment(
    "fig20",
    CONDITIONAL,
    "Fig. 20",
    claim=(
        "GIT writes more diverse captions than BLIP-2 and has a higher Conditional-Vendi; "
        "GPT4o-mini writes longer and more detailed ones than GIT, and has a higher "
        "Conditional-Vendi and Information-Vendi. What is tested: both scores grow with the length "
        "of captions that say more and more about the image. Beyond the paper: a captioner that "
        "does not look has no more Information than shuffled pairs, and a constant one "
        "Conditional-Vendi 1."
    ),
    stand_in=(
        "Real handwritten digits for ImageNet, and captioners of a known level of detail for "
        "BLIP-2, GIT and GPT4o-mini. The features of a classifier of digits are the prompts."
    ),
    data="a folder with JSON Lines of model, prompt (a text in place of the image) and output",
)
def captioning(request: Request) -> Outcome:
    """Scores of captioners, the images being the prompts."""
    if request.data is None:
        samples = _captions(request.choose(1500, 500))
    else:
        samples = _one_each(request.data, request.choose(1000, 400))
    words = {name: _words(part) for name, part in samples.by_model().items()}
    embedded = dp.embed(samples)
    found: list[Found] = []
    for bandwidth in BANDWIDTHS:
        results = dp.evaluate_models(
            embedded,
            kernel_x=dp.Gaussian(bandwidth),
            bandwidth_rule=dp.StableScore(),
            num_permutations=_SHUFFLES,
        )
        for name, result in results.items():
            assert result.baseline is not None
            scores = {score: float(result.scores[score]) for score in SCORES}
            excess, p_value = result.baseline.excess_information, result.baseline.p_value
            found.append(Found(bandwidth, name, words[name], scores, excess, p_value))
    # Captions get longer with the level of detail.
    found.sort(key=lambda each: (each.bandwidth, each.words))
    return _judged(found)


def _words(samples: dp.Samples) -> float:
    """Mean number of words in a caption."""
    assert isinstance(samples.outputs, tuple)
    return float(np.mean([len(caption.label.split()) for caption in samples.outputs]))


def _captions(num_images: int) -> dp.Samples:
    """One caption of each image by each captioner."""
    images, _, _ = real_images()
    chosen = np.random.default_rng(0).choice(len(images), num_images, replace=False)
    model = digit_model()
    views = view(model, images[chosen])
    said: list[str] = []
    models: list[str] = []
    for name in CAPTIONERS:
        said += captions(name, views)
        models += [name] * num_images
    features = np.tile(model.features(images[chosen]), (len(CAPTIONERS), 1))
    return dp.Samples(said, features, tuple(models))


def _one_each(data: Path, num_images: int) -> dp.Samples:
    """The first caption of each image by each captioner, in raw files."""
    samples = dp.load(data)
    assert isinstance(samples.prompts, tuple)
    assert samples.models is not None
    first: dict[tuple[str, str], int] = {}
    for row, (model, prompt) in enumerate(zip(samples.models, samples.prompts, strict=True)):
        first.setdefault((model, prompt.label), row)
    return samples.select(list(first.values())).head(num_images)


def _judged(found: list[Found]) -> Outcome:
    verdict, reason = verdict_of(found)
    return Outcome(verdict, reason, _table(found), _figure(found))


def verdict_of(found: list[Found]) -> tuple[str, str]:
    """Check the order by length, the shuffled pairs and the constant captioner."""
    looking = [each for each in found if each.sees and each.is_in_middle]
    order = " < ".join(each.captioner for each in looking)
    claims = [_in_order(found, score) for score in SCORES[:2]]
    wrong = [each for each in found if not each.is_as_known]
    verdict = FAILS
    if any(claims):
        verdict = PARTLY
    if all(len(claim) == len(BANDWIDTHS) for claim in claims) and not wrong:
        verdict = HOLDS
    parts = []
    for score, claim in zip(SCORES[:2], claims, strict=True):
        said = ", ".join(f"{each.scores[score]:.2f}" for each in looking)
        missing = [f"{bandwidth}" for bandwidth in BANDWIDTHS if bandwidth not in claim]
        kept = "at all bandwidths of the captions"
        if missing:
            kept = f"except at bandwidth {' and '.join(missing)} of the captions"
        parts.append(f"{TITLES[score]} is in this order {kept} ({said} at {BANDWIDTHS[1]})")
    reason = f"By length, {order}: {'; '.join(parts)}."
    words = [each.words for each in looking]
    if max(words) < _LONGER * min(words):
        verdict = UNTESTED
        reason = (
            f"The captioners that look at the image ({order}) write {min(words):.1f} to "
            f"{max(words):.1f} words on average: none is clearly longer, and how detailed or "
            "diverse they are is not known, so that there is no order to test. The others write "
            "without looking, or always the same."
        )
    reason += f" {_beyond(found)}"
    if wrong:
        names = ", ".join(f"{each.captioner} at bandwidth {each.bandwidth}" for each in wrong)
        reason += f" Not as known: {names}."
    return verdict, reason


def _in_order(found: list[Found], score: str) -> list[float]:
    """The bandwidths at which longer captions have more of a score."""
    right = []
    for bandwidth in BANDWIDTHS:
        own = [each for each in found if each.sees and each.bandwidth == bandwidth]
        if all(later.scores[score] > sooner.scores[score] for sooner, later in pairwise(own)):
            right.append(bandwidth)
    return right


def _beyond(found: list[Found]) -> str:
    """How much each captioner reveals about its images, beyond chance."""
    told = []
    for each in found:
        if not each.is_in_middle:
            continue
        if each.captioner in _CONSTANT:
            value = each.scores["conditional_vendi"]
            told.append(f"{each.captioner} has Conditional-Vendi {value:.4f}")
        else:
            value = each.scores["information_vendi"]
            told.append(
                f"{each.captioner} has Information-Vendi {value:.2f}, {each.excess:+.3f} nats over "
                f"shuffled pairs (p = {each.p_value:.2f})"
            )
    text = (
        f"Beyond the paper, at bandwidth {BANDWIDTHS[1]}: {'; '.join(told)}. With one caption to "
        "an image, Information grows with the variety of the captions whether they fit the images "
        "or not: only the excess over shuffled pairs shows who looks."
    )
    excess = [each.excess for each in found if each.sees and each.is_in_middle]
    if excess == sorted(excess, reverse=True):
        text += (
            " The excess falls with the length, probably because the embedder averages words, so "
            "that in a long caption each of them counts less."
        )
    return text


def _table(found: list[Found]) -> Table:
    columns = [
        Column("bandwidth", "bandwidth of captions", ".1f"),
        Column("captioner", "captioner"),
    ]
    columns.append(Column("words", "words", ".1f"))
    columns += [Column(score, TITLES[score], ".2f") for score in SCORES]
    columns += [Column("excess", "nats over shuffled", "+.3f"), Column("p", "p", ".2f")]
    rows = []
    for each in found:
        scores = each.scores.values()
        rows.append(
            (each.bandwidth, each.captioner, each.words, *scores, each.excess, each.p_value)
        )
    return Table(tuple(columns), tuple(rows))


def _figure(found: list[Found]) -> "Figure":
    figure, axes = panels(2)
    for ax, score in zip(axes, SCORES[:2], strict=True):
        curves: dict[str, list[float]] = {}
        for each in found:
            curves.setdefault(each.captioner, []).append(each.scores[score])
        given = {"xlabel": "bandwidth of the captions", "ylabel": "score", "log": True}
        lines(ax, BANDWIDTHS, curves, title=TITLES[score], **given)
    legend(figure)
    return figure
