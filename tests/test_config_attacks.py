"""Configs that attack: `--config` sets scoring settings, whatever the file asks for.

Each attack was a success before configs had an allow-list: files were overwritten, files outside of
the folder were read, and texts were sent to an endpoint.
"""

import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import numpy as np
import pytest
from command_line import run
from sample_files import jsonl, records, write
from typer.main import get_command

from divprism.cli import app
from divprism.report.config_files import ALLOWED

TABLE = get_command(app).commands
WITH_CONFIG = [
    name
    for name, command in TABLE.items()
    if "config" in {parameter.name for parameter in command.params}
]


@pytest.fixture
def folder(tmp_path):
    """Return a folder with texts of one model, vectors of two, and a file to protect."""
    rng = np.random.default_rng(0)
    vectors = []
    for index in range(80):
        fields = {"model": "ab"[index % 2], "prompt": f"p{index // 2 % 8}"}
        vectors.append(fields | {"output": rng.normal(size=3).tolist()})
    files = {"o.jsonl": jsonl(records(("one",))), "v.jsonl": jsonl(vectors)}
    write(tmp_path, files | {"precious.txt": b"mine"})
    return tmp_path


def flags_of(command):
    """Return the parameters of a command by their keys in a config."""
    named = {}
    for parameter in TABLE[command].params:
        for flag in parameter.opts:
            named[flag.lstrip("-").replace("-", "_")] = parameter
    return named


def as_result(settings):
    return {"schema": 2, "settings": settings, "scores": {}}


def as_flags(settings):
    return settings


def as_models(settings):
    return {"schema": 2, "models": {"one": {"settings": settings}}}


SHAPES = {"result": as_result, "flags": as_flags, "models": as_models}


def scored(folder, content, *flags, command="score", source="o.jsonl"):
    """Run a command with a config, and return its streams and exit code."""
    text = content if isinstance(content, str | bytes) else json.dumps(content)
    data = text.encode() if isinstance(text, str) else text
    (folder / "c.json").write_bytes(data)
    return run(command, source, "--config", "c.json", *flags, cwd=folder, timeout=60)


def one_sentence(done, code):
    """Require one sentence on stderr and an exit code."""
    lines = done.stderr.decode().splitlines()
    assert done.returncode == code, lines
    assert len(lines) == 1 and lines[0].startswith("divprism: "), lines
    assert len(lines[0]) < 600
    return lines[0]


# --- where to write, what to read

WRITING = [
    (command, key)
    for command in ("score", "compare", "converge")
    for key in ("output", "o", "report", "plot", "cache")
    if key in flags_of(command)
]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("command", "key"), WRITING)
def test_no_config_says_where_to_write(command, key, shape, folder):
    target = {"plot": "plot.png", "cache": "vectors"}.get(key, "precious.txt")
    before = {path.name for path in folder.iterdir()} | {"c.json"}
    flags = ("--model", "a") if command == "converge" else ()
    content = SHAPES[shape]({key: str(folder / target), "order": 2})
    done = scored(folder, content, *flags, command=command, source="v.jsonl")
    assert done.returncode == 0, done.stderr
    assert done.stderr.decode().count(f"warning: config: {key} of c.json ignored") == 1
    assert (folder / "precious.txt").read_bytes() == b"mine"
    assert {path.name for path in folder.iterdir()} == before
    assert b"vendi" in done.stdout


@pytest.mark.parametrize("shape", SHAPES)
def test_no_config_reads_outside_of_the_folder(shape, folder, tmp_path_factory):
    outside = tmp_path_factory.mktemp("outside") / "secret.png"
    outside.write_bytes(b"secret")
    line = {"prompt": "p", "image": str(outside)}
    (folder / "o.jsonl").write_bytes(jsonl([line, line]))
    done = scored(folder, SHAPES[shape]({"allow_outside": True}), "-q")
    assert done.returncode == 4
    lines = done.stderr.decode().splitlines()
    assert lines[0].startswith("warning: config: allow_outside of c.json ignored")
    assert "outside" in lines[1] and len(lines) == 2


def test_refused_keys_are_named_once_in_one_notice(folder):
    keys = {"output": "x", "report": "y", "cache": "z", "allow-outside": True, "quiet": True}
    done = scored(folder, {"schema": 2, "settings": keys})
    notices = [line for line in done.stderr.decode().splitlines() if "config" in line]
    names = "output and report and cache and allow_outside and quiet"
    assert notices == [
        f"warning: config: {names} of c.json ignored: only the command line sets them."
    ]


@pytest.mark.parametrize("command", WITH_CONFIG)
def test_a_config_sets_nothing_but_what_is_listed(command, folder):
    """Every flag of every command, those of the future included, is refused unless listed."""
    refused = [key for key in flags_of(command) if key not in ALLOWED and key != "config"]
    # The config is read before the help is printed, so nothing is computed.
    content = as_flags(dict.fromkeys(refused, "precious.txt"))
    done = scored(folder, content, "--help", command=command)
    assert done.returncode == 0
    names = " and ".join(refused)
    assert f"warning: config: {names} of c.json ignored" in done.stderr.decode()
    assert (folder / "precious.txt").read_bytes() == b"mine"


def test_what_is_listed_neither_writes_nor_reads_files():
    dangerous = {"output", "o", "report", "plot", "cache", "source", "others", "outputs", "prompts"}
    dangerous |= {"labels", "weights", "allow_outside", "device", "config", "no_cache", "quiet"}
    assert not dangerous & set(ALLOWED)


@pytest.mark.parametrize("key", ["strict", "offline", "nested"])
@pytest.mark.parametrize("value", [False, 0, "false", "no"])
def test_a_config_never_asks_for_less_care(key, value, folder):
    command = "groups" if key == "nested" else "score"
    line = one_sentence(scored(folder, {key: value}, command=command), 2)
    assert f"--{key} must be true" in line


def test_the_command_line_says_what_a_config_may_not(folder):
    done = scored(folder, {"output": "precious.txt", "order": 2}, "-o", "mine.txt")
    assert done.returncode == 0
    assert b"order 2" in (folder / "mine.txt").read_bytes()
    assert (folder / "precious.txt").read_bytes() == b"mine"


# --- embedders


@pytest.fixture
def endpoint():
    """Return the address of a server on this machine, and the requests that it has got."""
    requests = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            requests.append(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_error(500)

        def log_message(self, *arguments):
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    # It looks every 50 ms whether it is to end, not every half second.
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/v1", requests
    server.shutdown()
    server.server_close()


EMBEDDERS = [
    "openai:text-embedding-3-small",
    "sentence-transformers:./model",
    "sentence-transformers:someone/model",
    "transformers:/etc",
    "transformers:someone/model",
    "inception:/etc/passwd",
    "onnx:./model.onnx",
    "torchscript:./model.pt",
    "clip:/etc",
    "dinov2:someone/model",
    "wordllama:x",
    "\x1b]0;title\x07openai:x",
    " openai:x",
]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("spelling", EMBEDDERS)
def test_no_config_chooses_a_model_or_a_server(spelling, shape, folder, endpoint, monkeypatch):
    address, requests = endpoint
    monkeypatch.setenv("OPENAI_BASE_URL", address)
    monkeypatch.setenv("OPENAI_API_KEY", "secret-key")
    for key in ("embedder_x", "embedder_t"):
        line = one_sentence(scored(folder, SHAPES[shape]({key: spelling}), "-q"), 2)
        assert f"pass it as --{key.replace('_', '-')}" in line
        assert line.isprintable()
    assert requests == []


def test_a_folder_does_not_stand_in_for_a_known_model(folder):
    (folder / "openai" / "clip-vit-base-patch32").mkdir(parents=True)
    for spelling in ("clip", "transformers:openai/clip-vit-base-patch32"):
        assert "clip" in one_sentence(scored(folder, {"embedder_x": spelling}, "-q"), 2)


def test_the_embedder_of_divprism_itself_may_be_in_a_config(folder):
    done = scored(folder, as_result({"embedder_x": "wordllama", "embedder_t": "wordllama"}))
    assert done.returncode == 0, done.stderr


def test_a_typed_embedder_is_used_whatever_the_config_says(folder):
    flags = ("--embedder-x", "wordllama", "--embedder-t", "wordllama", "-q")
    done = scored(folder, {"embedder_x": "openai:x", "embedder_t": "openai:x"}, *flags)
    assert done.returncode == 0 and b"config" not in done.stderr


# --- files that are no configs

DEEP = 100_000
BAD_FILES = {
    "deep lists": ('{"order": ' + "[" * DEEP + "]" * DEEP + "}", 4),
    "deep objects": ('{"a":' * DEEP + "1" + "}" * DEEP, 4),
    "rather deep": ('{"order": ' + "[" * 900 + "]" * 900 + "}", 2),
    "huge digits": ('{"rng": ' + "9" * 100_000 + "}", 4),
    "huge int": ('{"rng": ' + "9" * 4000 + "}", 2),
    "huge truncation": ('{"truncation": ' + "9" * 400 + "}", 2),
    "NaN": ('{"order": NaN}', 4),
    "Infinity": ('{"bandwidth_x": Infinity}', 4),
    "overflow": ('{"bandwidth_x": 1e999}', 2),
    "repeated keys": ('{"order": 1, "order": 2}', 4),
    "repeated keys below": ('{"settings": {"order": 1, "order": 2}}', 4),
    "many permutations": ('{"num_permutations": 1000000000}', 2),
    "text for a number": ('{"bandwidth_x": "1"}', 2),
    "bool for a number": ('{"rng": true}', 2),
    "list for a number": ('{"order": [1, 2]}', 2),
    "object for a text": ('{"kernel_x": {"gaussian": 1}}', 2),
    "number for a text": ('{"estimator": 3}', 2),
    "long text": ('{"kernel_x": "' + "g" * 1_000_000 + '"}', 2),
    "control characters": ('{"kernel_x": "\\u001b[31m\\u202e"}', 2),
    "escape codes in a key": ('{"\\u001b[31m\\u202e": 1}', 2),
    "long key": ('{"' + "k" * 1_000_000 + '": 1}', 2),
    "no object": ("[]", 4),
    "nothing": ("", 4),
    "blanks": (" " * 1000, 4),
    "bytes": (bytes(range(256)), 4),
    "surrogate": ('{"kernel_x": "\\ud800"}', 2),
    "surrogate key": ('{"\\udcff": 1}', 2),
    "empty key": ('{"": 1}', 2),
    "null": ("null", 4),
    "text": ('"settings"', 4),
    "settings of models": ('{"schema": 2, "models": {"a": 3}}', 4),
    "schema of another kind": ('{"schema": [[2]], "settings": {}}', 4),
    "gates as a text": ('{"fail_under": "vendi=0"}', 2),
    "code in a kernel": ('{"kernel_x": "gaussian(bandwidth=__import__(\'os\'))"}', 2),
    "kernel that overflows": ('{"kernel_x": "polynomial(offset=1e308)", "order": 2}', 2),
    "kernel that vanishes": ('{"kernel_x": "polynomial(offset=1e-300, scale=1e300)"}', 2),
    "many features": ('{"estimator": "fourier(num_features=20000000)", "bandwidth_x": 1}', 2),
    "many landmarks": ('{"estimator": "nystrom(num_landmarks=5000)"}', 2),
    "wide rule": ('{"bandwidth_rule": "stable(max_rows=100000)"}', 2),
    "deep kernel": ('{"kernel_x": "polynomial(degree=' + "(" * 400 + '"}', 2),
}


@pytest.mark.parametrize("case", BAD_FILES)
def test_a_bad_config_is_one_sentence(case, folder):
    content, code = BAD_FILES[case]
    line = one_sentence(scored(folder, content, "-q"), code)
    assert line.isprintable()


LARGE = {
    "100 MB of blanks": lambda file: file.write(b" " * (100 << 20)),
    "100 MB of lists": lambda file: file.write(b'{"a": [' + b"[]," * (33 << 20) + b"1]}"),
    "100 MB of a text": lambda file: file.write(b'{"kernel_x": "' + b"x" * (100 << 20) + b'"}'),
    "a terabyte of nothing": lambda file: file.truncate(1 << 40),
}


@pytest.mark.parametrize("case", LARGE)
def test_a_large_config_is_one_sentence(case, folder):
    with open(folder / "c.json", "wb") as file:
        LARGE[case](file)
    done = run("score", "o.jsonl", "--config", "c.json", "-q", cwd=folder, timeout=60)
    one_sentence(done, 2 if "a text" in case else 4)
