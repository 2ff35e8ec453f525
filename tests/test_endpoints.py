"""Answers of endpoints that are broken or hostile: a real server on this machine gives them.

A case is a row: how the server answers, and the sentence that the user gets. Vectors of a refused
answer must not reach the cache, and no part of the key may reach a message.
"""

import base64
import gzip
import json
import random
import struct
import time

import numpy as np
import pytest
from endpoint_server import (
    CHUNKED,
    GOOD,
    MEBIBYTE,
    OK,
    TEXTS,
    VECTORS,
    Endpoint,
    Respond,
    answer_well,
    assert_one_clean_sentence,
    body_of,
    embed,
    endless,
    entry,
    raw,
    sends,
    third_fails,
    vector_of,
    with_indices,
)

from divprism.embedders.cache import Cache
from divprism.embedders.http import OpenAI
from divprism.errors import DataError, DivprismError, MissingModelError

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


def _with_vectors(first: object, second: object) -> bytes:
    return body_of(entry(0, first), entry(1, second))


def _with_number(literal: str) -> bytes:
    """An answer with a number that `json.dumps` would not write."""
    return GOOD.replace(b"-6.5", literal.encode())


def _floats(*numbers: float) -> str:
    return base64.b64encode(struct.pack(f"<{len(numbers)}f", *numbers)).decode()


SIGNALLING_NAN = base64.b64encode(b"\x01\x00\x80\x7f" * 3).decode()

BODIES: dict[str, tuple[bytes, str]] = {
    "index-float": (with_indices(0.0, 1.0), NUMBER),
    "index-one-float": (with_indices(0, 1.0), NUMBER),
    "index-bool": (with_indices(False, True), NUMBER),
    "index-one-bool": (with_indices(0, True), NUMBER),
    "index-null": (with_indices(None, None), NUMBER),
    "index-one-null": (with_indices(0, None), NUMBER),
    "index-list": (with_indices([0], [1]), NUMBER),
    "index-dict": (with_indices({}, {}), NUMBER),
    "index-string": (with_indices("0", "1"), NUMBER),
    "index-duplicated": (with_indices(1, 1), NUMBER),
    "index-negative": (with_indices(0, -1), NUMBER),
    "index-beyond": (with_indices(0, 2), NUMBER),
    "index-huge": (with_indices(0, 2**80), NUMBER),
    "index-of-another-batch": (with_indices(2, 3), NUMBER),
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
UNENDING = b'{"data": ['
TIME = r"did not answer in time \(tried 1 times\)"
LONG = "it is longer than `max_bytes`; raise that, or lower `batch_size`"
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


def _assert_refused(
    endpoint: Endpoint, respond: Respond, error: type, message: str, timeout: float = 0.4
) -> None:
    endpoint.respond = respond
    cache = Cache()
    embedder = OpenAI("m", max_retries=0, timeout=timeout, max_bytes=2 * MEBIBYTE)
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
    # The answer is complete, so that there is nothing to wait for; a busy machine may be slow.
    _assert_refused(endpoint, sends(body), DataError, message, timeout=20.0)


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


@pytest.mark.parametrize(
    "respond",
    [
        sends(_with_vectors("", "")),
        sends(with_indices(False, True)),
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
    endpoint.respond = third_fails(respond)
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
    bodies = iter([with_indices(2, 3), with_indices(0, 1)])
    endpoint.respond = lambda handler: handler.reply(next(bodies))
    cache = Cache()
    with pytest.raises(DataError, match=NUMBER):
        embed(OpenAI("m", batch_size=2), cache, ["a", "b", "c", "d"])
    assert not cache.entries()
