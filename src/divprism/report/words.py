"""Sentences about results, for the top of a page and below a table."""

import math
from collections.abc import Sequence
from pathlib import PurePath

from divprism.analysis.groups.grouping import FEWEST_OUTPUTS
from divprism.data.wording import plain_number
from divprism.report.documents import Document
from divprism.report.growth import growth_of
from divprism.report.kinds import kinds_of, kinds_sentence
from divprism.report.texts import (
    isolated,
    number_of,
    sentence,
    shortened,
    significant,
    visible,
)
from divprism.scores.spec import score_spec

__all__ = [
    "ERRORS_APART",
    "LONGEST_QUOTE",
    "SMALLEST_CHANCE",
    "at_equal_size",
    "baseline_sentence",
    "comparison_sentences",
    "convergence_sentence",
    "entry_label",
    "gap_notes",
    "equal_size_note",
    "group_title",
    "grouping_note",
    "groups_sentences",
    "headline",
    "ignores_prompts",
    "least_diverse_prompts",
    "length_note",
    "p_value_of",
    "percent",
]

_SIGNIFICANT = 0.05  # p-values up to this count as more than chance
_MIN_PAIRINGS = 19  # random pairings from which on a p-value of 0.05 can be reached
_CLEARLY_LESS = 0.95  # a group below this share of the median group is less diverse
_ROUNDING = 1e-9  # nats; pairings closer than that have the same Information
_EQUAL = 0.0005  # logarithm of the ratio of numbers that read the same
_BIASED = 1.005  # a factor of random pairings from which on the bias is worth mentioning
# Warnings that call a sample too small for the level of a score.
_SMALL_SAMPLE = ("information-unchecked", "too-few-for-interval")
# exp(0.05) is a factor of 1.05: numbers closer than that need no remark.
_LARGE_GAP = 0.05  # nats between the groups together and the conditional score
ERRORS_APART = 2.0
"""Standard errors within which two groups or prompts count as equally diverse."""
SMALLEST_CHANCE = 0.001
"""P-values below this are not printed in full."""
LONGEST_QUOTE = 90
"""Letters of a prompt or an output inside a sentence."""


def percent(level: float) -> str:
    """Return a level as a percentage: 0.95 is 95 %."""
    # A line of the page must not end between the number and its sign.
    return f"{100 * level:g}\N{NO-BREAK SPACE}%"


def headline(document: Document) -> list[str]:
    """Return the scores of one model in words, and whatever else stands out."""
    scores = document["scores"]
    sentences = [_vendi_sentence(document["data"], scores["vendi"])]
    if "conditional_vendi" in scores:
        sentences.append(_split_sentence(scores, document["baseline"]))
    connection = kinds_sentence(document)
    if connection:
        sentences.append(f"{connection}.")
    return [*sentences, *_further_sentences(document)]


def _vendi_sentence(data: Document, vendi: Document) -> str:
    subject = number_of(data["n"], "output")
    if data["prompts"] is not None:
        subject += f" for {number_of(data['prompts'], 'distinct prompt')}"
    verb = "amount"
    if data["n"] == 1:
        verb = "amounts"
    value = significant(vendi["value"])
    noun = "distinct outputs"
    if value == "1":
        noun = "distinct output"
    return f"{subject} {verb} to {value} {noun} ({_named('vendi', vendi)})."


def _split_sentence(scores: Document, baseline: Document | None) -> str:
    """Return a sentence about the two factors of vendi, the model's and the prompts'."""
    conditional, information = scores["conditional_vendi"], scores["information_vendi"]
    value = significant(conditional["value"])
    own = (
        f"Of these, the model itself contributes {value} per kind of prompt "
        f"({_named('conditional_vendi', conditional)})"
    )
    value = significant(information["value"])
    factor = f"a factor of {value} ({_named('information_vendi', information)})"
    # Where random pairings show the same factor, the prompts must not get the credit for it.
    if baseline is None or baseline["baseline"] < _BIASED:
        return f"{own}, and the prompts contribute {factor}."
    return f"{own}; the rest is {factor}. {_bias_sentence(baseline)}"


def _named(name: str, score: Document) -> str:
    """Return the title of a score, with its interval where there is one."""
    title = score_spec(name).title
    interval = score["interval"]
    if interval is None:
        return title
    ends = f"{significant(interval['low'])} to {significant(interval['high'])}"
    return f"{title}, {percent(interval['level'])} interval {ends}"


def _bias_sentence(baseline: Document) -> str:
    """Return how much of Information is the bias of a small sample, and how much is left."""
    # Rounded before it is compared, so that the sentence never says "a factor of 1 is left".
    left = math.exp(baseline["excess_information"])
    remainder = f"a factor of {plain_number(left)} is left for the prompts"
    if float(f"{left:.3g}") <= 1:
        remainder = "nothing is left for the prompts"
    return (
        "Outputs paired with prompts at random also show a factor of "
        f"{plain_number(baseline['baseline'])}, the bias of a small sample; {remainder}."
    )


def _further_sentences(document: Document) -> list[str]:
    """Return what the baseline and the groups add."""
    details = document.get("details") or {}
    sentences = []
    if document["baseline"] is not None:
        sentences.append(baseline_sentence(document["baseline"]))
    if details.get("least_diverse_prompts"):
        sentences += least_diverse_prompts(details["least_diverse_prompts"])
    elif details.get("groups"):
        sentences += _least_diverse_group(details["groups"])
    return sentences


def baseline_sentence(baseline: Document) -> str:
    """Return whether outputs follow their prompts, with the evidence."""
    if _fits_every_pairing(baseline):
        return (
            "Whether outputs follow their prompts cannot be tested: however they are paired with "
            "them, their Information is the same."
        )
    chance, evidence = _evidence(baseline)
    if chance is None:
        return (
            f"{evidence} cannot show whether outputs follow their prompts: compare with at least "
            f"{_MIN_PAIRINGS} random pairings."
        )
    finding = "Outputs cannot be distinguished from outputs that ignore their prompts"
    if chance <= _SIGNIFICANT:
        finding = "Outputs follow their prompts"
    ratio = _ratio(baseline["excess_information"])
    return f"{finding}: their Information is {ratio} that of random pairings ({evidence})."


def ignores_prompts(document: Document) -> bool:
    """Return whether outputs cannot be distinguished from outputs that ignore their prompts."""
    if document["baseline"] is None or _fits_every_pairing(document["baseline"]):
        return False
    chance, _ = _evidence(document["baseline"])
    return chance is not None and chance > _SIGNIFICANT


def _fits_every_pairing(baseline: Document) -> bool:
    """Return whether all pairings have the same Information, so that none can be unlikely."""
    # Ids as prompts, one output each: no two prompts are alike, and any order is as good.
    spread = baseline.get("standard_deviation")
    if spread is None:
        return False
    return bool(spread <= _ROUNDING and abs(baseline["excess_information"]) <= _ROUNDING)


def _evidence(baseline: Document) -> tuple[float | None, str]:
    """Return the p-value of a baseline and its source; None where it cannot be known.

    The p-value is the share of random pairings with at least as much Information. Few pairings
    cannot give a small one: they are judged by Student's t.
    """
    count = baseline["num_permutations"]
    if count >= _MIN_PAIRINGS:
        return baseline["p_value"], p_value_of(baseline)
    spread = baseline.get("standard_deviation")
    if spread is None:
        return None, number_of(count, "random pairing")
    # The spread is that of the pairings whose spectra were computed, which may be fewer.
    count = baseline.get("num_spectra") or count
    chance = _student_chance(baseline["excess_information"], spread, count)
    evidence = f"p = {chance:.2g}"
    # Student's t gives values such as 1e-9 even for five pairings, which promise too much.
    if chance < SMALLEST_CHANCE:
        evidence = f"p < {SMALLEST_CHANCE:g}"
    return chance, f"{evidence}, Student's t of {count} random pairings"


def _ratio(log_ratio: float) -> str:
    """Return a ratio from its logarithm, with the digits that tell it from 1.

    >>> _ratio(0.1), _ratio(0.0004), _ratio(0.0)
    ('1.11 times', '1.0004 times', '1 times')
    """
    ratio = math.exp(log_ratio)
    decimals = 2
    while decimals < 4 and round(ratio, decimals) == 1 and log_ratio != 0:
        decimals += 1
    return f"{plain_number(round(ratio, decimals), 6)} times"


def p_value_of(baseline: Document) -> str:
    """Return the p-value of a baseline in words, with the least that its pairings can show.

    >>> p_value_of({"p_value": 0.05, "num_permutations": 19})
    'p <= 0.05, the least that 19 random pairings can show'
    >>> p_value_of({"p_value": 0.25, "num_permutations": 19})
    'p = 0.25, 19 random pairings'
    """
    count, chance = baseline["num_permutations"], baseline["p_value"]
    pairings = number_of(count, "random pairing")
    # The given pairing counts among the others, so that no p-value is below 1 / (count + 1).
    if chance * (count + 1) < 1.5:
        return f"p <= {chance:.2g}, the least that {pairings} can show"
    return f"p = {chance:.2g}, {pairings}"


def _against(log_ratio: float) -> str:
    """Return how a number compares with the one named after it."""
    if abs(log_ratio) < _EQUAL:
        return "equal to"
    return _ratio(log_ratio)


def _student_chance(excess: float, spread: float, count: int) -> float:
    """Return the chance of a value this far above the mean of `count` others."""
    from scipy.special import stdtr

    # The mean of the others is itself uncertain, hence 1 + 1 / count. A spread of zero, equal
    # pairings, must not divide by zero.
    scale = max(spread * math.sqrt(1 + 1 / count), 1e-12)
    return float(stdtr(count - 1, -excess / scale))


def at_equal_size(document: Document) -> bool:
    """Return whether any group is compared at another size than its own."""
    # Where all groups have the same size, the column would repeat that of vendi.
    return any(group["rarefied"] not in (None, group["vendi"]) for group in document["groups"])


def equal_size_note(document: Document) -> str:
    """Return what the column of scores at equal size holds."""
    size = document["equal_size"]
    return (
        f"vendi of {size}: mean over random draws of {size} outputs, so that large groups compare "
        "with small ones"
    )


def groups_sentences(document: Document) -> list[str]:
    """Return which groups come first, and the mean of the groups."""
    num_hidden = document.get("num_hidden", 0)
    num_groups, num_small = len(document["groups"]) + num_hidden, document["num_small"]
    threshold = f"fewer than {document['min_size']} outputs"
    order = "The least diverse groups come first: there the model repeats itself."
    if num_small == num_groups:
        order = f"All groups have {threshold}, too few to judge their diversity."
    elif num_small:
        small = number_of(num_small, "group")
        order += f" Last: {small} with {threshold}, too few to judge."
    if num_hidden:
        order += f" Not shown: {number_of(num_hidden, 'more group')}."
    keys = ("aggregate", "aggregate_rke", "conditional_vendi", "conditional_rke")
    mean, mean_rke, own, own_rke = (plain_number(document[key], 4) for key in keys)
    total = (
        f"The mean of the groups is {mean}, {_against(document['gap'])} "
        f"{score_spec('conditional_vendi').title} ({own}); at order 2 it is {mean_rke}, "
        f"{_against(document['gap_rke'])} {score_spec('conditional_rke').title} ({own_rke})."
    )
    notes = [*grouping_note(document), *gap_notes(document)]
    return [order, total, *map(sentence, notes)]


def grouping_note(document: Document) -> list[str]:
    """Return how prompts were grouped by default, and why; empty where that was asked for."""
    data = document["data"]
    if not data.get("by_default") or not data.get("prompts"):
        return []
    if data.get("grouping") == "ExactPromptGrouping":
        return [
            "grouped by exact prompt, by default: prompts have several outputs each, and the "
            "kernel tells them apart"
        ]
    reason = "the kernel sees fewer than half as many kinds of prompt as prompts"
    if data["n"] < FEWEST_OUTPUTS * data["prompts"]:
        reason = f"prompts have fewer than {FEWEST_OUTPUTS} outputs on average"
    return [f"grouped by the similarity of prompts, by default: {reason}"]


def gap_notes(document: Document) -> list[str]:
    """Return how many kinds of prompt the conditional score counts, and what follows from it."""
    kinds, num_prompts = document.get("prompt_vendi"), document["data"].get("prompts")
    if kinds is None or num_prompts is None:
        return []
    note = f"Conditional-Vendi is per kind of prompt: {kinds_of(kinds, num_prompts)}"
    num_groups = len(document["groups"]) + document.get("num_hidden", 0)
    groups = number_of(num_groups, "group")
    if document["gap"] > _LARGE_GAP and kinds > num_groups:
        note += (
            f", more than the {groups}: groups mix prompts that have little in common, so their "
            "scores are higher; ask for more groups"
        )
        # A prompt needs several outputs to be a group of its own.
        if document["data"]["n"] >= FEWEST_OUTPUTS * num_prompts:
            note += ", or group by prompt"
    if document["gap"] < -_LARGE_GAP and kinds < num_groups:
        note += f", fewer than the {groups}: it also compares outputs of different groups"
    return [note]


def least_diverse_prompts(least: Document, subject: str = "The model") -> list[str]:
    """Return a sentence about the exact prompts of the lowest score; empty if none stands out."""
    titles = []
    for entry in least["prompts"]:
        title = isolated(shortened(entry_label(entry), LONGEST_QUOTE))
        titles.append(f"“{title}”")
    sample = number_of(least["num_outputs"], "output")
    if least["is_sampled"]:
        sample = number_of(least["num_outputs"], "random output")
    if least["num_prompts"] > 1:
        sample += " each"
    count = f"{significant(least['vendi'])} distinct of {sample}"
    if least["vendi"] > _CLEARLY_LESS * least["median"]:
        # Where most prompts have the lowest score none stands out, but that is worth a sentence.
        if f"{least['vendi']:.3g}" == "1" and least.get("num_compared"):
            of_all = f"{least['num_prompts']:,} of {number_of(least['num_compared'], 'prompt')}"
            return [f"{subject} repeats one output for {of_all}, such as {titles[0]}: {count}."]
        return []
    more = least["num_prompts"] - len(titles)
    if more:
        titles.append(f"{more:,} more")
    where = f"the prompt {titles[0]}"
    if len(titles) > 1:
        where = f"the prompts {', '.join(titles[:-1])} and {titles[-1]}"
    return [f"{subject} repeats itself most for {where}: {count}{_most_repeated(least)}."]


def _most_repeated(least: Document) -> str:
    """Return the most frequent output of the least diverse prompt, where there is one such."""
    worst = least.get("worst") or []
    if least["num_prompts"] > 1 or not worst or worst[0]["repeated"] is None:
        return ""
    repeated = worst[0]["repeated"]
    text = isolated(shortened(entry_label(repeated["output"]), LONGEST_QUOTE))
    return f" (“{text}” {repeated['count']:,} times)"


def _least_diverse_group(document: Document) -> list[str]:
    """Return a sentence about the least diverse group; empty if none stands out.

    It must lie below the next group by more than the error, and clearly below the median group.
    """
    large = [group for group in document["groups"] if not group["small"]]
    if len(large) < 2:
        return []
    # Large groups have more kinds of outputs by size alone: compare at equal size if possible.
    is_rarefied = all(group["rarefied"] is not None for group in large)
    value_key, error_key = "vendi", "standard_error"
    if is_rarefied:
        value_key, error_key = "rarefied", "rarefied_error"
    # Documents list the least diverse group first, so the first two are those to compare.
    values = [group[value_key] for group in large]
    if values[0] > _CLEARLY_LESS * sorted(values)[len(values) // 2]:
        return []
    error = math.hypot(large[0][error_key], large[1][error_key])
    if values[1] - values[0] <= ERRORS_APART * error:
        return []
    size = round(large[0]["size"])
    sample = number_of(size, "output")
    if is_rarefied and document["equal_size"] < size:
        sample = f"{document['equal_size']:,} random outputs of these {size:,}"
    count = f"{significant(values[0])} distinct of {sample}"
    title = f"“{isolated(shortened(group_title(large[0]), LONGEST_QUOTE))}”"
    num_prompts = large[0]["num_prompts"]
    # A group of several prompts is described by its most typical one, not identified with it.
    if num_prompts > 1:
        prompts = number_of(num_prompts, "prompt")
        where = f"for prompts like {title} ({prompts})"
        return [f"The model repeats itself most {where}: {count}."]
    # One prompt among groups of several may be less diverse, though its group is not.
    if any(group["num_prompts"] > 1 for group in document["groups"]) or document.get("num_small"):
        return [f"The least diverse group of prompts is {title} alone: {count}."]
    return [f"The model repeats itself most for the prompt {title}: {count}."]


def group_title(group: Document) -> str:
    """Return the most typical prompt of a group; without prompts, its name."""
    if group["prompts"]:
        return entry_label(group["prompts"][0])
    return visible(group["name"] or "")


def entry_label(entry: Document) -> str:
    """Return a label for a row: its text, file with folder, source, id or number."""
    # Cleaned here too: tables show results that have not passed `visible_values`.
    if entry.get("text"):
        return visible(entry["text"])
    if entry.get("file"):
        # The folder often is the prompt; those above it are of no interest to readers.
        return visible("/".join(PurePath(entry["file"]).parts[-2:]))
    return visible(entry.get("where") or entry.get("id") or f"row {entry['row']}")


def convergence_sentence(document: Document) -> str:
    """Return for which scores the sample is large enough.

    Of a random subset only what suffices is reported: the whole sample may suffice for more.
    """
    used, total = document["n"], document.get("drawn_from")
    if total is None or used == total:
        summary: str = document["summary"]
        return summary
    enough = []
    for name, verdict in document["verdicts"].items():
        if verdict["status"] == "converged":
            enough.append(name)
    subset = f"A random subset of {used:,} of the {total:,} outputs"
    if enough:
        return f"{subset} suffices for {', '.join(enough)}."
    return f"{subset} leaves open for which scores all of them suffice."


def comparison_sentences(document: Document) -> list[str]:
    """Return a ranking in words: which pairs differ, the first two, and the effect of length."""
    differences, score = document["differences"], score_spec(document["score"]).title
    best = differences[0]
    # Tables drop the marks again, and the page turns them into elements.
    first, second = isolated(best["first"]), isolated(best["second"])
    ends = "too few outputs for an interval"
    if best["low"] is not None and best["high"] is not None:
        ends = f"interval {best['low']:.3f} to {best['high']:.3f}"
    sentences = [
        f"ranked by {score}; {_clear_differences(differences)}",
        *_shared_ranks(document),
        *_levels_and_differences(document),
        f"{first} scores {best['ratio']:.3f} times as high as {second} ({ends})",
    ]
    correlation = document["length_correlation"]
    if correlation is not None:
        sentences.append(
            f"correlation of {score} with the length of outputs over {len(document['ranks'])} "
            f"models: {correlation:+.2f} (Spearman)"
        )
    return sentences


def length_note(document: Document) -> list[str]:
    """Return what the column of lengths holds; empty for outputs other than texts."""
    if not document.get("lengths"):
        return []
    return ["words: mean number of words of an output"]


def _shared_ranks(document: Document) -> list[str]:
    """Return what a range of ranks means, with the first one as the example."""
    # Without intervals another sentence says that there are too few outputs for an order.
    if all(difference["low"] is None for difference in document["differences"]):
        return []
    for low, high in document["ranks"].values():
        if low < high:
            return [
                f"a rank of {low}-{high} means any place from {low} to {high}: models that do not "
                "differ clearly have no order"
            ]
    return []


def _levels_and_differences(document: Document) -> list[str]:
    """Return how models can differ clearly in a sample that is too small for their scores."""
    score = document["score"]
    is_clear = any(difference["clear"] for difference in document["differences"])
    in_doubt = any(_is_level_in_doubt(model, score) for model in document["models"].values())
    if not is_clear or not in_doubt:
        return []
    return [
        f"the sample is too small for the level of {score_spec(score).title}, which changes with "
        "the number of outputs: read the differences as those at this number of outputs, which is "
        "the same for all models on the same prompts; with more outputs they can grow or shrink"
    ]


def _is_level_in_doubt(document: Document, score: str) -> bool:
    """Return whether anything that is shown about a model calls its sample too small."""
    if any(warning["code"] in _SMALL_SAMPLE for warning in document["warnings"]):
        return True
    growth = growth_of(document, score)
    if growth is None or growth.suffices:
        return False
    # A change that the interval beside it allows is no reason to doubt the score.
    return growth.change is None or growth.reach is None or growth.exceeds_interval


def _clear_differences(differences: Sequence[Document]) -> str:
    if all(difference["low"] is None for difference in differences):
        return "too few outputs to say whether models differ"
    num_clear = sum(difference["clear"] for difference in differences)
    if len(differences) == 1:
        verb = "do not differ"
        if num_clear:
            verb = "differ"
        return f"on the same prompts the two models {verb} clearly"
    verb = "differ"
    if num_clear == 1:
        verb = "differs"
    total = f"{len(differences):,} pairs of models"
    return f"{num_clear:,} of {total} {verb} clearly on the same prompts"
