"""The order in which people expect files: 2.png before 10.png."""

import re
from pathlib import Path

__all__ = ["natural"]

_DIGITS = "0123456789"


def natural(path: Path) -> tuple[list[tuple[bool, int, str]], str]:
    """Return a sort key that puts 2.png before 10.png.

    >>> [path.name for path in sorted(map(Path, ["10.png", "2.png", "a.png"]), key=natural)]
    ['2.png', '10.png', 'a.png']
    """
    parts = []
    for part in re.findall(r"[0-9]+|[^0-9]+", path.name):
        # ASCII digits only: int() and isdigit() disagree about others, such as superscripts.
        if part[0] in _DIGITS:
            parts.append((False, int(part), ""))
        else:
            # True sorts last, so that words follow numbers of any length.
            parts.append((True, 0, part.casefold()))
    # The name itself decides between 1.png and 01.png.
    return parts, path.name
