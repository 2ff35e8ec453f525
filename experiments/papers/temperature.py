"""Stories of a text generator at four temperatures."""

import re
from collections import Counter, defaultdict
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from scipy.stats import spearmanr

import divprism as dp
from divprism.report.table import Column, Table
from experiments.papers.base import (
    CONDITIONAL,
    FAILS,
    HOLDS,
    PARTLY,
    TITLES,
    Outcome,
    Request,
    experiment,
    is_saturated,
)
from experiments.papers.plots import legend, lines, panels
from experiments.world.stories import prompts, story_model

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TEMPERATURES = (0.4, 0.7, 1.0, 1.3)

SCORES = ("conditional_vendi", "conditional_rke")

# Of the texts; the paper uses 0.1 to 0.8.
BANDWIDTHS = (0.2, 0.4, 0.8)

# Fields that together name a generator and its temperature; the first that a file has are read.
_FIELDS = ("task,model", "model,temperature")


@dataclass(frozen=True)
class Curve:
    """A score of a generator over the temperature."""

    generator: str
    score: str
    bandwidth: float
    degrees: tuple[float, ...]
    values: tuple[float, ...]
    saturated: tuple[bool, ...]

    @property
    def rises(self) -> bool:
        """Whether it is higher at each temperature than at the one before."""
        return all(later > earlier for earlier, later in pairwise(self.values))

    @property
    def steps(self) -> list[float]:
        """By how much it rises at each step, without those to or from saturated scores."""
        steps = []
        for ends, full in zip(pairwise(self.values), pairwise(self.saturated), strict=True):
            if not any(full):
                steps.append(ends[1] - ends[0])
        return steps

    @property
    def is_tested(self) -> bool:
        """Whether it tests the claim: a rise of a saturated score shows nothing, a fall does."""
        return bool(self.steps) or not self.rises

    @property
    def correlation(self) -> float:
        """The rank correlation with the temperature."""
        return float(spearmanr(self.degrees, self.values).statistic)

    @property
    def name(self) -> str:
        """The score, the generator and the bandwidth."""
        return f"{TITLES[self.score]} of {self.generator} at bandwidth {self.bandwidth}"


@experiment(
    "table2",
    CONDITIONAL,
    "Table 2, 4, 5",
    claim="Conditional-Vendi and Conditional-RKE of stories rise with the temperature.",
    stand_in=(
        "A recurrent network that learned a grammar of stories, in place of Llama 2, Gemma 3 and "
        "Phi 4 Mini. As in the paper there are 10 genres with 20 subjects each, and t is half the "
        "number of stories."
    ),
    data=(
        "a folder with JSON Lines of model, temperature, prompt and output (or task and model, "
        "where the model is named after a range of temperatures)"
    ),
)
def temperature(request: Request) -> Outcome:
    """Scores by generator and temperature, with the same bandwidths for all."""
    if request.data is None:
        samples = _stories(request.choose(10, 3))
    else:
        samples = _equal(_loaded(request.data), request.choose(2000, 500))
    assert samples.models is not None
    num_texts = min(Counter(samples.models).values())
    distinct = {_named(name): _distinct(part) for name, part in samples.by_model().items()}
    embedded = dp.embed(samples)
    cells: dict[tuple[str, float], dict[tuple[str, float], float]] = {}
    full: dict[tuple[str, float, float], bool] = {}
    for bandwidth in BANDWIDTHS:
        results = dp.evaluate_models(
            embedded,
            kernel_x=dp.Gaussian(bandwidth),
            truncation=num_texts // 2,
            num_permutations=0,
        )
        for name, found in results.items():
            for score in SCORES:
                own = cells.setdefault(_named(name), {})
                own[score, bandwidth] = float(found.scores[score])
            full[(*_named(name), bandwidth)] = is_saturated(float(found.vendi), num_texts // 2)
    prompt_bandwidth = found.settings.kernel_t.bandwidth
    given = (
        f"{num_texts:,} texts at each temperature, t = {num_texts // 2:,}, bandwidth of prompts "
    )
    given += f"{prompt_bandwidth:.2f} by the default rule."
    return _judged(cells, _curves(cells, full), distinct, given)


def _named(model: str) -> tuple[str, float]:
    """The generator and the temperature of a model such as "llama / 0.4"."""
    generator, _, degree = model.rpartition(" / ")
    number = re.search(r"\d+(\.\d+)?", degree)
    if number is None:
        raise dp.DataError(f"the temperature of {model!r} is not a number.")
    return generator, float(number[0])


def _stories(per_prompt: int) -> dp.Samples:
    """Stories of the network for each prompt at each temperature."""
    asked = prompts() * per_prompt
    stories: list[str] = []
    models: list[str] = []
    for degree in TEMPERATURES:
        # The same seed at all temperatures: what differs is the temperature alone.
        stories += story_model().generate(asked, temperature=degree)
        models += [f"network / {degree}"] * len(asked)
    given = asked * len(TEMPERATURES)
    return dp.Samples(stories, given, tuple(models)).without_empty()


def _loaded(data: Path) -> dp.Samples:
    for fields in _FIELDS[:-1]:
        try:
            return dp.load(data, model_field=fields)
        except (dp.DataError, dp.ArgumentError):
            continue
    return dp.load(data, model_field=_FIELDS[-1])


def _equal(samples: dp.Samples, most: int) -> dp.Samples:
    """The same number of texts for each model, at most `most`.

    Scores grow with the number of texts. Some ranges of temperature have a tenth of the texts that
    others have: models with less than half the usual number are left out.
    """
    assert samples.models is not None
    counts = Counter(samples.models)
    least = np.median(list(counts.values())) / 2
    kept = [row for row, model in enumerate(samples.models) if counts[model] >= least]
    fewest = min(count for count in counts.values() if count >= least)
    return samples.select(kept).head(min(fewest, most))


def _distinct(samples: dp.Samples) -> float:
    """Share of the texts of a prompt that differ, on average."""
    assert isinstance(samples.prompts, tuple)
    assert isinstance(samples.outputs, tuple)
    texts = defaultdict(list)
    for asked, told in zip(samples.prompts, samples.outputs, strict=True):
        texts[asked.label].append(told.label)
    return float(np.mean([len(set(own)) / len(own) for own in texts.values()]))


def _judged(
    cells: dict[tuple[str, float], dict[tuple[str, float], float]],
    curves: list[Curve],
    distinct: dict[tuple[str, float], float],
    given: str,
) -> Outcome:
    """Whether each score of each generator rises at each step, at each bandwidth."""
    tested = [curve for curve in curves if curve.is_tested]
    rising = [curve for curve in tested if curve.rises]
    verdict = FAILS
    if len(rising) > len(tested) / 2:
        verdict = PARTLY
    if len(rising) == len(tested):
        verdict = HOLDS
    parts = [f"{len(rising)} of {len(tested)} curves rise at every step of the temperature"]
    for curve in curves:
        if curve.bandwidth == BANDWIDTHS[1] and curve.generator == curves[0].generator:
            parts.append(
                f"{curve.name} of the texts, from {curve.values[0]:.2f} at temperature "
                f"{curve.degrees[0]} to {curve.values[-1]:.2f} at temperature {curve.degrees[-1]}"
            )
    falling = [
        f"{curve.name} (rank correlation with the temperature {curve.correlation:.2f})"
        for curve in curves
        if not curve.rises
    ]
    if not falling:
        smallest = min(min(curve.steps) for curve in tested)
        digits = np.format_float_positional(smallest, precision=1, fractional=False)
        parts.append(f"the smallest step that counts is {digits}")
    failed = ""
    if falling:
        failed = f" Not at every step: {'; '.join(falling)}."
    left_out = [curve.name for curve in curves if not curve.is_tested]
    if left_out:
        failed += f" Saturated at every step, and so left out: {'; '.join(left_out)}."
    columns = [Column("generator", "generator"), Column("temperature", "temperature", ".1f")]
    columns.append(Column("distinct", "distinct texts", ".1%"))
    for bandwidth in BANDWIDTHS:
        for score in SCORES:
            title = f"{TITLES[score]}, bandwidth {bandwidth}"
            columns.append(Column(f"{score}_{bandwidth}", title, ".4f"))
    rows = [(*name, distinct[name], *cells[name].values()) for name in sorted(cells)]
    reason = (
        f"{'; '.join(parts)}.{failed} A rise to or from a saturated score does not count, and a "
        "fall does. If only half of the curves rose, or fewer, the claim would not hold. "
        f"{given}"
    )
    return Outcome(verdict, reason, Table(tuple(columns), tuple(rows)), _figure(curves))


def _curves(
    cells: dict[tuple[str, float], dict[tuple[str, float], float]],
    full: dict[tuple[str, float, float], bool],
) -> list[Curve]:
    curves = []
    for generator in sorted({name for name, _ in cells}):
        degrees = tuple(sorted(degree for name, degree in cells if name == generator))
        for score in SCORES:
            for bandwidth in BANDWIDTHS:
                at = (score, bandwidth)
                values = tuple(cells[generator, degree][at] for degree in degrees)
                saturated = tuple(full[generator, degree, bandwidth] for degree in degrees)
                curves.append(Curve(generator, score, bandwidth, degrees, values, saturated))
    return curves


def _figure(curves: list[Curve]) -> "Figure":
    """A panel for each score: of one generator all bandwidths, of several the middle one."""
    figure, axes = panels(len(SCORES))
    several = len({curve.generator for curve in curves}) > 1
    for curve in curves:
        name, title = f"bandwidth {curve.bandwidth}", TITLES[curve.score]
        if several:
            if curve.bandwidth != BANDWIDTHS[1]:
                continue
            name, title = curve.generator, f"{title}, bandwidth {curve.bandwidth}"
        ax = axes[SCORES.index(curve.score)]
        given = {"title": title, "xlabel": "temperature", "ylabel": "score"}
        lines(ax, curve.degrees, {name: curve.values}, **given)
    legend(figure)
    return figure
