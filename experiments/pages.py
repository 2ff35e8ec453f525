"""Results of experiments on public data, printed and written into a page of the documentation."""

import argparse
from collections.abc import Callable, Iterable
from pathlib import Path

ROOT = Path(__file__).parent.parent


def write_sections(page: Path, script: str, sections: Iterable[str]) -> None:
    """Replace the generated end of a page, which a comment with the script's name opens."""
    mark = f"<!-- made by {script} -->"
    head, found, _ = page.read_text().partition(mark)
    if not found:
        raise SystemExit(f"{page} lacks the line {mark!r}.")
    page.write_text("\n".join([f"{head}{mark}\n", *sections]))


def run_experiment(
    description: str,
    *,
    script: str,
    page: str,
    data_sets: Iterable[str],
    sections: Callable[[Path], Iterable[str]],
) -> None:
    """Parse the command line, print every section as it is done, and write the page with --write.

    Parameters
    ----------
    description : str
        What --help prints.
    script, page : str
        Paths of the experiment and of its page, relative to the repository.
    data_sets : iterable of str
        Folders that the data must contain.
    sections : callable
        Yields the sections of the page as Markdown, given the folder with the data sets.
    """
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True, help="folder with the data sets")
    parser.add_argument("--write", action="store_true", help=f"replace the results in {page}")
    arguments = parser.parse_args()
    missing = [name for name in data_sets if not (arguments.data / name).is_dir()]
    if missing:
        raise SystemExit(f"{arguments.data} lacks {', '.join(missing)}.")
    finished = []
    for section in sections(arguments.data):
        print(section, flush=True)
        finished.append(section)
    if arguments.write:
        write_sections(ROOT / page, script, finished)
