"""docs/papers.md: all experiments with their verdicts, tables and figures."""

from dataclasses import dataclass
from pathlib import Path

from experiments.papers.base import Experiment, Outcome

ROOT = Path(__file__).parent.parent.parent
PAGE = ROOT / "docs" / "papers.md"
FIGURES = ROOT / "docs" / "figures" / "papers"
MARK = "<!-- made by python -m experiments.papers all --write -->"


@dataclass(frozen=True)
class Finished:
    """An experiment that was run."""

    experiment: Experiment
    outcome: Outcome
    seconds: float


def write_page(finished: list[Finished], *, quick: bool) -> None:
    """Replace the results of docs/papers.md, and save the figures beside it."""
    head, found, _ = PAGE.read_text().partition(MARK)
    if not found:
        raise SystemExit(f"{PAGE} lacks the line {MARK!r}.")
    FIGURES.mkdir(parents=True, exist_ok=True)
    for each in finished:
        each.outcome.figure.savefig(FIGURES / f"{each.experiment.id}.png", dpi=80)
    sections = [_overview(finished, quick=quick), *(_section(each) for each in finished)]
    PAGE.write_text("\n\n".join([f"{head}{MARK}", *sections]) + "\n")


def _overview(finished: list[Finished], *, quick: bool) -> str:
    minutes = sum(each.seconds for each in finished) / 60
    effort = "with the numbers of samples of a full run"
    if quick:
        effort = (
            "with few samples (`--quick`): numbers are rough, and a full run may decide otherwise"
        )
    lines = [
        f"{len(finished)} experiments, {minutes:.0f} minutes on two cores, {effort}.",
        "",
        "| experiment | paper | shows | verdict |",
        "|---|---|---|---|",
    ]
    for each in finished:
        known = each.experiment
        link = f"[{known.id}](#{known.id})"
        lines.append(f"| {link} | {known.paper} | {known.shows} | {each.outcome.verdict} |")
    return "\n".join(lines)


def _section(each: Finished) -> str:
    known, outcome = each.experiment, each.outcome
    command = f"python -m experiments.papers run {known.id}"
    if known.data:
        command += " --data DIR"
    parts = [
        f"## {known.id}",
        f"{known.paper}, {known.shows}.",
        f"**Claim.** {known.claim}",
        f"**Here.** {known.stand_in}",
        f"**Verdict: {outcome.verdict}.** {outcome.reason}",
        f"![{known.id}](figures/papers/{known.id}.png)",
        outcome.table.to_markdown().strip(),
    ]
    if known.data:
        parts.append(f"With real outputs: `{command}`, where DIR is {known.data}.")
    return "\n\n".join(parts)
