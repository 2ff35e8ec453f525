"""What a page says first: which model is more diverse, by how much, how sure, and what to do next.

Sentences for a person who decides and reads no table. Texts from the data are isolated.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from divprism.report.documents import Document, Documents
from divprism.report.kinds import apart, highest_per_kind, kinds_of
from divprism.report.next_steps import (
    COMPARE,
    growth_sentence,
    intervals_are_off,
    next_steps,
    steps_of_one,
    too_few_warning,
)
from divprism.report.pair_words import (
    are_equal,
    by_how_much,
    chance_in_words,
    counted_as,
    range_in_words,
)
from divprism.report.pairs import Ranking, units_of
from divprism.report.texts import isolated, number_of, share_in_words, shortened, significant
from divprism.report.words import (
    LONGEST_QUOTE,
    baseline_sentence,
    entry_label,
    ignores_prompts,
    least_diverse_prompts,
    percent,
)
from divprism.scores.spec import score_spec

__all__ = ["Verdict", "verdict_of"]

_FAMILIES_OF_DIVERSITY = ("vendi", "conditional", "per_prompt", "cluster")
_SMALL = 0.01  # a clear difference below it is called small
_SHOWN_TIES = 3  # models or pairs that a sentence lists
_FEW_MODELS = 3  # models of which each gets a sentence about its repetition
_OFTEN = 0.05  # share of all outputs from which on an output is worth a sentence
_FEWEST_REPEATS = 3
_ALIKE = "Outputs that are alike count as one output"


@dataclass(frozen=True)
class Verdict:
    """The first words of a page.

    Attributes
    ----------
    answer : str
        One sentence: which model, how much.
    certainty : tuple of str
        How sure that is.
    counting : str
        What the scores count, and how high they can be; empty without scores.
    repetition : tuple of str
        Where models repeat themselves.
    next_steps : tuple of str
        What to do next.
    """

    answer: str
    certainty: tuple[str, ...]
    counting: str
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
            "",
            repetition,
            (COMPARE,),
        )
    return Verdict(
        _answer(models, ranking),
        tuple(_certainty(models, ranking)),
        _counting(models, ranking.score),
        repetition,
        tuple(next_steps(models, ranking)),
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
    value = significant(score["value"])
    subject = "The model"
    if document["data"].get("model"):
        subject = isolated(shortened(document["data"]["model"], LONGEST_QUOTE))
    answer = f"{subject} gives {counted_as(name, value)}"
    if name == "vendi":
        answer += f" among {number_of(document['data']['n'], 'output')}"
    else:
        answer += _out_of(document)
    certainty = [_interval_in_words(document, name), growth_sentence(document, name)]
    if document["baseline"] is not None:
        certainty.append(baseline_sentence(document["baseline"]))
    return Verdict(
        f"{answer}.",
        tuple(filter(None, certainty)),
        _counting({"": document}, name),
        tuple(_repetition_of(document, "The model")),
        tuple(steps_of_one(document, name)),
    )


def main_score(document: Document) -> str:
    """Return the score that a page about one model is about."""
    if "conditional_vendi" in document["scores"]:
        return "conditional_vendi"
    return "vendi"


def _out_of(document: Document) -> str:
    highest = highest_per_kind(document)
    if highest is None:
        return ""
    return f", where {significant(highest)} would mean that no two outputs are alike"


def _interval_in_words(document: Document, name: str) -> str:
    """Return how sure a score is."""
    interval = document["scores"][name]["interval"]
    if interval is None:
        if too_few_warning(document) is not None:
            return "How sure this is cannot be said: the sample is too small for an interval."
        return "No interval was computed: intervals were switched off."
    ends = f"{significant(interval['low'])} to {significant(interval['high'])}"
    return (
        f"With {percent(interval['level'])} confidence it is {ends} for samples of this size "
        f"({_size_in_words(document, interval)})."
    )


def _size_in_words(document: Document, interval: Document) -> str:
    """Return the size of the sample that an interval is for, and whether prompts are fixed."""
    units = f"{interval['num_units']:,} {units_of(document, interval)}"
    if interval["num_units"] == 1:
        units = units.removesuffix("s")
    if _has_fixed_prompts(document, interval):
        prompts = number_of(document["data"]["prompts"], "prompt")
        return f"{units}, for the same {prompts}"
    return units


def _has_fixed_prompts(document: Document, interval: Document) -> bool:
    """Return whether an interval is for other outputs of the same prompts only."""
    prompts = document["data"]["prompts"]
    return prompts is not None and interval["unit"] == "pair" and prompts < document["data"]["n"]


def _counting(models: Documents, score: str) -> str:
    """Return what a score counts, and how high it can be."""
    if score_spec(score).family not in _FAMILIES_OF_DIVERSITY:
        return ""
    texts = {_counting_of(document, score, len(models) > 1) for document in models.values()}
    # Models with other prompts, or another number of outputs, have other numbers.
    if len(texts) == 1:
        return texts.pop()
    return f"{_ALIKE}."


def _counting_of(document: Document, score: str, with_highest: bool) -> str:
    highest = highest_per_kind(document)
    if highest is None or score_spec(score).family != "conditional":
        return f"{_ALIKE}."
    data, kinds = document["data"], document["scores"]["prompt_vendi"]["value"]
    text = f"{_ALIKE}, and prompts that are alike as one kind: {kinds_of(kinds, data['prompts'])}."
    if data["n"] == data["prompts"]:
        text += " Each prompt has one output, so outputs of similar prompts are compared."
    if with_highest and score == "conditional_vendi":
        text += f" No score can exceed {significant(highest)}, where no two outputs are alike."
    return text


def _answer(models: Documents, ranking: Ranking) -> str:
    leader, second = ranking.order[:2]
    name = ranking.score
    values = _values(models, ranking)
    counted = counted_as(name, values[leader])
    if not any(each.low is not None for each in ranking.pairs):
        reason = "cannot be said from so few outputs"
        if intervals_are_off(models, ranking):
            reason = "is open"
        question = f"Which model is {_more(name)}"
        if len(ranking.order) > 2:
            question = f"Which of {len(ranking.order):,} models is the {_most(name)}"
        return (
            f"{question} {reason}: {isolated(leader)} has {counted}, {isolated(second)} "
            f"{values[second]}."
        )
    by = by_how_much(ranking.pair(leader, second).ratio, name)
    if len(ranking.order) == 2:
        if ranking.pair(leader, second).is_clear:
            return (
                f"{isolated(leader)} is {_more(name)} than {isolated(second)}: {counted} against "
                f"{values[second]}, {by}."
            )
        return _answer_of_tie(ranking, values)
    total = f"{len(ranking.order):,} models"
    tied = ranking.tied_for_first
    if len(tied) == 1:
        return (
            f"{isolated(leader)} is the {_most(name)} of {total}: {counted} against "
            f"{values[second]} of the second, {isolated(second)}, {by}."
        )
    named = [f"{isolated(model)} ({values[model]})" for model in tied[:_SHOWN_TIES]]
    # What is counted is said once, with the first number.
    named[0] = f"{isolated(leader)} ({counted})"
    return (
        f"Which of {total} is the {_most(name)} is not settled: {_listed(named, tied)} "
        "do not differ clearly."
    )


def _answer_of_tie(ranking: Ranking, values: Mapping[str, str]) -> str:
    """Return the answer about two models that do not differ clearly."""
    leader, second = ranking.order
    both, name = f"{isolated(leader)} and {isolated(second)}", ranking.score
    where = ""
    if score_spec(name).family not in _FAMILIES_OF_DIVERSITY:
        where = f" in {score_spec(name).title}"
    if are_equal(ranking.pair(leader, second)):
        return f"{both} score the same{where}: {counted_as(name, values[leader])}."
    counted = counted_as(name, values[second])
    return f"The order of {both}{where} is not settled: {values[leader]} and {counted}."


def _values(models: Documents, ranking: Ranking) -> dict[str, str]:
    """Return the scores as texts; those of the first two with the digits that tell them apart."""
    scores = {model: models[model]["scores"][ranking.score]["value"] for model in ranking.order}
    values = {model: significant(score) for model, score in scores.items()}
    leader, second = ranking.order[:2]
    values[leader], values[second] = apart(scores[leader], scores[second])
    return values


def _most(name: str) -> str:
    if score_spec(name).family in _FAMILIES_OF_DIVERSITY:
        return "most diverse"
    return f"highest in {score_spec(name).title}"


def _more(name: str) -> str:
    if score_spec(name).family in _FAMILIES_OF_DIVERSITY:
        return "more diverse"
    return f"higher in {score_spec(name).title}"


def _listed(named: Sequence[str], every: Sequence[str]) -> str:
    """Return names as an enumeration, with the number of those left out."""
    parts = list(named)
    if len(every) > len(parts):
        parts.append(number_of(len(every) - len(parts), "other model"))
    if len(parts) == 1:
        return parts[0]
    return f"{', '.join(parts[:-1])} and {parts[-1]}"


def _basis(models: Documents, ranking: Ranking) -> str:
    """Return on what the models are compared."""
    prompts = models[ranking.order[0]]["data"]["prompts"]
    if not ranking.is_paired:
        return "By their separate intervals"
    return f"On the same {number_of(prompts, 'prompt')}"


def _certainty(models: Documents, ranking: Ranking) -> list[str]:
    pair = ranking.for_first
    if pair.low is None:
        if intervals_are_off(models, ranking):
            return [
                "Intervals were switched off, so whether the difference is clear is unknown.",
            ]
        return ["The sample is too small for intervals: the scores describe these outputs only."]
    opening = "This is settled. "
    if not pair.is_clear:
        opening = "This is open. "
    if are_equal(pair):
        opening = ""
    if pair.is_clear and pair.ratio - 1 < _SMALL:
        share = share_in_words(pair.ratio - 1)
        opening = f"This is settled, but a difference of {share} is small. "
    sentences = [
        f"{opening}{_basis(models, ranking)}, the score of {isolated(pair.first)} is "
        f"{range_in_words(pair)} that of {isolated(pair.second)}, with {percent(ranking.level)} "
        f"confidence{chance_in_words(pair)}."
    ]
    if _are_prompts_fixed(models, ranking):
        sentences[0] += " That is for these prompts: other prompts can give another result."
    if len(ranking.order) > 2:
        sentences.append(_open_pairs(ranking))
    return [*sentences, *_prompts_ignored(models, ranking)]


def _are_prompts_fixed(models: Documents, ranking: Ranking) -> bool:
    """Return whether the intervals are for other outputs of the same prompts only."""
    document = models[ranking.order[0]]
    interval = document["scores"][ranking.score]["interval"]
    return interval is not None and _has_fixed_prompts(document, interval)


def _prompts_ignored(models: Documents, ranking: Ranking) -> list[str]:
    """Return which models are diverse because they do not answer; empty if none is."""
    ignoring = [model for model in ranking.order if ignores_prompts(models[model])]
    if not ignoring:
        return []
    named = _listed([isolated(model) for model in ignoring[:_SHOWN_TIES]], ignoring)
    text = (
        f"The outputs of {named} cannot be distinguished from outputs that ignore their prompts: "
        "their diversity may be no answer to the prompts."
    )
    others = [model for model in ranking.order if model not in ignoring]
    if others and ranking.order[0] in ignoring:
        value = significant(models[others[0]]["scores"][ranking.score]["value"])
        text += f" Of the other models, {isolated(others[0])} has the highest score ({value})."
    return [text]


def _open_pairs(ranking: Ranking) -> str:
    """Return how many pairs of models are settled, and which neighbours are not."""
    num_clear = sum(pair.is_clear for pair in ranking.pairs)
    num_pairs = len(ranking.pairs)
    if num_clear == num_pairs:
        return f"All {num_pairs:,} pairs of models differ clearly: the whole order is settled."
    settled = f"{num_clear:,} of {num_pairs:,} pairs of models differ clearly"
    if num_clear == 1:
        settled = f"1 of {num_pairs:,} pairs of models differs clearly"
    unsettled = ranking.unsettled
    named = []
    for pair in unsettled[:_SHOWN_TIES]:
        named.append(f"{isolated(pair.first)} and {isolated(pair.second)}")
    more = len(unsettled) - len(named)
    ending = ""
    if more:
        ending = f", and {number_of(more, 'more pair')}"
    return f"{settled}. The order is not settled between {'; '.join(named)}{ending}."


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
            text = isolated(shortened(entry_label(repeated["output"]), LONGEST_QUOTE))
            quote = f"“{text}” {count:,} times"
            # The least diverse prompt may be the only one with this output.
            if not any(quote in sentence for sentence in sentences):
                sentences.append(f"{subject} gives the output {quote} among {total:,} outputs.")
    return sentences
