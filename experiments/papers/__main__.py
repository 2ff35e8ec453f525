"""Run experiments of the papers.

    python -m experiments.papers list
    python -m experiments.papers run fig5 fig12 [--quick | --write] [--data DIR] [--output DIR]
    python -m experiments.papers all [--quick] [--write] [--output DIR]
    python -m experiments.papers real DIR [--quick] [--write] [--output DIR]

Each prints the claim, what stands in for the models of the paper, a table and the verdict, and
saves its figure. `real` runs those that have real data in DIR (see real.py). `--write` makes the
results of docs/papers.md; of `run`, only the sections of the experiments that it names.
"""

import argparse
import time
import warnings
from pathlib import Path

import matplotlib as mpl

import divprism as dp
from experiments.papers.base import Experiment, Outcome, Request, experiments
from experiments.papers.page import Finished, write_page, write_real, write_section
from experiments.papers.real import SOURCES


def main() -> None:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("list", help="print the ids, figures and claims")
    run = commands.add_parser("run", help="run some experiments")
    run.add_argument("ids", nargs="+", metavar="ID")
    run.add_argument("--data", type=Path, help="a folder with real outputs, for one experiment")
    run.add_argument("--write", action="store_true", help="replace the sections in docs/papers.md")
    everything = commands.add_parser("all", help="run all experiments")
    everything.add_argument("--write", action="store_true", help="make docs/papers.md")
    real = commands.add_parser("real", help="run the experiments on real data")
    real.add_argument("folder", type=Path, metavar="DIR", help="the folder of all data sets")
    real.add_argument("--write", action="store_true", help="write the results into docs/papers.md")
    for command in (run, everything, real):
        command.add_argument("--quick", action="store_true", help="few samples, rough numbers")
        command.add_argument("--output", type=Path, help="a folder for the figures")
    arguments = parser.parse_args()
    by_id = {each.id: each for each in experiments()}
    if arguments.command == "list":
        _print_list(by_id)
        return
    # Files only: no window is opened, and no display is needed.
    mpl.use("agg")
    # Experiments set bandwidths on purpose that a user would be warned about.
    warnings.simplefilter("ignore", dp.BandwidthWarning)
    if arguments.command == "run":
        _run_some(by_id, arguments, parser)
        return
    if arguments.command == "real":
        _run_real(by_id, arguments, parser)
        return
    finished = [_run(each, Request(arguments.quick), arguments.output) for each in by_id.values()]
    if arguments.write:
        write_page(finished, quick=arguments.quick)


def _run_some(
    by_id: dict[str, Experiment], arguments: argparse.Namespace, parser: argparse.ArgumentParser
) -> None:
    unknown = [name for name in arguments.ids if name not in by_id]
    if unknown:
        parser.error(f"no experiment {', '.join(unknown)}; see `python -m experiments.papers list`")
    if arguments.data is not None:
        if len(arguments.ids) > 1:
            parser.error("--data is for one experiment.")
        if not by_id[arguments.ids[0]].data:
            parser.error(f"{arguments.ids[0]} needs no models: it takes no --data.")
        if not arguments.data.exists():
            parser.error(f"{arguments.data} does not exist.")
    if arguments.write and (arguments.quick or arguments.data is not None):
        parser.error("--write is for full runs on stand-ins: it takes no --quick and no --data.")
    for name in arguments.ids:
        each = _run(by_id[name], Request(arguments.quick, arguments.data), arguments.output)
        if arguments.write:
            write_section(each)


def _run_real(
    by_id: dict[str, Experiment], arguments: argparse.Namespace, parser: argparse.ArgumentParser
) -> None:
    missing = [each.path for each in SOURCES if not (arguments.folder / each.path).exists()]
    if len(missing) == len(SOURCES) or (missing and arguments.write):
        parser.error(f"{arguments.folder} lacks {', '.join(missing)}.")
    finished = []
    for source in SOURCES:
        if source.path in missing:
            print(f"{source.path} is missing: {source.experiment} does not run on it.\n")
            continue
        request = Request(arguments.quick, arguments.folder / source.path)
        each = _run(by_id[source.experiment], request, arguments.output, source.name)
        finished.append((source, each))
    if arguments.write:
        write_real(finished)


def _print_list(by_id: dict[str, Experiment]) -> None:
    width = max(len(name) for name in by_id)
    for name, each in by_id.items():
        print(f"{name:{width}}  {each.paper}, {each.shows}: {each.claim}")


def _run(
    each: Experiment, request: Request, folder: Path | None, figure: str | None = None
) -> Finished:
    print(f"== {each.id}: {each.paper}, {each.shows}")
    print(f"claim: {each.claim}")
    source = f"stand-in: {each.stand_in}"
    if request.data is not None:
        source = f"data: {request.data}"
    print(source)
    start = time.perf_counter()
    outcome = each.run(request)
    seconds = time.perf_counter() - start
    _show(outcome, seconds, folder, figure or each.id)
    return Finished(each, outcome, seconds)


def _show(outcome: Outcome, seconds: float, folder: Path | None, figure: str) -> None:
    print(f"\n{outcome.table.to_text()}")
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        outcome.figure.savefig(folder / f"{figure}.png", dpi=110)
    print(f"{outcome.verdict.upper()}: {outcome.reason} ({seconds:.0f} s)\n", flush=True)


if __name__ == "__main__":
    main()
