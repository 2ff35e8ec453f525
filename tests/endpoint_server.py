"""A server on this machine that answers as a test wants, and what every refusal must look like."""

import base64
import itertools
import json
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import quote

import numpy as np
import pytest

from divprism.data.items import texts
from divprism.embedders.cache import Cache
from divprism.embedders.http import OpenAI
from divprism.embedders.pipeline import embed_items

# Letters of both cases, digits, and characters that URLs, HTML and base64 write in other ways.
SECRET = "sk-Zq7Xv&9TbLw3Rk_Gd5H+y2/Nc8Wj<Pm4"
TEXTS = ["a cat", "the dog"]
VECTORS = [[1.0, 2.0, 3.0], [4.0, 5.0, -6.5]]
MEBIBYTE = 1 << 20
OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"

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
        self.server.seen[-1] |= {"content": content, "thread": threading.get_ident()}
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


def with_indices(first: object, second: object) -> bytes:
    return body_of(entry(first, VECTORS[0]), entry(second, VECTORS[1]))


def third_fails(respond: Respond) -> Respond:
    """Answer two requests well, and all others by `respond`."""
    counter = itertools.count(1)

    def respond_in_turn(handler: _Handler) -> None:
        if next(counter) <= 2:
            answer_well(handler)
        else:
            respond(handler)

    return respond_in_turn


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
