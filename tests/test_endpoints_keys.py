"""The key of an endpoint, and texts of its server: neither redirects nor messages leak them."""

import base64
import json
import pickle
import re
from urllib.parse import quote

import command_line
import pytest
from endpoint_server import (
    CHUNKED,
    OK,
    SECRET,
    TEXTS,
    assert_one_clean_sentence,
    parts_of_key,
    raw,
    sends,
    with_indices,
)

from divprism.embedders.http import OpenAI
from divprism.errors import DataError, DivprismError, MissingModelError

# -------------------------------------------------------------------------------------- redirects

LOCATIONS = {
    "other-port": "{elsewhere}/embeddings",
    "same-host": "{here}/other/embeddings",
    "relative": "/v2/embeddings",
    "loop": "{here}/embeddings",
    "other-name": "http://localhost:{port}/v1/embeddings",
    "other-scheme": "https://127.0.0.1:{port}/v1/embeddings",
    "scheme-relative": "//127.0.0.1:{port}/v1/embeddings",
    "file": "file:///etc/passwd",
    "ftp": "ftp://127.0.0.1/a",
    "data": "data:application/json,{{}}",
    "nothing": "",
    "control": "\x1b[31m{elsewhere}",
    "key": "{elsewhere}/?key=" + quote(SECRET),
}


@pytest.mark.parametrize("status", [300, 301, 302, 303, 304, 305, 307, 308, 399])
@pytest.mark.parametrize("case", LOCATIONS)
def test_redirects_are_not_followed(status, case, endpoint, elsewhere):
    location = LOCATIONS[case].format(
        elsewhere=elsewhere.url, here=endpoint.url, port=elsewhere.server_port
    )
    endpoint.respond = sends(b"", status, Location=location)
    with pytest.raises(MissingModelError, match=f"answered {status}, a redirect") as caught:
        OpenAI("m", max_retries=2).embed_batch(TEXTS)
    assert_one_clean_sentence(caught.value)
    assert "set that to the final address" in str(caught.value)
    assert len(endpoint.seen) == 1
    assert not elsewhere.seen


# ---------------------------------------------------------------------------------------- the key

QUOTED: dict[str, str] = {
    "key": SECRET,
    "header": f"Authorization: Bearer {SECRET}",
    "base64": base64.b64encode(SECRET.encode()).decode(),
    "base64-url": base64.urlsafe_b64encode(SECRET.encode()).decode(),
    "base64-of-header": base64.b64encode(f"Bearer {SECRET}".encode()).decode(),
    "base64-of-user": base64.b64encode(f"user:{SECRET}".encode()).decode(),
    "base64-of-two": base64.b64encode(f"ab{SECRET}".encode()).decode(),
    "url": quote(SECRET, safe=""),
    "every-character-in-percent": "".join(f"%{ord(letter):02X}" for letter in SECRET),
    "entities": "".join(f"&#{ord(letter)};" for letter in SECRET),
    "escapes": "".join(f"\\u{ord(letter):04x}" for letter in SECRET),
    "hexadecimal": SECRET.encode().hex(),
    "hexadecimal-upper": SECRET.encode().hex().upper(),
    "hexadecimal-spaced": SECRET.encode().hex(" "),
    "upper": SECRET.upper(),
    "lower": SECRET.lower(),
    "reversed": SECRET[::-1],
    "prefix": SECRET[:8],
    "suffix": SECRET[-6:],
    "short-prefix": SECRET[:5],
    "middle": SECRET[10:18],
    "masked": f"{SECRET[:5]}***{SECRET[-5:]}",
    "line-breaks": "\n".join(SECRET),
    "blanks": " ".join(SECRET),
    "zero-width": "\u200b".join(SECRET),
    "escape-codes": "\x1b[0m".join(SECRET[start : start + 3] for start in range(0, 35, 3)),
    "repr": repr({"Authorization": f"Bearer {SECRET}"}),
    "cut-by-the-limit": "x" * 190 + SECRET,
    "far-behind": "x" * 5000 + SECRET,
}


@pytest.mark.parametrize("status", [200, 400, 401, 403, 404, 413, 418, 422, 429, 500, 599])
def test_no_part_of_the_key_is_printed_whatever_the_server_quotes(status, endpoint):
    for case, text in QUOTED.items():
        for body in (
            json.dumps({"error": {"message": f"no: {text}"}}),
            json.dumps({"error": text, "code": text}),
            json.dumps({"detail": text}),
            f"<html>{text}</html>",
            json.dumps({"data": [{"index": text, "embedding": text}, text], text: text}),
        ):
            endpoint.respond = sends(body.encode("utf-8", "replace"), status)
            with pytest.raises(DivprismError) as caught:
                OpenAI("m", max_retries=0).embed_batch(TEXTS)
            assert_one_clean_sentence(caught.value)
            readable = re.sub(r"[\W_]", "", str(caught.value).casefold())
            loose = re.sub(r"[\W_]", "", SECRET.casefold())
            assert not parts_of_key(readable, loose), case


def test_the_key_is_not_printed_where_headers_and_status_quote_it(endpoint):
    key = SECRET.encode()
    for data in (
        b"HTTP/1.1 400 " + key + b"\r\n" + key + b": " + key + b"\r\n\r\n" + key,
        b"HTTP/1.1 " + key + b"\r\n\r\n",
        key + b"\r\n\r\n",
        OK + key + b"\r\n\r\n",
        CHUNKED + key + b"\r\n",
        CHUNKED + b"9\r\n" + key,
        OK + b"Content-Encoding: " + key + b"\r\n\r\n",
        OK + b"Content-Length: " + key + b"\r\n\r\n",
        b"HTTP/1.1 429 a\r\nRetry-After: " + key + b"\r\n\r\n",
    ):
        endpoint.respond = raw(data)
        with pytest.raises(DivprismError) as caught:
            OpenAI("m", max_retries=0).embed_batch(TEXTS)
        assert_one_clean_sentence(caught.value)


def test_messages_without_the_key_are_shown(endpoint):
    for body in (
        {"error": {"message": "maximum context length is 8192 tokens"}},
        {"error": "maximum context length is 8192 tokens"},
        {"message": "maximum context length is 8192 tokens", "error": None},
        {"detail": "maximum context length is 8192 tokens"},
    ):
        endpoint.respond = sends(json.dumps(body).encode(), 400)
        with pytest.raises(
            DataError, match=r"answered 400 to texts for m: maximum context length is 8192 tokens\."
        ):
            OpenAI("m").embed_batch(TEXTS)


@pytest.mark.parametrize("key", ["EMPTY", "x", "none", "ollama", "sk-1234"])
def test_short_keys_of_local_servers_are_accepted(key, endpoint, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", key)
    endpoint.respond = sends(b'{"error": "the input must not be empty"}', 400)
    with pytest.raises(DataError, match=r"the input must not be empty|contains a part of the key"):
        OpenAI("m").embed_batch(TEXTS)
    assert endpoint.seen[0]["headers"]["Authorization"] == f"Bearer {key}"


@pytest.mark.parametrize(
    "text",
    [
        "\x1b[31mred\x1b[0m",
        "\x1b]0;title\x07",
        "two\u2028lines\u2029more",
        "\u202eright to left\u202c \u2066isolated\u2069",
        "\x00\x01\x02\x7f\x80\x9b",
        "\ud800 alone",
        "\ufeff\u200b\u200e",
        "long " * 10_000,
        "\U000e0041 tags",
        "a\r\n\tb",
    ],
)
@pytest.mark.parametrize("status", [200, 400, 404, 500])
def test_texts_of_the_server_are_escaped_and_short(text, status, endpoint):
    body = json.dumps({"error": {"message": f"no {text}"}, text: text}).encode()
    endpoint.respond = sends(body, status)
    with pytest.raises(DivprismError) as caught:
        OpenAI("m", max_retries=0).embed_batch(TEXTS)
    assert_one_clean_sentence(caught.value)
    if status == 400 and len(body) < 1000:
        assert "answered 400 to texts for m: " in str(caught.value)
        assert "no " in str(caught.value)


@pytest.mark.parametrize(
    "key",
    [
        f"{SECRET}\n",
        f"{SECRET}\r\nX-Other: 1",
        f" {SECRET}",
        f"{SECRET} {SECRET}",
        f"{SECRET}\t",
        f"{SECRET}\u00e9",
        f"{SECRET}\u4e2d",
        f"{SECRET}\x7f",
        f"{SECRET}\x1b[31m",
        f"{SECRET}\u202e",
        f"{SECRET}\udcff",
        SECRET * 1000,
    ],
)
@pytest.mark.parametrize("variable", ["OPENAI_API_KEY", "OPENAI_ORG_ID", "OPENAI_PROJECT_ID"])
def test_a_key_that_no_header_can_hold_is_refused(key, variable, endpoint, monkeypatch):
    monkeypatch.setenv(variable, key)
    with pytest.raises(
        MissingModelError, match=f"{variable} cannot be sent: it contains"
    ) as caught:
        OpenAI("m").embed_batch(TEXTS)
    assert_one_clean_sentence(caught.value)
    assert not endpoint.seen


def test_organisation_and_project_are_sent(endpoint, monkeypatch):
    monkeypatch.setenv("OPENAI_ORG_ID", "org-1")
    monkeypatch.setenv("OPENAI_PROJECT_ID", "proj-2")
    OpenAI("m").embed_batch(TEXTS)
    headers = endpoint.seen[0]["headers"]
    assert headers["OpenAI-Organization"] == "org-1"
    assert headers["OpenAI-Project"] == "proj-2"


def test_no_output_contains_the_key(endpoint, tmp_path):
    """Results, pages, the cache and its list, repr and pickles."""
    source = tmp_path / "answers.jsonl"
    rows = [{"prompt": f"p {n % 4}", "output": f"o {n}"} for n in range(12)]
    source.write_text("\n".join(map(json.dumps, rows)))
    embedder = OpenAI("m")
    embedder.embed_batch(TEXTS)
    shown = repr(embedder) + repr(vars(embedder)) + json.dumps(embedder.describe())
    shown += pickle.dumps(embedder).decode("latin-1")
    options = ("--embedder-x", "openai:m", "--embedder-t", "openai:m", "--format", "json")
    result = command_line.run("score", source, *options)
    assert result.returncode == 0, result.stderr
    listed = command_line.run("cache", "ls")
    shown += "".join(part.decode() for part in (result.stdout, result.stderr, listed.stdout))
    assert "openai:m" in shown
    for path in tmp_path.rglob("*"):
        if path.is_file():
            shown += path.read_bytes().decode("latin-1")
    assert not parts_of_key(shown)


def test_the_command_line_prints_one_sentence(endpoint, tmp_path):
    source = tmp_path / "answers.jsonl"
    rows = [{"prompt": f"p {n % 4}", "output": f"o {n}"} for n in range(12)]
    source.write_text("\n".join(map(json.dumps, rows)))
    message = f"no \x1b[31m[bold]{SECRET}[/bold]"
    for respond, code in (
        (sends(json.dumps({"error": {"message": message}}).encode(), 400), 4),
        (sends(with_indices(False, True)), 4),
        (sends(b"", 302, Location=SECRET), 3),
    ):
        endpoint.respond = respond
        result = command_line.run("score", source, "--embedder-x", "openai:m")
        assert result.returncode == code
        lines = result.stderr.decode().strip().splitlines()
        assert endpoint.url in lines[-1]
        assert "Traceback" not in result.stderr.decode()
        assert all(line.isprintable() for line in lines)
        assert not parts_of_key(result.stderr.decode() + result.stdout.decode())
