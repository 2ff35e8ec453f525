"""Install the wheel of dist/ into a fresh environment, and run the commands of the README there.

python tools/check_package.py [dist]

The commands run in an empty folder, so nothing of the checkout is there but the README. The code of
the notebook that `divprism demo --notebook` writes runs there too.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

README = Path(__file__).parent.parent / "README.md"


def commands(text: str) -> Iterator[tuple[str, str]]:
    """Each command of the console blocks, and what it prints."""
    for block in re.findall(r"```console\n(.*?)```", text, re.DOTALL):
        for entry in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, output = entry.partition("\n")
            yield command, output


def python_block(text: str) -> str:
    """The examples in Python, as a file for doctest."""
    return "\n".join(re.findall(r"```python\n(.*?)```", text, re.DOTALL))


def run(arguments: list[str], folder: Path, **options: object) -> str:
    """What a program prints; one that fails ends the check."""
    done = subprocess.run(arguments, cwd=folder, text=True, stdout=subprocess.PIPE, **options)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(arguments)} ended with exit code {done.returncode}.")
    return done.stdout


# Runs the code of a notebook without Jupyter, which the extras do not install.
_RUN_NOTEBOOK = """
import json, sys
scope = {}
for cell in json.load(open(sys.argv[1]))["cells"]:
    if cell["cell_type"] == "code":
        exec(cell["source"], scope)
"""


def check(wheel: Path, folder: Path) -> int:
    """The number of commands that printed what the README says."""
    run([sys.executable, "-m", "venv", "environment"], folder)
    programs = folder / "environment" / "bin"
    python = str(programs / "python")
    run([python, "-m", "pip", "install", "--quiet", f"{wheel}[text,report]"], folder)
    empty = folder / "empty"
    empty.mkdir()
    readme = README.read_text()
    paths = os.pathsep.join([str(programs), os.environ["PATH"]])
    count = 0
    for command, output in commands(readme):
        name, *arguments = command.split()
        program = str(programs / name)
        printed = run([program, *arguments], empty, env={**os.environ, "PATH": paths})
        if printed != output:
            raise SystemExit(f"{command} printed something else:\n{printed}")
        count += 1
    (empty / "readme.txt").write_text(python_block(readme))
    options = ["-o", "NORMALIZE_WHITESPACE"]
    run([python, "-m", "doctest", *options, "readme.txt"], empty)
    run([str(programs / "divprism"), "demo", "--notebook", "demo.ipynb"], empty)
    run([python, "-c", _RUN_NOTEBOOK, "demo.ipynb"], empty)
    return count + 2


def main() -> None:
    """Check the one wheel of the folder."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("dist", type=Path, nargs="?", default=Path("dist"))
    wheels = sorted(parser.parse_args().dist.resolve().glob("*.whl"))
    if len(wheels) != 1:
        raise SystemExit(f"expected one wheel, found {len(wheels)}: {', '.join(map(str, wheels))}")
    with tempfile.TemporaryDirectory() as folder:
        count = check(wheels[0], Path(folder))
    print(f"{wheels[0].name}: {count} examples of the README and the demo run as they say.")


if __name__ == "__main__":
    main()
