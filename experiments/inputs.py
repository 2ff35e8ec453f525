"""One command for each public data set in a folder, with what it prints: the figures of docs/reference/real-data.md.

    python experiments/inputs.py --data DATA          # prints them
    python experiments/inputs.py --data DATA --write  # and puts them into docs/reference/real-data.md

The data sets are collected from public repositories (docs/reference/real-data.md names them) and are not part of this one.
"""

import argparse
import os
import shlex
import subprocess
import sys
import time
from pathlib import Path

COMMANDS = {
    "noveltybench_curated": "divprism score noveltybench_curated/dev.jsonl.gz",
    "noveltybench_pairs": "divprism score noveltybench_pairs --output-field output_a,output_b",
    "alpaca_eval": "divprism score alpaca_eval",
    "hanna_stories": "divprism score hanna_stories",
    "renze_temperature": "divprism score renze_temperature --model-field model,temperature",
    "tevet_temperature": "divprism score tevet_temperature --model-field task,model",
    "vbench_prompt_rewriters": "divprism score vbench_prompt_rewriters",
    "coco_captioners": "divprism score coco_captioners",
    "t2i_vague_objects": "divprism score t2i_vague_objects",
    "real_fruits": "divprism score real_fruits",
    "real_clothing": "divprism score real_clothing",
    "t2v_fetv": "divprism score t2v_fetv",
    "prompt_lists": "divprism score prompt_lists/partiprompts.jsonl --output-field prompt --prompt-field category",
}
MARK = "<!-- made by experiments/inputs.py -->"


def block(command: str, data: Path) -> str:
    """A console block: the command and all that it printed, notes of stderr first, and the seconds that it took."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    start = time.perf_counter()
    done = subprocess.run(
        shlex.split(command),
        cwd=data,
        capture_output=True,
        text=True,
        env={**os.environ, "PATH": path},
    )
    seconds = time.perf_counter() - start
    if done.returncode:
        raise SystemExit(f"{command}: {done.stderr}")
    return f"```text\n$ {command}\n{done.stderr}{done.stdout}```\n\n{seconds:.1f} s.\n"


def main() -> None:
    """Run all, print, and write if asked to."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True, help="folder with the data sets")
    parser.add_argument(
        "--write", action="store_true", help="replace the figures in docs/reference/real-data.md"
    )
    arguments = parser.parse_args()
    missing = [name for name in COMMANDS if not (arguments.data / name).is_dir()]
    if missing:
        raise SystemExit(f"{arguments.data} lacks {', '.join(missing)}.")
    parts = []
    for name, command in COMMANDS.items():
        parts.append(f"### {name}\n\n{block(command, arguments.data)}")
        print(parts[-1], flush=True)
    if arguments.write:
        page = Path(__file__).parent.parent / "docs" / "reference" / "real-data.md"
        head, _, _ = page.read_text().partition(MARK)
        page.write_text("\n".join([f"{head}{MARK}\n", *parts]))


if __name__ == "__main__":
    main()
