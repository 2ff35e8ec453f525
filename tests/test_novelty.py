"""Novelty against a reference, near-copies, and the command that shows both."""

import csv
import io
import json
import sys

import numpy as np
import pytest
from command_line import run
from sample_files import image_bytes, jsonl, write

import divprism as dp
from divprism.analysis.differences.chance import Chance
from divprism.core.nearest import nearest_rows

QUICK = {"num_permutations": 19}
COSINE = {"kernel_x": dp.Cosine()}


def normal(size, seed, width=6):
    return np.random.default_rng(seed).standard_normal((size, width))


# --- laws on paper


def test_entropic_novelty_of_unrelated_kinds_is_known():
    """Half of the outputs are two kinds, 0.3 and 0.2, that the reference does not hold."""
    x = np.eye(4)[[0] * 5 + [1] * 3 + [2] * 2]
    reference = np.eye(4)[[0] * 5 + [3] * 5]
    found = dp.novelty(x, reference, **COSINE, **QUICK)
    assert [mode.eigenvalue for mode in found.modes] == pytest.approx([0.3, 0.2], abs=1e-12)
    assert found.total == pytest.approx(0.5, abs=1e-12)
    ken = 0.3 * np.log(0.5 / 0.3) + 0.2 * np.log(0.5 / 0.2)
    assert found.ken == pytest.approx(ken, abs=1e-12)
    assert found.num_kinds == pytest.approx(np.exp(ken / 0.5), abs=1e-12)
    assert {mode.model for mode in found.modes} == {"outputs"}


def test_a_ratio_leaves_only_what_is_that_much_more_frequent():
    x, reference = np.eye(3)[[0] * 6 + [1] * 4], np.eye(3)[[0] * 2 + [1] * 8]
    found = dp.novelty(x, reference, ratio=2.0, **COSINE, **QUICK)
    assert [mode.eigenvalue for mode in found.modes] == pytest.approx([0.2], abs=1e-12)


def test_outputs_that_are_the_reference_are_all_copies_and_nothing_is_novel():
    rows = normal(30, 0)
    found = dp.novelty(rows[::-1].copy(), rows, **QUICK)
    assert found.total == pytest.approx(0, abs=1e-9)
    assert (found.ken, found.num_kinds, found.modes) == (0, 0, ())
    assert np.allclose(found.novelty, 0) and found.nearest.tolist() == list(range(30))[::-1]
    assert len(found.copies) == 30


def test_novelty_is_one_minus_the_largest_similarity():
    x, reference = normal(20, 0), normal(50, 1)
    found = dp.novelty(x, reference, kernel_x=dp.Gaussian(2.0), **QUICK)
    squares = ((x[:, None] - reference) ** 2).sum(-1)
    assert np.allclose(found.novelty, 1 - np.exp(-squares.min(axis=1) / 8))
    assert found.nearest.tolist() == squares.argmin(axis=1).tolist()
    cosine = dp.novelty(x, reference, **COSINE, **QUICK)
    units = [rows / np.linalg.norm(rows, axis=1, keepdims=True) for rows in (x, reference)]
    assert np.allclose(cosine.novelty, 1 - (units[0] @ units[1].T).max(axis=1))


def test_relative_distances_are_those_of_a_plain_computation():
    x, reference = normal(15, 0), normal(40, 1)
    found = dp.novelty(x, reference, num_neighbours=3, kernel_x=dp.Gaussian(1.0), **QUICK)
    apart = np.linalg.norm(reference[:, None] - reference, axis=2)
    np.fill_diagonal(apart, np.inf)
    across = np.linalg.norm(x[:, None] - reference, axis=2)
    for row in range(15):
        nearest = across[row].argmin()
        right = across[row].min() / np.sort(apart[nearest])[2]
        assert found.relative_distance[row] == pytest.approx(right, rel=1e-9)
    inside = []
    for item in range(40):
        nearest = apart[item].argmin()
        others = np.delete(apart[nearest], item)
        inside.append(apart[item].min() / np.sort(others)[2])
    assert found.threshold == pytest.approx(np.sort(inside)[0], rel=1e-9)


def test_outputs_that_landmarks_miss_are_counted_however_large_the_reference(monkeypatch):
    basis = sys.modules["divprism.analysis.differences.basis"]
    monkeypatch.setattr(basis, "_EXACT", 10)
    monkeypatch.setattr(basis, "_LANDMARKS", 30)
    x, reference = 9 * normal(40, 0), normal(600, 1) / 10
    found = dp.novelty(x, reference, kernel_x=dp.Gaussian(1.0), **QUICK)
    assert 0.8 < found.unseen < 1
    assert [notice.code for notice in found.warnings] == ["modes-unseen"]


@pytest.mark.parametrize(("of_reference", "p_value"), [(-5.0, 0.01), (-1.5, 0.5)])
def test_what_the_reference_has_more_of_is_left_out_only_if_it_is_real(of_reference, p_value):
    """Exchanges reach 2 in its direction: of the novel mode, 1 is rare only if that is real."""
    exchanged = np.tile(np.diag([2.0, 0.0]), (99, 1, 1))
    exchanged[::2] *= -1  # fifty of them
    chance = Chance(np.array([of_reference, 1.0]), exchanged)
    assert chance.p_of_modes((1,), 1, is_symmetric=True)[1][0] == p_value


# --- near-copies


def test_planted_copies_are_listed_and_few_others():
    reference, new = normal(300, 0), normal(200, 1)
    new[:20] = reference[:20] + 0.02 * normal(20, 2)
    found = dp.novelty(new, reference, **QUICK)
    listed = {copy.row: copy.reference_row for copy in found.copies}
    assert all(listed[row] == row for row in range(20))
    # One in a hundred of 180 new outputs is expected; eight or more have a chance of 0.1 %.
    assert len(listed) - 20 < 8
    assert [copy.relative_distance for copy in found.copies] == sorted(
        copy.relative_distance for copy in found.copies
    )


def test_copies_in_the_reference_raise_no_alarm():
    """Half of the reference occurs twice: a distance of zero is usual there, and others are not."""
    reference = normal(200, 0)
    reference = np.concatenate([reference, reference[:100]])
    new = normal(100, 1)
    found = dp.novelty(new, reference, **QUICK)
    assert found.copies == ()
    new[7] = reference[3]
    assert [copy.row for copy in dp.novelty(new, reference, **QUICK).copies] == [7]


def test_a_reference_of_copies_leaves_finite_documents():
    found = dp.novelty(normal(4, 0), np.ones((9, 6)), kernel_x=dp.Gaussian(1.0), **QUICK)
    document = json.loads(found.to_json())
    assert document["novelty"]["outputs"]["relative_distance"] == [None] * 4


def test_the_quantile_sets_the_share_of_false_alarms():
    reference, new = normal(250, 0), normal(250, 1)
    counts = []
    for share in (0, 0.05, 0.3):
        found = dp.novelty(new, reference, quantile=share, num_permutations=0)
        counts.append(len(found.copies))
    assert counts[0] <= 3
    assert 3 < counts[1] < 26 and 50 < counts[2] < 100


def test_the_order_of_rows_does_not_matter():
    x, reference = normal(40, 0), normal(60, 1)
    x[:10] += 5
    right = dp.novelty(x, reference, **QUICK)
    rng = np.random.default_rng(0)
    rows, items = rng.permutation(40), rng.permutation(60)
    found = dp.novelty(x[rows], reference[items], **QUICK)
    assert np.allclose(found.novelty, right.novelty[rows])
    assert (items[found.nearest] == right.nearest[rows]).all()
    for one, other in zip(right.modes, found.modes, strict=True):
        assert one.eigenvalue == pytest.approx(other.eigenvalue, abs=1e-9)
        assert one.held_out == pytest.approx(other.held_out, abs=1e-9)
        assert one.p_value == other.p_value


@pytest.mark.parametrize("are_same", [False, True])
def test_neighbours_in_blocks_are_those_of_all_distances(monkeypatch, are_same):
    monkeypatch.setattr("divprism.core.nearest._BLOCK_ENTRIES", 100)
    a = normal(30, 0, 3).round(1) + 1e6
    b = a if are_same else normal(25, 1, 3).round(1) + 1e6
    squares = ((a[:, None] - b) ** 2).sum(-1)
    if are_same:
        np.fill_diagonal(squares, np.inf)
    index, found = nearest_rows(a, b, 4, are_same=are_same)
    assert (found == np.sort(squares, axis=1)[:, :4]).all()
    assert (np.take_along_axis(squares, index, axis=1) == found).all()


# --- refusals


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"quantile": 1}, "`quantile` must be from 0 to below 1; got 1"),
        ({"quantile": "many"}, "`quantile` must be from 0 to below 1; got 'many'"),
        ({"num_neighbours": 0}, "`num_neighbours` must be a whole number"),
        ({"ratio": -1.0}, "`ratio` must be positive"),
        ({"kernel_x": dp.Polynomial(2)}, "`kernel_x` must be Gaussian or Cosine"),
        ({"reference": np.eye(6)[:2]}, "`reference` must have at least 3 items; got 2"),
        ({"reference": np.eye(5)}, "`reference` has 5 numbers in a row and the outputs have 6"),
        ({"reference": np.ones(9)}, "`reference` must have shape"),
        ({"reference": np.full((9, 6), np.inf)}, "9 of 9 rows of `reference` contain NaN"),
        ({"ratio": 1e9}, "`ratio` must be at most 1,000,000"),
    ],
)
def test_what_cannot_be_judged_is_refused_in_a_sentence(options, message):
    call = {"x": normal(9, 0), "reference": normal(9, 1)} | options
    with pytest.raises((dp.ArgumentError, dp.DataError), match=message):
        dp.novelty(**call)


def test_several_models_are_one_too_many():
    samples = dp.Samples(normal(4, 0), None, ("a", "a", "b", "b"))
    with pytest.raises(dp.DataError, match="novelty is of one model"):
        dp.novelty(samples, normal(9, 1), **QUICK)
    assert dp.novelty(samples, normal(9, 1), model="b", **QUICK).data["n"] == 2


# --- the command


WORDS = ["red apple", "green pear", "black tea", "cold milk", "warm bread", "fresh fish"]


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("differences")
    rng = np.random.default_rng(0)
    models = {"one": [], "two": []}
    for number in range(24):
        for model, rows in models.items():
            word = WORDS[rng.integers(0, 4)]
            if model == "two" and rng.random() < 0.6:
                word = "<script>alert(1)</script> a rocket to the moon"
            prompt = f"Name thing {number % 6}."
            rows.append({"prompt": prompt, "output": word, "model": model})
    both = jsonl(models["one"] + models["two"])
    parts = {f"{name}.jsonl": jsonl(rows) for name, rows in models.items()}
    real = jsonl([{"output": f"{word} number {i}"} for i in range(8) for word in WORDS])
    write(folder, parts | {"both.jsonl": both, "real.jsonl": real})
    return folder


def test_the_table_has_a_row_for_each_mode(files):
    done = run("diff", files / "one.jsonl", files / "two.jsonl", "-q")
    assert (done.returncode, done.stderr) == (0, b"")
    lines = done.stdout.decode().splitlines()
    assert lines[0] == "one and two: 24 outputs of each for 6 prompts"
    assert lines[1].split()[:4] == ["more", "in", "one", "two"]
    assert lines[2].startswith("two") and "rocket" in lines[2]
    assert any("of at most 1" in line for line in lines)
    same = run("diff", files / "both.jsonl", "-q")
    assert same.stdout == done.stdout


def test_the_document_and_the_records_hold_everything(files):
    call = ("diff", files / "both.jsonl", "--first", "two", "--second", "one", "-q")
    document = json.loads(run(*call, "--format", "json").stdout)
    found = document["differences"]
    assert (found["first"], found["second"]) == ("two", "one")
    right = dp.diff(dp.load(files / "both.jsonl"), first="two", second="one").to_dict()
    assert found == json.loads(json.dumps(right["differences"]))
    rows = list(csv.DictReader(io.StringIO(run(*call, "--format", "csv").stdout.decode())))
    assert [row["model"] for row in rows] == [mode["model"] for mode in found["modes"]]
    assert {"held_out_low", "held_out_high", "prompt", "output", "nearest"} <= set(rows[0])


def test_groups_have_rows_of_their_own(files):
    done = run("diff", files / "both.jsonl", "--group-by", "prompt", "-q")
    lines = done.stdout.decode().splitlines()
    assert lines[0].endswith(", in 6 groups")
    assert sum("Name thing" in line for line in lines) == 6


def test_a_reference_alone_is_asked_for_novelty(files):
    done = run("diff", files / "two.jsonl", "--reference", files / "real.jsonl", "-q")
    text = done.stdout.decode()
    assert text.startswith("24 outputs against a reference of 48 items")
    assert "rocket" in text.splitlines()[2] and "near-copies of the reference" in text
    both = run(
        "diff", files / "both.jsonl", "--reference", files / "real.jsonl", "--second", "two",
        "--first", "one", "-q",
    )  # fmt: skip
    assert "reference" in both.stdout.decode().splitlines()[1]


@pytest.mark.parametrize("more", [(), ("--reference", "real.jsonl")])
def test_the_page_escapes_texts_and_runs_nothing(files, tmp_path, more):
    page = tmp_path / "page.html"
    done = run("diff", "two.jsonl", *(more or ("one.jsonl",)), "--report", page, cwd=files)
    assert f"wrote {page}" in done.stderr.decode()
    text = page.read_text()
    assert "<script" not in text and "&lt;script&gt;alert(1)" in text
    assert "default-src 'none'" in text and "a rocket to the moon" in text


def test_the_page_shows_images_beside_each_other(tmp_path):
    models = {}
    for model, shades in (("light", (200, 250)), ("dark", (10, 60))):
        rows = []
        for number in range(6):
            name = f"{model}{number}.png"
            level = shades[number % 2]
            write(tmp_path, {name: image_bytes((level, level, level))})
            rows.append({"prompt": f"shade {number % 3}", "image": name})
        models[model] = rows
    for model, rows in models.items():
        write(tmp_path, {f"{model}.jsonl": jsonl(rows)})
    found = dp.diff(
        dp.load(tmp_path / "light.jsonl"),
        dp.load(tmp_path / "dark.jsonl"),
        embedder_x=_mean_color,
        **QUICK,
    )
    page = dp.html_report(found)
    assert page.count("data:image/jpeg;base64,") >= 4
    novel = dp.novelty(
        dp.load(tmp_path / "light.jsonl"),
        dp.load(tmp_path / "dark.jsonl"),
        embedder_x=_mean_color,
        **QUICK,
    )
    assert "data:image/jpeg;base64," in dp.html_report(novel)
    assert "against a reference of 6 items" in repr(novel)
    assert len(novel.to_frame()) == 6 and len(found.to_frame()) == len(found.modes)


def _mean_color(images):
    return np.array([np.asarray(image, float).mean(axis=(0, 1)) / 50 for image in images])


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("one.jsonl",), 2, "diff needs two models: name a second source"),
        (("one.jsonl", "one.jsonl"), 2, "diff needs two models"),
        (("both.jsonl", "--group-by", "topic"), 2, "--group-by must be prompt, eigen, kmeans"),
        (("one.jsonl", "two.jsonl", "--quantile", "0.1"), 2, "--quantile needs --reference alone"),
        (("one.jsonl", "--reference", "real.jsonl", "--modes-of", "pairs"), 2, "needs two models"),
        (("one.jsonl", "two.jsonl", "--modes-of", "rows"), 2, "--modes-of must be pairs"),
        (("one.jsonl", "two.jsonl", "--report", "one.jsonl"), 2, "one.jsonl"),
        (("one.jsonl", "two.jsonl", "--interval", "0"), 2, "--interval must be above 0"),
    ],
)
def test_the_command_refuses_in_one_sentence(files, arguments, code, message):
    before = (files / "one.jsonl").read_bytes()
    done = run("diff", *arguments, "-q", cwd=files)
    assert done.returncode == code, done.stderr
    assert message in done.stderr.decode()
    assert len(done.stderr.decode().splitlines()) == 1
    assert (files / "one.jsonl").read_bytes() == before
