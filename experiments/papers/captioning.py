"""Captions of the same images by captioners that say more and more, or do not look."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

import divprism as dp
from divprism.report.table import Column, Table
from experiments.papers.base import (
    CONDITIONAL,
    TITLES,
    UNTESTED,
    Outcome,
    Request,
    but_not,
    experiment,
    is_saturated,
    judged,
)
from experiments.papers.plots import legend, lines, panels
from experiments.world.captions import CAPTIONERS, captions, view
from experiments.world.digits import digit_model, real_images

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SCORES = ("conditional_vendi", "information_vendi", "conditional_rke", "information_rke")

# Of the captions; the paper uses 0.1 to 0.8 for texts. At 0.4 and less nearly every real caption
# is a kind of its own.
BANDWIDTHS = (0.2, 0.4, 0.8)
_REAL_BANDWIDTHS = (0.4, 0.8, 1.2)

# The same scores of BLIP-2, GIT and GPT4o-mini, as published in Fig. 20.
_PUBLISHED = {
    "conditional_vendi": (4.09, 10.9, 13.1),
    "information_vendi": (2.28, 3.28, 3.98),
    "conditional_rke": (2.53, 6.47, 7.82),
    "information_rke": (1.80, 2.41, 2.93),
}

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
    n: int
    words: float
    scores: dict[str, float]
    excess: float
    p_value: float

    @property
    def sees(self) -> bool:
        """Whether the captioner looks at the image and says what it sees."""
        return self.captioner not in (*_BLIND, *_CONSTANT)

    @property
    def is_saturated(self) -> bool:
        """Whether nearly every caption counts as a kind of its own."""
        vendi = self.scores["conditional_vendi"] * self.scores["information_vendi"]
        return is_saturated(vendi, self.n)

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
        "Conditional-Vendi and Information-Vendi. The numbers of the figure rise from BLIP-2 to "
        "GIT to GPT4o-mini for both scores, and for Conditional- and Information-RKE. What is "
        "tested: all four grow with the length of captions that say more and more about the image."
    ),
    stand_in=(
        "Real handwritten digits for ImageNet, and captioners of a known level of detail for "
        "BLIP-2, GIT and GPT4o-mini. The features of a classifier of digits are the prompts. "
        "Beyond the paper, and not judged: a captioner that does not look should have no more "
        "Information than shuffled pairs, and a constant one Conditional-Vendi 1."
    ),
    data="a folder with JSON Lines of model, prompt (a text in place of the image) and output",
)
def captioning(request: Request) -> Outcome:
    """Scores of captioners, the images being the prompts."""
    if request.data is None:
        samples, bandwidths = _captions(request.choose(1500, 500)), BANDWIDTHS
    else:
        samples, bandwidths = _one_each(request.data, request.choose(1000, 400)), _REAL_BANDWIDTHS
    words = {name: _words(part) for name, part in samples.by_model().items()}
    embedded = dp.embed(samples)
    found: list[Found] = []
    for bandwidth in bandwidths:
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
            n = int(result.data["n"])
            found.append(Found(bandwidth, name, n, words[name], scores, excess, p_value))
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
    """Check that longer captions have more of each score, where scores are not saturated."""
    quoted = _bandwidths(found)[1]
    looking = [each for each in found if each.sees and each.bandwidth == quoted]
    order = " < ".join(each.captioner for each in looking)
    words = [each.words for each in looking]
    if max(words) < _LONGER * min(words):
        reason = (
            f"The captioners that look at the image ({order}) write {min(words):.1f} to "
            f"{max(words):.1f} words on average: none is clearly longer, and how detailed or "
            "diverse they are is not known, so that there is no order to test. The others write "
            f"without looking, or always the same.{_left_out(found)} {_beyond(found, quoted)}"
        )
        return UNTESTED, reason
    claims = {}
    for score in SCORES:
        for bandwidth in _bandwidths(found):
            own = [each for each in found if each.sees and each.bandwidth == bandwidth]
            if any(each.is_saturated for each in own):
                continue
            values = [each.scores[score] for each in own]
            in_order = all(later > sooner for sooner, later in pairwise(values))
            part = f"{TITLES[score]} in this order at bandwidth {bandwidth} ({_listed(values)})"
            claims[part] = in_order
    verdict, failed = judged(claims)
    told = []
    for score in SCORES:
        values = [each.scores[score] for each in looking]
        told.append(f"{TITLES[score]} {_listed(values)} (published {_listed(_PUBLISHED[score])})")
    reason = (
        f"By length, {order}; at bandwidth {quoted} of the captions and n = {looking[0].n:,} "
        f"images, {'; '.join(told)}.{but_not(failed)}{_left_out(found)} {_beyond(found, quoted)}"
    )
    return verdict, reason


def _bandwidths(found: list[Found]) -> list[float]:
    return sorted({each.bandwidth for each in found})


def _listed(values: Sequence[float]) -> str:
    return ", ".join(f"{value:.2f}" for value in values)


def _left_out(found: list[Found]) -> str:
    """A sentence on saturated scores; empty if there are none."""
    full: dict[float, list[str]] = {}
    for each in found:
        if each.sees and each.is_saturated:
            full.setdefault(each.bandwidth, []).append(each.captioner)
    if not full:
        return ""
    parts = [f"{' and '.join(names)} at bandwidth {where}" for where, names in full.items()]
    return f" Saturated: {'; '.join(parts)}. Nothing is judged at these bandwidths."


def _beyond(found: list[Found], quoted: float) -> str:
    """How much each captioner reveals about its images, beyond chance."""
    told = []
    shown = [each for each in found if each.bandwidth == quoted]
    for each in shown:
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
        f"Beyond the paper, at bandwidth {quoted}: {'; '.join(told)}. With one caption to an "
        "image, Information grows with the variety of the captions whether they fit the images or "
        "not: only the excess over shuffled pairs shows who looks."
    )
    wrong = [each for each in found if not each.is_as_known]
    if wrong:
        names = ", ".join(f"{each.captioner} at bandwidth {each.bandwidth}" for each in wrong)
        text += f" Not as known: {names}."
    excess = [each.excess for each in shown if each.sees]
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
        lines(ax, _bandwidths(found), curves, title=TITLES[score], **given)
    legend(figure)
    return figure
