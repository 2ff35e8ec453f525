"""The command line as a user meets it: a process, its two streams and its exit code."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import divprism as dp

X = np.random.default_rng(0).standard_normal((40, 3))
T = np.arange(40) // 4


def run(*arguments, stdin=b"", cwd=None):
    call = [sys.executable, "-m", "divprism", *map(str, arguments)]
    return subprocess.run(call, input=stdin, capture_output=True, cwd=cwd, timeout=120)


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
    done = run("score", "--outputs", source, "--prompts", folder / "t.npy", "--format", "json", stdin=stdin)
    assert done.returncode == 0, done.stderr
    right = dp.evaluate(X, np.eye(10)[T])
    found = json.loads(done.stdout)
    assert {name: entry["value"] for name, entry in found["scores"].items()} == pytest.approx(
        {name: float(score) for name, score in right.scores.items()}, rel=1e-12
    )


def test_a_result_is_a_config(folder, tmp_path):
    first = run(
        *("score", "--outputs", folder / "x.npy", "--prompts", folder / "t.npy", "--order", "inf", "--truncation", 7),
        *("--kernel-x", "polynomial(degree=2)", "--bandwidth-t", 0.75, "--format", "json", "-o", tmp_path / "r.json"),
    )
    assert (first.returncode, first.stdout, first.stderr) == (0, b"", b"")
    saved = json.loads((tmp_path / "r.json").read_text())
    arguments = ("score", "--outputs", folder / "x.npy", "--prompts", folder / "t.npy", "--format", "json")
    again = json.loads(run(*arguments, "--config", tmp_path / "r.json").stdout)
    assert again["scores"] == saved["scores"]
    assert again["settings"] == saved["settings"]
    flag_wins = json.loads(run(*arguments, "--config", tmp_path / "r.json", "--order", "2").stdout)
    assert flag_wins["settings"]["order"] == 2.0
    assert flag_wins["settings"]["truncation"] == 7


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
    (tmp_path / "c.json").write_text(json.dumps({"outputs": str(folder / "x.npy"), "kernel-x": "cosine", "format": "csv"}))
    done = run("score", "--config", tmp_path / "c.json")
    assert done.returncode == 0, done.stderr
    assert done.stdout.decode().splitlines()[0] == "score,n,value,standard_error,entropy,order,truncation,method"


@pytest.mark.parametrize(
    ("content", "message", "code"),
    [
        ('{"colour": 1}', "sets 'colour', which score does not know", 2),
        ("[1]", "must hold a JSON object; it holds a list", 4),
        ("{", "is not a JSON file", 4),
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
        done = run("score", "--outputs", folder / "x.npy", "--prompts", folder / "ids.npy", "--format", form)
        assert done.returncode == 0, done.stderr
        return done.stdout.decode()

    value = f"{float(dp.vendi(X)):.4f}"
    assert f"| vendi | {value} | exact |" in rendered("md")
    assert rf"conditional\_vendi & {float(dp.conditional_vendi(X, T)):.4f} & exact \\" in rendered("latex")
    lines = rendered("csv").splitlines()
    assert len(lines) == 7
    assert lines[1].startswith(f"vendi,40,{float(dp.vendi(X))!r}")


def test_labels_and_weights(folder, tmp_path):
    np.save(tmp_path / "w.npy", np.full(40, 1 / 40))
    done = run(
        *("score", "--outputs", folder / "x.npy", "--labels", folder / "ids.npy"),
        *("--weights", tmp_path / "w.npy", "--format", "json"),
    )
    assert json.loads(done.stdout)["scores"]["cluster_vendi"]["value"] == pytest.approx(float(dp.cluster_vendi(X, T)))


def test_warnings_go_to_stderr(folder, tmp_path):
    np.save(tmp_path / "texts.npy", np.array(["a dog", "a cat"] * 20))
    done = run("score", "--outputs", folder / "x.npy", "--prompts", tmp_path / "texts.npy", "--format", "json")
    assert done.stderr.startswith(b"warning: Prompts are texts")
    assert json.loads(done.stdout)["warnings"]


REFUSALS = [
    (("--order", "-1"), 2, "`order` must be positive"),
    (("--truncation", "0"), 2, "`truncation` must be a whole number"),
    (("--kernel-x", "laplace"), 2, "there is no kernel 'laplace'; choose from gaussian"),
    (("--kernel-x", "cosine", "--bandwidth-x", "3"), 2, "--bandwidth-x goes with the gaussian kernel"),
    (("--estimator", "guess"), 2, "there is no estimator 'guess'"),
    (("--estimator", "dual"), 2, "Dual() needs a finite feature map"),
    (("--bandwidth-rule", "mean"), 2, "there is no bandwidth rule 'mean'"),
    (("--prompts", "ids.npy", "--kernel-t", "gaussian"), 2, "--kernel-t gaussian needs a row of numbers per prompt"),
    (("--kernel-x", 'polynomial(scale="a")'), 2, "`scale` must be positive"),
    (("--format", "xml"), 2, "--format must be one of table, json, csv, md, latex"),
    (("--prompts", "-", "--weights", "-"), 2, "only one of --outputs, --prompts, --labels and --weights can be -"),
    (("--flavour", "mint"), 2, "No such option"),
    (("--prompts", "nowhere.npy"), 4, "cannot read nowhere.npy: No such file or directory"),
    (("--kernel-x", "precomputed"), 4, "must be a square kernel matrix"),
    (("-o", "no/such/folder/r.txt"), 4, "cannot write no/such/folder/r.txt: No such file or directory"),
]


@pytest.mark.parametrize(("flags", "code", "message"), REFUSALS, ids=[" ".join(flags) for flags, *_ in REFUSALS])
def test_refusals_have_an_exit_code_and_no_traceback(flags, code, message, folder):
    done = run("score", "--outputs", folder / "x.npy", *flags, cwd=folder)
    assert done.returncode == code
    assert message in done.stderr.decode()
    assert b"Traceback" not in done.stderr
    assert done.stdout == b""


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
    with subprocess.Popen(call, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdin.write(b"1,2\n" * 100_000)  # more than a pipe holds: once written, the command is reading
        process.stdin.flush()
        time.sleep(0.5)  # let it read all there is and wait for more
        process.send_signal(signal.SIGINT)
        errors = process.stderr.read()
        process.stdin.close()
    assert process.returncode == 130
    assert b"Traceback" not in errors


def test_ls_lists_what_the_registry_holds():
    from divprism import registry

    for kind, table in (("kernels", registry.KERNELS), ("estimators", registry.ESTIMATORS), ("scores", registry.SCORES)):
        lines = run("ls", kind).stdout.decode().splitlines()
        assert [line.split("(")[0].split()[0] for line in lines] == list(table)
    assert run("ls", "colours").returncode == 2


def test_doctor_names_versions():
    text = run("doctor").stdout.decode()
    assert f"divprism {dp.__version__}" in text
    assert f"numpy {np.__version__}" in text
    assert "scikit-learn" in text


def test_version_and_help():
    assert run("--version").stdout.decode().strip() == dp.__version__
    for command in ([], ["score"], ["demo"], ["ls"], ["doctor"]):
        done = run(*command, "--help")
        assert done.returncode == 0
        assert b"Usage" in done.stdout
