"""How long `import divprism` takes, as a multiple of importing numpy and scipy.linalg.

Each in fresh interpreters, taking turns.

python benchmarks/import_time.py
"""

import statistics
import subprocess
import sys
import time

CASES = {
    "numpy and scipy.linalg": "import numpy, scipy.linalg",
    "divprism": "import divprism",
    "nothing": "pass",
}


def seconds(statement: str) -> float:
    """Wall time of an interpreter that runs one statement."""
    start = time.perf_counter()
    subprocess.run([sys.executable, "-c", statement], check=True)
    return time.perf_counter() - start


def main() -> None:
    """Print the best and the median of 20 turns, with the interpreter's own start taken off."""
    times: dict[str, list[float]] = {name: [] for name in CASES}
    for turn in range(21):
        for name, statement in CASES.items():
            elapsed = seconds(statement)
            if turn:  # the first fills the disk cache
                times[name].append(elapsed)
    idle = min(times["nothing"])
    for name, values in times.items():
        print(
            f"{name:<24} best {min(values) - idle:.3f} s, median {statistics.median(values) - idle:.3f} s"
        )
    ratio = (min(times["divprism"]) - idle) / (min(times["numpy and scipy.linalg"]) - idle)
    print(f"ratio of the best: {ratio:.2f} (asked: at most 1.5)")


if __name__ == "__main__":
    main()
