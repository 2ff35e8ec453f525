"""Small pieces of messages that several rooms share, and how texts of others are made harmless.

Names and texts come from data, files and servers that nobody has checked: none of them may move
the cursor of a terminal, reverse the direction of the text around it, or hide from the reader.
"""

import json
import os
import unicodedata
from collections.abc import Iterable
from pathlib import Path

from divprism.errors import Notice

__all__ = [
    "NOUNS",
    "SIDES",
    "agreeing",
    "counted",
    "counted_kinds",
    "differing_names",
    "escaped",
    "excerpt",
    "excerpts",
    "first_line",
    "hint_of_models",
    "is_harmful",
    "json_text",
    "loose_spelling",
    "plain_number",
    "reason",
]

# Marks, embeddings, overrides, isolates: an override can make a name read as another.
_DIRECTION_MARKS = {
    chr(code) for code in (0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A))
}
# Not Cf, the format characters: the joiners of emoji and Persian are among them.
_HARMFUL_CATEGORIES = ("Cc", "Cs", "Zl", "Zp")  # controls, lone surrogates, line separators

_LONGEST_REASON = 200  # letters of the error of a library

SIDES = {"x": "outputs", "t": "prompts"}
"""What the two sides of a pair are called, by the names of their arguments."""
NOUNS = {"text": "text", "image": "image", "video": "video", "audio": "sound"}
"""What an item is called, by its modality; an s makes the plural."""


def counted(count: int, singular: str, plural: str) -> str:
    """Return a count with the words that agree with it.

    >>> counted(1, "file is", "files are"), counted(1200, "file is", "files are")
    ('1 file is', '1,200 files are')
    """
    return f"{count:,} {agreeing(count, singular, plural)}"


# Codes of warnings about models that a source names where they are not read.
_HIDDEN_MODELS = ("models-pooled", "model-folders-as-prompts")


def hint_of_models(warnings: Iterable[Notice]) -> str:
    """Return the warning about models that were not recognised as such; empty if there is none.

    A refusal for lack of models includes it, because other warnings are printed with results only.
    """
    for warning in warnings:
        if warning.code in _HIDDEN_MODELS:
            return f"{warning.text[:1].upper()}{warning.text[1:]}"
    return ""


def agreeing(count: int, singular: str, plural: str) -> str:
    """Return the words that agree with a count.

    >>> f"1 of 3 files {agreeing(1, 'is', 'are')} unused"
    '1 of 3 files is unused'
    """
    if count == 1:
        return singular
    return plural


def plain_number(value: float, digits: int = 3) -> str:
    """Return a number with at most `digits` significant digits, and thousands in full.

    >>> plain_number(14.02), plain_number(999.7), plain_number(1234.5)
    ('14', '1,000', '1,234')
    """
    short = f"{value:.{digits}g}"
    # Powers of ten, such as 1.23e+03, have no place in a sentence.
    if abs(float(short)) >= 10.0**digits:
        return f"{value:,.0f}"
    return short


def counted_kinds(kinds: float) -> str:
    """Return an effective number of kinds with its noun.

    >>> counted_kinds(14.02), counted_kinds(1.0001)
    ('14 kinds', '1 kind')
    """
    count = plain_number(kinds)
    # Compared as printed: 1.0001 reads as 1.
    if count == "1":
        return "1 kind"
    return f"{count} kinds"


def excerpt(text: str, width: int, start: int = 0) -> str:
    r"""Return a quoted part of a text, with dots where it is cut.

    >>> excerpt("one two three", 7), excerpt("one\n", 7)
    ("'one two...'", "'one\\n'")
    """
    part = text[start : start + width]
    if start > 0:
        part = f"...{part}"
    if start + width < len(text):
        part = f"{part}..."
    return repr(part)


def excerpts(first: str, second: str, width: int) -> str:
    """Return two texts, quoted and cut to a part that shows where they begin to differ.

    >>> excerpts("a very long text, one", "a very long text, two", 9)
    "'...xt, one' and '...xt, two'"
    """
    pairs = zip(first, second, strict=False)
    same = (index for index, (one, other) in enumerate(pairs) if one != other)
    # Without a difference in their common length, one text continues the other.
    differs_at = next(same, min(len(first), len(second)))
    start = 0
    if differs_at > 2 * width // 3:
        start = differs_at - width // 2
    return f"{excerpt(first, width, start)} and {excerpt(second, width, start)}"


def loose_spelling(text: str) -> str:
    r"""Return a text without what readers hardly see: case, white space, and the form of accents.

    An accent is a letter of its own (NFD, as macOS writes it) or part of its letter (NFC).

    >>> loose_spelling("An\u0303o  uno ") == loose_spelling("a\u00f1o uno")
    True
    """
    return unicodedata.normalize("NFC", " ".join(text.casefold().split()))


def is_harmful(letter: str) -> bool:
    """Whether a character may control a terminal, reverse or break a line, or fail to print."""
    return letter in _DIRECTION_MARKS or unicodedata.category(letter) in _HARMFUL_CATEGORIES


def escaped(text: object, keep: str = "") -> str:
    r"""Return a text with every harmful character spelled out, except for those in `keep`.

    >>> escaped("a\x1b[31m\u202eb"), escaped("two\nlines")
    ('a\\x1b[31m\\u202eb', 'two\\nlines')
    """
    given = str(text)
    # Most texts are harmless: look at each distinct letter once.
    harmful = {letter for letter in set(given) if is_harmful(letter) and letter not in keep}
    if not harmful:
        return given
    return given.translate({ord(letter): _spelled(letter) for letter in harmful})


def _spelled(letter: str) -> str:
    return letter.encode("unicode_escape").decode("ascii")


def json_text(content: object, indent: int | None = 2) -> str:
    r"""Return plain values as JSON; harmful characters are escaped, other letters stay readable.

    >>> json_text({"model": "é\x9b"}, indent=None)
    '{"model": "é\\u009b"}'
    """
    text = json.dumps(content, indent=indent, allow_nan=False, ensure_ascii=False)
    # `json` escapes controls below 32 only. Outside of strings there are none but line breaks.
    harmful = {letter for letter in set(text) if is_harmful(letter) and letter != "\n"}
    return text.translate({ord(letter): f"\\u{ord(letter):04x}" for letter in harmful})


def reason(error: OSError) -> str:
    """Return why the system refused, in its own words.

    >>> reason(FileNotFoundError(2, "No such file or directory", "x"))
    'No such file or directory'
    >>> reason(OSError("768000 requested and 246752 written"))
    'only a part of it could be written, as on a full disk'
    """
    if error.strerror:
        return error.strerror
    # NumPy has no code for a disk that is full: "768000 requested and 246752 written".
    if " requested and " in str(error):
        return "only a part of it could be written, as on a full disk"
    return first_line(error)


def first_line(error: BaseException) -> str:
    r"""Return the first line of an error without its full stop, or the name of its class.

    Libraries quote the file in their errors, so the line is escaped and cut.

    >>> first_line(ValueError("bad header.\nsecond line")), first_line(EOFError())
    ('bad header', 'EOFError')
    >>> first_line(ValueError("unknown type \x1b[31m"))
    'unknown type \\x1b[31m'
    >>> first_line(KeyError("swish9"))  # its text is the key alone
    "there is no entry 'swish9'"
    """
    lines = str(error).splitlines()
    if not lines or not lines[0]:
        return type(error).__name__
    if type(error) is KeyError:
        lines[0] = f"there is no entry {lines[0]}"
    line = escaped(lines[0][:_LONGEST_REASON]).rstrip(".")
    if len(lines[0]) > _LONGEST_REASON:
        return f"{line}..."
    return line


def differing_names(sources: list[str]) -> list[str]:
    """Return paths without the folders that all start with, and without what all end in.

    >>> differing_names(["runs/a/out.jsonl", "runs/b/out.jsonl"])
    ['a', 'b']
    >>> differing_names(["x/a.csv", "y/b.csv"])
    ['x/a.csv', 'y/b.csv']
    >>> differing_names(["runs", "runs/b"])
    ['runs', 'runs/b']
    """
    if len(sources) < 2:
        return sources
    paths = [os.path.abspath(source) for source in sources]
    folder = os.path.commonpath(paths)
    # A source that contains all others, or two spellings of one, would be left without a name.
    if folder in paths:
        folder = os.path.dirname(folder)
    # The root of all folders is its own parent.
    parts = [Path(os.path.relpath(path, folder)).parts or (path,) for path in paths]
    while len({part[-1] for part in parts}) == 1 < min(map(len, parts)):
        parts = [part[:-1] for part in parts]
    return [str(Path(*part)) for part in parts]
