"""What a result says, in sentences: for the top of a page and below a table."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

__all__ = ["comparison_sentences", "convergence_sentence", "entry_label", "headline", "percent"]

Document = Mapping[str, Any]
_CHANCE = 0.05  # p-values up to it count as more than chance


def percent(level: float) -> str:
    """A level as people write it: 0.95 is 95 %."""
    return f"{100 * level:g}\N{NO-BREAK SPACE}%"


def headline(document: Document) -> list[str]:
    """The scores of one model in words, and what else stands out."""
    scores, data = document["scores"], document["data"]
    vendi = scores["vendi"]
    if "conditional_vendi" not in scores:
        said = f"{data['n']:,} outputs amount to {vendi['value']:.3g} distinct ones (Vendi{_reach(vendi)})."
        return [said, *_standing_out(document)]
    conditional, information = scores["conditional_vendi"], scores["information_vendi"]
    under = "" if data["prompts"] is None else f" to {data['prompts']:,} different prompts"
    return [
        f"{data['n']:,} outputs{under} amount to {vendi['value']:.3g} distinct ones (Vendi{_reach(vendi)}).",
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
    lines = []
    if (baseline := document["baseline"]) is not None:
        excess, chance = baseline["excess_information"], f"p = {baseline['p_value']:.2g}"
        if baseline["p_value"] <= _CHANCE:
            lines.append(
                f"Outputs follow their prompts: Information exceeds that of random pairings by {excess:.3g} nats ({chance})."
            )
        else:
            lines.append(
                "Outputs cannot be told from outputs that ignore their prompts: Information differs from that of random "
                f"pairings by {excess:.2g} nats ({chance})."
            )
    details = document.get("details") or {}
    if details.get("convergence"):
        lines.append(convergence_sentence(details["convergence"]))
    large = [group for group in (details.get("groups") or {}).get("groups", ()) if not group["small"]]
    if len(large) > 1:
        least = large[0]
        lines.append(
            f"The model repeats itself most under “{_short(_titled(least))}”: {least['vendi']:.3g} distinct among "
            f"{least['size']:,.0f} outputs."
        )
    return lines


def _titled(group: Document) -> str:
    return entry_label(group["prompts"][0]) if group["prompts"] else str(group["name"])


def _short(text: str, width: int = 90) -> str:
    line = " ".join(text.split())
    return line if len(line) <= width else f"{line[: width - 3].rstrip()}..."


def entry_label(entry: Document) -> str:
    """What stands for a row: its text, the name of its file, its id or its number."""
    file = Path(entry["file"]).name if "file" in entry else None
    return str(entry.get("text") or file or entry.get("where") or entry.get("id") or f"row {entry['row']}")


def convergence_sentence(document: Document) -> str:
    """For which scores the sample suffices."""
    verdicts = document["verdicts"]
    drawn, whole = document.get("n"), document.get("drawn_from")
    sample = "The sample" if drawn == whole or whole is None else f"A draw of {drawn:,} of the {whole:,} outputs"
    enough = [name for name, verdict in verdicts.items() if verdict["status"] == "converged"]
    if not enough:
        return f"{sample} is too small for every score: all of them still change with its size."
    if len(enough) == len(verdicts):
        return f"{sample} suffices for every score."
    rest = [name for name in verdicts if name not in enough]
    return f"{sample} suffices for {', '.join(enough)}; not yet, or not clearly, for {', '.join(rest)}."


def comparison_sentences(document: Document) -> list[str]:
    """A ranking in words: how many pairs of models can be told apart, the first two, and what length has to do with it."""
    differences, score = document["differences"], document["score"]
    clear = sum(one["clear"] for one in differences)
    best = differences[0]
    lines = [
        f"ranked by {score}; of {len(differences)} pairs of models {clear} differ clearly on the same prompts",
        f"the first two, {best['first']} over {best['second']}: {best['ratio']:.3f} ({best['low']:.3f} to {best['high']:.3f})",
    ]
    if document["length_correlation"] is not None:
        told = f"{document['length_correlation']:+.2f} (Spearman)"
        lines.append(f"correlation of {score} with the length of outputs over models: {told}")
    return lines
