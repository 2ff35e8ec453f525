"""Spellings that tables, plots and pages share; names and texts may come from strangers."""

import re
import unicodedata

__all__ = ["family_of", "literal", "number_of", "ranked", "shortened", "visible"]

_KEPT = "\n\t"
_TURNING = {chr(code) for code in (0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A))}


def visible(text: str) -> str:
    r"""A text without letters that nobody sees: controls of a terminal, marks that turn the direction of writing.

    >>> visible("a\x1b[31m\u202eb")
    'a[31mb'
    """
    hidden = {letter for letter in set(text) if letter in _TURNING or unicodedata.category(letter) in ("Cc", "Cs")}
    return "".join(letter for letter in text if letter in _KEPT or letter not in hidden)


def shortened(text: str, width: int) -> str:
    """A text in one line of at most `width` letters.

    >>> shortened("one   two three", 10)
    'one two...'
    """
    line = visible(" ".join(text.split()))
    return line if len(line) <= width else f"{line[: width - 3].rstrip()}..."


def literal(text: str) -> str:
    """A text that Markdown shows as it is, in one line: no cell ends, no link, no picture, no tag in it."""
    line = visible(re.sub(r"\s+", " ", text))
    return "".join(f"\\{letter}" if letter in "\\|[]`*_" else "&lt;" if letter == "<" else letter for letter in line)


def number_of(count: int, noun: str) -> str:
    """A count and what is counted.

    >>> number_of(1, "output"), number_of(2000, "output")
    ('1 output', '2,000 outputs')
    """
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def ranked(rank: tuple[int, int] | list[int]) -> str:
    """The ranks that are left open.

    >>> ranked((1, 1)), ranked((2, 4))
    ('1', '2-4')
    """
    low, high = rank
    return f"{low}" if low == high else f"{low}-{high}"


def family_of(score: str) -> str:
    """Which of the three a score is: conditional, information, or vendi."""
    return next((family for family in ("conditional", "information") if family in score), "vendi")
