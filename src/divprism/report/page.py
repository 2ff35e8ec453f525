"""One self-contained HTML page of a result: no network, and nothing in it that a stranger wrote can run.

Texts, names and settings are escaped by jinja2; pictures are JPEGs made by us; a content security policy allows our script, by
its hash, and no other, and no address but data.
"""

import base64
import hashlib
import re
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Any

from divprism.errors import DataError, DivprismError, MissingExtraError
from divprism.report.view import page_view

__all__ = ["MARK", "report_page"]

MARK = "<!-- a report of divprism -->"
"""What pages have in them, so that one can be told from other files."""


def report_page(*documents: Mapping[str, Any]) -> str:
    """The page of a result document, as `evaluate(...).to_dict()`, `compare(...).to_dict()` or `divprism score` make it.

    Parameters
    ----------
    *documents : dict
        A result of one model, of several, or of a comparison; and results of `prompt_groups`, `converge` and
        `bandwidth_sweep` to go with it. Those that the result holds already, under `details`, need not be given.

    Raises
    ------
    DataError
        If a document is none that divprism writes.
    """
    environment = _environment()
    script = _asset("page.js")
    try:
        view = page_view(documents)
        page: str = environment.get_template("page.html").render(
            view=view, style=_asset("page.css"), script=script, script_hash=_hash(script), mark=MARK
        )
    except DivprismError:
        raise
    except Exception as error:  # a document is a stranger's JSON: whatever its shape breaks, it is that which is wrong
        raise DataError(
            f"this is not a result that divprism wrote: {type(error).__name__}, {error}."
        ) from None
    return page.encode("utf-8", "replace").decode()  # half a surrogate pair cannot be written


@cache
def _environment() -> Any:
    try:
        import jinja2
    except ImportError:
        raise MissingExtraError(
            "Reports need jinja2, which is not installed: pip install 'divprism[report]'."
        ) from None
    loader = jinja2.FunctionLoader(_asset)
    environment = jinja2.Environment(
        loader=loader, autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True
    )
    environment.filters["pieces"] = lambda text: re.split(
        "[\N{FIRST STRONG ISOLATE}\N{POP DIRECTIONAL ISOLATE}]", text
    )
    return environment


@cache
def _asset(name: str) -> str:
    return (resources.files("divprism") / "report" / name).read_text(encoding="utf-8")


def _hash(script: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}"
