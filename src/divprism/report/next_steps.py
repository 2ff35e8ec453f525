"""What a page advises: the data that would settle an order, or narrow an interval."""

import math

from divprism.report.documents import Document, Documents
from divprism.report.growth import growth_of
from divprism.report.kinds import highest_per_kind
from divprism.report.pairs import (
    MOST_TIMES,
    POWER,
    Pair,
    Ranking,
    more_data,
    more_units,
    rounded,
    times_needed,
    units_of,
)
from divprism.report.texts import is_tiny, isolated, sentence, share_in_words
from divprism.report.words import percent

__all__ = [
    "COMPARE",
    "growth_sentence",
    "intervals_are_off",
    "next_steps",
    "steps_of_one",
    "too_few_warning",
]

COMPARE = (
    "Run divprism compare: it takes the same prompts, and the same number of outputs for each, of "
    "all models, and settles an order with fewer prompts."
)
_ASK_FOR_INTERVALS = (
    "Score the models again with interval=0.95 (on the command line --interval 0.95), or run "
    "divprism compare, which always computes intervals."
)
_ALL_APART = (
    "All models have the highest score that there can be: no two outputs that are compared are "
    "alike, and the score cannot tell the models apart. Prompts that are all different, with one "
    "output each, leave no outputs to compare: give each prompt several outputs, or rank by vendi."
)
_SHOWN_PAIRS = 2  # pairs of models that get advice
_WORTH = 0.05  # a difference that is worth more data
_EQUAL = 0.01  # models that differ by less than this, whatever the sample, count as equal
_PRINTED = 0.001  # the smallest share that is printed in full
_SAME = 0.0005  # logarithm of the ratio of scores that read as equal


def next_steps(models: Documents, ranking: Ranking) -> list[str]:
    """Return what to do about the order of several models."""
    if ranking.pairs[0].low is None:
        if intervals_are_off(models, ranking):
            return [_ASK_FOR_INTERVALS]
        return []
    if _are_at_highest(models, ranking):
        return [_ALL_APART]
    if not ranking.unsettled:
        return ["The order needs no more data."]
    if not ranking.is_paired:
        # It needs no new data, and estimates from separate intervals would ask for too many.
        return [COMPARE]
    steps = []
    for pair in ranking.unsettled[:_SHOWN_PAIRS]:
        steps += _settling(pair, models, ranking)
    return steps


def too_few_warning(document: Document) -> str | None:
    """Return the warning that a sample is too small for an interval; None if there is none."""
    for warning in document["warnings"]:
        if warning["code"] == "too-few-for-interval":
            text: str = warning["text"]
            return text
    return None


def intervals_are_off(models: Documents, ranking: Ranking) -> bool:
    """Return whether models have no intervals although their samples are large enough."""
    if any(too_few_warning(document) is not None for document in models.values()):
        return False
    scores = [document["scores"][ranking.score] for document in models.values()]
    return any(score["interval"] is None for score in scores)


def _are_at_highest(models: Documents, ranking: Ranking) -> bool:
    """Return whether every model has the highest score that there can be."""
    if ranking.score != "conditional_vendi":
        return False
    for document in models.values():
        highest = highest_per_kind(document)
        if highest is None:
            return False
        if document["scores"][ranking.score]["value"] < (1 - _SAME) * highest:
            return False
    return True


def _settling(pair: Pair, models: Documents, ranking: Ranking) -> list[str]:
    """Return what would settle the order of two models."""
    names = f"{isolated(pair.first)} and {isolated(pair.second)}"
    model = models[pair.first]
    interval = model["scores"][ranking.score]["interval"]
    if pair.low is None or pair.high is None or interval is None:
        return []
    largest = max(pair.high - 1, 1 - pair.low)
    if largest < _EQUAL:
        # At most less than a tenth of a percent is at most that.
        most = share_in_words(max(largest, _PRINTED))
        return [
            f"{names} differ by at most {most}, with {percent(ranking.level)} confidence: treat "
            "them as equal."
        ]
    worth = _worth_showing(pair, model, ranking)
    if math.log(pair.ratio) <= _SAME:
        return [f"{names} score the same in these data.{worth}"]
    times = times_needed(pair, pair.ratio)
    if times is None:
        return []
    difference = share_in_words(pair.ratio - 1)
    if times > MOST_TIMES:
        return [
            f"The order of {names} cannot be settled: a difference as small as {difference} would "
            f"take more than {MOST_TIMES} times as many {units_of(model, interval)}.{worth}"
        ]
    needed = sentence(more_data(times, model, interval)).rstrip(".")
    return [
        f"{needed} would settle the order of {names} with a chance of {percent(POWER)} (an "
        f"estimate, if the difference stays at {difference})."
    ]


def _worth_showing(pair: Pair, model: Document, ranking: Ranking) -> str:
    """Return how much data would show a difference that matters, where this one is smaller."""
    times = times_needed(pair, 1 + _WORTH)
    if times is None:
        return ""
    shown = f"a difference of {share_in_words(_WORTH)} or more"
    if times <= 1:
        return f" In these data {shown} would have shown."
    needed = sentence(more_data(times, model, model["scores"][ranking.score]["interval"]))
    return f" {needed.rstrip('.')} would show {shown} with a chance of {percent(POWER)}."


def growth_sentence(document: Document, name: str) -> str:
    """Return whether more data would change a score by more than its interval; "" if unknown.

    The interval is for samples of the same size, and scores grow with the size: both are small or
    large independently of each other, and a reader who sees one of them needs the other.
    """
    growth, interval = growth_of(document, name), document["scores"][name]["interval"]
    if growth is None or growth.change is None or growth.reach is None:
        return ""
    sign = "raise"
    if growth.change < 0:
        sign = "lower"
    change, reach = share_in_words(abs(growth.change)), share_in_words(growth.reach)
    effect = f"{sign} it by about {change}"
    if is_tiny(abs(growth.change)):
        effect = f"change it by {change}"
    opening = f"Twice as many {units_of(document, interval)} would {effect}"
    if not growth.exceeds_interval:
        # "Less than 0.1 %, less than the 5 %" would be read twice.
        if is_tiny(abs(growth.change)):
            return f"{opening}, which the interval allows."
        return f"{opening}, less than the {reach} to either side that the interval allows."
    more = f"more than the {reach} to either side of the interval"
    if is_tiny(growth.reach):
        more = "more than the interval allows"
    return (
        f"{opening}, {more}, which is for samples of this size: compare it only with scores of "
        "the same number of outputs."
    )


def steps_of_one(document: Document, name: str) -> list[str]:
    """Return what would narrow the interval of a model, or what it lacks for an interval."""
    interval = document["scores"][name]["interval"]
    if interval is not None and interval["high"] > interval["low"]:
        needed = sentence(more_units(rounded(3 * interval["num_units"]), document, interval))
        return [
            f"{needed.rstrip('.')} would halve the interval (an estimate: it narrows with the root "
            "of the sample)."
        ]
    warning = too_few_warning(document)
    if interval is None and warning is not None:
        return [sentence(warning)]
    return []
