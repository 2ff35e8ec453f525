"""One command for each public data set: the results of docs/reference/real-data.md.

    python experiments/inputs.py --data DATA          # prints them
    python experiments/inputs.py --data DATA --write  # and writes them into the page

The data sets come from public repositories, which docs/reference/real-data.md lists. They are not
part of this repository.
"""

import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from pages import run_experiment

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
    "prompt_lists": (
        "divprism score prompt_lists/partiprompts.jsonl "
        "--output-field prompt --prompt-field category"
    ),
}


def console_block(command: str, data: Path) -> str:
    """A block with a command and its output, stderr first, and the seconds that it took."""
    # The command of this environment goes before any other that is installed.
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = {**os.environ, "PATH": path}
    start = time.perf_counter()
    finished = subprocess.run(
        shlex.split(command), cwd=data, capture_output=True, text=True, env=environment
    )
    seconds = time.perf_counter() - start
    if finished.returncode != 0:
        raise SystemExit(f"{command}: {finished.stderr}")
    # Texts of the data sets do not belong into this repository.
    notes = re.sub(r"\((first[^:]*): .*\)", r"(\1: ...)", finished.stderr)
    output = notes + finished.stdout
    return f"```text\n$ {command}\n{output}```\n\n{seconds:.1f} s.\n"


def sections(data: Path) -> Iterator[str]:
    """A section for each data set."""
    for name, command in COMMANDS.items():
        yield f"## {name}\n\n{console_block(command, data)}"


def main() -> None:
    """Run every command, print its output, and write the page with --write."""
    run_experiment(
        __doc__,
        script="experiments/inputs.py",
        page="docs/reference/real-data.md",
        data_sets=COMMANDS,
        sections=sections,
    )


if __name__ == "__main__":
    main()
