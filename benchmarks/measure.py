"""Time, memory and output shared by the benchmark scripts."""

import json
import resource
import time
from collections.abc import Callable, Collection, Iterable
from pathlib import Path


def timed(call: Callable[[], object]) -> float:
    """Seconds that one call takes."""
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def best(call: Callable[[], object], repeats: int) -> float:
    """Seconds of the fastest of several calls."""
    return min(timed(call) for _ in range(repeats))


def peak_gigabytes() -> float:
    """Peak resident memory of this process so far (Linux reports it in kilobytes)."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024**2


def print_row(cells: Iterable[str]) -> None:
    """Print one row of a Markdown table at once, so that long runs show their progress."""
    print(f"| {' | '.join(cells)} |", flush=True)


def print_header(columns: Iterable[str], texts: Collection[str]) -> None:
    """Print the header of a Markdown table; all columns but `texts` hold numbers."""
    columns = list(columns)
    print_row(columns)
    rule = "|"
    for column in columns:
        if column in texts:
            rule += "---|"
        else:
            rule += "---:|"
    print(rule, flush=True)


def write_rows(rows: list[dict], path: Path | None) -> None:
    """Write measurements to a JSON file, if a path is given."""
    if path is not None:
        path.write_text(json.dumps(rows, indent=1) + "\n")
