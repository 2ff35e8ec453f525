"""`divprism demo`: three generators whose diversity one can read with one's own eyes, scored from their raw texts."""

import shutil
from importlib import resources
from pathlib import Path
from typing import Any

import typer

from divprism.analysis.comparison import Comparison, compare
from divprism.analysis.evaluation import evaluate_models
from divprism.cli.options import write_result
from divprism.core.kernels import Gaussian
from divprism.data.readers import load
from divprism.errors import DataError, MissingExtraError
from divprism.report import MARK, report_page
from divprism.report.details import detailed

__all__ = ["demo"]

_BANDWIDTHS = {
    "x": 0.8,
    "t": 0.4,
}  # of unit vectors: paraphrases are near each other, other answers and other prompts are not
_READS = {
    "parrot": "says much the same whatever it is asked: little more than one output, and nothing follows the prompts.",
    "clerk": "answers each prompt, but always alike: the six prompts bring most of its diversity (information), and of\n"
    "  six answers to a prompt about two differ (conditional).",
    "poet": "answers each prompt, and differently every time: of six answers to a prompt more than five differ. That is\n"
    "  the model's own diversity, which vendi alone cannot tell from that of the prompts.",
}


_COMMAND = f"divprism score {{}}/generators.jsonl --bandwidth-x {_BANDWIDTHS['x']} --bandwidth-t {_BANDWIDTHS['t']}"


def demo(
    save: Path | None = typer.Option(
        None, "--save", help="Keep the texts as generators.jsonl in this folder."
    ),
    report: Path = typer.Option(
        Path("report.html"), "--report", help="The page to write, for a browser."
    ),
) -> None:
    """Score three small text generators from their raw outputs, say what to read from the numbers, and write a page to open.

    Needs no network.
    """
    with resources.as_file(
        resources.files("divprism") / "data" / "demo" / "generators.jsonl"
    ) as path:
        samples = load(path)
        typer.echo(
            "Three generators, the same six prompts, six answers to each. Two answers of each to the same prompt:\n"
        )
        for name, one in samples.by_model().items():
            first, second = (output.content(0) for output in one.outputs[:2])
            typer.echo(f"{name:>8}: {first}\n{'':>10}{second}")
        kernels: dict[str, Any] = {
            f"kernel_{side}": Gaussian(bandwidth) for side, bandwidth in _BANDWIDTHS.items()
        }
        results = evaluate_models(samples, **kernels)
        if save is not None:
            _keep(path, save)
    names = {entry["id"]: None for result in results.values() for entry in result.embedders}
    typer.echo(
        f"\nEmbedded by {', '.join(names)}; Gaussian kernels, bandwidth {_BANDWIDTHS['x']} and {_BANDWIDTHS['t']} (prompts).\n"
    )
    typer.echo(f"{'':>8} {'vendi':>7} = {'conditional':>11} x {'information':>11}")
    for name, result in results.items():
        scores = (
            result.scores[score].value
            for score in ("vendi", "conditional_vendi", "information_vendi")
        )
        vendi, conditional, information = scores
        typer.echo(f"{name:>8} {vendi:>7.2f} = {conditional:>11.2f} x {information:>11.2f}")
    typer.echo("")
    for name, text in _READS.items():
        typer.echo(f"The {name} {text}")
    _page(compare(samples, **kernels), report)
    if save is not None:
        typer.echo(
            f"\nKept the texts in {save}. Next, score them as you would your own:\n{_COMMAND.format(save)}"
        )


def _keep(path: Path, folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, folder / "generators.jsonl")
    except OSError as error:
        raise DataError(f"cannot write to {folder}: {error.strerror}.") from None


def _page(found: Comparison, report: Path) -> None:
    """Write the page; a file of that name that is none of ours stays, and without its extra the demo goes on without."""
    if report.exists() and not _is_ours(report):
        typer.echo(
            f"\nLeft {report} as it is, for divprism did not write it; name another page: --report FILE."
        )
        return
    try:
        document = detailed(found)
        first = next(iter(document["models"].values()))
        first["runtime"] |= {"command": "divprism demo"}
        write_result(report_page(document), report)
    except MissingExtraError as error:
        typer.echo(f"\nNo page for a browser: {error}")
        return
    typer.echo(f"\nAll of it, with plots and the answers themselves: open {report} in a browser.")


def _is_ours(report: Path) -> bool:
    """Whether a file is a page of the demo."""
    try:
        text = report.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise DataError(f"cannot write {report}: {error.strerror}.") from None
    return MARK in text and "divprism demo" in text
