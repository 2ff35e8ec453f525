"""What a result says, in sentences: for the top of a page and below a table."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from divprism.report.texts import isolated, number_of, shortened, visible

__all__ = [
    "at_equal_size",
    "comparison_sentences",
    "convergence_sentence",
    "entry_label",
    "equal_size_note",
    "headline",
    "percent",
]

Document = Mapping[str, Any]
_CHANCE, _TINY = (
    0.05,
    0.001,
)  # p-values up to the one count as more than chance, and below the other are not spelled out
_CLEARLY_LESS = 0.95  # times the diversity of the middle group
_ERRORS = (
    2.0  # standard errors that two groups are apart, for one of them to be called the least diverse
)
_BIASED = 1.005  # a factor of random pairings from which on it is worth a word
_LONGEST = 90  # letters of a prompt in a sentence


def percent(level: float) -> str:
    """A level as people write it: 0.95 is 95 %."""
    return f"{100 * level:g}\N{NO-BREAK SPACE}%"


def headline(document: Document) -> list[str]:
    """The scores of one model in words, and what else stands out."""
    scores, data = document["scores"], document["data"]
    vendi, conditional, information = (
        scores.get(f"{family}vendi") for family in ("", "conditional_", "information_")
    )
    under = (
        "" if data["prompts"] is None else f" to {number_of(data['prompts'], 'different prompt')}"
    )
    amount = "amounts" if data["n"] == 1 else "amount"
    ones = "one" if f"{vendi['value']:.3g}" == "1" else "ones"
    lines = [
        f"{number_of(data['n'], 'output')}{under} {amount} to {vendi['value']:.3g} distinct {ones} (Vendi{_reach(vendi)})."
    ]
    if conditional is None:
        return [*lines, *_standing_out(document)]
    own = f"Of these the model itself brings {conditional['value']:.3g} per kind of prompt"
    own = f"{own} (Conditional-Vendi{_reach(conditional)})"
    factor = f"a factor of {information['value']:.3g} (Information-Vendi{_reach(information)})"
    if document["baseline"] is None or document["baseline"]["baseline"] < _BIASED:
        return [*lines, f"{own}, and the prompts bring {factor}.", *_standing_out(document)]
    return [
        *lines,
        f"{own}; the rest is {factor}. {_left_for_prompts(document['baseline'])}",
        *_standing_out(document),
    ]


def _left_for_prompts(baseline: Document) -> str:
    """How much of Information is the bias of a small sample, and how much is left."""
    left = f"{math.exp(baseline['excess_information']):.3g}"
    told = (
        "nothing is left for the prompts"
        if float(left) <= 1
        else f"what is left for the prompts is a factor of {left}"
    )
    chance = (
        f"Outputs paired with prompts at random show a factor of {baseline['baseline']:.3g} too"
    )
    return f"{chance}, the bias of a small sample; {told}."


def _reach(score: Document) -> str:
    interval = score["interval"]
    if interval is None:
        return ""
    return (
        f", {percent(interval['level'])} interval {interval['low']:.3g} to {interval['high']:.3g}"
    )


def _standing_out(document: Document) -> list[str]:
    details = document.get("details") or {}
    lines = [] if document["baseline"] is None else [_baseline_sentence(document["baseline"])]
    if details.get("convergence"):
        lines.append(convergence_sentence(details["convergence"]))
    if details.get("groups"):
        lines += _least_diverse(details["groups"])
    return lines


def _baseline_sentence(baseline: Document) -> str:
    """Whether outputs follow their prompts: by the share of pairings that show more Information; of few, by Student's t."""
    excess, count = baseline["excess_information"], baseline["num_permutations"]
    chance, how = baseline["p_value"], f"{count} random pairings"
    if 1 / (count + 1) > _CHANCE:  # the share cannot be as small as that
        spread = baseline.get("standard_deviation")
        if spread is None:
            few = number_of(count, "random pairing")
            return f"Whether outputs follow their prompts cannot be told from {few}: --num-permutations 19 can tell."
        chance, how = _student(excess, spread, count), f"Student's t of {count} random pairings"
    told = (
        "Outputs follow their prompts: their Information exceeds that of random pairings"
        if chance <= _CHANCE
        else "Outputs cannot be told from outputs that ignore their prompts: Information differs from that of random pairings"
    )
    less = "p < 0.001" if chance < _TINY else f"p = {chance:.2g}"
    return f"{told} by {excess:.2g} nats ({less}, {how})."


def _student(excess: float, spread: float, count: int) -> float:
    """The chance of a value so far above the mean of `count` others with that standard deviation."""
    from scipy.special import stdtr

    reach = max(spread * math.sqrt(1 + 1 / count), 1e-12)
    return float(stdtr(count - 1, -excess / reach))


def at_equal_size(document: Document) -> bool:
    """Whether groups are compared at another size than their own."""
    return any(group["rarefied"] not in (None, group["vendi"]) for group in document["groups"])


def equal_size_note(document: Document) -> str:
    """What the column of scores at equal size holds."""
    size = document["equal_size"]
    return f"vendi of {size}: mean over random draws of {size} outputs, so that large groups compare with small ones"


def _least_diverse(document: Document) -> list[str]:
    """The group that stands first, if it is less diverse than the next, beyond error, and than most by more than a little."""
    large = [group for group in document["groups"] if not group["small"]]
    if len(large) < 2:
        return []
    fair = large[0]["rarefied"] is not None
    values = [group["rarefied" if fair else "vendi"] for group in large]
    errors = [group["rarefied_error" if fair else "standard_error"] for group in large]
    if values[0] > _CLEARLY_LESS * sorted(values)[len(values) // 2]:
        return []
    if values[1] - values[0] <= _ERRORS * math.hypot(*errors[:2]):
        return []
    first, size = large[0], round(large[0]["size"])
    title = isolated(
        shortened(
            entry_label(first["prompts"][0]) if first["prompts"] else str(first["name"]), _LONGEST
        )
    )
    prompts = first.get("num_prompts") or len(first["prompts"])
    where = f"prompts like “{title}” ({number_of(prompts, 'prompt')}, {number_of(size, 'output')})"
    among = number_of(size, "output")
    if fair and document["equal_size"] < size:
        among = f"{document['equal_size']:,} drawn from {'them' if prompts > 1 else f'its {among}'}"
    return [
        f"The model repeats itself most under {where if prompts > 1 else f'“{title}”'}: {values[0]:.3g} distinct among {among}."
    ]


def entry_label(entry: Document) -> str:
    """What stands for a row: its text, the name of its file with that of its folder, its id or its number."""
    file = "/".join(Path(entry["file"]).parts[-2:]) if "file" in entry else None
    return visible(
        str(
            entry.get("text")
            or file
            or entry.get("where")
            or entry.get("id")
            or f"row {entry['row']}"
        )
    )


def convergence_sentence(document: Document) -> str:
    """For which scores the sample suffices, for which it does not, and for which its curve leaves that open.

    Of a draw only what suffices is told: the whole may suffice for more.
    """
    verdicts = document["verdicts"]
    enough = [name for name, verdict in verdicts.items() if verdict["status"] == "converged"]
    unclear = [name for name, verdict in verdicts.items() if verdict["status"] == "unclear"]
    lacking = [name for name in verdicts if name not in (*enough, *unclear)]
    drawn, whole = document.get("n"), document.get("drawn_from")
    if whole is not None and drawn != whole:
        draw = f"A draw of {drawn:,} of the {whole:,} outputs"
        return (
            f"{draw} suffices for {', '.join(enough)}."
            if enough
            else f"{draw} does not tell for which scores all of them suffice."
        )
    if len(enough) == len(verdicts):
        return "The sample suffices for every score."
    parts = [f"suffices for {', '.join(enough)}"] if enough else []
    parts += (
        [
            f"is too small for {'every score' if len(lacking) == len(verdicts) else ', '.join(lacking)}"
        ]
        if lacking
        else []
    )
    parts += [f"leaves open whether it suffices for {', '.join(unclear)}"] if unclear else []
    return f"The sample {'; it '.join(parts)}."


def comparison_sentences(document: Document) -> list[str]:
    """A ranking in words: how many pairs of models can be told apart, the first two, and what length has to do with it."""
    differences, score = document["differences"], document["score"]
    clear = sum(one["clear"] for one in differences)
    best = differences[0]
    told = f"of {len(differences):,} pairs of models {clear:,} {'differs' if clear == 1 else 'differ'} clearly on the same prompts"
    if len(differences) == 1:
        told = (
            f"on the same prompts the two models {'differ' if clear else 'do not differ'} clearly"
        )
    lines = [
        f"ranked by {score}; {told}",
        f"the first two, {isolated(best['first'])} over {isolated(best['second'])}: {best['ratio']:.3f} "
        f"({best['low']:.3f} to {best['high']:.3f})",
    ]
    if document["length_correlation"] is not None:
        told = f"{document['length_correlation']:+.2f} (Spearman)"
        lines.append(f"correlation of {score} with the length of outputs over models: {told}")
    return lines
