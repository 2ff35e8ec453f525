"""The key of an endpoint, which is sent to that endpoint and shown nowhere."""

import base64
import html
import os
import re
import unicodedata
from urllib.parse import unquote

from divprism.errors import MissingModelError

__all__ = ["Key", "header_value", "plain_words"]

_MAX_LENGTH = 16_384
# The shortest run of characters that counts as a part of the key: as it is, and without regard to
# case, blanks and punctuation, where runs of four would often match by chance.
_RUN, _LOOSE_RUN = 4, 6
# A text shorter than this may be part of an address or a name by chance ("ollama").
_MIN_SECRET = 16
# Of a message that is shown: letters of a word; numbers and single letters, which may be a list.
_LONGEST_WORD, _MOST_NUMBERS = 20, 6
_ENDS = ".,;:!?'\"()[]{}<>`"


def header_value(variable: str) -> str:
    """Return an environment variable that is sent as a header, or an empty string.

    Raises
    ------
    MissingModelError
        If no header can hold it. The value is not quoted.
    """
    text = os.environ.get(variable, "")
    # Visible ASCII only: a line break would end the header and start another one.
    if len(text) > _MAX_LENGTH or not re.fullmatch(r"[!-~]*", text, re.ASCII):
        raise MissingModelError(
            f"{variable} cannot be sent: it contains blanks, line breaks or letters outside ASCII, "
            f"or more than {_MAX_LENGTH:,} characters."
        )
    return text


def plain_words(text: str) -> str:
    """Return a message with dots in place of whatever is no word or number of a sentence.

    There is no end to the ways in which a key can be encoded, but none of them reads as prose.

    >>> plain_words("Invalid input: 9000 tokens, x-Kz81Qw at most 8192")
    'Invalid input: 9000 tokens, ... at most 8192'
    """
    words = text.split()
    short = [word for word in words if _is_short(word.strip(_ENDS))]
    # A list of numbers or letters may spell a key.
    has_list = len(short) > _MOST_NUMBERS
    shown_words: list[str] = []
    for word in words:
        is_short = word in short
        if (is_short and not has_list) or (not is_short and _is_prose(word.strip(_ENDS))):
            shown_words.append(word)
        # One for all of a row.
        elif shown_words[-1:] != ["..."]:
            shown_words.append("...")
    return " ".join(shown_words)


def _is_short(core: str) -> bool:
    """Whether a text without its punctuation is a number, or a single letter."""
    return re.fullmatch(r"[0-9][0-9.,]{0,8}|[^\W\d_]", core) is not None


def _is_prose(core: str) -> bool:
    """Whether a text without its punctuation is a word, or words with hyphens and the like."""
    # Letters of full width and the like, which stand for others.
    if unicodedata.normalize("NFKC", core) != core:
        return False
    if re.fullmatch(r"[=&+%-]{0,2}", core):
        return True
    parts = re.split(r"[-_/'\u2019.]", core)
    return all(_is_word(part) for part in parts) and len(core) <= 2 * _LONGEST_WORD


def _is_word(part: str) -> bool:
    """Whether letters are in lower case, in upper case or capitalised; empty between hyphens."""
    is_cased = part in (part.lower(), part.upper(), part.capitalize())
    return len(part) <= _LONGEST_WORD and is_cased and (not part or part.isalpha())


class Key:
    """A key; its text is in no `repr`, so no traceback that shows variables prints it."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return "Key(...)"

    def __reduce__(self) -> str:
        raise TypeError("a key is not pickled")

    def authorization(self) -> str:
        """Return the value of the header `Authorization`."""
        return f"Bearer {self._text}"

    def is_empty(self) -> bool:
        """Whether there is no key, as for servers that ask for none."""
        return not self._text

    def is_part_of(self, text: str) -> bool:
        """Whether a text contains the whole key, and the key is long enough to be a secret."""
        return len(self._text) >= _MIN_SECRET and self._text in text

    def is_quoted_in(self, text: str) -> bool:
        """Whether a text of a server contains a part of the key, as it is or encoded.

        Texts are compared as they are and with their escapes decoded, since servers quote headers
        in several ways. Some mask the middle of a key, so its beginning and end count too.
        """
        readings = {text, unquote(text), html.unescape(text), _without_escapes(text)}
        plain = _runs(self._text, _RUN)
        loose: set[str] = set()
        for form in _encodings(self._text.encode()):
            letters = _letters(form)
            # Shorter ones are words such as "EMPTY", which local servers take as a key.
            if len(letters) >= _LOOSE_RUN:
                loose |= _runs(letters, _LOOSE_RUN)
        for reading in readings:
            if plain & _runs(reading, min(_RUN, len(self._text))):
                return True
            letters = _letters(reading)
            if any(run in letters for run in loose):
                return True
        return False


def _encodings(key: bytes) -> list[str]:
    """Return the forms in which a key may be quoted."""
    forms = [key.decode(), key.decode()[::-1], key.hex()]
    # A key inside of a longer text has one of three alignments in base64. The characters at either
    # end also depend on the bytes around the key.
    for start in range(3):
        text = base64.b64encode(b"\0" * start + key).decode().rstrip("=")
        forms.append(text[start + 1 : -1])
    return forms


def _runs(text: str, length: int) -> set[str]:
    """Return all runs of `length` characters, or the text itself if it is shorter."""
    if not text:
        return set()
    count = max(1, len(text) - length + 1)
    return {text[start : start + length] for start in range(count)}


def _letters(text: str) -> str:
    """Return letters and digits only, in lower case."""
    return re.sub(r"[\W_]", "", text).casefold()


def _without_escapes(text: str) -> str:
    r"""Return a text with `\x41` and `\u0041` decoded."""
    return re.sub(
        r"\\(?:x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4}))",
        lambda match: chr(int(match[1] or match[2], 16)),
        text,
    )
