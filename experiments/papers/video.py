"""Clips of three generators of known motion."""

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
    judged,
)
from experiments.papers.plots import bars, panels
from experiments.world.clips import GENERATORS, clip_watcher, generated, prompts

SCORES = ("conditional_vendi", "information_vendi", "conditional_rke", "information_rke")

# Random pairings of videos with prompts, for comparison.
_SHUFFLES = 19

# A score, and two generators of which the second has more of it: by the paper, and beyond it.
_CLAIMED = (
    ("conditional_vendi", "still", "drifting"),
    ("information_vendi", "still", "drifting"),
)
_BEYOND = (
    ("conditional_vendi", "drifting", "free"),
    ("information_vendi", "free", "drifting"),
)


@experiment(
    "fig8",
    CONDITIONAL,
    "Fig. 8, 22",
    claim=(
        "VideoCrafter-1, whose videos look less diverse and sometimes do not follow the captions, "
        "has a lower Conditional-Vendi and a lower Information-Vendi than Open-Sora-1.2."
    ),
    stand_in=(
        "Generators of moving digits: still, for VideoCrafter-1, ignores the direction in the "
        "prompt, and does not move; drifting, for Open-Sora-1.2, follows it, from any place at any "
        "speed. Beyond the paper: free moves as it likes, so that it is more diverse and follows "
        "the prompt less. A small network of three-dimensional convolutions that names digits and "
        "motions stands in for I3D."
    ),
    data=(
        "a folder that `divprism.load` reads, with videos, prompts and models; the default "
        "embedder averages over frames, so it does not see motion"
    ),
)
def video(request: Request) -> Outcome:
    """Scores of each generator on the same prompts."""
    if request.data is None:
        samples = _clips(request.choose(50, 10))
    else:
        samples = dp.embed(dp.load(request.data))
    results = dp.evaluate_models(
        samples, bandwidth_rule=dp.StableScore(), num_permutations=_SHUFFLES
    )
    rows = []
    for name, found in results.items():
        scores = [float(found.scores[score]) for score in SCORES]
        assert found.baseline is not None
        rows.append((name, found.data["n"], *scores, found.baseline.excess_information))
    return _judged(rows, one_each=_is_one_each(samples))


def _is_one_each(samples: dp.Samples) -> bool:
    """Whether no model has two videos of a prompt."""
    given = samples.given or samples
    asked = [getattr(prompt, "label", None) for prompt in given.prompts or ()]
    pairs = list(zip(samples.models or (), asked, strict=True))
    return len(set(pairs)) == len(pairs)


def _clips(per_prompt: int) -> dp.Samples:
    """Embedded clips of each generator, and their prompts."""
    asked = prompts() * per_prompt
    features = [clip_watcher().features(generated(name, asked)) for name in GENERATORS]
    models = np.repeat(GENERATORS, len(asked))
    return dp.Samples(np.concatenate(features), asked * len(GENERATORS), tuple(models))


def _judged(rows: list[tuple], *, one_each: bool) -> Outcome:
    values = {row[0]: dict(zip(SCORES, row[2:], strict=False)) for row in rows}
    columns = [Column("generator", "generator"), Column("n", "videos", "d")]
    columns += [Column(score, TITLES[score], ".2f") for score in SCORES]
    columns.append(Column("excess", "nats over shuffled", "+.3f"))
    figure, axes = panels(4, 2)
    for ax, score in zip(axes, SCORES, strict=True):
        own = {name: scores[score] for name, scores in values.items()}
        bars(ax, own, title=TITLES[score], xlabel="score", named=ax in axes[::2])
    table = Table(tuple(columns), tuple(rows))
    if set(values) != set(GENERATORS):
        return Outcome(UNTESTED, _unknown(rows, one_each=one_each), table, figure)
    claims = dict(_compared(values, *each) for each in _CLAIMED)
    verdict, failed = judged(claims)
    beyond = []
    for each in _BEYOND:
        part, holds = _compared(values, *each)
        beyond.append(f"{part}, {('not as known', 'as known')[holds]} of the generators")
    reason = (
        f"{'; '.join(claims)}.{but_not(failed)} n = {rows[0][1]:,} videos of each generator. "
        f"Beyond the paper, {'; '.join(beyond)}."
    )
    return Outcome(verdict, reason, table, figure)


def _compared(
    values: dict[str, dict[str, float]], score: str, less: str, more: str
) -> tuple[str, bool]:
    """The values of a score for two generators in words, and whether the second is higher."""
    low, high = values[less][score], values[more][score]
    return f"{TITLES[score]} of {less} {low:.2f}, of {more} {high:.2f}", low < high


def _unknown(rows: list[tuple], *, one_each: bool) -> str:
    """Why the claim cannot be tested on these models."""
    counts = [row[1] for row in rows]
    excess = [row[-1] for row in rows]
    reason = (
        "How diverse these models are is not known, so that no order of them is right or wrong; "
        "the table shows their scores."
    )
    if one_each:
        reason += (
            f" Nor is there enough to see: {min(counts)} to {max(counts)} videos of each, one for "
            "a prompt, so that nothing shows how much videos of the same prompt differ. With the "
            "same videos and prompts paired at random, Information-Vendi is lower by only "
            f"{min(excess):.3f} to {max(excess):.3f} nats."
        )
    return reason
