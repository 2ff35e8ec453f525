"""The order of models in a result document: which pairs are settled, and what would settle more."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from divprism.analysis.intervals import SAME_RATIO, chance_of_difference
from divprism.data.wording import plain_number
from divprism.report.documents import Document, Documents
from divprism.report.texts import number_of

__all__ = [
    "MOST_TIMES",
    "POWER",
    "Pair",
    "Ranking",
    "more_data",
    "more_units",
    "ranking_of",
    "rounded",
    "times_needed",
    "units_of",
]

POWER = 0.8
"""The chance with which the data that `more_data` asks for settle an order."""
MOST_TIMES = 100
"""Times the sample: to take more than that is no advice."""
_LEVEL = 0.95  # of results without intervals
# Scores are compared if models were scored on the same; these warnings say that they were not.
_UNEQUAL = ("unequal-prompts", "unequal-outputs")


@dataclass(frozen=True)
class Pair:
    """How many times as high the score of one model is as that of another one.

    `p_value` and `error`, the standard error of the logarithm of the ratio, are None where they are
    not known.
    """

    first: str
    second: str
    ratio: float
    low: float | None
    high: float | None
    is_clear: bool
    p_value: float | None
    error: float | None


@dataclass(frozen=True)
class Ranking:
    """Models from the highest score to the lowest, and what is known of their order.

    Attributes
    ----------
    score : str
        The score that models are ranked by.
    order : tuple of str
        The models.
    pairs : tuple of Pair
        Every pair, the first of it being the higher one.
    is_paired : bool
        Whether differences are taken prompt by prompt, as `compare` does.
    is_comparable : bool
        False where models were scored on other prompts or another number of outputs.
    level : float
        Of the intervals.
    """

    score: str
    order: tuple[str, ...]
    pairs: tuple[Pair, ...]
    is_paired: bool
    is_comparable: bool
    level: float

    def pair(self, first: str, second: str) -> Pair:
        """The pair of two models, the higher one first."""
        for pair in self.pairs:
            if (pair.first, pair.second) == (first, second):
                return pair
        raise KeyError(f"{first}, {second}")

    @property
    def neighbours(self) -> tuple[Pair, ...]:
        """The pairs of models that follow each other in the order."""
        following = zip(self.order, self.order[1:], strict=False)
        return tuple(self.pair(first, second) for first, second in following)

    @property
    def unsettled(self) -> tuple[Pair, ...]:
        """The pairs whose order is open: first place, neighbours, or else pairs further apart."""
        # A wide interval can leave a pair open although each step between the two is clear.
        chosen = [pair for pair in self.neighbours if not pair.is_clear]
        if not chosen:
            return tuple(pair for pair in self.pairs if not pair.is_clear)
        if not self.for_first.is_clear and self.for_first not in chosen:
            chosen.insert(0, self.for_first)
        return tuple(chosen)

    @property
    def for_first(self) -> Pair:
        """The pair that decides who is first: the leader, and the first model that ties with it.

        Without ties, the leader and the second.
        """
        # Not always neighbours: the second may be clearly below the leader, and a later one not.
        candidates = [*self.tied_for_first, self.order[1]]
        return self.pair(self.order[0], candidates[1])

    @property
    def tied_for_first(self) -> tuple[str, ...]:
        """The models that no other one is clearly above: those whose best rank is 1."""
        below = {pair.second for pair in self.pairs if pair.is_clear}
        return tuple(model for model in self.order if model not in below)


def ranking_of(main: Document, models: Documents) -> Ranking | None:
    """The order of several models; None for one model.

    Of a comparison its own; of models that were scored apart by their intervals, taken as
    independent.
    """
    if len(models) < 2:
        return None
    level = _level_of(models)
    if "ranks" in main:
        pairs = tuple(_compared(difference) for difference in main["differences"])
        order = _order_of(main["score"], models)
        ordered = _from_high_to_low(order, pairs)
        return Ranking(main["score"], order, ordered, True, True, level)
    score = "vendi"
    if all("conditional_vendi" in document["scores"] for document in models.values()):
        score = "conditional_vendi"
    order = _order_of(score, models)
    apart = []
    for index, first in enumerate(order):
        for second in order[index + 1 :]:
            apart.append(_scored_apart(first, second, score, models))
    return Ranking(score, order, tuple(apart), False, _is_comparable(models), level)


def _order_of(score: str, models: Documents) -> tuple[str, ...]:
    # The sort is stable, so equal scores keep the order of the document.
    return tuple(sorted(models, key=lambda model: -models[model]["scores"][score]["value"]))


def _level_of(models: Documents) -> float:
    for document in models.values():
        for score in document["scores"].values():
            if score["interval"] is not None:
                level: float = score["interval"]["level"]
                return level
    return _LEVEL


def _compared(difference: Document) -> Pair:
    return Pair(
        difference["first"],
        difference["second"],
        difference["ratio"],
        difference["low"],
        difference["high"],
        difference["clear"],
        # Results of earlier versions have neither.
        difference.get("p_value"),
        difference.get("standard_error"),
    )


def _from_high_to_low(order: Sequence[str], pairs: Sequence[Pair]) -> tuple[Pair, ...]:
    """Every pair of models in the order; one that a document lacks is not clear."""
    known = {(pair.first, pair.second): pair for pair in pairs}
    ordered = []
    for index, first in enumerate(order):
        for second in order[index + 1 :]:
            missing = Pair(first, second, 1.0, None, None, False, None, None)
            ordered.append(known.get((first, second), missing))
    return tuple(ordered)


def _scored_apart(first: str, second: str, score: str, models: Documents) -> Pair:
    """The ratio of two models by their own intervals.

    What prompts have in common does not cancel, so the interval is wider than that of `compare`.
    """
    ahead, behind = (models[model]["scores"][score] for model in (first, second))
    ratio = ahead["value"] / behind["value"]
    intervals = [ahead["interval"], behind["interval"]]
    if None in intervals or min(interval["low"] for interval in intervals) <= 0:
        return Pair(first, second, ratio, None, None, False, None, None)
    # The logarithm of a score is as likely to be too high as too low, and errors add as squares.
    reaches = [math.log(interval["high"] / interval["low"]) / 2 for interval in intervals]
    reach = math.hypot(*reaches)
    error = reach / _normal_quantile((1 + intervals[0]["level"]) / 2)
    low, high = ratio * math.exp(-reach), ratio * math.exp(reach)
    # Nothing is known of the number of parts behind the errors: they are taken as exact.
    chance = chance_of_difference(math.log(ratio), error, math.inf)
    return Pair(first, second, ratio, low, high, low > 1 + SAME_RATIO, chance, error)


def _is_comparable(models: Documents) -> bool:
    sizes = {document["data"]["n"] for document in models.values()}
    prompts = {document["data"]["prompts"] for document in models.values()}
    codes: set[str] = set()
    for document in models.values():
        codes.update(warning["code"] for warning in document["warnings"])
    return len(sizes) == len(prompts) == 1 and codes.isdisjoint(_UNEQUAL)


def _normal_quantile(level: float) -> float:
    from scipy.special import ndtri

    # A level of 1 would be infinitely many standard errors.
    return float(ndtri(min(level, 1 - 1e-9)))


def times_needed(pair: Pair, ratio: float) -> float | None:
    """Return the size of a sample in which two models with scores of this ratio differ clearly.

    As a multiple of the sample of the pair, and an estimate: the standard error falls with the root
    of the sample. None where the error is not known, or the scores are equal.
    """
    gap = math.log(ratio)
    if pair.low is None or pair.high is None or pair.error is None or gap <= 0:
        return None
    # The interval must end before a ratio of 1, which is as far away as the gap. If it just reached
    # 1 on average, half of all samples would leave the order open; the quantile is for a better
    # chance.
    reach = math.log(pair.high / pair.low) / 2
    wanted = reach + _normal_quantile(POWER) * pair.error
    return (wanted / gap) ** 2


def more_data(times: float, model: Document, interval: Document) -> str:
    """Return the units that each of two models lacks for a sample that is `times` as large.

    In words: "about 250 more prompts (with 4 outputs each)".
    """
    more = max(1, math.ceil(interval["num_units"] * (times - 1)))
    return more_units(rounded(more), model, interval, " of each model")


def units_of(model: Document, interval: Document) -> str:
    """Return what the sample of a model consists of: prompts with their outputs, or outputs."""
    if interval["unit"] == "prompt" or model["data"]["n"] == model["data"]["prompts"]:
        return "prompts"
    return "outputs"


def more_units(more: int, model: Document, interval: Document, owner: str = "") -> str:
    """Return a number of more units in words, with the outputs that each of them takes.

    `owner` says whose outputs they are. Prompts are shared by all models.
    """
    data = model["data"]
    if units_of(model, interval) == "prompts":
        each = plain_number(data["n"] / data["prompts"], 2)
        outputs = "output"
        if each != "1":
            outputs = "outputs"
        return f"about {number_of(more, 'more prompt')} (with {each} {outputs} each)"
    if data["prompts"] is None:
        return f"about {number_of(more, 'more output')}{owner}"
    each_more = max(1, math.ceil(more / data["prompts"]))
    return f"about {number_of(more, 'more output')}{owner} ({each_more:,} more for each prompt)"


def rounded(count: int) -> int:
    """Return an estimated count with two significant digits, as exact as it can be."""
    return int(round(count, 2 - len(str(count))))
