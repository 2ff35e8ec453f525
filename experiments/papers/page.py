"""docs/papers.md: all experiments with their verdicts, tables and figures."""

import re
from dataclasses import dataclass
from pathlib import Path

from experiments.papers.base import Experiment, Outcome
from experiments.papers.real import Source

ROOT = Path(__file__).parent.parent.parent
PAGE = ROOT / "docs" / "papers.md"
FIGURES = ROOT / "docs" / "figures" / "papers"
MARK = "<!-- made by python -m experiments.papers all --write -->"
REAL_MARK = "<!-- made by python -m experiments.papers real DIR --write -->"


@dataclass(frozen=True)
class Finished:
    """An experiment that was run."""

    experiment: Experiment
    outcome: Outcome
    seconds: float


def write_page(finished: list[Finished], *, quick: bool) -> None:
    """Replace the results on stand-ins in docs/papers.md, and save the figures beside it."""
    head, _, real = _parts()
    for each in finished:
        _save(each.outcome, each.experiment.id)
    sections = [_overview(finished, quick=quick), *(_section(each) for each in finished)]
    _write(head, "\n\n".join(sections), real)


def write_section(each: Finished) -> None:
    """Replace the section of one experiment on stand-ins, its verdict and its figure."""
    _save(each.outcome, each.experiment.id)
    # Read after the figure is saved, which takes a moment: another run may write meanwhile.
    head, stand_ins, real = _parts()
    start = stand_ins.find(f"\n## {each.experiment.id}\n")
    if start < 0:
        raise SystemExit(f"{PAGE} has no section {each.experiment.id}: run `all --write` first.")
    before, section = stand_ins[: start + 1], stand_ins[start + 1 :]
    _, following, after = section.partition("\n\n## ")
    old = re.compile(rf"^\| \[{re.escape(each.experiment.id)}\]\(.*$", re.MULTILINE)
    before = old.sub(lambda _: _row(each), before)
    _write(head, before + _section(each) + following + after, real)


def write_real(finished: list[tuple[Source, Finished]]) -> None:
    """Replace the results on real data in docs/papers.md, and save their figures."""
    head, stand_ins, _ = _parts()
    for source, each in finished:
        _save(each.outcome, source.name)
    sections = [_real_overview(finished)]
    sections += [_real_section(source, each) for source, each in finished]
    _write(head, stand_ins, "\n\n".join(sections))


def _parts() -> tuple[str, str, str]:
    """The page before its results, those on stand-ins, and those on real data."""
    text = PAGE.read_text()
    for mark in (MARK, REAL_MARK):
        if mark not in text:
            raise SystemExit(f"{PAGE} lacks the line {mark!r}.")
    head, _, results = text.partition(MARK)
    stand_ins, _, real = results.partition(REAL_MARK)
    return head.strip(), stand_ins.strip(), real.strip()


def _write(head: str, stand_ins: str, real: str) -> None:
    PAGE.write_text("\n\n".join([head, MARK, stand_ins, REAL_MARK, real]) + "\n")


def _save(outcome: Outcome, name: str) -> None:
    FIGURES.mkdir(parents=True, exist_ok=True)
    outcome.figure.savefig(FIGURES / f"{name}.png", dpi=90)


def _overview(finished: list[Finished], *, quick: bool) -> str:
    minutes = sum(each.seconds for each in finished) / 60
    effort = "with the numbers of samples of a full run"
    if quick:
        effort = (
            "with few samples (`--quick`): numbers are rough, and a full run may decide otherwise"
        )
    lines = [
        "## Verdicts",
        "",
        f"{len(finished)} experiments, {minutes:.0f} minutes on two cores, {effort}.",
        "",
        "| experiment | paper | shows | verdict |",
        "|---|---|---|---|",
    ]
    lines += [_row(each) for each in finished]
    return "\n".join(lines)


def _row(each: Finished) -> str:
    """A row of the table of verdicts."""
    known = each.experiment
    link = f"[{known.id}](#{known.id})"
    return f"| {link} | {known.paper} | {known.shows} | {each.outcome.verdict} |"


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


def _real_overview(finished: list[tuple[Source, Finished]]) -> str:
    lines = [
        "## On real data",
        "",
        "The same code on outputs of real models and on photographs, from their raw files. "
        "[Real data sets](reference/real-data.md) names the sources. Images and videos are "
        "embedded by EfficientNet-Lite0 and texts by wordllama, the defaults, so that numbers are "
        "not comparable with those of the papers.",
        "",
        "| experiment | data | verdict |",
        "|---|---|---|",
    ]
    for source, each in finished:
        link = f"[{source.experiment}](#{_anchor(_real_title(source))})"
        lines.append(f"| {link} | {source.what} | {each.outcome.verdict} |")
    return "\n".join(lines)


def _real_title(source: Source) -> str:
    return f"{source.experiment} on {source.what}"


def _anchor(title: str) -> str:
    """What links to a heading of these letters, digits, spaces, commas and hyphens."""
    return title.lower().replace(",", "").replace(" ", "-")


def _real_section(source: Source, each: Finished) -> str:
    outcome = each.outcome
    name = source.name
    command = f"python -m experiments.papers run {source.experiment} --data {source.path}"
    parts = [
        f"### {_real_title(source)}",
        f"The claim is that of [{source.experiment}](#{source.experiment}); `{command}`.",
        f"**Verdict: {outcome.verdict}.** {outcome.reason}",
        f"![{name}](figures/papers/{name}.png)",
        outcome.table.to_markdown().strip(),
    ]
    return "\n\n".join(parts)
