"""What `progress=True` shows: a bar in a notebook, and a line on stderr elsewhere."""

import importlib
import sys
from collections.abc import Callable
from html import escape
from typing import Any

from divprism.errors import ArgumentError

__all__ = ["ShownProgress", "as_progress"]

_BAR = '<progress max="1" value="{:.3f}" style="width: 20em"></progress> {}'
_WIDTH = 79  # columns of a terminal


class ShownProgress:
    """Show the step and the completed share of a computation as it goes on.

    In a notebook one bar is drawn anew at each call, and on a terminal one line. Where stderr is a
    file, each step is a line of its own.
    """

    def __init__(self) -> None:
        self._bar: Any = None  # of a notebook; drawn at the first step, so quick work shows none
        self._steps: set[str] = set()

    def __call__(self, text: str, fraction: float) -> None:
        """Show a step and the completed share of it, from 0 to 1."""
        shown = _printable(text)
        display = _notebook_display()
        if display is not None:
            bar = display.HTML(_BAR.format(fraction, escape(shown)))
            if self._bar is None:
                self._bar = display.display(bar, display_id=True)
            else:
                self._bar.update(bar)
        elif sys.stderr.isatty():
            self._draw_line(shown, fraction)
        elif fraction == 0 and shown not in self._steps:
            self._steps.add(shown)
            print(shown, file=sys.stderr)  # noqa: T201  # asked for by the caller

    def _draw_line(self, text: str, fraction: float) -> None:
        line = f"{fraction:4.0%} {text}"[:_WIDTH]
        end = ""
        if fraction >= 1:
            end = "\n"
        sys.stderr.write(f"\r{line:<{_WIDTH}}{end}")
        sys.stderr.flush()


def as_progress(progress: object) -> Callable[[str, float], None] | None:
    """Return the function that `progress` asks for: True shows a bar, False and None nothing.

    >>> as_progress(None) is as_progress(False) is None, as_progress(print) is print
    (True, True)
    """
    if progress is None or progress is False:
        return None
    if progress is True:
        return ShownProgress()
    if not callable(progress):
        raise ArgumentError(
            f"`progress` must be True, or a function of a text and a fraction; got {progress!r}."
        )
    return progress


def _printable(text: str) -> str:
    # Steps name files and models, whose names may hold codes that move the cursor.
    shown = text
    for letter in set(text):
        if not letter.isprintable():
            shown = shown.replace(letter, " ")
    return shown


def _notebook_display() -> Any:
    """Return the module that shows HTML in the running notebook; None outside of notebooks."""
    ipython = sys.modules.get("IPython")
    shell = None
    if ipython is not None:
        shell = ipython.get_ipython()
    # A shell on a terminal has no kernel, and shows no HTML.
    if not hasattr(shell, "kernel"):
        return None
    return importlib.import_module("IPython.display")
