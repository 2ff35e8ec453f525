"""Charts of pages that are drawn once for all tests of a process.

Drawing takes four fifths of the time of a page, and most tests change what stands beside the
charts. The same function with the same values draws the same bytes, which tests/test_plots.py
checks without this memory.
"""

import pickle
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from divprism.report import mixture_views, overlap_views, sections, selection_views
from divprism.report.svg import inline_svg

__all__ = ["each_drawn_once"]

_ROOMS = (mixture_views, overlap_views, sections, selection_views)
_drawn: dict[bytes, list[str]] = {}


@contextmanager
def each_drawn_once() -> Iterator[None]:
    """Draw each chart of a page once: what it shows, and its size and names, are the key."""
    with pytest.MonkeyPatch.context() as patch:
        for module in _ROOMS:
            patch.setattr(module, "inline_svg", _drawn_once)
        yield


def _drawn_once(draw: Callable[[Any], object], **options: Any) -> list[str]:
    key = _key(draw, options)
    if key is None:
        return inline_svg(draw, **options)
    if key not in _drawn:
        _drawn[key] = inline_svg(draw, **options)
    return list(_drawn[key])


def _key(draw: Callable[[Any], object], options: dict[str, Any]) -> bytes | None:
    """All that a chart depends on: the code of its function and the values that this holds."""
    values = [cell.cell_contents for cell in draw.__closure__ or ()]
    place = draw.__code__.co_filename, draw.__code__.co_firstlineno
    try:
        return pickle.dumps((place, values, sorted(options.items())))
    except (pickle.PicklingError, TypeError, AttributeError):
        return None  # drawn each time
