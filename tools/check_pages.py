"""Run every command on the pages of the documentation, each page in a folder of generated files.

PYTHONPATH=tests python -m tools.check_pages [PAGE ...]

Blocks for a shell run in bash as they are printed, with the commands of `pip` installing for real
into an environment of their own; `tools/shell_blocks.py` lists the few commands that are not run,
with reasons. Workflows in YAML run step by step (`tools/workflow.py`). Blocks in Python are tests
(tests/test_readme.py), and `make docs` runs the tutorials.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import yaml

from tools.page_files import FILES, Endpoint
from tools.shell_blocks import ROOT, blocks, pages, script, shell_blocks
from tools.workflow import Workflow

_LEFT_OUT = shutil.ignore_patterns(".*_cache", ".git", ".hypothesis", ".venv", "_build", "dist")
_OPENAI_PORT = 11434
_NEEDS_CHECKOUT = ("'.[", "experiments", "make ")


def make_environment(folder: Path) -> dict[str, str]:
    """Make an environment for `pip install`, which sees the packages of this one.

    What a page installs goes into it and leaves this one as it is; what this one has need not be
    fetched again.
    """
    environment = folder / "environment"
    venv.create(environment, with_pip=True, symlinks=True)
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    packages = environment / "lib" / version / "site-packages"
    # Not the path alone: .pth files in there, as of editable installs, would not be read.
    outer = sysconfig.get_path("purelib")
    (packages / "outer.pth").write_text(f"import site; site.addsitedir({outer!r})\n")
    programs = [str(environment / "bin"), sysconfig.get_path("scripts"), os.environ["PATH"]]
    variables = {
        **os.environ,
        "DIVPRISM_CACHE": str(folder / "cache"),
        # No command calls a server of somebody else.
        "OPENAI_BASE_URL": f"http://localhost:{_OPENAI_PORT}/v1",
        "PATH": os.pathsep.join(programs),
        "PIP_CONSTRAINT": str(ROOT / "constraints.txt"),
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "PIP_QUIET": "1",
        "SCRATCH": str(folder),
    }
    # Modules of the tests are for this process alone.
    variables.pop("PYTHONPATH", None)
    return variables


def work_folder(page: str, commands: list[str], folder: Path, environment: dict[str, str]) -> Path:
    """A folder with the files that the commands of a page name."""
    work = folder / page.replace("/", "-").removesuffix(".md")
    text = "\n".join(commands)
    if any(word in text for word in _NEEDS_CHECKOUT):
        shutil.copytree(ROOT, work, ignore=_LEFT_OUT)
    else:
        work.mkdir()
    if ".venv/bin/python" in text:
        outer = Path(environment["PATH"].split(os.pathsep)[0]).parent
        (work / ".venv").symlink_to(outer)
    if page in FILES:
        FILES[page](work)
    return work


@contextmanager
def endpoints_of(text: str) -> Iterator[None]:
    """Serve models at the ports of this machine that a page names, while its commands run."""
    ports = {int(port) for port in re.findall(r"localhost:(\d+)", text)}
    if "OPENAI_API_KEY" in text:
        ports.add(_OPENAI_PORT)
    servers = [Endpoint(port) for port in sorted(ports)]
    try:
        yield
    finally:
        for server in servers:
            server.shutdown()
            server.server_close()


def run_page(path: Path, folder: Path, environment: dict[str, str]) -> list[str]:
    """Run the blocks of a page, and return what failed."""
    page = path.relative_to(ROOT).as_posix()
    text = path.read_text()
    scripts = shell_blocks(text)
    workflows = [yaml.safe_load(block) for language, block in blocks(text) if language == "yaml"]
    if not scripts and not workflows:
        return []
    every_command = [command for commands in scripts for command in commands]
    work = work_folder(page, every_command, folder, environment)
    failures = []
    for commands in scripts:
        start = time.monotonic()
        done = subprocess.run(
            ["bash", "-c", script(commands)],
            cwd=work,
            env=environment,
            text=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        seconds = time.monotonic() - start
        _print_block(page, commands, done.stdout)
        print(f"exit code {done.returncode}, {seconds:.0f} s\n", flush=True)
        if done.returncode:
            failures.append(f"{page}: {commands[0]}\n{done.stdout[-2000:]}")
    for steps in workflows:
        failures += run_workflow(page, steps, work, environment)
    return failures


def run_workflow(page: str, steps: list, work: Path, environment: dict[str, str]) -> list[str]:
    """Run a workflow twice: it passes as printed, and fails where the limit is out of reach."""
    actions = {"actions/checkout": None, "divprism/divprism": ROOT}
    failures = []
    unreachable = [dict(step) for step in steps]
    for step in unreachable:
        if "threshold" in step.get("with", {}):
            step["with"] = {**step["with"], "threshold": 1000}
    for wanted, list_of_steps in ((0, steps), (5, unreachable)):
        workflow = Workflow(work, actions, environment)
        code = workflow.run(list_of_steps)
        last_line = workflow.printed.strip().splitlines()[-1:]
        print(f"== {page}: workflow\n{workflow.printed}exit code {code}\n", flush=True)
        if code != wanted or "distinct answers per kind of prompt" not in str(last_line):
            failures.append(f"{page}: the workflow ended with {code}\n{workflow.printed[-2000:]}")
    return failures


def _print_block(page: str, commands: list[str], output: str) -> None:
    print(f"== {page}")
    for command in commands:
        print(f"$ {command}")
    lines = output.splitlines()
    print("\n".join(line[:150] for line in lines[-12:]))


def main() -> None:
    """Run the pages that are named, or all."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("pages", nargs="*", type=Path, metavar="PAGE")
    chosen = [path.resolve() for path in parser.parse_args().pages] or pages()
    failures = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        environment = make_environment(folder)
        for path in chosen:
            with endpoints_of(path.read_text()):
                failures += run_page(path, folder, environment)
    if failures:
        raise SystemExit("These failed:\n\n" + "\n\n".join(failures))
    print("Every command on the pages runs.")


if __name__ == "__main__":
    main()
