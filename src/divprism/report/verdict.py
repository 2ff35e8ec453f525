"""What a page says first: which model is more diverse, by how much, how sure, and what to do next.

Sentences for a person who decides and reads no table. Texts from the data are isolated.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from divprism.report.documents import Document, Documents
from divprism.report.kinds import apart, highest_per_kind
from divprism.report.pairs import (
    MOST_TIMES,
    POWER,
    Pair,
    Ranking,
    more_data,
    rounded,
    times_needed,
    units_of,
)
from divprism.report.texts import isolated, number_of, sentence, shortened
from divprism.report.words import (
    baseline_sentence,
    entry_label,
    ignores_prompts,
    least_diverse_prompts,
    percent,
)
from divprism.scores.spec import score_spec

__all__ = ["Verdict", "growth_sentence", "verdict_of"]

_FAMILIES_OF_DIVERSITY = ("vendi", "conditional", "per_prompt", "cluster")
_TINY = 0.001  # p-values below this are not printed in full
_WORTH = 0.05  # a difference that is worth more data
_SMALL = 0.01  # a clear difference below it is called small
_SAME = 0.0005  # scores that differ by a smaller share read as equal
_MANY_TIMES = 2.0  # a ratio from which on "times as many" is easier to read than percent
_SHOWN_TIES = 3  # models or pairs that a sentence lists
_FEW_MODELS = 3  # models of which each gets a sentence about its repetition
_OFTEN = 0.05  # share of all outputs from which on an output is worth a sentence
_FEWEST_REPEATS = 3
_LONGEST_OUTPUT = 80  # letters of an output inside a sentence


@dataclass(frozen=True)
class Verdict:
    """The first words of a page.

    Attributes
    ----------
    answer : str
        One sentence: which model, how much.
    certainty : tuple of str
        How sure that is.
    repetition : tuple of str
        Where models repeat themselves.
    next_steps : tuple of str
        What to do next.
    """

    answer: str
    certainty: tuple[str, ...]
    repetition: tuple[str, ...]
    next_steps: tuple[str, ...]


def verdict_of(models: Documents, ranking: Ranking | None) -> Verdict:
    """Return the verdict about one model, or about the order of several."""
    if ranking is None:
        [document] = models.values()
        return _of_one(document)
    repetition = tuple(_repetitions(models, ranking))
    if not ranking.is_comparable:
        return Verdict(
            f"The {len(models):,} models were scored on {_unequal_in_words(models)}, so there is "
            "no order.",
            ("Scores grow with the number of outputs, and depend on the prompts.",),
            repetition,
            (_COMPARE,),
        )
    return Verdict(
        _answer(models, ranking),
        tuple(_certainty(models, ranking)),
        repetition,
        tuple(_next_steps(models, ranking)),
    )


_COMPARE = (
    "Run divprism compare: it takes the same prompts, and the same number of outputs for each, of "
    "all models, and settles an order with fewer prompts."
)


def _unequal_in_words(models: Documents) -> str:
    """Return what models do not have in common."""
    sizes = [document["data"]["n"] for document in models.values()]
    if min(sizes) < max(sizes):
        return f"unequal numbers of outputs ({min(sizes):,} to {max(sizes):,})"
    return "different prompts"


def _of_one(document: Document) -> Verdict:
    name = main_score(document)
    score = document["scores"][name]
    value = f"{score['value']:.3g}"
    subject = "The model"
    if document["data"].get("model"):
        subject = isolated(shortened(document["data"]["model"], _LONGEST_OUTPUT))
    noun = _noun(name, value)
    answer = f"{subject} gives {value} {noun}"
    if name == "vendi":
        answer += f" among {number_of(document['data']['n'], 'output')}"
    else:
        answer += _out_of(document)
    certainty = [_interval_in_words(document, name)]
    if document["baseline"] is not None:
        certainty.append(baseline_sentence(document["baseline"]))
    return Verdict(
        f"{answer}.",
        tuple(filter(None, certainty)),
        tuple(_repetition_of(document, "The model")),
        tuple(_steps_of_one(document, name)),
    )


def main_score(document: Document) -> str:
    """Return the score that a page about one model is about."""
    if "conditional_vendi" in document["scores"]:
        return "conditional_vendi"
    return "vendi"


def _noun(name: str, value: str) -> str:
    """Return what a score counts, in the singular for 1."""
    meaning = score_spec(name).meaning
    # Compared as printed: 1.0004 reads as 1.
    if value == "1":
        return meaning.replace("outputs", "output", 1)
    return meaning


def _out_of(document: Document) -> str:
    highest = highest_per_kind(document)
    if highest is None:
        return ""
    return f", where {highest:.3g} would mean that no two outputs are alike"


def _interval_in_words(document: Document, name: str) -> str:
    """Return how sure a score is."""
    interval = document["scores"][name]["interval"]
    if interval is None:
        for warning in document["warnings"]:
            if warning["code"] == "too-few-for-interval":
                return "How sure this is cannot be said: the sample is too small for an interval."
        return "How sure this is was not computed: intervals were switched off."
    ends = f"{interval['low']:.3g} to {interval['high']:.3g}"
    units = number_of(interval["num_units"], _unit_of(document, interval))
    return (
        f"With {percent(interval['level'])} confidence it is {ends} for samples of this size "
        f"({units})."
    )


def _unit_of(document: Document, interval: Document) -> str:
    if interval["unit"] == "pair" and document["data"]["prompts"] is None:
        return "output"
    unit: str = interval["unit"]
    return unit


def growth_sentence(document: Document, name: str) -> str:
    """Return whether more data would change a score by more than its interval; "" if unknown.

    The interval is for samples of the same size, and scores grow with the size: both are small or
    large independently of each other, and a reader who sees one of them needs the other.
    """
    curves = (document.get("details") or {}).get("convergence") or {}
    change = (curves.get("verdicts", {}).get(name) or {}).get("change")
    interval = document["scores"][name]["interval"]
    if change is None or interval is None:
        return ""
    half = (interval["high"] - interval["low"]) / (2 * document["scores"][name]["value"])
    sign = "raise"
    if change < 0:
        sign = "lower"
    opening = f"Twice as many {curves['noun']} would {sign} it by about {_share(abs(change))}"
    if abs(change) <= half:
        return f"{opening}, less than the {_share(half)} to either side that the interval allows."
    return (
        f"{opening}, more than the {_share(half)} to either side of the interval, which is for "
        "samples of this size: compare it only with scores of as many outputs."
    )


def _steps_of_one(document: Document, name: str) -> list[str]:
    interval = document["scores"][name]["interval"]
    steps = []
    if interval is not None and interval["high"] > interval["low"]:
        count = rounded(3 * interval["num_units"])
        more = number_of(count, f"more {_unit_of(document, interval)}")
        steps.append(
            f"About {more} would halve the interval (an estimate: it narrows with the root of the "
            "sample)."
        )
    growth = growth_sentence(document, name)
    if growth:
        steps.append(growth)
    if interval is None:
        for warning in document["warnings"]:
            if warning["code"] == "too-few-for-interval":
                steps.append(warning["text"])
    return steps


def _answer(models: Documents, ranking: Ranking) -> str:
    leader, second = ranking.order[:2]
    name = ranking.score
    pair = ranking.pair(leader, second)
    values = _values(models, ranking)
    noun = _noun(name, values[leader])
    if not any(each.low is not None for each in ranking.pairs):
        return (
            f"Which model is {_more(name)} cannot be said from so few outputs: {isolated(leader)} "
            f"has {values[leader]} {noun}, {isolated(second)} {values[second]}."
        )
    if len(ranking.order) == 2:
        if pair.is_clear:
            return (
                f"{isolated(leader)} is {_more(name)} than {isolated(second)}: "
                f"{values[leader]} {noun} against {values[second]}, {_by(pair.ratio)}."
            )
        return (
            f"The order of {isolated(leader)} and {isolated(second)} is not settled: "
            f"{values[leader]} and {values[second]} {noun}."
        )
    total = f"{len(ranking.order):,} models"
    tied = ranking.tied_for_first
    if len(tied) == 1:
        return (
            f"{isolated(leader)} is the most {_adjective(name)} of {total}: {values[leader]} "
            f"{noun} against {values[second]} of the second, {isolated(second)}, {_by(pair.ratio)}."
        )
    named = [f"{isolated(model)} ({values[model]})" for model in tied[:_SHOWN_TIES]]
    return (
        f"Which of {total} is the most {_adjective(name)} is not settled: {_listed(named, tied)} "
        f"{noun} do not differ clearly."
    )


def _values(models: Documents, ranking: Ranking) -> dict[str, str]:
    """Return the scores as texts; those of the first two with the digits that tell them apart."""
    scores = {model: models[model]["scores"][ranking.score]["value"] for model in ranking.order}
    values = {model: f"{score:.3g}" for model, score in scores.items()}
    leader, second = ranking.order[:2]
    values[leader], values[second] = apart(scores[leader], scores[second])
    return values


def _adjective(name: str) -> str:
    if score_spec(name).family in _FAMILIES_OF_DIVERSITY:
        return "diverse"
    return f"highest in {score_spec(name).title}"


def _more(name: str) -> str:
    if score_spec(name).family in _FAMILIES_OF_DIVERSITY:
        return "more diverse"
    return f"higher in {score_spec(name).title}"


def _listed(named: Sequence[str], every: Sequence[str]) -> str:
    """Return names as an enumeration, with the number of those left out."""
    parts = list(named)
    if len(every) > len(parts):
        parts.append(f"{len(every) - len(parts):,} more")
    if len(parts) == 1:
        return parts[0]
    return f"{', '.join(parts[:-1])} and {parts[-1]}"


def _share(share: float) -> str:
    """Return a share as a percentage with two digits."""
    if share < _SAME:
        return "less than 0.1\N{NO-BREAK SPACE}%"
    digits = f"{100 * share:.2g}"
    if share >= 0.1:
        digits = f"{100 * share:,.0f}"
    return f"{digits}\N{NO-BREAK SPACE}%"


def _by(ratio: float) -> str:
    """Return by how much a number is larger."""
    if ratio >= _MANY_TIMES:
        return f"{ratio:.2g} times as many"
    return f"{_share(ratio - 1)} more"


def _range_in_words(pair: Pair) -> str:
    """Return the interval of a ratio as percentages."""
    assert pair.low is not None and pair.high is not None
    high = _share(pair.high - 1)
    if pair.low < 1:
        return f"anything from {_share(1 - pair.low)} lower to {high} higher than"
    if pair.low >= _MANY_TIMES:
        return f"{pair.low:.2g} to {pair.high:.2g} times"
    return f"{_share(pair.low - 1)} to {high} higher than"


def _chance_in_words(pair: Pair) -> str:
    """Return the p-value as a number of samples."""
    if pair.p_value is None:
        return ""
    opening = "two equal models would differ at least this much in"
    if pair.p_value < _TINY:
        return f"; {opening} fewer than 1 of 1,000 samples (p < {_TINY:g})"
    if pair.p_value < 0.01:
        return (
            f"; {opening} about {1000 * pair.p_value:.0f} of 1,000 samples (p = {pair.p_value:.1g})"
        )
    return f"; {opening} about {100 * pair.p_value:.0f} of 100 samples (p = {pair.p_value:.2g})"


def _basis(models: Documents, ranking: Ranking) -> str:
    """Return on what the models are compared."""
    prompts = models[ranking.order[0]]["data"]["prompts"]
    if not ranking.is_paired:
        return "By their separate intervals"
    return f"On the same {number_of(prompts, 'prompt')}"


def _certainty(models: Documents, ranking: Ranking) -> list[str]:
    leader, second = ranking.order[:2]
    pair = ranking.pair(leader, second)
    if pair.low is None:
        return ["The sample is too small for intervals: the scores describe these outputs only."]
    opening = "This is settled."
    if not pair.is_clear:
        opening = "This is open."
    if pair.is_clear and pair.ratio - 1 < _SMALL:
        opening = f"This is settled, but a difference of {_share(pair.ratio - 1)} is small."
    sentences = [
        f"{opening} {_basis(models, ranking)}, the score of {isolated(leader)} is "
        f"{_range_in_words(pair)} that of {isolated(second)}, with {percent(ranking.level)} "
        f"confidence{_chance_in_words(pair)}."
    ]
    if len(ranking.order) > 2:
        sentences.append(_open_pairs(ranking))
    return [*sentences, *_prompts_ignored(models, ranking)]


def _prompts_ignored(models: Documents, ranking: Ranking) -> list[str]:
    """Return which models are diverse because they do not answer; empty if none is."""
    ignoring = [model for model in ranking.order if ignores_prompts(models[model])]
    if not ignoring:
        return []
    named = _listed([isolated(model) for model in ignoring[:_SHOWN_TIES]], ignoring)
    return [
        f"The outputs of {named} cannot be distinguished from outputs that ignore their prompts: "
        "their diversity is no answer to the prompts."
    ]


def _open_pairs(ranking: Ranking) -> str:
    """Return how many pairs of models are settled, and which neighbours are not."""
    num_clear = sum(pair.is_clear for pair in ranking.pairs)
    settled = f"{num_clear:,} of {len(ranking.pairs):,} pairs of models differ clearly"
    if num_clear == 1:
        settled = f"1 of {len(ranking.pairs):,} pairs of models differs clearly"
    unsettled = [pair for pair in ranking.neighbours if not pair.is_clear]
    if not unsettled:
        return f"{settled}: the whole order is settled."
    named = []
    for pair in unsettled[:_SHOWN_TIES]:
        named.append(f"{isolated(pair.first)} and {isolated(pair.second)}")
    more = len(unsettled) - len(named)
    ending = ""
    if more:
        ending = f", and {more:,} more pairs of neighbours"
    return f"{settled}. The order is not settled between {'; '.join(named)}{ending}."


def _next_steps(models: Documents, ranking: Ranking) -> list[str]:
    steps = []
    unsettled = [pair for pair in ranking.neighbours if not pair.is_clear]
    for pair in unsettled[:2]:
        steps += _settling(pair, models, ranking)
    if not unsettled and ranking.pairs[0].low is not None:
        steps.append("The order needs no more data.")
    if unsettled and not ranking.is_paired:
        steps.append(_COMPARE)
    return steps


def _settling(pair: Pair, models: Documents, ranking: Ranking) -> list[str]:
    """Return what would settle the order of two models."""
    names = f"{isolated(pair.first)} and {isolated(pair.second)}"
    if math.log(pair.ratio) <= _SAME:
        return [f"{names} have the same score: treat them as equal."]
    model = models[pair.first]
    interval = model["scores"][ranking.score]["interval"]
    times = times_needed(pair, pair.ratio)
    if times is None or interval is None:
        return []
    difference = _share(pair.ratio - 1)
    if times > MOST_TIMES:
        return [
            f"The order of {names} cannot be settled: a difference as small as {difference} would "
            f"take more than {MOST_TIMES} times as many {units_of(model, interval)}."
            f"{_worth_showing(pair, model, ranking)}"
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
    shown = f"a difference of {_share(_WORTH)} or more"
    if times <= 1:
        return f" In these data {shown} would have shown."
    needed = sentence(more_data(times, model, model["scores"][ranking.score]["interval"]))
    return f" {needed.rstrip('.')} would show {shown} with a chance of {percent(POWER)}."


def _repetitions(models: Documents, ranking: Ranking) -> list[str]:
    """Return where models repeat themselves: each of a few, else the last of the order."""
    chosen: Sequence[str] = ranking.order
    if len(chosen) > _FEW_MODELS:
        chosen = ranking.order[-1:]
    sentences = []
    for model in chosen:
        sentences += _repetition_of(models[model], isolated(model))
    return sentences


def _repetition_of(document: Document, subject: str) -> list[str]:
    """Return the exact prompts of the lowest score, and an output that occurs often."""
    details = document.get("details") or {}
    sentences = []
    if details.get("least_diverse_prompts"):
        sentences += least_diverse_prompts(details["least_diverse_prompts"], subject)
    for repeated in (details.get("most_repeated") or [])[:1]:
        count, total = repeated["count"], document["data"]["n"]
        if count >= max(_FEWEST_REPEATS, _OFTEN * total):
            text = isolated(shortened(entry_label(repeated["output"]), _LONGEST_OUTPUT))
            sentences.append(
                f"{subject} gives the output “{text}” {count:,} times among {total:,} outputs."
            )
    return sentences
