"""The command line: parse, one library call, print. Results go to stdout, everything else to stderr."""

import sys

import typer

from divprism.cli import (
    bandwidth,
    cache,
    compare,
    converge,
    demo,
    doctor,
    embed,
    groups,
    listing,
    report,
    score,
)
from divprism.errors import (
    ArgumentError,
    DataError,
    DivprismError,
    GateError,
    MissingExtraError,
    MissingModelError,
)
from divprism.version import __version__

__all__ = ["app", "main"]

app = typer.Typer(
    name="divprism",
    help="How diverse is a prompt-guided generative model beyond what its prompts bring?",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("demo")(demo.demo)
app.command("score")(score.score)
app.command("embed")(embed.embed)
app.command("compare")(compare.compare)
app.command("bandwidth")(bandwidth.bandwidth)
app.command("groups")(groups.groups)
app.command("converge")(converge.converge)
app.command("report")(report.report)
app.add_typer(cache.app, name="cache")
app.command("ls")(listing.ls)
app.command("doctor")(doctor.doctor)

_EXIT_CODES: dict[type[DivprismError], int] = {
    ArgumentError: 2,
    MissingExtraError: 3,
    MissingModelError: 3,
    DataError: 4,
    GateError: 5,
}


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def _root(
    version: bool = typer.Option(
        False,
        "--version",
        callback=_print_version,
        is_eager=True,
        help="Print the version and leave.",
    ),
) -> None:
    """Hold the options that stand before the command."""


def main() -> None:
    """Run the command line; a refusal becomes one sentence and an exit code."""
    try:
        app()
    except DivprismError as error:
        typer.echo(f"divprism: {error}", err=True)
        sys.exit(next((code for kind, code in _EXIT_CODES.items() if isinstance(error, kind)), 1))
