"""The GitHub Action: its steps run in bash with the environment that GitHub would give them."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import yaml

import divprism as dp
from divprism.integrations.github import job_outputs, job_summary

ROOT = Path(dp.__file__).parents[2]
ACTION = yaml.safe_load((ROOT / "action.yml").read_text())
INSTALL, SCORE = ACTION["runs"]["steps"]
# An input that would run a command wherever a shell took it for a part of the program.
HOSTILE = "`touch here`$(touch here)\"; touch here; '; touch here\n touch here #"


def environment(step, **inputs):
    """The variables of a step, with inputs in place of their expressions."""
    values = {name: spec.get("default", "") for name, spec in ACTION["inputs"].items()} | inputs
    variables = {}
    for name, expression in step["env"].items():
        [key] = re.fullmatch(r"\$\{\{ inputs\.(\w+) \}\}", expression).groups()
        variables[name] = values[key]
    return variables


def script(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/bash\n{text}\n")
    path.chmod(0o755)


@pytest.fixture
def run(tmp_path):
    """Runs a step in a folder of its own, as GitHub calls bash; `python` is this interpreter."""
    work = tmp_path / "work"
    work.mkdir()
    script(tmp_path / "divprism" / "bin" / "python", f'exec "{sys.executable}" "$@"')
    source = str(Path(dp.__file__).parents[1])

    def run_step(step, **inputs):
        variables = {
            **os.environ,
            "PYTHONPATH": source,
            "RUNNER_TEMP": str(tmp_path),
            "GITHUB_ACTION_PATH": "/actions/divprism",
            "GITHUB_STEP_SUMMARY": str(tmp_path / "summary.md"),
            "GITHUB_OUTPUT": str(tmp_path / "output"),
        }
        command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]]
        return subprocess.run(
            command,
            env=variables | environment(step, **inputs),
            cwd=work,
            capture_output=True,
            text=True,
        )

    return run_step


@pytest.fixture
def answers(tmp_path):
    """Two models with vectors: a name that would be markup, and five distinct outputs or one."""
    path = tmp_path / "work" / "my answers.jsonl"

    def write(kinds):
        rows = []
        for model, count in kinds.items():
            for i in range(20):
                output = np.eye(5)[i % count].tolist()
                rows.append({"model": model, "prompt": f"p{i // 5}", "output": output})
        path.write_text("\n".join(map(json.dumps, rows)))
        return path.name

    return write


def outputs(tmp_path):
    lines = (tmp_path / "output").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines)


def test_inputs_reach_the_shell_in_the_environment_only():
    for step in ACTION["runs"]["steps"]:
        assert "${{" not in step["run"]
        assert step["shell"] == "bash"
    used = re.findall(r"inputs\.(\w+)", (ROOT / "action.yml").read_text())
    assert sorted(used) == sorted(ACTION["inputs"])
    for output in ACTION["outputs"].values():
        assert re.fullmatch(r"\$\{\{ steps\.score\.outputs\.\w+ \}\}", output["value"])


def test_a_score_above_its_limit_passes(run, answers, tmp_path):
    done = run(SCORE, file=answers({"a": 5}), threshold="2", arguments="--kernel-x=cosine\n\n")
    assert done.returncode == 0, done.stderr
    found = outputs(tmp_path)
    assert sorted(found) == sorted(ACTION["outputs"])
    assert json.loads(found["result"]) == json.loads(Path(found["file"]).read_text())
    assert float(found["value"]) == pytest.approx(5)
    summary = (tmp_path / "summary.md").read_text()
    assert summary.startswith("### Diversity\n\n")
    assert "| conditional\\_vendi | 5.0000 |" in summary


def test_a_score_below_its_limit_fails_after_its_table_is_shown(run, answers, tmp_path):
    file = answers({"a": 5, "<b>|": 1})
    done = run(SCORE, file=file, score="vendi", threshold="3.5", arguments="--kernel-x=cosine")
    assert done.returncode == 5
    assert "vendi of <b>| is 1, below 3.5" in done.stderr
    assert float(outputs(tmp_path)["value"]) == pytest.approx(1)
    summary = (tmp_path / "summary.md").read_text()
    assert summary.startswith("### Diversity: too low\n\n")
    assert "below 3.5" in summary
    # Two rows below the head and the rule; names are no markup.
    rows = [line for line in summary.splitlines() if line.startswith("| ")]
    assert len(rows) == 3
    assert "&lt;b>\\|" in summary
    assert "<b>" not in summary


def test_the_bandwidths_of_an_accepted_run_are_used(run, answers, tmp_path):
    rng = np.random.default_rng(0)
    accepted = dp.evaluate(rng.standard_normal((20, 5)), np.repeat(np.arange(4), 5))
    accepted.save(tmp_path / "work" / "baseline.json")
    done = run(SCORE, file=answers({"a": 5}), config="baseline.json", threshold="1")
    assert done.returncode == 0, done.stderr
    settings = json.loads(outputs(tmp_path)["result"])["settings"]
    assert settings["bandwidth_x"] == accepted.settings.kernel_x.bandwidth


def test_prompts_may_be_in_a_file_of_their_own(run, tmp_path):
    np.save(tmp_path / "work" / "x.npy", np.eye(20))
    np.save(tmp_path / "work" / "t.npy", np.repeat(np.arange(4), 5))
    done = run(SCORE, file="x.npy", prompts="t.npy", arguments="--kernel-x\ncosine")
    assert done.returncode == 0, done.stderr
    assert float(outputs(tmp_path)["value"]) == pytest.approx(5)


def test_without_a_limit_nothing_fails(run, answers):
    assert run(SCORE, file=answers({"a": 1}), arguments="--kernel-x=cosine").returncode == 0


def test_data_that_cannot_be_scored_fail_with_a_sentence(run, tmp_path):
    done = run(SCORE, file="missing.jsonl", threshold="3")
    assert done.returncode == 4
    summary = (tmp_path / "summary.md").read_text()
    assert summary.startswith("### Diversity: not scored\n\ndivprism: ")
    assert not (tmp_path / "output").exists()


def test_no_input_of_scoring_runs_a_command(run, tmp_path):
    # All flags are built before the program starts, which then finds no such config.
    done = run(SCORE, **dict.fromkeys(set(ACTION["inputs"]) - {"version", "extras"}, HOSTILE))
    assert done.returncode == 4
    assert list((tmp_path / "work").iterdir()) == []
    done = run(SCORE, file=HOSTILE)
    assert done.returncode == 4
    assert "`touch here`$(touch here)" in done.stderr
    assert list((tmp_path / "work").iterdir()) == []


def test_modules_in_the_checkout_are_not_imported(run, answers, tmp_path):
    for name in ("numpy", "json", "divprism"):
        module = tmp_path / "work" / f"{name}.py"
        module.write_text("open('ran', 'w').close()\nraise SystemExit(7)\n")
    done = run(SCORE, file=answers({"a": 5}), threshold="2", arguments="--kernel-x=cosine")
    assert done.returncode == 0, done.stderr
    assert not (tmp_path / "work" / "ran").exists()


def test_a_file_that_looks_like_a_flag_is_a_file(run):
    done = run(SCORE, file="--help")
    assert done.returncode == 4
    assert "--help" in done.stderr


# Installation, with programs that write down how they are called.


def calls_of_install(run, tmp_path, monkeypatch, **inputs):
    log = tmp_path / "log"
    for path in ("bin/python3", "divprism/bin/python"):
        script(tmp_path / path, f'printf "%s\\n" "$@" >> "{log}"')
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    done = run(INSTALL, **inputs)
    lines = []
    if log.exists():
        lines = log.read_text().splitlines()
    return done, lines


@pytest.mark.parametrize(
    ("inputs", "requirement"),
    [
        ({}, "/actions/divprism[text]"),
        ({"extras": "text,parquet"}, "/actions/divprism[text,parquet]"),
        ({"extras": ""}, "/actions/divprism"),
        ({"version": "1.2.3rc1", "extras": ""}, "divprism==1.2.3rc1"),
    ],
)
def test_what_is_installed(run, tmp_path, monkeypatch, inputs, requirement):
    done, calls = calls_of_install(run, tmp_path, monkeypatch, **inputs)
    assert done.returncode == 0
    venv = ["-I", "-m", "venv", str(tmp_path / "divprism")]
    assert calls == [*venv, "-I", "-m", "pip", "install", "--quiet", requirement]


@pytest.mark.parametrize("name", ["version", "extras"])
@pytest.mark.parametrize("text", [HOSTILE, "text] @ https://example.org/x.whl #", "1 2", ","])
def test_requirements_that_are_more_than_names_are_refused(run, tmp_path, monkeypatch, name, text):
    done, calls = calls_of_install(run, tmp_path, monkeypatch, **{name: text})
    assert done.returncode == 2
    assert "extras must be names" in done.stderr
    assert calls == []
    assert list((tmp_path / "work").iterdir()) == []


# The module behind it, and the documentation.


def test_names_of_models_add_no_outputs():
    document = {"models": {"a\nvalue=9\u2028": {"scores": {"vendi": {"value": 2.5}}}}}
    found = job_outputs(document, Path("result.json"), "vendi")
    assert len(found["result"].splitlines()) == 1
    assert json.loads(found["result"]) == document
    assert found["value"] == "2.5"
    assert job_outputs(document, Path("result.json"), "rke")["value"] == ""


def test_messages_are_no_markup():
    summary = job_summary(None, "a note\ndivprism: <img src=x> [a](b) *c*\n", 4)
    assert summary == ("### Diversity: not scored\n\ndivprism: &lt;img src=x> \\[a\\](b) \\*c\\*\n")


def test_workflows_in_the_documentation_use_inputs_that_exist():
    page = (ROOT / "docs" / "how-to" / "ci.md").read_text()
    steps = []
    for block in re.findall(r"```yaml\n(.*?)```", page, re.DOTALL):
        steps += [step for step in yaml.safe_load(block) if "divprism" in step.get("uses", "")]
    assert steps
    for step in steps:
        assert set(step["with"]) <= set(ACTION["inputs"])
