"""Results as flat dictionaries of numbers, as loggers of experiments take them."""

import pytest
from report_cases import four_prompts

from divprism.analysis.evaluation import Results


@pytest.fixture(scope="module")
def evaluation():
    return four_prompts()


def test_every_score_and_interval_is_a_plain_float(evaluation):
    logged = evaluation.log_dict()
    assert {type(value) for value in logged.values()} == {float}
    for name, score in evaluation.scores.items():
        assert logged[f"divprism/{name}"] == score
    for name, interval in evaluation.intervals.items():
        assert logged[f"divprism/{name}_low"] == interval.low
        assert logged[f"divprism/{name}_high"] == interval.high
    assert len(logged) == len(evaluation.scores) + 2 * len(evaluation.intervals)
    assert evaluation.intervals


def test_the_prefix_is_free(evaluation):
    assert evaluation.log_dict("")["vendi"] == evaluation.vendi
    assert evaluation.log_dict(prefix="val/")["val/vendi"] == evaluation.vendi


def test_one_model_needs_no_name(evaluation):
    assert Results.of(evaluation).log_dict() == evaluation.log_dict()
    assert Results({"a": evaluation}).log_dict("p/") == evaluation.log_dict("p/")


def test_several_models_have_their_names(evaluation):
    logged = Results({"a": evaluation, "b": evaluation}).log_dict()
    assert len(logged) == 2 * len(evaluation.log_dict())
    assert logged["divprism/a/vendi"] == logged["divprism/b/vendi"] == evaluation.vendi
    assert "divprism/b/conditional_vendi" in logged


def test_names_of_models_stay_as_they_are(evaluation):
    # As in model names of a hub. Loggers read a slash as a section.
    logged = Results({"org/a": evaluation, "b": evaluation}).log_dict()
    assert "divprism/org/a/vendi" in logged
