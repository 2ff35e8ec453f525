"""One self-contained HTML page of a result.

The page loads nothing from a network, and nothing in it that comes from the data can run: jinja2
escapes texts, names and settings; images are JPEGs encoded by us; and a content security policy
allows our own script, by its hash, and no address but `data:`.
"""

import base64
import hashlib
import re
from collections.abc import Callable, Mapping
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any

from divprism.errors import MissingExtraError
from divprism.report.difference_views import (
    differences_page,
    is_of_differences,
    novelty_page,
)
from divprism.report.documents import visible_document
from divprism.report.mixture_views import mixture_page
from divprism.report.overlap_page import overlap_page
from divprism.report.selection_views import selection_page
from divprism.report.view import PageView, page_view

if TYPE_CHECKING:
    from jinja2 import Environment

__all__ = ["MARK", "rendered", "report_page"]

MARK = "<!-- a report of divprism -->"
"""A comment in every page, by which our pages are recognised."""
_ISOLATES = "[\N{FIRST STRONG ISOLATE}\N{POP DIRECTIONAL ISOLATE}]"


def report_page(*documents: Mapping[str, Any]) -> str:
    """Return the HTML page of a result document.

    Parameters
    ----------
    *documents : dict
        A result of one model or of several, a comparison, a selection, a mixture, an overlap,
        differences or novelty, as `to_dict()` returns it or `divprism score --format json` writes
        it. Results of `prompt_groups`, `converge` and `bandwidth_sweep` may be given with scores,
        unless these have them under `details`.

    Raises
    ------
    DataError
        If a document is not one that divprism writes.
    """
    # jinja2 is asked for first: a missing package is reported before any work is done.
    _environment()
    if len(documents) == 1 and isinstance(documents[0], Mapping):
        [document] = documents
        if is_of_differences(document):
            return rendered("differences.html", view=differences_page(document))
        if "novelty" in document:
            return rendered("differences.html", view=novelty_page(document))
    view = _view(documents)
    script = _asset("page.js")
    return rendered("page.html", view=view, script=script, script_hash=_hash(script))


def rendered(template: str, **values: Any) -> str:
    """Return the HTML page of one of our templates, with our style; every value is escaped."""
    page = (
        _environment().get_template(template).render(**values, style=_asset("page.css"), mark=MARK)
    )
    # Half a surrogate pair, which a name of a file can hold, cannot be written as UTF-8.
    return page.encode("utf-8", "replace").decode()


# Results with a page of their own, by a key that only they have.
_PAGES: dict[str, Callable[[Mapping[str, Any]], PageView]] = {
    "score_of_subset": selection_page,
    "per_group": mixture_page,
    "homogeneity": overlap_page,
}


def _view(documents: tuple[Mapping[str, Any], ...]) -> PageView:
    if len(documents) == 1 and isinstance(documents[0], Mapping):
        for key, page in _PAGES.items():
            if key in documents[0]:
                return page(visible_document(documents[0]))
    return page_view(documents)


@cache
def _environment() -> "Environment":
    try:
        import jinja2
    except ImportError:
        raise MissingExtraError(
            "Reports need jinja2, which is not installed: pip install 'divprism[report]'."
        ) from None
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(_asset),
        # Off by default in jinja2, and texts from the data would become markup.
        autoescape=True,
        # A misspelt name in the template must fail in the tests, not leave a gap on a page.
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["split_isolated"] = _split_isolated
    return environment


def _split_isolated(text: str) -> list[str]:
    """Return the pieces of a sentence; every second one is a text from the data (`isolated`)."""
    # Texts from the data have lost such marks of their own (`visible`), so all that are left are
    # ours, in pairs.
    return re.split(_ISOLATES, text)


@cache
def _asset(name: str) -> str:
    # Not by __file__: an installed package may be inside a zip file.
    return (resources.files("divprism") / "report" / name).read_text(encoding="utf-8")


def _hash(script: str) -> str:
    # The browser hashes what stands between the script tags: a blank that the template adds there
    # would block the script.
    digest = hashlib.sha256(script.encode()).digest()
    return f"sha256-{base64.b64encode(digest).decode()}"
