"""`score --scendi`: the number of `dp.scendi`, in the table, JSON, CSV and page."""

import json

import numpy as np
import pytest
from report_cases import run

import divprism as dp
from divprism.analysis import scendi_beside
from divprism.analysis.evaluation import Results
from divprism.errors import ArgumentError
from divprism.report.tables import evaluation_table, results_table, scores_table

KERNELS = {"kernel_x": dp.Cosine(), "kernel_t": dp.Categorical()}


@pytest.fixture
def files(tmp_path):
    """One prompt with four different outputs: scendi is 3^(3/4)."""
    np.save(tmp_path / "x.npy", np.eye(4))
    np.save(tmp_path / "t.npy", np.zeros(4, int))
    return ["score", tmp_path / "x.npy", "--kernel-x", "cosine", "--interval", 0]


def test_the_flag_adds_a_row_a_key_a_record_and_a_sentence(files, tmp_path):
    prompts = ["--prompts", tmp_path / "t.npy", "--kernel-t", "categorical"]
    page = tmp_path / "page.html"
    done = run(*files, *prompts, "--scendi", "--format", "json", "--report", page)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["scendi"]["value"] == pytest.approx(3**0.75)
    assert "Scendi 2.28: " in page.read_text()
    assert "scendi" in run(*files, *prompts, "--scendi", "--format", "csv").stdout
    plain = run(*files, *prompts, "--format", "json")
    assert "scendi" not in json.loads(plain.stdout)


def test_without_prompts_or_with_weights_it_is_refused(files, tmp_path):
    done = run(*files, "--scendi")
    assert done.returncode == 2
    assert "--scendi needs prompts" in done.stderr
    np.save(tmp_path / "w.npy", np.full(4, 0.25))
    done = run(*files, "--scendi", "--weights", tmp_path / "w.npy")
    assert done.returncode == 2
    assert "does not go with --weights" in done.stderr


@pytest.mark.parametrize(
    "options",
    [{"order": 2}, {"truncation": 5}, {"truncation": "auto"}, {"preset": "truncated-vendi"}],
)
def test_it_has_the_kernels_of_the_scores_and_no_other_order(options):
    rng = np.random.default_rng(0)
    x, t = rng.normal(size=(24, 3)), np.repeat(np.arange(6), 4)
    result = dp.evaluate(x, t, interval=None, **options)
    beside = scendi_beside.with_scendi(Results.of(result))
    [added] = beside.values()
    kernels = {"kernel_x": result.settings.kernel_x, "kernel_t": result.settings.kernel_t}
    assert float(added.scendi) == float(dp.scendi(x, t, **kernels))
    documents = {"a": added.to_dict(), "b": result.to_dict()}
    table = results_table(documents)
    column = [each.key for each in table.columns].index("scendi")
    assert [row[column] for row in table.rows] == [float(added.scendi), None]
    assert [row[0] for row in evaluation_table(documents["a"]).rows][-1:] == ["scendi"]
    assert [row[3] for row in scores_table(documents).rows if row[1] == "scendi"] == [added.scendi]


def test_too_many_outputs_are_refused(monkeypatch):
    monkeypatch.setattr(scendi_beside, "_MOST_OUTPUTS", 3)
    result = dp.evaluate(np.eye(4), [0, 0, 1, 1], **KERNELS)
    with pytest.raises(ArgumentError, match="up to 3 outputs of a model; got 4"):
        scendi_beside.with_scendi(Results.of(result))
