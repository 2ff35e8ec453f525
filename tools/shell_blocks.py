"""Blocks for a shell on the pages of the documentation, as scripts that bash can run."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
SHELLS = ("sh", "bash", "console")

# Commands that are not run, and why. Each stands on a page in exactly these words.
NOT_RUN = {
    "make test": "CI runs it before this check",
    "make papers": "takes 8 minutes; CI runs it with QUICK=--quick",
    "make papers QUICK=--quick": "CI runs it after this check",
    "python -m experiments.papers real DIR": "needs data that are not part of the repository",
    ".venv/bin/python -m experiments.papers run fig5": "docs/papers.md runs it with few samples",
    "python -m experiments.papers run fig5 --output figures/": "the next line runs it with few",
    "python experiments/odd_spectra.py --first 41000 --seeds 200 --most 450": "takes an hour",
}

# Job numbers of an array job of Slurm: a line that names one is run once for each.
NUM_JOBS = 16


def pages() -> list[Path]:
    """All pages that a reader sees, in order."""
    found = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")]
    for page in sorted((ROOT / "docs").rglob("*.md")):
        if "_build" not in page.parts:
            found.append(page)
    return found


def blocks(text: str) -> Iterator[tuple[str, str]]:
    """The language and the text of each fenced block of a page."""
    fence = re.compile(r"^```(\S*)[^\n]*\n(.*?)^```", re.DOTALL | re.MULTILINE)
    yield from fence.findall(text)


def shell_blocks(text: str) -> list[list[str]]:
    """The commands of each block for a shell, without comments and without what they print."""
    found = []
    for language, block in blocks(text):
        if language in SHELLS:
            found.append(_commands(block, prompts=language == "console"))
    return found


def _commands(block: str, *, prompts: bool) -> list[str]:
    lines = block.replace("\\\n", " ").splitlines()
    if prompts:
        lines = [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]
    commands = []
    for line in lines:
        command = re.sub(r"(^|\s+)#.*", "", line).strip()
        if command:
            commands.append(re.sub(r"\s+", " ", command))
    return commands


def script(commands: list[str]) -> str:
    """The commands as a program that ends with the first that fails."""
    lines = ["set -euo pipefail"]
    for command in commands:
        if command in NOT_RUN:
            lines.append(f"echo {shlex.quote(f'not run: {command} ({NOT_RUN[command]})')}")
        elif "SLURM_ARRAY_TASK_ID" in command:
            lines.append(f"for SLURM_ARRAY_TASK_ID in $(seq {NUM_JOBS}); do {command}; done")
        else:
            lines.append(command)
    return "\n".join(lines) + "\n"
