"""Text helpers that tables, plots and pages share.

Names and texts come from data that nobody has checked: none of them may move the cursor of a
terminal, reverse the direction of the text around it, or break a line.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import count, takewhile

from divprism.data.wording import is_harmful

__all__ = [
    "distinct_names",
    "fitted",
    "is_tiny",
    "isolated",
    "latex_literal",
    "literal",
    "number_of",
    "one_line",
    "ranked",
    "sentence",
    "share_in_words",
    "shortened",
    "significant",
    "visible",
    "without_formula",
]

# Line breaks and tabs are part of poems and code, and examples on a page keep them.
_KEPT_CONTROLS = {"\n", "\t"}
_WIDE_LETTERS = "MWmw@%"
_NO_NAME = "(no name)"
_WHOLE = 1e-6  # from a whole number: numbers closer than that are printed without decimals
_SMALLEST_SHARE = 0.0005  # smaller ones are not printed in full


def visible(text: str) -> str:
    r"""Return a text without control characters and marks that change the direction of writing.

    Joiners stay: emoji and Persian are written with them.

    >>> visible("a\x1b[31m\u202eb")
    'a[31mb'
    """
    # Most texts, and megabytes of base64, have nothing to hide: look at each letter once.
    hidden = {letter for letter in set(text) if is_harmful(letter)} - _KEPT_CONTROLS
    if not hidden:
        return text
    return "".join(letter for letter in text if letter not in hidden)


def one_line(text: str) -> str:
    r"""Return a text without line breaks and hidden letters.

    >>> one_line("a\n  b")
    'a b'
    """
    # Split first: some line breaks, such as \r, are control characters, and dropping them would
    # join two words.
    return visible(" ".join(text.split()))


def shortened(text: str, width: int) -> str:
    """Return a text as one line of at most `width` characters, cut at its end.

    >>> shortened("one   two three", 10)
    'one two...'
    """
    line = one_line(text)
    if len(line) <= width:
        return line
    return f"{line[: width - 3].rstrip()}..."


def _breadth(letter: str) -> float:
    """Return the approximate width of a letter in a proportional font; 1 is a lower-case letter."""
    # An estimate has to do: which font the reader has is not known here.
    if unicodedata.combining(letter):
        return 0.0
    if letter in _WIDE_LETTERS or unicodedata.east_asian_width(letter) in "WF":
        return 1.7
    if letter.isupper():
        return 1.15
    return 1.0


def fitted(text: str, width: float) -> str:
    """Return a text as one line that is at most as wide as `width` lower-case letters.

    A longer text is cut in the middle, because names often differ only at one end.

    >>> fitted("one   two", 9), fitted("meta-llama/instruct-8b", 12)
    ('one two', 'meta...t-8b')
    """
    line = one_line(text)
    if sum(map(_breadth, line)) <= width:
        return line
    front, back = "", ""
    room = width - 3
    # Take letters from both ends in turn, so that either end keeps the same width.
    for index in range(len(line)):
        is_back = index % 2 == 1
        letter = line[index // 2]
        if is_back:
            letter = line[-1 - index // 2]
        room -= _breadth(letter)
        if room < 0:
            break
        if is_back:
            back = letter + back
        else:
            front += letter
    return f"{front.rstrip()}...{back.lstrip()}"


def distinct_names(names: Iterable[str], width: float) -> list[str]:
    """Return names that fit into `width` and still differ from each other.

    Where a cut makes names equal, their common beginning is dropped; names that are still equal
    are numbered.

    >>> distinct_names(["a" * 9 + "1" + "b" * 9, "a" * 9 + "2" + "b" * 9, " "], 10)
    ['...1b...bb', '...2b...bb', '(no name)']
    """
    given = [_name_or_placeholder(name) for name in names]
    short = [fitted(name, width) for name in given]
    repeated = [line for line, number in Counter(short).items() if number > 1]
    for line in repeated:
        indices = [index for index, other in enumerate(short) if other == line]
        start = _common_start([given[index] for index in indices])
        for index in indices:
            rest = given[index][start:].strip()
            # A beginning of three letters is no longer than the dots that replace it.
            if rest and start > 3:
                short[index] = f"...{fitted(rest, max(4.0, width - 3))}"
    return _numbered(short)


def _name_or_placeholder(name: str) -> str:
    # Hidden letters are no difference that a reader could see.
    return one_line(name) or _NO_NAME


def _common_start(texts: Sequence[str]) -> int:
    """Return the number of letters that all texts begin with in common."""
    columns = zip(*texts, strict=False)
    equal = takewhile(lambda column: len(set(column)) == 1, columns)
    return len(list(equal))


def _numbered(names: Sequence[str]) -> list[str]:
    """Return names that all differ: a repeated one gets the first free number, from 2."""
    taken: dict[str, None] = {}
    for name in names:
        # A name may end in a number already: "a (2)" next to two of "a".
        unique = name
        numbers = count(2)
        while unique in taken:
            unique = f"{name} ({next(numbers)})"
        taken[unique] = None
    return list(taken)


def isolated(text: str) -> str:
    """Return a text from the data between marks that keep its direction of writing to itself."""
    # Without `visible` the text could close the isolate itself, and act on what follows.
    return f"\N{FIRST STRONG ISOLATE}{visible(text)}\N{POP DIRECTIONAL ISOLATE}"


def sentence(text: str) -> str:
    """Return a note as a sentence: with a capital letter and a full stop.

    >>> sentence("ranked by vendi"), sentence("k = exp(-d)")
    ('Ranked by vendi.', 'k = exp(-d).')
    """
    capitalised = f"{text[:1].upper()}{text[1:]}"
    # A formula starts with a symbol, which would be another one in upper case.
    if text[1:3] == " =":
        capitalised = text
    if capitalised.endswith("."):
        return capitalised
    return f"{capitalised}."


# Each opens a tag, a link, emphasis or code, or ends a cell; > and ! alone do nothing.
_MARKDOWN = {"<": "&lt;", **{letter: f"\\{letter}" for letter in "\\|[]`*_"}}


def literal(text: str) -> str:
    r"""Return a text as one line that Markdown shows as it is: no link, image, tag or cell end.

    >>> literal("a|b <i>")
    'a\\|b &lt;i>'
    """
    # Unlike `one_line`, blanks at the ends stay: they are harmless in Markdown.
    line = visible(re.sub(r"\s+", " ", text))
    return "".join(_MARKDOWN.get(letter, letter) for letter in line)


# ± is written in ASCII because LaTeX before 2018 does not read UTF-8 by default.
_LATEX = {
    "\\": r"\textbackslash{}",
    "^": r"\^{}",
    "~": r"\~{}",
    "±": r"$\pm$",
    **{letter: f"\\{letter}" for letter in "_%&#${}"},
}


def latex_literal(text: str) -> str:
    r"""Return a text that LaTeX typesets as it is.

    >>> print(latex_literal("50% of a_b"))
    50\% of a\_b
    """
    # In one pass: replacing letter after letter would escape the backslashes of earlier escapes.
    return "".join(_LATEX.get(letter, letter) for letter in text)


# Some spreadsheets skip blanks and run what follows; some take letters of full width for these.
_FORMULA_STARTS = ("=", "+", "-", "@", "\uff1d", "\uff0b", "\uff0d", "\uff20")
_FORMULA_BLANKS = ("\t", "\r", "\n")


def without_formula(text: str) -> str:
    """Return a text that a spreadsheet does not run as a formula.

    >>> without_formula("=1+1"), without_formula("plain")
    ("'=1+1", 'plain')
    """
    # Hidden letters go first: one of them could stand before the start of a formula.
    shown = visible(text)
    start = next((letter for letter in shown if not _is_invisible(letter)), "")
    if shown.startswith(_FORMULA_BLANKS) or start in _FORMULA_STARTS:
        return f"'{shown}"
    return shown


def _is_invisible(letter: str) -> bool:
    """Whether nothing is seen of a letter: blanks, joiners, marks without a letter to be on."""
    return letter.isspace() or unicodedata.category(letter) in ("Cf", "Mn", "Me", "Zs")


def number_of(count: int, noun: str) -> str:
    """Return a count with its noun.

    >>> number_of(1, "output"), number_of(2000, "output")
    ('1 output', '2,000 outputs')
    """
    if count == 1:
        return f"1 {noun}"
    return f"{count:,} {noun}s"


def ranked(rank: Sequence[int]) -> str:
    """Return the best and the worst possible rank, or a single number where they are equal.

    >>> ranked((1, 1)), ranked((2, 4))
    ('1', '2-4')
    """
    best, worst = rank
    if best == worst:
        return f"{best}"
    return f"{best}-{worst}"


def significant(value: float, digits: int = 3) -> str:
    """Return a score with three significant digits, zeros included; whole numbers as they are.

    >>> significant(1.9), significant(1.0), significant(1234.5), significant(4.9981, 4)
    ('1.90', '1', '1,234', '4.998')
    """
    whole = round(value)
    # Numbers side by side, such as 1.90 and 1.87, are easier to compare with equal digits.
    padded = f"{value:#.{digits}g}"
    # Rounded before it is compared: 999.9 with three digits is a thousand.
    if abs(value - whole) < _WHOLE or abs(float(padded)) >= 10.0**digits:
        return f"{whole:,}"
    return padded.rstrip(".")


def is_tiny(share: float) -> bool:
    """Return whether a share is so small that its percentage is not printed in full."""
    return share < _SMALLEST_SHARE


def share_in_words(share: float) -> str:
    r"""Return a share as a percentage with two digits.

    >>> share_in_words(0.017), share_in_words(0.0001)
    ('1.7\xa0%', 'less than 0.1\xa0%')
    """
    if is_tiny(share):
        return "less than 0.1\N{NO-BREAK SPACE}%"
    digits = f"{100 * share:.2g}"
    if share >= 0.1:
        digits = f"{100 * share:,.0f}"
    return f"{digits}\N{NO-BREAK SPACE}%"
