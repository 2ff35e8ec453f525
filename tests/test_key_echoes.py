"""Messages of a server that quote the key in an encoding: prose is shown, and nothing else."""

import base64
import codecs
import json
from collections.abc import Callable

import pytest

from divprism.embedders._answer import read_message
from divprism.embedders._key import Key, plain_words
from divprism.embedders._requests import quoted

KEY = "sk-proj-Zx81QwLpT0vNm7RbYc5"


def _codes(form: str, separator: str = "") -> Callable[[str], str]:
    """Return a function that spells every letter of a key by its number."""
    return lambda key: separator.join(form.format(ord(letter)) for letter in key)


def _shifted(offset: int) -> Callable[[str], str]:
    """Return a function that moves every letter of a key to another block of Unicode."""
    return lambda key: "".join(chr(ord(letter) + offset) for letter in key)


ENCODINGS: dict[str, Callable[[str], str]] = {
    "decimal": _codes("{}", " "),
    "decimal list": _codes("{}", ","),
    "hexadecimal list": _codes("{:#x}", " "),
    "octal escapes": _codes("\\{:03o}"),
    "escapes in braces": _codes("\\u{{{:x}}}"),
    "bits": _codes("{:08b}", " "),
    "full width": _shifted(0xFEE0),
    "tags": _shifted(0xE0000),
    "rotated": lambda key: codecs.encode(key, "rot13"),
    "rotated letters": lambda key: " ".join(codecs.encode(key, "rot13")),
    "base32": lambda key: base64.b32encode(key.encode()).decode(),
    "base85": lambda key: base64.b85encode(key.encode()).decode(),
    "base64 twice": lambda key: base64.b64encode(base64.b64encode(key.encode())).decode(),
    "base64 reversed": lambda key: base64.b64encode(key.encode()).decode()[::-1],
    "reversed base64": lambda key: base64.b64encode(key[::-1].encode()).decode(),
    "every other letter": lambda key: f"{key[::2]} {key[1::2]}",
    "letters between": lambda key: "x".join(key),
}


@pytest.mark.parametrize("name", ENCODINGS)
def test_no_encoding_of_the_key_is_printed(name):
    encoded = ENCODINGS[name](KEY)
    body = json.dumps({"error": {"message": f"bad key: {encoded}"}}).encode()
    message = quoted(read_message(body), Key(KEY))
    assert all(encoded[start : start + 8] not in message for start in range(len(encoded) - 7))
    assert message.startswith(("bad key", "its message is not shown"))


SENTENCES = [
    "This model's maximum context length is 8192 tokens, however you requested 10,000 tokens.",
    "Rate limit reached for requests; please try again in 20 seconds!",
    "Le champ 'encoding_format' est refus\u00e9 (voir input.text)",
    "\u8f93\u5165\u592a\u957f",
    "invalid value for input/dimensions: must be <= 1024 or NULL",
]


@pytest.mark.parametrize("sentence", SENTENCES)
def test_sentences_are_shown_as_they_are(sentence):
    assert plain_words(sentence) == sentence


def test_a_row_of_other_things_becomes_one_row_of_dots():
    assert plain_words("request 3f2a-99Zq x81Q failed") == "request ... failed"
