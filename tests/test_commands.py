"""The commands groups, compare and converge: what they print, write and refuse."""

import csv
import io
import json

import numpy as np
import pytest
from command_line import run
from sample_files import image_bytes, jsonl, records, write
from typer.testing import CliRunner

import divprism as dp
from divprism.cli import app
from divprism.report.tables import convergence_table

# --- groups


ANSWERS = {
    ("fruit", "food"): ["apple"] * 6,
    ("city", "places"): [
        *("Oslo", "Lima", "Cairo", "Quito", "Rome"),
        "Paris \\| ![x](y) <b> \x1b[31m",
    ],
    ("dish", "food"): ["soup"] * 3 + ["a long line\nof bread"] * 3,
    ("word", "rare"): ["yes"],
}


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    folder = tmp_path_factory.mktemp("groups")
    rows = []
    for model in ("first", "second"):
        for (kind, topic), answers in ANSWERS.items():
            row = {"model": model, "prompt": f"Name a {kind}.", "topic": topic}
            rows += [row | {"output": answer} for answer in answers]
    one = [row for row in rows if row["model"] == "first"]
    write(folder, {"all.jsonl": jsonl(rows), "one.jsonl": jsonl(one)})
    return folder


def test_the_table_starts_with_the_least_diverse_group(source):
    done = run("groups", source / "one.jsonl", "--by", "prompt", "--min-size", 5, "-q")
    assert (done.returncode, done.stderr) == (0, b"")
    text = done.stdout.decode()
    lines = text.splitlines()
    assert lines[0] == "19 pairs, 4 distinct prompts, 4 groups; least diverse first"
    assert lines[1].split() == ["vendi", "rke", "share", "n", "prompts", "and", "outputs"]
    assert lines[2].split() == ["1.00", "1.00", "31.6%", "6", "Name", "a", "fruit."]
    assert lines[3].split() == ["-", "100%", "apple"]
    assert text.index("Name a dish.") < text.index("Name a city.")
    assert "not shown: 1 group with fewer than 5 outputs" in lines
    assert "Name a word." not in text
    assert "below a group: the main kinds of its outputs, with their share of it" in text
    assert "against Conditional-Vendi" in text
    assert "exp(-d^2 / (2 bandwidth^2))" in text


def test_a_wide_table_of_groups_has_more_columns(source):
    wide = run("groups", source / "one.jsonl", "--by", "topic", "--wide", "-q").stdout.decode()
    heads = wide.splitlines()[1].split()
    assert heads[:3] == ["vendi", "of", "6"]
    assert heads[3:9] == ["vendi", "rke", "share", "n", "prompts", "error"]


def test_groups_of_different_sizes_are_compared_at_one_size(source):
    text = run("groups", source / "one.jsonl", "--by", "topic", "-q").stdout.decode()
    assert text.splitlines()[1].split()[:3] == ["vendi", "of", "6"]
    assert "vendi of 6: mean over random draws of 6 outputs" in text
    assert "food: Name a" in text


@pytest.mark.parametrize("form", ["table", "md", "latex"])
def test_untrusted_texts_cannot_control_the_terminal_or_break_the_table(source, form):
    flags = ("--by", "prompt", "--num-modes", 9, "--bandwidth-x", 0.1)
    done = run("groups", source / "one.jsonl", *flags, "--format", form, "-q")
    assert done.returncode == 0, done.stderr
    text = done.stdout.decode()
    assert "\x1b" not in text
    assert "a long line of bread" in text
    if form == "md":
        rows = [line for line in text.splitlines() if line.startswith("|")]
        bars = {line.replace("\\\\", "").replace("\\|", "").count("|") for line in rows}
        assert len(bars) == 1
        assert "![x]" not in text


def test_a_field_groups_the_outputs_and_json_holds_everything(source):
    flags = ("--model", "second", "--by", "topic", "--format", "json", "--nested")
    done = run("groups", source / "all.jsonl", *flags)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    sizes = {group["name"]: group["size"] for group in document["groups"]}
    assert sizes == {"food": 12, "places": 6, "rare": 1}
    assert document["data"]["model"] == "second"
    assert len(document["nested"]["sizes"]) == 3
    labels = ["food"] * 6 + ["places"] * 6 + ["food"] * 6 + ["rare"]
    samples = dp.load(source / "one.jsonl")
    right = dp.prompt_groups(samples, grouping=dp.LabelGrouping(labels))
    assert document["aggregate"] == pytest.approx(right.aggregate)
    assert document["cluster_vendi"] == pytest.approx(right.cluster_vendi)


def test_groups_are_exact_prompts_by_default_where_the_kernel_tells_them_apart(source):
    done = run("groups", source / "one.jsonl", "-q")
    exact = run("groups", source / "one.jsonl", "--by", "prompt", "-q").stdout.decode()
    note = (
        "grouped by exact prompt, by default: prompts have several outputs each, and the kernel "
        "tells them apart\n"
    )
    assert note in done.stdout.decode()
    assert done.stdout.decode().replace(note, "") == exact


def test_groups_are_those_of_the_kernel_where_it_does_not_tell_prompts_apart(source):
    flags = ("--bandwidth-t", 3, "--num-groups", 2, "-q")
    done = run("groups", source / "one.jsonl", *flags)
    kernel = run("groups", source / "one.jsonl", "--by", "eigen", *flags).stdout.decode()
    note = (
        "grouped by the similarity of prompts, by default: the kernel sees fewer than half as many "
        "kinds of prompt as prompts\n"
    )
    assert note in done.stdout.decode()
    assert done.stdout.decode().replace(note, "") == kernel


def test_rows_in_no_group_are_not_part_of_the_nested_subsets(tmp_path):
    """Three kinds of prompts, and three prompts unlike all others, too few for a direction."""
    t = np.concatenate([np.repeat(np.eye(6)[:3], 8, axis=0), 5 * np.eye(6)[3:]])
    np.save(tmp_path / "x.npy", np.random.default_rng(0).standard_normal((27, 2)))
    np.save(tmp_path / "t.npy", t)
    flags = ("--prompts", tmp_path / "t.npy", "--bandwidth-t", 0.3)
    flags += ("--by", "eigen", "--num-groups", 3)
    done = run("groups", tmp_path / "x.npy", *flags, "--nested", "--format", "json", "-q")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["nested"]["sizes"] == [8, 16, 24]


def test_csv_has_a_row_for_each_group(source):
    done = run("groups", source / "one.jsonl", "--by", "prompt", "--format", "csv", "-q")
    assert done.returncode == 0, done.stderr
    rows = list(csv.DictReader(io.StringIO(done.stdout.decode())))
    assert rows[0]["name"] == rows[0]["prompt"] == "Name a fruit."
    assert [row["small"] for row in rows] == ["False"] * 3 + ["True"]
    assert rows[0]["mode_1_output"] == "apple"
    assert float(rows[0]["mode_1_share"]) == pytest.approx(1)


def test_limit_and_labels_go_together_with_rows(source, tmp_path):
    np.save(tmp_path / "labels.npy", np.arange(12) % 2)
    call = ("groups", source / "all.jsonl", "--model", "first", "--limit", 12, "--format", "json")
    done = run(*call, "--labels", tmp_path / "labels.npy")
    assert done.returncode == 0, done.stderr
    assert [group["size"] for group in json.loads(done.stdout)["groups"]] == [6, 6]
    document = json.loads(run(*call, "--by", "topic").stdout)
    assert sorted(group["name"] for group in document["groups"]) == ["food", "places"]


def test_images_are_named_by_their_files(tmp_path):
    rows = [{"file": f"{number}.png", "prompt": "abc"[number % 3]} for number in range(9)]
    files = {f"{number}.png": image_bytes(number) for number in range(9)}
    write(tmp_path, {"metadata.jsonl": jsonl(rows), **files})
    done = run("groups", tmp_path, "--by", "prompt", "--min-size", 2, "-q")
    assert done.returncode == 0, done.stderr
    assert ".png" in done.stdout.decode()
    assert str(tmp_path) not in done.stdout.decode()


@pytest.mark.parametrize("way", ["eigen", "directions", "kmeans"])
def test_arrays_are_named_by_their_rows(tmp_path, way):
    prompts = np.arange(12) // 6
    np.save(tmp_path / "x.npy", np.eye(12)[np.where(prompts == 0, 0, np.arange(12))])
    np.save(tmp_path / "t.npy", np.eye(2)[prompts])
    flags = ("--prompts", tmp_path / "t.npy", "--by", way, "--num-groups", 2)
    done = run("groups", tmp_path / "x.npy", *flags)
    assert done.returncode == 0, done.stderr
    assert "row " in done.stdout.decode()


def test_groups_that_are_all_too_small_are_reported(source):
    call = ("groups", source / "one.jsonl", "--by", "prompt", "--min-size", 50, "-q")
    for form in ("table", "csv", "md", "json"):
        done = run(*call, "--num-modes", 0, "--format", form)
        assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["num_small"] == 4
    assert "not shown: 4 groups with fewer than 50 outputs" in run(*call).stdout.decode()


def test_what_is_not_shown_is_reported(source):
    """Groups beyond --top, small ones, the gap, and the nested subsets behind a correlation."""
    flags = ("--by", "prompt", "--top", 1, "--min-size", 2, "--bandwidth-t", 5, "--nested", "-q")
    lines = run("groups", source / "one.jsonl", *flags).stdout.decode().splitlines()
    assert "not shown: 2 more groups" in lines
    assert "not shown: 1 group with fewer than 2 outputs" in lines
    fewer = "kinds among 4 prompts, fewer than the 4 groups: it also compares outputs of different"
    assert any(fewer in line for line in lines)
    start = "Conditional against Cluster over 4 nested subsets: Vendi: Pearson "
    assert any(line.startswith(start) for line in lines)
    flags = ("--by", "directions", "--num-groups", 2, "--min-size", 2, "-q")
    few = run("groups", source / "one.jsonl", *flags).stdout.decode()
    assert "the groups contain " in few and " of all outputs" in few


REFUSED_GROUPS = [
    ((), "name the outputs: a file or folder"),
    (("all.jsonl",), "--model must be one of the models of all.jsonl: first, second."),
    (
        ("all.jsonl", "--model", "third"),
        "--model must be one of the models of all.jsonl: first, second",
    ),
    (
        ("one.jsonl", "--by", "colour"),
        "--by must be auto, eigen, directions, prompt, kmeans or a field; got colour",
    ),
    (("one.jsonl", "--format", "xml"), "--format must be one of table, json, csv, md, latex"),
    (("one.jsonl", "--by", "directions", "--nested"), "--nested needs groups that do not overlap"),
    (
        ("one.jsonl", "--by", "kmeans", "--num-groups", "9"),
        "--num-groups must be a whole number from 1 to",
    ),
]


@pytest.mark.parametrize(("arguments", "message"), REFUSED_GROUPS)
def test_groups_refuses_in_one_sentence(source, arguments, message):
    done = run("groups", *arguments, "-q", cwd=source)
    assert done.returncode == 2
    assert message in done.stderr.decode()
    assert len(done.stderr.decode().splitlines()) == 1
    assert done.stdout == b""


def test_a_field_of_standard_input_is_refused(source):
    done = run("groups", "-", "--by", "topic", stdin=(source / "one.jsonl").read_bytes())
    assert done.returncode == 2
    assert b"standard input" in done.stderr


# --- compare


def _texts():
    """One model varies its answers, two do not; they differ in length."""
    rows = []
    for model, length in (("free", 1), ("fixed", 5), ("third", 3)):
        for prompt in ("cats", "dogs", "ships", "trees"):
            for answer in ("sleep", "run", "burn", "grow"):
                verb = answer if model == "free" else "always"
                text = f"{prompt} {verb} " + "very " * length
                rows.append({"model": model, "prompt": prompt, "output": text})
    return rows


BANDWIDTHS = ("--bandwidth-x", 0.5, "--bandwidth-t", 0.5)


def test_compare_ranks_and_reports_the_length_of_outputs(tmp_path):
    write(tmp_path, {"o.jsonl": jsonl(_texts())})
    call = ("compare", tmp_path / "o.jsonl", *BANDWIDTHS)
    done = run(*call, "-q")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.decode().splitlines()
    assert lines[0].split()[:3] == ["model", "rank", "n"] and lines[0].split()[-1] == "words"
    assert lines[1].split()[:2] == ["free", "1"]
    assert "Spearman" not in done.stdout.decode()  # three models are too few for a correlation
    found = json.loads(run(*call, "--format", "json").stdout)
    assert set(found["models"]) == {"free", "fixed", "third"} and len(found["differences"]) == 3
    for form in ("md", "latex"):
        assert "free" in run(*call, "--format", form).stdout.decode()


def test_compare_writes_all_scores_with_intervals_as_csv(tmp_path):
    write(tmp_path, {"o.jsonl": jsonl(_texts())})
    call = ("compare", tmp_path / "o.jsonl", *BANDWIDTHS, "--format")
    rows = list(csv.DictReader(io.StringIO(run(*call, "csv").stdout.decode())))
    document = json.loads(run(*call, "json").stdout)
    assert [row["model"] for row in rows] == list(document["models"])
    for row in rows:
        scores = document["models"][row["model"]]["scores"]
        for name, score in scores.items():
            assert float(row[name]) == score["value"]
        for name in ("vendi", "conditional_vendi", "information_vendi", "rke", "conditional_rke"):
            ends = float(row[f"{name}_low"]), float(row[f"{name}_high"])
            assert ends == (scores[name]["interval"]["low"], scores[name]["interval"]["high"])


def test_a_source_without_models_is_named_by_the_part_of_its_path_that_differs(tmp_path):
    rows = _texts()
    for model in ("free", "fixed"):
        part = [
            {"prompt": row["prompt"], "output": row["output"]}
            for row in rows
            if row["model"] == model
        ]
        write(tmp_path, {f"{model}.jsonl": jsonl(part), f"{model}/out.jsonl": jsonl(part)})
    for sources in (("free.jsonl", "fixed.jsonl"), ("free/out.jsonl", "fixed/out.jsonl")):
        done = run("compare", *(tmp_path / source for source in sources), *BANDWIDTHS)
        names = [line.split()[0] for line in done.stdout.decode().splitlines()[1:3]]
        assert names == [source.removesuffix("/out.jsonl") for source in sources]


def test_gates_end_with_exit_code_5_after_the_result(tmp_path):
    write(tmp_path, {"o.jsonl": jsonl(_texts())})
    arguments = ("compare", tmp_path / "o.jsonl", "-q", *BANDWIDTHS)
    low = run(*arguments, "--fail-under", "conditional_vendi=1.5")
    assert low.returncode == 5 and low.stdout
    assert "below 1.5, as for 2 of 3 models (--fail-under)" in low.stderr.decode()
    assert run(*arguments, "--fail-under", "vendi=1.0").returncode == 0
    assert run(*arguments, "--fail-under", "vendi").returncode == 2
    never = run(*arguments, "--fail-under", "cluster_vendi=1")
    assert (never.returncode, never.stdout) == (2, b"")
    message = "--fail-under cluster_vendi cannot be checked: the score needs labels"
    assert message in never.stderr.decode()
    unknown = run(*arguments, "--fail-under", "size=2").stderr.decode()
    assert "--fail-under must be one of vendi, conditional_vendi" in unknown


# --- converge


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("files")
    np.save(path / "x.npy", np.random.default_rng(0).standard_normal((40, 3)))
    np.save(path / "ids.npy", np.arange(40) // 4)
    return path


def test_converge_prints_the_table_of_the_library(folder):
    flags = ("--prompts", folder / "ids.npy", "--num-repeats", 2, "--order", 1.5, "-q")
    done = run("converge", folder / "x.npy", *flags)
    assert done.returncode == 0, done.stderr
    x, t = np.load(folder / "x.npy"), np.load(folder / "ids.npy")
    result = dp.converge(x, t, num_repeats=2, order=1.5).to_dict()
    assert done.stdout.decode() == convergence_table(result).to_text()
    wide = run("converge", folder / "x.npy", *flags, "--wide").stdout.decode()
    assert len(wide.splitlines()[0].split()) == 1 + len(result["sizes"])


def test_converge_writes_json_and_csv(folder, tmp_path):
    flags = ("--sizes", "5,10,20", "--kernel-x", "cosine", "--truncation", 3, "-q")
    call = ("converge", folder / "x.npy", *flags)
    assert run(*call, "--format", "json", "-o", tmp_path / "r.json").returncode == 0
    document = json.loads((tmp_path / "r.json").read_text())
    assert document["sizes"] == [5, 10, 20, 40]
    assert document["settings"]["truncation"] == 3
    assert document["data"]["source"].endswith("x.npy")
    rows = list(csv.DictReader(io.StringIO(run(*call, "--format", "csv").stdout.decode())))
    curves = ["vendi", "rke", "truncated_vendi"]
    assert [row["score"] for row in rows] == [name for name in curves for _ in range(4)]
    assert float(rows[3]["mean"]) == document["means"]["vendi"][-1]
    assert (rows[3]["size"], float(rows[3]["outputs"])) == ("40", 40.0)


def test_too_few_prompts_for_a_curve_are_refused_in_flags(tmp_path):
    rows = [{"prompt": f"p{row // 4}", "output": f"answer {row}"} for row in range(20)]
    write(tmp_path, {"o.jsonl": jsonl(rows)})
    done = run("converge", tmp_path / "o.jsonl", "--unit", "prompt", "-q")
    assert done.returncode == 4
    assert "there are 5. Resample pairs (--unit pair)." in done.stderr.decode()


def test_converge_needs_one_model(tmp_path):
    rows = []
    for number in range(6):
        for row in records(("one", "t\nwo")):
            rows.append(row | {"output": f"{row['output']} {number}"})
    write(tmp_path, {"o.jsonl": jsonl(rows)})
    call = ("converge", tmp_path / "o.jsonl", "-q")
    for flags in ((), ("--model", "three")):
        refused = run(*call, *flags)
        assert refused.returncode == 2
        message = f"--model must be one of the models of {tmp_path / 'o.jsonl'}: one, 't\\nwo'."
        assert message in refused.stderr.decode()
    done = run(*call, "--model", "one", "--format", "json", "--kernel-t", "categorical")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert (document["n"], document["data"]["model"]) == (24, "one")
    assert [entry["side"] for entry in document["embedders"]] == ["x"]


@pytest.mark.parametrize("flags", [("--bandwidth-rule", "stable"), ("--normalize",)], ids=" ".join)
def test_flags_replace_what_the_bandwidths_of_a_config_were_chosen_for(flags, folder, tmp_path):
    call = ("score", folder / "x.npy", "--format", "json", "-q")
    run(*call, "-o", tmp_path / "a.json")
    with_config = run(*call, "--config", tmp_path / "a.json", *flags)
    alone = run(*call, *flags)
    assert json.loads(with_config.stdout)["scores"] == json.loads(alone.stdout)["scores"]
    kept = run(*call, "--config", tmp_path / "a.json", *flags, "--bandwidth-x", 3)
    assert json.loads(kept.stdout)["settings"]["bandwidth_x"] == 3


def test_a_curve_is_a_config(folder, tmp_path):
    call = ("converge", folder / "x.npy", "--format", "json", "-q", "-o")
    run(*call, tmp_path / "a.json", "--bandwidth-x", 2, "--sizes", "5,10,20", "--rng", 3)
    done = run(*call, tmp_path / "b.json", "--config", tmp_path / "a.json")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "a.json").read_text() == (tmp_path / "b.json").read_text()
    run(*call, tmp_path / "c.json", "--config", tmp_path / "a.json", "--kernel-x", "cosine")
    settings = json.loads((tmp_path / "c.json").read_text())["settings"]
    assert (settings["kernel_x"], settings["bandwidth_x"]) == ("cosine", None)
    assert settings["sizes"] == [5, 10, 20, 40]


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ((), "name the outputs: a file or folder, or - for stdin."),
        (("-", "--prompts", "-"), "only one of IN and --prompts can be -"),
        (
            ("x.npy", "--sizes", "5;10"),
            "--sizes must be numbers separated by commas; got '5;10'",
        ),
        (("x.npy", "--format", "xml"), "--format must be one of table, json, csv"),
        (("x.npy", "--unit", "word"), "--unit must be pair or prompt"),
    ],
)
def test_converge_refuses_in_one_sentence(folder, flags, message):
    done = run("converge", *flags, cwd=folder)
    assert (done.returncode, done.stdout) == (2, b"")
    assert message in done.stderr.decode()


# --- flags whose values are lists


@pytest.mark.parametrize("text", ["true", "null", '"a"', "[1]", "1,[2]"])
def test_what_json_holds_beside_numbers_is_no_list_of_numbers(text, tmp_path):
    write(tmp_path, {"in.jsonl": b""})
    done = run("bandwidth", tmp_path / "in.jsonl", "--bandwidths-x", text)
    assert done.returncode == 2, done.stderr
    assert b"--bandwidths-x must be numbers separated by commas; got" in done.stderr


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["0.8"], b"--quality must be MODEL=NUMBER, such as first=0.8; got 0.8."),
        (["=0.8"], b"--quality must be MODEL=NUMBER, such as first=0.8; got =0.8."),
        (["a=0.8", "a=0.1"], b"--quality gives a model two numbers: a."),
    ],
)
def test_qualities_that_name_no_model_or_one_twice_are_refused(given, message, tmp_path):
    rows = [{"prompt": "p", "output": f"text {row}"} for row in range(3)]
    write(tmp_path, {"a.jsonl": jsonl(rows), "b.jsonl": jsonl(rows)})
    flags = [part for text in given for part in ("--quality", text)]
    done = run("mix", "a.jsonl", "b.jsonl", *flags, cwd=tmp_path)
    assert done.returncode == 2 and message in done.stderr, done.stderr


# --- what a command says about failures that are nobody's argument


@pytest.mark.parametrize(
    ("problem", "code", "message"),
    [
        (OSError(11, "no more processes"), 4, "divprism: no more processes.\n"),
        (OSError(5, "broken", "a.txt"), 4, "divprism: cannot use a.txt: broken.\n"),
        (RecursionError(), 4, "divprism: the input is nested too deeply.\n"),
        (MemoryError(), 1, "divprism: there is not enough memory for this.\n"),
    ],
)
def test_failures_of_the_system_are_named_as_what_they_are(problem, code, message, monkeypatch):
    def fail(kind):
        raise problem

    monkeypatch.setattr("divprism.cli.installation.choice_lines", fail)
    done = CliRunner().invoke(app, ["ls", "kernels"])
    assert (done.exit_code, done.stderr) == (code, message)


def test_a_difference_takes_no_quality_that_it_would_not_use(tmp_path):
    write(tmp_path, {"a.jsonl": jsonl([{"output": "text", "q": 1}])})
    done = run("diff", "a.jsonl", "--reference", "a.jsonl", "--quality-field", "q", cwd=tmp_path)
    assert done.returncode == 2
    assert b"No such option" in done.stderr and b"--quality-field" in done.stderr
