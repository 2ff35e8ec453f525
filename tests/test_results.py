"""Results: a score is a number, and every result prints short, frames, renders and saves."""

import copy
import json
import math
import pickle

import numpy as np
import pytest

import divprism as dp
from divprism.analysis.evaluation import Results
from divprism.scores.spec import LABELS, QUALITY, SCORES

LONGEST = 25  # lines of a repr
RNG = np.random.default_rng(4)
X, T = RNG.standard_normal((120, 4)), np.repeat(RNG.standard_normal((40, 3)), 3, axis=0)
KERNELS = {"kernel_x": dp.Gaussian(1.5), "kernel_t": dp.Gaussian(1.0)}


@pytest.fixture(scope="module")
def score():
    return dp.conditional_vendi(X, T, **KERNELS)


def test_a_score_compares_as_a_number(score):
    value = score.value
    assert isinstance(score, float) and type(value) is float
    assert score == value and value == score and score != value + 1
    assert score > 1 and 1 < score <= value and score < math.inf
    assert max(score, 0.5) is score and sorted([score, 0.5])[0] == 0.5
    assert hash(score) == hash(value) and score in {value}
    assert bool(score)


def test_a_score_computes_as_a_number(score):
    value = score.value
    assert score + 1 == value + 1 and 1 - score == 1 - value
    assert 2 * score / 3 == 2 * value / 3 and score**2 == value**2 and -score == -value
    assert abs(score) == value and divmod(score, 1) == divmod(value, 1)
    assert type(score + 1) is float  # a sum is no score
    assert math.log(score) == pytest.approx(score.entropy)
    assert int(score) == int(value) and math.floor(score) == math.floor(value)
    assert sum([score, score]) == 2 * value


def test_a_score_formats_and_rounds_as_a_number(score):
    assert f"{score:.3f}" == f"{score.value:.3f}" and f"{score:10.2e}" == f"{score.value:10.2e}"
    assert "%.2f" % score == "%.2f" % score.value  # noqa: UP031
    assert round(score, 2) == round(score.value, 2) and round(score) == round(score.value)
    assert json.dumps({"score": score}) == json.dumps({"score": score.value})
    assert repr(score) == f"<Score {score}>" and score.name in str(score)


@pytest.mark.parametrize(
    "duplicate", [copy.copy, copy.deepcopy, lambda score: pickle.loads(pickle.dumps(score))]
)
def test_a_score_survives_copy_and_pickle(score, duplicate):
    again = duplicate(score)
    assert again == score and type(again) is type(score)
    assert (again.name, again.n, again.settings) == (score.name, score.n, score.settings)
    assert str(again) == str(score)
    assert list(again.spectra) == list(score.spectra)


def test_a_score_goes_into_arrays(score):
    array = np.array([score, 1.0])
    assert array.dtype == np.float64 and array[0] == score.value
    assert np.mean([score, score]) == score and np.exp(score) == np.exp(score.value)
    assert np.isclose(score, score.value) and np.float64(score) == score.value
    assert type(np.float64(2) * score) is np.float64


def models(count, outputs=12):
    """Small models on the same prompts, so that a table of many of them is cheap."""
    t = np.repeat(np.arange(outputs // 2), 2)
    rng = np.random.default_rng(0)
    return {f"model {i}": dp.Samples(rng.standard_normal((outputs, 2)), t) for i in range(count)}


def several(count):
    parts = models(count)
    names = [name for name, part in parts.items() for _ in range(len(part))]
    return dp.Samples(
        np.concatenate([part.outputs for part in parts.values()]),
        np.concatenate([part.prompts for part in parts.values()]),
        models=tuple(names),
    )


def evaluation():
    given = {"interval": 0.95, "num_permutations": 2, "quality": np.arange(120) % 3}
    return dp.evaluate(X, T, np.arange(120) // 40, **given, **KERNELS)


QUICK = {"num_permutations": 0}  # baselines of many models take seconds
RESULTS = {
    "evaluation": evaluation,
    "results of one model": lambda: Results.of(evaluation()),
    "results of many models": lambda: dp.evaluate_models(
        several(40), interval=0.9, num_permutations=0
    ),
    "comparison": lambda: dp.compare(models(3)),
    "comparison of many models": lambda: dp.compare(models(25), **QUICK),
    "groups by prompt": lambda: dp.prompt_groups(X, T, dp.ExactPromptGrouping(), min_size=2),
    "groups by direction": lambda: dp.prompt_groups(X, T, dp.EigenDirectionGrouping(6), **KERNELS),
}
ROWS = {
    "evaluation": len(SCORES),
    "results of one model": len(SCORES),
    # All but the cluster scores, and those with a quality.
    "results of many models": 40 * sum(not {LABELS, QUALITY} & set(spec.needs) for spec in SCORES),
    "comparison": 3,
    "comparison of many models": 25,
    "groups by prompt": 40,
    "groups by direction": 6,
}


@pytest.fixture(scope="module", params=RESULTS)
def result(request):
    return request.param, RESULTS[request.param]()


def test_a_result_prints_in_a_few_lines(result, monkeypatch):
    _, value = result
    for columns in ("80", "100", "160"):
        monkeypatch.setenv("COLUMNS", columns)
        lines = repr(value).splitlines()
        assert len(lines) < LONGEST, "\n".join(lines)
        assert max(map(len, lines)) <= int(columns)
    assert str(value) == repr(value)


def test_a_result_is_a_frame_of_all_rows(result):
    name, value = result
    frame = value.to_frame()
    assert len(frame) == ROWS[name]


def test_a_result_is_html(result):
    _, value = result
    html = value._repr_html_()
    assert html.count("<table") == html.count("</table>") == 1
    assert "<script" not in html


def test_a_result_is_saved_as_the_document_that_it_is(result, tmp_path):
    _, value = result
    value.save(tmp_path / "result.json")
    text = (tmp_path / "result.json").read_text(encoding="utf-8")
    assert text == value.to_json() + "\n"
    assert json.loads(text) == json.loads(json.dumps(value.to_dict(), allow_nan=False))
    assert json.loads(text)["schema"] == 2


def test_results_are_a_mapping_of_models():
    results = dp.evaluate_models(several(3))
    assert list(results) == ["model 0", "model 1", "model 2"] and len(results) == 3
    assert "model 1" in results and "other" not in results
    assert results["model 0"] is results.first and results.settings == results.first.settings
    assert set(results.to_dict()["models"]) == set(results)
    one = Results.of(results.first)
    assert list(one) == ["model 0"] and one.to_dict() == results.first.to_dict()


def test_every_score_is_an_attribute_of_an_evaluation():
    found = evaluation()
    for name, score in found.scores.items():
        assert getattr(found, name) is score and name in dir(found)
    without = dp.evaluate(X)
    assert without.conditional_vendi is None and without.cluster_vendi is None
    with pytest.raises(AttributeError, match="'Evaluation' object has no attribute 'diversity'"):
        _ = without.diversity
    again = pickle.loads(pickle.dumps(found))
    assert again.scores == found.scores and again.to_dict() == found.to_dict()


def test_names_of_models_cannot_become_markup():
    t = np.repeat(np.arange(6), 2)
    samples = {"<b>": dp.Samples(X[:12], t), "b": dp.Samples(X[12:24], t)}
    html = dp.compare(samples)._repr_html_()
    assert "<b>" not in html and "&lt;b&gt;" in html
