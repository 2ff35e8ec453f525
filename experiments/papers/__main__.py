"""Run experiments of the papers.

    python -m experiments.papers list
    python -m experiments.papers run fig5 fig12 [--quick] [--data DIR] [--output DIR]
    python -m experiments.papers all [--quick] [--write]

Each prints the claim, what stands in for the models of the paper, a table and the verdict, and
saves its figure. `--write` makes docs/papers.md of all of them.
"""

import argparse
import time
import warnings
from pathlib import Path

import matplotlib as mpl

import divprism as dp
from experiments.papers.base import Experiment, Outcome, Request, experiments
from experiments.papers.page import Finished, write_page


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
    everything = commands.add_parser("all", help="run all experiments")
    everything.add_argument("--write", action="store_true", help="make docs/papers.md")
    for command in (run, everything):
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
    for name in arguments.ids:
        _run(by_id[name], Request(arguments.quick, arguments.data), arguments.output)


def _print_list(by_id: dict[str, Experiment]) -> None:
    width = max(len(name) for name in by_id)
    for name, each in by_id.items():
        print(f"{name:{width}}  {each.paper}, {each.shows}: {each.claim}")


def _run(each: Experiment, request: Request, folder: Path | None) -> Finished:
    print(f"== {each.id}: {each.paper}, {each.shows}")
    print(f"claim: {each.claim}")
    source = f"stand-in: {each.stand_in}"
    if request.data is not None:
        source = f"data: {request.data}"
    print(source)
    start = time.perf_counter()
    outcome = each.run(request)
    seconds = time.perf_counter() - start
    _show(each, outcome, seconds, folder)
    return Finished(each, outcome, seconds)


def _show(each: Experiment, outcome: Outcome, seconds: float, folder: Path | None) -> None:
    print(f"\n{outcome.table.to_text()}")
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        outcome.figure.savefig(folder / f"{each.id}.png", dpi=110)
    print(f"{outcome.verdict.upper()}: {outcome.reason} ({seconds:.0f} s)\n", flush=True)


if __name__ == "__main__":
    main()
