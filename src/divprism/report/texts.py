"""Spellings that tables, plots and pages share; names and texts may come from strangers."""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable
from itertools import takewhile

__all__ = [
    "distinct_names", "fitted", "isolated", "literal", "number_of", "ranked", "sentence", "shortened", "visible",
]  # fmt: skip

_KEPT = "\n\t"
_TURNING = {chr(code) for code in (0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A))}


def visible(text: str) -> str:
    r"""A text without letters that nobody sees: controls of a terminal, marks that turn the direction of writing.

    >>> visible("a\x1b[31m\u202eb")
    'a[31mb'
    """
    hidden = {
        letter
        for letter in set(text)
        if letter in _TURNING or unicodedata.category(letter) in ("Cc", "Cs")
    }
    return "".join(letter for letter in text if letter in _KEPT or letter not in hidden)


def shortened(text: str, width: int) -> str:
    """A text in one line of at most `width` letters.

    >>> shortened("one   two three", 10)
    'one two...'
    """
    line = visible(" ".join(text.split()))
    return line if len(line) <= width else f"{line[: width - 3].rstrip()}..."


def _breadth(letter: str) -> float:
    """How wide a letter is beside a usual one."""
    if unicodedata.combining(letter):
        return 0.0
    return (
        1.7
        if letter in "MWmw@%" or unicodedata.east_asian_width(letter) in "WF"
        else 1.15
        if letter.isupper()
        else 1.0
    )


def fitted(text: str, width: float) -> str:
    """A text in one line, as wide as `width` usual letters at most, cut in the middle: both ends tell names apart.

    >>> fitted("one   two", 9), fitted("meta-llama/instruct-8b", 12)
    ('one two', 'meta...t-8b')
    """
    line = visible(" ".join(text.split()))
    if sum(map(_breadth, line)) <= width:
        return line
    ends, room = ["", ""], width - 3
    for place in range(len(line)):  # a letter from the front, one from the back, in turns
        letter = line[-1 - place // 2] if place % 2 else line[place // 2]
        room -= _breadth(letter)
        if room < 0:
            break
        ends = [ends[0], letter + ends[1]] if place % 2 else [ends[0] + letter, ends[1]]
    return f"{ends[0].rstrip()}...{ends[1].lstrip()}"


def distinct_names(names: Iterable[str], width: float) -> list[str]:
    """Names that fit and stay apart: where a cut makes two alike, what they begin with in common goes, or they are numbered.

    >>> distinct_names(["a" * 9 + "1" + "b" * 9, "a" * 9 + "2" + "b" * 9, " "], 10)
    ['...1b...bb', '...2b...bb', '(no name)']
    """
    given = [name if visible(name).strip() else "(no name)" for name in names]
    short = [fitted(name, width) for name in given]
    for line in [line for line, count in Counter(short).items() if count > 1]:
        alike = [place for place, other in enumerate(short) if other == line]
        letters = zip(*(given[place] for place in alike), strict=False)
        start = sum(1 for _ in takewhile(lambda column: len(set(column)) == 1, letters))
        for place in alike:
            rest = given[place][start:].strip()
            short[place] = f"...{fitted(rest, max(4.0, width - 3))}" if rest and start > 3 else line
    taken: set[str] = set()
    for place, line in enumerate(short):
        short[place] = next(
            one
            for one in (line, *(f"{line} ({count})" for count in range(2, len(short) + 2)))
            if one not in taken
        )
        taken.add(short[place])
    return short


def isolated(text: str) -> str:
    """A stranger's text inside a sentence of ours, between marks that keep its direction of writing to itself."""
    return f"\N{FIRST STRONG ISOLATE}{visible(text)}\N{POP DIRECTIONAL ISOLATE}"


def sentence(text: str) -> str:
    """A remark as a sentence of its own.

    >>> sentence("ranked by vendi")
    'Ranked by vendi.'
    """
    return f"{text[:1].upper()}{text[1:]}{'' if text.endswith('.') else '.'}"


def literal(text: str) -> str:
    """A text that Markdown shows as it is, in one line: no cell ends, no link, no picture, no tag in it."""
    line = visible(re.sub(r"\s+", " ", text))
    return "".join(
        f"\\{letter}" if letter in "\\|[]`*_" else "&lt;" if letter == "<" else letter
        for letter in line
    )


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
