"""Feed changed inputs to every reader: `python tests/fuzz.py --cases 50000 --seed 1`.

`python tests/fuzz.py --replay FOLDER` reads the inputs that are there, as FOLDER/KIND/NAME.

Readers are those of data files and folders, of results, configs, states and caches, and of answers
of endpoints. Each input is a valid one with something changed in it. An input is held if it is read
or refused in one sentence that is safe to print, within ten seconds of processor time and a
gigabyte. Prints a table and writes every input that is not held to a folder; tests/corpus/ keeps
such inputs for good.

Kinds run in processes of their own, so that a crash is seen, and the run continues after it. An
input depends on the seed, its kind and its number alone: the table can be repeated.
"""

import argparse
import faulthandler
import multiprocessing
import os
import resource
import shutil
import sys
import tempfile
import time
import traceback
import warnings
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Protocol

import fuzz_checks
import fuzz_documents
import fuzz_files
import fuzz_folders
import fuzz_states
import numpy as np
from fuzz_changes import changed_bytes
from fuzz_checks import Kind, check_refusal, preload

import divprism as dp

SECONDS = 10  # of processor time, beyond which an input counts as a hang
WAIT = 60  # seconds after which a process that waits for something is ended
MEGABYTES = 1024  # that a process may take, the interpreter included
KINDS: dict[str, Kind] = {}
for _module in (fuzz_files, fuzz_folders, fuzz_documents, fuzz_states):
    KINDS |= {kind.name: kind for kind in _module.KINDS}


class Inputs(Protocol):
    """Where the inputs of a run come from."""

    def of_kind(self, kind: Kind) -> Callable[[int], bytes]:
        """Return a function from the number of an input to its content."""

    def label(self, kind: Kind, number: int) -> str:
        """Return the name of an input."""


@dataclass
class Figures:
    """What a number of inputs of a kind showed.

    Attributes
    ----------
    cases, refused : int
        How many inputs there were, and how many of them were refused.
    slowest, peak : float
        Seconds of the slowest input, and megabytes at the most.
    failures : dict
        Why an input was not held, by its number.
    """

    cases: int = 0
    refused: int = 0
    slowest: float = 0.0
    peak: float = 0.0
    failures: dict[int, str] = field(default_factory=dict)

    def add(self, other: "Figures") -> None:
        """Add the figures of further inputs."""
        self.cases += other.cases
        self.refused += other.refused
        self.slowest = max(self.slowest, other.slowest)
        self.peak = max(self.peak, other.peak)
        self.failures |= other.failures


def input_of(kind: Kind, valid: bytes, seed: int, number: int) -> bytes:
    """Return one of the inputs of a run; the first is the valid one itself."""
    if number == 0:
        return valid
    rng = np.random.default_rng([seed, zlib.crc32(kind.name.encode()), number])
    try:
        return kind.change(valid, rng)
    except Exception:  # one change may leave nothing that the next one understands
        return changed_bytes(valid, rng)


def hold(kind: Kind, content: bytes) -> bool:
    """Do with an input what divprism does with its kind; return whether it was refused.

    Raises
    ------
    Exception
        Whatever is neither a result nor a refusal in one sentence.
    """
    folder = Path(tempfile.mkdtemp(dir="."))
    try:
        kind.check(content, folder)
    except dp.DivprismError as error:
        check_refusal(error)
        return True
    finally:
        shutil.rmtree(folder)
    return False


def peak() -> float:
    """Return the peak of memory of this process and its children so far, in megabytes."""
    parts = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    return max(resource.getrusage(part).ru_maxrss for part in parts) / 1024


def processor_time() -> float:
    """Return the seconds of this process and its children, whatever else is running."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def _work(kind: Kind, inputs: Inputs, numbers: range, started, results) -> None:
    """Run some inputs of a kind in this process; `started` is the number of the current one."""
    # A runaway allocation fails here, before the machine suffers.
    resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.environ["DIVPRISM_CACHE"] = os.path.abspath("cache")
    warnings.simplefilter("ignore")
    figures = Figures()
    # A fork starts with the memory of its parent, which may be a long run of tests.
    limit = max(MEGABYTES, peak() + MEGABYTES / 2)
    content_of = inputs.of_kind(kind)
    for number in numbers:
        started.value = number
        content = content_of(number)
        # Ends the process also inside of a decoder that Python cannot interrupt.
        faulthandler.dump_traceback_later(WAIT, exit=True)
        start = processor_time()
        try:
            is_refused = hold(kind, content)
            figures.refused += is_refused
            assert not is_refused or number > 0 or content != kind.seed(), "a valid input"
        except BaseException as error:  # every kind of failure is what this is about
            figures.failures[number] = _reason(error)
        seconds = processor_time() - start
        faulthandler.cancel_dump_traceback_later()
        if seconds > SECONDS:
            figures.failures[number] = f"took {seconds:.1f} s"
        if peak() > limit >= figures.peak:
            figures.failures[number] = f"took {peak():.0f} MB"
        figures.cases += 1
        figures.slowest = max(figures.slowest, seconds)
        figures.peak = peak()
    results.send(figures)


def _reason(error: BaseException) -> str:
    frame = traceback.extract_tb(error.__traceback__)[-1]
    place = f"{Path(frame.filename).name}:{frame.lineno}"
    return ascii(f"{type(error).__name__} at {place}: {error}"[:300])


def run_kind(kind: Kind, inputs: Inputs, cases: int) -> Figures:
    """Run a number of inputs of a kind; a crash of the process is a failure of its input."""
    context = multiprocessing.get_context("fork")
    figures = Figures()
    first = 0
    while first < cases:
        started = context.Value("q", first)
        ours, theirs = context.Pipe(duplex=False)
        call = (kind, inputs, range(first, cases), started, theirs)
        process = context.Process(target=_work, args=call)
        process.start()
        theirs.close()
        try:
            figures.add(ours.recv())
            process.join()
            break
        except EOFError:
            process.join()
        # The figures of the inputs before the crash are lost, their number is not.
        number = int(started.value)
        reason = f"ended the process with exit code {process.exitcode}"
        figures.add(Figures(cases=number - first + 1, failures={number: reason}))
        first = number + 1
    return figures


def shares(cases: int, names: Sequence[str]) -> dict[str, int]:
    """Return how many of the inputs each kind gets."""
    total = sum(KINDS[name].weight for name in names)
    return {name: max(1, round(cases * KINDS[name].weight / total)) for name in names}


def run(counts: dict[str, int], inputs: Inputs, failures: Path) -> dict[str, Figures]:
    """Run inputs of several kinds in a temporary folder, and write those that are not held."""
    preload()
    before = Path.cwd()
    figures = {}
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            for name, count in counts.items():
                figures[name] = run_kind(KINDS[name], inputs, count)
                if sys.stderr.isatty():
                    sys.stderr.write(f"{name}: {figures[name].cases:,} inputs\n")
                if figures[name].failures:
                    _save(figures[name].failures, KINDS[name], inputs, failures / name)
        finally:
            os.chdir(before)
    return figures


def _save(failures: dict[int, str], kind: Kind, inputs: Inputs, folder: Path) -> None:
    """Write inputs that were not held, as tests/corpus/ has them, and print why."""
    folder.mkdir(parents=True, exist_ok=True)
    content_of = inputs.of_kind(kind)
    for number, reason in failures.items():
        name = inputs.label(kind, number)
        (folder / name).write_bytes(content_of(number))
        sys.stderr.write(f"{kind.name}/{name}: {reason}\n")


@dataclass(frozen=True)
class Drawn:
    """The inputs of a seed."""

    seed: int

    def of_kind(self, kind: Kind) -> Callable[[int], bytes]:
        """Return a function from the number of an input to its content."""
        return partial(input_of, kind, kind.seed(), self.seed)

    def label(self, kind: Kind, number: int) -> str:
        """Return the seed and the number."""
        return f"{self.seed}-{number}"


@dataclass(frozen=True)
class Stored:
    """The inputs in a folder."""

    folder: Path

    def of_kind(self, kind: Kind) -> Callable[[int], bytes]:
        """Return a function from the number of a file to its content."""
        files = stored_files(self.folder, kind.name)
        # Above all, files that were made to fill the memory are decoded in a process with limits.
        fuzz_checks.thorough = True
        return lambda number: files[number].read_bytes()

    def label(self, kind: Kind, number: int) -> str:
        """Return the name of the file."""
        return stored_files(self.folder, kind.name)[number].name


def stored_files(folder: Path, name: str) -> list[Path]:
    """Return the files of a kind in a corpus."""
    return sorted((folder / name).iterdir())


def table(figures: dict[str, Figures], by_kind: bool) -> str:
    """Return the figures as Markdown, a row for each group or kind."""
    rows: dict[str, Figures] = {}
    for name, found in figures.items():
        row = name
        if not by_kind:
            row = KINDS[name].group
        rows.setdefault(row, Figures()).add(
            Figures(found.cases, found.refused, found.slowest, found.peak)
        )
        for number, reason in found.failures.items():
            rows[row].failures[len(rows[row].failures)] = f"{number} {reason}"
    total = Figures()
    for found in rows.values():
        total.add(Figures(found.cases, found.refused, found.slowest, found.peak))
        for reason in found.failures.values():
            total.failures[len(total.failures)] = reason
    lines = ["| class | inputs | held | refused | slowest (s) | peak (MB) |"]
    lines.append("|---|---|---|---|---|---|")
    for row, found in (*rows.items(), ("all", total)):
        held = found.cases - len(found.failures)
        share = f"{100 * found.refused / max(1, found.cases):.0f} %"
        limits = f"{found.slowest:.2f} | {found.peak:.0f}"
        lines.append(f"| {row} | {found.cases:,} | {held:,} | {share} | {limits} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Run the inputs of the command line, and leave with 1 if one of them is not held."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--failures", type=Path, default=Path("fuzz-failures"))
    parser.add_argument("--replay", type=Path, help="a folder of inputs, instead of changed ones")
    parser.add_argument("--by-kind", action="store_true", help="a row for each kind")
    options = parser.parse_args()
    failures = options.failures.absolute()
    if options.replay is None:
        counts = shares(options.cases, options.kinds)
        figures = run(counts, Drawn(options.seed), failures)
    else:
        folder = options.replay.absolute()
        names = sorted(place.name for place in folder.iterdir() if place.is_dir())
        counts = {name: len(stored_files(folder, name)) for name in names}
        figures = run(counts, Stored(folder), failures)
    sys.stdout.write(table(figures, options.by_kind))
    sys.exit(any(found.failures for found in figures.values()))


if __name__ == "__main__":
    main()
