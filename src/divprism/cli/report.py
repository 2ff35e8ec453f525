"""`divprism report`: a page that a person opens, from results that were kept as JSON."""

import shlex
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from divprism.cli.options import read_result, say, write_result
from divprism.errors import ArgumentError, DataError
from divprism.report import report_page

__all__ = [
    "Details",
    "Plot",
    "Report",
    "check_details",
    "check_plot",
    "report",
    "with_command",
    "write_page",
    "write_plot",
]

_PLOTS = (".png", ".svg", ".pdf")
Report = Annotated[
    Path | None, typer.Option("--report", help="Also write a page for a browser: report.html.")
]
Details = Annotated[
    bool,
    typer.Option(
        "--details",
        help="In JSON, also spectra, sweep, convergence and groups, for divprism report.",
    ),
]
Plot = Annotated[
    Path | None, typer.Option("--plot", help="Also draw it: to a file .png, .svg or .pdf.")
]


def report(
    results: list[Path] = typer.Argument(
        ...,
        metavar="RESULT ...",
        help="JSON of divprism score or compare; also that of groups, converge and bandwidth.",
    ),
    output: Path = typer.Option(Path("report.html"), "--output", "-o", help="The page to write."),
) -> None:
    """Turn results kept as JSON into one page without network: scores in words, plots, groups with examples, settings."""
    for path in results:
        if output.exists() and path.exists() and output.samefile(path):
            raise ArgumentError(
                f"the page would replace {path}, which it is made from: name another file, --output FILE."
            )
    write_page([read_result(path) for path in results], output, quiet=False)


def with_command(document: dict[str, Any]) -> dict[str, Any]:
    """A result with the command that made it, which its page tells."""
    for one in document.get("models", {"": document}).values():
        one["runtime"] = one["runtime"] | {"command": shlex.join(["divprism", *sys.argv[1:]])}
    return document


def check_details(wanted: bool, form: str) -> None:
    """Refuse details where there is no place for them."""
    if wanted and form != "json":
        raise ArgumentError("--details adds to the JSON document: --format json.")


def check_plot(output: Path | None) -> None:
    """Refuse a file that nothing can be drawn to, before anything is computed."""
    if output is not None and output.suffix.lower() not in _PLOTS:
        raise ArgumentError(f"--plot must end in {', '.join(_PLOTS)}; got {output}.")


def write_page(documents: list[dict[str, Any]], output: Path, quiet: bool) -> None:
    """Write the page of some documents, and say where it is."""
    write_result(report_page(*documents), output)
    say([f"wrote {output}; open it in a browser"], quiet)


def write_plot(result: Any, output: Path) -> None:
    """Draw a result to a file, in the format that its name ends with."""
    figure, _ = result.plot()
    try:
        figure.savefig(output, dpi=150, bbox_inches="tight")
    except OSError as error:
        raise DataError(f"cannot write {output}: {error.strerror}.") from None
