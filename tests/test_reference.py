"""Outputs beside real data: the other columns of the papers' tables."""

import json

import numpy as np
import pytest
from command_line import run

import divprism as dp
from divprism.errors import ArgumentError, DataError
from divprism.report import report_page

RNG = np.random.default_rng(5)
X, REAL = RNG.normal(size=(24, 5)), RNG.normal(size=(30, 5)) + 0.5
T = np.arange(24) // 4
ANSWERS = [f"a story about {animal} {number}" for number in range(4) for animal in ["cats", "dogs"]]
QUESTIONS = [f"write about {animal}" for _ in range(4) for animal in ["cats", "dogs"]]
METRICS = ("kernel_distance", "recall", "coverage", "alignment", "in_batch_similarity")


def test_metrics_are_those_of_the_functions():
    found = dp.evaluate(X, T, reference=REAL).fidelity
    assert found.kernel_distance == dp.kernel_distance(X, REAL)
    assert (found.recall, found.coverage) == (dp.recall(X, REAL), dp.coverage(X, REAL))
    assert found.in_batch_similarity == dp.in_batch_similarity(X, T)
    assert found.batches == "prompt"
    assert dp.evaluate(X, T).fidelity is None


def test_without_repeated_prompts_a_batch_is_all_outputs():
    found = dp.evaluate(X, np.arange(24), reference=REAL).fidelity
    unit = X / np.linalg.norm(X, axis=1, keepdims=True)
    cosines = unit @ unit.T
    expected = cosines[~np.eye(24, dtype=bool)].mean()
    assert found.batches == "all"
    assert found.in_batch_similarity == pytest.approx(expected, rel=1e-9)
    # Random batches of three have the same mean.
    rng = np.random.default_rng(0)
    drawn = []
    for _ in range(400):
        labels = rng.permutation(24) // 3
        drawn.append(dp.in_batch_similarity(X, labels))
    error = np.std(drawn) / 20
    assert abs(np.mean(drawn) - expected) < 4 * error


def test_alignment_needs_one_model_on_both_sides():
    apart = dp.evaluate(X, X[:, ::-1].copy(), reference=REAL).fidelity
    assert apart.alignment is None
    assert "not embedded by one model" in apart.absent["alignment"]
    texts = dp.evaluate(ANSWERS, QUESTIONS, reference=QUESTIONS)
    vectors = texts.samples
    expected = dp.alignment(vectors.outputs, vectors.prompts)
    assert texts.fidelity.alignment == pytest.approx(expected, rel=1e-12)


def test_the_reference_is_embedded_and_scaled_as_the_outputs():
    texts = dp.evaluate(ANSWERS, QUESTIONS, reference=ANSWERS, normalize=True)
    rows = texts.samples.outputs
    assert texts.fidelity.kernel_distance == dp.kernel_distance(rows, rows)
    assert texts.fidelity.coverage == 1.0


def test_a_reference_that_cannot_be_compared_is_refused():
    with pytest.raises(ArgumentError, match="`reference` must be vectors as the outputs are"):
        dp.evaluate(X, T, reference=ANSWERS)
    with pytest.raises(DataError, match="one embedder"):
        dp.evaluate(X, T, reference=REAL[:, :3])
    with pytest.raises(ArgumentError, match="does not go with `weights`"):
        dp.evaluate(X, T, reference=REAL, weights=np.full(24, 1 / 24))
    with pytest.raises(DataError, match="at most 4 neighbours"):
        dp.evaluate(X, T, reference=REAL[:5])
    with pytest.raises(ArgumentError, match="precomputed kernel has none"):
        dp.evaluate(np.eye(24), T, kernel_x=dp.Precomputed(), reference=REAL)


def test_an_output_of_zeros_has_no_cosine():
    x = X.copy()
    x[3] = 0
    found = dp.evaluate(x, T, reference=REAL).fidelity
    assert found.in_batch_similarity is None
    assert "all zeros" in found.absent["in_batch_similarity"]


def test_the_command_line_prints_the_metrics_in_every_format(tmp_path):
    lines = [
        json.dumps({"prompt": question, "output": answer, "model": model})
        for model in ("one", "two")
        for question, answer in zip(QUESTIONS, ANSWERS, strict=True)
    ]
    (tmp_path / "both.jsonl").write_text("\n".join(lines))
    (tmp_path / "one.jsonl").write_text("\n".join(lines[:8]))
    (tmp_path / "real.jsonl").write_text("\n".join(json.dumps({"output": q}) for q in ANSWERS))
    real = ("--reference", tmp_path / "real.jsonl")
    for source in ("one", "both"):
        call = ("score", tmp_path / f"{source}.jsonl", *real)
        document = json.loads(run(*call, "--format", "json").stdout)
        for part in document.get("models", {"": document}).values():
            assert set(METRICS) < set(part["fidelity"])
        csv = run(*call, "--format", "csv").stdout.decode()
        table = run(*call, "--format", "md").stdout.decode()
        for name in METRICS:
            assert f",{name}," in csv
        for word in ("recall", "coverage", "alignment", "reference: 8 items"):
            assert word in table
    (tmp_path / "r.json").write_text(json.dumps(document))
    page = run("report", tmp_path / "r.json", "-o", tmp_path / "r.html")
    assert page.returncode == 0, page.stderr


def test_the_page_shows_the_metrics_of_each_model_and_what_they_compare():
    result = dp.evaluate(X, np.repeat(np.eye(6), 4, axis=0), reference=REAL)
    page = report_page(result.to_dict())
    assert page.count("Beside real data</h3>") == 1
    for name in ("kernel_distance", "recall", "coverage", "in_batch_similarity"):
        value = result.to_dict()["fidelity"][name]
        if name == "kernel_distance":
            assert f">{value['standard_error']:.2g}<" in page
            value = value["value"]
        assert f">{name}<" in page and f">{value:.4g}<" in page
    assert "Reference: 30 items" in page
    assert "No alignment: outputs and prompts were not embedded by one model." in page
    two = {"models": {name: result.to_dict() for name in ("one", "two")}}
    assert report_page(two | {"schema": 2}).count("Beside real data</h3>") == 2
    assert "Beside real data" not in report_page(dp.evaluate(X, T).to_dict())


def test_a_reference_that_is_not_there_is_one_sentence(tmp_path):
    np.save(tmp_path / "x.npy", X)
    done = run("score", tmp_path / "x.npy", "--reference", tmp_path / "none.npy")
    assert done.returncode == 4
    assert done.stderr.decode().splitlines()[-1].startswith("divprism: ")
