"""Build the site of the documentation with Sphinx: `make docs`.

The pages are also read in the repository, so they link to each other, and to files outside this
folder, by relative paths. On the site, links out of this folder lead to the repository.
"""

import os
import re
from pathlib import Path

from sphinx.application import Sphinx

import divprism

DOCS = Path(__file__).parent
ROOT = DOCS.parent
REPOSITORY = "https://github.com/divprism/divprism"

project = "divprism"
author = "The divprism developers"
release = version = divprism.__version__
project_copyright = f"2026, {author}"

extensions = [
    "myst_nb",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx_copybutton",
]
exclude_patterns = ["_build", "figures/*.py"]
templates_path = ["_templates"]

# No formulas in LaTeX: browsers need a script from another server to show them.
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 3

# The tutorials are notebooks. They are run at each build, and an error in one of them ends it.
nb_execution_mode = "force"
nb_execution_raise_on_error = True
nb_execution_timeout = 300
nb_merge_streams = True

# The reference has a page for each public name, made from its docstring.
autosummary_generate = True
autodoc_typehints = "none"  # docstrings have the types in words
numpydoc_show_class_members = False  # the template of classes lists them

html_theme = "pydata_sphinx_theme"
html_title = f"divprism {release}"
html_theme_options = {
    "github_url": REPOSITORY,
    "navbar_persistent": ["search-button"],  # the field would need a second line
    "show_toc_level": 2,
}
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_js_files = ["site.js"]
html_copy_source = False
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True

_LINK = re.compile(r"\]\((\.\./[^)#\s]+)(#[^)\s]*)?\)")


def _link_to_the_repository(app: Sphinx, page: str, source: list[str]) -> None:
    """Make addresses of the relative links that leave this folder."""
    folder = (DOCS / page).parent

    def address(link: re.Match[str]) -> str:
        target = Path(os.path.normpath(folder / link[1]))
        if target.is_relative_to(DOCS) or not target.exists():
            return link[0]  # a page of the site, or a mistake that Sphinx reports
        path = target.relative_to(ROOT).as_posix()
        return f"]({REPOSITORY}/blob/main/{path}{link[2] or ''})"

    source[0] = _LINK.sub(address, source[0])


def setup(app: Sphinx) -> None:
    """Called by Sphinx."""
    app.connect("source-read", _link_to_the_repository)
