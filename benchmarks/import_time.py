"""How long `import divprism` takes, as a multiple of importing numpy and scipy.linalg.

    python benchmarks/import_time.py [--turns 20]

Each statement runs in fresh interpreters; the statements take turns.
"""

import argparse
import statistics
import subprocess
import sys
from functools import partial

from measure import timed

STATEMENTS = {
    "numpy and scipy.linalg": "import numpy, scipy.linalg",
    "divprism": "import divprism",
    "nothing": "pass",
}


def seconds(statement: str) -> float:
    """Wall time of an interpreter that runs one statement."""
    return timed(partial(subprocess.run, [sys.executable, "-c", statement], check=True))


def main() -> None:
    """Print best and median of the turns, without the start of the interpreter itself."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--turns", type=int, default=20)
    turns = parser.parse_args().turns
    times: dict[str, list[float]] = {name: [] for name in STATEMENTS}
    for turn in range(turns + 1):
        for name, statement in STATEMENTS.items():
            elapsed = seconds(statement)
            # The first turn only fills the disk cache.
            if turn > 0:
                times[name].append(elapsed)
    idle = min(times["nothing"])
    for name, values in times.items():
        fastest = min(values) - idle
        median = statistics.median(values) - idle
        print(f"{name:<24} best {fastest:.3f} s, median {median:.3f} s")
    ratio = (min(times["divprism"]) - idle) / (min(times["numpy and scipy.linalg"]) - idle)
    print(f"ratio of the best: {ratio:.2f} (target: at most 1.5)")


if __name__ == "__main__":
    main()
