"""Kinds of documents for the fuzzer: results, configs, and answers of endpoints."""

import json
import os
import threading
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
from fuzz_changes import (
    HOSTILE,
    changed_bytes,
    changed_json,
    changed_text_of_json,
    one_of,
    pick,
)
from fuzz_checks import Kind, check_text, is_one_in, run_command
from report_cases import KERNELS

import divprism as dp
from divprism.embedders._answer import UnusableAnswerError, read_message, read_vectors
from divprism.embedders._key import Key
from divprism.report.config_files import ALLOWED, check_value, read_config
from divprism.report.details import detailed
from divprism.report.page import report_page
from divprism.report.result_files import read_result
from divprism.report.table import RENDERINGS
from divprism.report.tables import evaluation_table, results_table

TEXTS = ["a", "b"]  # that the answer of an endpoint is for


def _pairs():
    t = np.repeat(np.arange(4), 10)
    return np.eye(40)[np.random.default_rng(0).permutation(40) // 2], t


@cache
def _evaluation():
    return dp.evaluate(*_pairs(), **KERNELS, interval=0.95).to_dict()


def _models():
    x, t = _pairs()
    return {"a": dp.Samples(x, t), "b": dp.Samples(np.roll(x, 7, axis=0), t)}


def _comparison():
    return dp.compare(_models(), **KERNELS).to_dict()


def _detailed():
    return detailed(dp.evaluate(*_pairs(), **KERNELS), num_repeats=2)


def _groups():
    return dp.prompt_groups(*_pairs(), **KERNELS).to_dict()


def _curves():
    return dp.converge(*_pairs(), **KERNELS, num_repeats=2).to_dict()


def _sweep():
    rng = np.random.default_rng(0)
    return dp.bandwidth_sweep(rng.normal(size=(40, 2)), rng.normal(size=(40, 2))).to_dict()


def _selection():
    return detailed(dp.select(*_pairs(), k=5, **KERNELS))


def _mixture():
    return detailed(dp.mixture(_models(), per_group="prompt", **KERNELS))


def _overlap():
    return detailed(dp.overlap(_models(), **KERNELS))


def _differences():
    groups = dp.ExactPromptGrouping()
    models, reference = _models(), np.eye(40)[:20]
    found = dp.diff(models, reference=reference, num_modes=3, num_permutations=9, **KERNELS)
    grouped = dp.diff(models, grouping=groups, num_permutations=9, **KERNELS).to_dict()
    document = detailed(found)
    document["differences"]["groups"] = grouped["differences"]["groups"]
    return document


def _novelty():
    x, _ = _pairs()
    found = dp.novelty(x, np.eye(40)[:20], num_modes=3, num_permutations=9, kernel_x=dp.Cosine())
    return detailed(found)


def _config():
    return {
        "order": 1.0,
        "truncation": 20,
        "bandwidth_x": 0.5,
        "interval": 0.9,
        "rng": 3,
        "estimator": "exact",
        "kernel_x": "gaussian",
        "bandwidth_rule": "median",
        "output": "x.json",
        "embedder_x": "wordllama",
        "fail_under": ["vendi=2"],
    }


def _check_report(content, folder):
    """Write the page and the tables of a result; one of ten by the command."""
    path = folder / "result.json"
    path.write_bytes(content)
    document = read_result(path)
    _render(document)
    if is_one_in(10, content):
        _report_command(folder, path)


def _check_detail(content, folder):
    """Write the page of a result with this document beside it."""
    path = folder / "detail.json"
    path.write_bytes(content)
    _render(_evaluation(), read_result(path))
    if is_one_in(10, content):
        result = folder / "result.json"
        result.write_text(json.dumps(_evaluation()))
        _report_command(folder, result, path)


def _report_command(folder, *results):
    page = folder / "page.html"
    code, _ = run_command("report", *results, "-o", page)
    # A page is written whole or not at all.
    assert page.exists() == (code == 0)


def _render(document, *details):
    page = report_page(document, *details)
    assert HOSTILE not in page
    check_text(page)
    if "scores" in document:
        _render_table(evaluation_table(document, wide=True))
    elif isinstance(document.get("models"), dict):
        _render_table(results_table(document["models"], wide=True))


def _render_table(table):
    for width in (40, 120):
        check_text(table.to_text(width))
    for name, render in RENDERINGS.items():
        text = render(table)
        if name == "csv":
            # A cell of CSV may hold line breaks of both kinds.
            text = text.replace("\r", "")
        check_text(text)


def _check_config(content, folder):
    """Read a config; one in 25 with the command, which must write nothing."""
    path = folder / "config.json"
    path.write_bytes(content)
    if is_one_in(25, content):
        data = folder / "x.csv"
        data.write_text("1,2\n3,4\n5,6.5\n7,9\n")
        run_command("score", data, "--config", path)
        assert sorted(file.name for file in folder.iterdir()) == ["config.json", "x.csv"]
    config = read_config(path)
    for key, value in config.values.items():
        # A result has null where nothing was set.
        if key in ALLOWED and not (config.is_result and value is None):
            check_value(key, value, path)


def _answer():
    vectors = np.random.default_rng(0).normal(size=(len(TEXTS), 4)).tolist()
    entries = [{"index": i, "embedding": vector} for i, vector in enumerate(vectors)]
    return {"data": entries, "model": "m", "error": {"message": "no"}}


def _check_answer(content, _):
    assert isinstance(read_message(content), str)
    try:
        vectors = read_vectors(content, len(TEXTS))
    except UnusableAnswerError as error:
        raise dp.DataError(f"the answer is unusable: {error}") from None
    _check_vectors(vectors)


def _rating():
    """An answer of a judge and of a reward model in one."""
    message = {"role": "assistant", "content": "7"}
    rewards = [{"index": 0, "label": "LABEL_0", "probs": [0.5], "num_classes": 1}]
    return {"choices": [{"index": 0, "message": message}], "data": rewards}


def _check_rating(content, _):
    try:
        judged = dp.Judge("m").read(content, Key("sk-of-the-fuzzer"))
        rewarded = dp.RewardModel("m").read(content, Key("sk-of-the-fuzzer"))
    except UnusableAnswerError as error:
        raise dp.DataError(f"the answer is unusable: {error}") from None
    assert 0 <= judged <= 10
    assert 0 <= rewarded <= 1e9


def _check_vectors(vectors):
    assert vectors.shape[0] == len(TEXTS)
    assert np.isfinite(vectors).all()


class _Handler(BaseHTTPRequestHandler):
    answer = b""

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.wfile.write(self.answer)
        self.close_connection = True

    def log_message(self, *_):
        """Print nothing."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_):
        """A client that hangs up on a broken answer is right."""


@cache
def _server():
    server = _Server(("127.0.0.1", 0), _Handler)
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    return f"http://127.0.0.1:{server.server_port}/v1"


def _http():
    body = json.dumps(_answer()).encode()
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nX: y\r\n"
    return head + b"Content-Length: %d\r\n\r\n" % len(body) + body


def _changed_http(content, rng):
    """Return an answer with another head, another body in its right length, or other bytes."""
    head, _, body = content.partition(b"\r\n\r\n")
    lines = head.split(b"\r\n")
    if rng.random() < 0.3:
        lines[0] = b"HTTP/1.1 " + pick(_STATUSES, rng)
    match rng.integers(0, 3):
        case 0:
            index = int(rng.integers(len(lines)))
            lines[index : index + int(rng.integers(0, 2))] = [pick(_LINES, rng)]
        case 1:
            body = pick((changed_json, changed_text_of_json, changed_bytes), rng)(body, rng)
            lines[-1] = b"Content-Length: %d" % len(body)
        case _:
            return changed_bytes(content, rng)
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


_STATUSES = [
    *(b"200 OK", b"200", b"999 x", b"-1 x", b"301 x", b"304 x", b"400 \x1b[31m\xe2\x80\xae"),
    *(b"401 no", b"429 x", b"500 x", b"100 x", b"101 x", b"204 x", b"", b"2" * 3000),
]
_LINES = [
    *(b"Content-Length: 0", b"Content-Length: -5", b"Content-Length: 1e9", b"Content-Length: 5"),
    *(b"Content-Length: " + b"9" * 40, b"Transfer-Encoding: chunked", b"Content-Encoding: gzip"),
    *(b"Location: http://127.0.0.1:1/", b"Retry-After: 99999", b"no colon", b": x", b"\0: \0"),
    *(b"A: " + b"x" * 70000, b"X: \x1b[2J", b" folded", b"Connection: keep-alive"),
]


def _check_http(content, _):
    from divprism.embedders.http import OpenAI

    _Handler.answer = content
    os.environ |= {"OPENAI_BASE_URL": _server(), "OPENAI_API_KEY": "sk-of-the-fuzzer"}
    embedder = OpenAI("m", max_retries=0, timeout=2.0)
    _check_vectors(np.asarray(embedder.embed_batch(TEXTS)))


def _written(make):
    return lambda: json.dumps(make()).encode()


_JSON = one_of(changed_json, changed_json, changed_json, changed_text_of_json, changed_bytes)
RESULTS = [
    Kind(name, "results", _written(make), _JSON, check, 0.2)
    for name, make, check in (
        ("evaluation", _evaluation, _check_report),
        ("comparison", _comparison, _check_report),
        ("detailed", _detailed, _check_report),
        ("selection", _selection, _check_report),
        ("mixture", _mixture, _check_report),
        ("overlap", _overlap, _check_report),
        ("differences", _differences, _check_report),
        ("novelty", _novelty, _check_report),
        ("groups", _groups, _check_detail),
        ("curves", _curves, _check_detail),
        ("sweep", _sweep, _check_detail),
    )
]
KINDS = [
    *RESULTS,
    Kind("config", "configs", _written(_config), _JSON, _check_config, 2),
    Kind("result-as-config", "configs", _written(_evaluation), _JSON, _check_config),
    Kind("answer", "endpoints", _written(_answer), _JSON, _check_answer, 2),
    Kind("rating", "endpoints", _written(_rating), _JSON, _check_rating),
    Kind("http", "endpoints", _http, _changed_http, _check_http),
]
