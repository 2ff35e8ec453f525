"""What a result says, in sentences: for the top of a page and below a table."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from divprism.report.texts import number_of, shortened, visible

__all__ = ["comparison_sentences", "convergence_sentence", "entry_label", "headline", "percent"]

Document = Mapping[str, Any]
_CHANCE = 0.05  # p-values up to it count as more than chance
_CLEARLY_LESS = 0.95  # times the diversity of the middle group


def percent(level: float) -> str:
    """A level as people write it: 0.95 is 95 %."""
    return f"{100 * level:g}\N{NO-BREAK SPACE}%"


def headline(document: Document) -> list[str]:
    """The scores of one model in words, and what else stands out."""
    scores, data = document["scores"], document["data"]
    vendi, count = scores["vendi"], number_of(data["n"], "output")
    if "conditional_vendi" not in scores:
        return [f"{count} amount to {vendi['value']:.3g} distinct ones (Vendi{_reach(vendi)}).", *_standing_out(document)]
    conditional, information = scores["conditional_vendi"], scores["information_vendi"]
    under = "" if data["prompts"] is None else f" to {number_of(data['prompts'], 'different prompt')}"
    return [
        f"{count}{under} amount to {vendi['value']:.3g} distinct ones (Vendi{_reach(vendi)}).",
        f"Of these the model itself brings {conditional['value']:.3g} per kind of prompt (Conditional-Vendi"
        f"{_reach(conditional)}), and the prompts bring a factor of {information['value']:.3g} (Information-Vendi"
        f"{_reach(information)}).",
        *_standing_out(document),
    ]


def _reach(score: Document) -> str:
    interval = score["interval"]
    if interval is None:
        return ""
    return f", {percent(interval['level'])} interval {interval['low']:.3g} to {interval['high']:.3g}"


def _standing_out(document: Document) -> list[str]:
    details = document.get("details") or {}
    lines = [] if document["baseline"] is None else [_baseline_sentence(document["baseline"])]
    if details.get("convergence"):
        lines.append(convergence_sentence(details["convergence"]))
    if details.get("groups"):
        lines += _least_diverse(details["groups"])
    return lines


def _baseline_sentence(baseline: Document) -> str:
    excess, chance, count = baseline["excess_information"], baseline["p_value"], baseline["num_permutations"]
    if chance <= _CHANCE:
        told = f"Outputs follow their prompts: Information exceeds that of random pairings by {excess:.3g} nats"
    elif chance <= 1 / (count + 1):  # as small as so few pairings allow
        told = f"Information exceeds that of all {count} random pairings, by {excess:.3g} nats"
    else:
        told = (
            "Outputs cannot be told from outputs that ignore their prompts: Information differs from that of random pairings "
            f"by {excess:.2g} nats"
        )
    return f"{told} (p = {chance:.2g})."


def _least_diverse(document: Document) -> list[str]:
    """The group that stands first, if it is less diverse than the others by more than a little."""
    large = [group for group in document["groups"] if not group["small"]]
    values = [group["vendi"] if group["rarefied"] is None else group["rarefied"] for group in large]
    if len(large) < 2 or values[0] > _CLEARLY_LESS * sorted(values)[len(values) // 2]:
        return []
    size = large[0]["size"] if large[0]["rarefied"] is None else document["equal_size"]
    title = entry_label(large[0]["prompts"][0]) if large[0]["prompts"] else str(large[0]["name"])
    return [
        f"The model repeats itself most under “{shortened(title, 90)}”: {values[0]:.3g} distinct among {size:,.0f} outputs."
    ]


def entry_label(entry: Document) -> str:
    """What stands for a row: its text, the name of its file with that of its folder, its id or its number."""
    file = "/".join(Path(entry["file"]).parts[-2:]) if "file" in entry else None
    return visible(str(entry.get("text") or file or entry.get("where") or entry.get("id") or f"row {entry['row']}"))


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
        which = ", ".join(enough) or "no score that could be told"
        return f"A draw of {drawn:,} of the {whole:,} outputs suffices for {which}."
    if len(enough) == len(verdicts):
        return "The sample suffices for every score."
    parts = [f"suffices for {', '.join(enough)}"] if enough else []
    parts += [f"is too small for {'every score' if len(lacking) == len(verdicts) else ', '.join(lacking)}"] if lacking else []
    parts += [f"leaves open whether it suffices for {', '.join(unclear)}"] if unclear else []
    return f"The sample {'; it '.join(parts)}."


def comparison_sentences(document: Document) -> list[str]:
    """A ranking in words: how many pairs of models can be told apart, the first two, and what length has to do with it."""
    differences, score = document["differences"], document["score"]
    clear = sum(one["clear"] for one in differences)
    best = differences[0]
    lines = [
        f"ranked by {score}; of {number_of(len(differences), 'pair')} of models {clear} differ clearly on the same prompts",
        f"the first two, {visible(best['first'])} over {visible(best['second'])}: {best['ratio']:.3f} "
        f"({best['low']:.3f} to {best['high']:.3f})",
    ]
    if document["length_correlation"] is not None:
        told = f"{document['length_correlation']:+.2f} (Spearman)"
        lines.append(f"correlation of {score} with the length of outputs over models: {told}")
    return lines
