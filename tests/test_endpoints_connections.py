"""Addresses, proxies, certificates and retries of endpoints."""

import base64
import itertools
import json
import os
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import numpy as np
import pytest
from endpoint_server import (
    MEBIBYTE,
    OK,
    TEXTS,
    Endpoint,
    answer_well,
    assert_one_clean_sentence,
    endless,
    parts_of_key,
    raw,
    sends,
    third_fails,
    vector_of,
)

import divprism as dp
from divprism.embedders.cache import Cache
from divprism.embedders.http import OpenAI
from divprism.errors import ArgumentError, DataError, DivprismError, MissingModelError

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
    return format_datetime(datetime.now(UTC) + timedelta(seconds=seconds))


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

    monkeypatch.setattr("divprism.embedders._requests.time.sleep", sleep)
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
    endpoint.respond = third_fails(sends(b"", 429, Retry_After="50"))
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
