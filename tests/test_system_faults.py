"""Faults of the system around divprism: every command of the table against each of them.

The commands are read from the command line itself, each with the example of its help, so a new
command is covered by being in the table. Whatever happens, a command ends by itself, with a known
exit code, without a traceback, and leaves no part of a file.
"""

import json
import os
import pty
import shlex
import socket
import stat
import subprocess
import sys
from functools import partial
from itertools import cycle
from pathlib import Path

import numpy as np
import pytest
from command_line import run
from faults import (
    become_unknown,
    break_pipe,
    close_stream,
    fill_stream,
    leave_no_folder,
    limit_files,
    read_from,
    read_from_a_writer,
    run_faulty,
    set_encoding,
)
from sample_files import image_bytes, jsonl
from typer.main import get_command

import divprism as dp
from divprism.data.files import TEMPORARY, open_file, read_file, umask, write_text
from divprism.data.wording import escaped, is_harmful
from divprism.errors import DataError
from divprism.report.table import Column, Table

pytestmark = pytest.mark.skipif(os.name != "posix", reason="faults of Unix")

TABLE = get_command(__import__("divprism.cli").cli.app).commands
CODES = {0, 1, 2, 3, 4, 5, 129, 130, 141, 143}


def example(name):
    """Return the arguments of the example in the help of a command."""
    words = shlex.split(TABLE[name].epilog.partition("divprism ")[2])
    assert words[0] == name
    return words


@pytest.fixture(scope="session")
def data(tmp_path_factory):
    """Return a folder with the files that the examples name, as vectors wherever that is quick."""
    folder = tmp_path_factory.mktemp("examples")
    rng = np.random.default_rng(0)
    rows = []
    for index in range(80):
        fields = {"model": ("first", "second")[index % 2], "prompt": f"p{index // 2 % 8}"}
        fields |= {"topic": f"t{index % 3}", "prompt_embedding": np.eye(8)[index // 2 % 8].tolist()}
        rows.append(fields | {"output": rng.normal(size=3).tolist()})
    for model in ("second", "first"):
        part = [row for row in rows if row["model"] == model]
        (folder / f"{model}.jsonl").write_bytes(jsonl(part))
        (folder / "outputs.jsonl").write_bytes(jsonl(part))
    (folder / "images").mkdir()
    for index in range(2):
        (folder / "images" / f"{index}.png").write_bytes(image_bytes(size=(8 + index, 8)))
    (folder / "prompts.csv").write_text("prompt\na\nb\n")
    for number, model in enumerate(("first", "second"), 1):
        widths = ("--bandwidth-x", 1, "--bandwidth-t", 1, "--num-features", 32)
        run("state", f"{model}.jsonl", *widths, "-o", f"state-{number}.npz", cwd=folder)
    done = run("score", "first.jsonl", "--format", "json", "-o", "result.json", cwd=folder)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture
def place(data, tmp_path):
    """Return a folder of its own with links to the files of the examples."""
    for path in data.iterdir():
        (tmp_path / path.name).symlink_to(path)
    return tmp_path


def check(done, codes=CODES):
    """Require a known exit code, no traceback, and nothing that controls a terminal."""
    text = done.stderr.decode("utf-8", "replace")
    assert done.returncode in codes, (done.args, done.returncode, text[-2000:])
    for mark in ("Traceback", "Exception ignored", "Fatal Python error"):
        assert mark not in text, (done.args, text[-2000:])
    if done.returncode in (2, 3, 4):
        sentences = [line for line in text.splitlines() if line.startswith("divprism: ")]
        assert len(sentences) == 1, (done.args, text[-2000:])
        assert len(sentences[0]) < 1500
    for stream in (text, done.stdout.decode("utf-8", "replace")):
        assert not [letter for letter in set(stream) if is_harmful(letter) and letter not in "\n\t"]


def no_parts(folder):
    """Require that no temporary file is left in a folder."""
    assert not [path for path in folder.rglob("*") if path.name.endswith(TEMPORARY)]


# --- values: each file and each flag of each command becomes something that is no file


def _faulty_paths(folder):
    """Return paths that are not what a flag asks for, by what they are."""
    os.mkfifo(folder / "pipe.jsonl")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(folder / "socket.jsonl"))
    links = {
        "zero": "/dev/zero",
        "full": "/dev/full",
        "proc": "/proc/self/mem",
        "kmsg": "/proc/kmsg",
    }
    for name, target in (links | {"loop": "loop.jsonl", "nowhere": "/no/such/file"}).items():
        (folder / f"{name}.jsonl").symlink_to(target)
    (folder / "folder.jsonl").mkdir()
    (folder / "empty.jsonl").touch()
    (folder / "a\x1b[31m\u202eb.jsonl").write_bytes(b"{")
    (folder / "\udcff.jsonl").write_bytes(b"{")
    named = ["pipe", "socket", *links, "loop", "nowhere", "folder", "empty", "a\x1b[31m\u202eb"]
    paths = [f"{name}.jsonl" for name in (*named, "\udcff", "x" * 5000)]
    return [*paths, "/dev/zero", "/dev/stdin", "/proc/self/environ", "/dev/full", "~/x", "\u202e"]


def text_flags(name):
    """Return the flags of a command that take a value which is no number."""
    flags = []
    for parameter in TABLE[name].params:
        is_switch = getattr(parameter, "is_flag", False)
        if parameter.opts[0].startswith("--") and not is_switch and parameter.metavar != "NUMBER":
            flags.append(parameter.opts[0])
    return flags


def own_text_flags(name):
    """Return those flags that no earlier command of the table has: the same code reads others."""
    names = list(TABLE)
    earlier = {flag for other in names[: names.index(name)] for flag in text_flags(other)}
    return [flag for flag in text_flags(name) if flag not in earlier]


@pytest.mark.parametrize("name", TABLE)
def test_what_is_no_file_is_refused_in_a_sentence(name, place):
    words = example(name)
    sources = [word for word in words[1:] if (place / word).exists()]
    paths = _faulty_paths(place)
    cases = 0
    # Each source in turn: together they see every fault.
    for source, path in zip(cycle(sources), paths, strict=False):
        changed = [path if word == source else word for word in words]
        check(run_faulty(*changed, cwd=place, timeout=20))
        cases += 1
    # A fault for each flag in turn: together the flags of a table see every fault.
    for index, flag in enumerate(own_text_flags(name)):
        check(run_faulty(*words, f"{flag}={paths[index % len(paths)]}", cwd=place, timeout=20))
        cases += 1
    for path in ("zero.jsonl", "full.jsonl", "pipe.jsonl", "loop.jsonl"):
        assert not stat.S_ISREG((place / path).lstat().st_mode)  # nothing has replaced it
    no_parts(place)
    assert cases or not sources


# --- the environment: each command as it stands in its help


FAULTS = {
    "stdin is closed": partial(close_stream, 0),
    "stdout is closed": partial(close_stream, 1),
    "stderr is closed": partial(close_stream, 2),
    "stdout is full": partial(fill_stream, 1),
    "stderr is full": partial(fill_stream, 2),
    "nobody reads stdout": break_pipe,
    "no file may grow": limit_files,
    "cp1252": partial(set_encoding, "cp1252"),
    "ASCII": partial(set_encoding, "ascii"),
    "the folder is gone": leave_no_folder,
}


# They take seconds and read no input, so they meet the faults of what they write.
SLOW = {"demo", "doctor"}
OF_OUTPUT = {
    "stdout is closed",
    "stdout is full",
    "nobody reads stdout",
    "no file may grow",
    "ASCII",
}
CASES = [
    (name, fault) for name in TABLE for fault in FAULTS if name not in SLOW or fault in OF_OUTPUT
]


@pytest.mark.parametrize(("name", "fault"), CASES)
def test_every_command_survives_every_fault(name, fault, place):
    done = run_faulty(*example(name), cwd=place, prepare=FAULTS[fault])
    check(done)
    if fault == "stdout is full" or fault == "stdout is closed":
        assert done.returncode in (0, 4, 5)  # 0 where there is nothing to print
    if fault == "nobody reads stdout":
        assert done.returncode in (0, 141)
    no_parts(place)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
@pytest.mark.parametrize("name", TABLE)
def test_every_command_runs_without_a_home_and_a_name(name, place, data):
    _open_to_all(place, data)
    done = run_faulty(*example(name), cwd=place, prepare=become_unknown)
    check(done)
    assert not (place / "~").exists()  # a folder of this name would be a cache right here
    no_parts(place)


@pytest.mark.skipif(os.geteuid() != 0, reason="root is needed to make what root cannot use")
@pytest.mark.parametrize("mode", [0o000, 0o555, 0o333, 0o444])
def test_folders_that_may_not_be_listed_or_written(mode, place, data):
    _open_to_all(place, data)
    closed = place / "closed"
    closed.mkdir()
    (closed / "x.jsonl").write_bytes((data / "first.jsonl").read_bytes())
    (closed / "images").mkdir()
    closed.chmod(mode)
    calls = [
        ("score", "closed"),
        ("score", "closed/x.jsonl"),
        ("embed", "images", "-o", "closed/v"),
    ]
    calls += [("score", "first.jsonl", flag, "closed/y") for flag in ("-o", "--report", "--cache")]
    calls += [("cache", action, "--cache", "closed") for action in ("ls", "verify", "clear")]
    calls += [("report", "result.json", "-o", "closed/r.html"), ("demo", "--save", "closed/texts")]
    for call in calls:
        check(run_faulty(*call, cwd=place, prepare=become_unknown))
    closed.chmod(0o755)
    no_parts(place)


def _open_to_all(place, data):
    """Let every user read the files of the examples; pytest makes folders private."""
    for path in (place, data):
        path.chmod(0o777)
        for parent in path.parents:
            if parent.owner() == "root" and "pytest" in parent.name:
                parent.chmod(0o755)


# --- nothing is lost


def test_numbers_are_printed_where_the_output_cannot_be_written(place):
    whole = run_faulty("score", "first.jsonl", cwd=place).stdout
    done = run_faulty("score", "first.jsonl", "-o", "full.txt", cwd=place, prepare=limit_files)
    assert done.returncode == 4 and b"cannot write full.txt: File too large." in done.stderr
    assert not (place / "full.txt").exists()
    (place / "kept.txt").write_text("old")
    done = run_faulty("score", "first.jsonl", "-o", "kept.txt", cwd=place, prepare=limit_files)
    assert (place / "kept.txt").read_text() == "old"
    (place / "device").symlink_to("/dev/full")
    for flags in (("-o", "device"), ("--report", "device")):
        done = run_faulty("score", "first.jsonl", *flags, cwd=place)
        assert (done.returncode, done.stdout) == (4, whole)
        assert b"cannot write device: No space left on device." in done.stderr
    no_parts(place)


def test_numbers_go_to_stderr_where_stdout_is_full(place):
    whole = run_faulty("score", "first.jsonl", cwd=place).stdout
    for fault in (partial(fill_stream, 1), partial(close_stream, 1)):
        done = run_faulty("score", "first.jsonl", cwd=place, prepare=fault)
        assert done.returncode == 4
        assert whole in done.stderr
        assert b"divprism: cannot write to standard output" in done.stderr


def test_a_full_cache_costs_the_cache_and_not_the_run(place):
    texts = [{"prompt": f"p{i % 3}", "output": f"answer {i}"} for i in range(12)]
    (place / "texts.jsonl").write_bytes(jsonl(texts))
    call = ("score", "texts.jsonl", "--cache", "vectors", "--format", "csv")
    done = run_faulty(*call, cwd=place, prepare=limit_files)
    assert b"cache-not-written" in done.stderr
    assert (
        done.returncode == 0
        and done.stdout == run_faulty(*call, cwd=place).stdout[: len(done.stdout)]
    )
    no_parts(place)


def test_vectors_are_written_whole_or_not_at_all(place, data):
    call = ("embed", "images", "--prompts", "prompts.csv", "-o", "vectors")
    assert run_faulty(*call, cwd=place).returncode == 0
    before = {path.name: path.read_bytes() for path in (place / "vectors").iterdir()}
    done = run_faulty(*call, cwd=place, prepare=limit_files)
    check(done, {4})
    assert {path.name: path.read_bytes() for path in (place / "vectors").iterdir()} == before
    done = run_faulty(*call[:-1], "new", cwd=place, prepare=limit_files)
    assert done.returncode == 4 and not (place / "new").exists()


# --- standard input


def test_endless_standard_input_is_refused(place):
    zeros = partial(read_from, "/dev/zero")
    for flags in (("score", "-"), ("score", "first.jsonl", "--prompts", "-")):
        done = run_faulty(*flags, cwd=place, prepare=zeros)
        check(done, {4})
        assert b"standard input is longer than 512 MB" in done.stderr


@pytest.mark.parametrize("how", ["closed", "write-only", "a folder"])
def test_standard_input_that_cannot_be_read(how, place):
    ways = {
        "closed": partial(close_stream, 0),
        "write-only": read_from_a_writer,
        "a folder": partial(read_from, "."),
    }
    done = run_faulty("score", "-", cwd=place, prepare=ways[how])
    check(done, {4})
    assert b"standard input" in done.stderr


# --- signals


@pytest.mark.parametrize(("number", "code"), [("SIGTERM", 143), ("SIGINT", 130), ("SIGHUP", 129)])
def test_a_signal_in_the_middle_leaves_no_part_of_a_file(number, code, tmp_path):
    """The signal arrives while a file is being written, whatever the machine is doing."""
    script = (
        "import os, signal, sys\n"
        # Tests that run in the background, or under nohup, pass on that they ignore some signals.
        "signal.signal(signal.SIGHUP, signal.SIG_DFL)\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "from divprism import cli\n"
        "from divprism.data import files\n"
        "whole = files.write_whole\n"
        "def write(path, write, **more):\n"
        "    def halfway(file):\n"
        "        file.write(b'half')\n"
        f"        os.kill(os.getpid(), signal.{number})\n"
        "        write(file)\n"
        "    whole(path, halfway, **more)\n"
        "files.write_whole = write\n"
        "sys.argv = ['divprism', 'score', 'x.npy', '-q', '-o', 'r.txt']\n"
        "cli.main()\n"
    )
    np.save(tmp_path / "x.npy", np.random.default_rng(0).normal(size=(20, 3)))
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True)
    assert (done.returncode, done.stderr) == (code, b"")
    assert [path.name for path in tmp_path.iterdir()] == ["x.npy"]


def test_head_takes_one_line_in_silence(place):
    call = f"{shlex.quote(sys.executable)} -m divprism ls scores | head -1; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", call], capture_output=True)
    assert done.stderr == b"" and done.stdout.split()[-1] in (b"0", b"141")


# --- what is printed

HOSTILE = "=cmd|\x1b]0;x\x07\x9b31m\u202e\ud800\u2028\x00-\u061c中\U0001f600"


@pytest.fixture
def hostile(tmp_path):
    """Return a file whose model, prompt and field names would drive a terminal."""
    rng = np.random.default_rng(0)
    rows = []
    for index in range(40):
        row = {"model": HOSTILE + "ab"[index % 2], "prompt": f"{HOSTILE}{index // 2 % 5}"}
        rows.append(row | {"output": f"{HOSTILE} {rng.integers(30)}", HOSTILE: "x"})
    lines = [json.dumps(row) for row in rows]
    (tmp_path / "a\u202e\x1b[1m.jsonl").write_text("\n".join(lines))
    return tmp_path


@pytest.mark.parametrize("encoding", ["utf-8", "cp1252", "ascii"])
@pytest.mark.parametrize("form", ["table", "json", "csv", "md", "latex"])
def test_no_text_of_the_data_drives_a_terminal(form, encoding, hostile):
    call = ("score", "a\u202e\x1b[1m.jsonl", "--format", form)
    done = run_faulty(*call, cwd=hostile, prepare=partial(set_encoding, encoding))
    check(done, {0, 4})
    text = done.stdout.decode(encoding)
    assert not [letter for letter in set(text) if is_harmful(letter) and letter not in "\n\t"]
    if form == "json" and done.returncode == 0:
        assert all("cmd|" in name for name in json.loads(text)["models"])
    if form == "csv":
        assert not [line for line in text.splitlines() if line.startswith(("=", "+", "-", "@"))]


STARTS = ["=", "+", "-", "@", "\t=", "\r=", "\n=", " =", "\x00=", "\u200e=", "\uff1d", "\ufeff="]


@pytest.mark.parametrize("start", STARTS)
def test_no_cell_and_no_header_of_a_csv_file_starts_a_formula(start):
    columns = (Column(f"{start}key", "title"), Column("value", "value", ".3g"))
    lines = Table(columns, ((f"{start}1+1", -1.5),)).to_csv()
    for cell in lines.replace('"', "").split(","):
        assert not cell.strip().startswith(("=", "+", "@", "\uff1d", "-k", "-1+"))
    assert lines.endswith(",-1.5\n")  # a number stays one


def test_every_control_and_direction_character_is_spelled_out():
    for code in range(0x110000):
        letter = chr(code)
        if is_harmful(letter):
            assert escaped(letter).isascii() and escaped(letter).isprintable()


def test_a_terminal_gets_no_escape_codes_but_colours(hostile):
    """On a terminal, where colours and a progress bar are drawn."""
    child, terminal = pty.fork()
    if child == 0:
        os.chdir(hostile)
        os.environ["COLUMNS"] = "100"
        call = ["-m", "divprism", "score", "a\u202e\x1b[1m.jsonl"]
        os.execv(sys.executable, [sys.executable, *call])
    shown = b""
    try:
        while block := os.read(terminal, 1 << 16):
            shown += block
    except OSError:  # the end of a terminal
        pass
    os.waitpid(child, 0)
    for bad in (b"\x1b]0;", b"\x07", "\x9b".encode(), "\u202e".encode(), b"\x1b[1m.jsonl"):
        assert bad not in shown


# --- the cache


def test_the_cache_touches_nothing_but_its_shards(tmp_path):
    cache = dp.Cache(tmp_path / "cache")
    folder = cache.folder / ("0" * 32)
    folder.mkdir(parents=True)
    outside = tmp_path / "outside"
    outside.mkdir()
    (folder / "embedder.json").write_text(json.dumps({"id": "\x1b[31mred\u202e" * 50}))
    (outside / "embedder.json").write_text("{}")
    shard, ours = f"{'a' * 64}.npz", f"{'b' * 64}.npz"
    (folder / ours).write_bytes(b"damaged")
    kept = [folder / "mine.npz", folder / f"{'A' * 64}.npz", folder / "notes.txt", outside / shard]
    kept += [folder / ".hidden", cache.folder / "other" / shard, folder / "nested" / shard]
    for path in kept:
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"mine")
    (cache.folder / "other" / "embedder.json").write_text("{}")
    (folder / shard).symlink_to(outside / shard)
    (cache.folder / ("1" * 32)).symlink_to(outside)
    os.mkfifo(folder / f"{'c' * 64}.npz")
    (folder / f"{'d' * 64}.npz").mkdir()
    listed = run("cache", "ls", "--cache", cache.folder)
    check(listed, {0})
    assert len(cache.verify()) == 1 and not (folder / ours).exists()
    assert cache.clear() == 0
    assert all(path.read_bytes() == b"mine" for path in kept)
    assert (folder / shard).is_symlink() and (cache.folder / ("1" * 32)).is_symlink()
    assert (cache.folder / "other" / "embedder.json").exists()


# --- files


def test_a_file_of_unknown_length_is_read_up_to_a_limit(tmp_path):
    (tmp_path / "x").write_bytes(b"x" * 10)
    assert read_file(tmp_path / "x", 10) == b"x" * 10
    with pytest.raises(DataError, match="larger than 9 bytes"):
        read_file(tmp_path / "x", 9)
    with open_file("/proc/self/environ") as file:
        assert file.read() == b""


def test_a_pipe_that_nobody_reads_is_an_error_and_no_wait(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(DataError, match=r"cannot write .*pipe: No such device or address"):
        write_text(tmp_path / "pipe", "text")
    with pytest.raises(DataError, match="it is a named pipe"):
        open_file(tmp_path / "pipe")


def test_texts_with_lone_surrogates_are_written(tmp_path):
    write_text(tmp_path / "x", '"\ud800\U0001f600é"')
    assert json.loads(Path(tmp_path / "x").read_text()) == "\ud800\U0001f600é"


def test_reading_the_mask_never_opens_files_of_other_threads_to_all(monkeypatch):
    masks = []
    set_mask = os.umask

    def recorded(mask):
        masks.append(mask)
        return set_mask(mask)

    monkeypatch.setattr("os.umask", recorded)
    before = umask()
    assert masks[0] & 0o077 == 0o077  # whatever is created meanwhile is private
    assert masks[-1] == before
