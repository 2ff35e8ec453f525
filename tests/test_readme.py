"""The documentation is run: console blocks, doctests, links, set-up commands."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from experiments import loggers

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()


def _commands(text):
    """(command, expected output) of each `$ ` line in the console blocks, in order."""
    for block in re.findall(r"```console\n(.*?)```", text, re.DOTALL):
        for entry in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, output = entry.partition("\n")
            yield command, output


def test_console_blocks_print_what_the_readme_says(tmp_path):
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    commands = list(_commands(README))
    assert len(commands) >= 2
    for command, output in commands:
        done = subprocess.run(
            command.split(),
            cwd=tmp_path,
            capture_output=True,
            text=True,
            env={**os.environ, "PATH": path},
        )
        assert done.stdout == output, command
        assert done.stderr == ""


PAGES = sorted(
    str(page.relative_to(ROOT))
    for page in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]
    if page.name != "CHANGELOG.md"
)

# Their longer examples are run by tests/test_guidance_diffusers.py, on a tiny pipeline, and by
# tests/test_onnx.py and tests/test_trl_training.py, on small networks. `make loggers` runs those
# about loggers.
RUN_ELSEWHERE = {
    "docs/how-to/guidance.md",
    "docs/how-to/loggers.md",
    "docs/how-to/onnx.md",
    "docs/how-to/training.md",
}


@pytest.mark.parametrize("name", [name for name in PAGES if name not in RUN_ELSEWHERE])
def test_python_blocks_are_doctests(name):
    """They run because pytest collects the pages; a block in another form would not be run."""
    for block in re.findall(r"```python\n(.*?)```", (ROOT / name).read_text(), re.DOTALL):
        assert block.startswith(">>> ")


def test_all_lines_about_loggers_are_run_by_make_loggers():
    page = loggers.PAGE.read_text()
    blocks = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    recipes = [block for block in blocks if not block.startswith(">>> ")]
    assert recipes == [loggers.recipe(heading) for heading in loggers.LOGGERS]


def test_the_readme_is_short_and_starts_with_the_installation():
    lines = README.splitlines()
    assert len(lines) <= 150
    beginning = "\n".join(lines[:30])
    for command in ("pip install", "activate", "make demo", "make test"):
        assert command in beginning


def test_the_set_up_commands_are_targets_of_the_makefile():
    makefile = (ROOT / "Makefile").read_text()
    targets = re.findall(r"^make (\w+)", README, re.MULTILINE)
    assert set(targets) >= {"demo", "test"}
    for target in [*targets, "lint", "bench", "clean"]:
        assert re.search(rf"^{target}:", makefile, re.MULTILINE)


def test_extras_that_the_readme_names_exist():
    extras = re.findall(r"\w+", " ".join(re.findall(r"'\.\[([\w,]+)\]'", README)))
    assert extras
    for extra in extras:
        assert re.search(rf"^{extra} = ", (ROOT / "pyproject.toml").read_text(), re.MULTILINE)


@pytest.mark.parametrize("name", PAGES)
def test_links_lead_somewhere(name):
    page = ROOT / name
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
        assert target.startswith("https://") or (page.parent / target).exists(), target


def test_every_room_is_in_the_architecture():
    page = (ROOT / "docs/architecture.md").read_text()
    for path in (ROOT / "src/divprism").iterdir():
        if path.stem not in ("__init__", "__main__", "__pycache__", "py"):
            assert re.search(rf"\b{path.stem}\b", page), path.stem


def test_no_number_is_left_to_be_filled_in():
    for page in (README, (ROOT / "docs/architecture.md").read_text()):
        assert not re.findall(r"\b(BENCHMARK|IMPORT|MEMORY|TODO|XXX)\b", page)
