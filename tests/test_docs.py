"""The pages that Sphinx builds: every public name, every page, warnings that exist.

Whether the pages build, their links lead somewhere and the tutorials run is checked by `make docs`.
"""

import importlib
import re
from pathlib import Path

import pytest

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


@pytest.mark.parametrize(
    "module",
    [
        "divprism",
        "divprism.guidance",
        "divprism.integrations.torch",
        "divprism.integrations.torchmetrics",
        "divprism.integrations.trl",
        "divprism.testing",
    ],
)
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


def test_the_warnings_that_the_page_of_pitfalls_names_exist():
    text = (DOCS / "explanation" / "pitfalls.md").read_text()
    codes = re.findall(r"`([a-z]+(?:-[a-z]+)+)`", text)
    assert len(codes) >= 5
    source = "".join(path.read_text() for path in (DOCS.parent / "src").rglob("*.py"))
    for code in codes:
        assert f'"{code}"' in source
