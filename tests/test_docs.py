"""The pages that Sphinx builds: every public name, every page, warnings that exist.

Whether the pages build, their links lead somewhere and the tutorials run is checked by `make docs`,
whether the commands run by `make pages`.
"""

import importlib
import inspect
import re
import tomllib
from pathlib import Path

import pytest
import typer

from divprism import cli
from tools.shell_blocks import shell_blocks

DOCS = Path(__file__).parent.parent / "docs"
API = (DOCS / "reference" / "api.rst").read_text()


def _listed(module):
    """Names that the reference lists below `currentmodule` of a module."""
    sections = re.split(r"^\.\. currentmodule:: ", API, flags=re.MULTILINE)[1:]
    names = set()
    for section in sections:
        title, _, body = section.partition("\n")
        if title.strip() == module:
            names |= set(re.findall(r"^   (\w+)$", body, re.MULTILINE))
    return names


MODULES = [
    "divprism",
    "divprism.guidance",
    "divprism.integrations.torch",
    "divprism.integrations.torchmetrics",
    "divprism.integrations.trl",
    "divprism.testing",
]


def _public_methods(cls):
    """The methods and properties that a class itself defines, by name."""
    for name, value in vars(cls).items():
        if isinstance(value, classmethod | staticmethod):
            value = value.__func__
        if not name.startswith("_") and (inspect.isfunction(value) or isinstance(value, property)):
            yield name, getattr(cls, name)


@pytest.mark.parametrize("module", MODULES)
def test_public_names_and_their_methods_are_described(module):
    namespace = importlib.import_module(module)
    for name in set(namespace.__all__) - {"__version__"}:
        value = getattr(namespace, name)
        # Not inspect.getdoc: it would take the docstring of a base class.
        assert len(value.__doc__ or "") > 20, name
        if inspect.isclass(value):
            for method, function in _public_methods(value):
                # A method may inherit the description of the one that it replaces.
                assert inspect.getdoc(function), f"{name}.{method}"


@pytest.mark.parametrize("module", MODULES)
def test_the_reference_lists_exactly_the_public_names(module):
    public = set(importlib.import_module(module).__all__) - {"__version__"}
    assert _listed(module) == public


def test_every_page_is_in_a_table_of_contents():
    pages = {page.relative_to(DOCS).with_suffix("").as_posix() for page in DOCS.rglob("*.md")}
    pages = {page for page in pages if not page.startswith(("_build", "reference/api/"))}
    listed = {"index"}
    for page in pages:
        text = (DOCS / f"{page}.md").read_text()
        for tree in re.findall(r"```\{toctree\}\n(.*?)```", text, re.DOTALL):
            for entry in re.findall(r"^[\w./-]+$", tree, re.MULTILINE):
                target = (DOCS / page).parent / entry
                listed.add(target.resolve().relative_to(DOCS.resolve()).as_posix())
    assert pages - listed == set()


def test_examples_of_all_pages_are_collected():
    settings = tomllib.loads((DOCS.parent / "pyproject.toml").read_text())
    paths = [DOCS.parent / path for path in settings["tool"]["pytest"]["ini_options"]["testpaths"]]
    for page in DOCS.rglob("*.md"):
        if "_build" not in page.parts and ">>> " in page.read_text():
            assert any(page.is_relative_to(path) for path in paths), page


def _lines_of_shell(text):
    """Commands in blocks for a shell, and those inside a sentence."""
    for block in shell_blocks(text):
        yield from [command for command in block if command.startswith("divprism ")]
    yield from re.findall(r"`(divprism [^`]*)`", text)


@pytest.mark.parametrize("page", sorted([*DOCS.rglob("*.md"), DOCS.parent / "README.md"]), ids=str)
def test_commands_and_flags_on_the_pages_exist(page):
    commands = typer.main.get_command(cli.app).commands
    for line in _lines_of_shell(page.read_text()):
        words = re.sub(r"\s#.*", "", line).split()[1:]
        if words[0] == "COMMAND" or words[0].startswith("-"):
            continue
        command = commands[words[0].split("|")[0]]
        flags = {flag for option in command.params for flag in option.opts} | {"--help"}
        given = {re.split(r"[=|]", word)[0] for word in words if word.startswith("-")}
        assert given - {"-"} <= flags, line


def test_no_page_needs_a_script_of_another_server():
    # MathJax is the only one that Sphinx would add, on pages with formulas in LaTeX.
    assert "mathjax" not in (DOCS / "conf.py").read_text()
    for page in DOCS.rglob("*.md"):
        assert "$$" not in page.read_text(), page


def test_the_warnings_that_the_page_of_pitfalls_names_exist():
    text = (DOCS / "explanation" / "pitfalls.md").read_text()
    codes = re.findall(r"`([a-z]+(?:-[a-z]+)+)`", text)
    assert len(codes) >= 5
    source = "".join(path.read_text() for path in (DOCS.parent / "src").rglob("*.py"))
    for code in codes:
        assert f'"{code}"' in source
