"""Endpoints that are broken or hostile: a real server on this machine answers every request.

A case is a row: how the server answers, and the sentence that the user gets. Vectors of a refused
answer must not reach the cache, and no part of the key may reach a message.
"""

import base64
import gzip
import itertools
import json
import os
import pickle
import random
import re
import shutil
import signal
import socket
import ssl
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import datetime, timedelta, timezone
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import quote

import command_line
import numpy as np
import pytest

import divprism as dp
from divprism.data.samples import texts
from divprism.embedders.cache import Cache
from divprism.embedders.http import OpenAI
from divprism.embedders.pipeline import embed_items
from divprism.errors import ArgumentError, DataError, DivprismError, MissingModelError

# Letters of both cases, digits, and characters that URLs, HTML and base64 write in other ways.
SECRET = "sk-Zq7Xv&9TbLw3Rk_Gd5H+y2/Nc8Wj<Pm4"
TEXTS = ["a cat", "the dog"]
VECTORS = [[1.0, 2.0, 3.0], [4.0, 5.0, -6.5]]
MEBIBYTE = 1 << 20

# -------------------------------------------------------------------------------------- the server


class Endpoint(ThreadingHTTPServer):
    """A server that gives every POST to the function `respond`, and records all requests."""

    daemon_threads = True
    block_on_close = False

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.respond: Callable[[_Handler], None] = answer_well
        self.seen: list[dict[str, Any]] = []
        self.num_sent = 0
        self.url = f"http://127.0.0.1:{self.server_port}/v1"
        threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()

    def handle_error(self, *_: object) -> None:
        """Clients hang up on hostile answers: that is no error of the test."""

    def stop(self) -> None:
        self.shutdown()
        self.server_close()


class _Handler(BaseHTTPRequestHandler):
    server: Endpoint
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        length = int(self.headers.get("Content-Length", 0))
        content = self.rfile.read(length)
        self.server.seen.append(
            {"method": self.command, "path": self.path, "headers": dict(self.headers)}
        )
        self.server.seen[-1]["content"] = content
        self.server.respond(self)
        self.close_connection = True

    do_GET = do_CONNECT = do_POST  # noqa: N815 - names that http.server looks up

    def texts(self) -> list[str]:
        return json.loads(self.server.seen[-1]["content"])["input"]

    def raw(self, data: bytes) -> None:
        """Send bytes as they are."""
        self.wfile.write(data)
        self.server.num_sent += len(data)

    def reply(self, body: bytes, status: int = 200, **headers: str) -> None:
        lines = [f"HTTP/1.1 {status} text", f"Content-Length: {len(body)}"]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        self.raw("\r\n".join(lines).encode() + b"\r\n\r\n" + body)

    def log_message(self, *_: object) -> None:
        """Not on our stderr."""


Respond = Callable[[_Handler], None]


def answer_well(handler: _Handler) -> None:
    """Answer each text with a vector that only that text has."""
    data = [
        {"object": "embedding", "index": index, "embedding": vector_of(text)}
        for index, text in enumerate(handler.texts())
    ]
    handler.reply(json.dumps({"object": "list", "data": data}).encode())


def vector_of(text: str) -> list[float]:
    return [float(len(text)), float(text.count("a")), float(sum(text.encode()) % 97)]


def body_of(*entries: object, **fields: object) -> bytes:
    return json.dumps({"object": "list", "data": list(entries), **fields}).encode()


def entry(index: object, embedding: object) -> dict[str, object]:
    return {"object": "embedding", "index": index, "embedding": embedding}


GOOD = body_of(entry(0, VECTORS[0]), entry(1, VECTORS[1]))


def sends(body: bytes, status: int = 200, **headers: str) -> Respond:
    return lambda handler: handler.reply(body, status, **headers)


def raw(data: bytes) -> Respond:
    return lambda handler: handler.raw(data)


def endless(start: bytes, piece: bytes, pause: float = 0.0) -> Respond:
    """Send `start`, then `piece` until the client hangs up."""

    def respond(handler: _Handler) -> None:
        handler.raw(start)
        # Stops in any case, so that a client without limits ends the test run, not the machine.
        for _ in range(20_000):
            handler.raw(piece)
            if pause:
                time.sleep(pause)

    return respond


@pytest.fixture(scope="module")
def running() -> Iterator[Endpoint]:
    server = Endpoint()
    yield server
    server.stop()


@pytest.fixture(scope="module")
def running_elsewhere() -> Iterator[Endpoint]:
    server = Endpoint()
    yield server
    server.stop()


def _restart(server: Endpoint) -> Endpoint:
    server.seen.clear()
    server.num_sent = 0
    server.respond = answer_well
    return server


@pytest.fixture
def endpoint(running, monkeypatch, tmp_path) -> Endpoint:
    monkeypatch.setenv("OPENAI_BASE_URL", running.url)
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    monkeypatch.setenv("DIVPRISM_CACHE", str(tmp_path / "cache"))
    for name in ("OPENAI_ORG_ID", "OPENAI_PROJECT_ID", "SSL_CERT_FILE", "SSL_CERT_DIR"):
        monkeypatch.delenv(name, raising=False)
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    return _restart(running)


@pytest.fixture
def elsewhere(running_elsewhere) -> Endpoint:
    return _restart(running_elsewhere)


def embed(embedder: OpenAI, cache: Cache | None = None, items: list[str] = TEXTS) -> np.ndarray:
    return embed_items(texts(items), embedder, cache=cache).vectors


# ------------------------------------------------------------------------------- what is asserted


def parts_of_key(text: str, key: str = SECRET, length: int = 5) -> list[str]:
    """Runs of a key in a text: of the key itself and of its usual encodings."""
    forms = {key, key[::-1], key.encode().hex(), quote(key, safe="")}
    for prefix in ("", "Bearer ", "a", "ab", "user:"):
        for encode in (base64.b64encode, base64.urlsafe_b64encode):
            encoded = encode(f"{prefix}{key}".encode()).decode().rstrip("=")
            # The characters of the prefix itself are no secret.
            forms.add(encoded[-(-len(prefix) * 4 // 3) :])
    runs = set()
    for form in forms:
        runs |= {form[start : start + length] for start in range(len(form) - length + 1)}
    return sorted(run for run in runs if run in text)


def assert_one_clean_sentence(error: BaseException, key: str = SECRET) -> None:
    message = str(error)
    assert message.isprintable(), message
    assert len(message) < 700
    seen = error
    while seen is not None:
        assert not parts_of_key(repr(seen) + str(seen), key)
        # Nothing underneath, shown or not: debuggers and loggers print it.
        assert seen.__cause__ is None
        seen = seen.__context__


# --------------------------------------------------------------------------- answers that are used

ACCEPTED: dict[str, Respond] = {
    "plain": sends(GOOD),
    "reversed": sends(body_of(entry(1, VECTORS[1]), entry(0, VECTORS[0]))),
    "without-indices": sends(body_of(*({"embedding": vector} for vector in VECTORS))),
    "base64": sends(
        body_of(
            *(
                entry(index, base64.b64encode(struct.pack("<3f", *vector)).decode())
                for index, vector in enumerate(VECTORS)
            )
        )
    ),
    "integers-and-floats": sends(body_of(entry(0, [1, 2.0, 3]), entry(1, [4, 5, -6.5]))),
    "more-fields": sends(body_of(entry(0, VECTORS[0]), entry(1, VECTORS[1]), usage={"total": 3})),
    "byte-order-mark": sends(b"\xef\xbb\xbf" + GOOD),
    "no-content-type-and-201": sends(GOOD, 201),
    "until-closed": raw(b"HTTP/1.1 200 OK\r\n\r\n" + GOOD),
    "http-1.0": raw(b"HTTP/1.0 200 OK\r\n\r\n" + GOOD),
    "chunked": raw(
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
        b"5;extension=1\r\n" + GOOD[:5] + b"\r\n"
        b"%x\r\n" % len(GOOD[5:]) + GOOD[5:] + b"\r\n0\r\nTrailer: 1\r\n\r\n"
    ),
    "continue-first": raw(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n\r\n" + GOOD),
    "identity": sends(GOOD, Content_Encoding="identity"),
    "two-answers-at-once": raw(
        b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(GOOD)
        + GOOD
        + b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"
    ),
}


@pytest.mark.parametrize("case", ACCEPTED)
def test_an_unusual_answer_within_the_protocol_is_used(case, endpoint):
    endpoint.respond = ACCEPTED[case]
    vectors = OpenAI("m", max_retries=0, timeout=5.0).embed_batch(TEXTS)
    np.testing.assert_array_equal(vectors, np.array(VECTORS, np.float32))
    assert vectors.dtype == np.float32


# ------------------------------------------------------------------------ answers that are refused

NUMBER = "its indices do not number the texts"
NUMBERS = "its vectors are not lists of numbers"
FINITE = "its vectors contain NaN, infinity or numbers beyond float32"
LENGTH = "its vectors differ in length"
EMPTY = "it contains a vector without numbers"
BASE64 = "its vectors are not base64 of float32"
JSON = "it is not valid JSON"
LIST = "it is not a list of vectors"


def _with_indices(first: object, second: object) -> bytes:
    return body_of(entry(first, VECTORS[0]), entry(second, VECTORS[1]))


def _with_vectors(first: object, second: object) -> bytes:
    return body_of(entry(0, first), entry(1, second))


def _with_number(literal: str) -> bytes:
    """An answer with a number that `json.dumps` would not write."""
    return GOOD.replace(b"-6.5", literal.encode())


def _floats(*numbers: float) -> str:
    return base64.b64encode(struct.pack(f"<{len(numbers)}f", *numbers)).decode()


SIGNALLING_NAN = base64.b64encode(b"\x01\x00\x80\x7f" * 3).decode()

BODIES: dict[str, tuple[bytes, str]] = {
    "index-float": (_with_indices(0.0, 1.0), NUMBER),
    "index-one-float": (_with_indices(0, 1.0), NUMBER),
    "index-bool": (_with_indices(False, True), NUMBER),
    "index-one-bool": (_with_indices(0, True), NUMBER),
    "index-null": (_with_indices(None, None), NUMBER),
    "index-one-null": (_with_indices(0, None), NUMBER),
    "index-list": (_with_indices([0], [1]), NUMBER),
    "index-dict": (_with_indices({}, {}), NUMBER),
    "index-string": (_with_indices("0", "1"), NUMBER),
    "index-duplicated": (_with_indices(1, 1), NUMBER),
    "index-negative": (_with_indices(0, -1), NUMBER),
    "index-beyond": (_with_indices(0, 2), NUMBER),
    "index-huge": (_with_indices(0, 2**80), NUMBER),
    "index-of-another-batch": (_with_indices(2, 3), NUMBER),
    "index-missing-once": (body_of(entry(0, VECTORS[0]), {"embedding": VECTORS[1]}), NUMBER),
    "widths-differ": (_with_vectors([1.0], [1.0, 2.0]), LENGTH),
    "empty": (_with_vectors([], []), EMPTY),
    "one-empty": (_with_vectors([1.0], []), EMPTY),
    "nested": (_with_vectors([[1.0]], [[2.0]]), NUMBERS),
    "strings": (_with_vectors(["1"], ["2"]), NUMBERS),
    "bools": (_with_vectors([True], [False]), NUMBERS),
    "one-bool": (_with_vectors([1.0, 2.0], [1.0, True]), NUMBERS),
    "nulls": (_with_vectors([None], [None]), NUMBERS),
    "null": (_with_vectors(None, None), NUMBERS),
    "number": (_with_vectors(1.0, 2.0), NUMBERS),
    "dict": (_with_vectors({"0": 1.0}, {"0": 2.0}), NUMBERS),
    "no-embedding": (body_of({"index": 0}, {"index": 1}), NUMBERS),
    "nan": (_with_number("NaN"), JSON),
    "infinity": (_with_number("-Infinity"), JSON),
    "1e999": (_with_number("1e999"), FINITE),
    "1e39": (_with_number("1e39"), FINITE),
    "huge-int": (_with_number("9" * 5000), JSON),
    "large-int": (_with_number("-1" + "0" * 5000), JSON),
    "10^38-and-more": (_with_number("1" + "0" * 39), JSON),
    "too-many": (body_of(*(entry(index, [1.0]) for index in range(3))), "3 vectors for 2 texts"),
    "too-few": (body_of(entry(0, [1.0])), "1 vectors for 2 texts"),
    "none": (body_of(), "0 vectors for 2 texts"),
    "base64-empty": (_with_vectors("", ""), EMPTY),
    "base64-one-empty": (_with_vectors(_floats(1.0), ""), EMPTY),
    "base64-junk": (_with_vectors("no base64!", "no base64!"), BASE64),
    "base64-letters-ignored": (_with_vectors("AACAPw==\n", "AACAPw==\n"), BASE64),
    "base64-not-ascii": (_with_vectors("\u00e4\u00f6", "\u00e4\u00f6"), BASE64),
    "base64-unpadded": (_with_vectors("AACAPw", "AACAPw"), BASE64),
    "base64-3-bytes": (_with_vectors("AAAA", "AAAA"), BASE64),
    "base64-widths": (_with_vectors(_floats(1.0), _floats(1.0, 2.0)), LENGTH),
    "base64-nan": (_with_vectors(_floats(np.nan), _floats(1.0)), FINITE),
    "base64-infinity": (_with_vectors(_floats(np.inf), _floats(1.0)), FINITE),
    "base64-signalling-nan": (_with_vectors(SIGNALLING_NAN, SIGNALLING_NAN), FINITE),
    "duplicate-keys": (GOOD.replace(b'"index": 1', b'"index": 0, "index": 1'), JSON),
    "duplicate-data": (GOOD[:-1] + b', "data": []}', JSON),
    "deep-lists": (b"[" * 100_000, LIST),
    "deep-dicts": (b'{"data":' * 5_000 + b"1" + b"}" * 5_000, f"{JSON}|{LIST}"),
    "deep-vector": (GOOD.replace(b"-6.5", b"[" * 3000 + b"]" * 3000), f"{JSON}|{NUMBERS}"),
    "a-million-containers": (b'{"data":[' + b"{}," * 300_000 + b"{}]}", LIST),
    "a-million-strings": (b'{"data":[' + b'"ab",' * 200_000 + b'""]}', LIST),
    "invalid-utf-8": (GOOD.replace(b"list", b"\xff\xfe"), JSON),
    "utf-16": (GOOD.decode().encode("utf-16"), JSON),
    "nothing": (b"", JSON),
    "blanks": (b" " * 100, JSON),
    "page": (b"<html><body>Sign in</body></html>", JSON),
    "null-answer": (b"null", LIST),
    "list-answer": (json.dumps(VECTORS).encode(), LIST),
    "string-answer": (b'"data"', LIST),
    "data-null": (b'{"data": null}', LIST),
    "data-dict": (b'{"data": {"0": [1.0]}}', LIST),
    "data-string": (b'{"data": "ab"}', LIST),
    "data-numbers": (b'{"data": [1, 2]}', LIST),
    "data-lists": (json.dumps({"data": VECTORS}).encode(), LIST),
    "trailing-text": (GOOD + b"{}", JSON),
    "cut": (GOOD[:-5], JSON),
    "error-with-200": (b'{"error": {"message": "no"}}', LIST),
    "nul-bytes": (b"\0" * 50, JSON),
}

COMPRESSED = gzip.compress(GOOD)
OK = b"HTTP/1.1 200 OK\r\n"
UNENDING = b'{"data": ['
TIME = r"did not answer in time \(tried 1 times\)"
LONG = "it is longer than `max_bytes`; raise that, or lower `batch_size`"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"
ANSWER, CONNECTION = DataError, MissingModelError

TRANSPORT: dict[str, tuple[Respond, type[DivprismError], str]] = {
    "drip-of-blanks": (endless(OK + b"\r\n", b" ", 0.02), CONNECTION, TIME),
    "drip-of-headers": (endless(OK, b"A", 0.02), CONNECTION, TIME),
    "drip-of-header-lines": (endless(OK, b"A: b\r\n", 0.02), CONNECTION, TIME),
    "drip-before-the-status": (endless(b"", b"H", 0.02), CONNECTION, TIME),
    "drip-of-chunks": (endless(CHUNKED, b"1\r\n \r\n", 0.02), CONNECTION, TIME),
    "drip-of-a-chunk-size": (endless(CHUNKED, b"0", 0.02), CONNECTION, TIME),
    "drip-of-trailers": (endless(CHUNKED + b"0\r\n", b"A: b\r\n", 0.02), CONNECTION, TIME),
    "drip-of-continue": (endless(b"", b"HTTP/1.1 100 Go\r\n\r\n", 0.02), CONNECTION, TIME),
    "drip-of-an-error": (endless(b"HTTP/1.1 400 No\r\n\r\n", b" ", 0.02), CONNECTION, TIME),
    "silence": (lambda _: time.sleep(1.0), CONNECTION, TIME),
    "blanks-without-end": (endless(OK + b"\r\n", b" " * MEBIBYTE), ANSWER, LONG),
    "blanks-of-a-stated-length": (
        endless(OK + b"Content-Length: 6000000000\r\n\r\n", b" " * MEBIBYTE), ANSWER, LONG
    ),
    "numbers-without-end": (endless(OK + b"\r\n" + UNENDING, b"1.5," * 65_536), ANSWER, LONG),
    "chunks-without-end": (
        endless(CHUNKED, b"10000\r\n" + b" " * 65_536 + b"\r\n"), ANSWER, LONG
    ),
    "a-chunk-without-end": (endless(CHUNKED + b"fffffffffff\r\n", b" " * MEBIBYTE), ANSWER, LONG),
    # Versions of Python differ in how they read it; none of them reads more than the limit.
    "a-chunk-of-minus-one": (
        endless(CHUNKED + b"-1\r\n", b" " * MEBIBYTE),
        DivprismError, f"{LONG}|is not HTTP|in the middle",
    ),
    "an-error-without-end": (
        endless(b"HTTP/1.1 400 No\r\n\r\n", b" " * MEBIBYTE), ANSWER, LONG
    ),
    "trailers-without-end": (
        endless(CHUNKED + b"0\r\n", b"A: b\r\n" * 10_000), ANSWER, LONG
    ),
    "continue-without-end": (
        endless(b"", b"HTTP/1.1 100 Go\r\n\r\n" * 5_000), ANSWER, LONG
    ),
    "headers-without-end": (endless(OK, b"A: b\r\n" * 10_000), CONNECTION, "is not HTTP"),
    "a-header-without-end": (endless(OK + b"A: ", b"b" * 65_536), CONNECTION, "is not HTTP"),
    "a-status-without-end": (endless(b"HTTP/1.1 200 ", b"O" * 65_536), CONNECTION, "is not HTTP"),
    "gzip": (sends(COMPRESSED, Content_Encoding="gzip"), ANSWER, "it is compressed"),
    "gzip-bomb": (
        sends(gzip.compress(b" " * (50 * MEBIBYTE)), Content_Encoding="gzip"),
        ANSWER, "it is compressed",
    ),
    "deflate": (sends(GOOD, Content_Encoding="deflate"), ANSWER, "it is compressed"),
    "unknown-encoding": (sends(GOOD, Content_Encoding="x"), ANSWER, "it is compressed"),
    "gzip-transfer": (raw(OK + b"Transfer-Encoding: gzip\r\n\r\n" + COMPRESSED), ANSWER, JSON),
    "length-too-long": (
        raw(OK + b"Content-Length: 9999\r\n\r\n" + GOOD),
        CONNECTION, "closed the connection in the middle of its answer",
    ),
    "length-too-short": (raw(OK + b"Content-Length: 20\r\n\r\n" + GOOD), ANSWER, JSON),
    "length-zero": (raw(OK + b"Content-Length: 0\r\n\r\n" + GOOD), ANSWER, JSON),
    "chunk-cut": (raw(CHUNKED + b"ff\r\n" + GOOD[:9]), CONNECTION, "in the middle of its answer"),
    "chunk-of-letters": (raw(CHUNKED + b"xyz\r\n" + GOOD), CONNECTION, "in the middle of"),
    "closed-at-once": (raw(b""), CONNECTION, r"cannot be reached \(tried 1 times\)"),
    "closed-in-the-headers": (raw(OK + b"Content-Le"), ANSWER, JSON),
    "not-http": (raw(b"SSH-2.0-OpenSSH_9.6\r\n"), CONNECTION, "sent an answer that is not HTTP"),
    "only-the-body": (raw(GOOD), CONNECTION, "sent an answer that is not HTTP"),
    "status-of-letters": (raw(b"HTTP/1.1 abc OK\r\n\r\n"), CONNECTION, "is not HTTP"),
    "status-of-99999": (raw(b"HTTP/1.1 99999 OK\r\n\r\n"), CONNECTION, "is not HTTP"),
    "status-of-101": (raw(b"HTTP/1.1 101 Go\r\n\r\n"), ANSWER, "answered 101 to texts for m"),
    "no-content": (sends(b"", 204), ANSWER, JSON),
}  # fmt: skip


def _assert_refused(endpoint: Endpoint, respond: Respond, error: type, message: str) -> None:
    endpoint.respond = respond
    cache = Cache()
    embedder = OpenAI("m", max_retries=0, timeout=0.4, max_bytes=2 * MEBIBYTE)
    with pytest.raises(error, match=message) as caught:
        embed(embedder, cache)
    assert_one_clean_sentence(caught.value)
    assert endpoint.url in str(caught.value)
    assert not cache.entries()
    assert len(endpoint.seen) == 1
    # What the client read, and what waits in the buffers of the operating system.
    assert endpoint.num_sent < 32 * MEBIBYTE


@pytest.mark.parametrize("case", BODIES)
def test_an_answer_that_breaks_the_protocol_is_refused_and_not_cached(case, endpoint):
    body, message = BODIES[case]
    _assert_refused(endpoint, sends(body), DataError, message)


@pytest.mark.parametrize("case", TRANSPORT)
def test_an_answer_is_limited_in_bytes_and_time(case, endpoint):
    _assert_refused(endpoint, *TRANSPORT[case])


def test_vectors_of_another_width_than_requested_are_refused(endpoint):
    endpoint.respond = sends(GOOD)
    with pytest.raises(DataError, match="its vectors have 3 numbers instead of 2"):
        OpenAI("m", dimensions=2).embed_batch(TEXTS)


def test_the_limit_of_bytes_grows_with_the_texts(endpoint):
    many = [f"text {index}" for index in range(40)]
    blanks = b" " * (5 * MEBIBYTE)
    answer = body_of(*(entry(index, [1.0, float(index)]) for index in range(40)))
    endpoint.respond = sends(blanks + answer)
    assert OpenAI("m").embed_batch(many).shape == (40, 2)
    endpoint.respond = sends(blanks + GOOD)
    with pytest.raises(DataError, match=LONG):
        OpenAI("m").embed_batch(TEXTS)


def test_mutated_answers_are_read_as_finite_vectors_or_refused(endpoint):
    rng = random.Random(14)
    pieces = [b"null", b"true", b"[]", b"{}", b'""', b"1e400", b"-0", b"NaN", b"\xff", b",", b'"']
    outcomes = set()
    for _ in range(300):
        body = bytearray(GOOD)
        for _ in range(rng.randint(1, 3)):
            start = rng.randrange(len(body))
            body[start : start + rng.randint(0, 6)] = rng.choice(pieces)
        endpoint.respond = sends(bytes(body))
        try:
            vectors = OpenAI("m", max_retries=0).embed_batch(TEXTS)
        except DataError as error:
            assert_one_clean_sentence(error)
            outcomes.add("refused")
        else:
            assert vectors.shape[0] == 2
            assert np.isfinite(vectors).all()
            outcomes.add("read")
    assert outcomes == {"read", "refused"}


def test_mutated_http_ends_in_vectors_or_one_sentence(endpoint):
    rng = random.Random(15)
    whole = OK + b"Transfer-Encoding: chunked\r\nContent-Length: 9\r\nA: b\r\n\r\n"
    whole += b"%x\r\n" % len(GOOD) + GOOD + b"\r\n0\r\n\r\n"
    head = whole.index(b"{")
    pieces = [
        b"",
        b"\r\n",
        b"\n",
        b":",
        b"-",
        b"\0",
        b"\xff",
        b"9" * 20,
        b" ",
        b"HTTP/1.1 100 x\r\n",
    ]
    for _ in range(300):
        data = bytearray(whole)
        for _ in range(rng.randint(1, 3)):
            start = rng.randrange(head)
            data[start : start + rng.randint(0, 6)] = rng.choice(pieces)
        endpoint.respond = raw(bytes(data))
        try:
            vectors = OpenAI("m", max_retries=0, timeout=2.0).embed_batch(TEXTS)
        except DivprismError as error:
            assert_one_clean_sentence(error)
        else:
            np.testing.assert_array_equal(vectors, np.array(VECTORS, np.float32))


# ----------------------------------------------------------------------------------- what is kept


def _third_fails(respond: Respond) -> Respond:
    """Answer two requests well, and all others by `respond`."""
    counter = itertools.count(1)

    def respond_in_turn(handler: _Handler) -> None:
        if next(counter) <= 2:
            answer_well(handler)
        else:
            respond(handler)

    return respond_in_turn


@pytest.mark.parametrize(
    "respond",
    [
        sends(_with_vectors("", "")),
        sends(_with_indices(False, True)),
        sends(b"no", 500),
        sends(b"", 302, Location="http://127.0.0.1:9/"),
        sends(GOOD.replace(b", -6.5", b"").replace(b", 3.0", b"")),
        endless(OK + b"\r\n", b" ", 0.02),
        raw(b""),
    ],
    ids=["base64", "indices", "status", "redirect", "another-width", "drip", "closed"],
)
def test_what_was_embedded_before_a_failure_is_kept_and_the_rest_is_not(respond, endpoint):
    items = [f"text {index}" for index in range(6)]
    cache = Cache()
    embedder = OpenAI("m", batch_size=2, max_retries=0, timeout=0.4)
    endpoint.respond = _third_fails(respond)
    with pytest.raises(DivprismError):
        embed(embedder, cache, items)
    (kept,) = cache.entries()
    assert kept.items == 4
    endpoint.seen.clear()
    endpoint.respond = answer_well
    vectors = embed(embedder, cache, items)
    np.testing.assert_array_equal(vectors, np.array([vector_of(text) for text in items]))
    # Only the two texts that failed are requested again.
    assert [json.loads(request["content"])["input"] for request in endpoint.seen] == [items[4:]]


def test_vectors_of_another_width_than_the_cached_ones_are_not_cached(endpoint):
    cache = Cache()
    embedder = OpenAI("m", max_retries=0)
    embed(embedder, cache)
    endpoint.respond = sends(_with_vectors([1.0], [2.0]))
    with pytest.raises(DataError, match=r"different widths \(1 and 3\), some of them cached"):
        embed(embedder, cache, ["new", "other", *TEXTS])
    (kept,) = cache.entries()
    assert kept.items == 2


def test_answers_to_two_batches_that_are_swapped_do_not_number_their_texts(endpoint):
    # A server that numbers the texts of a run, not of a request, and mixes requests up.
    bodies = iter([_with_indices(2, 3), _with_indices(0, 1)])
    endpoint.respond = lambda handler: handler.reply(next(bodies))
    cache = Cache()
    with pytest.raises(DataError, match=NUMBER):
        embed(OpenAI("m", batch_size=2), cache, ["a", "b", "c", "d"])
    assert not cache.entries()


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
        (sends(_with_indices(False, True)), 4),
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


# ------------------------------------------------------------------------------------- addresses

START = "OPENAI_BASE_URL must be an address such as https://host.example/v1"
PASSWORD = "hunter2-Xy9"
ADDRESSES: dict[str, tuple[str, str]] = {
    "no-scheme": ("127.0.0.1:8000/v1", "does not start with http://"),
    "only-a-path": ("/v1", "does not start with http://"),
    "ftp": ("ftp://127.0.0.1/v1", "does not start with http://"),
    "file": ("file:///etc/passwd", "does not start with http://"),
    "javascript": ("javascript:alert(1)", "does not start with http://"),
    "only-a-scheme": ("http://", "does not start with http://"),
    "one-slash": ("http:/127.0.0.1/v1", "does not start with http://"),
    "no-host": ("http:///v1", "its host or path is not valid"),
    "no-host-but-port": ("http://:80/v1", "its host or path is not valid"),
    "password": (f"http://user:{PASSWORD}@127.0.0.1/v1", "contains a user or a password"),
    "user": (f"http://{PASSWORD}@127.0.0.1/v1", "contains a user or a password"),
    "password-and-ftp": (f"ftp://user:{PASSWORD}@127.0.0.1/v1", "does not start with http://"),
    "password-with-blank": (f"http://user:{PASSWORD} @127.0.0.1/v1", "it contains blanks"),
    "password-without-scheme": (f"user:{PASSWORD}@127.0.0.1/v1", "does not start with http://"),
    "password-and-port": (f"http://user:{PASSWORD}@127.0.0.1:99999/v1", "a user or a password"),
    "password-and-bracket": (f"http://user:{PASSWORD}@[::1/v1", "a user or a password"),
    "query": (f"http://127.0.0.1/v1?key={PASSWORD}", "contains a query or a fragment"),
    "fragment": (f"http://127.0.0.1/v1#{PASSWORD}", "contains a query or a fragment"),
    "blanks": ("http://127.0.0.1 /v1", "it contains blanks"),
    "blank-before": (" http://127.0.0.1/v1", "it contains blanks"),
    "line-break": ("http://127.0.0.1/v1\r\nX: 1", "it contains blanks"),
    "tab": ("http://127.0.0.1/\tv1", "it contains blanks"),
    "escape-code": ("http://127.0.0.1/\x1b[31mv1", "it contains blanks"),
    "300-kB": ("http://127.0.0.1/" + "v" * 300_000, "longer than 2,000 characters"),
    "long-host": ("http://" + "a" * 300 + "/v1", "its host or path is not valid"),
    "long-label": ("http://" + "a" * 64 + ".example/v1", "its host or path is not valid"),
    "empty-label": ("http://a..example/v1", "its host or path is not valid"),
    "idn": ("http://b\u00fccher.example/v1", "in its form xn--"),
    "fullwidth": ("http://\uff11\uff12\uff17.0.0.1/v1", "in its form xn--"),
    "bidi": ("http://127.0.0.1/\u202ev1", "in its form xn--"),
    "surrogate": ("http://127.0.0.1/\udcffv1", "in its form xn--"),
    "backslash": ("http:\\\\127.0.0.1\\v1", "does not start with http://"),
    "backslash-in-host": ("http://127.0.0.1\\@host.example/v1", "a user or a password"),
    "open-bracket": ("http://[::1/v1", "its host or path is not valid"),
    "bad-ipv6": ("http://[1:2]/v1", "its host or path is not valid"),
    "zone": ("http://[fe80::1%25eth0]/v1", "its host or path is not valid"),
    "percent-host": ("http://%31%32%37.0.0.1/v1", "its host or path is not valid"),
    "two-ports": ("http://127.0.0.1:80:80/v1", "its host or path is not valid"),
    "port-of-letters": ("http://127.0.0.1:abc/v1", "its host or path is not valid"),
    "port-negative": ("http://127.0.0.1:-1/v1", "its host or path is not valid"),
    "port-of-other-digits": ("http://127.0.0.1:\u0663\u0663/v1", "in its form xn--"),
    "port-of-six-digits": ("http://127.0.0.1:123456/v1", "its host or path is not valid"),
}


@pytest.mark.parametrize("case", ADDRESSES)
def test_an_unusable_address_gets_a_sentence(case, endpoint, monkeypatch):
    address, reason = ADDRESSES[case]
    monkeypatch.setenv("OPENAI_BASE_URL", address)
    for use in (lambda: OpenAI("m").embed_batch(TEXTS), lambda: OpenAI("m").describe()):
        with pytest.raises(ArgumentError, match=rf"{START}; .*{reason}") as caught:
            use()
        assert_one_clean_sentence(caught.value)
        assert PASSWORD not in repr(caught.value)


@pytest.mark.parametrize("port", ["0", "65536", "99999"])
def test_a_port_that_does_not_exist_gets_a_sentence(port, endpoint, monkeypatch):
    monkeypatch.setenv("OPENAI_BASE_URL", f"http://127.0.0.1:{port}/v1")
    with pytest.raises(ArgumentError, match="OPENAI_BASE_URL has no valid port"):
        OpenAI("m").embed_batch(TEXTS)


def test_an_address_or_a_model_that_contains_the_key_is_refused(endpoint, monkeypatch):
    key = "sk-" + "a1B2" * 8
    monkeypatch.setenv("OPENAI_API_KEY", key)
    with pytest.raises(ArgumentError, match="`model` must be the name of a model; got the key"):
        OpenAI(key).embed_batch(TEXTS)
    monkeypatch.setenv("OPENAI_BASE_URL", f"{endpoint.url}/{key}")
    with pytest.raises(ArgumentError, match="must be an address without the key") as caught:
        OpenAI("m").describe()
    assert_one_clean_sentence(caught.value, key)
    assert not endpoint.seen


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("https://api.example/v1/", "https://api.example/v1"),
        ("HTTPS://API.example/V1", "https://api.example/V1"),
        ("http://localhost:11434/v1", "http://localhost:11434/v1"),
        ("http://[::1]:80", "http://[::1]:80"),
        ("https://xn--bcher-kva.example./v1", "https://xn--bcher-kva.example./v1"),
        ("https://a_b.example/openai/deployments/x%20y/", None),
        ("", "https://api.openai.com/v1"),
    ],
)
def test_usable_addresses_are_described(address, shown, endpoint, monkeypatch):
    monkeypatch.setenv("OPENAI_BASE_URL", address)
    expected = shown or address.rstrip("/")
    assert f"endpoint {expected}, model m," in OpenAI("m").describe()["revision"]


def test_a_host_that_does_not_exist_gets_a_sentence(endpoint, monkeypatch):
    monkeypatch.setenv("OPENAI_BASE_URL", "http://no-such-host.invalid/v1")
    with pytest.raises(MissingModelError, match=r"cannot be reached|did not answer") as caught:
        OpenAI("m", max_retries=0, timeout=2.0).embed_batch(TEXTS)
    assert_one_clean_sentence(caught.value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *itertools.product(
            ("timeout", "max_seconds"), (0, -1.0, np.nan, np.inf, 1e30, "5", None, True)
        ),
        *itertools.product(("requests_per_minute",), (0, -1.0, np.nan, np.inf, 1e-300, "5", True)),
        *itertools.product(("max_bytes",), (0, -1)),
        *itertools.product(("model",), ("", "two\nlines", "\x1b[31m", "m" * 501, None, 3)),
    ],
)
def test_arguments_are_validated(name, value):
    with pytest.raises(ArgumentError, match=f"`{name}` must be") as caught:
        OpenAI(**{"model": "m", name: value})
    assert_one_clean_sentence(caught.value)


# ------------------------------------------------------------------------------- proxies and TLS


def test_an_address_of_http_is_requested_without_a_proxy(endpoint, elsewhere, monkeypatch):
    for name in ("HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{elsewhere.server_port}")
    OpenAI("m").embed_batch(TEXTS)
    assert len(endpoint.seen) == 1
    assert not elsewhere.seen


@pytest.mark.parametrize("variable", ["HTTPS_PROXY", "https_proxy", "ALL_PROXY"])
@pytest.mark.parametrize("status", [200, 302, 403, 407])
def test_a_proxy_sees_neither_key_nor_texts(variable, status, endpoint, elsewhere, monkeypatch):
    proxy = f"http://user:{PASSWORD}@127.0.0.1:{elsewhere.server_port}"
    monkeypatch.setenv(variable, proxy)
    monkeypatch.setenv("OPENAI_BASE_URL", "https://host.example/v1")
    elsewhere.respond = sends(PASSWORD.encode(), status)
    with pytest.raises(MissingModelError, match=r"https://host\.example/v1 cannot be") as caught:
        OpenAI("m", max_retries=0, timeout=2.0).embed_batch(TEXTS)
    assert_one_clean_sentence(caught.value)
    assert PASSWORD not in str(caught.value)
    (request,) = elsewhere.seen
    assert (request["method"], request["path"]) == ("CONNECT", "host.example:443")
    expected = base64.b64encode(f"user:{PASSWORD}".encode()).decode()
    assert request["headers"]["Proxy-Authorization"] == f"Basic {expected}"
    assert not parts_of_key(repr(request))
    assert "cat" not in repr(request)


@pytest.mark.parametrize(
    "proxy",
    [
        f"socks5://user:{PASSWORD}@127.0.0.1:1080",
        f"https://user:{PASSWORD}@127.0.0.1",
        "http://127.0.0.1:99999",
        "http://a b",
        "http://b\u00fccher.example",
        "http://",
        "http://h/\r\nX: 1",
    ],
)
def test_an_unusable_proxy_gets_a_sentence(proxy, endpoint, monkeypatch):
    monkeypatch.setenv("HTTPS_PROXY", proxy)
    monkeypatch.setenv("OPENAI_BASE_URL", "https://127.0.0.1:9/v1")
    with pytest.raises(ArgumentError, match="HTTPS_PROXY") as caught:
        OpenAI("m", max_retries=0).embed_batch(TEXTS)
    assert_one_clean_sentence(caught.value)
    assert PASSWORD not in str(caught.value)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with pytest.raises(MissingModelError, match="cannot be reached"):
        OpenAI("m", max_retries=0).embed_batch(TEXTS)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory) -> Iterator[tuple[str, str]]:
    """A certificate for localhost that nobody has signed, and its key."""
    program = shutil.which("openssl")
    if program is None:
        pytest.skip("openssl is not installed")
    folder = tmp_path_factory.mktemp("tls")
    files = str(folder / "certificate.pem"), str(folder / "key.pem")
    command = f"{program} req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2"
    extensions = ("-addext", "subjectAltName=DNS:localhost", "-addext", "keyUsage=digitalSignature")
    names = ("-out", files[0], "-keyout", files[1])
    subprocess.run(
        [*command.split(), "-subj", "/CN=localhost", *extensions, *names],
        check=True,
        capture_output=True,
    )
    return files


@pytest.fixture
def secure(endpoint, certificate) -> Iterator[Endpoint]:
    server = Endpoint()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    yield server
    server.stop()


def test_certificates_are_verified(secure, certificate, monkeypatch):
    monkeypatch.setenv("OPENAI_BASE_URL", f"https://localhost:{secure.server_port}/v1")
    embedder = OpenAI("m", max_retries=3, timeout=5.0)
    with pytest.raises(
        MissingModelError, match=r"a certificate that cannot be verified.*\(tried 1 times\)"
    ) as caught:
        embedder.embed_batch(TEXTS)
    assert_one_clean_sentence(caught.value)
    assert not secure.seen
    monkeypatch.setenv("SSL_CERT_FILE", certificate[0])
    np.testing.assert_array_equal(
        embedder.embed_batch(TEXTS), np.array([vector_of(text) for text in TEXTS])
    )
    # The certificate is valid for the name only.
    monkeypatch.setenv("OPENAI_BASE_URL", f"https://127.0.0.1:{secure.server_port}/v1")
    with pytest.raises(MissingModelError, match="a certificate that cannot be verified"):
        embedder.embed_batch(TEXTS)
    assert len(secure.seen) == 1


def test_a_server_without_tls_gets_no_key(endpoint, monkeypatch):
    monkeypatch.setenv("OPENAI_BASE_URL", endpoint.url.replace("http:", "https:"))
    with pytest.raises(MissingModelError, match=r"cannot be reached|did not answer"):
        OpenAI("m", max_retries=0, timeout=1.0).embed_batch(TEXTS)
    assert not endpoint.seen


def test_a_handshake_that_never_ends_is_limited_in_time(endpoint, monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setenv("OPENAI_BASE_URL", f"https://127.0.0.1:{silent.getsockname()[1]}/v1")
        with pytest.raises(MissingModelError, match="did not answer in time"):
            OpenAI("m", max_retries=0, timeout=0.3).embed_batch(TEXTS)


def test_a_server_that_reads_nothing_is_limited_in_time(endpoint, monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setenv("OPENAI_BASE_URL", f"http://127.0.0.1:{silent.getsockname()[1]}/v1")
        with pytest.raises(MissingModelError, match="did not answer in time"):
            OpenAI("m", max_retries=0, timeout=0.3).embed_batch(["long " * 4 * MEBIBYTE])


def test_an_answer_before_the_end_of_the_request_is_read(endpoint, monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as server:

        def refuse() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(1000)
                connection.sendall(b"HTTP/1.1 413 Large\r\n\r\n" + b'{"error": "too large"}')
                connection.shutdown(socket.SHUT_WR)
                # A socket that is closed before its input is read resets the connection.
                with suppress(OSError):
                    while connection.recv(MEBIBYTE):
                        pass

        thread = threading.Thread(target=refuse, daemon=True)
        thread.start()
        monkeypatch.setenv("OPENAI_BASE_URL", f"http://127.0.0.1:{server.getsockname()[1]}/v1")
        with pytest.raises(DataError, match="answered 413 to texts for m: too large"):
            OpenAI("m", max_retries=0, timeout=5.0).embed_batch(["long " * MEBIBYTE])
        thread.join(10)


# ---------------------------------------------------------------------------------------- retries


def _date(seconds: float) -> str:
    return format_datetime(datetime.now(timezone.utc) + timedelta(seconds=seconds))


RETRY_AFTER = {
    "absent": None,
    "10^9": "1000000000",
    "10^400": "1" + "0" * 400,
    "negative": "-5",
    "float": "0.25",
    "zero": "0",
    "infinity": "inf",
    "nan": "nan",
    "words": "soon",
    "empty": "",
    "two": "1, 2",
    "other-digits": "\u00b2",
    "past": _date(-1000),
    "far": _date(10**7),
    "near": _date(20),
    "year-0": "Mon, 01 Jan 0000 00:00:00 GMT",
    "year-10000": "Mon, 01 Jan 10000 00:00:00 GMT",
    "month-99": "Mon, 99 Foo 2026 99:99:99 GMT",
    "no-zone": "Wed, 21 Oct 2015 07:28:00",
    "zone-99": "Wed, 21 Oct 2015 07:28:00 +9999",
    "long": "9" * 60_000,
}


@pytest.mark.parametrize("status", [408, 409, 429, 500, 503])
@pytest.mark.parametrize("header", ["Retry-After", "Retry-After-Ms"])
def test_waits_are_bounded_whatever_the_server_asks_for(status, header, endpoint, monkeypatch):
    clock = [1000.0]
    waits: list[float] = []

    def sleep(seconds: float) -> None:
        waits.append(seconds)
        clock[0] += seconds

    monkeypatch.setattr("divprism.embedders.http.time.sleep", sleep)
    for case, value in RETRY_AFTER.items():
        headers = {} if value is None else {header: value}
        lines = "".join(f"{name}: {text}\r\n" for name, text in headers.items())
        answer = f"HTTP/1.1 {status} no\r\n{lines}\r\n".encode("latin-1")
        endpoint.respond = raw(answer)
        endpoint.seen.clear()
        waits.clear()
        with pytest.raises(
            MissingModelError, match=rf"answered {status}, 4 times in a row"
        ) as caught:
            OpenAI("m", max_retries=3).embed_batch(TEXTS)
        assert_one_clean_sentence(caught.value)
        assert len(endpoint.seen) == 4, case
        assert all(0 <= wait <= 60 for wait in waits), case
        assert len(waits) == 3


def test_all_attempts_end_within_max_seconds(endpoint):
    # Without the limit, a thousand attempts would wait for hours.
    endpoint.respond = sends(b"", 503)
    with pytest.raises(MissingModelError, match=r"answered 503, [12] times in a row"):
        OpenAI("m", max_retries=1000, max_seconds=0.7).embed_batch(TEXTS)
    endpoint.respond = endless(OK + b"\r\n", b" ", 0.02)
    with pytest.raises(MissingModelError, match=r"did not answer in time \(tried [12] times\)"):
        OpenAI("m", max_retries=1000, max_seconds=0.7).embed_batch(TEXTS)


def test_a_connection_that_was_closed_is_tried_again(endpoint):
    answers = iter([raw(b""), raw(OK + b"Content-Length: 999\r\n\r\n{"), answer_well])
    endpoint.respond = lambda handler: next(answers)(handler)
    assert OpenAI("m", max_retries=2).embed_batch(TEXTS).shape == (2, 3)
    assert len(endpoint.seen) == 3


@pytest.mark.parametrize("status", [400, 401, 404, 418])
def test_other_statuses_are_not_tried_again(status, endpoint):
    endpoint.respond = sends(b"", status, Retry_After="0")
    with pytest.raises(DivprismError, match=f"answered {status}"):
        OpenAI("m", max_retries=5).embed_batch(TEXTS)
    assert len(endpoint.seen) == 1


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGINT for one process")
def test_an_interrupt_ends_a_wait_and_keeps_what_was_embedded(endpoint, tmp_path):
    source = tmp_path / "answers.jsonl"
    source.write_text("\n".join(json.dumps({"output": f"text {index}"}) for index in range(6)))
    endpoint.respond = _third_fails(sends(b"", 429, Retry_After="50"))
    command = [sys.executable, "-m", "divprism", "score", str(source)]
    process = subprocess.Popen(
        [*command, "--embedder-x", "openai:m", "--batch-size", "2"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    deadline = time.monotonic() + 60
    while len(endpoint.seen) < 3 and time.monotonic() < deadline:
        time.sleep(0.02)
    time.sleep(0.2)  # from the answer to the wait
    process.send_signal(signal.SIGINT)
    # Shorter than the wait that the server asked for.
    output = b"".join(process.communicate(timeout=30)).decode()
    assert process.returncode not in (0, None)
    assert "Traceback" not in output
    assert not parts_of_key(output)
    (kept,) = Cache().entries()
    assert kept.items == 4


def test_the_embedder_is_public():
    assert dp.OpenAI is OpenAI
