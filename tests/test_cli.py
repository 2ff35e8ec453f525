"""The command line as a user meets it: a process, its two streams and its exit code."""

import gzip
import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from command_line import run
from sample_files import jsonl, records, write

import divprism as dp

X = np.random.default_rng(0).standard_normal((40, 3))
T = np.arange(40) // 4


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("files")
    np.save(path / "x.npy", X)
    np.save(path / "ids.npy", T)
    np.save(path / "t.npy", np.eye(10)[T])
    np.savetxt(path / "x.csv", X, delimiter=",")
    np.savez(path / "both.npz", x=X, t=np.eye(10)[T])
    return path


def test_the_table_is_on_stdout_and_says_what_each_score_means(folder):
    done = run("score", "--outputs", folder / "x.npy", "--prompts", folder / "ids.npy")
    assert done.returncode == 0
    assert done.stderr == b""
    text = done.stdout.decode()
    assert "40 pairs, 10 distinct prompts; order 1" in text
    assert f"{float(dp.conditional_vendi(X, T)):.4f}" in text
    assert "exp(-d^2 / (2 bandwidth^2))" in text


@pytest.mark.parametrize("outputs", ["x.npy", "x.csv", "both.npz", "-"])
def test_every_source_gives_the_same_numbers(outputs, folder):
    stdin = (folder / "x.npy").read_bytes() if outputs == "-" else b""
    source = outputs if outputs == "-" else folder / outputs
    done = run(
        "score", "--outputs", source, "--prompts", folder / "t.npy", "--format", "json", stdin=stdin
    )
    assert done.returncode == 0, done.stderr
    right = dp.evaluate(X, np.eye(10)[T])
    found = json.loads(done.stdout)
    assert {name: entry["value"] for name, entry in found["scores"].items()} == pytest.approx(
        {name: float(score) for name, score in right.scores.items()}, rel=1e-12
    )


def test_a_result_is_a_config(folder, tmp_path):
    first = run(
        *(
            "score",
            "--outputs",
            folder / "x.npy",
            "--prompts",
            folder / "t.npy",
            "--order",
            "inf",
            "--truncation",
            7,
        ),
        *(
            "--kernel-x",
            "polynomial(degree=2)",
            "--bandwidth-t",
            0.75,
            "--format",
            "json",
            "-o",
            tmp_path / "r.json",
        ),
    )
    assert (first.returncode, first.stdout, first.stderr) == (0, b"", b"")
    saved = json.loads((tmp_path / "r.json").read_text())
    arguments = (
        "score",
        "--outputs",
        folder / "x.npy",
        "--prompts",
        folder / "t.npy",
        "--format",
        "json",
    )
    again = json.loads(run(*arguments, "--config", tmp_path / "r.json").stdout)
    assert again["scores"] == saved["scores"]
    assert again["settings"] == saved["settings"]
    flag_wins = json.loads(run(*arguments, "--config", tmp_path / "r.json", "--order", "2").stdout)
    assert flag_wins["settings"]["order"] == 2.0
    assert flag_wins["settings"]["truncation"] == 7


def test_a_result_of_several_models_is_a_config(tmp_path):
    write(tmp_path, {"o.jsonl": jsonl(records(("one", "two")))})
    first = run(
        "score", tmp_path / "o.jsonl", "--order", 2, "--format", "json", "-o", tmp_path / "r.json"
    )
    assert first.returncode == 0, first.stderr
    again = run("score", tmp_path / "o.jsonl", "--config", tmp_path / "r.json", "--format", "json")
    saved, found = json.loads((tmp_path / "r.json").read_text()), json.loads(again.stdout)
    assert (
        found["models"]["two"]["settings"]["bandwidth_x"]
        == saved["models"]["two"]["settings"]["bandwidth_x"]
    )
    assert found["models"]["two"]["scores"] == saved["models"]["two"]["scores"]


@pytest.mark.parametrize("command", ["groups", "compare", "converge", "score"])
def test_a_result_of_score_is_a_config_of_other_commands(command, tmp_path):
    """Kernels, bandwidths and order are taken over; what only score has (--num-permutations, --interval) is not in the way."""
    rows = [
        row | {"output": f"{row['output']} {place}"}
        for place in range(8)
        for row in records(("one", "two"))
    ]
    write(tmp_path, {"o.jsonl": jsonl(rows)})
    chosen = (
        "--bandwidth-x",
        0.7,
        "--kernel-t",
        "cosine",
        "--order",
        3,
        "--num-permutations",
        2,
        "--interval",
        0.9,
    )
    first = run(
        "score", tmp_path / "o.jsonl", *chosen, "--format", "json", "-o", tmp_path / "r.json"
    )
    assert first.returncode == 0, first.stderr
    model = ("--model", "two") if command in ("groups", "converge") else ()
    done = run(
        command, tmp_path / "o.jsonl", *model, "--config", tmp_path / "r.json", "--format", "json"
    )
    assert done.returncode == 0, done.stderr
    saved, found = (
        json.loads((tmp_path / "r.json").read_text())["models"]["two"],
        json.loads(done.stdout),
    )
    found = found["models"]["two"] if "models" in found else found
    names = (
        "kernel_x",
        "bandwidth_x",
        "kernel_t",
        "bandwidth_t",
        "order",
        "estimator",
        "embedder_x",
    )
    assert {name: found["settings"].get(name, "wordllama") for name in names} == {
        name: saved["settings"][name] for name in names
    }
    if command == "compare":
        assert found["settings"]["interval"] == 0.9
        assert found["scores"]["rke"]["value"] == pytest.approx(saved["scores"]["rke"]["value"])
    if command == "groups":
        assert found["conditional_vendi"] == pytest.approx(
            saved["scores"]["conditional_vendi"]["value"]
        )


@pytest.mark.parametrize("command", ["groups", "compare"])
def test_results_of_groups_and_compare_can_be_had_again(command, tmp_path):
    rows = [
        row | {"output": f"{row['output']} {place}"}
        for place in range(8)
        for row in records(("one", "two"))
    ]
    write(tmp_path, {"o.jsonl": jsonl(rows)})
    model = ("--model", "two") if command == "groups" else ("--unit", "prompt")
    first = run(
        command, tmp_path / "o.jsonl", *model, "--format", "json", "-o", tmp_path / "r.json"
    )
    assert first.returncode == 0, first.stderr
    arguments = (
        "--config",
        tmp_path / "r.json",
        "--format",
        "json",
        *(model if command == "groups" else ()),
    )
    again = json.loads(run(command, tmp_path / "o.jsonl", *arguments).stdout)
    saved = json.loads((tmp_path / "r.json").read_text())
    compared = ("groups", "gap") if command == "groups" else ("ranks", "differences")
    for name in compared:
        assert again[name] == saved[name]
    assert again["settings"]["bandwidth_x"] == saved["settings"]["bandwidth_x"]


def test_groups_tell_of_a_truncation_that_they_leave_out(folder, tmp_path):
    arguments = (folder / "x.npy", "--prompts", folder / "ids.npy", "--format", "json")
    run("score", *arguments, "--truncation", 3, "-o", tmp_path / "r.json")
    done = run("groups", *arguments, "--config", tmp_path / "r.json")
    assert done.returncode == 0
    assert (
        f"warning: groups are not truncated; that of {tmp_path / 'r.json'} is left out."
        in done.stderr.decode()
    )
    refused = run("groups", *arguments, "--truncation", 3)
    assert (
        refused.returncode,
        "--truncation has no meaning for groups" in refused.stderr.decode(),
    ) == (2, True)


def test_a_config_names_gates_and_sources_as_lists(tmp_path):
    for model in ("one", "two"):
        write(tmp_path, {f"{model}.jsonl": jsonl(records((model,)))})
    sources = {"source": str(tmp_path / "one.jsonl"), "others": [str(tmp_path / "two.jsonl")]}
    (tmp_path / "c.json").write_text(
        json.dumps(sources | {"fail-under": ["rke=1", "vendi=40"], "strict": True})
    )
    done = run("compare", "--config", tmp_path / "c.json", "-q")
    assert (done.returncode, "below 40, as for 2 of 2 models" in done.stderr.decode()) == (5, True)


@pytest.mark.parametrize("form", ["plain", "BOM", "gzip", "list"])
def test_records_are_read_from_a_pipe(form, tmp_path):
    rows = records()
    content = json.dumps(rows).encode() if form == "list" else jsonl(rows)
    content = {"BOM": b"\xef\xbb\xbf" + content, "gzip": gzip.compress(content)}.get(form, content)
    write(tmp_path, {"o.jsonl": jsonl(rows)})
    found = run("score", "-", "--format", "csv", stdin=content)
    assert found.returncode == 0, found.stderr
    assert found.stdout == run("score", tmp_path / "o.jsonl", "--format", "csv").stdout


@pytest.mark.parametrize("content", ["p\nq\np\nq\n", '"p"\n', "1,2\n3,4\n5,6\n7,8\n"])
def test_prompts_are_read_from_a_pipe(content, folder):
    np.save(folder / "four.npy", np.eye(4))
    lines = (
        jsonl({"prompt": text} for text in "pqpq").decode() if content.startswith('"') else content
    )
    done = run(
        "score", folder / "four.npy", "--prompts", "-", "--format", "json", stdin=lines.encode()
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["data"]["prompts"] == (4 if "," in content else 2)


def test_a_kernel_flag_replaces_kernel_and_bandwidth_of_a_config(folder, tmp_path):
    arguments = ("score", "--outputs", folder / "x.npy", "--format", "json")
    (tmp_path / "r.json").write_bytes(run(*arguments, "--bandwidth-x", 2).stdout)
    done = run(*arguments, "--config", tmp_path / "r.json", "--kernel-x", "cosine")
    assert json.loads(done.stdout)["settings"]["kernel_x"] == "cosine"


def test_numbers_in_a_config_are_not_cut(folder, tmp_path):
    (tmp_path / "c.json").write_text('{"truncation": 2.5}')
    done = run("score", "--outputs", folder / "x.npy", "--config", tmp_path / "c.json")
    assert done.returncode == 2
    assert b"--truncation" in done.stderr


def test_a_device_is_written_to_and_a_link_followed(folder, tmp_path):
    assert run("score", "--outputs", folder / "x.npy", "-o", "/dev/null").returncode == 0
    assert Path("/dev/null").is_char_device()
    (tmp_path / "link").symlink_to(tmp_path / "real.txt")
    assert run("score", "--outputs", folder / "x.npy", "-o", tmp_path / "link").returncode == 0
    assert (tmp_path / "link").is_symlink()
    assert "vendi" in (tmp_path / "real.txt").read_text()
    assert run("score", "--outputs", folder / "x.npy", "-o", tmp_path).returncode == 4
    assert sorted(p.name for p in tmp_path.iterdir()) == ["link", "real.txt"]


def test_a_config_may_hold_flags(folder, tmp_path):
    (tmp_path / "c.json").write_text(
        json.dumps({"outputs": str(folder / "x.npy"), "kernel-x": "cosine", "format": "csv"})
    )
    done = run("score", "--config", tmp_path / "c.json")
    assert done.returncode == 0, done.stderr
    assert (
        done.stdout.decode().splitlines()[0]
        == "score,n,value,standard_error,entropy,order,truncation,method,low,high,level"
    )


@pytest.mark.parametrize(
    ("content", "message", "code"),
    [
        ('{"colour": 1}', "sets 'colour', which score does not know", 2),
        ("[1]", "must hold a JSON object; it holds a list", 4),
        ("{", "is not a JSON file", 4),
        ('{"settings": {"num_groups": 3}}', "sets 'num_groups', which score does not know", 2),
        (
            '{"schema": 1, "settings": {"num_groups": 3, "colour": 1}}',
            "sets 'colour', which score does not know",
            2,
        ),
        ('{"settings": 3}', "must be a JSON object; it is a int", 4),
    ],
)
def test_bad_configs(content, message, code, folder, tmp_path):
    (tmp_path / "c.json").write_text(content)
    done = run("score", "--outputs", folder / "x.npy", "--config", tmp_path / "c.json")
    assert done.returncode == code
    assert message in done.stderr.decode()


def test_markdown_csv_and_latex(folder):
    def rendered(form):
        done = run(
            "score",
            "--outputs",
            folder / "x.npy",
            "--prompts",
            folder / "ids.npy",
            "--format",
            form,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.decode()

    found = dp.evaluate(X, T, interval=0.95)
    ends = {
        name: f"{interval.low:.4g} to {interval.high:.4g}"
        for name, interval in found.intervals.items()
    }
    assert f"| vendi | {float(found.vendi):.4f} | {ends['vendi']} |" in rendered("md")
    conditional = f"{float(found.conditional_vendi):.4f} & {ends['conditional_vendi']}"
    assert rf"conditional\_vendi & {conditional} \\" in rendered("latex")
    lines = rendered("csv").splitlines()
    assert len(lines) == 7
    assert lines[1].startswith(f"vendi,40,{float(dp.vendi(X))!r}")


def test_labels_and_weights(folder, tmp_path):
    np.save(tmp_path / "w.npy", np.full(40, 1 / 40))
    done = run(
        *("score", "--outputs", folder / "x.npy", "--labels", folder / "ids.npy"),
        *("--weights", tmp_path / "w.npy", "--format", "json"),
    )
    assert json.loads(done.stdout)["scores"]["cluster_vendi"]["value"] == pytest.approx(
        float(dp.cluster_vendi(X, T))
    )


def test_warnings_go_to_stderr(tmp_path):
    write(tmp_path, {"o.jsonl": jsonl([*records(), {"model": "one", "prompt": "p", "output": ""}])})
    done = run("score", tmp_path / "o.jsonl", "--format", "json", "-q")
    assert (
        done.stderr.decode()
        == "warning: 1 output was skipped because the output or its prompt is empty.\n"
    )
    document = json.loads(done.stdout)
    assert document["warnings"] and document["data"]["skipped"] == 1


def test_what_was_read_and_embedded_is_said(tmp_path):
    write(tmp_path, {"o.jsonl": jsonl(records(("one",)))})
    call = ("score", tmp_path / "o.jsonl", "--cache", tmp_path / "cache")
    lines = run(*call).stderr.decode().splitlines()
    assert lines == [
        f"{tmp_path / 'o.jsonl'}: outputs from 'output' (text), prompts from 'prompt' (text), models from 'model'",
        "outputs: 4 distinct texts, wordllama (the default): 4 embedded, 0 found in the cache",
        "prompts: 2 distinct texts, wordllama (the default): 2 embedded, 0 found in the cache",
    ]
    again = run(*call).stderr.decode().splitlines()
    assert (
        again[1]
        == "outputs: 4 distinct texts, wordllama (the default): nothing to embed, all in the cache"
    )
    assert run(*call, "-q").stderr == b""
    assert "4 embedded" in run(*call, "--no-cache").stderr.decode()


@pytest.mark.parametrize("form", ["table", "json", "csv", "md", "latex"])
def test_several_models_are_a_row_each(form, tmp_path):
    write(tmp_path, {"o.jsonl": jsonl(records(("one", "t_wo")))})
    results = dp.evaluate_models(tmp_path / "o.jsonl")
    text = run("score", tmp_path / "o.jsonl", "--format", form, "--interval", 0).stdout.decode()
    if form == "json":
        document = json.loads(text)
        assert {name: entry["scores"] for name, entry in document["models"].items()} == {
            name: result.to_dict()["scores"] for name, result in results.items()
        }
    else:
        assert ("t\\_wo" if form in ("latex", "md") else "t_wo") in text
        for result in results.values():
            value = float(result.conditional_vendi)
            assert (repr(value) if form == "csv" else f"{value:.3f}") in text
    one = run("score", tmp_path / "o.jsonl", "--format", "json", "--limit", 1).stdout
    assert [entry["data"]["n"] for entry in json.loads(one)["models"].values()] == [1, 1]


def test_rows_of_models_tell_half_of_their_interval(tmp_path):
    write(tmp_path, {"o.jsonl": jsonl(records(("one", "two")))})
    result = dp.evaluate_models(tmp_path / "o.jsonl", interval=0.9)["two"]
    text = run(
        "score", tmp_path / "o.jsonl", "--interval", 0.9, "--num-permutations", 3
    ).stdout.decode()
    interval = result.intervals["vendi"]
    assert f"{float(result.vendi):.2f} +- {(interval.high - interval.low) / 2:.2g}" in text
    assert text.splitlines()[0].split()[-1] == "excess_information"
    assert "+-: half of the 90% interval, pairs drawn" in text


def test_a_sweep_tells_how_it_came_about_and_is_a_config(tmp_path):
    rows = [row | {"output": f"{row['output']} {place}"} for place in range(8) for row in records()]
    write(tmp_path, {"o.jsonl": jsonl(rows)})
    flags = (
        "--bandwidth-rule",
        "median",
        "--bandwidths-x",
        "0.5,1,2",
        "--order",
        2,
        "--max-rows",
        20,
        "--format",
        "json",
    )
    first = run("bandwidth", tmp_path / "o.jsonl", *flags, "-o", tmp_path / "r.json")
    assert first.returncode == 0, first.stderr
    saved = json.loads((tmp_path / "r.json").read_text())
    assert saved["settings"]["bandwidth_rule"] == "median(max_rows=2000)" and saved["data"][
        "source"
    ] == str(tmp_path / "o.jsonl")
    assert {entry["id"] for entry in saved["embedders"]} == {"wordllama"}
    again = run(
        "bandwidth", tmp_path / "o.jsonl", "--config", tmp_path / "r.json", "--format", "json"
    )
    assert json.loads(again.stdout) == saved
    text = run("bandwidth", tmp_path / "o.jsonl", "--config", tmp_path / "r.json").stdout.decode()
    assert (
        "rule: median(max_rows=2000); embedded: outputs by wordllama, prompts by wordllama" in text
    )
    run(
        "score",
        tmp_path / "o.jsonl",
        "--bandwidth-x",
        0.7,
        "--format",
        "json",
        "-o",
        tmp_path / "s.json",
    )
    done = run(
        "bandwidth", tmp_path / "o.jsonl", "--config", tmp_path / "s.json", "--bandwidths-x", "1"
    )
    assert done.returncode == 0, done.stderr
    assert (
        f"warning: a sweep keeps the bandwidths of its rule; those of {tmp_path / 's.json'} are left out."
        in done.stderr.decode()
    )


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--estimator", "lanczos"), "--estimator has no meaning for a sweep"),
        (("--max-memory", "1GB"), "--max-memory has no meaning for a sweep"),
        (("--bandwidths-t", "1,2"), "`bandwidths_t` was given, but no prompts `t`"),
        (("--bandwidth-x", 1), "leave out --kernel-x and the like"),
    ],
)
def test_a_sweep_refuses_flags_that_it_would_ignore(flags, message, folder):
    refused = run("bandwidth", folder / "x.npy", *flags)
    assert (refused.returncode, refused.stdout) == (2, b"")
    assert message in refused.stderr.decode()


def test_a_score_without_intervals_is_a_config_of_compare(tmp_path):
    rows = [
        row | {"output": f"{row['output']} {place}"}
        for place in range(8)
        for row in records(("one", "two"))
    ]
    write(tmp_path, {"o.jsonl": jsonl(rows)})
    first = run(
        "score",
        tmp_path / "o.jsonl",
        "--interval",
        0,
        "--format",
        "json",
        "-o",
        tmp_path / "r.json",
    )
    assert first.returncode == 0, first.stderr
    done = run("compare", tmp_path / "o.jsonl", "--config", tmp_path / "r.json", "--format", "json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["settings"]["interval"] == 0.95
    again = json.loads(
        run(
            "score", tmp_path / "o.jsonl", "--config", tmp_path / "r.json", "--format", "json"
        ).stdout
    )
    assert again["models"]["one"]["settings"]["interval"] is None


def test_the_truncation_of_a_curve_is_not_that_of_all_scores(folder, tmp_path):
    arguments = (folder / "x.npy", "--prompts", folder / "ids.npy", "--format", "json")
    first = run("converge", *arguments, "--max-memory", "1GB", "-o", tmp_path / "r.json")
    assert first.returncode == 0, first.stderr
    assert json.loads((tmp_path / "r.json").read_text())["settings"]["truncation"] > 0
    done = run("score", *arguments, "--config", tmp_path / "r.json")
    assert json.loads(done.stdout)["settings"]["truncation"] is None
    assert (
        f"the truncation of {tmp_path / 'r.json'} is that of its truncated scores, and left out."
        in done.stderr.decode()
    )
    assert run("converge", *arguments, "--max-memory", "much").returncode == 2


def test_bandwidths_are_swept(tmp_path):
    np.save(tmp_path / "x.npy", X)
    np.save(tmp_path / "t.npy", np.eye(10)[T])
    arguments = (
        "bandwidth",
        tmp_path / "x.npy",
        "--prompts",
        tmp_path / "t.npy",
        "--bandwidths-x",
        "0.5,1,2",
    )
    found = json.loads(run(*arguments, "--format", "json").stdout)
    right = dp.bandwidth_sweep(X, np.eye(10)[T], bandwidths_x=[0.5, 1, 2])
    assert found["x"]["scores"]["vendi"] == right.x.scores["vendi"].tolist()
    text = run(*arguments).stdout.decode()
    assert (
        f"bandwidth of outputs: {right.x.chosen:.4g} by rule, median distance {right.x.median:.4g}"
        in text
    )
    assert "rule: stable(threshold=0.01, num_subsets=20, max_rows=500)\n" in text
    assert sum(line.startswith(">") for line in text.splitlines()) == 2
    refused = run("bandwidth", tmp_path / "x.npy", "--bandwidths-x", "one")
    assert (refused.returncode, refused.stdout) == (2, b"")
    assert (
        "--bandwidths-x must be numbers with commas between, as 0.5,1,2; got 'one'"
        in refused.stderr.decode()
    )


def test_a_score_below_its_gate_ends_with_5_after_the_result(folder, tmp_path):
    arguments = (
        "score",
        folder / "x.npy",
        "--prompts",
        folder / "ids.npy",
        "--bandwidth-x",
        1,
        "--format",
        "csv",
    )
    value = float(dp.conditional_vendi(X, T, kernel_x=dp.Gaussian(1.0)))
    passed = run(
        *arguments, "--fail-under", f"conditional_vendi={value - 0.01}", "--fail-under", "vendi = 1"
    )
    assert (passed.returncode, passed.stderr) == (0, b"")
    failed = run(*arguments, "--fail-under", "vendi=1", "--fail-under", "conditional_vendi=30")
    assert (failed.returncode, failed.stdout) == (5, passed.stdout)
    assert (
        failed.stderr.decode()
        == f"divprism: conditional_vendi is {value:.4g}, below 30 (--fail-under).\n"
    )
    write(tmp_path, {"o.jsonl": jsonl(records(("one", "two")))})
    several = run("score", tmp_path / "o.jsonl", "-q", "--fail-under", "rke=30")
    assert several.returncode == 5 and several.stdout
    assert "below 30, as for 2 of 2 models (--fail-under)" in several.stderr.decode()


def test_a_gate_that_nothing_can_be_held_to_is_not_passed(folder):
    done = run("score", folder / "x.npy", "--fail-under", "conditional_vendi=1")
    assert done.returncode == 2
    assert (
        "--fail-under asks for conditional_vendi, which is not computed here: it needs prompts"
        in done.stderr.decode()
    )
    assert done.stdout == b""
    never = run(
        "score", folder / "nowhere.npy", "--fail-under", "cluster_vendi=1"
    )  # refused before anything is read
    assert never.returncode == 2
    assert (
        "--fail-under asks for cluster_vendi, which is not computed here: it needs labels"
        in never.stderr.decode()
    )


def test_embed_writes_what_score_reads(tmp_path):
    write(tmp_path, {"o.jsonl": jsonl(records(("one", "two")))})
    done = run("embed", tmp_path / "o.jsonl", "-o", tmp_path / "vectors")
    assert (done.returncode, done.stdout.decode()) == (
        0,
        f"{tmp_path / 'vectors'}: outputs (8, 256), prompts (8, 256)\n",
    )
    first = json.loads(run("score", tmp_path / "o.jsonl", "--format", "json").stdout)["models"]
    later = json.loads(run("score", tmp_path / "vectors", "--format", "json").stdout)["models"]
    for name in first:
        assert first[name]["scores"] == later[name]["scores"]
        assert first[name]["embedders"] == later[name]["embedders"]
        assert first[name]["data"]["hash"] == later[name]["data"]["hash"]
    pairs = (tmp_path / "vectors" / "pairs.jsonl").read_bytes()
    assert [json.loads(line)["output"] for line in pairs.splitlines()] == [
        row["output"] for row in records(("one", "two"))
    ]


def test_the_cache_is_listed_checked_and_cleared(tmp_path):
    write(tmp_path, {"o.jsonl": jsonl(records())})
    where = ("--cache", tmp_path / "cache")
    run("embed", tmp_path / "o.jsonl", "-o", tmp_path / "v", *where)
    assert "wordllama: 6 items in 2 shards" in run("cache", "ls", *where).stdout.decode()
    assert run("cache", "verify", *where).stdout == b"2 shards, 6 items: all whole\n"
    shard = next((tmp_path / "cache").rglob("*.npz"))
    shard.write_bytes(shard.read_bytes()[:-1])
    done = run("cache", "verify", *where)
    assert done.returncode == 4
    assert b"do not match their checksum; removed" in done.stderr
    assert run("cache", "verify", *where).returncode == 0
    assert run("cache", "clear", "wordllama", *where).stdout == b"1 shards removed\n"


def test_the_demo_tells_its_three_generators_apart(tmp_path):
    done = run("demo", "--save", tmp_path, "--report", tmp_path / "report.html")
    assert done.returncode == 0, done.stderr
    rows = {
        line.split()[0]: line.split()
        for line in done.stdout.decode().splitlines()
        if " = " in line and " x " in line
    }
    conditional = {
        name: float(cells[3]) for name, cells in rows.items() if name in ("parrot", "clerk", "poet")
    }
    information = {
        name: float(cells[5]) for name, cells in rows.items() if name in ("parrot", "clerk", "poet")
    }
    assert conditional["parrot"] < conditional["clerk"] < conditional["poet"]
    assert information["parrot"] == 1
    assert information["clerk"] > 5
    again = run(
        "score",
        tmp_path / "generators.jsonl",
        "--bandwidth-x",
        0.8,
        "--bandwidth-t",
        0.4,
        "--format",
        "csv",
    )
    (value,) = (
        line.split(",")[3]
        for line in again.stdout.decode().splitlines()
        if line.startswith("poet,conditional_vendi")
    )
    assert round(float(value), 2) == conditional["poet"]


REFUSALS = [
    (("--order", "-1"), 2, "`order` must be positive"),
    (("--truncation", "0"), 2, "`truncation` must be a whole number"),
    (("--kernel-x", "laplace"), 2, "there is no kernel 'laplace'; choose from gaussian"),
    (
        ("--kernel-x", "cosine", "--bandwidth-x", "3"),
        2,
        "--bandwidth-x goes with the gaussian kernel",
    ),
    (("--estimator", "guess"), 2, "there is no estimator 'guess'"),
    (("--estimator", "dual"), 2, "Dual() needs a finite feature map"),
    (("--bandwidth-rule", "mean"), 2, "there is no bandwidth rule 'mean'"),
    (
        ("--prompts", "ids.npy", "--kernel-t", "gaussian"),
        2,
        "--kernel-t gaussian needs a row of numbers per prompt",
    ),
    (("--kernel-x", 'polynomial(scale="a")'), 2, "`scale` must be positive"),
    (
        ("--fail-under", "vendi=nan"),
        2,
        "--fail-under must be a score and a number, as conditional_vendi=4.5; got 'vendi=nan'",
    ),
    (("--fail-under", "size=2"), 2, "there is no score 'size' (--fail-under); choose from vendi"),
    (("--format", "xml"), 2, "--format must be one of table, json, csv, md, latex"),
    (
        ("--prompts", "-", "--weights", "-"),
        2,
        "only one of IN, --prompts, --labels and --weights can be -",
    ),
    (("--flavour", "mint"), 2, "No such option"),
    (("also.npy",), 2, "name the outputs once: divprism score IN, or --outputs IN"),
    (
        ("--embedder-x", "word2vec"),
        2,
        "there is no embedder 'word2vec'; choose from wordllama, efficientnet-lite0",
    ),
    (("--embedder-x", "wordllama"), 2, "`embedder_x` was given, but the outputs are vectors"),
    (
        ("--embedder-x", "wordllama:large"),
        2,
        "embedder wordllama takes nothing after a colon; got 'large'",
    ),
    (("--embedder-x", "transformers"), 2, "embedder transformers needs its model after a colon"),
    (
        ("--device", "cuda"),
        2,
        "--device is for models that run on torch; name one: --embedder-x, --embedder-t",
    ),
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
def test_refusals_have_an_exit_code_and_no_traceback(flags, code, message, folder):
    done = run("score", "--outputs", folder / "x.npy", *flags, cwd=folder)
    assert done.returncode == code
    assert message in done.stderr.decode()
    assert b"Traceback" not in done.stderr
    assert done.stdout == b""


ELSEWHERE = [
    (
        ("bandwidth", "x.npy", "--kernel-x", "cosine"),
        2,
        "a sweep is over Gaussian bandwidths: leave out --kernel-x",
    ),
    (
        ("bandwidth", "x.npy", "--prompts", "ids.npy"),
        2,
        "these prompts are ids, which have no bandwidth",
    ),
    (
        ("bandwidth", "x.npy", "--model", "one"),
        2,
        "--model one: x.npy does not say which model made an output",
    ),
    (("bandwidth", "x.npy", "--max-rows", "1"), 2, "--max-rows"),
    (("compare", "a/x.npy", "a/x.npy"), 4, "a comparison needs at least two models"),
    (
        ("compare", "o.jsonl", "twin.jsonl"),
        2,
        "two of the sources have the same name; say which model each holds",
    ),
    (("compare", "o.jsonl", "--by", "size"), 2, "`by` must be one of vendi, conditional_vendi"),
    (
        ("compare", "several.jsonl", "--interval", "0"),
        2,
        "`interval` must be a level between 0 and 1, such as 0.95; got 0.0",
    ),
    (
        ("score", "several.jsonl", "--labels", "ids.npy"),
        2,
        "--labels and --weights belong to one model; this source holds several",
    ),
    (
        ("score", "x.npy", "--config", "nowhere.json"),
        4,
        "cannot read nowhere.json: No such file or directory",
    ),
    (
        ("converge", "x.npy", "--sizes", "2,4"),
        2,
        "`sizes` must name at least 3 sizes below all 40 outputs",
    ),
    (("demo", "--save", "x.npy"), 4, "cannot write to x.npy: File exists"),
]


@pytest.mark.parametrize(
    ("arguments", "code", "message"), ELSEWHERE, ids=[" ".join(words) for words, *_ in ELSEWHERE]
)
def test_every_command_refuses_in_one_sentence(arguments, code, message, folder):
    (folder / "a").mkdir(exist_ok=True)
    np.save(folder / "a" / "x.npy", X)
    rows = records(("one",))
    write(
        folder,
        {
            "o.jsonl": jsonl(rows),
            "twin.jsonl": jsonl(rows),
            "several.jsonl": jsonl(records(("one", "two"))),
        },
    )
    done = run(*arguments, cwd=folder)
    assert done.returncode == code, done.stderr
    assert message in done.stderr.decode()
    assert b"Traceback" not in done.stderr


def test_a_missing_extra_ends_with_three(monkeypatch, capsys):
    from divprism import cli

    def refuse():
        raise dp.MissingExtraError("install it")

    monkeypatch.setattr(cli, "app", refuse)
    with pytest.raises(SystemExit) as left:
        cli.main()
    assert left.value.code == 3
    assert capsys.readouterr().err == "divprism: install it\n"


def test_an_interruption_ends_with_130():
    call = [sys.executable, "-m", "divprism", "score", "--outputs", "-"]
    with subprocess.Popen(
        call, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        process.stdin.write(
            b"1,2\n" * 100_000
        )  # more than a pipe holds: once written, the command is reading
        process.stdin.flush()
        time.sleep(0.5)  # let it read all there is and wait for more
        process.send_signal(signal.SIGINT)
        errors = process.stderr.read()
        process.stdin.close()
    assert process.returncode == 130
    assert b"Traceback" not in errors


def test_ls_lists_what_the_registry_holds():
    from divprism.scores import registry

    for kind, table in (
        ("kernels", registry.KERNELS),
        ("estimators", registry.ESTIMATORS),
        ("scores", registry.SCORES),
    ):
        lines = run("ls", kind).stdout.decode().splitlines()
        assert [line.split("(")[0].split()[0] for line in lines] == list(table)
    text = run("ls", "embedders").stdout.decode()
    assert [line.split()[0].split(":")[0] for line in text.splitlines()] == [
        *registry.EMBEDDERS,
        *registry.ALIASES,
    ]
    assert run("ls", "colours").returncode == 2


def test_doctor_names_versions():
    text = run("doctor").stdout.decode()
    assert f"divprism {dp.__version__}" in text
    assert f"numpy {np.__version__}" in text
    assert "scikit-learn" in text


def test_version_and_help():
    assert run("--version").stdout.decode().strip() == dp.__version__
    for command in (
        [],
        ["score"],
        ["embed"],
        ["cache"],
        ["cache", "verify"],
        ["demo"],
        ["ls"],
        ["doctor"],
    ):
        done = run(*command, "--help")
        assert done.returncode == 0
        assert b"Usage" in done.stdout
