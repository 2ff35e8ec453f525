"""Kill a command at random moments; does it continue with the same bits?

    python experiments/resume.py [--n 20000] [--kills 5] [--seed 0]

Runs `divprism score --resume FOLDER` in a process of its own on n pairs (768 and 512 wide), kills
it with SIGKILL after a random time, and starts it again, as often as asked. The last start runs to
the end. Prints how many sweeps were finished at each kill, whether any of them was computed again,
and whether all scores have the bits of a run that nobody disturbed.
"""

import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

KERNELS = ("--bandwidth-x", "25", "--bandwidth-t", "0.5")
QUIET = ("-q", "--interval", "0", "--num-permutations", "0", "--format", "json")


def write_pairs(folder: Path, n: int) -> list[str]:
    """Save clustered pairs, and return the command that scores them."""
    rng = np.random.default_rng(1)
    x = rng.standard_normal((500, 768))[rng.integers(500, size=n)]
    t = rng.standard_normal((100, 512))[rng.integers(100, size=n)]
    t += 0.5 * rng.standard_normal((n, 512))
    t /= np.linalg.norm(t, axis=1, keepdims=True)
    np.save(folder / "x.npy", (x + rng.standard_normal((n, 768))).astype(np.float32))
    np.save(folder / "t.npy", t.astype(np.float32))
    files = (str(folder / "x.npy"), "--prompts", str(folder / "t.npy"))
    return [sys.executable, "-m", "divprism", "score", *files, *KERNELS, *QUIET]


def checkpoints(folder: Path) -> dict[str, int]:
    """Finished sweeps, and when each was written."""
    return {path.name: path.stat().st_mtime_ns for path in folder.glob("*.checkpoint")}


def scores(command: list[str]) -> tuple[dict, float]:
    """The scores that a command prints, and its time."""
    start = time.monotonic()
    printed = subprocess.run(command, check=True, capture_output=True).stdout
    return json.loads(printed)["scores"], time.monotonic() - start


def main() -> None:
    """Compare a disturbed with an undisturbed run."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--n", type=int, default=20_000)
    parser.add_argument("--kills", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    moments = random.Random(arguments.seed)  # noqa: S311 (no secret)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        command = write_pairs(folder, arguments.n)
        expected, seconds = scores(command)
        print(f"undisturbed: {seconds:.1f} s")
        kept = folder / "checkpoints"
        resumed = [*command, "--resume", str(kept)]
        state: dict[str, int] = {}
        repeated = 0
        for _ in range(arguments.kills):
            process = subprocess.Popen(resumed, stdout=subprocess.DEVNULL)
            time.sleep(moments.uniform(0.15, 0.6) * seconds)
            process.kill()
            process.wait()
            now = checkpoints(kept)
            repeated += sum(now.get(file) != written for file, written in state.items())
            state = now
            print(f"killed with {len(state)} sweeps finished", flush=True)
        result, _ = scores(resumed)
        now = checkpoints(kept)
        repeated += sum(now[file] != written for file, written in state.items())
        print(f"finished sweeps computed again: {repeated}")
        print(f"same bits as undisturbed: {result == expected}")


if __name__ == "__main__":
    main()
