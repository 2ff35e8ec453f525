"""`divprism report`: an HTML page from results that were kept as JSON."""

from pathlib import Path

import typer

from divprism.cli.job import flag, write_page
from divprism.errors import ArgumentError
from divprism.report.result_files import read_result


def report(
    results: list[Path] = typer.Argument(
        ...,
        metavar="RESULT ...",
        help="JSON of divprism score or compare; also of groups, converge and bandwidth.",
    ),
    output: Path = flag("Output", Path("report.html"), "The page to write.", "--output", "-o"),
) -> None:
    """Turn results into one page for a browser: scores in words, plots, groups with examples."""
    for path in results:
        if output.exists() and path.exists() and output.samefile(path):
            raise ArgumentError(f"the page would replace {path}, which it is made from.")
    write_page([read_result(path) for path in results], output)
